"""Who makes an int8 file of ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx_networks import Draft, save

from qbench.backends.onnx_backend import OnnxBackend
from qbench.backends.onnxruntime import BACKEND
from qbench.quant.flow import Conversion
from qbench.quant.onnx import onnxruntime_layers, onnxruntime_quantizers, static
from qbench.quant.recipe import Recipe

OWN, FRAMEWORK = Recipe(flow="onnx"), Recipe(flow="onnx", framework_default=True)


@pytest.mark.parametrize(
    ("mode", "recipe", "maker"),
    [
        ("dynamic", OWN, "dynamic"),
        ("dynamic", FRAMEWORK, "dynamic"),
        ("static", FRAMEWORK, "framework_static"),
        ("static", OWN, "qbench"),
        ("qat", FRAMEWORK, "qbench"),
    ],
)
def test_the_runtimes_own_quantizer_makes_dynamic_files_and_its_default(monkeypatch, mode, recipe, maker):
    """All else qbench makes; notes of the quantizer, and what lies in subgraphs, are told."""
    called = []
    monkeypatch.setattr(onnxruntime_quantizers, "dynamic", lambda *_: called.append("dynamic") or ("a note",))
    monkeypatch.setattr(onnxruntime_quantizers, "framework_static", lambda *_: called.append("framework_static"))
    monkeypatch.setattr(onnxruntime_quantizers, "describe_target", lambda *_: None)
    monkeypatch.setattr(static, "explain_floats", lambda source, skipped: {"inner": "lies in a subgraph"})
    monkeypatch.setattr(OnnxBackend, "quantize", lambda *_: called.append("qbench") or (Path("q"), Conversion()))
    job = SimpleNamespace(mode=mode, recipe=recipe, calibration=None)
    _, conversion = BACKEND.quantize(job, Path("source.onnx"), Path("file.onnx"))
    assert called == [maker]
    assert conversion.notes == (("a note",) if maker == "dynamic" else ())
    assert conversion.float_reasons == ({} if maker == "qbench" else {"inner": "lies in a subgraph"})


def test_layers_are_read_of_one_example(monkeypatch):
    """Whatever batch the file takes; the profile fills it."""
    monkeypatch.setattr(onnxruntime_layers, "executed", lambda file, inputs: [len(array) for array in inputs])
    assert BACKEND.execute(Path("m.onnx"), (np.zeros((4, 2)), np.zeros((4, 3)))) == [1, 1]


def test_inputs_are_fed_by_name_and_all_of_them(tmp_path):
    """A file that takes more than there is does not run with the rest."""
    draft = Draft()
    draft.add("Add", ["x", "z"], "sum", outputs=["y"])
    file = save(draft.model({"x": ["n", 2], "z": ["n", 2]}, {"y": ["n", 2]}), tmp_path)
    runner = BACKEND.load(file, threads=1)
    ones, twos = np.ones((3, 2), np.float32), np.full((3, 2), 2, np.float32)
    assert runner.outputs(runner(runner.prepare((ones, twos)))).tolist() == [[3, 3]] * 3
    with pytest.raises(ValueError, match="shorter"):
        runner.prepare((ones,))
    told = runner.observed()
    assert (told["threads"], told["provider"], told["spinning"]) == (1, "CPUExecutionProvider", False)


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
def test_floats_of_16_bits_are_for_other_runtimes(mode):
    """It has no kernels for them."""
    assert str(BACKEND.why_not(mode=mode, kind="onnx")).startswith(f"ONNX Runtime has no {mode} kernels for x86")
    assert BACKEND.why_not(mode="fp32", kind="onnx") is None
