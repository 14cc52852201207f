"""What the guide's page on other people's models says works, as far as their packages are there.

``python tests/ecosystem/run.py FOLDER --show`` makes a venv that has them; there: ``FOLDER/venv/bin/python -m pytest
tests/ecosystem/test_bring_your_model.py``.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from qbench import suite
from qbench.models import adapt, dry_run
from qbench.models.base import ModelReference, Network

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "qbench" / "guide" / "bring_your_model.md"
PARTS = re.compile(r"```python\n# file: (\S+)\n(.*?)```.*?```yaml\n(.*?)```", re.DOTALL)
EXAMPLES = {part[0]: part[1:] for part in PARTS.findall(PAGE.read_text(encoding="utf-8"))}
IMAGE, TOKENS = np.zeros((2, 3, 64, 64), np.float32), np.ones((2, 12), np.int64)
INPUTS = {
    "classifier.py": (IMAGE,),
    "detector.py": (IMAGE,),
    "heads.py": (IMAGE,),
    "encoder.py": (TOKENS, TOKENS),
    "sentences.py": (TOKENS, TOKENS),
    "decoder.py": (TOKENS, TOKENS),
    "pairs.py": (TOKENS, TOKENS, IMAGE),
    "questions.py": (TOKENS, TOKENS, IMAGE),
    "sound.py": (np.zeros((2, 4000), np.float32),),
}


def install_stand_ins():
    """For the operators of torchvision, which torch for CPUs alone does not load."""
    sys.path.insert(0, str(HERE))
    import stand_ins

    stand_ins.install()


def test_every_example_of_the_page_is_tried_here():
    """A new family needs its inputs in the table."""
    assert set(EXAMPLES) == set(INPUTS)
    assert all(len(code.strip().splitlines()) <= 30 for code, _ in EXAMPLES.values())


def test_what_is_written_for_vilt_gives_its_answers():
    """The order of the pieces of a picture, drawn by chance, changes nothing but the rounding."""
    transformers = pytest.importorskip("transformers")
    import torch

    install_stand_ins()
    space = {}
    exec(compile(EXAMPLES["questions.py"][0], "questions.py", "exec"), space)
    written = space["build"]().eval()
    torch.nn.init.normal_(written.vilt.embeddings.position_embeddings)
    network = transformers.ViltForQuestionAnswering(written.config).eval()
    network.load_state_dict(written.state_dict())
    ids = torch.randint(1, 100, (2, 12), generator=torch.Generator().manual_seed(0))
    for shape in ((2, 3, 64, 64), (2, 3, 96, 64)):
        image = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            own, theirs = (module(input_ids=ids, pixel_values=image).logits for module in (written, network))
        torch.testing.assert_close(own, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("file", sorted(INPUTS))
def test_an_example_gives_a_row_for_each_example(file, tmp_path, monkeypatch):
    """The file as it stands, called as the part of the suite below it says."""
    code, part = EXAMPLES[file]
    for package in dict.fromkeys(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `python tests/ecosystem/run.py FOLDER` makes a venv that has it")
    if "all-MiniLM" in code:
        pytest.skip("its weights come from the network")
    install_stand_ins()
    (tmp_path / file).write_text(code)
    text = f"suite: s\n{part}data: {{dataset: digits}}\nmatrix: {{}}\n"
    (reference,) = suite.parse(text, file=str(tmp_path / "s.yaml")).references()
    space = {}
    exec(compile(code, file, "exec"), space)
    module = space["build"]().eval()
    adapt.adapt_module(module, reference)
    if only := dry_run.find_first_output(Network(kind="torch", module=module), INPUTS[file]):
        adapt.adapt_module(module, ModelReference(name="mine", output=only))
    assert len(dry_run.try_outputs(Network(kind="torch", module=module), INPUTS[file])) == 2
