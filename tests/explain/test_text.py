"""An explanation in words, of time and of lost accuracy, and the keys of what it advises."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from made_records import int8, latency
from made_trials import evaluate, loss_trial, trial
from made_trials import race as tried

from qbench.explain.advice import MendedAccuracy
from qbench.explain.change import Change
from qbench.explain.explanation import Goal, Round, choose, confirm, explain_error, explain_time
from qbench.explain.suite_text import OPTION, list_environment, write_option, write_suite_keys
from qbench.explain.text import (
    AS_FAST,
    ERROR,
    TIME,
    describe_accuracy,
    describe_error_head,
    list_causes,
    list_other_errors,
    list_other_formats,
    list_other_times,
    list_time_head,
)
from qbench.process import imports
from qbench.quant.recipe import DEFAULT
from qbench.record.explained import FLUSH_IN_TORCH, FLUSHING, IMPORT_ON_ONE, IMPORT_ON_SEVERAL
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
LOSSES = {name: SimpleNamespace(title=f"{name} is wrong") for name in ("scale", "layers", "data")}
METRIC = MetricInfo(name="top1")


def explain_races(*races, off_core=None, over_fp32=None):
    """An explanation of races, each of these trials."""
    rounds = []
    for trials in races:
        outcome = tried(*trials, off_core=off_core, over_fp32=over_fp32)
        rounds.append(Round(tried=outcome, chosen=choose(outcome, rounds)))
    return explain_time(rounds, [Goal(left=0.25, name="as the fastest of the run")])


def list_lines(explanation, titles=TITLES):
    """All that a terminal says of causes."""
    return [*list_causes(explanation, titles, TIME, METRIC), *list_other_times(explanation)]


def test_the_head_says_how_far_the_case_is_from_fp32_and_from_the_best():
    """With the limits of the ratio; without a ratio, fp32's time."""
    ratio = Interval(value=0.8, low=0.75, high=0.85)
    assert list_time_head(SLOW, explain_races([trial("engine", 0.5)], over_fp32=ratio)) == [
        "net/static/onednn/t1/b1: 1.00 s for one example, 0.80 [0.75, 0.85] times what fp32 on torch takes (1.20 s).",
        "It could take 250 ms (as the fastest of the run): a gap of 750 ms.",
    ]
    assert "; fp32 on torch takes 1.20 s." in list_time_head(SLOW, explain_races([trial("engine", 0.5)]))[0]


def test_what_needs_no_calibration_and_is_as_fast_is_named():
    """bf16 and weights of few bits of the same setting, within 3 %, the fastest first; what runs in fp32, is slower or
    is of another setting is not."""
    own = int8(latency=latency(0.001))
    records = [
        own,
        int8("net/bf16/openvino/t1/b1", latency=latency(0.00102)),
        int8("net/weight_only/onnxruntime/t1/b1", latency=latency(0.0009)),
        int8("net/bf16/torch/t1/b1", latency=latency(0.00104)),
        int8("net/fp16/torch/t1/b1", latency=latency(0.0005), coverage=0.0),
        int8("net/bf16/openvino/t2/b1", latency=latency(0.0005)),
        int8("net/static/x86/t1/b1", latency=latency(0.0005)),
    ]
    assert list_other_formats(own, records) == [
        f"In the run {name} took {took} where this case took 1.00 ms, and nothing is calibrated for it."
        for name, took in (("weight-only on ONNX Runtime", "900 µs"), ("bf16 on OpenVINO", "1.02 ms"))
    ]
    assert list_other_formats(replace(own, latency=None), records) == []


