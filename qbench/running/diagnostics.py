"""What a run looks at beside its scores: fp32 that guesses, images of flipped examples, numbers of layers.

No case fails by it: where something cannot be looked at, a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from qbench import registry
from qbench.backends.base import Backend
from qbench.data import Data
from qbench.errors import CaseError
from qbench.evaluate import kept_pictures
from qbench.evaluate.layer_clipping import ComparedVariant, rows
from qbench.modes import is_int8
from qbench.record.schema import Accuracy
from qbench.running.build_stage import BuiltVariant
from qbench.running.context import RunContext
from qbench.running.emulated_cases import is_emulated
from qbench.running.evaluate_stage import Evaluated
from qbench.running.prepare_stage import Prepared

_REACH_EXAMPLES = 64


def warn_of_guessing(context: RunContext, prepared: Prepared, evaluated: Evaluated) -> None:
    """Notes each network whose fp32 is right no more often than by guessing: images that were not scaled, channels in
    another order and labels of another numbering all pass for data, and int8 agrees with fp32 on them."""
    checked: set[str] = set()
    for planned in context.tracker.planned:
        name, case = planned.case.variant.model.name, evaluated.get(planned.case.id)
        if planned.reference is not None or case is None or case.accuracy is None or name in checked:
            continue
        checked.add(name)
        if (reason := explain_guessing(case.accuracy, prepared.data)) is not None:
            context.warn(f"{name}: {reason}")


def explain_guessing(accuracy: Accuracy, data: Data) -> str | None:
    """Why an fp32 score cannot be of the network and the data as they were meant; None where it can."""
    if accuracy.metric != "top1" or not data.classes or accuracy.low is None or accuracy.low > 1 / data.classes:
        return None
    return (
        f"fp32 is right on {accuracy.value:.1%} of {accuracy.n:,} examples, which {data.classes} classes give by "
        f"guessing, too; the inputs reach it {_describe_inputs(data)}: is that what it was trained on (scale, mean "
        "and std, order of the channels), and do the labels count as its outputs do?"
    ).replace("%", " %")


def _describe_inputs(data: Data) -> str:
    """The range of values of a few examples, per input, as the network gets them."""
    inputs = data.evaluation(0, min(data.evaluation_count, _REACH_EXAMPLES))
    stored_inputs = data.evaluation_examples().inputs
    ranges = []
    for array, stored in zip(inputs, stored_inputs, strict=True):
        changed = data.preprocessing.to_float and (data.preprocessing.scale, data.preprocessing.std) != (1.0, (1.0,))
        unchanged = f" ({stored.dtype}, not scaled)" if stored.dtype.kind in "iu" and not changed else ""
        ranges.append(f"from {array.min():.4g} to {array.max():.4g}{unchanged}")
    return " and ".join(ranges)


def keep_flip_images(context: RunContext, prepared: Prepared, evaluated: Evaluated) -> None:
    """Writes the run folder's ``flips/``, of boxes and masks ``scenes/`` and of recognized texts ``lines/``; without
    images the report still lists every flip."""
    pairs = {
        (evaluated[planned.case.id].predictions, evaluated[planned.reference.id].predictions)
        for planned in context.tracker.planned
        if planned.reference is not None and planned.case.id in evaluated and planned.reference.id in evaluated
        if not is_emulated(planned.case)
    }
    if not pairs:
        return
    report, folder = context.report_under("flips"), context.directory.path
    try:
        kept_pictures.keep(sorted(pairs), prepared.data, folder, limits=context.limits, progress=report)
    except CaseError as error:
        context.progress.note(f"the report shows no images of changed examples: {error}")


def keep_layer_numbers(context: RunContext, prepared: Prepared, built: Mapping[str, BuiltVariant]) -> None:
    """Writes the run folder's ``layers/``: SQNR and cosine as the build has them, and what
    evaluation data clips."""
    by_model = {name: _list_int8(context, built, name) for name in prepared.models}
    by_model = {name: variants for name, variants in by_model.items() if variants}
    context.progress.stage("layers", len(by_model))
    for name, variants in by_model.items():
        numbers = {variant: pair.artifact.built.conversion.layer_numbers for variant, pair in variants.items()}
        try:
            numbers = rows(
                variants,
                prepared.models[name],
                prepared.data,
                root=context.cache,
                limits=context.limits,
                progress=context.report_under(name),
            )
        except CaseError as error:
            context.progress.note(f"{name}: what its layers clip is not known: {error}")
        for variant, layers in numbers.items():
            if layers:
                context.directory.write_layers(variant, layers)
        context.progress.advance(name)


def _list_int8(context: RunContext, built: Mapping[str, BuiltVariant], model: str) -> dict[str, ComparedVariant]:
    """The int8 variants of a network that open cases have, by id."""
    variants = {}
    for planned in context.tracker.open_cases():
        variant = planned.case.variant
        backend: Backend = registry.load("backend", variant.backend)
        int8, fp32 = built.get(variant.id), built.get(f"{model}/fp32/{backend.runtime}")
        if variant.model.name == model and is_int8(variant.mode) and int8 is not None and fp32 is not None:
            variants[variant.id] = ComparedVariant(artifact=int8.artifact, fp32=fp32.artifact)
    return variants
