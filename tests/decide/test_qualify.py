"""Rules of decide/qualify: every limit of the suite held against a case, by the gate's own tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import CASE, accuracy, failed, fp32, int8, latency, speedup

from qbench.decide.limit_text import as_data, describe
from qbench.decide.qualify import holds_all, may_be_shipped, qualify
from qbench.record.schema import Memory, Record, Roofline
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

TOP1 = MetricInfo(name="top1")


def outcomes(record: Record, gate: dict[str, Any] | None = None, **decide: Any) -> dict[str, str | None]:
    """The outcome of each limit held against the one int8 case of a run."""
    spec = GateSpec.model_validate(gate or {})
    checks = qualify([fp32(), record], metric=TOP1, gate=spec, decide=DecideSpec.model_validate(decide))
    return {check.limit: check.outcome for check in checks[CASE]}


@pytest.mark.parametrize(("harmful", "outcome"), [(0, "PASS"), (9, "INCONCLUSIVE"), (60, "FAIL")])
def test_accuracy_is_tested_as_the_gate_tests_it(harmful: int, outcome: str) -> None:
    """Paired non-inferiority by the margin: few flips pass, many fail, between them nothing is known."""
    assert outcomes(int8(accuracy=accuracy(harmful=harmful)))["accuracy"] == outcome


@pytest.mark.parametrize(
    ("gate", "decide", "limit", "outcome"),
    [
        ({"size": {"max_ratio": 0.26}}, {}, "size", "PASS"),
        ({"size": {"max_ratio": 0.25}}, {}, "size", "FAIL"),
        ({"latency": {"min_speedup": 2.0}}, {}, "speed-up", "PASS"),
        ({"latency": {"min_speedup": 2.5}}, {}, "speed-up", "INCONCLUSIVE"),
        ({"latency": {"min_speedup": 3.0}}, {}, "speed-up", "FAIL"),
        ({}, {"max_latency": "1.1 ms"}, "latency", "PASS"),
        ({}, {"max_latency": "1 ms"}, "latency", "INCONCLUSIVE"),
        ({}, {"max_latency": "0.9 ms"}, "latency", "FAIL"),
        ({}, {"max_memory": "100 MB"}, "memory", "PASS"),
        ({}, {"max_memory": "50 MB"}, "memory", "FAIL"),
    ],
)
def test_each_limit_rules_a_case_in_or_out(
    gate: dict[str, Any], decide: dict[str, Any], limit: str, outcome: str
) -> None:
    """Size and memory are exact; speed-up and latency hold where their whole interval does."""
    record = int8(memory=Memory(loaded_rss_bytes=60_000_000, peak_rss_bytes=80_000_000))
    assert outcomes(record, gate, **decide)[limit] == outcome


def test_a_promise_is_not_kept_by_a_noisy_machine() -> None:
    """As the gate says: a control that is off by half the distance to the promise proves neither side."""
    noisy = speedup(control=replace(speedup().control, low=0.8, high=1.3))
    assert outcomes(int8(speedup=noisy), {"latency": {"min_speedup": 2.0}})["speed-up"] == "INCONCLUSIVE"


def test_what_is_not_measured_yet_has_no_outcome_and_may_be_shipped() -> None:
    """Before measuring, a case that is built and evaluated is ruled out by what is known alone."""
    gate = {"latency": {"min_speedup": 2.0}, "size": {"max_ratio": 0.3}}
    open_case = replace(int8(), latency=None, speedup=None)
    checks = qualify(
        [fp32(), open_case], metric=TOP1, gate=GateSpec.model_validate(gate),
        decide=DecideSpec.model_validate({"max_latency": "1 s", "max_memory": "1 kB"}),
    )[CASE]  # fmt: skip
    assert {check.limit: check.outcome for check in checks} == {
        "int8": "PASS", "accuracy": "PASS", "size": "PASS", "speed-up": None, "latency": None, "memory": None,
    }  # fmt: skip
    assert may_be_shipped(checks)
    assert not holds_all(checks)


@pytest.mark.parametrize(("share", "ruled_out"), [(None, False), (1.05, False), (1.3, True)])
def test_what_is_faster_than_the_core_can_be_is_no_candidate(share: float | None, ruled_out: bool) -> None:
    """Beyond the measured peak of the core something was not measured right."""
    by_check = outcomes(int8(roofline=Roofline(macs=1000, peak_fraction=share), latency=latency(0.001)))
    assert ("FAIL" in by_check.values()) is ruled_out


def test_nothing_in_int8_is_no_candidate() -> None:
    """A variant without any multiply-accumulate in int8 may be fast and right, but is no int8."""
    assert outcomes(int8(coverage=0.0))["int8"] == "FAIL"


def test_without_a_readable_suite_accuracy_has_no_outcome() -> None:
    """The margin is in the suite: without it no variant is called good or bad."""
    checks = qualify([fp32(), int8()], metric=TOP1, gate=None, decide=DecideSpec())[CASE]
    accuracy_check = next(check for check in checks if check.limit == "accuracy")
    assert accuracy_check.outcome is None
    assert "cannot be read" in describe(accuracy_check)


def test_failed_and_fp32_cases_are_not_qualified() -> None:
    """Only int8 cases that came so far are held against the limits."""
    assert qualify([fp32(), failed()], metric=TOP1, gate=GateSpec(), decide=DecideSpec()) == {}


def test_a_dynamic_case_that_is_fp32_in_effect_is_no_candidate() -> None:
    """With next to nothing in int8 it fails the limit int8, with the key that says how much it takes."""
    record = int8("net/dynamic/x86/t1/b1", coverage=0.001)
    checks = qualify([fp32(), record], metric=TOP1, gate=GateSpec(), decide=DecideSpec())[record.case.id]
    check = next(check for check in checks if check.limit == "int8")
    assert not may_be_shipped(checks)
    assert describe(check) == (
        "practically fp32: 0.1 % of its multiply-accumulates in int8, below the 1 % of quantize.dynamic.min_coverage"
    )


@pytest.mark.parametrize(
    ("size_bytes", "gate", "decide", "limit", "text"),
    [
        (260_400, {"size": {"max_ratio": 0.26}}, {}, "size", "26.04 % of fp32's bytes, at most 26.00 %"),
        (260_000, {"size": {"max_ratio": 0.26}}, {}, "size", "26.0 % of fp32's bytes, at most 26.0 %"),
        (1, {}, {"max_memory": "79.99 MB"}, "memory", "80.00 MB resident, at most 79.99 MB"),
        (
            1,
            {},
            {"max_latency": "1.0004 ms"},
            "latency",
            "1.0000 ms a call, up to 1.01 ms by its limits, at most 1.0004 ms",
        ),
        (1, {"latency": {"min_speedup": 2.4751}}, {}, "speed-up", "2.5000 [2.4750, 2.5250] times as fast as its fp32"),
    ],
)
def test_a_value_and_its_limit_read_differently_unless_they_are_equal(
    size_bytes: int, gate: dict[str, Any], decide: dict[str, Any], limit: str, text: str
) -> None:
    """As many decimals as it takes, so that no FAIL stands beside two equal numbers."""
    record = int8(size_bytes=size_bytes, memory=Memory(loaded_rss_bytes=60_000_000, peak_rss_bytes=80_000_000))
    spec = GateSpec.model_validate(gate)
    checks = qualify([fp32(), record], metric=TOP1, gate=spec, decide=DecideSpec.model_validate(decide))
    (said,) = [describe(check) for check in checks[CASE] if check.limit == limit]
    assert said.startswith(text)


@pytest.mark.parametrize("higher", [True, False])
def test_a_loss_reads_like_its_margin_only_where_it_is_it(higher: bool) -> None:
    """0.504 lost of 0.5 has three places, and 0.5 as a gain has none to be told from: whichever way is better."""
    sign = 1 if higher else -1
    metric = MetricInfo(name="mae", percent=False, higher_is_better=higher)

    def text(change: float) -> str:
        delta = Interval(value=change, low=change - 0.2, high=change + 0.2)
        score = replace(accuracy(), metric="mae", value=2.51, flips=None, delta=delta)
        gate = GateSpec.model_validate({"accuracy": {"margin": 0.5}})
        checks = qualify([fp32(), int8(accuracy=score)], metric=metric, gate=gate, decide=DecideSpec())[CASE]
        return next(describe(check) for check in checks if check.limit == "accuracy")

    loss, gain = text(-0.504 * sign), text(0.504 * sign)
    assert loss.startswith("mae -0.504" if higher else "mae +0.504")
    assert gain.startswith("mae +0.50 " if higher else "mae -0.50 ")


OVERRIDES = [
    {"mode": "static", "size": {"max_ratio": 0.2}},
    {"mode": "static", "backend": "onednn", "accuracy": {"margin": 6.5}, "size": {"max_ratio": 0.3}},
]


def test_what_an_override_gives_for_a_case_is_its_limit_as_in_the_gate() -> None:
    """The one that names more of the case counts; the text names the key, and what no override gives stays."""
    gate = GateSpec.model_validate({"size": {"max_ratio": 0.25}, "overrides": OVERRIDES})
    lossy = accuracy(harmful=60)
    records = [fp32(), int8(accuracy=lossy), int8("net/static/x86/t1/b1"), int8("net/qat/onednn/t1/b1", accuracy=lossy)]
    checks = qualify(records, metric=TOP1, gate=gate, decide=DecideSpec())
    assert {case: [check.outcome for check in held] for case, held in checks.items()} == {
        "net/static/onednn/t1/b1": ["PASS", "INCONCLUSIVE", "PASS"],
        "net/static/x86/t1/b1": ["PASS", "PASS", "FAIL"],
        "net/qat/onednn/t1/b1": ["PASS", "FAIL", "FAIL"],
    }
    said = {check.limit: (check.key, as_data(check)["value"]) for check in checks[CASE]}
    assert said["accuracy"] == ("gate.overrides[1].accuracy.margin", 6.5)
    assert said["size"] == ("gate.overrides[1].size.max_ratio", 0.3)
    assert "(gate.overrides[1].size.max_ratio)" in describe(checks[CASE][-1])
    assert [check.key for check in checks["net/qat/onednn/t1/b1"]][-1] == "gate.size.max_ratio"


def test_a_limit_is_data_besides_its_text() -> None:
    """Its value and unit, what was held against it in that unit with the tested limits, and where it is written."""
    gate = GateSpec.model_validate({"latency": {"min_speedup": 2.0}})
    record = int8(accuracy=accuracy(harmful=2, beneficial=1), memory=Memory(loaded_rss_bytes=1, peak_rss_bytes=7))
    decide = DecideSpec.model_validate({"max_latency": "2 ms", "max_memory": "1 kB"})
    checks = qualify(
        [fp32(), record], metric=TOP1, gate=gate, decide=decide, place=lambda key: f"s.yaml:{len(key)}"
    )[CASE]  # fmt: skip
    named = {check.limit: as_data(check) for check in checks}
    assert {limit: (check["value"], check["unit"]) for limit, check in named.items()} == {
        "int8": (None, None),
        "accuracy": (1.0, "points"),
        "speed-up": (2.0, "times as fast as its fp32"),
        "latency": (0.002, "s"),
        "memory": (1000, "bytes"),
    }
    change = named["accuracy"]["measured"]
    assert (round(change["value"], 6), named["accuracy"]["level"]) == (-0.1, 0.9)
    assert named["accuracy"]["place"] == f"s.yaml:{len('gate.accuracy.margin')}"
    assert named["memory"]["measured"]["value"] == 7
    assert named["int8"]["place"] is None
