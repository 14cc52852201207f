"""Who makes an int8 file of ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.backends.onnx_backend import OnnxBackend
from qbench.backends.onnxruntime import BACKEND
from qbench.quant.flow import Conversion
from qbench.quant.onnx import onnxruntime_quantizers, static
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
