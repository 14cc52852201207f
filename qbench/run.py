"""The story of a run: plan, prepare, build, evaluate, measure, record; it resumes where it was stopped."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from qbench import cache, machine, peak, registry, run_folder
from qbench.backends.base import Backend
from qbench.build import Artifact, build
from qbench.errors import CaseError, CaseSkipped, UsageError
from qbench.inputs import Data, Model, prepare_data, prepare_model, request_of
from qbench.measure.stage import CaseLatency
from qbench.measure.stage import Stage as MeasureStage
from qbench.models.base import ModelReference
from qbench.peak import Peak
from qbench.plan import Case, Plan, PlannedCase, Variant, load_backends, make_plan, measuring_cores
from qbench.process import Limits, call, end_all
from qbench.record import Accuracy, Record, Status
from qbench.roofline import roofline
from qbench.run_folder import RunFolder
from qbench.run_ledger import Ledger, plain
from qbench.suite import Suite


class Progress(Protocol):
    """Who hears how a run goes."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins, with that many steps if they are known."""

    def advance(self, text: str, share: float | None = None) -> None:
        """A step is done (``share`` None), or is that far (0 to 1)."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run's folder and records; ``elapsed_seconds`` by stage; the exit code of design.md section 4."""

    folder: Path
    records: list[Record]
    elapsed_seconds: dict[str, float]
    interrupted: bool

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
    """Runs a suite; every case ends as a record. Ctrl-C keeps what is known and tells how to resume."""
    cores = measuring_cores(suite, machine.allowed_cores())
    plan = make_plan(suite, load_backends(suite), cores=len(cores), only=only)
    if not plan.cases and not plan.skipped:
        raise UsageError(f"{suite.file}: nothing to run: {'; '.join(plan.notes) or 'the matrix holds no case'}")
    root = cache.open_cache()
    folder = run_folder.reopen(resume, suite) if resume else run_folder.create(suite, out)
    started, interrupted = _now(), False
    story = _Story(
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
        story.tell()
    except KeyboardInterrupt:
        interrupted = True
        progress.note(f"interrupted; what is known is kept. Go on with: {folder.resume_command(suite, only)}")
    folder.write_info(
        suite, plan, started=started, finished=None if interrupted else _now(), elapsed_seconds=story.elapsed
    )
    return RunResult(
        folder=folder.path, records=folder.records(), elapsed_seconds=story.elapsed, interrupted=interrupted
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclass(kw_only=True)
class _Story:
    """One run as it goes: what is known so far, by variant and by case."""

    suite: Suite
    plan: Plan
    folder: RunFolder
    ledger: Ledger
    root: Path
    cores: tuple[int, ...]
    jobs: int
    progress: Progress
    started: str
    elapsed: dict[str, float] = field(default_factory=dict)
    data: Data | None = None
    models: dict[str, Model] = field(default_factory=dict)
    predicted: dict[str, Path] = field(default_factory=dict)
    accuracy: dict[str, Accuracy] = field(default_factory=dict)
    peak: Peak | None = None
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def tell(self) -> None:
        """All stages in order."""
        if self.ledger.done:
            self.progress.note(f"{len(self.ledger.done)} of {len(self.plan.cases)} cases are done already")
        self.ledger.skip()
        with self._timed("prepare"):
            self._prepare()
        with self._timed("build"):
            self._build()
        with self._timed("evaluate"):
            self._evaluate()
        with self._timed("measure"):
            self._measure()

    def _prepare(self) -> None:
        """Data and networks, each checked in a process of its own; what fails here fails every case that needs it."""
        references: dict[str, ModelReference] = {
            one.case.variant.model.name: one.case.variant.model for one in self.ledger.open_cases()
        }
        if not references:
            return
        self.progress.stage("prepare", 1 + len(references))
        try:
            request = request_of(
                self.suite.data, self.suite.base, train=any(one.case.variant.mode == "qat" for one in self.plan.cases)
            )
            self.data = call(prepare_data, request, self.root, limits=self.limits, progress=self.progress.advance)
        except CaseError as error:
            self.ledger.break_([one.case for one in self.plan.cases], "data", error)
            return
        for note in self.data.notes:
            self.progress.note(note)
        self.progress.advance("data")
        metric = self.suite.gate.accuracy.metric
        self._each("prepare", list(references.values()), lambda reference: self._prepare_one(reference, metric))
        self.folder.require_same_inputs(self._digests())

    def _digests(self) -> dict[str, str]:
        """What names the data and the networks of this run: a resumed run must have the same."""
        assert self.data is not None
        named = {f"model {name}": f"{one.weights_digest}+{one.code_digest}" for name, one in self.models.items()}
        return {"data": f"{self.data.calibration_digest}+{self.data.evaluation_digest}", **named}

    def _prepare_one(self, reference: ModelReference, metric: str) -> None:
        def report(text: str, share: float) -> None:
            self.progress.advance(f"{reference.name}: {text}", share)

        try:
            model: Model = call(
                prepare_model, reference, self.data, metric, self.root, limits=self.limits, progress=report
            )
            self.models[reference.name] = model
            for note in model.notes:
                self.progress.note(note)
        except CaseError as error:
            cases = [one.case for one in self.plan.cases if one.case.variant.model.name == reference.name]
            self.ledger.break_(cases, "model", error)
        self.progress.advance(reference.name)

    def _build(self) -> None:
        """fp32 first: int8 files of some runtimes are made from the fp32 file of the same runtime."""
        variants = {one.case.variant.id: one.case.variant for one in self.ledger.open_cases()}
        self.progress.stage("build", len(variants))
        for first in (True, False):
            chosen = [one for one in variants.values() if (one.mode == "fp32") == first]
            self._each("build", chosen, self._build_one)

    def _build_one(self, variant: Variant) -> None:
        cases = [one.case for one in self.plan.cases if one.case.variant.id == variant.id]
        backend: Backend = registry.load("backend", variant.backend)
        baseline = self.ledger.artifacts.get(f"{variant.model.name}/fp32/{backend.runtime}")
        started = time.monotonic()

        def report(text: str, share: float) -> None:
            self.progress.advance(f"{variant.id}: {text}", share)

        try:
            if variant.mode != "fp32" and baseline is None:
                raise CaseError(f"its baseline {variant.model.name}/fp32/{backend.runtime} could not be built")
            assert self.data is not None
            artifact = build(
                variant,
                model=self.models[variant.model.name],
                data=self.data,
                baseline=baseline,
                root=self.root,
                limits=self.limits,
                progress=report,
            )
            self.ledger.artifacts[variant.id] = artifact
            for note in artifact.notes:
                if "damaged" in note:
                    self.progress.note(f"{variant.id}: {note}")
            self._refuse_other_batches(artifact, cases)
        except (CaseError, CaseSkipped) as error:
            self.ledger.break_(cases, "build", error)
        self._took(cases, "build", started)
        self.progress.advance(variant.id)

    def _refuse_other_batches(self, artifact: Artifact, cases: Sequence[Case]) -> None:
        if artifact.fixed_batch is None:
            return
        wrong = [case for case in cases if case.batch_size != artifact.fixed_batch]
        reason = f"the model takes batches of {artifact.fixed_batch} only; export it with a dynamic batch axis"
        self.ledger.break_(wrong, "build", CaseSkipped(reason))

    def _evaluate(self) -> None:
        """Predictions are shared by the cases of a variant, but for dynamic ones, whose outputs depend on the batch.

        fp32 first: the others are scored against its predictions. What an earlier part of the run has is kept.
        """
        wanted: dict[str, list[PlannedCase]] = {}
        for one in self.ledger.open_cases():
            wanted.setdefault(_prediction_name(one.case), []).append(one)
        self.progress.stage("evaluate", len(wanted))
        for first in (True, False):
            chosen = [item for item in wanted.items() if (item[1][0].baseline is None) == first]
            self._each("evaluate", chosen, lambda item: self._evaluate_one(*item))

    def _evaluate_one(self, name: str, planned: list[PlannedCase]) -> None:
        from qbench.evaluate import predict
        from qbench.score import score

        cases = [one.case for one in planned]
        file = self.folder.path / "predictions" / f"{name}.npz"
        artifact = self.ledger.artifacts[cases[0].variant.id]
        base = self.predicted.get(planned[0].baseline) if planned[0].baseline else None
        started = time.monotonic()

        def report(text: str, share: float) -> None:
            self.progress.advance(f"{name}: {text}", share)

        try:
            assert self.data is not None
            kept = file.exists() and all(case.id in self.ledger.done for case in cases)
            if not kept:
                predict(artifact, self.data, cases[0].batch_size, file, limits=self.limits, progress=report)
                metric = self.suite.gate.accuracy.metric
                found = score(metric, file, base, self.data.classes, limits=self.limits, progress=report)
                self.accuracy.update({case.id: found for case in cases})
            self.predicted.update({case.id: file for case in cases})
        except CaseError as error:
            self.ledger.break_(cases, "evaluate", error)
        self._took(cases, "evaluate", started)
        self.progress.advance(name)

    def _measure(self) -> None:
        """One group after the other, nothing beside it; each case is recorded as soon as it is known."""
        assert self.data is not None or not self.ledger.open_cases()
        open_cases = self.ledger.open_cases()
        wanted = {one.case.id for one in open_cases if one.baseline is not None}
        self.progress.stage("measure", len(wanted))
        if self.data is None:
            return
        self.peak = self._measured_peak()
        stage = MeasureStage(
            suite=self.suite, data=self.data, cores=self.cores, folder=self.folder.path, limits=self.limits
        )
        for baseline, contenders in _groups(open_cases):
            started = time.monotonic()
            rivals = [one for one in open_cases if _is_rival(one, baseline)]
            arms = {one.case.id: self.ledger.artifacts[one.case.variant.id] for one in (baseline, *contenders, *rivals)}
            measured = stage.measure(
                baseline.case,
                [one.case for one in contenders],
                [one.case for one in rivals],
                arms,
                lambda case: self.progress.advance(case) if case in wanted else None,
                done=self.ledger.done,
            )
            share = (time.monotonic() - started) / (1 + len(contenders))
            for one in (baseline, *contenders):
                if one.case.id in measured:
                    self.seconds[one.case.id, "measure"] = share
                    self.ledger.finish(self._record_of(one, measured[one.case.id]))
            stage.forget_partial()

    # --- records -----------------------------------------------------------------------------------------

    def _record_of(self, planned: PlannedCase, measured: CaseLatency) -> Record:
        case, artifact = planned.case, self.ledger.artifacts[planned.case.variant.id]
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
            accuracy=self.accuracy[case.id],
            roofline=roofline(case, artifact, measured.latency, self.peak),
            layers=self._layers(artifact, case),
            predictions=f"predictions/{self.predicted[case.id].name}",
            started=self.started,
            elapsed_seconds=self._elapsed_of(case),
            **measured.known(),
        )

    def _measured_peak(self) -> Peak | None:
        """What this core can do at most: from the cache, or measured now in a few seconds."""
        try:
            return peak.measured(self.root, limits=self.limits, cores=self.cores, progress=self.progress.advance)
        except CaseError as error:
            self.progress.note(f"the peak of this core is not known: {error}")
            return None

    def _layers(self, artifact: Artifact, case: Case) -> str | None:
        """Keeps the numbers of each layer, where the suite asks for them and the artifact has them."""
        if not self.suite.evaluate.layers or not artifact.layer_numbers:
            return None
        return self.folder.write_layers(case.variant.id, artifact.layer_numbers)

    def _elapsed_of(self, case: Case) -> dict[str, float]:
        return {stage: round(s, 3) for (name, stage), s in self.seconds.items() if name == case.id}

    # --- small things ------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """What one request to a child may take."""
        return Limits(seconds=self.suite.limits.stage_seconds, memory_bytes=self.suite.limits.memory_bytes)

    def _took(self, cases: Sequence[Case], stage: str, started: float) -> None:
        for case in cases:
            self.seconds[case.id, stage] = time.monotonic() - started

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.elapsed[stage] = time.monotonic() - started

    def _each(self, name: str, things: Sequence[Any], work: Callable[[Any], None]) -> None:
        """Several at a time, one core each, while nothing is being timed."""
        with ThreadPoolExecutor(max_workers=self.jobs, thread_name_prefix=name) as pool:
            futures = [pool.submit(work, thing) for thing in things]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self.ledger.stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()  # else leaving the pool would wait for what the children are at
                raise


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


def _prediction_name(case: Case) -> str:
    name = case.variant.id if case.variant.mode != "dynamic" else f"{case.variant.id}/b{case.batch_size}"
    return name.replace("/", "__")
