"""Where the decision depends on the machine: said in one line, and only where it does; and where all read it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from made_records import FP32, accuracy, fp32, int8, latency, speedup

from qbench.decide.decision import decide
from qbench.decide.hosts_differ import list_differences
from qbench.decide.json_text import as_json
from qbench.decide.judged import SuiteRules, judge
from qbench.record.schema import HostFacts, Record
from qbench.record.stored_run import MetricInfo
from qbench.report.ruling import rule
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

STATIC, QAT = "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1"
ONEDNN = "on oneDNN (PyTorch)"


def on_host(record: Record, host: str) -> Record:
    """The same case on another host, against that host's fp32."""
    case = replace(record.case, host=host)
    speed = record.speedup
    if speed is not None:
        speed = replace(speed, baseline=f"{speed.baseline}/{host}")
    return replace(record, case=case, host=HostFacts(kind="node"), speedup=speed)


def measured(case: str, value: float) -> Record:
    """An int8 case that is ``value`` times as fast as fp32."""
    return int8(case, latency=latency(0.0025 / value), speedup=speedup(value))


def say(records: list[Record]) -> list[str]:
    """The lines on some records."""
    rules = SuiteRules(gate=GateSpec(), decide=DecideSpec())
    return [each.text for each in list_differences(decide(judge(records, MetricInfo(name="top1"), rules)))]


def test_what_is_shipped_on_one_class_and_not_on_the_other_is_said() -> None:
    """One variant wins here, another one there."""
    here = [fp32(FP32), measured(STATIC, 2.5), measured(QAT, 1.5)]
    there = [on_host(each, "ray:b") for each in (fp32(FP32), measured(STATIC, 1.5), measured(QAT, 2.5))]
    (line,) = say([*here, *there])
    assert line == (
        f"net, 1 thread, batch 1: it depends on the machine: ship static int8 {ONEDNN} on native, "
        f"ship QAT int8 {ONEDNN} on ray:b."
    )


def test_what_is_open_on_one_host_is_named_as_it_is() -> None:
    """Both of two that may be the best; what has no variant to name by its verdict, and a host without an answer not
    at all."""
    open_rival = int8(QAT, latency=latency(0.0025 / 4), speedup=speedup(4), accuracy=accuracy(harmful=6, beneficial=1))
    here = [fp32(FP32), measured(STATIC, 2.5), open_rival]
    there = [on_host(each, "ray:b") for each in (fp32(FP32), measured(STATIC, 0.5))]
    nowhere = [on_host(fp32(FP32), "ray:c"), on_host(replace(int8(), latency=None, speedup=None), "ray:c")]
    (line,) = say([*here, *there, *nowhere])
    assert line == (
        f"net, 1 thread, batch 1: it depends on the machine: either static int8 {ONEDNN} or QAT int8 {ONEDNN} on "
        "native, keep fp32 on ray:b."
    )


def test_a_program_reads_what_to_ship_on_each_host() -> None:
    """By host; fp32 where it stays, and nothing where all hosts have one answer."""
    here = [fp32(FP32), measured(STATIC, 2.5)]
    there = [on_host(each, host) for host in ("ray:b", "ray:c") for each in (fp32(FP32), measured(STATIC, 0.5))]
    (entry,) = read([*here, *there])
    assert entry["setting"] == {"model": "net", "threads": 1, "batch_size": 1}
    assert entry["answers"] == [
        {"verdict": "ship", "ship": {"native": STATIC}},
        {"verdict": "keep fp32", "ship": {"ray:b": FP32, "ray:c": FP32}},
    ]
    assert read(here) == []


def read(records: list[Record]) -> list[dict[str, Any]]:
    """``by_host`` of decision.json."""
    return list(json.loads(as_json("demo", decide(judge(records, MetricInfo(name="top1"), SuiteRules()))))["by_host"])


def test_hosts_that_agree_are_not_mentioned() -> None:
    """Nor is a run of one host."""
    here = [fp32(FP32), measured(STATIC, 2.5), measured(QAT, 1.5)]
    assert say(here) == []
    assert say([*here, *(on_host(each, "ray:b") for each in here)]) == []


def test_nothing_is_decided_of_a_host_that_nobody_asked_for() -> None:
    """Cases that the plan adds on ``native``, for those of another host to be held against, have no answer; asked for
    alone they would."""
    here = [replace(each, reference=True) for each in (fp32(FP32), measured(STATIC, 2.5))]
    there = [on_host(each, "ray:b") for each in (fp32(FP32), measured(STATIC, 1.5))]
    rules = SuiteRules(gate=GateSpec(), decide=DecideSpec())

    def hosts(records: list[Record]) -> list[str]:
        judged = judge(records, MetricInfo(name="top1"), rules)
        decisions = decide(judged)
        assert set(rule(judged, decisions)) == {record.case.id for record in records}
        return [decision.setting.host for decision in decisions]

    assert hosts([*here, *there]) == ["ray:b"]
    assert hosts(here) == ["native"]
    another = [replace(each, case=replace(each.case, id=f"b{each.case.id}", model="b")) for each in (fp32(), int8())]
    assert hosts([*here, *another]) == ["native", "native"]
    assert hosts([*here[:1], replace(here[1], reference=False), *there]) == ["native", "ray:b"]
