"""Rules of qbench/bisect/answer.py: which candidate is looked at next, from both ends inwards, and the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_bisections import GOOD, ask, lost, slow

from qbench.bisect.answer import Answer, Kind, choose_step, cut_short
from qbench.bisect.search import ENOUGH, Bracket, Judged, Look
from qbench.stats.interval_type import Interval

BAD = Judged(side="bad", p_bad=1.0)
OPEN, WAITING = Judged(side="open", p_bad=0.5), Judged(side="open", p_bad=None, more=True)
BROKEN = Judged(side="skipped", p_bad=None, reason="no wheel")


@pytest.mark.parametrize(
    ("judged", "candidate"),
    [
        ({}, 0),
        ({0: WAITING}, 0),
        ({8: BAD}, 0),
        ({0: GOOD}, 8),
        ({0: GOOD, 8: WAITING}, 8),
        ({0: GOOD, 8: BAD}, 4),
        ({0: replace(GOOD, more=True), 8: replace(BAD, more=True)}, 4),
    ],
)
def test_the_ends_are_looked_at_first(judged: dict[int, Judged], candidate: int) -> None:
    """The good one before the bad one, each for as long as it is open and more may tell; then what lies between."""
    assert choose_step(ask("latency"), judged) == Look(candidate=candidate)


@pytest.mark.parametrize(
    ("on", "judged", "kind"),
    [
        ("latency", {0: OPEN}, "good unusable"),
        ("latency", {0: BROKEN}, "good unusable"),
        ("failure", {0: BAD}, "good unusable"),
        ("latency", {0: GOOD, 8: OPEN}, "open"),
        ("latency", {0: GOOD, 8: BROKEN}, "bad unusable"),
        ("latency", {0: GOOD, 8: slow(0.9)}, "better"),
        ("latency", {0: GOOD, 8: slow(0.994)}, "same"),
        ("latency", {0: GOOD, 8: slow(1.001)}, "same"),
        ("latency", {0: GOOD, 8: GOOD}, "same"),
        ("latency", {0: GOOD, 8: replace(GOOD, value=Interval(value=0.5))}, "same"),
        ("accuracy", {0: GOOD, 8: lost(-2, side="good")}, "better"),
        ("accuracy", {0: GOOD, 8: lost(-1, side="good")}, "same"),
        ("accuracy", {0: GOOD, 8: lost(2, side="good")}, "same"),
        ("bits", {0: GOOD, 8: lost(-2, side="good")}, "same"),
        ("failure", {0: GOOD, 8: lost(-2, side="good")}, "same"),
    ],
)
def test_ends_that_are_none_end_the_search(on: str, judged: dict[int, Judged], kind: Kind) -> None:
    """The bad end is the better one only where its limits show it, of time below and of a score above."""
    answer = choose_step(ask(on), judged)
    assert isinstance(answer, Answer)
    assert (answer.kind, answer.bracket) == (kind, None)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("named", 0),
        *((kind, 4) for kind in ("several", "doubtful", "open", "cut")),
        *((kind, 3) for kind in ("same", "better", "good unusable", "bad unusable")),
    ],
)
def test_the_exit_code_tells_the_kinds_of_answer_apart(kind: Kind, code: int) -> None:
    """0 an answer, 3 nothing to search for, 4 not decided."""
    assert Answer(kind=kind, judged={}).exit_code == code


@pytest.mark.parametrize(
    ("third", "kind", "bracket"),
    [
        (GOOD, "named", (3, 4)),
        (BROKEN, "several", (2, 4)),
        (Judged(side="good", p_bad=0.3), "doubtful", (3, 4)),
    ],
)
def test_one_candidate_is_named_where_that_is_sure_enough(third: Judged, kind: Kind, bracket: tuple[int, int]) -> None:
    """One of several elsewhere, or one that is doubted."""
    answer = choose_step(ask("latency"), {0: GOOD, 8: BAD, 2: GOOD, 3: third, 4: BAD})
    assert isinstance(answer, Answer)
    assert answer.bracket is not None
    assert (answer.kind, (answer.bracket.last_good, answer.bracket.first_bad)) == (kind, bracket)
    assert (answer.bracket.chance >= ENOUGH) == (kind != "doubtful")


@pytest.mark.parametrize(
    ("judged", "bracket"),
    [
        ({}, None),
        ({0: GOOD}, None),
        ({0: GOOD, 8: OPEN}, None),
        ({0: OPEN, 8: BAD}, None),
        ({0: GOOD, 8: BAD}, (0, 8)),
        ({0: GOOD, 8: BAD, 4: BAD, 2: GOOD, 3: WAITING}, (2, 4)),
    ],
)
def test_a_search_that_is_cut_short_tells_what_is_left(
    judged: dict[int, Judged], bracket: tuple[int, int] | None
) -> None:
    """Where both ends are known: of these one is the first bad one."""
    answer = cut_short(ask("latency"), judged)
    assert (answer.kind, answer.exit_code) == ("cut", 4)
    assert (answer.bracket is not None) == (bracket is not None)
    if bracket is not None:
        assert isinstance(answer.bracket, Bracket)
        assert (answer.bracket.last_good, answer.bracket.first_bad) == bracket
