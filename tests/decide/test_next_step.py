"""Rules of decide/next_step: each answer ends with the command that would decide what is open, or says nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import accuracy, failed, fp32, int8, latency, list_outputs, skipped, speedup

from qbench.decide import headline, next_step
from qbench.decide.decider import Decider
from qbench.decide.decision import decide
from qbench.decide.judged import Source, SuiteRules, judge
from qbench.record.schema import HostFacts, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

X86 = "net/static/x86/t1/b1"
RUN = "`qbench run s.yaml"


def step_of(*records: Record, **readers: Any) -> str:
    """The next step of the one decision on some records."""
    source = Source(suite="s.yaml", run="s")
    (decision,) = decide(judge(records, MetricInfo(name="top1"), SuiteRules(), source=source, **readers))
    return decision.next_step


def timed(value: float, half: float, case: str = "net/static/onednn/t1/b1", **changes: Any) -> Record:
    """An int8 case so many times as fast as fp32, whose three processes took 4 s each."""
    ratio = replace(speedup(value, half), measured_seconds=12.0)
    return int8(case, latency=latency(0.0025 / value), speedup=ratio, **changes)


@pytest.mark.parametrize(
    ("records", "step"),
    [
        ([fp32(), int8()], "Nothing is open."),
        (
            [fp32(), int8(accuracy=accuracy(harmful=9, beneficial=2))],
            f"About 17,000 examples in data.evaluate would decide it: add them, then {RUN}`.",
        ),
        ([fp32(), int8(accuracy=None)], "`qbench explain s net/static/onednn/t1/b1` says what is missing."),
        (
            [
                fp32(),
                int8(accuracy=accuracy(harmful=90)),
                int8(X86, latency=latency(0.002), accuracy=accuracy(harmful=90)),
            ],
            "`qbench explain s net/static/onednn/t1/b1` says why the fastest is ruled out, and what to try.",
        ),
        (
            [fp32(), int8(latency=latency(0.005), speedup=speedup(0.5))],
            "Nothing is open; `qbench explain s net/static/onednn/t1/b1` says why int8 gains no more.",
        ),
        ([fp32(), failed()], f"Mend what the failed and skipped cases name, then {RUN}`."),
        ([fp32()], f"Mend the suite's matrix: nothing but fp32 is in it, then {RUN}`."),
        ([skipped()], f"Mend what the failed and skipped cases name, then {RUN}`."),
        (
            [fp32(), replace(int8(), latency=None, speedup=None, host=HostFacts(kind="predicted"))],
            "`qbench portability s` compares what this host answers.",
        ),
        (
            [fp32(), int8(accuracy=replace(accuracy(), outputs=list_outputs("boxes")))],
            f"Judge the other outputs (`output:` beside the model's name), then {RUN}`.",
        ),
        (
            [fp32(), int8(speedup=speedup(control=Interval(value=1.0, low=0.6, high=1.2)))],
            f"{RUN}` again when the machine is quiet; `qbench doctor` shows its noise.",
        ),
    ],
)
def test_the_step_of_each_answer(records: list[Record], step: str) -> None:
    """By what is open: examples, a limit, what failed, an output that nobody judged, noise."""
    assert step_of(*records) == step


@pytest.mark.parametrize("mode", ["bf16", "weight_only"])
def test_only_int8_is_explained(mode: str) -> None:
    """What else keeps fp32 has no causes that could be tried."""
    assert step_of(fp32(), timed(0.5, 0.01, f"net/{mode}/onednn/t1/b1")) == "Nothing is open."
    assert "qbench explain" in step_of(fp32(), timed(0.5, 0.01))


def test_a_small_gain_has_its_processes_and_seconds() -> None:
    """As many as would show it, at what each process took in this run; at least the seconds that a run has anyway."""
    step = step_of(fp32(), timed(1.02, 0.03))
    assert step.startswith(f"{RUN} --set measure.processes=")
    processes, seconds = (int(part.split("=")[1].split("`")[0]) for part in step.split(" ") if "=" in part)
    assert processes > 3
    assert seconds >= 4 * processes
    assert "would decide it (up to " in step


def test_a_cut_run_goes_on() -> None:
    """Whatever leads so far."""
    assert step_of(fp32(), int8(), planned=(X86,)) == "`qbench run --resume s` measures what is missing."


def test_the_rival_whose_accuracy_is_open_needs_the_examples() -> None:
    """Not the one that is named first."""
    rival = timed(4.0, 0.01, X86, accuracy=accuracy(harmful=6, beneficial=1))
    step = step_of(fp32(), int8(), rival)
    assert "examples in data.evaluate would decide it" in step


@pytest.mark.parametrize(
    ("decider", "step"),
    [
        (
            Decider(kind="examples", needed=4_000, there=450),
            f"About 4,000 examples in data.evaluate would decide it: add them, then {RUN}`.",
        ),
        (
            Decider(kind="examples", needed=27_000, there=450),
            "Nothing is open that is worth it (about 27,000 examples would decide, there are 450): take the former.",
        ),
        (Decider(kind="same file"), "Nothing is open: they are the same file, byte for byte, so take either."),
        (
            Decider(kind="tied"),
            "Nothing is open: they tie, and nothing that decide.prefer names tells them apart, so take either.",
        ),
        (
            Decider(kind="tie's edge"),
            "Nothing is open that more processes would decide: they are about a tie apart; take the former.",
        ),
        (Decider(kind="apart"), f"{RUN}` anew measures them side by side."),
        (Decider(kind="noise"), f"{RUN}` again when the machine is quiet; `qbench doctor` shows its noise."),
    ],
)
def test_the_step_between_two(monkeypatch: pytest.MonkeyPatch, decider: Decider, step: str) -> None:
    """What would tell them apart, or that it is not worth it, and which to take then."""
    for module in (next_step, headline):
        monkeypatch.setattr(module, "find_decider", lambda *_: decider)
    monkeypatch.setattr(next_step, "_measure_longer", lambda *_: None)
    likely = timed(2.6, 0.4, X86)
    (decision,) = decide(
        judge(
            [fp32(), timed(2.5, 0.4), likely],
            MetricInfo(name="top1"),
            SuiteRules(),
            source=Source(suite="s.yaml", run="s"),
        )
    )
    assert decision.verdict == "either"
    assert decision.next_step == step


def test_a_limit_on_time_that_is_open_asks_for_four_times_the_processes() -> None:
    """Limits are half as wide then; the seconds are those that its processes took here."""
    rules = SuiteRules(gate=GateSpec.model_validate({"latency": {"min_speedup": 2.0}}))
    source = Source(suite="s.yaml", run="s")
    (decision,) = decide(judge([fp32(), timed(2.02, 0.2)], MetricInfo(name="top1"), rules, source=source))
    assert decision.verdict == "undecided"
    keys = "--set measure.processes=12 --set measure.max_seconds=60"
    assert decision.next_step == f"{RUN} {keys}` about halves its limits."


@pytest.mark.parametrize(
    ("measured", "processes", "seconds"),
    [(12.0, 3, 30), (12.0, 6, 30), (12.0, 7, 40), (12.0, 25, 120), (None, 3, 40), (0.0, 10, 120), (3.0, 1, 30)],
)
def test_the_seconds_of_a_case_are_those_that_its_processes_took(
    measured: float | None, processes: int, seconds: int
) -> None:
    """A fifth more, in tens, at least what a run takes anyway; ten for each process where that is not known."""
    record = int8(speedup=replace(speedup(processes=3), measured_seconds=measured))
    assert next_step._expect_seconds(record, processes) == seconds
    assert next_step._expect_seconds(int8(speedup=None), 10) == 120


def test_a_latency_that_is_open_without_a_speed_up_asks_for_four_processes() -> None:
    """As many as four times one."""
    rules = SuiteRules(decide=DecideSpec.model_validate({"max_latency": "1 ms"}))
    judged = judge([int8(speedup=None)], MetricInfo(name="top1"), rules, source=Source(suite="s.yaml"))
    (decision,) = decide(judged)
    assert decision.verdict == "undecided"
    assert decision.next_step.startswith(f"{RUN} --set measure.processes=4 --set measure.max_seconds=50`")
