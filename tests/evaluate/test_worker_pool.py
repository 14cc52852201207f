"""Rules of qbench/evaluate/worker_pool.py: how an evaluation is cut, and when its time is over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import EvaluateError, WorkerError
from qbench.evaluate import worker_pool
from qbench.evaluate.worker import PartOutputs
from qbench.evaluate.worker_pool import PARTS, _OpenParts


def outputs(start: int, stop: int, **others: object) -> PartOutputs:
    """The outputs of these examples: their numbers."""
    return PartOutputs(start=start, stop=stop, outputs=np.arange(start, stop)[:, None], outside=(1, 2), **others)  # type: ignore[arg-type]


@given(st.integers(1, 5000), st.integers(1, 64))
def test_parts_are_whole_batches_in_order_and_no_more_than_so_many(count: int, width: int) -> None:
    """Behind the first outputs; the last part is what is left."""
    parts = _OpenParts(count, 100.0, lambda *_: None)
    first = min(width, count)
    parts.split(outputs(0, first), width)
    taken = []
    while (part := parts.take()) is not None:
        taken.append(part)
    assert [first, *(stop for _, stop in taken)] == [*(start for start, _ in taken), count]
    assert len(taken) <= PARTS
    assert all((stop - start) % width == 0 for start, stop in taken[:-1])
    assert len({stop - start for start, stop in taken[:-1]}) <= 1
    longest = max((stop - start for start, stop in taken), default=0)
    assert longest - width < (count - first) / PARTS


def test_outputs_are_joined_in_the_order_of_their_examples() -> None:
    """Whoever was first; what lies outside the ranges is added up."""
    told: list[float] = []
    parts = _OpenParts(6, 100.0, lambda what, share: told.append(share))
    parts.split(outputs(0, 2), 2)
    pending = [parts.take(), parts.take()]
    assert (parts.remaining, parts.open) == (0, False)
    parts.put_back((4, 6))
    assert (parts.remaining, parts.open, parts.take()) == (1, True, (4, 6))
    for part in reversed(pending):
        assert part is not None
        parts.add(outputs(*part))
    joined = parts.join_outputs()
    assert joined.rows[:, 0].tolist() == list(range(6))
    assert (joined.outside, joined.answers) == ((3, 6), None)
    assert told == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_an_evaluation_that_takes_too_long_is_stopped_unless_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the time of one request for all parts together."""
    clock = itertools.count(0.0, 4.0)
    monkeypatch.setattr(worker_pool.time, "monotonic", lambda: next(clock))
    parts = _OpenParts(6, 4.0, lambda *_: None)
    parts.split(outputs(0, 2), 2)
    with pytest.raises(WorkerError, match="took longer than 4 s and was stopped"):
        parts.add(outputs(2, 4))
    parts.add(outputs(4, 6))
    assert len(parts.join_outputs().rows) == 6


def test_what_a_helper_finds_wrong_ends_the_work() -> None:
    """Though parts are left."""
    parts = _OpenParts(6, 100.0, lambda *_: None)
    parts.split(outputs(0, 2), 2)
    parts.fail(EvaluateError("other outputs"))
    with pytest.raises(EvaluateError, match="other outputs"):
        assert parts.open
