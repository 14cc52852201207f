"""Stage 9: records + policy + a stored baseline -> one ``Verdict`` per case and rule, and an exit code.

    rule          judged                                             asked for by
    run           the suite's latest run has a case that is ok       a suite's name in place of a run's folder
    run           neither it nor the baseline is a quick look        always
    case          planned cases ran, baseline cases are still there  always
    latency       slowdown against the baseline <= tolerance         a baseline, latency.max_regression, or no rule
    speed-up      speed-up over the like-for-like fp32 >= promise    latency.min_speedup
    size          bytes / bytes of the like-for-like fp32 <= budget  size.max_ratio
    size growth   bytes / bytes in the baseline <= 1.01              a baseline
    <metric>      non-inferior to the like-for-like fp32             accuracy, or labels in the data
    … regression  non-inferior to the baseline's int8                a baseline, accuracy.max_regression

Latency is judged on both artifacts run again (``gate.rerun``, handed to ``gate_run``), else on stored speed-ups.
What cannot be judged is MISSING or INVALID, never PASS. The rules that rest on samples (latency, speed-up, metric)
share one error budget: a FAIL must survive Holm's correction over all of them, else it is INCONCLUSIVE.
``gate`` is pure; ``gate_run`` reads the folder for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.compare import compare
from qbench.errors import NotComparable
from qbench.gate import accuracy, accuracy_regression, latency, size
from qbench.gate.latency import needs_baseline
from qbench.gate.sequential_test import NotRun, Rerun
from qbench.gate.verdict import Evidence, Outcome, Rule, Verdict
from qbench.machine import fingerprint
from qbench.record import locate, stored_run
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Record
from qbench.record.stored_run import QUICK, RunInfo, StoredRun
from qbench.stats import multiple_testing
from qbench.stats.multiple_testing import FAMILY_ERROR

if TYPE_CHECKING:
    from qbench.gate.baseline import Baseline
    from qbench.suite import GateSpec, Suite

__all__ = ["Gated", "Outcome", "Verdict", "exit_code", "gate", "gate_run", "needs_baseline"]

# Worst first (design.md, section 4): a failure is certain, an invalid verdict says that nothing is known.
EXIT_CODES: dict[Outcome, int] = {"FAIL": 1, "INVALID": 3, "MISSING": 3, "INCONCLUSIVE": 4, "IMPROVED": 0, "PASS": 0}


@dataclass(frozen=True, kw_only=True)
class Gated:
    """The verdicts on a run, and what was judged: ``baseline`` is the file it was held against, None without;
    ``reruns`` the raw observations of artifacts that were run again, by case."""

    suite: str
    folder: Path
    baseline: Path | None
    verdicts: tuple[Verdict, ...]
    reruns: Mapping[str, Rerun | NotRun] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 invalid or missing, 4 inconclusive."""
        return exit_code(self.verdicts)


def gate_run(
    folder: Path,
    baseline: Path | None = None,
    rerun: Callable[[StoredRun, Suite, Baseline], Mapping[str, Rerun | NotRun]] | None = None,
    newest: Path | None = None,
) -> Gated:
    """The verdicts on the run in ``folder`` by the gate of its own suite, against a baseline's ``.jsonl`` file.

    ``rerun`` runs the artifacts of both again (``gate.rerun.Rerunner``); without it stored speed-ups are compared.
    ``newest`` is a later run of the suite that was passed over, having no case that is ok: MISSING, whatever the
    older run's verdicts are.
    Raises ``SuiteError`` where this qbench cannot read the run's suite, ``NotComparable`` where the baseline is of
    another suite or metric, ``UsageError`` where a file cannot be read.
    """
    from qbench import suite as suites
    from qbench.gate.baseline import read_baseline

    run = stored_run.read_run(folder)
    suite = suites.parse(run.info.suite.text, file=run.info.suite.file, overrides=run.info.suite.overrides, stored=True)
    against = None if baseline is None else read_baseline(baseline)
    if against is not None and against.info.suite.name != run.info.suite.name:
        raise NotComparable(
            f"{baseline}: the baseline is of suite '{against.info.suite.name}', the run of '{run.info.suite.name}'"
        )
    reruns = {} if rerun is None or against is None else rerun(run, suite, against)
    verdicts = gate(
        run.records,
        run.info,
        suite.gate,
        place=suite.place,
        baseline=against,
        pairs=run.pairs,
        examples=lambda record: run.examples(record, compare.like_for_like(record, run.records)),
        score_of_facts=run.score_of_facts,
        reruns=reruns,
    )
    verdicts = (*_refuse_quick(run.info, None if against is None else against.info, suite.place("suite")), *verdicts)
    if newest is not None:
        verdicts = (_report_newest(newest, run, suite.place("matrix")), *verdicts)
    return Gated(suite=run.info.suite.name, folder=folder, baseline=baseline, verdicts=verdicts, reruns=reruns)


