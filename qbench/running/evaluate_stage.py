"""A run's third stage: predictions and scores of every variant, and the spread of scores over calibration subsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from qbench import registry
from qbench.backends.base import Backend
from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import CaseError, CaseSkipped
from qbench.evaluate import as_called
from qbench.evaluate.predictions import Predicted, predict_cached, read_saturating
from qbench.evaluate.score import Outputs, score
from qbench.files.stored_name import name_of
from qbench.plan.planner import Case, PlannedCase
from qbench.process.cpu_slots import Slots
from qbench.record.schema import NATIVE, Accuracy, AsCalled, CalibrationSeeds, HostFacts, TwinChange
from qbench.running.build_stage import BuiltVariant, RecalibratedVariant
from qbench.running.context import RunContext
from qbench.running.emulated_cases import complete_facts, emulate, is_emulated
from qbench.running.hosts_stage import KnownHosts
from qbench.running.prepare_stage import Prepared


@dataclass(frozen=True, kw_only=True)
class EvaluatedCase:
    """A case's predictions and its score; ``accuracy`` is None where an earlier part of the run has recorded it, and
    of emulated answers.
    ``calibration_seconds``: what the other calibration subsets took, None where there are none. ``host``: where it ran,
    None in a run on this machine alone."""

    predictions: Path
    accuracy: Accuracy | None
    seconds: float
    calibration_seconds: float | None = None
    host: HostFacts | None = None


Evaluated = Mapping[str, EvaluatedCase]  # by case id


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The cases that share one file of predictions: all of a variant on a host, but for dynamic ones, whose outputs
    depend on the batch. ``name`` is the file's."""

    name: str
    planned: list[PlannedCase] = field(default_factory=list)

    @property
    def first(self) -> Case:
        return self.planned[0].case

    @property
    def reference(self) -> str | None:
        """The id of the fp32 case that it is compared with."""
        reference = self.planned[0].reference
        return None if reference is None else reference.id

    @property
    def twin(self) -> str | None:
        """The id of its fp32 twin."""
        twin = self.planned[0].twin
        return None if twin is None else twin.id


@dataclass(frozen=True, kw_only=True)
class _SubsetScore:
    """What a variant scores with another calibration subset; ``reason`` says why ``value`` is None."""

    seed: int
    value: float | None
    reason: str | None
    seconds: float


def evaluate(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    hosts: KnownHosts = MappingProxyType({}),
) -> dict[str, EvaluatedCase]:
    """The predictions and scores of the open cases, by case id; one that fails breaks its cases.

    fp32 comes first, then its twins: the others are scored against their predictions. What an earlier part of the run
    has is kept.
    """
    groups = _group_by_predictions(context.tracker.open_cases())
    again = len(_list_recalibrated(groups, built))
    context.progress.stage("evaluate", len(groups) + again)
    evaluated: dict[str, EvaluatedCase] = {}
    for wave in _order_groups(groups):
        evaluated |= _evaluate_each(context, prepared, built, wave, evaluated)
    evaluated |= _evaluate_recalibrated(context, prepared, built, groups, evaluated)
    return {case: _place(case_evaluated, hosts.get(case), prepared.data) for case, case_evaluated in evaluated.items()}


def _place(evaluation: EvaluatedCase, host: HostFacts | None, data: Data) -> EvaluatedCase:
    """The case with where it ran; of predicted answers with the layers that saturate, of emulated ones with which
    examples they are of and what the kernels said."""
    if host is not None and host.kind == "predicted":
        saturating = read_saturating(evaluation.predictions)
        host = replace(host, saturating=saturating, counted_examples=data.evaluation_count)
    if host is not None and host.kind == "emulated":
        host = complete_facts(host, evaluation.predictions)
    return replace(evaluation, host=host)


def _order_groups(groups: Sequence[_Group]) -> tuple[list[_Group], ...]:
    """The baselines, the twins, those that are compared with them, and the emulated, which are compared with those."""
    waves: tuple[list[_Group], ...] = ([], [], [], [])
    for group in groups:
        wave = 0 if group.reference is None else 1 if group.first.key.is_twin else 3 if is_emulated(group.first) else 2
        waves[wave].append(group)
    return waves


