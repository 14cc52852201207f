"""Rules of qbench/gating/gate.py, of its rules and text; every outcome has a golden file."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from made_records import (
    CASE,
    FP32,
    QUIET,
    RUN_V1,
    accuracy,
    answers,
    failed,
    fp32,
    info,
    int8,
    same_as_golden,
    skipped,
    speedup,
)

from qbench import suite
from qbench.errors import NotComparable, UsageError
from qbench.gating import gate
from qbench.gating import text as gate_text
from qbench.gating.baseline import Baseline, write_baseline
from qbench.gating.exit_codes import OUTCOMES, find_exit_code
from qbench.gating.rules import NEW, correct_for_rules, judge_records
from qbench.gating.sequential_test import NotRun, ProcessPair, Rerun, analyze, analyze_promise, analyze_start
from qbench.gating.verdict import LiveTimes, Verdict
from qbench.record.schema import ColdStart, Memory, Record, Roofline
from qbench.record.stored_run import PlanInfo, QuickInfo, RunInfo, SkipInfo, read_run
from qbench.stats.interval_type import Interval
from qbench.suite import Suite

HEAD = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
ALL_RULES = """gate:
  latency:
    max_regression: 5%
    min_speedup: 1.5
  accuracy:
    metric: top1
    margin: 1.0
  size:
    max_ratio: 0.35
"""
ABSOLUTE = "gate:\n  accuracy: {margin: 1.0}\n  size: {max_ratio: 0.35}\n"
START = "gate:\n  cold_start: {max_regression: 50%}\n  memory: {max_regression: 10%}\n"
REGRESSION = "gate:\n  latency: {max_regression: 5%}\n"
PROMISE = "gate:\n  latency: {min_speedup: 1.5}\n"
NOISY = Interval(value=1.01, low=0.96, high=1.06)


def policy(rules: str) -> Suite:
    """A suite with those rules."""
    return suite.parse(HEAD + rules, file="suites/demo.yaml")


@dataclass(frozen=True)
class Situation:
    """A run, what it is held against, and the outcome that must come of it."""

    outcome: str
    records: Sequence[Record]
    rules: str = ALL_RULES
    baseline: Sequence[Record] | None = None
    run: RunInfo = field(default_factory=info)
    held: RunInfo = field(default_factory=info)
    reruns: dict[str, Rerun | NotRun] = field(default_factory=dict)
    keeps: bool = True  # the baseline keeps what each example said
    first: int = 0  # the name of the run's first example; the baseline's is 0
    same: bool = False  # the artifacts are the baseline's, byte by byte

    def gated(self, ref: str | None = None) -> gate.Gated:
        """The verdicts; ``ref``: the baseline is that commit."""
        rules = policy(self.rules)
        stored = {record.case.id: scores for record in self.baseline or () if (scores := answers(record)) is not None}
        baseline = None
        if self.baseline is not None:
            held = tuple(self.baseline) if self.same else tuple(map(as_other_file, self.baseline))
            baseline = Baseline(info=self.held, records=held, examples=stored if self.keeps else {})
        verdicts = judge_records(
            self.records,
            self.run,
            rules.gate,
            place=rules.place,
            baseline=baseline,
            examples=lambda record: answers(record, self.first),
            reruns=self.reruns,
            ref=ref,
        )
        file = None if baseline is None else Path("reports/baselines/demo.jsonl")
        return gate.Gated(
            suite="demo", folder=Path("reports/demo/1"), baseline=file, verdicts=verdicts, reruns=self.reruns
        )


def as_other_file(record: Record) -> Record:
    """The record with another artifact of the same size."""
    if record.artifact is None:
        return record
    return replace(record, artifact=replace(record.artifact, sha256="b" * 64))


def slow(**changes: Any) -> Record:
    """The int8 case at 10 % less speed-up than the baseline's."""
    return int8(speedup=speedup(2.5 / 1.1, **changes))


def rerun(
    change: float,
    count: int = 6,
    *,
    control: float = 0.0,
    speedup: float = 2.5,
    start: float = 1.0,
    milliseconds: float = 1.0,
    own_versions: bool = False,
) -> dict[str, Rerun | NotRun]:
    """The int8 case run again in that many process pairs: so much slower, its control so far off; so much faster than
    fp32, its start so many times as long."""
    wobble = [0.01 if number % 2 else -0.01 for number in range(count)]
    pairs = tuple(
        ProcessPair(ratio=math.log1p(change) + offset / 2, control=math.log1p(control) + offset, drift=0.001)
        for offset in wobble
    )
    # Half the control is taken back, so the ratios get a spread of their own.
    pairs = tuple(
        replace(
            pair,
            ratio=pair.ratio + 0.004 * (n % 3 - 1),
            speedup=math.log(speedup) + 0.004 * (n % 3 - 1),
            start=math.log(start) + 0.02 * (n % 3 - 1),
            seconds=(milliseconds / 1e3 / (1 + change), milliseconds / 1e3, speedup * milliseconds / 1e3),
        )
        for n, pair in enumerate(pairs)
    )
    case_rerun = Rerun(
        pairs=pairs,
        analysis=analyze(pairs, 0.05),
        promise=analyze_promise(pairs, 1.5),
        start=analyze_start(pairs, 0.5),
        spent=5.0 * count,
        own_versions=own_versions,
    )
    return {CASE: case_rerun}


def cut(count: int) -> dict[str, Rerun | NotRun]:
    """The time was over after so many process pairs, which point at the tolerance."""
    (full,) = rerun(0.05, 3).values()
    assert isinstance(full, Rerun)
    analysis = full.analysis if count == 3 else None
    return {CASE: Rerun(pairs=full.pairs[:count], analysis=analysis, cut=True, spent=5.0 * count)}


def started(megabytes: int = 200) -> Record:
    """The int8 case with a cold start of 30 ms and that peak of its resident set."""
    start = ColdStart(
        load_seconds=0.02, first_call_seconds=0.01, processes=6,
        load_low=0.018, load_high=0.022, first_call_low=0.009, first_call_high=0.011,
    )  # fmt: skip
    return int8(cold_start=start, memory=Memory(loaded_rss_bytes=1, peak_rss_bytes=megabytes * 10**6))


def died() -> dict[str, Rerun | NotRun]:
    """A process of the int8 case was killed in the second process pair."""
    pair = ProcessPair(ratio=0.0, control=0.0, drift=0.0)
    return {CASE: Rerun(pairs=(pair,), analysis=None, reason="the process was ended by SIGSEGV")}


GONE: dict[str, Rerun | NotRun] = {CASE: NotRun(reason="the baseline's artifact is gone")}
OTHER_TORCH = info(versions={"torch": "2.12.0", "onnxruntime": None})
NEW_TORCH = info(versions={"torch": "2.13.0", "onnxruntime": None})
OTHER_ORT = info(versions={"torch": "2.13.0", "onnxruntime": "1.20.0"})
NEW_ORT = info(versions={"torch": "2.13.0", "onnxruntime": "1.32.0"})
OTHER_MACHINE = info(environment={"cpu": "CPU B"})
GOOD = [fp32(), int8()]


