"""Rules of qbench/report/method.py: the command that repeats a run, and what the noise check said."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from made_records import fp32, info, int8, speedup

from qbench.compare.speedup_doubt import UNSTEADY, find_unsteadiness
from qbench.decide.judged import SuiteRules, judge
from qbench.record.stored_run import MetricInfo, PlanInfo, QuickInfo
from qbench.report.method import command, explain_noise, list_facts, show
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec

QAT = "net/qat/onednn/t1/b1"


def test_the_command_repeats_the_run() -> None:
    """With its filter, its overrides and --quick, quoted for a shell."""
    suite = replace(info().suite, file="my suites/a.yaml", overrides=("measure.max_seconds=3",))
    plan = PlanInfo(notes=("--filter '*/static/*' keeps 3 of 24 cells", "another note"))
    described = replace(info(), suite=suite, plan=plan, quick=QuickInfo())
    words = ["--filter", "*/static/*", "--set", "measure.max_seconds=3", "--quick"]
    assert shlex.split(command(described)) == ["qbench", "run", "my suites/a.yaml", *words]
    assert command(info()) == "qbench run suites/demo.yaml"


def test_a_quiet_machine_is_called_so() -> None:
    """Every interval holds 1; the widest says what is not to be trusted, and what was not checked is counted."""
    wide = int8(QAT, speedup=speedup(control=Interval(value=1.0, low=0.95, high=1.04)))
    screened = int8("net/static/x86/t1/b1", speedup=speedup(control=None))
    told = explain_noise([fp32(), int8(), wide, screened])
    assert "beside 2 cases; the true answer is 1, and the 95 % intervals reach from 0.95 to 1.04" in told
    assert f"Quiet enough: each of them holds 1. Differences below 5 % are not to be trusted for {QAT}" in told
    assert told.endswith("1 case was measured too briefly for a noise check.")


def test_a_noisy_case_is_named() -> None:
    """Where 1 lies outside the interval, small differences may be noise."""
    off = int8(QAT, speedup=speedup(control=Interval(value=1.1, low=1.05, high=1.15)))
    assert f"Noisy: 1 lies outside for {QAT}," in explain_noise([int8(), off])


def test_without_a_check_that_is_said() -> None:
    """Neither quiet nor noisy: not known."""
    assert "no noise check" in explain_noise([fp32()])
    assert "No case has a noise check" in explain_noise([int8(speedup=speedup(control=None))])


def test_a_series_is_called_unsteady_by_the_rule_of_the_card() -> None:
    """What moved and what is too short to tell are two things, and both stand on the card in the same words; a
    screening is neither."""
    cases = {"static": False, "qat": None, "dynamic": True}
    records = [int8(f"net/{mode}/onednn/t1/b1", speedup=speedup(steady=steady)) for mode, steady in cases.items()]
    screened = int8("net/static/x86/t1/b1", speedup=speedup(steady=None, stopped="screened"))
    facts = dict(list_facts([*records, screened], judge([], None, None)))
    assert facts["not steady"] == "net/static/onednn/t1/b1"
    assert facts["too short to tell whether steady"] == "net/qat/onednn/t1/b1"
    assert find_unsteadiness(speedup(steady=False)) == UNSTEADY
    assert "too short to tell whether steady" not in dict(list_facts(records[:1], judge([], None, None)))


def test_a_least_score_is_named_as_one() -> None:
    """And not as the margin that it would be below fp32's own score."""
    gate = GateSpec.model_validate({"accuracy": {"metric": "sqnr", "at_least": 10}})
    metric = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB", perfect=100.0)
    judged = judge([fp32(), int8()], metric, SuiteRules(gate=gate))
    limit = dict(list_facts([fp32(), int8()], judged))["accuracy limit"]
    assert limit.startswith("sqnr at least 10 dB; ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "\N{EM DASH}"),
        (True, "yes"),
        (False, "no"),
        ((), "none"),
        ([1, "a"], "1, a"),
        (("b",), "b"),
        (1.5, "1.5"),
    ],
)
def test_a_stored_value_is_shown_as_a_person_writes_it(value: object, shown: str) -> None:
    """Lists as their items, nothing as a dash."""
    assert show(value) == shown


def test_all_that_the_noise_check_said_is_told() -> None:
    """The range, what is outside, the widest; several of each in the plural."""
    wide = int8(QAT, speedup=speedup(control=Interval(value=1.0, low=0.95, high=1.04)))
    assert explain_noise([fp32(), wide]) == (
        "fp32 was measured against a second copy of itself beside 1 case; the true answer is 1, and the 95 % intervals "
        "reach from 0.95 to 1.04. Quiet enough: each of them holds 1. Differences below 5 % are not to be trusted for "
        f"{QAT}, the noisiest."
    )
    off = [
        int8(f"net/static/b{n}/t1/b1", speedup=speedup(control=Interval(value=1.1, low=1.05, high=1.15)))
        for n in range(4)
    ]
    brief = [int8(f"net/qat/b{n}/t1/b1", speedup=speedup(control=None)) for n in range(2)]
    assert f"Noisy: 1 lies outside for {', '.join(each.case.id for each in off[:3])}, so small" in (
        explain_noise(off[:3])
    )
    told = explain_noise([*off, *brief])
    assert "Noisy: 1 lies outside for 4 cases, so small differences there may be noise. " in told
    assert "Differences below 15 % are not to be trusted for net/static/b0/t1/b1, the noisiest." in told
    assert told.endswith(" 2 cases were measured too briefly for a noise check.")
    edge = int8(QAT, speedup=speedup(control=Interval(value=1.0, low=1.0, high=1.02)))
    assert "Quiet enough" in explain_noise([edge])


def test_facts_that_all_cases_share_are_told_once() -> None:
    """Others with how many cases have each; ranges from the least to the most."""
    cases = {"a": 1, "b": 1, "c": 2}
    records = [int8(f"net/static/{name}/t{threads}/b1") for name, threads in cases.items()]
    facts = dict(list_facts(records, judge([], None, None)))
    assert (facts["threads"], facts["batch size"]) == ("1 (2 cases), 2 (1 case)", "1")
    assert (facts["calls kept per case"], facts["not steady"]) == ("400", "none")
    more = replace(records[0], latency=replace(records[0].latency, n=1400))
    facts = dict(list_facts([more, *records[1:]], judge([], None, None)))
    assert facts["calls kept per case"] == "400 to 1,400"
    bare = dict(list_facts([], judge([], None, None)))
    assert (bare["threads"], bare["calls kept per case"], bare["protocol"]) == ("—", "—", "—")
