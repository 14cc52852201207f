"""Rules of qbench/suite/gate.py: which values hold for a case, and where they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_records import CASE, case_key

from qbench import suite
from qbench.errors import SuiteError
from qbench.suite import GateSpec, Suite
from qbench.suite.accuracy import LEAST_OF_ANY, OF_ANY_OUTPUTS
from qbench.suite.gate import resolve_overrides

HEAD = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
OVERRIDES = """gate:
  latency: {max_regression: 5%}
  overrides:
    - {mode: static, backend: onednn, latency: {max_regression: 20%}, inconclusive: fail}
    - {mode: static, latency: {max_regression: 10%, min_speedup: 2}}
    - {backend: onednn, size: {max_growth: null}, accuracy: {margin: 2.5}}
"""


def policy(rules: str) -> Suite:
    """A suite with those rules."""
    return suite.parse(HEAD + rules, file="suites/demo.yaml")


def resolve(rules: Suite, case: str) -> tuple[GateSpec, Callable[[str], str]]:
    """The rules for a case, and the file:line of each of their keys."""
    resolved, keys = resolve_overrides(rules.gate, case_key(case))
    return resolved, lambda key: rules.place(keys.get(key, key))


def test_the_override_that_names_more_of_a_case_counts() -> None:
    """Mode and backend go before mode alone, whichever stands first; each key is found where it is written."""
    rules = policy(OVERRIDES)
    resolved, place = resolve(rules, CASE)
    assert (resolved.latency.max_regression, resolved.latency.min_speedup) == (0.2, 2)
    assert (resolved.size.max_growth, resolved.accuracy.margin) == (None, 2.5)
    assert resolved.inconclusive == "fail"
    lines = {key: int(place(key).rpartition(":")[2]) for key in ("gate.latency.max_regression", "gate.accuracy.margin")}
    assert lines == {"gate.latency.max_regression": 8, "gate.accuracy.margin": 10}


@pytest.mark.parametrize(
    ("metric", "accuracy", "judged"),
    [
        (None, "", ("top1", 1.0, None)),
        ("top1", "", ("top1", 1.0, None)),
        ("top1_agreement", "", ("top1", 1.0, None)),
        ("sqnr", "", ("sqnr", 80.0, 20.0)),
        ("sqnr", "  accuracy: {metric: sqnr, at_least: 30}\n", ("sqnr", 70.0, 30.0)),
    ],
)
def test_outputs_that_are_no_classes_have_a_least_score_where_the_suite_says_nothing(
    metric: str | None, accuracy: str, judged: tuple[str, float, float | None]
) -> None:
    """What the suite writes stays, and so does every other rule, as written or not."""
    gate = policy(f"gate:\n  size: {{max_growth: 2%}}\n{accuracy}").gate
    settled = gate.settle_metric(metric)
    assert (settled.accuracy.metric, settled.accuracy.margin, settled.accuracy.at_least) == judged
    assert [*settled.given()] == [*gate.given()]
    assert (settled.size, settled.latency) == (gate.size, gate.latency)


def test_a_case_that_no_override_names_keeps_the_rules_for_all() -> None:
    """dynamic on another backend is none of those."""
    rules = policy(OVERRIDES)
    resolved, place = resolve(rules, "net/dynamic/x86/t1/b1")
    assert resolved == rules.gate
    assert place("gate.latency.max_regression") == "suites/demo.yaml:6"


def test_of_two_that_name_as_much_the_later_one_counts() -> None:
    """Backend and mode each name one key of a case."""
    rules = policy(
        "gate:\n  overrides:\n"
        "    - {mode: static, size: {max_growth: 2%}}\n    - {backend: onednn, size: {max_growth: 3%}}\n"
    )
    assert resolve(rules, CASE)[0].size.max_growth == 0.03


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("{latency: {max_regression: 5%}}", "expected at least one of model, mode"),
        ("{mode: static}", "expected at least one rule"),
        ("{mode: static, accuracy: {metric: f1}}", "unknown key 'metric'"),
        (
            "{mode: fp32, size: {max_growth: 1%}}",
            "expected 'bf16', 'fp16', 'weight_only', 'dynamic', 'static' or 'qat'",
        ),
    ],
)
def test_an_override_says_for_what_and_which_rule(override: str, message: str) -> None:
    """One that could never change anything is a slip of the pen."""
    with pytest.raises(SuiteError, match=message):
        policy(f"gate:\n  overrides: [{override}]\n")


def test_rules_of_accuracy_follow_the_metric_only_where_nobody_wrote_any() -> None:
    """Outputs that no metric knows are held to a least score; as long as the metric is not known, and for any other,
    the rules are the suite's own."""
    plain, written = GateSpec(), GateSpec.model_validate({"accuracy": {"margin": 2.0}})
    settled = plain.settle_metric(OF_ANY_OUTPUTS)
    assert (settled.accuracy.metric, settled.accuracy.at_least) == (OF_ANY_OUTPUTS, LEAST_OF_ANY)
    assert not settled.has_rules
    for gate, metric in ((plain, None), (plain, "top1"), (written, OF_ANY_OUTPUTS)):
        assert gate.settle_metric(metric) is gate


@pytest.mark.parametrize(
    ("rules", "has_rules"),
    [
        ("", False),
        ("gate: {latency: {max_regression: null}}\n", False),
        ("gate: {latency: {max_regression: 5%}}\n", True),
        ("gate: {overrides: [{mode: static, size: {max_growth: 2%}}]}\n", True),
        ("gate: {overrides: [{mode: static, size: {max_growth: null}}]}\n", False),
        ("gate: {overrides: [{mode: static, inconclusive: fail}]}\n", False),
    ],
)
def test_a_gate_has_rules_where_one_is_written(rules: str, has_rules: bool) -> None:
    """For every case or for some; a rule that is switched off is none."""
    assert policy(rules).gate.has_rules == has_rules


def test_an_override_for_other_cases_hides_none_that_stands_behind_it() -> None:
    """Nor does a margin that is left open hide what else one gives."""
    rules = policy(
        "gate:\n  overrides:\n    - {mode: dynamic, size: {max_growth: 2%}}\n"
        "    - {mode: static, accuracy: {margin: null, max_regression: 3}, size: {max_growth: 4%}}\n"
    )
    resolved, place = resolve(rules, CASE)
    assert (resolved.accuracy.margin, resolved.accuracy.max_regression, resolved.size.max_growth) == (1.0, 3.0, 0.04)
    assert place("gate.accuracy.max_regression").endswith(":8")
    assert resolved.inconclusive == "hold"
