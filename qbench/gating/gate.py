"""Stage 9: records + policy + a stored baseline -> one ``Verdict`` per case and rule, and an exit code.

    rule           judged                                              asked for by
    run            the suite's latest run has a case that is ok        a suite's name in place of a run's folder
    run            neither it nor the baseline is a quick look         always
    case           planned cases ran, both have the same cases         always
    baseline       one artifact has the same figures in both           a baseline
    latency        slowdown against the baseline <= tolerance          a baseline (latency.max_regression)
    … update       the same under another version of the runtime       the same, both artifacts run again
    speed-up       speed-up over the like-for-like fp32 >= promise     latency.min_speedup
    size           bytes / bytes of the like-for-like fp32 <= budget   size.max_ratio
    size growth    bytes / bytes in the baseline                       a baseline (size.max_growth)
    <metric>       non-inferior to the like-for-like fp32              accuracy, or labels in the data
    … regression   non-inferior to the baseline's int8                 a baseline (accuracy.max_regression)
    cold start     load and first call, seconds                        cold_start.max_seconds
    … growth       the same, both run again                            cold_start.max_regression
    memory         peak of the resident set                            memory.max_bytes
    … growth       the same against the baseline                       memory.max_regression
    coverage       share in int8                                       coverage.min_share
    … drop         the same against the baseline                       a baseline (coverage.max_drop)
    on <host>      loses there no more than the margin                 portability.hosts

Latency is judged on both artifacts run again (``gate.rerun``, handed to ``gate_run``), else on stored speed-ups.
What cannot be judged is MISSING or INVALID, never PASS. A case whose artifact is the baseline's, byte by byte, run by
the same versions on the same kind of host, is PASS where it is held against the baseline. The rules on one case that
rest on samples of one kind (time: latency and speed-up; metric: against fp32 and against the baseline) share one error:
a FAIL must survive Holm's correction over them, else it is INCONCLUSIVE. What that does to the exit code is the suite's
to say (``gate.inconclusive``).
``gate`` is pure; ``gate_run`` reads the folder for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from qbench.compare import compare
from qbench.compare.environment import is_same_run
from qbench.decide.cases import is_unmeasured
from qbench.errors import NotComparable
from qbench.gating import (
    accuracy,
    baseline_figures,
    cold_start,
    coverage,
    latency,
    memory,
    portability,
    size,
)
from qbench.gating.filter_cases import keep_cases
from qbench.gating.latency import needs_baseline
from qbench.gating.outcomes import Effect, Outcome, find_exit_code
from qbench.gating.sequential_test import NotRun, Rerun
from qbench.gating.settle import correct_for_rules, settle
from qbench.gating.verdict import Evidence, Rule, Verdict
from qbench.gating.whole_run import SAME_RUN, refuse_quick, report_newest
from qbench.machine import fingerprint
from qbench.portability.compare_hosts import OutputChange, compare_outputs, is_emulated
from qbench.record import stored_run
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Record
from qbench.record.stored_run import RunInfo, StoredRun

if TYPE_CHECKING:
    from qbench.gating.baseline import Baseline
    from qbench.suite import GateSpec, Suite

__all__ = ["Gated", "Verdict", "gate", "gate_run", "needs_baseline"]


@dataclass(frozen=True, kw_only=True)
class Gated:
    """The verdicts on a run, and what was judged: ``baseline`` is the file it was held against, None without;
    ``reruns`` the raw observations of artifacts that were run again, by case. ``ref``: the commit that the baseline was
    built from here (None: it was committed). ``notes``: what a reader must know beside the verdicts. ``run`` and
    ``held``: what the run was, and what it was held against."""

    suite: str
    folder: Path
    baseline: Path | None
    verdicts: tuple[Verdict, ...]
    reruns: Mapping[str, Rerun | NotRun] = field(default_factory=dict)
    ref: str | None = None
    notes: tuple[str, ...] = ()
    run: RunInfo | None = None
    held: RunInfo | None = None

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 invalid or missing, 4 inconclusive where that holds a change."""
        return find_exit_code({verdict.effect for verdict in self.verdicts})


