"""A case of a run made ready to be explained: its artifact and its fp32's, real examples, the network that they come
from, and the suite that both are built from, where it can be trusted: a run's folder can come from anybody."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import consent, registry
from qbench import suite as suites
from qbench.backends.base import Backend
from qbench.build import Artifact, build
from qbench.compare.compare import like_for_like, oriented
from qbench.data import Data, request_of
from qbench.data_preparation import prepare_data
from qbench.decide import cases
from qbench.errors import SuiteError, UsageError, first_names
from qbench.explain.change import Change
from qbench.hosts.base import Host
from qbench.machine import fingerprint
from qbench.measure.worker import INPUTS, WorkerSpec
from qbench.metrics.spec import MetricSpec
from qbench.models.postprocess import Postprocess
from qbench.modes import float_of, is_int8
from qbench.network import Model, prepare_model
from qbench.plan.cases import Case, Variant
from qbench.plan.planner import load_backends, measuring_cores
from qbench.plan.variants import Variants
from qbench.process.child_process import Limits, call
from qbench.progress.live import Silent
from qbench.record.schema import NATIVE, CaseKey, Record
from qbench.record.stored_run import RUN, MetricInfo, StoredRun
from qbench.stats import noninferiority
from qbench.stats.interval_type import Interval
from qbench.stats.thresholds import Outcome
from qbench.suite import Suite
from qbench.suite.accuracy import OF_ANY_OUTPUTS

# What artifacts and examples come from.
_DECIDES = ("suite", "models", "data", "quantize", "recipe")


@dataclass(frozen=True, kw_only=True)
class OpenCase:
    """What a case is explained from. ``artifact`` and ``fp32`` were built from the suite (or lay in the cache);
    ``notes`` say where they are not the run's, byte by byte. ``fp32_case`` is the like-for-like fp32."""

    run: StoredRun
    suite: Suite
    backends: Mapping[str, Backend]
    variants: Variants
    progress: Silent
    data: Data
    model: Model
    cache: Path
    cores: tuple[int, ...]
    record: Record
    case: Case
    artifact: Artifact
    fp32_case: Case
    fp32: Artifact
    notes: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits:
        """What one request to a child may take."""
        return Limits(seconds=self.suite.limits.stage_seconds, memory_bytes=self.suite.limits.memory_bytes)

    @property
    def record_seconds(self) -> float | None:
        """About what a call takes, by the run."""
        return cases.p50(self.record)

    @property
    def recipe_keys(self) -> dict[str, Any]:
        """What the suite says in the case's recipe; nothing where it has none of that name."""
        named = self.case.variant.recipe.name
        return {key: value for choice in self.suite.recipe if choice.name == named for key, value in choice.keys}

    @property
    def recipes(self) -> tuple[str, ...]:
        """The names of the suite's recipes."""
        return tuple(choice.name for choice in self.suite.recipe)

    @property
    def metric(self) -> MetricSpec:
        """The metric that the run was judged by."""
        return _find_metric(self.run, self.suite, self.data)

    @property
    def metric_info(self) -> MetricInfo:
        """What the run says of its metric."""
        return self.run.info.metric or MetricInfo(name=self.metric.name)

    @property
    def postprocess(self) -> Postprocess | None:
        """What makes answers of the network's outputs; None where these are judged themselves."""
        return self.model.postprocess

    @property
    def judged_output(self) -> int:
        """The place of the output that the record's score is of."""
        return 0 if self.record.accuracy is None else self.record.accuracy.judged

    def assess_loss(self, delta: Interval | None) -> Outcome | None:
        """Whether a change of the run's metric against fp32 keeps to the suite's margin; None where it is not known."""
        margin, metric = self.suite.gate.accuracy.margin, self.metric_info
        if delta is None:
            return None
        return noninferiority.assess_interval(oriented(delta, metric.sign), margin / metric.scale).outcome

    def apply(self, change: Change) -> Case:
        """The case with a change."""
        return change.apply(self.case, self.variants)

    def case_of(self, key: CaseKey) -> Case:
        """Another case of the run; raises ``UsageError`` where the suite has none such any more."""
        return self.variants.case(key)

    def call_child(self, function: Callable[..., Any], *arguments: object, cores: int | None = None) -> Any:
        """A function's answer from a child, on the last ``cores`` of those where cases are measured."""
        return call(
            function,
            *arguments,
            limits=self.limits,
            cores=None if cores is None else self.cores[-cores:],
            progress=self.progress.advance,
        )

    def build(self, variant: Variant, data: Data | None = None, *, watched: bool = False) -> Artifact:
        """Another variant of the same network, from the cache or built now; ``data``: other calibration examples;
        ``watched``: only to tell where its time goes."""
        return build(
            variant,
            model=self.model,
            data=data or self.data,
            root=self.cache,
            limits=self.limits,
            progress=lambda text, share: self.progress.advance(f"{variant.id}: {text}", share),
            train_qat=False,
            watched=watched,
        )

    def specify_worker(self, name: str, case: Case, artifact: Artifact, **environment: str) -> WorkerSpec:
        """How a case is measured here."""
        count = min(self.data.evaluation_count, INPUTS * case.batch_size)
        return WorkerSpec(
            case=name,
            backend=case.variant.backend,
            file=artifact.file,
            threads=case.threads,
            batch_size=case.batch_size,
            cores=self.cores[-case.threads :],
            inputs=self.data.evaluation(0, count),
            environment=environment,
            precision=float_of(case.variant.mode),
            postprocess=self.postprocess if self.postprocess and self.postprocess.timed else None,
        )


