"""Rules of decide/preferences and decide/tie: what ties, and what each preference drops of it."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import int8

from qbench.decide.accuracy_difference import AccuracyDifference
from qbench.decide.limits import AccuracyFloor, AccuracyLimit, AccuracyMargin
from qbench.decide.objective import Objective
from qbench.decide.paired_times import PairedTimes
from qbench.decide.preferences import PREFERENCES, describe_difference
from qbench.decide.tie import Contest, find_tied
from qbench.record.schema import ColdStart, Record
from qbench.record.stored_run import MetricInfo
from qbench.suite.settings import DecideSpec, ObjectiveName

TOP1, SQNR = MetricInfo(name="top1"), MetricInfo(name="sqnr", percent=False, own_unit="dB", against="fp32")
TIE = 1 / 32  # in accuracy, of MARGIN
MARGIN = AccuracyMargin(loss=6.25)


def contest(
    *,
    name: ObjectiveName = "latency",
    metric: MetricInfo | None = TOP1,
    bound: AccuracyLimit | None = MARGIN,
    **other: Any,
) -> Contest:
    """A tie of 3 % in what is minimized."""
    times = PairedTimes(records={}, read=lambda record: {})
    parts: dict[str, Any] = {"objective": Objective(name=name, times=times), "differences": None, **other}
    return Contest(metric=metric, bound=bound, spec=DecideSpec(tie=0.03), **parts)


def net(backend: str, mode: str = "static", **changes: Any) -> Record:
    """A case that is told by its backend."""
    return int8(f"net/{mode}/{backend}/t1/b1", **changes)


def scored(*, by_chance: bool = False, **scores: float) -> Any:
    """The differences of cases whose backends have these scores; nothing is known of others."""

    def compare(record: Record, rival: Record) -> AccuracyDifference | None:
        assert record is not rival
        score, other = scores.get(record.case.backend), scores.get(rival.case.backend)
        if score is None or other is None:
            return None
        return AccuracyDifference(value=score - other, error=0.001, beyond_chance=not by_chance)

    return SimpleNamespace(compare=compare)


def dropped(name: Any, tied: list[Record], against: Contest) -> tuple[list[str], str]:
    """The backends that a preference drops, and its words."""
    step = PREFERENCES[name](tied, against)
    assert step is None or step.name == name
    return ([record.case.backend for record in step.dropped], step.text) if step else ([], "")


def test_what_ties_is_not_shown_to_be_worse_by_more_than_the_tie() -> None:
    """A limit at the tie is within it, and so is an estimate, which alone may be preferred."""
    tie = contest().tie
    known = {"b": (0.0, tie), "c": (tie, tie + 1e-6), "d": (tie + 1e-6, 1.0), "e": (-1.0, -0.5)}

    def compare(record: Record, leader: Record) -> Any:
        assert leader.case.backend == "a"
        low, value = known[record.case.backend]
        return SimpleNamespace(low=low, value=value)

    order = [net(backend) for backend in "abcde"]
    tied, near = find_tied(order, contest(objective=SimpleNamespace(compare=compare)))
    assert tie == pytest.approx(math.log(1.03), abs=1e-15)
    assert [[record.case.backend for record in some] for some in (tied, near)] == [[*"abce"], [*"abe"]]


@pytest.mark.parametrize(
    ("metric", "bound", "tie", "name"),
    [
        (TOP1, MARGIN, TIE, "half the margin"),
        (SQNR, AccuracyFloor(value=30.0, perfect=60.0), 1.0, "a tie of 1 dB"),
        (None, AccuracyFloor(value=30.0, perfect=60.0), 0.0, "half the margin"),
        (None, MARGIN, 0.0, "half the margin"),
        (TOP1, None, 0.0, "half the margin"),
    ],
)
def test_the_tie_in_accuracy(metric: MetricInfo | None, bound: AccuracyLimit | None, tie: float, name: str) -> None:
    """Half the margin, a step of a metric that has a least score, and none where nothing is demanded."""
    against = contest(metric=metric, bound=bound)
    assert (against.accuracy_tie, against.name_accuracy_tie()) == (tie, name)


def test_accuracy_drops_what_loses_more_than_the_tie_in_it() -> None:
    """Against the most accurate wherever it stands; a loss of the tie itself, or by chance, or not known, stays."""
    tied = [net(backend) for backend in "abcde"]
    scores = {"a": 0.5, "b": 0.5 + TIE, "c": 0.5 + 2 * TIE, "d": 0.5 + TIE - 1e-6}
    backends, text = dropped("accuracy", tied, contest(differences=scored(**scores)))
    assert backends == ["a", "d"]
    assert text == "accuracy: static · c against static · a +6.25 points, more than half the margin"
    assert dropped("accuracy", tied, contest(differences=scored(by_chance=True, **scores))) == ([], "")
    assert dropped("accuracy", tied[1:3], contest(differences=scored(**scores))) == ([], "")
    assert dropped("accuracy", [*reversed(tied[:4])], contest(differences=scored(**scores)))[0] == ["d", "a"]
    unknown_first = [net("unknown"), *tied[:4]]
    assert sorted(dropped("accuracy", unknown_first, contest(differences=scored(**scores)))[0]) == ["a", "d"]
    assert dropped("accuracy", [net("unknown"), net("other")], contest(differences=scored())) == ([], "")


@pytest.mark.parametrize(
    ("metric", "counts", "told"),
    [
        (TOP1, {}, "+5.2 points"),
        (TOP1, {"lost": 1, "gained": 1}, "+5.2 points (1 example gained, 1 lost)"),
        (TOP1, {"lost": 1101, "gained": 6230}, "+5.2 points (6,230 examples gained, 1,101 lost)"),
        (TOP1, {"lost": 0, "gained": 0}, "+5.2 points (0 examples gained, 0 lost)"),
        (TOP1, {"lost": 3}, "+5.2 points"),
        (TOP1, {"gained": 3}, "+5.2 points"),
        (replace(TOP1, higher_is_better=False), {}, "-5.2 points"),
        (None, {}, "+0.052"),
    ],
)
def test_a_difference_in_accuracy_is_told_as_the_metric_counts(
    metric: MetricInfo | None, counts: dict[str, int], told: str
) -> None:
    """In its unit and direction, with as many digits as its error allows; of right or wrong with the examples."""
    difference = AccuracyDifference(value=0.0522, error=0.01, beyond_chance=True, **counts)
    assert describe_difference(difference, contest(metric=metric)) == told


@pytest.mark.parametrize(
    ("name", "mode", "word"), [("no_training", "qat", "training"), ("no_calibration", "static", "calibration")]
)
def test_what_needs_something_is_dropped_where_something_else_does_not(name: str, mode: str, word: str) -> None:
    """All that need it; nothing where all do, or none."""
    needing, plain = [net("a", mode), net("b", mode)], [net("c", "dynamic"), net("d", "dynamic")]
    backends, text = dropped(name, [needing[0], *plain, needing[1]], contest())
    assert (backends, text) == (["a", "b"], f"{word}: dynamic · c needs none, {mode} · a does")
    assert dropped(name, needing, contest()) == dropped(name, plain, contest()) == ([], "")


def test_size_drops_what_is_larger_by_more_than_the_tie() -> None:
    """Against the smallest wherever it stands; what is not known stays, and what is minimized is no preference."""
    tied = [net(backend, size_bytes=size) for backend, size in (("a", 1040), ("b", 1030), ("c", 1000), ("d", 1031))]
    unknown = replace(net("e"), artifact=None)
    backends, text = dropped("size", [unknown, *tied], contest())
    assert (backends, text) == (["a", "d"], "size: static · c 1.00 kB in all, static · a 1.04 kB in all")
    for few in (tied[1:3], [unknown, tied[0]], [unknown], [unknown, unknown]):
        assert dropped("size", few, contest()) == ([], "")
    assert dropped("size", tied, contest(name="size")) == ([], "")
    assert dropped("size", tied[2:], contest())[0] == ["d"]


def test_a_cold_start_is_dropped_where_it_is_shown_to_be_longer() -> None:
    """By the limits of both, not by the estimate."""

    def start(backend: str, seconds: float, half: float) -> Record:
        limits = {
            "load_low": seconds - half,
            "load_high": seconds + half,
            "first_call_low": 0.1,
            "first_call_high": 0.1,
        }
        return net(backend, cold_start=ColdStart(load_seconds=seconds, first_call_seconds=0.1, **limits))

    tied = [start("a", 0.5, 0.01), start("b", 0.4, 0.01), start("c", 0.5, 0.2)]
    backends, text = dropped("cold_start", tied, contest())
    assert backends == ["a"]
    assert text == "cold start: static · b 500 ms to load and call once, static · a 600 ms to load and call once"
