"""Rules of models/own_int8.py: which file of the user's is int8, told by what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qbench.models import own_int8
from qbench.models.own_int8 import why_not_int8

FILE = Path("model")


def test_a_simulation_is_told_by_its_first_three_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how many more there are."""
    monkeypatch.setattr(own_int8.torchscript_archive, "list_operators", lambda _: ["a", "b", "c", "d"])
    monkeypatch.setattr(own_int8.torchscript_archive, "is_simulation", lambda operators: len(operators) == 4)
    told = str(why_not_int8(FILE, "m.pt", "static"))
    assert told.startswith("it simulates int8 in float (a, b, c and 1 more), so nothing of it runs in int8; save it")


@pytest.mark.parametrize("operators", [[], ["quantized::linear"]])
def test_a_torchscript_file_without_an_operator_of_int8_is_float(
    operators: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one with such operators the mode is asked."""
    archive = own_int8.torchscript_archive
    monkeypatch.setattr(archive, "list_operators", lambda _: operators)
    monkeypatch.setattr(archive, "is_simulation", lambda _: False)
    monkeypatch.setattr(archive, "find_range_at_run_time", lambda _: "range")
    monkeypatch.setattr(own_int8.quantized, "why_other_mode", lambda *words: "/".join(words))
    told = str(why_not_int8(FILE, "m.pt", "static"))
    assert told == "range/m.pt/static" if operators else told.startswith("nothing in it is quantized")


@pytest.mark.parametrize(
    ("is_quantized", "is_compressed", "words"),
    [
        (True, True, "mode"),
        (False, True, "only its weights are stored in bytes"),
        (False, False, "nothing in it is quantized"),
    ],
)
def test_a_file_of_openvino_is_int8_where_its_activations_are(
    is_quantized: bool, is_compressed: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in bytes alone are computed in float."""
    monkeypatch.setattr(own_int8.openvino_ir, "list_quantized", lambda _: ["conv"] * is_quantized)
    monkeypatch.setattr(own_int8.openvino_ir, "has_compressed_weights", lambda _: is_compressed)
    monkeypatch.setattr(own_int8.quantized, "why_other_mode", lambda *_: "mode")
    assert str(why_not_int8(FILE, "m.xml", "static")).startswith(words)


def test_of_an_onnx_file_the_graph_alone_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights may be large, and of its operators the checker knows but a few."""
    read: list[Any] = []
    monkeypatch.setattr(own_int8.onnx_check, "load", lambda file, **options: read.append((file, options)) or "model")
    monkeypatch.setattr(own_int8.quantized, "why_not_int8", lambda *words: "/".join(words))
    assert why_not_int8(FILE, "m.onnx", "dynamic") == "model/m.onnx/dynamic"
    assert read == [(FILE, {"weights": False, "valid": False})]
