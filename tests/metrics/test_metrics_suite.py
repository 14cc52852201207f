"""`gate: {accuracy: ...}`: which metric judges, and what loss it allows."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from qbench import registry
from qbench.errors import SuiteError
from qbench.metrics.spec import MetricSpec
from qbench.suite import json_schema, parse
from qbench.suite.accuracy import DEFAULTS

START = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def gate(text):
    """The accuracy gate of a suite with these keys."""
    return parse(f"{START}gate: {{accuracy: {text}}}\n").gate.accuracy


def problem(text):
    """The one problem of a suite with these keys, without file, line and column."""
    with pytest.raises(SuiteError) as caught:
        gate(text)
    (actual,) = caught.value.problems
    return f"{actual.where}: {actual.what}"


def choose(suite, *, labelled=True):
    """The metric that scores a run of this suite."""
    return suite.gate.accuracy.choose_metric(base=suite.base, labelled=labelled)


def test_the_data_decides_where_the_suite_names_no_metric():
    """top1 with labels; without, the agreement with fp32."""
    suite = parse(f"{START}gate: {{accuracy: {{margin: 2}}}}\n")
    assert choose(suite, labelled=True) == MetricSpec(name="top1")
    assert choose(suite, labelled=False) == MetricSpec(name="top1_agreement")


def test_a_metric_that_the_suite_names_stays():
    """Asked for by name, top1 without labels is an error of the data later on, never another metric."""
    suite = parse(f"{START}gate: {{accuracy: {{metric: top1}}}}\n")
    assert choose(suite, labelled=False) == MetricSpec(name="top1")


@pytest.mark.parametrize("name", [*registry.names("metric"), "top3", "recall:0", "f1:12", "precision:7"])
def test_every_metric_can_be_named_and_loads(name):
    """Each registered one, and any k and class."""
    score = gate(f"{{metric: '{name}', margin: 0.5}}").metric
    assert (score, registry.load("metric", score).name) == (name, name)


@pytest.mark.parametrize("name", DEFAULTS)
def test_both_defaults_are_in_percent(name):
    """The default margin of 1 is percentage points, so what judges by default must be in percent."""
    assert registry.load("metric", name).percent
    assert gate("{}").margin == 1.0


@pytest.mark.parametrize(
    ("text", "margin"),
    [("{metric: top1_agreement, at_least: 99}", 1.0), ("{metric: sqnr, at_least: 30}", 70.0),
     ("{metric: cosine, at_least: 0.75}", 0.25), ("{metric: sqnr, at_least: 100}", 0.0)],
)  # fmt: skip
def test_at_least_is_a_margin_below_what_fp32_has(text, margin):
    """fp32 scores 100 %, 1 or 100 dB against itself, so a smallest score is a largest loss."""
    assert gate(text).margin == margin


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{metric: mae}", "gate.accuracy.margin: mae is not in percent; write the largest loss, in its own unit"),
        (
            "{metric: {python: 'a.py:b'}}",
            "gate.accuracy.margin: a.py:b is not in percent; write the largest loss, in its own unit (or "
            "`percent: true` beside python)",
        ),
        (
            "{metric: top1, at_least: 99}",
            "gate.accuracy.at_least: fp32 has no known score of top1, so write a margin in place of this",
        ),
        (
            "{metric: kl, at_least: 0.1, margin: 1}",
            "gate.accuracy.at_least: fp32 has no known score of kl, so write a margin in place of this",
        ),
        ("{metric: cosine, at_least: 99}", "gate.accuracy.at_least: cosine is at most 1, got 99.0"),
        (
            "{metric: sqnr, at_least: 30, margin: 30}",
            "gate.accuracy.at_least: margin and at_least say the same in two ways; remove one",
        ),
        ("{metric: sqnr, at_least: x}", "gate.accuracy.at_least: expected a number, got 'x'"),
        (
            "{metric: {pyton: 'a.py:b'}}",
            "gate.accuracy.metric.pyton: unknown key 'pyton'; did you mean 'python'? available: against, "
            "higher_is_better, percent, python, unit",
        ),
        (
            "{metric: {python: a.py}}",
            "gate.accuracy.metric.python: expected file.py:function, got 'a.py'; write the function's name behind a "
            "colon",
        ),
        (
            "{metric: {python: 'a.py:b', against: fp16}}",
            "gate.accuracy.metric.against: expected 'labels' or 'fp32', got 'fp16'",
        ),
        ("{metric: {python: 'a.py:b', percent: 1}}", "gate.accuracy.metric.percent: expected true or false, got 1"),
        (
            "{metric: [top1]}",
            "gate.accuracy.metric: expected the name of a metric, or {python: file.py:function}, got a list",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_key(text, said):
    """A loss in an unknown unit, a smallest score that means nothing, a slip of the pen: each in one line."""
    assert problem(text) == said


def test_a_suite_with_a_score_of_its_own_travels_between_processes():
    """Pickled and back it is the same, and still knows where the function lies."""
    suite = parse(
        f"{START}gate: {{accuracy: {{metric: {{python: 'a/b.py:c', unit: mV}}, margin: 3}}}}\n", file="/x/s.yaml"
    )
    again = pickle.loads(pickle.dumps(suite))
    assert again == suite
    spec = choose(again)
    assert spec == choose(suite) == pickle.loads(pickle.dumps(spec))
    assert (spec.name, spec.function.file, spec.function.attribute) == ("b.py:c", Path("/x/a/b.py"), "c")


def test_editors_know_the_names_and_the_keys_of_an_own_score():
    """The schema completes the names and takes the mapping."""
    text = json.dumps(json_schema()["$defs"]["AccuracyGate"]["properties"]["metric"])
    assert all(word in text for word in ("top1_agreement", "sqnr", "python", "higher_is_better"))