def gate_run(
    folder: Path,
    baseline: Path | None = None,
    rerun: Callable[[StoredRun, Suite, Baseline], Mapping[str, Rerun | NotRun]] | None = None,
    newest: Path | None = None,
    only: str | None = None,
    suite_file: Path | None = None,
    as_run: bool = False,
    ref: str | None = None,
) -> Gated:
    """The verdicts on the run in ``folder`` by the gate of its own suite, against a baseline's ``.jsonl`` file.

    The rules are those of the suite's file as it stands now, ``suite_file`` where it is given; ``as_run`` takes those
    that the run was made with. ``ref``: the commit that the baseline was just built from.

    ``rerun`` runs the artifacts of both again (``gate.rerun.Rerunner``); without it stored speed-ups are compared.
    ``newest`` is a later run of the suite that was passed over, having no case that is ok: MISSING, whatever the
    older run's verdicts are. ``only``: the cases whose id matches one of its comma-separated globs.
    Raises ``SuiteError`` where this qbench cannot read the run's suite, ``NotComparable`` where the baseline is of
    another suite or metric or is not there, ``UsageError`` where a file cannot be read, or the suite has no rule.
    """
    run, suite, against, notes = _read(folder, baseline, only, suite_file, as_run=as_run)
    quick = refuse_quick(run.info, None if against is None else against.info, suite.place("suite"))
    reruns = {} if rerun is None or against is None or quick else rerun(run, suite, against)
    verdicts = (*quick, *_judge(run, suite, against, reruns, ref))
    if newest is not None:
        verdicts = (report_newest(newest, run, suite.place("matrix")), *verdicts)
    if against is not None and is_same_run(run.info, against.info, run.records, against.records):
        notes = (*notes, SAME_RUN)
    return Gated(
        suite=run.info.suite.name,
        folder=folder,
        baseline=baseline,
        verdicts=verdicts,
        reruns=reruns,
        ref=ref,
        notes=notes,
        run=run.info,
        held=None if against is None else against.info,
    )


def _read(
    folder: Path, baseline: Path | None, only: str | None, suite_file: Path | None, *, as_run: bool
) -> tuple[StoredRun, Suite, Baseline | None, tuple[str, ...]]:
    """The run with the suite whose rules hold, the baseline, and what there is to note of the rules."""
    from qbench.gating.baseline import read_baseline
    from qbench.gating.current_rules import note_idle_overrides, read_rules

    run = stored_run.read_run(folder)
    suite, notes = read_rules(run, suite_file, as_run=as_run)
    notes += note_idle_overrides(run, suite)
    if baseline is not None and not baseline.is_file():
        raise NotComparable(f"{baseline}: no such baseline; write one with `qbench baseline RUN` and commit it")
    against = None if baseline is None else read_baseline(baseline)
    if against is not None and against.info.suite.name != run.info.suite.name:
        raise NotComparable(
            f"{baseline}: the baseline is of suite '{against.info.suite.name}', the run of '{run.info.suite.name}'"
        )
    if only is not None:
        run, against = keep_cases(run, against, only)
    return run, suite, against, notes


def _judge(
    run: StoredRun, suite: Suite, against: Baseline | None, reruns: Mapping[str, Rerun | NotRun], ref: str | None
) -> tuple[Verdict, ...]:
    """The verdicts on what was read."""
    return gate(
        run.records,
        run.info,
        suite.gate,
        place=suite.place,
        baseline=against,
        pairs=run.pairs,
        examples=lambda record: run.examples(record, compare.like_for_like(record, run.records)),
        score_of_facts=run.score_of_facts,
        change=lambda record, native: compare_outputs(run, record, native),
        reruns=reruns,
        ref=ref,
    )


def gate(
    records: Sequence[Record],
    info: RunInfo,
    policy: GateSpec,
    *,
    place: Callable[[str], str],
    baseline: Baseline | None = None,
    pairs: compare.Pairs = lambda record, fp32: None,
    examples: Callable[[Record], ExampleScores | None] = lambda record: None,
    score_of_facts: Callable[[Any], float] | None = None,
    change: Callable[[Record, Record], OutputChange | None] = lambda record, native: None,
    reruns: Mapping[str, Rerun | NotRun] | None = None,
    ref: str | None = None,
) -> tuple[Verdict, ...]:
    """Every verdict in the order of the records, at least one; pure.

    ``place`` turns a key of the suite (``gate.accuracy.margin``) into file:line. ``baseline`` None: there is none.
    ``examples`` gives what a record's score rests on, to be held against what the baseline keeps, ``change`` its
    outputs against those of another record.
    ``reruns``: by case, what running both artifacts again gave, or why that could not be. ``ref``: the commit that the
    baseline was built from, where that is no committed file.
    """
    deltas: dict[str, compare.Delta] = {}
    if baseline is not None:
        field = fingerprint.comparable(baseline.info.environment, info.environment)
        deltas = {delta.case: delta for delta in compare.compare(baseline.records, records, incomparable=field)}
    evidence = Evidence(
        records=records,
        info=info,
        policy=policy,
        place=place,
        baseline=baseline,
        deltas=deltas,
        pairs=pairs,
        examples=examples,
        score_of_facts=score_of_facts,
        change=change,
        reruns=reruns or {},
        ref=ref,
    )
    verdicts = [
        verdict for record in records for verdict in _check_record(evidence.of_case(record.case), record)
    ] + _find_absent(evidence)
    if verdicts:
        return tuple(verdicts)
    return (_case_verdict(evidence, info.suite.name, "MISSING", "nothing to judge", "no int8 case was measured"),)


