"""Stage 9: records + policy + a stored baseline -> one ``Verdict`` per case and rule, and an exit code.

    rule          judged                                             asked for by
    case          planned cases ran, baseline cases are still there  always
    latency       slowdown against the baseline <= tolerance         a baseline, latency.max_regression, or no rule
    speed-up      speed-up over the like-for-like fp32 >= promise    latency.min_speedup
    size          bytes / bytes of the like-for-like fp32 <= budget  size.max_ratio
    size growth   bytes / bytes in the baseline <= 1.01              a baseline
    <metric>      non-inferior to the like-for-like fp32             accuracy, or labels in the data
    … regression  non-inferior to the baseline's int8                a baseline, accuracy.max_regression

Latency is judged on both artifacts run again (``gate_live``, which ``gate_run`` is handed), else on stored speed-ups.
What cannot be judged is MISSING or INVALID, never PASS. The rules that rest on samples (latency, speed-up, metric)
share one error budget: a FAIL must survive Holm's correction over all of them, else it is INCONCLUSIVE.
``gate`` is pure; ``gate_run`` reads the folder for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench import compare, decide, gate_latency, gate_regression, gate_rules, machine, stored
from qbench.decide import FAMILY_ERROR
from qbench.errors import NotComparable
from qbench.example_scores import ExampleScores
from qbench.gate_evidence import Evidence, Outcome, Verdict
from qbench.gate_latency import needs_baseline
from qbench.gate_looks import NotRun, Rerun
from qbench.record import Record
from qbench.stored import RunInfo, StoredRun

if TYPE_CHECKING:
    from qbench.baseline import Baseline
    from qbench.suite import GateSpec, Suite

__all__ = ["Gated", "Outcome", "Verdict", "exit_code", "gate", "gate_run", "needs_baseline"]

# Worst first (design.md, section 4): a failure is certain, an invalid one says that nothing was found out.
EXIT_CODES: dict[Outcome, int] = {"FAIL": 1, "INVALID": 3, "MISSING": 3, "INCONCLUSIVE": 4, "PASS": 0}


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
) -> Gated:
    """The verdicts on the run in ``folder`` by the gate of its own suite, against a baseline's ``.jsonl`` file.

    ``rerun`` runs the artifacts of both again (``gate_live.Rerunner``); without it stored speed-ups are compared.
    Raises ``SuiteError`` where this qbench cannot read the run's suite, ``NotComparable`` where the baseline is of
    another suite or metric, ``UsageError`` where a file cannot be read.
    """
    from qbench import suite as suites
    from qbench.baseline import read_baseline

    run = stored.read_run(folder)
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
    return Gated(suite=run.info.suite.name, folder=folder, baseline=baseline, verdicts=verdicts, reruns=reruns)


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
        field = machine.comparable(baseline.info.environment, info.environment)
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
    verdicts = [verdict for record in records for verdict in _of_record(evidence, record)] + _absent(evidence)
    nothing = _case(evidence, info.suite.name, "MISSING", "nothing to judge", "no int8 case was measured")
    return _within_error_budget(verdicts or [nothing])


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """The exit code of the worst verdict: fail over invalid or missing over inconclusive over pass."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((code for outcome, code in EXIT_CODES.items() if outcome in outcomes), EXIT_CODES["MISSING"])


def _of_record(evidence: Evidence, record: Record) -> list[Verdict]:
    case = record.case.id
    if record.status == "failed":
        reason = f"{record.stage}: {record.reason}" if record.stage else str(record.reason)
        return [_case(evidence, case, "FAIL", "failed", reason)]
    if record.status == "skipped":
        reason = f"skipped: {record.reason}"
        return [_case(evidence, case, "MISSING", "the baseline has it", reason)] if _had(evidence, case) else []
    if record.case.mode == "fp32":
        return []
    rules = (
        gate_latency.latency,
        gate_latency.speedup,
        gate_rules.size,
        gate_rules.size_growth,
        gate_rules.accuracy,
        gate_regression.regression,
    )
    return [verdict for rule in rules if (verdict := rule(evidence, record)) is not None]


def _absent(evidence: Evidence) -> list[Verdict]:
    """Cases without a record: planned but not reached, or in the baseline and gone."""
    present = {record.case.id for record in evidence.records}
    planned = [case for case in evidence.info.plan.cases if case not in present]
    skipped = {skip.id: f"skipped: {skip.reason}" for skip in evidence.info.plan.skipped}
    gone = [case for case in evidence.deltas if case not in present and case not in planned and _had(evidence, case)]
    return [
        _case(evidence, case, "MISSING", "no record", "the run did not reach it; go on with `qbench run --resume`")
        for case in planned
    ] + [
        _case(evidence, case, "MISSING", "the baseline has it", skipped.get(case, "it is not in this run"))
        for case in gone
    ]


def _had(evidence: Evidence, case: str) -> bool:
    """Whether the baseline has the case, measured."""
    delta = evidence.deltas.get(case)
    return delta is not None and delta.base is not None and delta.base.status == "ok"


def _case(evidence: Evidence, case: str, outcome: Outcome, text: str, reason: str) -> Verdict:
    return Verdict(outcome=outcome, case=case, rule="case", place=evidence.place("matrix"), text=text, reason=reason)


def _within_error_budget(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts, a FAIL by samples turned INCONCLUSIVE where it does not survive Holm over all such rules."""
    sampled = [verdict for verdict in verdicts if verdict.p_value is not None]
    adjusted = decide.holm([verdict.p_value for verdict in sampled if verdict.p_value is not None])
    by_id = {id(verdict): p for verdict, p in zip(sampled, adjusted, strict=True)}

    def corrected(verdict: Verdict) -> Verdict:
        p = by_id.get(id(verdict))
        # Rounding may leave a single rule's own 5 % a last digit above it.
        if verdict.outcome != "FAIL" or p is None or p <= FAMILY_ERROR * (1 + 1e-9):
            return verdict
        assert verdict.p_value is not None
        times = decide.times_to_decide(verdict.p_value, len(sampled))
        reason = (
            f"fails alone, but {len(sampled)} rules were judged at once (Holm: p = {p:.2g}); "
            f"about {times:.1f} times as many samples would decide"
        )
        return replace(verdict, outcome="INCONCLUSIVE", reason=reason)

    return tuple(corrected(verdict) for verdict in verdicts)
