"""Rules of qbench/gating/baseline_figures.py: what one artifact cannot have twice; what is not certain is not said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from made_records import CASE, FP32, accuracy, answers, fp32, info, int8

from qbench import suite
from qbench.gating.baseline import Baseline
from qbench.gating.baseline_figures import _is_close
from qbench.gating.exit_codes import find_exit_code
from qbench.gating.rules import judge_records
from qbench.gating.sequential_test import Rerun
from qbench.gating.verdict import Verdict
from qbench.record.schema import Coverage, HostFacts, Record
from qbench.record.stored_run import MetricInfo, RunInfo

RULES = """suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {}
gate:
  latency: {max_regression: 5%}
  accuracy: {margin: 1.0}
  size: {max_ratio: 0.35}
"""
RUN = info(digests={"data": "d"}, versions={"torch": "2.13.0", "numpy": "2.4.6"})
AGREEMENT = replace(RUN, metric=MetricInfo(name="top1", against="fp32"))


def judge(
    base: Record, run: Record | None = None, *, held: RunInfo = RUN, now: RunInfo = RUN, fp32s: Sequence[Record] = ()
) -> tuple[Verdict, ...]:
    """The verdicts on the case, whose artifact is the baseline's; ``fp32s``: that of the baseline, that of the run."""
    rules = suite.parse(RULES, file="demo.yaml")
    old, new = fp32s or (fp32(), fp32())
    records = (new, run or int8())
    stored = {CASE: scores} if (scores := answers(base)) is not None else {}
    baseline = Baseline(info=held, records=(old, base), examples=stored)
    return judge_records(records, now, rules.gate, place=rules.place, baseline=baseline, examples=answers)


def find_invalid(verdicts: Sequence[Verdict]) -> list[str]:
    """What is said of the baseline's figures, with the reason."""
    return [f"{each.text}; {each.reason}" for each in verdicts if each.rule == "baseline"]


def covered(share: float, layers: int = 12) -> Record:
    """The int8 case with that coverage."""
    record = int8()
    assert record.artifact is not None
    layer_facts = Coverage(macs_int8=share, layers_int8=layers, layers_total=13)
    return replace(record, artifact=replace(record.artifact, coverage=layer_facts))


def test_equal_figures_are_no_contradiction() -> None:
    """Nor where they differ by the digits that a baseline drops, nor times and memory, which move by themselves."""
    score = accuracy(harmful=1, beneficial=1)
    base = int8(accuracy=replace(score, value=float(f"{score.value * (1 + 4e-6):.6g}")), speedup=None)
    verdicts = judge(base)
    assert find_invalid(verdicts) == []
    assert {verdict.outcome for verdict in verdicts} == {"PASS"}


@pytest.mark.parametrize(
    ("before", "now", "close"),
    [
        (1.0, 1.0 + 9e-6, True),
        (1.0, 1.0 + 2e-5, False),
        (1e-5, 1e-5 + 2e-10, True),
        (0.0, 9e-10, True),
        (-4e-10, 4e-10, True),
        (0.0, 2e-9, False),
    ],
)
def test_figures_are_equal_to_the_digits_that_are_kept_and_near_zero(before: float, now: float, close: bool) -> None:
    """A correlation of two constants is 1e-17 here and -1e-17 there: that is no edited file."""
    assert (_is_close(before, now), _is_close(now, before)) == (close, close)


@pytest.mark.parametrize("held", [RUN, replace(RUN, versions={"torch": "2.12.0"}, environment={"cpu": "CPU B"})])
def test_the_bytes_of_one_file_are_the_same_everywhere(held: RunInfo) -> None:
    """On whatever machine and under whatever versions: there the file was edited."""
    (text,) = find_invalid(judge(int8(size_bytes=300_000), held=held))
    assert text.startswith("the same artifact, other figures: 300,000 bytes in the baseline, 260,000 in this run; ")
    assert "the baseline was edited; take the baseline from where it was committed, or write it again" in text


@pytest.mark.parametrize(
    ("base", "text"),
    [
        (int8(accuracy=accuracy(right=980)), "top1 98 % in the baseline, 97 % in this run"),
        (int8(accuracy=accuracy(n=900, right=873)), "900 examples in the baseline, 1,000 in this run"),
        (covered(0.5), "50 % in int8 in the baseline, 98 % in this run"),
        (covered(0.98, 11), "11 of 13 layers in int8 in the baseline, 12 of 13 in this run"),
    ],
)
def test_what_is_computed_is_the_same_where_the_same_computes_it(base: Record, text: str) -> None:
    """Then the file was edited, or this run computes otherwise: both are said, and what differs."""
    (said,) = find_invalid(judge(base))
    assert text in said
    assert "edited, or it is computed otherwise here" in said