def other(**changes: Any) -> Record:
    """The int8 case as another artifact."""
    record = int8(**changes)
    assert record.artifact is not None
    return replace(record, artifact=replace(record.artifact, sha256="1" * 64))


OWN_MARGIN = "gate:\n  latency: {max_regression: 5%}\n  accuracy: {margin: 1.0, max_regression: 5.0}\n"
# fp32 and int8 lose 3 points each: against its own fp32 the int8 is as good as before.
BOTH_WORSE = [fp32(), other(accuracy=accuracy(harmful=1, beneficial=1, right=940))]
SITUATIONS = {
    "pass_all_rules": Situation("PASS", GOOD, baseline=GOOD),
    "pass_absolute_rules_without_baseline": Situation("PASS", GOOD, ABSOLUTE),
    "fail_latency": Situation("FAIL", [fp32(), slow()], REGRESSION, GOOD),
    "pass_live": Situation("PASS", GOOD, REGRESSION, GOOD, reruns=rerun(0.0)),
    "pass_live_on_another_cpu": Situation("PASS", GOOD, REGRESSION, GOOD, held=OTHER_MACHINE, reruns=rerun(0.0)),
    "pass_live_without_speedup": Situation("PASS", [fp32(), int8(speedup=None)], REGRESSION, GOOD, reruns=rerun(0.0)),
    "pass_live_new_torch": Situation(
        "PASS", GOOD, REGRESSION, GOOD, run=NEW_TORCH, held=OTHER_TORCH, reruns=rerun(0.0)
    ),
    "pass_stored_instead": Situation("PASS", GOOD, REGRESSION, GOOD, reruns=GONE),
    "fail_live": Situation("FAIL", GOOD, REGRESSION, GOOD, reruns=rerun(0.1)),
    "invalid_live_died": Situation("INVALID", GOOD, REGRESSION, GOOD, reruns=died()),
    "inconclusive_live": Situation("INCONCLUSIVE", GOOD, REGRESSION, GOOD, reruns=rerun(0.05, 12)),
    "inconclusive_live_control": Situation(
        "INCONCLUSIVE", GOOD, REGRESSION, GOOD, reruns=rerun(0.1, 12, control=0.04)
    ),
    "fail_regression_of_both": Situation("FAIL", BOTH_WORSE, ABSOLUTE, GOOD),
    "inconclusive_regression": Situation(
        "INCONCLUSIVE", [fp32(), other(accuracy=accuracy(harmful=1, beneficial=1, right=962))], ABSOLUTE, GOOD
    ),
    "pass_regression_of_both_own_margin": Situation("PASS", BOTH_WORSE, OWN_MARGIN, GOOD),
    "pass_regression": Situation(
        "PASS", [fp32(), other(accuracy=accuracy(harmful=2, beneficial=1))], ABSOLUTE, GOOD
    ),
    "pass_regression_shared_examples": Situation("PASS", [fp32(), other()], ABSOLUTE, GOOD, first=100),
    "invalid_regression_other_examples": Situation("INVALID", [fp32(), other()], ABSOLUTE, GOOD, first=5000),
    "invalid_regression_metric": Situation(
        "INVALID", GOOD, REGRESSION, [fp32(), int8(accuracy=replace(accuracy(), metric="f1"))]
    ),
    "inconclusive_regression_unpaired": Situation("INCONCLUSIVE", [fp32(), other()], ABSOLUTE, GOOD, keeps=False),
    "fail_regression_unpaired": Situation(
        "FAIL", [fp32(), other(accuracy=accuracy(harmful=1, beneficial=1, right=880))], ABSOLUTE, GOOD, keeps=False
    ),
    "missing_regression_score": Situation("MISSING", [fp32(), int8(accuracy=None)], REGRESSION, GOOD),
    "missing_regression_baseline": Situation(
        "MISSING", GOOD, "gate:\n  accuracy: {margin: 1.0, max_regression: 0.5}\n"
    ),
    "fail_speedup": Situation("FAIL", [fp32(), int8(speedup=speedup(1.2))], PROMISE),
    "fail_size": Situation("FAIL", [fp32(), int8(size_bytes=400_000)], ABSOLUTE),
    "fail_size_growth": Situation("FAIL", [fp32(), int8(size_bytes=300_000)], REGRESSION, GOOD),
    "fail_accuracy": Situation("FAIL", [fp32(), int8(accuracy=accuracy(harmful=30, beneficial=2))], ABSOLUTE),
    "fail_case": Situation("FAIL", [fp32(), failed()], ABSOLUTE),
    "fail_over_everything": Situation("FAIL", [fp32(), failed(), int8("net/qat/x86/t1/b1")], ALL_RULES, None),
    "invalid_baseline_figures": Situation(
        "INVALID", GOOD, REGRESSION, [fp32(), int8(size_bytes=300_000)], same=True
    ),
    "invalid_machine": Situation("INVALID", GOOD, REGRESSION, GOOD, held=OTHER_MACHINE),
    "invalid_protocol": Situation("INVALID", [fp32(), int8(speedup=speedup(protocol="sequential"))], REGRESSION, GOOD),
    "invalid_metric": Situation("INVALID", [fp32(), int8(accuracy=replace(accuracy(), metric="f1"))], ABSOLUTE),
    "missing_baseline": Situation("MISSING", GOOD, REGRESSION),
    "pass_identical": Situation("PASS", GOOD, ALL_RULES, GOOD, same=True),
    "fail_update_of_the_same_file": Situation(
        "FAIL", [fp32(), slow()], REGRESSION, GOOD, same=True, run=NEW_TORCH, held=OTHER_TORCH
    ),
    "pass_update_of_the_same_file": Situation(
        "PASS", GOOD, REGRESSION, GOOD, same=True, run=NEW_TORCH, held=OTHER_TORCH
    ),
    "pass_identical_under_a_library_that_does_not_run_it": Situation(
        "PASS", GOOD, REGRESSION, GOOD, same=True, run=NEW_ORT, held=OTHER_ORT
    ),
    "invalid_update_on_another_machine": Situation(
        "INVALID", GOOD, REGRESSION, GOOD, same=True, run=NEW_TORCH,
        held=replace(OTHER_TORCH, environment={"cpu": "CPU B"}),
    ),
    "inconclusive_same_file_on_another_kind_of_host": Situation(
        "INCONCLUSIVE", [fp32(), started()], f"{START}  latency: {{max_regression: 5%}}\n", [fp32(), started()],
        same=True, held=info(environment={"isa": ["avx2"]}),
    ),
    "inconclusive_start_of_the_same_file_after_an_update": Situation(
        "INCONCLUSIVE", [fp32(), started()], START, [fp32(), started()], same=True, run=NEW_TORCH, held=OTHER_TORCH
    ),
    "fail_update_beside_live": Situation(
        "FAIL", [fp32(), slow()], REGRESSION, GOOD, run=NEW_TORCH, held=OTHER_TORCH, reruns=rerun(0.0)
    ),
    "pass_update_live": Situation(
        "PASS", [fp32(), slow()], REGRESSION, GOOD, run=NEW_TORCH, held=OTHER_TORCH,
        reruns=rerun(0.0, own_versions=True),
    ),
    "fail_memory_of_the_same_file_after_an_update": Situation(
        "FAIL", [fp32(), started(300)], START, [fp32(), started()], same=True, run=NEW_TORCH, held=OTHER_TORCH
    ),
    "improved_live": Situation("IMPROVED", GOOD, REGRESSION, GOOD, reruns=rerun(-0.1)),
    "improved_size": Situation("IMPROVED", [fp32(), int8(size_bytes=200_000)], REGRESSION, GOOD, reruns=rerun(0.0)),
    "improved_regression": Situation(
        "IMPROVED", [fp32(), int8()], ABSOLUTE, [fp32(), int8(accuracy=accuracy(harmful=30))], reruns=rerun(0.0)
    ),
    "inconclusive_live_note": Situation("INCONCLUSIVE", GOOD, REGRESSION, GOOD, reruns=rerun(0.0, 12, control=0.04)),
    "inconclusive_budget": Situation("INCONCLUSIVE", GOOD, REGRESSION, GOOD, reruns=cut(1)),
    "inconclusive_budget_later": Situation("INCONCLUSIVE", GOOD, REGRESSION, GOOD, reruns=cut(3)),
    "invalid_faster_than_possible": Situation(
        "INVALID", [fp32(), int8(roofline=Roofline(macs=10, peak_fraction=1.4))], REGRESSION, GOOD, reruns=rerun(0.0)
    ),
    "invalid_faster_than_possible_live": Situation(
        "INVALID", [fp32(), int8(roofline=Roofline(macs=10, peak_fraction=0.6))], REGRESSION, GOOD,
        reruns=rerun(-0.1, milliseconds=0.5)
    ),
    "pass_promise_live": Situation("PASS", GOOD, PROMISE, GOOD, reruns=rerun(0.0, speedup=2.0)),
    "fail_promise_live": Situation("FAIL", GOOD, PROMISE, GOOD, reruns=rerun(0.0, speedup=1.3)),
    "pass_start_and_memory": Situation("PASS", [fp32(), started()], START, [fp32(), started()], reruns=rerun(0.0)),
    "fail_start": Situation("FAIL", [fp32(), started()], START, [fp32(), started()], reruns=rerun(0.0, start=2.0)),
    "fail_start_limit": Situation(
        "FAIL", [fp32(), started()], "gate:\n  cold_start: {max_seconds: 1 ms}\n"
    ),
    "inconclusive_start_stored": Situation("INCONCLUSIVE", [fp32(), started()], START, [fp32(), started()]),
    "missing_start": Situation("MISSING", GOOD, "gate:\n  cold_start: {max_seconds: 1 ms}\n"),
    "fail_memory": Situation(
        "FAIL", [fp32(), started(300)], START, [fp32(), started()], reruns=rerun(0.0)
    ),
    "fail_memory_limit": Situation("FAIL", [fp32(), started()], "gate:\n  memory: {max_bytes: 100 MB}\n"),
    "pass_memory_other_torch": Situation(
        "PASS", [fp32(), started()], START, [fp32(), started()], reruns=rerun(0.0), run=NEW_TORCH, held=OTHER_TORCH
    ),
    "missing_memory": Situation("MISSING", GOOD, "gate:\n  memory: {max_bytes: 100 MB}\n"),
    "fail_coverage": Situation("FAIL", [fp32(), int8(coverage=0.8)], "gate:\n  coverage: {min_share: 90%}\n"),
    "fail_coverage_drop": Situation("FAIL", [fp32(), int8(coverage=0.8)], REGRESSION, GOOD, reruns=rerun(0.0)),
    "missing_new_case_that_is_skipped": Situation(
        "MISSING", [*GOOD, int8("net/qat/x86/t1/b1")], f"{REGRESSION}  missing: {{new: skip}}\n", GOOD,
        reruns=rerun(0.0),
    ),
    "missing_new_case_that_fails": Situation(
        "MISSING", [*GOOD, int8("net/qat/x86/t1/b1")], f"{REGRESSION}  missing: {{new: fail}}\n", GOOD,
        reruns=rerun(0.0),
    ),
    "missing_gone_that_is_skipped": Situation(
        "MISSING", GOOD, f"{REGRESSION}  missing: {{gone: skip}}\n", [*GOOD, int8("net/qat/x86/t1/b1")],
        reruns=rerun(0.0),
    ),
    "missing_in_baseline": Situation("MISSING", GOOD, REGRESSION, [fp32()]),
    "missing_baseline_case_failed": Situation("MISSING", GOOD, REGRESSION, [fp32(), failed()]),
    "missing_record": Situation("MISSING", GOOD, ABSOLUTE, run=info((FP32, CASE, "net/qat/x86/t1/b1"))),
    "missing_skipped": Situation("MISSING", [fp32(), skipped()], REGRESSION, GOOD),
    "missing_gone": Situation("MISSING", GOOD, REGRESSION, [*GOOD, int8("net/qat/x86/t1/b1")]),
    "missing_gone_by_plan": Situation(
        "MISSING", GOOD, REGRESSION, [*GOOD, int8("net/qat/x86/t1/b1")],
        run=info(plan=PlanInfo(skipped=(SkipInfo(id="net/qat/x86/t1/b1", reason="no C++ compiler found"),))),
    ),
    "missing_speedup": Situation("MISSING", [fp32(), int8(speedup=None)], PROMISE),
    "missing_speedup_of_regression": Situation("MISSING", [fp32(), int8(speedup=None)], REGRESSION, GOOD),
    "missing_size": Situation("MISSING", [int8()], ABSOLUTE),
    "missing_accuracy": Situation("MISSING", [fp32(), int8(accuracy=None)], ABSOLUTE),
    "missing_everything": Situation("MISSING", [], ABSOLUTE),
    "inconclusive_latency": Situation("INCONCLUSIVE", [fp32(), int8(speedup=speedup(2.5 / 1.05))], REGRESSION, GOOD),
    "inconclusive_speedup": Situation("INCONCLUSIVE", [fp32(), int8(speedup=speedup(1.5))], PROMISE),
    "inconclusive_no_interval": Situation(
        "INCONCLUSIVE", [fp32(), int8(speedup=speedup(low=None, high=None))], PROMISE
    ),
    "inconclusive_accuracy": Situation(
        "INCONCLUSIVE", [fp32(), int8(accuracy=accuracy(harmful=9, beneficial=2))], ABSOLUTE
    ),
    "inconclusive_control": Situation("INCONCLUSIVE", [fp32(), slow(control=NOISY)], REGRESSION, GOOD),
    "inconclusive_no_control": Situation("INCONCLUSIVE", [fp32(), slow(control=None)], REGRESSION, GOOD),
    "inconclusive_unsteady": Situation("INCONCLUSIVE", [fp32(), slow(steady=False)], REGRESSION, GOOD),
    "inconclusive_sequential": Situation(
        "INCONCLUSIVE", [fp32(), int8(speedup=speedup(protocol="sequential", control=None))], PROMISE
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_outcome_has_its_words(name: str) -> None:
    """Each situation gives the outcome it must, in the text of its golden file."""
    situation = SITUATIONS[name]
    gated = situation.gated()
    worst = min((verdict.outcome for verdict in gated.verdicts), key=list(OUTCOMES).index)
    assert worst == situation.outcome
    assert same_as_golden(f"gate_{name}.txt", gate_text.text(gated) + "\n")


def test_all_outcomes_are_enumerated() -> None:
    """No outcome is without a situation."""
    assert {situation.outcome for situation in SITUATIONS.values()} == set(OUTCOMES)


def test_the_same_file_on_another_kind_of_host_holds_no_change() -> None:
    """What was built has not changed, and what the other host took tells nothing of this one: exit code 0, no PASS."""
    gated = SITUATIONS["inconclusive_same_file_on_another_kind_of_host"].gated()
    outcomes = {verdict.rule: (verdict.outcome, verdict.effect) for verdict in gated.verdicts}
    assert {outcomes[rule] for rule in ("latency", "memory growth", "cold start growth")} == {("INCONCLUSIVE", "note")}
    assert gated.exit_code == 0


def test_a_start_that_an_update_may_have_changed_holds() -> None:
    """A new runtime may take longer to load: nobody measured that, so it does not pass."""
    assert SITUATIONS["inconclusive_start_of_the_same_file_after_an_update"].gated().exit_code == 4


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["PASS"], 0),
        (["PASS", "FAIL", "INVALID", "MISSING", "INCONCLUSIVE"], 1),
        (["PASS", "INVALID", "INCONCLUSIVE"], 3),
        (["MISSING", "INCONCLUSIVE"], 3),
        (["PASS", "INCONCLUSIVE"], 4),
        (["PASS", "IMPROVED"], 0),
        ([], 3),
    ],
)
def test_the_worst_outcome_decides_the_exit_code(outcomes: list[Any], code: int) -> None:
    """Fail over invalid or missing over inconclusive over pass; nothing judged is no pass."""
    plain = Verdict(outcome="PASS", case=CASE, rule="case", place="x:1", text="")
    assert find_exit_code([replace(plain, outcome=outcome).effect for outcome in outcomes]) == code


