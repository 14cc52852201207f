"""An explanation of time in words and keys."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from made_trials import race as tried
from made_trials import trial

from qbench.explain.advice import MendedAccuracy
from qbench.explain.change import Change
from qbench.explain.explanation import Goal, Round, choose, explain_time
from qbench.explain.suite_text import OPTION, write_option, write_suite_keys
from qbench.explain.text import TIME, describe_accuracy, list_causes, list_other_times, list_time_head
from qbench.process import imports
from qbench.quant.recipe import DEFAULT
from qbench.record.explained import IMPORT_ON_ONE
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

RECIPE = SimpleNamespace(name=DEFAULT)
CASE = SimpleNamespace(variant=SimpleNamespace(mode="dynamic", backend="onnxruntime", recipe=RECIPE), batch_size=1)
OPENED = SimpleNamespace(case=CASE, recipe_keys={}, recipes=("default",))
SLOW = SimpleNamespace(
    case=SimpleNamespace(id="net/static/onednn/t1/b1"),
    fp32_case=SimpleNamespace(variant=SimpleNamespace(backend="torch")),
)
TITLES = {name: SimpleNamespace(title=f"{name} is slow") for name in ("engine", "batch")}


def explain_races(*races, off_core=None, over_fp32=None):
    """An explanation of races, each of these trials."""
    rounds = []
    for trials in races:
        outcome = tried(*trials, off_core=off_core, over_fp32=over_fp32)
        rounds.append(Round(tried=outcome, chosen=choose(outcome, rounds)))
    return explain_time(rounds, [Goal(left=0.25, name="as the fastest of the run")])


def list_lines(explanation, titles=TITLES):
    """All that a terminal says of causes."""
    return [*list_causes(explanation, titles, TIME, MetricInfo(name="top1")), *list_other_times(explanation)]


def test_the_head_says_how_far_the_case_is_from_fp32_and_from_the_best():
    """With the limits of the ratio; without a ratio, fp32's time."""
    ratio = Interval(value=0.8, low=0.75, high=0.85)
    assert list_time_head(SLOW, explain_races([trial("engine", 0.5)], over_fp32=ratio)) == [
        "net/static/onednn/t1/b1: 1.00 s for one example, 0.80 [0.75, 0.85] times what fp32 on torch takes (1.20 s).",
        "It could take 250 ms (as the fastest of the run): a gap of 750 ms.",
    ]
    assert "; fp32 on torch takes 1.20 s." in list_time_head(SLOW, explain_races([trial("engine", 0.5)]))[0]


def test_times_that_other_processes_cut_are_said_to_be_so():
    """Where they had the core for 5 % of the time: calls of milliseconds are cut then, short ones are not."""
    assert len(list_time_head(SLOW, explain_races([trial("engine", 0.5)], off_core=0.04))) == 2
    assert list_time_head(SLOW, explain_races([trial("engine", 0.5)], off_core=0.3))[-1].startswith(
        "Note: other processes of this machine had the core 30 % of the time meanwhile: calls of milliseconds are cut"
    )


def test_causes_are_numbered_with_their_gain_and_share():
    """What shows once the first is gone says so; what gains nothing and what could not be tried stands below."""
    first = [trial("engine", 0.5), trial("batch", 1.01), trial("threads", None)]
    assert list_lines(explain_races(first, [replace(trial("batch", 0.8), beyond=True)])) == [
        "1. Engine is slow (engine). Without it (without engine): 2.00 [1.92, 2.08] times as fast; 66.7 % of the gap.",
        "2. Batch is slow (batch). Without it (without batch): 1.25 [1.20, 1.30] times as fast once the first ones "
        "are gone; 13.3 % of the gap.",
        "Without all of these: 2.50 [2.36, 2.65] times as fast.",
        "Not explained: 20.0 % of the gap.",
        "Not tried: without threads: it cannot be built.",
    ]


def test_nothing_confirmed_is_said():
    """With what was tried in vain, and its limits."""
    assert list_lines(explain_races([trial("batch", 1.0)])) == [
        TIME.nothing,
        "Not explained: 100 % of the gap.",
        "No gain shown, all that was tried taken together:",
        "  without batch (batch): 1.00 [0.96, 1.04] times as fast",
    ]


