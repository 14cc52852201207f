"""A run's first stage: the metric, data and networks, each checked in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import user_code
from qbench.data import Data, request_of
from qbench.data_preparation import prepare_data
from qbench.errors import CaseError
from qbench.metrics.spec import MetricSpec
from qbench.models.base import ModelReference
from qbench.network import Model, prepare_model
from qbench.process.child_process import call
from qbench.record.stored_run import POSTPROCESS, SCORE
from qbench.running.context import RunContext
from qbench.suite import Suite
from qbench.suite.accuracy import LEAST_OF_ANY, OF_ANY_OUTPUTS, AccuracyGate
from qbench.train.train import TRAINING_SECONDS, is_trained


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a run starts from: its examples, its fp32 networks by name, and the metric that scores its variants."""

    data: Data
    models: Mapping[str, Model]
    metric: MetricSpec


def prepare(context: RunContext, suite: Suite) -> Prepared | None:
    """The data, the networks that open cases need and the metric; None where no case is open, or the data cannot be
    read. A network that fails breaks its cases.

    Raises ``UsageError`` where an earlier part of this run had other data, networks or another metric.
    """
    references = _list_references(context)
    if not references:
        return None
    context.progress.stage("prepare", 1 + len(references))
    data = _prepare_data(context, suite)
    if data is None:
        return None
    labelled = data.evaluation_labels() is not None
    choice = _choose_metric(suite.gate.accuracy, suite.base, labelled=labelled)
    models = context.run_parallel(
        "prepare",
        references,
        lambda reference: _prepare_model(context, data, choice, reference),
        jobs=context.jobs_here,
    )
    named = {reference.name: model for reference, model in zip(references, models, strict=True) if model is not None}
    misfits = [model.misfit for model in named.values() if model.misfit is not None]
    metric, warning = _settle_metric(choice, misfits)
    if warning is not None:
        context.warn(warning)
        context.directory.write_metric(metric)
    prepared = Prepared(data=data, models=named, metric=metric)
    context.directory.require_same_inputs(_list_digests(prepared))
    context.directory.write_examples(prepared.data)
    return prepared


def _list_references(context: RunContext) -> list[ModelReference]:
    """Each network of the open cases, once."""
    models = (planned.case.variant.model for planned in context.tracker.open_cases())
    return list({model.name: model for model in models}.values())


def _prepare_data(context: RunContext, suite: Suite) -> Data | None:
    """The examples; None where they cannot be had, which breaks every case."""
    variants = [planned.case.variant for planned in context.tracker.planned]
    train = any(variant.mode == "qat" or variant.recipe.trains for variant in variants)
    request = request_of(suite.data, suite.base, train=train)
    try:
        data: Data = call(
            prepare_data, request, context.cache, limits=context.limits, progress=context.progress.advance
        )
    except CaseError as error:
        context.tracker.break_cases([planned.case for planned in context.tracker.planned], "data", error)
        return None
    for note in data.notes:
        context.warn(note)
    if suite.quick:
        context.directory.write_quick(examples=data.evaluation_count, of=data.evaluation_of)
    context.progress.advance("data")
    return data


def _prepare_model(context: RunContext, data: Data, choice: _MetricChoice, reference: ModelReference) -> Model | None:
    """A network that was tried on the data; None where it fails, which breaks its cases."""
    name, limits = reference.name, context.limits
    if is_trained(reference):
        limits = replace(limits, seconds=TRAINING_SECONDS)
    model: Model | None = None
    try:
        report = context.report_under(name)
        given = (reference, data, choice.metric, context.cache, choice.otherwise)
        model = context.memory.call(prepare_model, lambda: call(prepare_model, *given, limits=limits, progress=report))
    except CaseError as error:
        cases = [planned.case for planned in context.tracker.planned if planned.case.variant.model.name == name]
        context.tracker.break_cases(cases, "model", error)
    for note in () if model is None else model.notes:
        context.warn(note)
    context.progress.advance(name)
    return model


def _list_digests(prepared: Prepared) -> dict[str, str]:
    """What names the data, the networks and the user's own score of this run: a resumed run must have the same."""
    data, score = prepared.data, prepared.metric.function
    digests = [data.calibration_digest, *(subset.digest for subset in data.other_subsets)]
    digests += [data.training_digest] if data.request is not None and data.request.train else []
    named = {"data": "+".join([*digests, data.evaluation_digest])}
    named |= {} if score is None else {f"{SCORE}{score.file.name}": user_code.digest(score.file)}
    for name, model in prepared.models.items():
        own = model.reference.own_postprocess
        named |= {} if own is None else {f"{POSTPROCESS}{name}": own.digest()}
        named[f"model {name}"] = f"{model.weights_digest}+{model.code_digest}"
    for name, model in prepared.models.items():
        named |= {f"int8 {recipe} of {name}": digest for recipe, digest in model.int8_digests.items()}
    return named


@dataclass(frozen=True, kw_only=True)
class _MetricChoice:
    """``metric`` as far as the data decides, and the one that takes its place where it cannot judge a network: with
    neither labels nor a word of accuracy in the suite. ``guessed``: the suite names none, and data has no labels."""

    metric: MetricSpec
    otherwise: MetricSpec | None
    guessed: bool


def _choose_metric(accuracy: AccuracyGate, base: Path, *, labelled: bool) -> _MetricChoice:
    """The metric, now that the data is known."""
    is_open = not labelled and not accuracy.model_fields_set
    return _MetricChoice(
        metric=accuracy.choose_metric(base=base, labelled=labelled),
        otherwise=MetricSpec(name=OF_ANY_OUTPUTS) if is_open else None,
        guessed=not labelled and not accuracy.is_named,
    )


def _settle_metric(choice: _MetricChoice, misfits: Iterable[str]) -> tuple[MetricSpec, str | None]:
    """The metric of the run, now that the networks are known: another where there are ``misfits``, the reasons why it
    cannot judge some. With it what to say where data and networks decided."""
    if not choice.guessed:
        return choice.metric, None
    reason = next(iter(misfits), None)
    if choice.otherwise is not None and reason is not None:
        return choice.otherwise, (
            f"the data has no labels, and the outputs are no scores of classes ({reason}): variants are judged by "
            f"{choice.otherwise.name}, the signal over the noise against fp32's outputs, which must be at least "
            f"{LEAST_OF_ANY:g} dB; `gate: {{accuracy: {{metric: ...}}}}` names another"
        )
    return choice.metric, (
        f"the data has no labels: variants are judged by {choice.metric.name}, the share of examples for which int8 "
        "chooses the class that fp32 chooses; `gate: {accuracy: {metric: ...}}` names another"
    )