@pytest.mark.parametrize(
    ("rules", "needed"),
    [
        (ALL_RULES, True),
        (REGRESSION, True),
        (ABSOLUTE, False),
        (PROMISE, False),
        ("gate:\n  accuracy: {max_regression: 0.5}\n", True),
    ],
)
def test_only_a_suite_of_absolute_rules_needs_no_baseline(rules: str, needed: bool) -> None:
    """A written tolerance asks for a baseline."""
    wanted = policy(rules)
    verdicts = judge_records([fp32(), int8()], info(), wanted.gate, place=wanted.place)
    assert any(verdict.text == "no baseline" for verdict in verdicts) is needed


def test_a_baseline_that_is_given_is_always_used() -> None:
    """Even where only absolute rules are written, a regression against a given baseline fails."""
    gated = Situation("FAIL", [fp32(), slow()], ABSOLUTE, GOOD).gated()
    assert [v.rule for v in gated.verdicts if v.outcome == "FAIL"] == ["latency"]


def test_what_was_run_again_goes_before_what_is_stored() -> None:
    """Stored speed-ups that moved by 10 % do not fail a case whose artifacts ran equally fast; and the reverse."""
    moved, equal = [fp32(), slow()], GOOD
    ways = [
        (Situation("", moved, REGRESSION, GOOD, reruns=rerun(0.0)), "PASS", "live"),
        (Situation("", equal, REGRESSION, GOOD, reruns=rerun(0.1)), "FAIL", "live"),
        (Situation("", moved, REGRESSION, GOOD), "FAIL", "stored"),
        (Situation("", moved, REGRESSION, GOOD, reruns=GONE), "FAIL", "stored"),
    ]
    for situation, outcome, way in ways:
        (verdict,) = (verdict for verdict in situation.gated().verdicts if verdict.rule == "latency")
        assert (verdict.outcome, verdict.way) == (outcome, way)
        assert verdict.text.startswith(way)