BATCH = Change(batch_size=8)
PINNED = Change(environment=imports.name_cores((1,)))


def test_more_examples_a_call_are_an_option_and_no_key():
    """Who serves single requests pastes the rest as it stands; without a rest there is nothing but the option."""
    static = Change(mode="static")
    keys = write_suite_keys(static, OPENED, static.then(BATCH))
    assert yaml.safe_load(keys) == {"matrix": {"modes": ["static"]}}
    assert yaml.safe_load(write_option(static.then(BATCH), static, OPENED)) == {"matrix": {"batch_sizes": [8]}}
    assert keys.endswith("# matrix:\n#   batch_sizes: [8]")
    assert yaml.safe_load(write_suite_keys(None, OPENED, BATCH)) is None
    assert write_suite_keys(Change(environment={"A": "1"}), OPENED) is None
    assert write_option(static, None, OPENED) is None


def test_what_was_shown_with_more_examples_a_call_belongs_to_that_option():
    """Keys and settings that were confirmed after it may gain nothing for single requests."""
    channels = Change(recipe={"per_channel": False})
    keys = write_suite_keys(channels, OPENED, channels.then(BATCH).then(Change(mode="static")).then(PINNED))
    firm, option = keys.split(OPTION)
    assert "per_channel" in firm
    assert "static" not in firm
    commented = [line.removeprefix("# ") for line in option.strip().splitlines()]
    assert commented[-1] == IMPORT_ON_ONE
    assert yaml.safe_load("\n".join(commented[:-1]))["matrix"] == {"modes": ["static"], "batch_sizes": [8]}


@pytest.mark.parametrize(
    ("changes", "single"),
    [((BATCH,), None), ((BATCH, PINNED), None), ((PINNED, BATCH), PINNED), ((PINNED,), PINNED), ((), None)],
)
def test_single_requests_gain_by_what_comes_before_more_examples_a_call(changes, single):
    """A change that was confirmed once calls had eight examples was shown for such calls alone."""
    rounds = [
        Round(tried=tried(each), chosen=each) for each in (trial(str(n), 0.5, change=c) for n, c in enumerate(changes))
    ]
    result = explain_time(
        rounds or [Round(tried=tried(trial("none", 1.0)), chosen=None)], [Goal(left=0.05, name="arithmetic")]
    )
    assert result.single == single


def test_what_closes_the_same_part_of_the_gap_is_said_with_its_share_alone():
    """It is in the shares of those above, which stay the whole gap."""
    first = tried(trial("layers", 0.1), trial("denormals", 0.2))
    rounds = [Round(tried=first, chosen=choose(first, ()))]
    result = explain_time(rounds, [Goal(left=0.05, name="arithmetic")])
    titles = {"layers": SimpleNamespace(title="layers stay float")}
    lines = list_lines(result, titles)
    assert "94.7 % of the gap" in lines[0]
    assert "alone it closes 84.2 % of the gap" in lines[-1]
    beyond = replace(result, hidden=(replace(result.hidden[0], beyond=True),))
    assert "alone" not in list_lines(beyond, titles)[-1]


GAIN, LOSS = Interval(value=0.004, low=0.001, high=0.007), Interval(value=-0.01, low=-0.02, high=0.0)


@pytest.mark.parametrize(
    ("case", "fp32", "told"),
    [
        (GAIN, LOSS, "Its top1, on 1,000 examples: +0.4 [+0.1, +0.7] points against the case, -1.0 [-2.0, 0.0] points"
         " against fp32."),
        (GAIN, None, "Its top1, on 1,000 examples: +0.4 [+0.1, +0.7] points against the case."),
        (None, LOSS, None),
    ],
)  # fmt: skip
def test_what_a_change_costs_in_accuracy_is_said_of_what_is_known(case, fp32, told):
    """Against fp32 only where that was compared; nothing where the case itself was not, or the artifact is the same."""
    accuracy = MendedAccuracy(metric="top1", n=1000, against_case=case, against_fp32=fp32)
    assert describe_accuracy(accuracy, MetricInfo(name="top1")) == told
    assert describe_accuracy(None, MetricInfo(name="top1")) is None