def test_times_that_other_processes_cut_are_said_to_be_so():
    """Where they had the core for 5 % of the time: calls of milliseconds are cut then, short ones are not."""
    assert len(list_time_head(SLOW, explain_races([trial("engine", 0.5)], off_core=0.04))) == 2
    assert list_time_head(SLOW, explain_races([trial("engine", 0.5)], off_core=0.3))[-1].startswith(
        "Note: other processes of this machine had the core 30 % of the time meanwhile: calls that they cut"
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


def explain_losses(*trials, steps):
    """These trials with the confirmed ones in a row, which take those shares away."""
    known = evaluate(*trials)
    confirmed = confirm(known)[: len(steps)]
    taken = tuple(
        loss_trial(each.counterfactual.cause, share, part=each.counterfactual.part)
        for each, share in zip(confirmed, steps, strict=True)
    )
    return list_loss_lines(explain_error(known, confirmed, taken))


def list_loss_lines(explanation):
    """All that a terminal says of one."""
    causes = list_causes(explanation, LOSSES, ERROR, METRIC)
    return [describe_error_head(explanation.tried, METRIC), *causes, *list_other_errors(explanation)]


def test_causes_are_numbered_and_only_later_ones_say_what_they_add():
    """The first is beyond nothing."""
    lines = explain_losses(loss_trial("scale", 0.6), loss_trial("layers", 0.5, part="a"), steps=(0.6, 0.8))
    assert lines == [
        "Against fp32, on 200 examples: 15.0 dB signal to noise.",
        "1. Scale is wrong (scale). Without it (without scale ): 60.0 [58.0, 62.0] % of the error gone.",
        "2. Layers is wrong (layers). Without it (without layers a): 50.0 [48.0, 52.0] % of the error gone; "
        "20.0 % beyond those before it.",
        "Without all of these: 80.0 [78.0, 82.0] % of the error gone.",
        "Not explained: 20.0 % of the error.",
    ]


def test_what_showed_nothing_is_one_sentence_and_what_failed_one_for_each_reason():
    """However many layers were tried."""
    nothing = [loss_trial("layers", 0.001, part=name) for name in "ab"]
    failed = [loss_trial("layers", None, part=name) for name in "cd"]
    lines = explain_losses(*nothing, *failed, steps=())
    assert lines[1:] == [
        "No change that was tried is confirmed as a cause.",
        "Not shown to take 2 % of the error away: without layers a (0.1 [-1.9, 2.1] %), "
        "without layers b (0.1 [-1.9, 2.1] %).",
        "Not tried: without layers c, without layers d: it cannot be built.",
    ]
    assert explain_losses(*failed, steps=())[1] == "No change could be tried."


def test_examples_that_are_evaluated_are_no_calibration_set():
    """The mend proves the cause; another one is asked for."""
    data = loss_trial("data", 0.9)
    change = Change(calibrate=("test", 8))
    object.__setattr__(data.counterfactual, "change", change)
    assert any("bring calibration examples like those" in line for line in explain_losses(data, steps=(0.9,)))


def test_of_many_changes_without_effect_twelve_are_named():
    """And how many more there are; of those that could not be tried as well."""
    nothing = [loss_trial("layers", 0.001, part=f"l{number}") for number in range(13)]
    failed = [loss_trial("layers", None, part=f"m{number}") for number in range(14)]
    *_, shown, untried = explain_losses(*nothing, *failed, steps=())
    assert shown.endswith("without layers l11 (0.1 [-1.9, 2.1] %) and 1 more.")
    assert untried.endswith("without layers m11 and 2 more: it cannot be built.")


def test_keys_stand_in_the_order_of_a_suite_and_each_list_on_one_line():
    """However long it is."""
    names = tuple(f"a_layer_with_a_long_name_{number}" for number in range(20))
    change = Change(mode="static", backend="onednn", recipe={"skip_layers": names})
    matrix, modes, backends, *_, layers = write_suite_keys(change, OPENED).splitlines()
    assert (matrix, modes, backends) == ("matrix:", "  modes: [static]", "  backends: [onednn]")
    assert layers.strip() == f"skip_layers: [{', '.join(names)}]"


def test_what_another_draw_does_is_told():
    """And the least that a cause removes follows from it."""
    drawn = replace(evaluate(loss_trial("layers", 0.01, part="a")), draws=(0.03, -0.03, 0.03))
    lines = list_loss_lines(explain_error(drawn, (), ()))
    assert any("changes the error by 3.0 % (3 draws); a cause removes 3 times as much" in line for line in lines)
    assert any(line.startswith("Not shown to take 9 % of the error away: without layers a") for line in lines)


def test_draws_that_differ_so_much_that_no_cause_can_be_confirmed():
    """Three times what they change is more than all of the error: that is said, and no share above 100 % is asked."""
    drawn = replace(evaluate(loss_trial("layers", 0.92, part="a")), draws=(0.9, -0.8))
    lines = list_loss_lines(explain_error(drawn, (), ()))
    assert any("which is more than all of it: no cause can be confirmed" in line for line in lines)
    assert any(line.startswith("Not confirmed, whatever it takes away: without layers a (92") for line in lines)


@pytest.mark.parametrize(("draw", "all_of_it"), [(0.3, False), (0.4, True), (0.6, True)])
def test_from_all_of_the_error_on_no_cause_can_be_confirmed(draw, all_of_it):
    """Three times what draws change, from 100 % on: below, a share is asked."""
    drawn = replace(evaluate(loss_trial("layers", 0.92, part="a")), draws=(draw, -draw))
    text = " ".join(list_loss_lines(explain_error(drawn, (), ())))
    assert ("more than all of it" in text, "Not confirmed, whatever" in text) == (all_of_it, all_of_it)


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


def test_a_score_that_is_held_against_fp32_is_told_itself():
    """fp32 scores 100 dB by definition: 52.8 dB less says nothing."""
    sqnr = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB", perfect=100.0)
    change = Interval(value=-52.8, low=-53.0, high=-52.4)
    accuracy = MendedAccuracy(
        metric="sqnr", n=32, against_case=Interval(value=-0.1, low=-0.3, high=0.1), against_fp32=change
    )
    told = describe_accuracy(accuracy, sqnr)
    assert told == "Its sqnr, on 32 examples: -0.1 [-0.3, +0.1] dB against the case, 47.2 [47.0, 47.6] dB against fp32."
    head = describe_error_head(replace(evaluate(), against_fp32=change), sqnr)
    assert head.endswith("sqnr 47.2 [47.0, 47.6] dB.")


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (None, []),
        (Change(mode="static"), []),
        (Change(environment={"A": "1", "B": ""}), ["export A=1", "unset B"]),
        (PINNED, [IMPORT_ON_ONE]),
        (Change(environment=imports.name_cores((1, 2))), [IMPORT_ON_SEVERAL]),
        (Change(environment={"A": "1"}, flush_denormals=True), ["export A=1", FLUSHING["onnxruntime"]]),
        (Change(backend="openvino", flush_denormals=True), [FLUSHING["openvino"]]),
        (Change(backend="fbgemm", flush_denormals=True), [FLUSH_IN_TORCH]),
    ],
)
def test_what_to_set_for_the_process_is_what_the_change_set(change, lines):
    """Variables first; how arithmetic flushes is a matter of the backend that the change leads to."""
    assert list_environment(change, CASE) == lines