@pytest.mark.parametrize(("change", "outcome"), [(-0.02, "PASS"), (-0.045, "PASS"), (-0.06, "IMPROVED")])
def test_only_what_is_faster_by_more_than_the_tolerance_is_improved(change: float, outcome: str) -> None:
    """A gain that is shown, but is no greater than the 5 % that a loss may be, asks nobody for a new baseline."""
    verdict, *_ = Situation("", GOOD, REGRESSION, GOOD, reruns=rerun(change)).gated().verdicts
    assert verdict.high is not None
    assert verdict.high < 1
    assert verdict.outcome == outcome
    stored = [fp32(), int8(speedup=speedup(2.5 / (1 + change), 0.002))]
    base = [fp32(), int8(speedup=speedup(2.5, 0.002))]
    verdict, *_ = Situation("", stored, REGRESSION, base).gated().verdicts
    assert verdict.outcome == outcome


def test_scores_that_are_not_paired_count_the_examples_of_the_smaller_side() -> None:
    """Of 500 against 1,000 there are 500 to decide by, whichever run has them."""
    few, many = (int8(accuracy=accuracy(n=n, right=round(0.97 * n))) for n in (500, 1000))
    for now, before in ((few, many), (many, few)):
        gated = Situation("", [fp32(), now], ABSOLUTE, [fp32(), before], keeps=False).gated()
        (verdict,) = (verdict for verdict in gated.verdicts if verdict.rule == "top1 regression")
        assert verdict.outcome == "INCONCLUSIVE"
        assert str(verdict.reason).endswith(" would decide, there are 500")


EXACT = """gate:
  size: {max_ratio: 0.34, max_growth: 36%}
  coverage: {min_share: 85%, max_drop: 10%}
  memory: {max_bytes: 272 MB, max_regression: 36%}
"""
EXACT_RULES = ("size", "size growth", "coverage", "coverage drop", "memory", "memory growth")


@pytest.mark.parametrize(("beyond", "outcome"), [(0, "PASS"), (1, "FAIL")])
def test_what_is_exactly_as_much_as_is_allowed_passes(beyond: int, outcome: str) -> None:
    """Bytes and shares are exact: 36 % more is within 36 %, though 1 + 0.36 is a last digit less than 1.36;
    one byte, or one multiply-accumulate of a million, more is not."""

    def case(size_bytes: int, share: float, resident: int) -> Record:
        memory = Memory(loaded_rss_bytes=1, peak_rss_bytes=resident)
        return int8(size_bytes=size_bytes, coverage=share, memory=memory)

    before = case(250_000_000, 0.95, 200_000_000)
    now = case(340_000_000 + beyond, 0.85 - beyond * 1e-6, 272_000_000 + beyond)
    whole = fp32(size_bytes=1_000_000_000)
    gated = Situation("", [whole, now], EXACT, [whole, before], reruns=rerun(0.0)).gated()
    outcomes = {verdict.rule: verdict.outcome for verdict in gated.verdicts if verdict.rule in EXACT_RULES}
    assert outcomes == dict.fromkeys(EXACT_RULES, outcome)


