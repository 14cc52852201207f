"""Rules of qbench/evaluate/worker_pool.py: how an evaluation is cut, and when its time is over."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import EvaluateError, NodeLost, WorkerError
from qbench.evaluate import worker_pool
from qbench.evaluate.worker import PartOutputs
from qbench.evaluate.worker_pool import PARTS, _Helpers, _OpenParts


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


def test_an_evaluation_has_32_parts() -> None:
    """Where there are as many batches."""
    parts = _OpenParts(321, 100.0, lambda *_: None)
    parts.split(outputs(0, 1), 1)
    assert [parts.take() for _ in range(parts.remaining)] == [(at, at + 10) for at in range(1, 321, 10)]


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


class Slots:
    """So many spare places, of which a process gives its own back; ``calls``: after so many questions somebody waits
    for one."""

    def __init__(self, spare: int = 0, calls: int = 1000) -> None:
        self.spare, self.given_back, self._calls = spare, 0, calls

    def take_spare(self) -> bool:
        """Whether there is one."""
        self.spare -= 1
        return self.spare >= 0

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody else wants a place."""
        self._calls -= 1
        return self._calls < 0

    def give_back(self) -> None:
        """Counted."""
        self.given_back += 1


class Predictor:
    """A process that answers once it is ready, and raises ``error`` in the place of its second answer."""

    def __init__(self, room: int = 0, error: Exception | None = None) -> None:
        self._room, self._error = room, error
        self.did: list[Any] = []

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self.did.append("ended")

    def ready(self) -> None:
        """Noted."""
        self.did.append("ready")

    def count_room(self) -> int:
        """For so many more there is memory."""
        return self._room

    def ask(self, what: str, start: int, stop: int, width: int) -> PartOutputs:
        """The outputs of a part."""
        assert (what, width) == ("predict", 2)
        if self._error is not None and self.did[-1] != "ready":
            raise self._error
        self.did.append((start, stop))
        return outputs(start, stop)


def make_helpers(worker: Predictor, slots: Slots) -> _Helpers:
    """Helpers that are this process, of a work that is done two examples at a time."""
    helpers = _Helpers(cast(Any, lambda: worker), cast(Any, slots))
    helpers.width = 2
    return helpers


def open_parts() -> _OpenParts:
    """Four parts of two examples behind the first two."""
    parts = _OpenParts(10, 100.0, lambda *_: None)
    parts.split(outputs(0, 2), 2)
    return parts


@pytest.mark.parametrize(("room", "spare", "started"), [(2, 5, 2), (5, 2, 2), (0, 5, 0), (9, 9, 9)])
def test_helpers_are_as_many_as_there_is_memory_and_are_places_for(
    monkeypatch: pytest.MonkeyPatch, room: int, spare: int, started: int
) -> None:
    """While there are parts that nobody has taken."""
    threads: list[Any] = []
    monkeypatch.setattr(
        worker_pool.threading,
        "Thread",
        lambda daemon, **_: SimpleNamespace(start=lambda: threads.append(daemon)),
    )
    parts = open_parts()
    make_helpers(Predictor(), Slots(spare)).start(parts, cast(Any, Predictor(room)))
    assert threads == [True] * started, "none keeps a process alive that wants to end"
    short = make_helpers(Predictor(), Slots(spare))
    short._short = True
    short.start(parts, cast(Any, Predictor(room)))
    parts.clear()
    make_helpers(Predictor(), Slots(spare)).start(parts, cast(Any, Predictor(room)))
    assert len(threads) == started, "nor where memory ran short, nor where no part is left"


@pytest.mark.parametrize(
    ("error", "short", "left", "fails"),
    [
        (None, False, 0, False),
        (WorkerError("killed"), True, 3, False),
        (OSError("no memory"), True, 3, False),
        (NodeLost("gone"), False, 3, False),
        (EvaluateError("other outputs"), False, 0, True),
    ],
)
def test_a_helper_takes_parts_until_it_cannot(error: Exception | None, short: bool, left: int, fails: bool) -> None:
    """What it had begun is put back, its place given back in any case; one that has run short of memory is the last,
    and one that finds the artifact wrong ends the work."""
    worker, slots, parts = Predictor(error=error), Slots(spare=9), open_parts()
    helpers = make_helpers(worker, slots)
    helpers._help(parts)
    done: list[Any] = [(2, 4)] if error else [(2, 4), (4, 6), (6, 8), (8, 10)]
    assert worker.did == ["ready", *done, "ended"]
    assert (parts.remaining, slots.given_back, helpers._short) == (left, 1, short)
    if fails:
        with pytest.raises(EvaluateError, match="other outputs"):
            assert parts.open
    else:
        assert parts.open == (left > 0)


def test_a_helper_goes_where_its_core_is_waited_for() -> None:
    """Between two parts."""
    worker, slots, parts = Predictor(), Slots(calls=2), open_parts()
    make_helpers(worker, slots)._help(parts)
    assert (worker.did, parts.remaining, slots.given_back) == (["ready", (2, 4), (4, 6), "ended"], 2, 1)


def test_a_helper_that_is_not_ready_puts_nothing_back() -> None:
    """It had taken nothing."""
    worker, parts = Predictor(), open_parts()
    worker.ready = lambda: (_ for _ in ()).throw(WorkerError("killed"))  # type: ignore[method-assign]
    make_helpers(worker, Slots(spare=9))._help(parts)
    assert [parts.take() for _ in range(5)] == [(2, 4), (4, 6), (6, 8), (8, 10), None]