def _refuse_quick(run: RunInfo, baseline: RunInfo | None, place: str) -> list[Verdict]:
    """INVALID for a quick look: it is too coarse to be held to anything, or to hold anything to."""
    told = {"the run": run, "the baseline": baseline}
    rule = Rule(name="run", kind="run", case=run.suite.name, place=place)
    return [
        rule.verdict("INVALID", f"{what} is a {QUICK}", f"make it without --quick: `qbench run {info.suite.file}`")
        for what, info in told.items()
        if info is not None and info.quick is not None
    ]


def _report_newest(newest: Path, run: StoredRun, place: str) -> Verdict:
    """MISSING: a benchmark that failed wholly proves nothing by an older run that is still there."""
    return Rule(name="run", kind="run", case=run.info.suite.name, place=place).verdict(
        "MISSING",
        f"the latest run, {newest.name}, has no case that is ok",
        f"it has {locate.without_ok(newest)} ({newest}); judged is {run.folder.name}, which is older: "
        f"mend the cause and run the suite again, or judge that run by its folder, {run.folder}",
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
    reruns: Mapping[str, Rerun | NotRun] | None = None,
) -> tuple[Verdict, ...]:
    """Every verdict in the order of the records, at least one; pure.

    ``place`` turns a key of the suite (``gate.accuracy.margin``) into file:line. ``baseline`` None: there is none.
    ``examples`` gives what a record's score rests on, to be held against what the baseline keeps.
    ``reruns``: by case, what running both artifacts again gave, or why that could not be.
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
        reruns=reruns or {},
    )
    verdicts = [verdict for record in records for verdict in _check_record(evidence, record)] + _find_absent(evidence)
    nothing = _case_verdict(evidence, info.suite.name, "MISSING", "nothing to judge", "no int8 case was measured")
    return _correct_for_rules(verdicts or [nothing])


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """The exit code of the worst verdict: fail over invalid or missing over inconclusive over pass."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((code for outcome, code in EXIT_CODES.items() if outcome in outcomes), EXIT_CODES["MISSING"])


def _check_record(evidence: Evidence, record: Record) -> list[Verdict]:
    case = record.case.id
    if record.status == "failed":
        reason = f"{record.stage}: {record.reason}" if record.stage else str(record.reason)
        return [_case_verdict(evidence, case, "FAIL", "failed", reason)]
    if record.status == "skipped":
        reason = f"skipped: {record.reason}"
        return (
            [_case_verdict(evidence, case, "MISSING", "the baseline has it", reason)]
            if _baseline_has(evidence, case)
            else []
        )
    if record.case.mode == "fp32":
        return []
    checks = (
        latency.check_latency,
        latency.check_speedup,
        size.check_size,
        size.check_growth,
        accuracy.check_accuracy,
        accuracy_regression.check_regression,
    )
    return [verdict for check in checks if (verdict := check(evidence, record)) is not None]


def _find_absent(evidence: Evidence) -> list[Verdict]:
    """Cases without a record: planned but not reached, or in the baseline and gone."""
    present = {record.case.id for record in evidence.records}
    planned = [case for case in evidence.info.plan.cases if case not in present]
    skipped = {skip.id: f"skipped: {skip.reason}" for skip in evidence.info.plan.skipped}
    absent = [
        case
        for case in evidence.deltas
        if case not in present and case not in planned and _baseline_has(evidence, case)
    ]
    return [
        _case_verdict(
            evidence, case, "MISSING", "no record", "the run did not reach it; go on with `qbench run --resume`"
        )
        for case in planned
    ] + [
        _case_verdict(evidence, case, "MISSING", "the baseline has it", skipped.get(case, "it is not in this run"))
        for case in absent
    ]


def _baseline_has(evidence: Evidence, case: str) -> bool:
    """Whether the baseline has the case, measured."""
    delta = evidence.deltas.get(case)
    return delta is not None and delta.base is not None and delta.base.status == "ok"


def _case_verdict(evidence: Evidence, case: str, outcome: Outcome, text: str, reason: str) -> Verdict:
    """A verdict on whether the case is there at all."""
    return Rule(name="case", kind="case", case=case, place=evidence.place("matrix")).verdict(outcome, text, reason)


def _correct_for_rules(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts, a FAIL by samples turned INCONCLUSIVE where it does not survive Holm over all such rules."""
    sampled = [verdict for verdict in verdicts if verdict.p_value is not None]
    adjusted = multiple_testing.adjust_by_holm([verdict.p_value for verdict in sampled if verdict.p_value is not None])
    by_id = {id(verdict): p for verdict, p in zip(sampled, adjusted, strict=True)}

    def corrected(verdict: Verdict) -> Verdict:
        p = by_id.get(id(verdict))
        # Rounding may leave a single rule's own 5 % a last digit above it.
        if verdict.outcome != "FAIL" or p is None or p <= FAMILY_ERROR * (1 + 1e-9):
            return verdict
        assert verdict.p_value is not None
        times = multiple_testing.estimate_sample_factor(verdict.p_value, len(sampled))
        reason = (
            f"fails alone, but {len(sampled)} rules were judged at once (Holm: p = {p:.2g}); "
            f"about {times:.1f} times as many samples would decide"
        )
        return verdict.unless(reason)

    return tuple(corrected(verdict) for verdict in verdicts)