BASELINE_RULES = """gate:
  latency: {max_regression: 5%}
  size: {max_growth: 1%}
  cold_start: {max_regression: 50%}
  memory: {max_regression: 10%}
  coverage: {max_drop: 1%}
  accuracy: {max_regression: 1.0}
"""


@pytest.mark.parametrize(
    ("missing", "new", "gone"),
    [("", 0, 3), ("{gone: skip}", 0, 0), ("{new: fail}", 3, 3), ("{gone: skip, new: fail}", 3, 0)],
)
def test_what_was_added_passes_with_a_note_and_what_is_gone_does_not(missing: str, new: int, gone: int) -> None:
    """By default a case that only the run has is no failure, one that only the baseline has is; the suite says both
    apart."""
    rules = REGRESSION + (f"  missing: {missing}\n" if missing else "")
    more = [*GOOD, int8("net/static/onednn/t4/b1")]
    added, removed = Situation("", more, rules, GOOD, same=True), Situation("", GOOD, rules, more, same=True)
    assert added.gated().exit_code == new
    assert removed.gated().exit_code == gone


def test_what_was_added_is_held_to_the_rules_that_need_no_baseline() -> None:
    """A new case that is larger than promised FAILs."""
    added = [fp32("net/fp32/torch/t4/b1"), int8("net/static/onednn/t4/b1", size_bytes=900_000)]
    gated = Situation("", [*GOOD, *added], ABSOLUTE, GOOD).gated()
    assert [verdict.rule for verdict in gated.verdicts if verdict.outcome == "FAIL"] == ["size"]


@pytest.mark.parametrize(("base", "text"), [([fp32()], NEW), ([fp32(), failed()], "failed in the baseline")])
def test_a_new_case_is_judged_by_no_rule_that_asks_for_the_baseline(base: list[Record], text: str) -> None:
    """There is one verdict that says it is new, and none on a change since; nor where it failed in the baseline."""
    gated = Situation("", [fp32(), started()], BASELINE_RULES, base, reruns=rerun(0.0)).gated()
    rules = [verdict.rule for verdict in gated.verdicts if verdict.case == CASE]
    assert rules[0] == "case"
    assert set(rules[1:]) <= {"top1"}
    assert gated.verdicts[0].text == text


def test_a_gain_that_is_not_shown_is_no_improvement() -> None:
    """6 % faster within limits that hold no change."""
    stored = [fp32(), int8(speedup=speedup(2.5 / 0.94, 0.08))]
    verdict, *_ = Situation("", stored, REGRESSION, [fp32(), int8(speedup=speedup(2.5, 0.002))]).gated().verdicts
    assert verdict.high is not None
    assert 1 < verdict.high < 1.05
    assert verdict.outcome == "PASS"


def test_a_live_verdict_keeps_its_raw_observations() -> None:
    """The JSON holds every process pair, so that another tool can check the interval."""
    data = json.loads(gate_text.as_json(SITUATIONS["fail_live"].gated()))
    message = data["reruns"][CASE]
    assert len(message["pairs"]) == 6
    assert set(message["pairs"][0]) == {"ratio", "control", "drift", "speedup", "start", "unseen", "seconds"}
    assert message["look"]["number"] == 2


def test_a_loss_of_fp32_and_int8_alike_passes_no_more() -> None:
    """98.2 to 96.3 % on both, int8 as good as its fp32: the metric against the baseline's int8 does not pass, by the
    figures that the stored predictions of such a change gave (-1.89 points)."""
    was, now = accuracy(n=1060, right=1041), accuracy(n=1060, right=1021)
    situation = Situation("", [fp32(), other(accuracy=now)], ABSOLUTE, [fp32(), int8(accuracy=was)])
    verdicts = {verdict.rule: verdict for verdict in situation.gated().verdicts}
    assert verdicts["top1"].outcome == "PASS"
    assert verdicts["top1 regression"].outcome == "FAIL"
    assert verdicts["top1 regression"].value == pytest.approx(-0.0189, abs=1e-4)
    assert situation.gated().exit_code == 1


def test_the_same_artifact_with_the_same_answers_has_not_become_worse_however_few_they_are() -> None:
    """Of 50 examples no interval would lie within a point; where nothing changed there is nothing to estimate, and the
    verdict takes no share of the error. The same answers of another artifact prove less."""
    few = accuracy(n=50, right=49)
    rule = "top1 regression"
    records = [fp32(), int8(accuracy=few)]
    same = Situation("", records, ABSOLUTE, records, same=True).gated()
    (verdict,) = (verdict for verdict in same.verdicts if verdict.rule == rule)
    assert (verdict.outcome, verdict.p_value) == ("PASS", None)
    rebuilt = Situation("", [fp32(), other(accuracy=few)], ABSOLUTE, records).gated()
    assert [verdict.outcome for verdict in rebuilt.verdicts if verdict.rule == rule] == ["INCONCLUSIVE"]


def test_a_smallest_score_says_nothing_about_a_loss_unless_it_is_written() -> None:
    """`at_least: 30` dB is a margin of 70 dB below fp32's own 100, which no regression would ever break: the rule is
    left out, until `max_regression` is written."""
    least = policy("gate:\n  accuracy: {metric: sqnr, at_least: 30}\n").gate.accuracy
    assert least.allowed_regression is None
    change = policy("gate:\n  accuracy: {metric: sqnr, at_least: 30, max_regression: 2}\n").gate.accuracy
    assert change.allowed_regression == 2
    assert policy("gate:\n  accuracy: {margin: 0.5}\n").gate.accuracy.allowed_regression == 0.5


def test_a_promise_tolerates_noise_that_cannot_decide_it() -> None:
    """A control 4 % off does not matter for 2.5x against a promise of 1.5x, and does for 1.6x."""
    far = Situation("", [fp32(), int8(speedup=speedup(2.5, control=NOISY))], PROMISE).gated()
    near = Situation("", [fp32(), int8(speedup=speedup(1.6, control=NOISY))], PROMISE).gated()
    assert far.verdicts[0].outcome == "PASS"
    assert near.verdicts[0].outcome == "INCONCLUSIVE"


def test_int8_that_beats_its_fp32_is_no_improvement() -> None:
    """That is said against the baseline alone: more right answers than fp32 has, beyond the margin, are a PASS."""
    better = [fp32(), int8(accuracy=accuracy(beneficial=30))]
    verdicts = Situation("", better, "gate: {accuracy: {margin: 1.0}}\n").gated().verdicts
    assert [(verdict.kind, verdict.outcome) for verdict in verdicts] == [("metric", "PASS")]


