"""Every example of the README works as it is written."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_networks
import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


def files():
    """Name -> text of every block that begins with ``# file: name``."""
    found = {}
    for _, block in BLOCKS:
        first, _, rest = block.partition("\n")
        if match := re.fullmatch(r"# file: (\S+)", first):
            found[match[1]] = rest
    return found


def commands():
    """Every ``$`` line of a console block with the exit codes that it may have."""
    for language, block in BLOCKS:
        if language == "console":
            for line in block.splitlines():
                command, _, comment = line.removeprefix("$ ").partition("    # exit code ")
                assert line.startswith("$ qbench "), line
                yield command, {int(code) for code in comment.split(" or ")} if comment else {0}


def test_the_first_screen_holds_the_two_commands():
    """A fresh machine needs these two lines and nothing else, before the first heading."""
    first = TEXT.partition("\n## ")[0]
    assert re.findall(r"`(python3 -m venv [^`]*)`", first) == [
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/qbench run suites/quickstart.yaml",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest",
    ]


def test_every_subcommand_has_its_heading():
    """Subcommand = module = test file = heading."""
    from qbench.cli import app

    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    names |= {group.typer_instance.info.name for group in app.registered_groups}
    assert names <= set(re.findall(r"^## (\w+)$", TEXT, flags=re.MULTILINE))


def model_for_digits(folder):
    """``model.onnx``, which the README's reader has: a layer called ``classifier``, the input ``image`` of a digit."""
    draft = onnx_networks.Draft()
    x = draft.add("Relu", [draft.conv("image", "conv", 1, 8)], "relu")
    x = draft.add("Flatten", [draft.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])], "flatten")
    x = draft.linear(x, "classifier", 8 * 4 * 4, 10)
    return onnx_networks.save(draft.model({"image": ["batch", 1, 8, 8]}, {x: ["batch", 10]}), folder)


def test_the_python_example_of_onnx_runs_as_written(tmp_path, monkeypatch, capsys):
    """From a model to its deploy model with a loop of the reader's own."""
    monkeypatch.chdir(tmp_path)
    model_for_digits(tmp_path)
    (code,) = [block for language, block in BLOCKS if language == "python" and "import qbench.onnx" in block]
    batches = [np.random.default_rng(seed).standard_normal((2, 1, 8, 8)).astype(np.float32) for seed in range(4)]
    exec(compile(code, "README.md", "exec"), {"batches": batches})
    assert capsys.readouterr().out == "int8/model_deploy_model.onnx 1.0\n"


@pytest.mark.parametrize("name", ["my_model.py", "my_data.py", "my_score.py"])
def test_the_files_shown_are_the_files_shipped(name):
    """What a reader copies from the page is what lies in tests/data/user."""
    assert files()[name] == (ROOT / "tests/data/user" / name).read_text(encoding="utf-8")


def test_every_link_leads_somewhere():
    """Paths and pictures that the README names exist."""
    for path in re.findall(r"\]\(([^)]+)\)", TEXT) + re.findall(r"`((?:suites|\.github|tests)/[^`*]+)`", TEXT):
        assert (ROOT / path).exists(), path


def test_the_examples_run_as_written(tmp_path):
    """From the three files to a gate: every command, in order, in one folder, with its exit code."""
    shutil.copytree(ROOT / "tests/data/user", tmp_path, dirs_exist_ok=True)
    for name in ("mine.yaml", "recipes.yaml"):
        (tmp_path / name).write_text(files()[name], encoding="utf-8")
    model_for_digits(tmp_path)
    seen = 0
    for command, codes in commands():
        words = [sys.executable, "-m", "qbench", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode in codes, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        seen += 1
    assert seen >= 10
    assert (tmp_path / "reports/baselines/mine.jsonl").exists()
    assert (tmp_path / "int8/model_ascend_model.onnx").exists()
    assert (tmp_path / "gate.md").read_text(encoding="utf-8").count("PASS") >= 2
    assert "<testsuite" in (tmp_path / "gate.xml").read_text(encoding="utf-8")