def test_an_option_has_no_setting_that_stands_above_it():
    """Nor a key that is advised with the same value; those with another value, and nested ones, stay."""
    firm = Change(recipe={"per_channel": False}, environment={"A": "1"})
    option = firm.then(BATCH).then(Change(recipe={"last_layer_float": True}, environment={"B": "2"}))
    keys = write_suite_keys(firm, OPENED, option)
    assert keys.partition(OPTION)[2].strip().splitlines() == [
        "# matrix:",
        "#   batch_sizes: [8]",
        "# quantize:",
        "#   dynamic:",
        "#     backends:",
        "#       onnxruntime: {last_layer_float: true}",
        "# export B=2",
    ]


def test_without_anything_better_no_gap_is_told():
    """Nor what of it is not explained; without fp32 beside it, only what it takes."""
    raced = Round(tried=replace(tried(), fp32_seconds=None), chosen=None)
    result = explain_time([raced], [])
    assert list_time_head(SLOW, result) == ["net/static/onednn/t1/b1: 1.00 s for one example."]
    assert list_lines(result) == [TIME.nothing]


def test_a_twentieth_of_the_time_without_the_core_is_noted():
    """From there on, not above."""
    assert list_time_head(SLOW, explain_races([trial("engine", 0.5)], off_core=0.05))[-1].startswith("Note: ")


def test_a_format_three_percent_slower_is_as_fast():
    """At that bound, not only below."""
    own, other = int8(latency=latency(0.001)), int8("net/bf16/torch/t1/b1", latency=latency(0.001 * (1 + AS_FAST)))
    assert len(list_other_formats(own, [own, other])) == 1


def test_what_rounding_takes_below_nothing_is_nothing():
    """No share of a gap is told as less than that."""
    result = replace(explain_races([trial("engine", 0.5)]), unexplained=-0.01)
    assert list_causes(result, TITLES, TIME, METRIC)[-1] == "Not explained: 0 % of the gap."


def test_an_option_without_a_batch_size_is_none():
    """What single requests gain stands above."""
    static = Change(mode="static")
    assert write_suite_keys(static, OPENED, static) == write_suite_keys(static, OPENED)
