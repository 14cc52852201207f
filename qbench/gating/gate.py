"""Stage 9: a run's folder and a stored baseline -> what the rules say of them (``rules``), and an exit code.

Beside the verdicts on cases there are some on the run as a whole:

    run   the suite's latest run has a case that is ok   a suite's name in place of a run's folder
    run   neither it nor the baseline is a quick look    always
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.compare import compare
from qbench.compare.environment import is_same_run
from qbench.errors import NotComparable, UsageError, first_names
from qbench.gating.exit_codes import Outcome, find_exit_code, find_outcome
from qbench.gating.rules import judge_records
from qbench.gating.sequential_test import NotRun, Rerun
from qbench.gating.verdict import GateRule, Verdict
from qbench.portability.compare_hosts import compare_outputs
from qbench.record import locate, stored_run
from qbench.record.schema import Record, read_case_id
from qbench.record.stored_run import QUICK, RunInfo, StoredRun

if TYPE_CHECKING:
    from qbench.gating.baseline import Baseline
    from qbench.suite import Suite

SAME_RUN = "the baseline was made of this very run, so nothing can have changed; gate a later run: `qbench run SUITE`"


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
    def outcome(self) -> Outcome:
        """What it comes to: the worst of what decides the exit code."""
        return find_outcome((verdict.effect, verdict.outcome) for verdict in self.verdicts)

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
    return judge_records(
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


def keep_cases(run: StoredRun, baseline: Baseline | None, only: str) -> tuple[StoredRun, Baseline | None]:
    """Both with the int8 cases whose id matches one of the comma-separated globs, and every fp32; raises ``UsageError``
    for a glob without a match."""
    ids = {record.case.id for record in (*run.records, *(baseline.records if baseline else ()))}
    ids |= {*run.info.plan.cases}
    matched = set()
    for glob in (part.strip() for part in only.split(",")):
        matching = {case for case in ids if fnmatch.fnmatchcase(case, glob)}
        if not matching:
            raise UsageError(f"--filter '{glob}' matches no case; there are {first_names(sorted(ids), 5)}")
        matched |= matching

    def keep(records: Sequence[Record]) -> tuple[Record, ...]:
        return tuple(record for record in records if record.case.id in matched or record.case.mode == "fp32")

    def is_fp32(case: str) -> bool:
        key = read_case_id(case)
        return key is not None and key.mode == "fp32"

    plan = replace(
        run.info.plan,
        cases=tuple(case for case in run.info.plan.cases if case in matched or is_fp32(case)),
        skipped=tuple(skip for skip in run.info.plan.skipped if skip.id in matched),
    )
    filtered = replace(run, info=replace(run.info, plan=plan), records=keep(run.records))
    if baseline is None:
        return filtered, None
    contradictions = {case: text for case, text in baseline.contradictions.items() if case in matched}
    return filtered, replace(baseline, records=keep(baseline.records), contradictions=contradictions)


def refuse_quick(run: RunInfo, baseline: RunInfo | None, place: str) -> list[Verdict]:
    """INVALID for a quick look: it is too coarse to be held to anything, or to hold anything to."""
    sides = {"the run": run, "the baseline": baseline}
    rule = GateRule(name="run", kind="run", case=run.suite.name, place=place)
    return [
        rule.verdict("INVALID", f"{side} is a {QUICK}", f"make it without --quick: `qbench run {info.suite.file}`")
        for side, info in sides.items()
        if info is not None and info.quick is not None
    ]


def report_newest(newest: Path, run: StoredRun, place: str) -> Verdict:
    """MISSING: a benchmark that failed wholly proves nothing by an older run that is still there."""
    return GateRule(name="run", kind="run", case=run.info.suite.name, place=place).verdict(
        "MISSING",
        f"the latest run, {newest.name}, has no case that is ok",
        f"it has {locate.without_ok(newest)} ({newest}); judged is {run.folder.name}, which is older: "
        f"fix the cause and run the suite again, or judge that run by its folder, {run.folder}",
    )