def _check_record(evidence: Evidence, record: Record) -> list[Verdict]:
    case = record.case.id
    if record.status == "failed":
        reason = f"{record.stage}: {record.reason}" if record.stage else str(record.reason)
        return [_case_verdict(evidence, case, "FAIL", "failed", reason)]
    if record.status == "skipped":
        reason = f"skipped: {record.reason}"
        return [_report_gone(evidence, case, reason)] if evidence.base_of(case) else []
    wrong = baseline_figures.check_figures(evidence, record)
    apart = [] if wrong is None else [wrong]
    if record.case.mode == "fp32" or is_emulated(record.host):
        return apart
    if wrong is not None:
        evidence = baseline_figures.without_base(evidence, record)
    elif evidence.baseline is not None and evidence.base_of(case) is None:
        apart = [_report_new(evidence, case)]
    checks = (
        latency.check_latency,
        latency.check_update,
        latency.check_speedup,
        size.check_size,
        size.check_growth,
        accuracy.check_accuracy,
        accuracy.check_regression,
        cold_start.check_limit,
        cold_start.check_growth,
        memory.check_limit,
        memory.check_growth,
        coverage.check_share,
        coverage.check_drop,
    )
    able = [check for check in checks if not (is_unmeasured(record) and check in _MEASURED)]
    verdicts = [verdict for check in able if (verdict := check(evidence, record)) is not None]
    verdicts += portability.check_hosts(evidence, record)
    return [*apart, *settle(correct_for_rules(verdicts), evidence, record)]


NEW = "not in the baseline"
# What a case whose answers are predicted has nothing to show for.
_MEASURED = (
    latency.check_latency,
    latency.check_update,
    latency.check_speedup,
    cold_start.check_limit,
    cold_start.check_growth,
    memory.check_limit,
    memory.check_growth,
)


def _report_gone(evidence: Evidence, case: str, reason: str) -> Verdict:
    """A case that only the baseline has."""
    return _settle_missing(evidence, _case_verdict(evidence, case, "MISSING", "the baseline has it", reason), "gone")


def _report_new(evidence: Evidence, case: str) -> Verdict:
    """A case that only the run has, or that failed or was skipped when the baseline was made."""
    before = evidence.deltas[case].base
    text = NEW if before is None else f"{before.status} in the baseline"
    later = "add it with `qbench baseline RUN`" if evidence.ref is None else f"{evidence.ref} does not have it"
    reason = f"there is nothing to hold it against; {later}"
    return _settle_missing(evidence, _case_verdict(evidence, case, "MISSING", text, reason), "new")


def _settle_missing(evidence: Evidence, verdict: Verdict, side: Literal["gone", "new"]) -> Verdict:
    """The verdict on a case that only one side has, with what it does by ``gate.missing``."""
    skipped: Effect | None = "skip" if getattr(evidence.policy.missing, side) == "skip" else None
    return replace(verdict, place=evidence.place(f"gate.missing.{side}"), settled=skipped)


def _find_absent(evidence: Evidence) -> list[Verdict]:
    """Cases without a record: planned but not reached, in the baseline and gone, or of no record of the baseline."""
    present = {record.case.id for record in evidence.records}
    planned = [case for case in evidence.info.plan.cases if case not in present]
    skipped = {skip.id: f"skipped: {skip.reason}" for skip in evidence.info.plan.skipped}
    absent = [
        case for case in evidence.deltas if case not in present and case not in planned and evidence.base_of(case)
    ]
    contradictions = {} if evidence.baseline is None else evidence.baseline.contradictions
    wrong = [
        baseline_figures.report_contradiction(evidence, case, contradiction)
        for case, contradiction in contradictions.items()
        if case not in present
    ]
    return (
        wrong
        + [
            _case_verdict(
                evidence, case, "MISSING", "no record", "the run did not reach it; go on with `qbench run --resume`"
            )
            for case in planned
        ]
        + [_report_gone(evidence, case, skipped.get(case, "it is not in this run")) for case in absent]
    )


def _case_verdict(evidence: Evidence, case: str, outcome: Outcome, text: str, reason: str) -> Verdict:
    """A verdict on whether the case is there at all."""
    return Rule(name="case", kind="case", case=case, place=evidence.place("matrix")).verdict(outcome, text, reason)
