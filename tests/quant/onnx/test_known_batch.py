"""Whether OpenVINO's answers for a known number of examples are those for any number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_networks
import pytest

from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import known_batch

openvino = pytest.importorskip("openvino")
PROBES = (np.arange(-12, 12, dtype=np.float32).reshape(6, 4),)


def write(file: Path, batch: str | int = "n") -> Path:
    """relu of examples of four numbers."""
    draft = onnx_networks.Draft()
    y = draft.add("Relu", ["x"], "relu")
    return onnx_networks.save(draft.model({"x": [batch, 4]}, {y: [batch, 4]}), file.parent, file.stem)


def answer(monkeypatch: pytest.MonkeyPatch, known: Any, any_number: Any) -> None:
    """Has OpenVINO answer with the relu by these factors where it knows the number of examples, and where not."""

    def run(compiled: Any, inputs: tuple[Any, ...]) -> Any:
        factor = any_number if openvino_model.find_fixed_batch(compiled) is None else known
        return np.maximum(inputs[0], 0) * np.float32(factor)

    monkeypatch.setattr(openvino_model, "run", run)


@pytest.mark.parametrize(
    ("known", "any_number", "told"),
    [
        (1.0, 1.0, None),
        (1.01, 1.0, None),  # roundings: 40 dB
        (1.05, 1.04, None),
        (1.09, 1.0, None),  # 20.9 dB, whatever it is for any number
        (1.11, 1.0, "19.2 dB against fp32 in place of 100.0"),
        (1.3, 1.15, None),  # 10.5 dB where any number has 16.5: its own roundings are as large
        (0.0, 1.01, "0.0 dB against fp32 in place of 40.0"),
        (float("nan"), 1.01, "-100.0 dB against fp32 in place of 40.0"),
        (float("nan"), float("nan"), None),
        (1.0, 0.0, None),  # worse for any number: nothing is lost by knowing it
    ],
)
def test_a_file_whose_answers_part_is_compiled_for_any_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: float, any_number: float, told: str | None
) -> None:
    """Where they lie more than 10 dB further from fp32, and below 20 dB; the note says so and what it means."""
    file = write(tmp_path / "int8.onnx")
    answer(monkeypatch, known, any_number)
    note = known_batch.check(file, write(tmp_path / "float.onnx"), PROBES)
    assert openvino_model.read_file(file).is_compiled_for_each() is (told is None)
    if told is None:
        assert note is None
    else:
        assert note == (
            f"compiled for any number of examples: told how many come, OpenVINO answers with {told}; so will this file "
            "wherever its batch size is fixed"
        )


def test_a_float_network_of_one_batch_size_is_asked_in_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six examples by four: the last two with two of the first, which are not compared."""
    file, source = write(tmp_path / "int8.onnx"), write(tmp_path / "float.onnx", 4)
    answer(monkeypatch, 1.001, 1.0)
    assert known_batch.check(file, source, PROBES) is None
    answer(monkeypatch, 0.0, 1.0)
    assert str(known_batch.check(file, source, PROBES)).startswith("compiled for any number of examples")


def test_answers_of_both_ways_are_compared_without_the_float_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for a known number against those for any; nothing is said, and no file beside it, where there is one."""
    file = write(tmp_path / "m.onnx")
    answer(monkeypatch, 0.9, 1.0)
    assert known_batch.compare(file, PROBES) == pytest.approx(20.0, abs=0.01)
    assert openvino_model.read_file(file).is_compiled_for_each()
    assert known_batch.compare(write(tmp_path / "fixed.onnx", 6), PROBES) is None


def test_a_file_of_one_batch_size_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is but one way to compile it."""
    monkeypatch.setattr(openvino_model, "run", None)
    assert known_batch.check(write(tmp_path / "m.onnx", 1), write(tmp_path / "float.onnx"), PROBES) is None


@pytest.mark.parametrize(("limit", "count"), [(2**17, 6), (64, 4), (1, 2)])
def test_a_call_takes_no_more_examples_than_have_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, count: int
) -> None:
    """Of 16 bytes each, two at least."""
    called: list[int] = []

    def run(compiled: Any, inputs: tuple[Any, ...]) -> Any:
        called.append(len(inputs[0]))
        return np.zeros((len(inputs[0]), 4), np.float32)

    monkeypatch.setattr(openvino_model, "run", run)
    monkeypatch.setattr(known_batch, "_BYTES", limit)
    assert known_batch.check(write(tmp_path / "int8.onnx"), write(tmp_path / "float.onnx"), PROBES) is None
    assert called == [count, count]
