"""Rules of onnx/text: what each step says of its result, line by line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.onnx import text
from qbench.onnx.save_models import Saved
from qbench.quant.onnx.export.parity import Parity


def outcome(floats: tuple[str, ...], skipped: tuple[str, ...]) -> Any:
    """Of layers a, b and c."""
    layers = {name: SimpleNamespace(quant_enable=name not in (*floats, *skipped)) for name in "abc"}
    return SimpleNamespace(met=True, baseline=1.0, trials=(), ranking=(), config=SimpleNamespace(layers=layers),
                           best=SimpleNamespace(floats=floats, score=0.5))  # fmt: skip


@pytest.mark.parametrize(
    ("floats", "skipped", "said"),
    [
        ((), (), "with every layer in int8"),
        ((), ("b",), "with every other layer in int8, 1 skipped"),
        (("a",), (), "with 1 layer in float"),
        (("a", "c"), ("b",), "with 2 layers in float, 1 skipped"),
    ],
)
def test_layers_that_the_configuration_skips_are_no_int8(floats: Any, skipped: Any, said: str) -> None:
    """They are counted and named beside those that the search returned to float."""
    lines = list(text.searched(outcome(floats, skipped), Path("out")))
    assert lines[1].endswith(said)
    assert [line for line in lines if line.startswith("  skipped: ")] == [f"  skipped: {name}" for name in skipped]


def test_what_a_search_wrote_and_what_to_do_with_it() -> None:
    """The score that was reached, how much each float layer disturbed where that is known, and the next command."""
    search = outcome(("a", "c"), ())
    search.trials, search.ranking = (1, 2), (("a", 0.98765), ("b", 0.999))
    assert list(text.searched(search, Path("out"))) == [
        "float model: 1; 2 quantized models scored",
        "within the loss: 0.5 with 2 layers in float",
        "  float: a (similarity 0.9877)",
        "  float: c",
        "wrote out/calibration.onnx, out/config.json, out/record.txt; next: qbench onnx save out/calibration.onnx -r "
        "out/record.txt -o PREFIX",
    ]
    search.met, search.best = False, SimpleNamespace(floats=("a", "b", "c"), score=0.25)
    search.config = outcome(("a", "b", "c"), ()).config
    assert list(text.searched(search, Path("out")))[1:] == [
        "best so far, not within the loss: 0.25 with 3 layers in float",
        "  float: a (similarity 0.9877)",
        "  float: b (similarity 0.9990)",
        "  float: c",
        "no layer can be int8 within that loss: ship the float model, or allow more",
    ]


def test_what_was_saved_is_told_with_how_far_each_target_agrees() -> None:
    """Files, layers in float, narrowed weights, and each comparison with its warnings: other predictions count where
    the data is the user's, and never where none was."""
    near = Parity(examples=64, agreement=60 / 64, largest_difference=0.512, relative_difference=0.112)
    silent = Parity(examples=8, agreement=None, largest_difference=0, relative_difference=0, silent=True)
    given: dict[str, Any] = {
        "files": {"fake_quant": Path("m_fake_quant_model.onnx")},
        "floats": {"conv1": "skipped by the configuration"},
        "parity": {"onnxruntime": near, "ascend": silent, "other": None},
        "form": "U8U8",
    }
    equal = "93.8% of the predictions as simulated, largest difference 0.51 (0.1 of the largest output)"
    lines = [
        "fake_quant: m_fake_quant_model.onnx",
        "float: conv1: skipped by the configuration",
        f"onnxruntime against fake_quant on 64 random examples: {equal}",
        "ascend against fake_quant on 8 random examples: largest difference 0 (0 of the largest output)",
        "warning: ascend: every output of the quantized model is zero on these examples: its values are too small for "
        "8 bits (below 3e-5 they become zero); scale them, or leave the last layers float",
        "other: not compared with fake_quant: no random inputs fit this model; give --data",
    ]
    assert list(text.saved(Saved(**given))) == lines
    narrowed = list(text.saved(Saved(**given, narrowed=0.256, real=True)))
    assert narrowed[2].startswith("U8U8: 26% of the channels of weights use fewer than 8 bits, in every model above, ")
    assert narrowed[3] == f"onnxruntime against fake_quant on 64 given examples: {equal}"
    assert narrowed[4].startswith("warning: onnxruntime: fewer than 99.5% agree")
    assert len(narrowed) == len(lines) + 2
    first_none = list(text.saved(Saved(files={}, parity={"other": None, "onnxruntime": near})))
    assert [line.partition(" ")[0] for line in first_none] == ["other:", "onnxruntime"]


def test_what_was_calibrated_is_counted() -> None:
    """With what looks wrong about it."""
    calibration: Any = SimpleNamespace(examples=32, batches=4, record={"a": 1, "b": 2}, warnings=("a: dead", "b: dead"))
    counted = "calibrated on 32 examples in 4 batches: 2 entries"
    assert list(text.calibrated(calibration)) == [counted, "warning: a: dead", "warning: b: dead"]


def test_what_will_be_int8_is_counted_by_operator() -> None:
    """The most frequent first; inputs of other nodes apart, each reason once with eight names at most, and of what has
    no weights nothing that is part of its neighbours."""
    operators = {
        "a": "Gemm",
        "b": "Conv",
        "c": "Conv",
        "d": "Conv",
        "e": "Add",
        "f": "MaxPool",
        "g": "LSTM",
        "h": "Relu",
    }
    layers = [
        SimpleNamespace(name=name, operator=operator, kind="layer" if operator in ("Conv", "Gemm") else "node")
        for name, operator in operators.items()
    ]
    floats = {"d": "skipped", "e": "one input", "f": "no input", **{f"x{at}": "no weight" for at in range(9)}}
    config = SimpleNamespace(
        layers={name: SimpleNamespace(quant_enable=name != "d") for name in "abcd"},
        tensor_quantize=(SimpleNamespace(layer_name="e"), SimpleNamespace(layer_name="gone")),
    )
    quantized: Any = SimpleNamespace(layers=layers, config=config, sites=SimpleNamespace(floats=floats))
    assert list(text.quantized(quantized)) == [
        "int8: Conv 2, Gemm 1",
        "int8 inputs of other nodes: Add 1, ? 1",
        "float: d: skipped",
        "float: x0, x1, x2, x3, x4, x5, x6, x7 and 1 more: no weight",
        "float operators: MaxPool 1, LSTM 1",
    ]
    nothing: Any = SimpleNamespace(
        layers=[], config=SimpleNamespace(layers={}, tensor_quantize=()), sites=SimpleNamespace(floats={})
    )
    assert list(text.quantized(nothing)) == ["int8: no layer"]