def _group_by_predictions(cases: Sequence[PlannedCase]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for planned in cases:
        case = planned.case
        name = case.variant.id if case.variant.mode != "dynamic" else f"{case.variant.id}/b{case.batch_size}"
        name = name_of(name if case.host == NATIVE else f"{name}/{case.host}")
        groups.setdefault(name, _Group(name=name)).planned.append(planned)
    return list(groups.values())


def _evaluate_each(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    groups: Sequence[_Group],
    baselines: Evaluated,
) -> dict[str, EvaluatedCase]:
    """What could be evaluated, by case id."""
    results = context.run_parallel(
        "evaluate", groups, lambda group: _evaluate_group(context, prepared, built, group, baselines)
    )
    return {
        planned.case.id: result
        for group, result in zip(groups, results, strict=True)
        if result is not None
        for planned in group.planned
    }


def _evaluate_group(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    group: _Group,
    baselines: Evaluated,
) -> EvaluatedCase | None:
    """The predictions and the score of one file of predictions; None where they fail, which breaks its cases."""
    cases = [planned.case for planned in group.planned]
    file, started, accuracy, failed = _file(context, group.name), time.monotonic(), None, False
    try:
        if not (file.exists() and all(case.id in context.tracker.done for case in cases)):
            accuracy = _answer(context, prepared, built[group.first.variant.id].artifact, file, group, baselines)
    except (CaseError, CaseSkipped) as error:
        failed = True
        artifacts = {variant: variant_built.artifact for variant, variant_built in built.items()}
        context.tracker.break_cases(cases, "evaluate", _explain_failure(error, group.first.host), artifacts)
    context.progress.advance(group.name)
    if failed:
        return None
    return EvaluatedCase(predictions=file, accuracy=accuracy, seconds=time.monotonic() - started)


def _answer(
    context: RunContext, prepared: Prepared, artifact: Artifact, file: Path, group: _Group, baselines: Evaluated
) -> Accuracy | None:
    """Writes the predictions of a group; their score, None where a few examples are emulated, which are no sample."""
    if is_emulated(group.first):
        native = baselines.get(str(group.reference))
        if native is None:
            raise CaseSkipped(f"its baseline {group.reference} has no predictions")
        emulate(context, prepared, artifact, group.first, native.predictions, file, group.name)
        return None
    _predict(context, prepared, artifact, prepared.data, group.first, file, group.name)
    compared = _hold_against_network(context, prepared, file, group)
    twin = _compare_with_twin(context, prepared, file, group, baselines)
    accuracy = _score(context, prepared, file, group, baselines, group.name)
    return replace(accuracy, twin=twin, as_called=compared)


def _hold_against_network(context: RunContext, prepared: Prepared, file: Path, group: _Group) -> AsCalled | None:
    """How the predictions of an fp32 case on this kind of machine lie beside the network's own; None for others."""
    key, model = group.first.key, prepared.models[group.first.variant.model.name]
    backend: Backend = registry.load("backend", key.backend)
    if key.mode != "fp32" or key.is_twin or key.host != NATIVE or model.reference.kind == "onnx" or backend.made_up:
        return None
    with context.occupy_core():
        answers = as_called.ask_network(
            model, prepared.data, context.cache, limits=context.limits, progress=context.report_under(group.name)
        )
    compared = as_called.compare_predictions(answers, file, prepared.data.evaluation_count)
    if compared.differing:
        context.warn(
            f"{group.first.id}: {compared.differing:,} of {compared.compared:,} evaluation examples differ from what "
            f"the network itself gives, by up to {compared.worst:.1%} of its largest output: does it decide on values "
            "that rounding moves?".replace("%", " %")
        )
    return compared


def _explain_failure(error: CaseError | CaseSkipped, host: str) -> CaseError | CaseSkipped:
    """The error, which on another host than ``native`` is what shipping the artifact there would give."""
    return error if host == NATIVE or isinstance(error, CaseSkipped) else CaseError(f"does not run on {host}: {error}")


def _predict(
    context: RunContext, prepared: Prepared, artifact: Artifact, data: Data, case: Case, file: Path, name: str
) -> None:
    """Writes predictions into the run's folder, from the cache where nothing of them has changed."""
    postprocess = prepared.models[case.variant.model.name].postprocess
    workers = context.find_place(case.host)

    def predict(alone: bool) -> Predicted:
        return predict_cached(
            artifact,
            data,
            case.batch_size,
            file,
            host=case.host,
            postprocess=postprocess,
            cpu=None if context.fleet is None else context.fleet.name_processor(case.host),
            root=context.cache,
            slots=Slots(1) if alone else workers.slots,
            start_worker=workers.start_worker,
            limits=context.limits,
            progress=context.report_under(name),
        )

    result: Predicted = workers.repeat(lambda: context.memory.work(predict, shared=True))
    if result.note is not None:
        context.progress.note(f"{name}: {result.note}")


def _score(
    context: RunContext, prepared: Prepared, file: Path, group: _Group, baselines: Evaluated, name: str
) -> Accuracy:
    """The score of a file of predictions, against those of the baseline where the group has one."""
    fp32 = baselines.get(group.reference) if group.reference is not None else None
    model = prepared.models[group.first.variant.model.name]
    with context.occupy_core():
        accuracy = score(
            prepared.metric,
            file,
            None if fp32 is None else fp32.predictions,
            prepared.data.classes,
            outputs=Outputs(names=model.outputs, all_judged=model.reference.output is None),
            limits=context.limits,
            progress=context.report_under(name),
        )
    return replace(accuracy, shared_examples=prepared.data.shared_examples)


def _compare_with_twin(
    context: RunContext, prepared: Prepared, file: Path, group: _Group, evaluated: Evaluated
) -> TwinChange | None:
    """The paired change against the group's fp32 twin; None where it has none, or that one has no predictions.

    It comes before the score against the baseline, whose values of each example are those that are kept.
    """
    twin = evaluated.get(group.twin) if group.twin is not None else None
    if group.twin is None or twin is None:
        return None
    with context.occupy_core():
        against = score(
            prepared.metric,
            file,
            twin.predictions,
            prepared.data.classes,
            limits=context.limits,
            progress=context.report_under(group.name),
        )
    return TwinChange(baseline=group.twin, delta=against.delta, flips=against.flips, agreement=against.agreement)


def _evaluate_recalibrated(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    groups: Sequence[_Group],
    evaluated: Evaluated,
) -> dict[str, EvaluatedCase]:
    """The cases that were built with several calibration subsets, now with the score of each subset."""
    pairs = _list_recalibrated(groups, built)
    scores = context.run_parallel(
        "evaluate", pairs, lambda pair: _score_recalibrated(context, prepared, *pair, evaluated)
    )
    by_group: dict[str, list[_SubsetScore]] = {}
    for (group, _), subset_score in zip(pairs, scores, strict=True):
        by_group.setdefault(group.name, []).append(subset_score)
    return {
        planned.case.id: _with_spread(prepared.data, group.name, evaluated[planned.case.id], by_group[group.name])
        for group in groups
        if group.name in by_group
        for planned in group.planned
        if planned.case.id in evaluated
    }


def _list_recalibrated(
    groups: Sequence[_Group], built: Mapping[str, BuiltVariant]
) -> list[tuple[_Group, RecalibratedVariant]]:
    """Each group on the native host with each of its further calibration subsets: the spread is the recipe's."""
    native = [group for group in groups if group.first.host == NATIVE]
    return [(group, variant) for group in native for variant in built[group.first.variant.id].recalibrated]


def _score_recalibrated(
    context: RunContext, prepared: Prepared, group: _Group, variant: RecalibratedVariant, evaluated: Evaluated
) -> _SubsetScore:
    """The score with another calibration subset, or why there is none; it breaks no case."""
    seed = variant.subset.seed
    name = f"{group.name} (calibration seed {seed})"
    started, value, reason = time.monotonic(), None, variant.reason
    shipped = evaluated.get(group.first.id)
    if variant.artifact is not None and shipped is not None and shipped.accuracy is not None:
        file, data = _file(context, _subset_name(group.name, seed)), prepared.data.with_calibration(variant.subset)
        try:
            _predict(context, prepared, variant.artifact, data, group.first, file, name)
            value = _score(context, prepared, file, group, evaluated, name).value
        except CaseError as error:
            reason = str(error)
            context.note_missing(name, f"not evaluated: {reason}")
    context.progress.advance(name)
    seconds = variant.seconds + time.monotonic() - started
    return _SubsetScore(seed=seed, value=value, reason=reason, seconds=seconds)


def _with_spread(data: Data, name: str, shipped: EvaluatedCase, redrawn: Sequence[_SubsetScore]) -> EvaluatedCase:
    """The case with the score of each calibration subset, the one that is shipped first."""
    if shipped.accuracy is None:
        return shipped
    files = [None if score.value is None else f"predictions/{_subset_name(name, score.seed)}.npz" for score in redrawn]
    spread = CalibrationSeeds(
        seeds=(data.calibration_seed, *(score.seed for score in redrawn)),
        values=(shipped.accuracy.value, *(score.value for score in redrawn)),
        predictions=(f"predictions/{name}.npz", *files),
        reasons=(None, *(score.reason for score in redrawn)),
    )
    accuracy = replace(shipped.accuracy, calibration=spread)
    return replace(shipped, accuracy=accuracy, calibration_seconds=sum(score.seconds for score in redrawn))


def _file(context: RunContext, name: str) -> Path:
    return context.directory.path / "predictions" / f"{name}.npz"


def _subset_name(name: str, seed: int) -> str:
    return f"{name}__seed{seed}"
