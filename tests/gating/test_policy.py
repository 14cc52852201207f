"""Rules of qbench/gating/policy.py: which values hold for a case, and where they are written."""

from __future__ import annotations

import pytest
from made_records import CASE, case_key

from qbench import suite
from qbench.errors import SuiteError, UsageError
from qbench.gating.policy import require_rules, resolve
from qbench.suite import Suite

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


def test_the_override_that_names_more_of_a_case_counts() -> None:
    """Mode and backend go before mode alone, whichever stands first; each key is found where it is written."""
    rules = policy(OVERRIDES)
    resolved, place = resolve(rules.gate, case_key(CASE), rules.place)
    assert (resolved.latency.max_regression, resolved.latency.min_speedup) == (0.2, 2)
    assert (resolved.size.max_growth, resolved.accuracy.margin) == (None, 2.5)
    assert resolved.inconclusive == "fail"
    lines = {key: int(place(key).rpartition(":")[2]) for key in ("gate.latency.max_regression", "gate.accuracy.margin")}
    assert lines == {"gate.latency.max_regression": 8, "gate.accuracy.margin": 10}


def test_a_case_that_no_override_names_keeps_the_rules_for_all() -> None:
    """dynamic on another backend is none of those."""
    rules = policy(OVERRIDES)
    resolved, place = resolve(rules.gate, case_key("net/dynamic/x86/t1/b1"), rules.place)
    assert resolved == rules.gate
    assert place("gate.latency.max_regression") == "suites/demo.yaml:6"


def test_of_two_that_name_as_much_the_later_one_counts() -> None:
    """Backend and mode each name one key of a case."""
    rules = policy(
        "gate:\n  overrides:\n"
        "    - {mode: static, size: {max_growth: 2%}}\n    - {backend: onednn, size: {max_growth: 3%}}\n"
    )
    assert resolve(rules.gate, case_key(CASE), rules.place)[0].size.max_growth == 0.03


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "the suite has no gate section"),
        ("gate: {}\n", "the gate has no rule"),
        ("gate: {latency: {}}\n", "the gate has no rule"),
        ("gate: {inconclusive: fail}\n", "the gate has no rule"),
        ("gate: {latency: {max_regression: null}}\n", "the gate has no rule"),
    ],
)
def test_a_suite_without_a_rule_is_told_what_to_write(rules: str, message: str) -> None:
    """Otherwise the gate would judge by what qbench thinks of, and nobody would know."""
    spec = policy(rules)
    with pytest.raises(UsageError, match=message) as raised:
        require_rules(spec.gate, spec.place("gate"), written="gate" in spec.model_fields_set)
    assert "max_regression: 5%" in str(raised.value)


def test_what_to_write_fits_what_the_run_was_judged_by() -> None:
    """A margin in points, pasted beside outputs that are no classes, would make of the run one that top1 judges."""
    spec = policy("")
    with pytest.raises(UsageError) as raised:
        require_rules(spec.gate, spec.place("gate"), written=False, metric="sqnr")
    pasted = policy(str(raised.value).partition("write, for example:\n")[2] + "\n").gate
    assert (pasted.accuracy.metric, pasted.accuracy.at_least) == ("sqnr", 20)
    assert pasted.has_rules


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("{latency: {max_regression: 5%}}", "expected at least one of model, mode"),
        ("{mode: static}", "expected at least one rule"),
        ("{mode: static, accuracy: {metric: f1}}", "unknown key 'metric'"),
        ("{mode: fp32, size: {max_growth: 1%}}", "expected 'dynamic', 'static' or 'qat'"),
    ],
)
def test_an_override_says_for_what_and_which_rule(override: str, message: str) -> None:
    """One that could never change anything is a slip of the pen."""
    with pytest.raises(SuiteError, match=message):
        policy(f"gate:\n  overrides: [{override}]\n")
