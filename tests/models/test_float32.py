"""Rules of qbench/models/float32.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qbench.models.base import ModelReference
from qbench.models.float32 import keep_float32
from qbench.network import load_network
from qbench.process import child
from qbench.process.child_process import Limits, Worker, call
from qbench.process.start import FLOAT_VARIABLES

# In children: torch's precision is of the process, and no other test may have it.
LIMITS = Limits(seconds=120)
SETTINGS = {
    "set_float32_matmul_precision('medium')": "torch.backends.mkldnn.matmul.fp32_precision is bf16",
    "set_float32_matmul_precision('high')": "torch.backends.mkldnn.matmul.fp32_precision is tf32",
    "backends.mkldnn.conv.fp32_precision = 'bf16'": "torch.backends.mkldnn.conv.fp32_precision is bf16",
    "backends.fp32_precision = 'bf16'": "torch.backends.fp32_precision is bf16",
}
FILE = """
import torch
{setting}

def build():
    return torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 256))
"""


def _note(setting, *, progress):
    import torch

    if setting:
        exec(f"torch.{setting}", {"torch": torch})
    note = keep_float32("net")
    torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))  # it reads the settings, and refuses some
    return note, torch.get_float32_matmul_precision(), keep_float32("net")


def _worst(path, *, progress):
    """How far the network of a file is from float64, as a share of the largest output."""
    import torch

    reference = ModelReference(name="net", source="python", path=path, attribute="build")
    network = load_network(reference, None).module
    torch.manual_seed(1)
    inputs = torch.randn(16, 8, 8, 8)
    with torch.no_grad():
        outputs = network(inputs)
        exact = network.double()(inputs.double())
    return float((outputs - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_file_sets_is_set_back_and_told(setting: str) -> None:
    """The note names the setting; after it float32 is float32, and there is nothing more to tell."""
    note, precision, after = call(_note, setting, limits=LIMITS)
    assert note.startswith("net: its file lets float32 be computed with fewer bits")
    assert SETTINGS[setting] in note
    assert (precision, after) == ("highest", None)


def test_what_nobody_set_is_left_alone() -> None:
    """Torch computes float32 in float32 by itself."""
    assert call(_note, "", limits=LIMITS) == (None, "highest", None)


@pytest.mark.parametrize("setting", ["", "torch.set_float32_matmul_precision('medium')"])
def test_a_network_computes_in_float32_whatever_its_file_and_the_environment_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """On a CPU with bfloat16 (AVX512-BF16, AMX) the Linear would be off by 1e-3, and so would the convolution by what
    oneDNN reads from the environment: in a child it is strict."""
    for name in FLOAT_VARIABLES:
        monkeypatch.setitem(os.environ, name, "BF16")
    file = tmp_path / "net.py"
    file.write_text(FILE.format(setting=setting))
    with Worker(child.Function, _worst, limits=LIMITS, fresh=True) as worker:
        worker.ready()
        assert worker.ask("run", (file,)) < 1e-5