def load_all_backends(suite: Suite) -> dict[str, Backend]:
    """The backends of the suite, and those of registered ones that can be used here."""
    asked = load_backends(suite)
    registered = {name: registry.load("backend", name) for name in registry.names("backend") if name not in asked}
    return {**asked, **{name: backend for name, backend in registered.items() if backend.missing() is None}}


def find_record(run: StoredRun, case: str, concerns: Collection[str] = ("time",)) -> Record:
    """The record of an int8 case; raises ``UsageError`` where what concerns one cannot be explained here."""
    records = {record.case.id: record for record in run.records}
    record = records.get(case)
    can = [key for key, record in records.items() if why_not_explained(record, concerns) is None]
    if record is None:
        raise UsageError(f"no case {case!r} in {run.folder}; cases to explain: {first_names(can, 5) or 'none'}")
    if (reason := why_not_explained(record, concerns)) is not None:
        raise UsageError(f"{case}: {reason}; cases to explain: {first_names(can, 5) or 'none'}")
    return record


def why_not_explained(record: Record, concerns: Collection[str] = ("time",)) -> str | None:
    """Why a record's case cannot be explained; None where it can. Of a host that this CPU acts as, accuracy can."""
    host = record.case.host
    if record.status != "ok":
        return f"it is {record.status}, so there is nothing to explain"
    if not is_int8(record.case.mode):
        return f"it is {record.case.mode}; int8 cases are explained, against fp32"
    if host == NATIVE:
        return None
    plugin: Host = registry.load("host", host)
    if plugin.kind != "limited":
        return f"it ran on the host {host}; only what runs on this machine can be tried"
    if "time" in concerns:
        return f"it ran on the host {host}, which is no machine to be fast on; --of accuracy says what it loses there"
    return None


