"""Rules of qbench/evaluate/worker.py: which outputs of a batch are kept, and how batches are filled and joined."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.backends.base import Runner
from qbench.errors import EvaluateError
from qbench.evaluate import worker
from qbench.evaluate.worker import (
    MOST_BYTES,
    Evaluation,
    EvaluationSession,
    count_kept,
    fill_batch,
    join_rows,
    take_usable,
)
from qbench.quant.analysis.quantized_range import InputRange


def test_outputs_with_a_row_of_floats_for_each_example_are_usable() -> None:
    """Beside the first, which is there whatever it is."""
    outputs = [
        np.zeros((4, 2), np.float64), np.ones((4, 3), np.float32), np.ones((4, 3), np.int64), np.ones((5, 3)),
        np.ones((4, 0)), np.float32(1.0), np.ones(4, np.float32),
    ]  # fmt: skip
    usable = take_usable(outputs, 4)
    assert list(usable) == [0, 1, 6]
    assert usable[0].dtype == np.float32
    only = take_usable([np.arange(3)], 3)
    assert only[0].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(("begin", "kept"), [(0, 64), (60, 4), (63, 1), (64, 0), (100, 0)])
def test_beside_answers_outputs_are_kept_up_to_so_many_bytes(begin: int, kept: int) -> None:
    """Of the first examples, wherever a batch stands."""
    outputs = np.zeros((2, MOST_BYTES // 64), np.uint8)
    assert count_kept(begin, outputs) == kept
    assert count_kept(0, outputs[:, :0]) == MOST_BYTES
    assert MOST_BYTES == 64 * 1024 * 1024


def test_batches_are_joined_where_each_has_the_output_in_one_form() -> None:
    """Another one is left out, but for the first, which must be there."""
    first = [{0: np.zeros((2, 3)), 1: np.ones((2, 4)), 2: np.ones((2, 5)), 3: np.ones((2, 6))}]
    second = [{0: np.ones((1, 3)), 1: np.zeros((1, 4)), 2: np.ones((1, 6))}]
    joined = join_rows([*first, *second])
    assert list(joined) == [0, 1]
    assert joined[0][:, 0].tolist() == [0.0, 0.0, 1.0]
    assert joined[1][:, 0].tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="match exactly"):
        join_rows([{0: np.zeros((2, 3))}, {0: np.zeros((2, 4))}])


@pytest.mark.parametrize(("size", "rows"), [(0, [1, 2]), (1, [1, 2]), (2, [1, 2]), (3, [1, 2, 2]), (4, [1, 2, 2, 2])])
def test_a_batch_is_filled_with_its_last_example(size: int, rows: list[int]) -> None:
    """Where an artifact takes no fewer; else it is not copied."""
    inputs = (np.array([1, 2]), np.array([[1], [2]]))
    filled = fill_batch(inputs, size)
    assert (filled is inputs) == (len(rows) == 2)
    assert [array.reshape(-1).tolist() for array in filled] == [rows, rows]


@pytest.mark.parametrize("library", [True, False])
def test_freed_memory_is_kept_for_the_next_batch(monkeypatch: pytest.MonkeyPatch, library: bool) -> None:
    """By two settings of glibc; elsewhere there are none."""
    told: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda name, value: told.append((name, value))) if library else SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    worker._keep_memory()
    assert told == ([(-4, 0), (-1, 2**30)] if library else [])


class Doubling(Runner):
    """A backend and its runner in one: it doubles what it is given, and notes how it is used."""

    def __init__(self) -> None:
        self.used: list[Any] = []

    def load(self, file: Path, *, threads: int) -> Doubling:
        """Noted."""
        self.used.append((file, threads))
        return self

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """Noted."""
        self.used.append("entered")
        yield

    def digest(self, inputs: Any) -> str:
        """Of what was asked for."""
        self.used.append(("probe", inputs))
        return "digest"

    def prepare(self, inputs: Any) -> Any:
        """As they are."""
        return inputs

    def __call__(self, prepared: Any) -> Any:
        self.used.append(len(prepared[0]))
        return prepared[0] * 2

    def outputs(self, result: Any) -> Any:
        """What was computed."""
        return result

    def observed(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def take_sums(self) -> dict[str, tuple[int, int]]:
        """As a runner of predicted answers."""
        return {"layer": (len(self.used), 1)}


EXAMPLES = np.arange(14, dtype=np.float32).reshape(7, 2)
DATA: Any = SimpleNamespace(
    evaluation_examples=lambda: SimpleNamespace(inputs=(EXAMPLES,), labels=None),
    probe=lambda count: count, evaluation_count=7, inputs=1, preprocessing=lambda arrays: arrays,
)  # fmt: skip


def evaluation(*, expected: str | None = "digest", fixed: int | None = None, **changes: Any) -> Evaluation:
    """Of an artifact that has these ranges and gave these outputs where it was built."""
    conversion = SimpleNamespace(input_ranges=(InputRange(low=0.0, high=9.0, step=0.0),))
    built = SimpleNamespace(expected=expected, fixed_batch=fixed, conversion=conversion)
    artifact: Any = SimpleNamespace(backend="own", file=Path("model"), built=built, mode="static")
    return Evaluation(artifact=artifact, data=DATA, **changes)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Doubling:
    """Stands for any backend."""
    doubling = Doubling()
    monkeypatch.setattr(worker.registry, "load", lambda *_: doubling)
    monkeypatch.setattr(worker, "OlderCpuRunner", lambda file: doubling.load(file, threads=0))
    return doubling


@pytest.mark.parametrize(("fixed", "size"), [(None, 1), (4, 4)])
def test_an_artifact_is_proven_on_one_thread_before_it_answers(runner: Doubling, fixed: int | None, size: int) -> None:
    """By a batch that it takes; but where other answers are no fault."""
    EvaluationSession(evaluation(fixed=fixed))
    assert runner.used == [(Path("model"), 1), "entered", ("probe", size)]
    with pytest.raises(EvaluateError, match="gives other outputs than where it was built"):
        EvaluationSession(evaluation(fixed=fixed, expected="another"))
    runner.used.clear()
    EvaluationSession(evaluation(expected="another", same_answers=False))
    EvaluationSession(evaluation(expected=None))
    assert runner.used == [(Path("model"), 1), "entered"] * 2


def test_a_size_that_is_given_is_taken_from_the_first_example_on(runner: Doubling) -> None:
    """Batches are whole, the last one filled from its own end; values outside of the range count once."""
    session = EvaluationSession(evaluation(size=4))
    width, first = session.predict_first()
    rest = session.predict(first.stop, 7, width)
    assert (width, first.start, first.stop, rest.start, rest.stop) == (4, 0, 4, 4, 7)
    assert np.array_equal(np.concatenate([first.outputs, rest.outputs]), EXAMPLES * 2)
    assert (first.outside, rest.outside) == ((0,), (4,))
    assert [used for used in runner.used if isinstance(used, int)] == [4, 4]
    assert (first.answers, first.others, first.sums) == (None, {}, {})
    assert EvaluationSession(evaluation(size=9)).predict_first()[1].stop == 7


def test_predicted_answers_come_in_batches_as_they_are_with_their_sums(runner: Doubling) -> None:
    """An example that is computed twice would be counted twice."""
    session = EvaluationSession(evaluation(size=4, predicted=True))
    part = session.predict(0, 7, 4)
    assert runner.used == [(Path("model"), 0), "entered", ("probe", 1), 4, 3]
    assert part.sums == {"layer": (5, 1)}


def test_only_floats_of_a_known_range_are_clipped(runner: Doubling) -> None:
    """Whole numbers are no levels, and of another input nothing is known."""
    session = EvaluationSession(evaluation())
    assert session._outside((EXAMPLES, EXAMPLES)) == (4, 0)
    assert session._outside((EXAMPLES.astype(np.int64),)) == (0,)