OTHER_SCORE = int8(accuracy=accuracy(right=980))
OTHERS: dict[str, dict[str, Any]] = {
    "versions": {"held": replace(RUN, versions={"torch": "2.12.0", "numpy": "2.4.6"})},
    "machine": {"held": replace(RUN, environment={**RUN.environment, "cpu": "CPU B"})},
    "data": {"held": replace(RUN, digests={"data": "e"})},
    "data that are not told": {"held": replace(RUN, digests={}), "now": replace(RUN, digests={})},
    "metric": {"held": replace(RUN, metric=MetricInfo(name="top1", higher_is_better=False))},
    "node": {"run": int8(host=HostFacts(kind="native", cpu="CPU C"))},
    "postprocess": {"now": replace(RUN, digests={"data": "d", "the postprocess of net": "p"})},
    "score": {"now": replace(RUN, digests={"data": "d", "the score in my.py": "s"})},
    "fp32 that outputs are held against": {
        "held": AGREEMENT, "now": AGREEMENT, "fp32s": (fp32(), replace(fp32(), artifact=None)),
    },
    "fp32 that is gone": {
        "held": AGREEMENT, "now": AGREEMENT, "fp32s": (fp32(), fp32("other/fp32/torch/t1/b1")),
    },
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_where_something_else_computed_the_score_nothing_is_said_of_it(other: str) -> None:
    """Another score is then a change that the gate's other rules judge."""
    verdicts = judge(OTHER_SCORE, **OTHERS[other])
    assert find_invalid(verdicts) == []
    assert "top1 regression" in {verdict.rule for verdict in verdicts}


def elsewhere(record: Record) -> Record:
    """The record of another host than the one that builds."""
    return replace(record, case=replace(record.case, host="avx2"))


def unknown(record: Record) -> Record:
    """The record, its share of work in int8 not counted."""
    assert record.artifact is not None
    return replace(
        record, artifact=replace(record.artifact, coverage=replace(covered(0.5).artifact.coverage, macs_int8=None))
    )


BARE = replace(int8(), artifact=replace(int8().artifact, coverage=None))


@pytest.mark.parametrize(
    ("base", "run", "metric"),
    [
        (elsewhere(OTHER_SCORE), elsewhere(int8()), RUN.metric),
        (int8(), BARE, RUN.metric),
        (BARE, int8(), RUN.metric),
        (unknown(int8()), int8(), RUN.metric),
        (int8(), unknown(int8()), RUN.metric),
        (OTHER_SCORE, int8(accuracy=None), RUN.metric),
        (int8(accuracy=None), int8(), RUN.metric),
        (int8(accuracy=replace(accuracy(right=980), metric="f1")), int8(), RUN.metric),
        (OTHER_SCORE, int8(), None),
    ],
)
def test_what_one_side_does_not_know_contradicts_nothing(base: Record, run: Record, metric: MetricInfo | None) -> None:
    """Nor what another host computes, another metric says, or no metric of the run stands for."""
    described = replace(RUN, metric=metric)
    assert find_invalid(judge(base, run, held=described, now=described)) == []


def test_agreement_with_one_fp32_is_compared() -> None:
    """The same two files on the same data agree as much as before."""
    assert len(find_invalid(judge(OTHER_SCORE, held=AGREEMENT, now=AGREEMENT))) == 1


def other_file(record: Record) -> Record:
    """The record with another artifact."""
    assert record.artifact is not None
    return replace(record, artifact=replace(record.artifact, sha256="b" * 64))


def test_another_artifact_may_have_other_figures() -> None:
    """What was built anew is judged by the rules."""
    assert find_invalid(judge(other_file(int8(size_bytes=300_000)))) == []


def test_a_case_of_such_a_baseline_is_held_against_nothing_of_it() -> None:
    """One verdict says why; the rules that need no baseline are judged, and the gate is INVALID."""
    verdicts = judge(int8(size_bytes=300_000))
    assert [verdict.rule for verdict in verdicts if verdict.case == CASE] == ["baseline", "size", "top1"]
    assert find_exit_code([verdict.effect for verdict in verdicts]) == 3


def test_a_baseline_that_contradicts_itself_judges_no_update_either() -> None:
    """Where another artifact was run again under another version of its runtime: its stored times are not believed."""
    rules = suite.parse(RULES, file="demo.yaml")
    held = replace(RUN, versions={"torch": "2.12.0"})
    contradiction = {CASE: "its examples score 1, its record in the baseline 2"}
    baseline = Baseline(info=held, records=(fp32(), other_file(int8())), contradictions=contradiction)
    reruns = {CASE: Rerun(pairs=(), analysis=None, cut=True)}
    verdicts = judge_records(
        (fp32(), int8()), RUN, rules.gate, place=rules.place, baseline=baseline, examples=answers, reruns=reruns
    )
    assert [verdict.rule for verdict in verdicts if verdict.case == CASE] == ["baseline", "size", "top1"]


def test_the_fp32_of_a_baseline_is_looked_at_too() -> None:
    """Stored speed-ups rest on it."""
    verdicts = judge(int8(), fp32s=(fp32(size_bytes=2_000_000), fp32()))
    assert [verdict.case for verdict in verdicts if verdict.rule == "baseline"] == [FP32]
    assert find_exit_code([verdict.effect for verdict in verdicts]) == 3
