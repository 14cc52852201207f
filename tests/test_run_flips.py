"""Rules of qbench/run_flips.py: a run keeps images of what flipped, and never fails for want of one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench import flip_images, run_flips
from qbench.errors import WorkerError

FP32, INT8, MORE = "net/fp32/torch/t1/b1", "net/static/x86/t1/b1", "net/static/x86/t2/b1"


def state(predicted: dict[str, Path], notes: list[str]) -> Any:
    """A run of one fp32 and two int8 cases that share predictions, as far as this stage looks at it."""
    cases = [
        SimpleNamespace(case=SimpleNamespace(id=case), baseline=baseline)
        for case, baseline in ((FP32, None), (INT8, FP32), (MORE, FP32))
    ]
    return SimpleNamespace(
        predicted=predicted,
        plan=SimpleNamespace(cases=cases),
        data=object(),
        folder=SimpleNamespace(path=Path("run")),
        limits=None,
        telling=lambda what: None,
        progress=SimpleNamespace(note=notes.append),
    )


def test_each_pair_of_predictions_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases that share their predictions are one pair; a case that could not be evaluated is none."""
    asked: list[Any] = []
    monkeypatch.setattr(flip_images, "keep", lambda pairs, *_, **__: asked.append(pairs))
    run_flips.keep_images(state({FP32: Path("a"), INT8: Path("b"), MORE: Path("b")}, []))
    run_flips.keep_images(state({FP32: Path("a")}, []))
    assert asked == [[(Path("b"), Path("a"))]]


def test_a_run_without_images_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the child fails the run tells so and goes on to measure."""

    def fail(*_: Any, **__: Any) -> None:
        raise WorkerError("the disk is full")

    monkeypatch.setattr(flip_images, "keep", fail)
    notes: list[str] = []
    run_flips.keep_images(state({FP32: Path("a"), INT8: Path("b")}, notes))
    assert notes == ["the report shows no images of flipped examples: the disk is full"]
