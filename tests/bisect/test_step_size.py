"""Rules of qbench/bisect/step_size.py: how much of a change came at once, as far as limits tell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_bisections import ANSWERS, GOOD, ask, lost, slow

from qbench.bisect.answer import Answer
from qbench.bisect.search import Bracket
from qbench.bisect.step_size import find_share, limit_step, limit_whole
from qbench.stats.interval_type import Interval


def test_a_part_of_the_change_is_told_as_such() -> None:
    """A release that brings 57 % of the change is not all of it."""
    share = find_share(ask("latency"), ANSWERS["named, in several steps"][1])
    assert share == pytest.approx(0.575, abs=0.01)
    assert find_share(ask("latency"), ANSWERS["named at once"][1]) == pytest.approx(1)
    assert find_share(ask("failure"), ANSWERS["named by failure"][1]) is None


def test_a_step_of_time_has_the_width_of_both_candidates() -> None:
    """Each was measured beside the good end by itself."""
    question, answer = ask("latency"), ANSWERS["named"][1]
    step, whole = limit_step(question, answer), limit_whole(question, answer)
    assert step is not None
    assert whole is not None
    assert (step[0] + step[1]) / 2 == pytest.approx(math.log(1.049 / 1.001))
    assert step[1] - step[0] == pytest.approx(2 * (2 * 0.006**2 / 1.025**2) ** 0.5, rel=0.05)
    assert whole[1] - whole[0] == pytest.approx(0.0114, rel=0.02)


def test_a_step_of_a_score_is_for_the_worse_where_points_are_lost() -> None:
    """With the widest limits: it is on the same examples."""
    question = ask("accuracy")
    judged = {0: GOOD, 8: lost(4), 4: lost(4), 3: lost(2, side="good")}
    answer = replace(ANSWERS["named by accuracy"][1], judged=judged)
    assert find_share(question, answer) == pytest.approx(0.5)
    assert limit_step(question, answer) == pytest.approx((0.0, 0.04))
    assert limit_whole(question, answer) == pytest.approx((0.03, 0.05))


def test_what_was_not_measured_has_no_size() -> None:
    """A commit that runs the same as an end has the end's value, or none."""
    answer = ANSWERS["named"][1]
    unmeasured: Answer = replace(answer, judged={**answer.judged, 3: GOOD})
    assert find_share(ask("latency"), unmeasured) is None
    assert limit_step(ask("latency"), unmeasured) is None
    behind: Answer = replace(answer, judged={**answer.judged, 4: replace(GOOD, side="bad")})
    assert find_share(ask("latency"), behind) is None
    assert limit_step(ask("latency"), behind) is None
    whole: Answer = replace(answer, judged={**answer.judged, 8: replace(GOOD, side="bad")})
    assert find_share(ask("latency"), whole) is None
    assert limit_whole(ask("latency"), whole) is None
    coarse = replace(answer, judged={**answer.judged, 4: replace(slow(1.05), value=Interval(value=1.05))})
    assert find_share(ask("latency"), coarse) == pytest.approx(0.98, abs=0.02)


def test_the_first_candidate_brings_all_that_it_has() -> None:
    """The good end is what it is held against, measured or not; of no change nothing is a part."""
    judged = {0: GOOD, 1: slow(1.05), 8: slow(1.05)}
    answer = replace(ANSWERS["named"][1], judged=judged, bracket=Bracket(last_good=0, first_bad=1, chance=1.0))
    assert find_share(ask("latency"), answer) == pytest.approx(1)
    assert limit_step(ask("latency"), answer) == pytest.approx(limit_whole(ask("latency"), answer), abs=1e-4)
    still = replace(answer, judged={**judged, 8: slow(1.0)})
    assert find_share(ask("latency"), still) is None
    several = replace(answer, bracket=Bracket(last_good=0, first_bad=2, chance=1.0))
    assert find_share(ask("latency"), several) is None
    assert find_share(ask("latency"), replace(answer, bracket=None)) is None
