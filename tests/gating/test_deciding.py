"""Rules of qbench/gating/deciding.py: what would decide an INCONCLUSIVE, and never what this gate cannot give."""

from __future__ import annotations

import math

import pytest
from made_records import CASE, speedup

from qbench.gating.deciding import (
    MOST_PAIRS,
    advise_live,
    advise_processes,
    advise_stored,
    describe_budget,
    estimate_processes,
)
from qbench.gating.sequential_test import InterimAnalysis, NotRun, ProcessPair, Rerun
from qbench.gating.verdict import Verdict
from qbench.stats.interval_type import Interval


def unsure(value: float, half: float, threshold: float = 1.05) -> Verdict:
    """An INCONCLUSIVE on an interval around a value."""
    return Verdict(
        outcome="INCONCLUSIVE", case=CASE, rule="latency", place="x:1", text="", reason="spans", value=value,
        low=value - half, high=value + half, threshold=threshold,
    )  # fmt: skip


def live(value: float, half: float, pairs: int, *, cut: bool, doubt: str | None = None) -> Verdict:
    """The same on so many process pairs of 5 s each."""
    ratio = Interval(value=value, low=value * math.exp(-half), high=value * math.exp(half))
    analysis = InterimAnalysis(
        outcome="INCONCLUSIVE", number=pairs // 3, slowdown=ratio, control=ratio, p_value=1.0, doubt=doubt,
        decided=pairs == MOST_PAIRS,
    )  # fmt: skip
    pair = ProcessPair(ratio=0.0, control=0.0, drift=0.0)
    rerun = Rerun(pairs=(pair,) * pairs, analysis=analysis, cut=cut, spent=5.0 * pairs)
    return advise_live(unsure(value, half), analysis, rerun)


def test_where_time_was_over_more_of_it_decides_as_far_as_a_gate_goes() -> None:
    """The number of the look that would decide, and the seconds up to it; not a number that no gate takes."""
    near = live(1.03, 0.025, 3, cut=True)
    assert near.decides == "a larger --max-minutes (about 6 process pairs, 15 s more for this case)"
    far = live(1.045, 0.025, 3, cut=True)
    assert far.decides is None
    assert str(far.reason).endswith("this gate cannot decide it: about 83 process pairs would, and it takes at most 12")


def test_the_last_look_of_a_gate_is_one_that_time_can_buy() -> None:
    """12 process pairs are what it takes at most; before the first pair nothing is known of what one takes."""
    last = live(1.05 * math.exp(-0.01), 0.0199, 3, cut=True)
    assert last.decides == "a larger --max-minutes (about 12 process pairs, 45 s more for this case)"
    none = describe_budget(unsure(1.03, 0.025), Rerun(pairs=(), analysis=None, cut=True))
    assert none.decides == "a larger --max-minutes"
    assert (
        none.reason == "the time that may be spent was over before its first look; a larger --max-minutes would decide"
    )


def test_what_was_spent_is_no_advice() -> None:
    """After all 12 process pairs a gate says that it cannot, and on the limit that nothing can."""
    spent = live(1.03, 0.025, 12, cut=False)
    assert spent.decides is None
    assert str(spent.reason).endswith("about 21 process pairs would, and it takes at most 12")
    assert str(live(1.05, 0.02, 12, cut=False).reason).endswith("cannot decide it: the estimate lies on the limit")


def test_noise_asks_for_quiet() -> None:
    """More of the same noise decides nothing."""
    assert live(1.03, 0.025, 12, cut=False, doubt="noisy").decides == "a quieter machine, or `qbench gate` again"


@pytest.mark.parametrize(
    ("not_run", "protocol", "decides"),
    [
        (None, "paired", "running both again (`qbench gate` without --stored)"),
        (NotRun(reason="gone"), "paired", "about 5 processes in each run (`measure: {processes: 5}`)"),
        (NotRun(reason="gone"), "sequential", "the suite run again with `measure: {protocol: paired}`"),
    ],
)
def test_stored_figures_ask_for_what_was_left_out(not_run: NotRun | None, protocol: str, decides: str) -> None:
    """Running both again where that was not asked for; else more processes in each run, of the paired protocol."""
    figure = speedup(2.4, protocol=protocol)
    assert figure.processes == 3
    assert advise_stored(unsure(1.03, 0.025), not_run, figure).decides == decides


def test_more_processes_are_named_while_they_help() -> None:
    """Limits shrink with the root of the count; where they do not span the threshold, noise is what is in doubt."""
    assert estimate_processes(Interval(value=1.5, low=1.4, high=1.6), 1.55, 3) == 12
    assert estimate_processes(Interval(value=1.5, low=1.4, high=1.6), 1.7, 3) is None
    wide = Interval(value=1.5, low=1.25, high=1.75)
    assert [estimate_processes(wide, threshold, 3) for threshold in (1.75, 1.75 + 1e-9, 1.25, 1.25 - 1e-9)] == [
        4, None, 4, None,
    ]  # fmt: skip
    told = [advise_processes(unsure(1.5, 0.25, 1.625), count, "processes").decides for count in (25, 26)]
    assert told == ["about 100 processes (`measure: {processes: 100}`)", None]
    hopeless = advise_processes(unsure(1.05, 0.02), 3, "processes")
    assert hopeless.decides is None
    assert "more processes would hardly decide it" in str(hopeless.reason)
    assert str(advise_processes(unsure(1.03, 0.01), 3, "processes").decides).endswith("quieter machine")
    starts = advise_processes(unsure(0.2, 0.019, 0.21), 6, "cold_starts")
    assert starts.decides == "about 22 cold starts (`measure: {cold_starts: 22}`)"