def test_a_failure_stands_where_its_own_p_value_survives_the_others_of_its_kind() -> None:
    """One beyond all chance does among any number; one of 4 % does alone of its kind, and not beside others; what rests
    on no sample takes no share."""
    asked: list[tuple[Any, Any, float | None, str]] = [
        ("time", "FAIL", 0.0, "FAIL"),
        ("time", "FAIL", 0.04, "INCONCLUSIVE"),
        ("time", "PASS", 0.5, "PASS"),
        ("metric", "FAIL", 0.04, "FAIL"),
        ("metric", "FAIL", None, "FAIL"),
    ]
    verdicts = [
        Verdict(outcome=outcome, case=CASE, rule="x", place="", text="", kind=kind, p_value=p)
        for kind, outcome, p, _ in asked
    ]
    assert [verdict.outcome for verdict in correct_for_rules(verdicts)] == [expected for *_, expected in asked]


def test_what_was_withdrawn_says_what_would_decide() -> None:
    """As many more samples of its kind; process pairs where it was run again. What is at exactly 5 % alone of its kind
    stands."""
    plain = Verdict(outcome="FAIL", case=CASE, rule="x", place="", text="", p_value=0.04)
    live = replace(plain, kind="time", way="live", times=LiveTimes(baseline=None, contender=None, pairs=12, spent=1.0))
    for verdict, decides, reason in (
        (replace(plain, kind="metric"), "about 2.6 times as many examples", "2.6 times as many examples would decide"),
        (replace(plain, kind="time"), "about 2.6 times as many processes", "2.6 times as many processes would decide"),
        (live, None, "about 31 process pairs would, and it takes at most 12"),
    ):
        told, other = correct_for_rules([verdict, replace(verdict, outcome="PASS", p_value=0.5)])
        assert (told.outcome, told.decides, other.outcome) == ("INCONCLUSIVE", decides, "PASS")
        assert str(told.reason).startswith("fails alone, but 2 rules of its kind were judged at once (Holm: p = 0.08)")
        assert str(told.reason).endswith(reason)
    for p, outcome in ((0.05, "FAIL"), (0.05 * (1 + 1e-12), "FAIL"), (0.0501, "INCONCLUSIVE")):
        assert correct_for_rules([replace(plain, p_value=p)])[0].outcome == outcome


def test_a_failure_must_survive_holm_among_the_rules_of_its_kind_on_its_case_alone() -> None:
    """A promise that just fails stands beside twenty other cases, which share no error with it; beside a second rule on
    time it is INCONCLUSIVE, and holds the change all the same."""
    tight = Interval(value=1.0, low=0.9999, high=1.0001)  # so that only the interval and Holm speak
    slight = int8(speedup=speedup(1.5 * (1 - 0.0108), 0.01, control=tight), accuracy=None)
    others = [int8(f"net/static/b{number}/t1/b1", accuracy=None) for number in range(20)]
    among = Situation("", [fp32(), slight, *others], PROMISE).gated().verdicts[0]
    assert among.outcome == "FAIL"
    both = Situation("", [fp32(), slight], PROMISE, [fp32(), slight], reruns=without_promise()).gated()
    (verdict,) = (verdict for verdict in both.verdicts if verdict.rule == "speed-up")
    assert "2 rules of its kind were judged at once (Holm" in str(verdict.reason)
    assert (verdict.outcome, verdict.effect, both.exit_code) == ("INCONCLUSIVE", "hold", 4)


def without_promise() -> dict[str, Rerun | NotRun]:
    """Run again without fp32."""
    (full,) = rerun(0.0).values()
    assert isinstance(full, Rerun)
    return {CASE: replace(full, promise=None)}


@pytest.mark.parametrize(
    ("treatment", "harmless", "harmful"),
    [("hold", ("note", 0), ("hold", 4)), ("fail", ("fail", 1), ("fail", 1)),
     ("skip", ("skip", 0), ("skip", 0)), ("pass", ("note", 0), ("note", 0))],
)  # fmt: skip
def test_the_suite_says_what_an_inconclusive_does(
    treatment: str, harmless: tuple[str, int], harmful: tuple[str, int]
) -> None:
    """By default it holds a change only where the samples point to harm; a noisy machine alone does not."""
    rules = f"{REGRESSION}  inconclusive: {treatment}\n"
    for change, expected in ((0.0, harmless), (0.08, harmful)):
        gated = Situation("", GOOD, rules, GOOD, reruns=rerun(change, 12, control=0.04)).gated()
        (verdict,) = (verdict for verdict in gated.verdicts if verdict.outcome == "INCONCLUSIVE")
        assert (verdict.effect, gated.exit_code) == expected


def test_two_points_lost_in_a_suite_of_twenty_rules_do_not_pass() -> None:
    """Of 450 examples 13 flip to harm and 4 back: too few to show more than a point lost, and enough to hold; nineteen
    other cases take nothing of that."""
    was, now = accuracy(n=450, right=440), accuracy(n=450, right=440, harmful=13, beneficial=4)
    cases = [f"net/static/b{number}/t1/b1" for number in range(20)]
    before = [fp32(), *(int8(case, accuracy=was) for case in cases)]
    after = [fp32(), int8(cases[0], accuracy=now), *(int8(case, accuracy=was) for case in cases[1:])]
    gated = Situation("", after, ABSOLUTE, before).gated()
    held = [verdict for verdict in gated.verdicts if verdict.effect in ("hold", "fail")]
    assert {verdict.case for verdict in held} == {cases[0]}
    assert gated.exit_code in (1, 4)


@pytest.mark.parametrize(("rebuilt", "exit_code"), [(1, 4), (20, 0)])
def test_a_small_loss_in_one_of_many_rebuilt_cases_does_not_hold(rebuilt: int, exit_code: int) -> None:
    """Six answers lost of 1,000, within the margin of one point, are evidence in one case; of twenty cases that were
    built anew, one loses that much by chance."""
    was = [int8(f"net/static/b{number}/t1/b1", accuracy=accuracy(n=1000, right=960)) for number in range(20)]
    now = [
        as_other_file(record) if number >= rebuilt else record for number, record in enumerate(was)
    ]  # the baseline's
    now[0] = replace(now[0], accuracy=accuracy(n=1000, right=960, harmful=6))
    gated = Situation("", [fp32(), *now], ABSOLUTE, [fp32(), *was], reruns=rerun(0.0)).gated()
    assert gated.exit_code == exit_code


def test_what_was_so_in_the_baseline_does_not_hold_a_change() -> None:
    """int8 that may have lost more than a point against fp32 before, and has the same answers now, is INCONCLUSIVE with
    a note; without a baseline it holds."""
    lost = int8(accuracy=accuracy(harmful=12, beneficial=3))
    alone = Situation("", [fp32(), lost], ABSOLUTE).gated()
    again = Situation("", [fp32(), lost], ABSOLUTE, [fp32(), lost], reruns=rerun(0.0)).gated()
    assert (alone.exit_code, again.exit_code) == (4, 0)
    (verdict,) = (verdict for verdict in again.verdicts if verdict.rule == "top1")
    assert (verdict.outcome, verdict.effect) == ("INCONCLUSIVE", "note")


def test_an_undecided_metric_says_how_many_examples_would_decide() -> None:
    """As few as there are never would."""
    (verdict,) = (
        verdict for verdict in SITUATIONS["inconclusive_accuracy"].gated().verdicts if verdict.outcome == "INCONCLUSIVE"
    )
    assert re.fullmatch(r"about [\d,]+ examples", str(verdict.decides))
    assert verdict.examples is not None
    assert verdict.examples > 1000