def open_case(run: StoredRun, record: Record, suite: Suite, cache: Path, progress: Silent) -> OpenCase:
    """The case of a record made ready; raises ``CaseError`` where data, network or a variant cannot be had."""
    limits = Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes)
    cores = measuring_cores(suite, fingerprint.allowed_cores())
    backends = load_all_backends(suite)
    variants = Variants(suite, backends)
    case = variants.case(record.case)
    reference = variants.find_fp32(record.case)
    assert reference is not None  # only an fp32 has none
    fp32_case = variants.case(reference)
    train = any(each.case.mode == "qat" for each in run.records)
    data: Data = call(
        prepare_data, request_of(suite.data, suite.base, train=train), cache, limits=limits, progress=progress.advance
    )
    metric = _find_metric(run, suite, data)
    model: Model = call(
        prepare_model, case.variant.model, data, metric, cache, limits=limits, progress=progress.advance
    )
    artifacts = [
        build(variant, model=model, data=data, root=cache, limits=limits, progress=progress.advance)
        for variant in (fp32_case.variant, case.variant)
    ]
    stored = {record.case.id: record, fp32_case.id: like_for_like(record, run.records)}
    return OpenCase(
        run=run,
        suite=suite,
        backends=backends,
        variants=variants,
        progress=progress,
        data=data,
        model=model,
        cache=cache,
        cores=cores,
        record=record,
        case=case,
        artifact=artifacts[1],
        fp32_case=fp32_case,
        fp32=artifacts[0],
        notes=tuple(
            f"{built.id}: built anew, and not the bytes that the run measured"
            for built, artifact in zip((fp32_case, case), artifacts, strict=True)
            if _differs(stored.get(built.id), artifact)
        ),
    )


def _find_metric(run: StoredRun, suite: Suite, data: Data) -> MetricSpec:
    """The suite's metric; the one that its outputs decided on where the suite names none and data has no labels."""
    accuracy = suite.gate.accuracy
    recalled = accuracy.recall_metric(run.records, suite.base)
    if recalled.name == OF_ANY_OUTPUTS:
        return recalled
    return accuracy.choose_metric(base=suite.base, labelled=data.evaluation_labels() is not None)


def _differs(record: Record | None, artifact: Artifact) -> bool:
    return record is not None and record.artifact is not None and record.artifact.sha256 != artifact.sha256


def why_not_built(change: Change, case: Case) -> str | None:
    """Why a changed case is not built just to try it: it would have to be trained; None where it can be."""
    if change.rebuilds and case.variant.mode == "qat":
        return "it would have to be trained anew: try it as a recipe of the suite"
    return None


def read_suite(run: StoredRun, explicit: Path | None = None) -> Suite:
    """The suite of a run from its file on this disk (``explicit``: where the user says), as the run had it.

    Its models and data may be Python, which is run: raises ``UsageError`` where the file is not there, leads to code
    that this user neither names nor ran here, or says something else now of what artifacts come from.
    """
    info = run.info.suite
    file = explicit or consent.find_suite(run.folder, info)
    if not file.is_file():
        searched = "" if file.is_absolute() else f" below {Path.cwd()}"
        raise UsageError(
            f"to try causes, variants are built from the suite, and {file} is not there{searched}; name it with --suite"
        )
    stored = _parse_stored(run)
    current = suites.read(file, info.overrides)
    refused = consent.why_refused(current, named=None if explicit is None else suites.read(explicit))
    if refused is not None and explicit is not None:
        raise UsageError(
            f"{run.folder}: with the --set of the run ({'; '.join(info.overrides)}), {refused}; write that into the "
            "suite and run it again"
        )
    if refused is not None:
        raise UsageError(
            f"to try causes, variants are built from the suite, and {refused}; if you trust that, name the suite: "
            f"--suite {file}"
        )
    changed = [name for name in stored.list_changes(current) if name in _DECIDES]
    if changed:
        raise UsageError(
            f"{file}: since the run, {', '.join(changed)} changed, so what is built now is not what was measured; run "
            "the suite again"
        )
    return current


def _parse_stored(run: StoredRun) -> Suite:
    """The suite as the run holds it; raises ``UsageError`` about the run's own file where that is no suite."""
    info = run.info.suite
    try:
        return suites.parse(info.text, file=info.file, overrides=info.overrides, stored=True)
    except SuiteError as error:
        texts = "; ".join(problem.what for problem in error.problems)
        reason = f"its copy of {info.file} is no suite: {texts}"
        raise UsageError(f"{run.folder / RUN}: {reason}; run the suite again") from error
