"""The story of a run: plan, prepare, build, evaluate, measure, record; it resumes where it was stopped."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench import cache, machine, peak, run_folder
from qbench.errors import CaseError, UsageError
from qbench.measure.stage import CaseLatency
from qbench.measure.stage import Stage as MeasureStage
from qbench.peak import Peak
from qbench.plan import PlannedCase, load_backends, make_plan, measuring_cores
from qbench.record import Record, Status
from qbench.roofline import roofline
from qbench.run_build import build_variants
from qbench.run_evaluate import evaluate
from qbench.run_flips import keep_images
from qbench.run_guard import doubt_scores
from qbench.run_layers import keep_layers
from qbench.run_ledger import Ledger, plain
from qbench.run_metric import as_before
from qbench.run_prepare import prepare
from qbench.run_runtimes import compare_runtimes
from qbench.run_state import Progress, RunState
from qbench.suite import Suite

__all__ = ["Progress", "RunResult", "run"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run's folder and records; ``elapsed_seconds`` by stage; the exit code of design.md section 4; the command that
    goes on with an interrupted one."""

    folder: Path
    records: list[Record]
    elapsed_seconds: dict[str, float]
    interrupted: bool
    resume: str | None = None

    @property
    def exit_code(self) -> int:
        """0: all cases ok or skipped with a reason; 1: some case failed; 130: interrupted."""
        if self.interrupted:
            return 130
        return 1 if any(one.status == "failed" for one in self.records) else 0


def run(
    suite: Suite,
    *,
    out: Path | None,
    only: str | None,
    resume: Path | None,
    jobs: int | None,
    progress: Progress,
) -> RunResult:
    """Runs a suite; every case ends as a record. After Ctrl-C the result says how to resume."""
    cores = measuring_cores(suite, machine.allowed_cores())
    plan = make_plan(suite, load_backends(suite), cores=len(cores), only=only)
    if not plan.cases and not plan.skipped:
        raise UsageError(f"{suite.file}: nothing to run: {'; '.join(plan.notes) or 'the matrix holds no case'}")
    root = cache.open_cache()
    folder = run_folder.reopen(resume, suite) if resume else run_folder.create(suite, out)
    started, interrupted = _now(), False
    suite = as_before(suite, folder.records())
    state = RunState(
        suite=suite,
        plan=plan,
        folder=folder,
        ledger=Ledger(plan, folder, started=started),
        root=root,
        cores=cores,
        jobs=jobs or len(machine.allowed_cores()),
        progress=progress,
        started=started,
    )
    folder.write_info(suite, plan, started=started, finished=None, elapsed_seconds={})
    try:
        with cache.in_use(root):
            _tell(state)
        folder.tidy()
    except KeyboardInterrupt:
        interrupted = True
    folder.write_info(
        state.suite, plan, started=started, finished=None if interrupted else _now(), elapsed_seconds=state.elapsed
    )
    return RunResult(
        folder=folder.path,
        records=folder.records(),
        elapsed_seconds=state.elapsed,
        interrupted=interrupted,
        resume=folder.resume_command(suite, only) if interrupted else None,
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _tell(state: RunState) -> None:
    """All stages in order."""
    if state.ledger.done:
        state.progress.note(f"{len(state.ledger.done)} of {len(state.plan.cases)} cases are done already")
    state.ledger.skip()
    stages = (("prepare", prepare), ("build", build_variants), ("evaluate", _evaluate), ("measure", _measure))
    for name, stage in stages:
        with state.timed(name):
            stage(state)


def _evaluate(state: RunState) -> None:
    """Predictions and scores, doubts about them, runtimes that differ, images of flips, numbers of layers."""
    evaluate(state)
    doubt_scores(state)
    compare_runtimes(state)
    keep_images(state)
    keep_layers(state)


def _measure(state: RunState) -> None:
    """One group after the other, nothing beside it; each case is recorded as soon as it is known."""
    open_cases = state.ledger.open_cases()
    assert state.data is not None or not open_cases
    wanted = {one.case.id for one in open_cases if one.baseline is not None}
    state.progress.stage("measure", len(wanted))
    if state.data is None:
        return
    most = _measured_peak(state)
    stage = MeasureStage(
        suite=state.suite, data=state.data, cores=state.cores, folder=state.folder.path, limits=state.limits
    )
    for baseline, contenders in _groups(open_cases):
        started = time.monotonic()
        rivals = [one for one in open_cases if _is_rival(one, baseline)]
        arms = {one.case.id: state.ledger.artifacts[one.case.variant.id] for one in (baseline, *contenders, *rivals)}
        measured = stage.measure(
            baseline.case,
            [one.case for one in contenders],
            [one.case for one in rivals],
            arms,
            lambda case: state.progress.advance(case) if case in wanted else None,
            tell=state.progress.advance,
            done=state.ledger.done,
        )
        share = (time.monotonic() - started) / (1 + len(contenders))
        for one in (baseline, *contenders):
            if one.case.id in measured:
                state.seconds[one.case.id, "measure"] = share
                state.ledger.finish(_record_of(state, one, measured[one.case.id], most))
        stage.forget_partial()


def _measured_peak(state: RunState) -> Peak | None:
    """What this core can do at most: from the cache, or measured now in a few seconds."""
    try:
        return peak.measured(state.root, limits=state.limits, cores=state.cores, progress=state.progress.advance)
    except CaseError as error:
        state.progress.note(f"the peak of this core is not known: {error}")
        return None


def _record_of(state: RunState, planned: PlannedCase, measured: CaseLatency, most: Peak | None) -> Record:
    case, artifact = planned.case, state.ledger.artifacts[planned.case.variant.id]
    status: Status = "ok"
    stage = reason = None
    if measured.reason is not None:
        status, stage, reason = "failed", "measure", measured.reason
    return Record(
        case=case.key,
        status=status,
        stage=stage,
        reason=reason,
        reference=planned.reference,
        recipe=plain(artifact.recipe),
        artifact=artifact.facts(),
        accuracy=state.accuracy[case.id],
        roofline=roofline(case, artifact, measured.latency, most),
        layers=state.folder.layers(case.variant.id),
        predictions=f"predictions/{state.predicted[case.id].name}",
        started=state.started,
        elapsed_seconds=state.elapsed_of(case),
        **measured.known(),
    )


def _groups(cases: Sequence[PlannedCase]) -> list[tuple[PlannedCase, list[PlannedCase]]]:
    """Each baseline with the contenders that are compared with it."""
    groups = {one.case.id: (one, list[PlannedCase]()) for one in cases if one.baseline is None}
    for one in cases:
        if one.baseline is not None:
            groups[one.baseline][1].append(one)
    return list(groups.values())


def _is_rival(one: PlannedCase, baseline: PlannedCase) -> bool:
    """Whether a case is the fp32 of another backend with the same model, threads and batch."""
    ours, theirs = baseline.case, one.case
    same = (ours.variant.model.name, ours.threads, ours.batch_size) == (
        theirs.variant.model.name,
        theirs.threads,
        theirs.batch_size,
    )
    return same and one.baseline is None and theirs.id != ours.id