def test_a_case_is_judged_by_the_rules_that_are_written_for_it() -> None:
    """10 % slower is within the 20 % that the suite allows its mode; the verdict names that line."""
    rules = f"{REGRESSION}  overrides:\n    - {{mode: static, latency: {{max_regression: 20%}}}}\n"
    (verdict, *_) = Situation("", GOOD, rules, GOOD, reruns=rerun(0.1)).gated().verdicts
    assert (verdict.outcome, verdict.threshold, verdict.place) == ("PASS", 1.2, "suites/demo.yaml:8")


@pytest.mark.parametrize(
    "rules", ["{max_regression: null, min_speedup: 1.5}", "{max_regression: 5%, min_speedup: 1.5}"]
)
def test_an_update_is_judged_where_latency_is(rules: str) -> None:
    """Without a tolerance there is nothing that it may take."""
    situation = replace(SITUATIONS["fail_update_beside_live"], rules=f"gate:\n  latency: {rules}\n")
    judged = {verdict.rule for verdict in situation.gated().verdicts}
    assert ("latency update" in judged) is ("5%" in rules)


def test_live_verdicts_hold_the_milliseconds() -> None:
    """Those of the baseline, the run and the fp32 that ran along."""
    times = {verdict.rule: verdict.times for verdict in SITUATIONS["fail_promise_live"].gated().verdicts}["speed-up"]
    assert times is not None
    assert (times.baseline, times.contender, times.fp32) == pytest.approx((0.001, 0.001, 0.0013))
    assert (times.pairs, times.spent) == (6, 30.0)


def test_filter_judges_the_matching_cases_only(tmp_path: Path) -> None:
    """Other cases are neither judged nor missed; a glob without a match is said."""
    baseline = write_baseline(RUN_V1, tmp_path, allow_failed=True)
    cases = {verdict.case for verdict in gate.gate_run(RUN_V1, baseline, only="*/static/onnxruntime/*").verdicts}
    assert cases
    assert all("/static/onnxruntime/" in case for case in cases)
    with pytest.raises(UsageError, match="--filter 'nothing' matches no case"):
        gate.gate_run(RUN_V1, baseline, only="nothing")


QAT = "net/qat/x86/t1/b1"


@pytest.mark.parametrize(
    ("records", "planned", "base", "verdicts"),
    [
        ([int8()], (CASE, QAT), [int8(), int8(QAT)], [(QAT, "no record")]),
        ([int8()], (CASE,), [int8(), int8(QAT)], [(QAT, "the baseline has it")]),
        ([int8()], (CASE,), [int8(), failed(QAT)], []),
        ([int8(), skipped(QAT)], (CASE,), [int8(), failed(QAT)], []),
        ([int8(), skipped(QAT)], (CASE,), [int8(), int8(QAT)], [(QAT, "the baseline has it")]),
    ],
)
def test_a_case_that_is_gone_is_missed_once(
    records: list[Record], planned: tuple[str, ...], base: list[Record], verdicts: list[tuple[str, str]]
) -> None:
    """As planned and not reached, else as the baseline's; one that was not ok there is missed by nobody."""
    gated = Situation("", records, REGRESSION, base, run=info(planned), same=True).gated()
    assert [(each.case, each.text) for each in gated.verdicts if each.case == QAT] == verdicts


def test_a_suite_without_a_gate_is_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    """Nothing is judged by what qbench thinks of: exit code 2, before anything is measured."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    described = json.loads((folder / "run.json").read_text())
    described["suite"]["text"] = described["suite"]["text"].partition("gate:")[0]
    (folder / "run.json").write_text(json.dumps(described))
    with pytest.raises(UsageError, match=r"(?s)the suite has no gate section.*max_regression: 5%") as raised:
        gate.gate_run(folder, as_run=True)
    assert raised.value.exit_code == 2


def test_a_baseline_that_is_not_there_has_one_exit_code(tmp_path: Path) -> None:
    """Named or not: 3."""
    with pytest.raises(NotComparable, match="no such baseline; write one"):
        gate.gate_run(RUN_V1, tmp_path / "gone.jsonl")
    assert NotComparable.exit_code == gate.gate_run(RUN_V1).exit_code or gate.gate_run(RUN_V1).exit_code == 1


def test_fp32_and_skipped_cases_are_not_judged() -> None:
    """They have no rule; a run of nothing else is MISSING, never PASS."""
    gated = Situation("", [fp32(), skipped()], ABSOLUTE).gated()
    assert [(v.outcome, v.rule, v.text) for v in gated.verdicts] == [("MISSING", "case", "nothing to judge")]


def test_data_without_labels_is_not_judged_on_accuracy_unless_asked() -> None:
    """Without a written accuracy rule a missing score has no verdict; with one it is MISSING."""
    unlabelled = [fp32(), int8(accuracy=None)]
    assert {v.rule for v in Situation("", unlabelled, PROMISE).gated().verdicts} == {"speed-up"}
    assert "top1" in {v.rule for v in Situation("", unlabelled, ABSOLUTE).gated().verdicts}


def test_places_point_at_the_rule_in_the_suite() -> None:
    """Each verdict names file and line of the key that asked for it."""
    places = {v.rule: v.place for v in SITUATIONS["pass_all_rules"].gated().verdicts}
    lines = (HEAD + ALL_RULES).splitlines()
    for rule, key in {
        "latency": "max_regression",
        "speed-up": "min_speedup",
        "top1": "margin",
        "size": "max_ratio",
    }.items():
        file, _, line = places[rule].rpartition(":")
        assert file == "suites/demo.yaml"
        assert key in lines[int(line) - 1]


def test_a_default_is_shown_as_one() -> None:
    """It stands at no line of the suite: the verdict names the key that would change it, an annotation the section."""
    verdicts = {verdict.rule: verdict for verdict in SITUATIONS["pass_live"].gated().verdicts}
    growth, latency = verdicts["size growth"], verdicts["latency"]
    assert (growth.source, growth.place) == ("default of gate.size.max_growth", "suites/demo.yaml:5")
    assert (latency.source, latency.default) == ("suites/demo.yaml:6", None)
    written = f"{REGRESSION}  overrides: [{{mode: static, size: {{max_growth: 3%}}}}]\n"
    (own,) = (v for v in Situation("", GOOD, written, GOOD).gated().verdicts if v.rule == "size growth")
    assert own.source == "suites/demo.yaml:7"


def test_what_is_better_than_another_commit_needs_no_baseline() -> None:
    """The baseline of ``--against`` is no file: after the merge it is the commit itself."""
    situation = SITUATIONS["improved_live"]
    gated = replace(situation.gated("main"), ref="main")
    (better,) = (verdict for verdict in gated.verdicts if verdict.outcome == "IMPROVED")
    assert str(better.reason).endswith("nothing to write, main has it as soon as this is merged")
    assert "nothing to write, main has it" in gate_text.summary(gated)
    assert "qbench baseline" not in gate_text.text(gated)


def test_judging_the_run_that_the_baseline_was_made_of_is_noted(tmp_path: Path) -> None:
    """Nothing can be learnt from it, so every output says so; another run of the same suite has no such note."""
    baseline = write_baseline(RUN_V1, tmp_path, allow_failed=True)
    gated = gate.gate_run(RUN_V1, baseline, as_run=True)
    assert gated.notes == (gate.SAME_RUN,)
    later = tmp_path / "run"
    shutil.copytree(RUN_V1, later)
    (later / "run.json").write_text((later / "run.json").read_text().replace("2026-01-01T00:00", "2026-01-02T00:00"))
    assert gate.gate_run(later, baseline, as_run=True).notes == ()


@pytest.mark.parametrize(
    ("section", "key", "factor"),
    [
        ("speedup", "value", 1.5),
        ("speedup", "high", 1.5),
        ("artifact", "size_bytes", 2),
        ("memory", "peak_rss_bytes", 2),
    ],
)
def test_an_edited_baseline_of_the_run_is_not_said_to_be_it(
    tmp_path: Path, section: str, key: str, factor: float
) -> None:
    """Beside a FAIL by an edited figure no note says that nothing can have changed."""
    baseline = write_baseline(RUN_V1, tmp_path, allow_failed=True)
    lines = [json.loads(line) for line in baseline.read_text().splitlines()]
    edited = next(line for line in lines if line["case"]["mode"] != "fp32" and (line.get(section) or {}).get(key))
    edited[section][key] *= factor
    baseline.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert gate.gate_run(RUN_V1, baseline, as_run=True).notes == ()


def test_json_holds_the_raw_numbers() -> None:
    """A program finds outcome, exit code and each verdict's value, limits and threshold."""
    data = json.loads(gate_text.as_json(SITUATIONS["fail_latency"].gated()))
    assert (data["schema"], data["outcome"], data["exit_code"]) == (1, "FAIL", 1)
    verdict = next(v for v in data["verdicts"] if v["rule"] == "latency")
    assert verdict["value"] == pytest.approx(1.1)
    assert verdict["threshold"] == 1.05
    assert verdict["low"] > 1.05


