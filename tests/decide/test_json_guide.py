"""The guide explains each key of ``decision.json`` and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import FP32, accuracy, failed, fp32, int8, latency, skipped, speedup

import qbench
from qbench.decide.decision import decide
from qbench.decide.json_text import as_json
from qbench.decide.judged import SuiteRules, judge
from qbench.record.schema import HostFacts, Record
from qbench.record.stored_run import MetricInfo
from qbench.suite.gate import GateSpec

PAGE = Path(qbench.__file__).parent / "guide" / "decision.md"
STATIC, QAT = "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1"
BY_NAME = {"decisions.limits": "CASE", "by_host.answers.ship": "HOST"}  # mappings whose keys are ids, not words


def on_host(record: Record, host: str) -> Record:
    """The same case on another machine."""
    speed = None if record.speedup is None else replace(record.speedup, baseline=f"{record.speedup.baseline}/{host}")
    return replace(record, case=replace(record.case, host=host), host=HostFacts(kind="node"), speedup=speed)


OPEN = accuracy(harmful=6, beneficial=1)
SLOW = {"speedup": speedup(0.5), "latency": latency(0.005)}
RUNS: dict[str, list[Record]] = {
    "ship": [fp32(), int8(), int8(QAT, latency=latency(0.0025 / 1.5), speedup=speedup(1.5))],
    "either": [fp32(), int8(), int8(QAT, latency=latency(0.0025 / 4), speedup=speedup(4.0), accuracy=OPEN)],
    "keep fp32": [fp32(), int8(**SLOW)],
    "none qualifies": [fp32(), int8(accuracy=accuracy(harmful=60))],
    "undecided": [fp32(), int8(accuracy=accuracy(harmful=9, beneficial=2))],
    "no answer": [failed(FP32), skipped()],
    "incomplete": [fp32(), int8()],
    "two hosts": [fp32(), int8(), on_host(fp32(), "ray:b"), on_host(int8(**SLOW), "ray:b")],
}


def decided(records: list[Record], planned: tuple[str, ...] = ()) -> dict[str, Any]:
    """``decision.json`` of some records, by a suite with limits."""
    gate = GateSpec.model_validate({"size": {"max_ratio": 0.35}})
    rules = SuiteRules(gate=gate)
    data: dict[str, Any] = json.loads(
        as_json("demo", decide(judge(records, MetricInfo(name="top1"), rules, planned=planned)))
    )
    return data


def list_keys(value: Any, path: str = "") -> Iterator[str]:
    """The dotted keys of the ends of a value; of a list, those of its entries; nothing of what is null."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for entry in value:
            yield from list_keys(entry, path)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from list_keys(entry, ".".join(filter(None, (path, BY_NAME.get(path, key)))))
    else:
        yield path


def read_guide() -> set[str]:
    """The keys in the first column of the table below "For a program"."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## For a program")
    cells = re.findall(r"^\| (`[^|]*) \|", section.partition("\n## ")[0], flags=re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`([^`]+)`", cell)}


def test_the_guide_has_each_key_and_no_other() -> None:
    """Over all kinds of outcome, so that each key has held something."""
    written = set()
    for verdict, records in RUNS.items():
        planned = (STATIC, QAT) if verdict == "incomplete" else ()
        written |= {key.removeprefix("decisions.") for key in list_keys(decided(records, planned))}
    containers = {key for key in written if any(other.startswith(f"{key}.") for other in written)}
    assert read_guide() == written - containers


@pytest.mark.parametrize("verdict", [verdict for verdict in RUNS if verdict != "two hosts"])
def test_the_runs_are_of_all_kinds_of_outcome(verdict: str) -> None:
    """What the test above compares over is what it says, and the guide names each verdict."""
    planned = (STATIC, QAT) if verdict == "incomplete" else ()
    (decision,) = decided(RUNS[verdict], planned)["decisions"]
    assert decision["verdict"] == verdict
    assert f"`{verdict}`" in PAGE.read_text(encoding="utf-8")


def test_hosts_that_differ_are_among_them() -> None:
    """One answer for each."""
    assert len(decided(RUNS["two hosts"])["by_host"]) == 1
