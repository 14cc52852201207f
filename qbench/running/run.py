"""The story of a run: plan, prepare, build, evaluate, measure, record; it resumes where it was stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench import consent
from qbench.cache import store
from qbench.errors import UsageError
from qbench.fleet.fleet import Fleet
from qbench.fleet.opening import open_fleet
from qbench.machine import fingerprint
from qbench.plan.planner import make_plan, measuring_cores
from qbench.process.child_process import Limits
from qbench.process.cpu_slots import Slots
from qbench.process.imports import import_ahead
from qbench.process.memory_room import MemoryRoom
from qbench.process.place import Place
from qbench.record.artifact_file import find_in_cache
from qbench.record.schema import Record, variant_id
from qbench.record.stored_run import read_run
from qbench.running import directory as run_directory
from qbench.running.build_stage import build_variants
from qbench.running.case_tracker import CaseTracker
from qbench.running.context import RunContext, RunProgress, now
from qbench.running.diagnostics import keep_flip_images, keep_layer_numbers, warn_of_guessing
from qbench.running.evaluate_stage import evaluate
from qbench.running.expected_time import expect_seconds
from qbench.running.hosts_stage import read_hosts
from qbench.running.measure_stage import measure
from qbench.running.prepare_stage import prepare
from qbench.running.runtimes_stage import compare_runtimes
from qbench.running.saturation_stage import name_layers
from qbench.suite import Suite

# What this process needs for the decision and the report, imported while it waits for the first children.
_NEEDED_LATER = ("scipy.optimize", "scipy.special", "pandas", "matplotlib.figure", "jinja2")

__all__ = ["RunProgress", "RunResult", "run"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run's folder and records; ``elapsed_seconds`` by stage; the exit code of ``qbench run``; the command that
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
        return 1 if any(record.status == "failed" for record in self.records) else 0


def run(
    suite: Suite,
    *,
    out: Path | None,
    only: str | None,
    resume: Path | None,
    jobs: int | None,
    progress: RunProgress,
    on: str | None = None,
    artifacts: Path | None = None,
) -> RunResult:
    """Runs a suite, on the nodes of the cluster ``on`` where one is named; every case ends as a record. ``artifacts``:
    the folder of an earlier run whose artifacts are taken from the cache, and none is built. After Ctrl-C the result
    says how to resume."""
    cache = store.open_cache()
    with contextlib.ExitStack() as opened:
        fleet = None if on is None else opened.enter_context(open_fleet(on, cache, progress.note))
        if resume is not None:
            opened.enter_context(store.hold_folder(cache, resume))
        context = open_run(
            suite, out=out, only=only, resume=resume, jobs=jobs, progress=progress, fleet=fleet, artifacts=artifacts
        )
        if resume is None:
            opened.enter_context(store.hold_folder(cache, context.directory.path))
        return _run_and_record(context, suite, only, on, artifacts)


def _run_and_record(
    context: RunContext, suite: Suite, only: str | None, on: str | None, artifacts: Path | None
) -> RunResult:
    """The result of a run, however it ends."""
    directory, elapsed, interrupted = context.directory, dict[str, float](), False
    try:
        with store.in_use(context.cache):
            _run_stages(context, suite, elapsed)
        directory.tidy()
    except KeyboardInterrupt:
        interrupted = True
    directory.write_end(finished=None if interrupted else now(), elapsed_seconds=elapsed)
    return RunResult(
        folder=directory.path,
        records=directory.records(),
        elapsed_seconds=elapsed,
        interrupted=interrupted,
        resume=directory.resume_command(suite, only, on, artifacts) if interrupted else None,
    )


def open_run(
    suite: Suite,
    *,
    out: Path | None,
    only: str | None,
    resume: Path | None,
    jobs: int | None,
    progress: RunProgress,
    fleet: Fleet | None = None,
    artifacts: Path | None = None,
) -> RunContext:
    """What the stages of a run are given: the suite's plan, the folder with ``run.json``, the cache; raises
    ``UsageError`` before anything runs."""
    cores = measuring_cores(suite, fingerprint.allowed_cores())
    home = None if fleet is None else fleet.home
    plan = make_plan(
        suite,
        cores=len(cores) if home is None else min(len(cores), home.cores),
        only=only,
        memory_bytes=fingerprint.memory_bytes(),
        nodes={} if fleet is None else fleet.cores_by_host,
    )
    if not plan.cases and not plan.skipped:
        raise UsageError(f"{suite.file}: nothing to run: {'; '.join(plan.notes) or 'the matrix holds no case'}")
    cache, started = store.open_cache(), now()
    directory = run_directory.reopen(resume, suite) if resume else run_directory.create(suite, out)
    records = directory.records()
    metric = suite.gate.accuracy.recall_metric(records, suite.base)
    kept = None if artifacts is None else _find_kept(artifacts)
    directory.write_info(suite, plan, metric, started=started, only=only)
    if artifacts is not None:
        directory.write_note(f"nothing was built: the artifacts are those of {artifacts.name}")
    for skip in plan.skipped:
        record = Record(case=skip.key, status="skipped", stage="plan", reason=skip.reason)
        if record not in records:  # a run that is gone on with has told it before
            directory.write_record(record)
    tracker = CaseTracker(plan, directory, records, started=started)
    cases = len(tracker.open_cases())
    if (reason := consent.note_suite(suite)) is not None:
        progress.note(reason)
    progress.expect(expect_seconds(directory.path.parent, suite, cases=cases, cache=cache))
    jobs = jobs or (len(fingerprint.allowed_cores()) if fleet is None else fleet.places)
    slots = Slots(jobs if fleet is None else min(jobs, len(fleet.own.cores)))
    return RunContext(
        directory=directory,
        tracker=tracker,
        limits=Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes),
        cache=cache,
        cores=cores,
        jobs=jobs,
        here=Place(slots=slots),
        memory=MemoryRoom(jobs, on_nodes=fleet is not None),
        progress=progress,
        train_qat=suite.limits.train_qat,
        emulated_samples=suite.evaluate.emulated_samples,
        fleet=fleet,
        kept=kept,
    )


def _find_kept(folder: Path) -> dict[str, Path]:
    """The files of a run's artifacts that the cache still has, by variant; a run's folder itself holds none. Raises
    ``UsageError`` where there is none."""
    kept = {}
    for record in read_run(folder).records:
        if record.status == "ok" and (file := find_in_cache(record)) is not None:
            key = record.case
            kept[variant_id(key.model, key.mode, key.backend, key.recipe)] = file
    if not kept:
        raise UsageError(f"{folder}: none of its artifacts is in the cache any more; run its suite again")
    return kept


def _run_stages(context: RunContext, suite: Suite, elapsed: dict[str, float]) -> None:
    """All stages in order; ``elapsed`` gets how long each took."""
    if done := len(context.tracker.done):
        context.progress.note(f"{done} of {len(context.tracker.planned)} cases are done already")
    imports = import_ahead(_NEEDED_LATER)
    with _timed(elapsed, "prepare"):
        try:
            prepared = prepare(context, suite)
        finally:
            imports.join()  # nothing happens beside a measurement, nor beside what a caller in this process does next
    if prepared is None:
        return
    hosts = read_hosts(context)
    with _timed(elapsed, "build"):
        built = build_variants(context, prepared)
    with _timed(elapsed, "evaluate"):
        evaluated = evaluate(context, prepared, built, hosts)
        warn_of_guessing(context, prepared, evaluated)
        evaluated = compare_runtimes(context, prepared, built, evaluated)
        evaluated = name_layers(context, prepared, built, evaluated)
        keep_flip_images(context, prepared, evaluated)
        if suite.evaluate.layers:
            keep_layer_numbers(context, prepared, built)
    with _timed(elapsed, "measure"):
        for record in measure(context, suite, prepared, built, evaluated):
            context.tracker.record_result(record)


@contextlib.contextmanager
def _timed(elapsed: dict[str, float], stage: str) -> Iterator[None]:
    """Keeps how long a stage took, one that was interrupted too."""
    started = time.monotonic()
    try:
        yield
    finally:
        elapsed[stage] = time.monotonic() - started