@pytest.mark.parametrize("baseline", [Path("baselines/demo.jsonl"), None])
def test_json_names_what_was_judged_and_against_what(baseline: Path | None) -> None:
    """The suite, the run's folder, and the baseline; null where none was needed."""
    gated = replace(SITUATIONS["fail_latency"].gated(), baseline=baseline)
    data = json.loads(gate_text.as_json(gated))
    assert data["baseline"] == (None if baseline is None else str(baseline))
    assert (data["suite"], data["run"]) == (gated.suite, str(gated.folder))
    assert data["exit_code"] == gated.exit_code


def test_rules_edited_after_the_run_hold_unless_it_is_asked_to_judge_it_as_it_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there to be gated is judged by the suite's file as it stands; a run just made, by its own rules."""
    monkeypatch.chdir(tmp_path)
    described = read_run(RUN_V1).info.suite
    Path(described.file).parent.mkdir(parents=True)
    Path(described.file).write_text(described.text.replace("max_ratio: 0.35", "max_ratio: 0.001"))
    edited, as_run = gate.gate_run(RUN_V1), gate.gate_run(RUN_V1, as_run=True)
    assert {verdict.threshold for verdict in edited.verdicts if verdict.rule == "size"} == {0.001}
    assert {verdict.threshold for verdict in as_run.verdicts if verdict.rule == "size"} == {0.35}
    assert (len(edited.notes), as_run.notes) == (1, ())


def test_an_override_for_no_case_is_noted_by_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the note on what changed in the file: no case of the run has eight threads."""
    monkeypatch.chdir(tmp_path)
    described = read_run(RUN_V1).info.suite
    Path(described.file).parent.mkdir(parents=True)
    Path(described.file).write_text(f"{described.text}  overrides: [{{threads: 8, size: {{max_ratio: 0.5}}}}]\n")
    assert "gate.overrides[0] is for no case of this run" in gate.gate_run(RUN_V1).notes[1]


def test_a_run_folder_is_judged_by_its_own_suite(tmp_path: Path) -> None:
    """gate_run reads suite, records and predictions of the folder; the golden file is the whole text."""
    baseline = write_baseline(RUN_V1, tmp_path, allow_failed=True)
    gated = gate.gate_run(RUN_V1, baseline, as_run=True)
    assert same_as_golden("gate_run_v1.txt", gate_text.text(gated) + "\n")
    assert gated.exit_code == 1


@pytest.mark.parametrize("quick", ["run", "baseline"])
def test_a_quick_look_is_never_judged(tmp_path: Path, quick: str) -> None:
    """Whichever of both it is, the gate is INVALID and says how to make one that counts."""
    described = replace(read_run(RUN_V1).info, quick=QuickInfo(examples=50, of=500))
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    baseline = write_baseline(RUN_V1, tmp_path, allow_failed=True)
    file = folder / "run.json" if quick == "run" else baseline.with_name("quickstart.run.json")
    file.write_text(json.dumps(asdict(described)))

    def rerun(*sides: object) -> Any:
        raise AssertionError("run again")

    first = gate.gate_run(folder, baseline, rerun).verdicts[0]
    assert (first.outcome, first.rule, first.text) == ("INVALID", "run", f"the {quick} is a quick look")
    assert first.reason is not None
    assert "without --quick: `qbench run" in first.reason


def test_a_baseline_of_another_suite_is_refused(tmp_path: Path) -> None:
    """Another suite's baseline is not comparable, and says so by name."""
    file = write_baseline(RUN_V1, tmp_path, allow_failed=True)
    described = file.with_name("quickstart.run.json")
    described.write_text(described.read_text().replace('"name": "quickstart"', '"name": "threads"'))
    with pytest.raises(NotComparable, match="'threads'"):
        gate.gate_run(RUN_V1, file)


def test_per_example_values_decide_a_metric_that_flips_do_not_describe() -> None:
    """Where the change is no count of flips, the stored examples are asked for, with their fp32's."""
    requests: list[tuple[str, str]] = []

    def pairs(record: Record, baseline: Record) -> None:
        requests.append((record.case.id, baseline.case.id))

    rules = policy(ABSOLUTE)
    odd = replace(accuracy(), value=0.9712345, flips=None)
    verdicts = judge_records([fp32(), int8(accuracy=odd)], info(), rules.gate, place=rules.place, pairs=pairs)
    assert requests == [(CASE, FP32)]
    assert verdicts[-1].level == 0.95
    assert asdict(QUIET)["value"] == 1.001


def test_what_is_better_than_fp32_alone_is_no_improvement() -> None:
    """IMPROVED is against the baseline: 2.5 points above fp32 keep the margin, and ask nobody to write anything."""
    gated = Situation("", [fp32(), int8(accuracy=accuracy(beneficial=25))], ABSOLUTE).gated()
    (verdict,) = (verdict for verdict in gated.verdicts if verdict.kind == "metric")
    assert (verdict.outcome, verdict.reason) == ("PASS", None)
