"""What a terminal says of lost time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from made_trials import trial, tried

from qbench.explain import text
from qbench.explain.explanation import Round, choose, explain
from qbench.stats.interval_type import Interval

TITLES = {name: SimpleNamespace(title=f"{name} is slow") for name in ("engine", "batch")}
BEST = (0.25, "as the fastest of the run")
OPENED = SimpleNamespace(
    case=SimpleNamespace(id="net/static/onednn/t1/b1"),
    fp32_case=SimpleNamespace(variant=SimpleNamespace(backend="torch")),
)


def explain_races(*races, off_core=None, over_fp32=None):
    """An explanation of races, each of these trials."""
    rounds = []
    for trials in races:
        outcome = tried(*trials, off_core=off_core, over_fp32=over_fp32)
        rounds.append(Round(tried=outcome, chosen=choose(outcome, rounds)))
    return explain(rounds, [BEST])


def test_the_head_says_how_far_the_case_is_from_fp32_and_from_the_best():
    """With the limits of the ratio; without a ratio, fp32's time."""
    ratio = Interval(value=0.8, low=0.75, high=0.85)
    lines = text.list_head(OPENED, explain_races([trial("engine", 0.5)], over_fp32=ratio))
    assert lines == [
        "net/static/onednn/t1/b1: 1.00 s for one example, 0.80 [0.75, 0.85] times what fp32 on torch takes (1.20 s).",
        "It could take 250 ms (as the fastest of the run): a gap of 750 ms.",
    ]
    assert "; fp32 on torch takes 1.20 s." in text.list_head(OPENED, explain_races([trial("engine", 0.5)]))[0]


def test_times_that_other_processes_cut_are_said_to_be_so():
    """Where they had the core for 5 % of the time: calls of milliseconds are cut then, short ones are not."""
    assert len(text.list_head(OPENED, explain_races([trial("engine", 0.5)], off_core=0.04))) == 2
    assert text.list_head(OPENED, explain_races([trial("engine", 0.5)], off_core=0.3))[-1].startswith(
        "Mind: other processes of this machine had the core 30 % of the time meanwhile: calls of milliseconds are cut"
    )


def test_causes_are_numbered_with_their_gain_and_share():
    """What is found once the first is gone says so; what gains nothing and what could not be tried stands below."""
    first = [trial("engine", 0.5), trial("batch", 1.01), trial("threads", None)]
    lines = text.list_causes(explain_races(first, [replace(trial("batch", 0.8), beyond=True)]), TITLES)
    assert lines == [
        "1. Engine is slow (engine). Taken away (without engine): 2.00 [1.97, 2.03] times as fast; 66.7 % of the gap.",
        "2. Batch is slow (batch). Taken away (without batch): 1.250 [1.233, 1.267] times as fast once the first "
        "ones are gone; 13.3 % of the gap.",
        "All of these taken away: 2.50 [2.45, 2.55] times as fast.",
        "Not explained: 20.0 % of the gap.",
        "Not tried: without threads: it cannot be built.",
    ]


def test_nothing_confirmed_is_said():
    """With what was tried in vain, and its limits."""
    lines = text.list_causes(explain_races([trial("batch", 1.0)]), TITLES)
    assert lines == [
        text.NOTHING,
        "Not explained: 100 % of the gap.",
        "No gain shown, all that was tried taken together:",
        "  without batch (batch): 1.000 [0.986, 1.014] times as fast",
    ]
