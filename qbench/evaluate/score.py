"""Stage 4, continued: predictions of every example -> the score of the output that counts, or the worst of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.errors import EvaluateError
from qbench.evaluate.one_output import find_reference, score_predictions
from qbench.evaluate.predictions import input_fits, load_predictions
from qbench.files import atomic
from qbench.metrics.base import ANSWERS, Metric, name_outputs, take_answers, values_file
from qbench.metrics.spec import MetricSpec
from qbench.metrics.user_metric import UserMetric
from qbench.models.postprocess import find_form, fit_answers
from qbench.process.child_process import Limits, call
from qbench.progress.callback import Progress
from qbench.record.schema import Accuracy, OutputScore

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The ``names`` of what a network returns, in the order of its predictions, and whether all of them are judged (the
    suite names none) or the first alone."""

    names: tuple[str, ...] = ()
    all_judged: bool = True


ONE_OUTPUT = Outputs()
DISTANCE = "sqnr"  # the metric that tells how far outputs of any shape are from fp32's


def score(
    metric: MetricSpec,
    file: Path,
    baseline: Path | None,
    classes: int | None,
    *,
    fp32: Path | None = None,
    outputs: Outputs = ONE_OUTPUT,
    limits: Limits,
    progress: Progress,
) -> Accuracy:
    """``score_outputs`` of two files, in a process of its own: a bootstrap takes seconds, and a score of the user's
    own is code of the user's. What that one says of each example is kept beside the file (``values_file``)."""
    arguments = (metric, file, baseline, classes, fp32, outputs)
    accuracy: Accuracy = call(score_here, *arguments, limits=limits, progress=progress)
    return accuracy


def score_here(
    metric: MetricSpec,
    file: Path,
    baseline: Path | None,
    classes: int | None,
    fp32: Path | None = None,
    outputs: Outputs = ONE_OUTPUT,
    *,
    progress: Progress,
) -> Accuracy:
    """``score`` in this process."""
    progress("score", 0.9)
    predictions = load_predictions(file)
    base, exact = (None if part is None else load_predictions(part) for part in (baseline, fp32))
    described = None
    if ANSWERS in predictions and base is not None:
        described = _describe_outputs(predictions, base if exact is None else exact, outputs.names)
    predictions = take_answers(predictions)
    base, exact = (None if part is None else take_answers(part) for part in (base, exact))
    if ANSWERS in predictions:  # they are made of all outputs
        outputs = ONE_OUTPUT
        form = find_form([part["outputs"] for part in (predictions, base, exact) if part is not None])
        base, exact = (None if part is None else _fit(part, form) for part in (base, exact))
        predictions = _fit(predictions, form)
    loaded = metric.load()
    if not isinstance(loaded, UserMetric):
        accuracy = score_outputs(loaded, predictions, base, classes, exact, outputs)
    else:  # a reader of the record cannot load it by its name
        accuracy = _score_by_user(loaded, predictions, base, classes, exact, outputs, values_file(file))
    accuracy = accuracy if described is None else replace(accuracy, outputs=described)
    return replace(accuracy, inputs=input_fits(predictions))


def _describe_outputs(
    predictions: dict[str, Array], fp32: dict[str, Array], names: Sequence[str]
) -> tuple[OutputScore, ...]:
    """How far each output of a network is from fp32's, where answers made of them are judged."""
    distances = [_measure_distance(predictions, fp32, name_outputs(place)) for place in range(len(names))]
    return tuple(
        OutputScore(name=name, judged=None, metric=None if distance is None else DISTANCE, value=distance)
        for name, distance in zip(names, distances, strict=True)
    )


def _fit(predictions: dict[str, Array], form: tuple[int, ...]) -> dict[str, Array]:
    """Predictions with answers of the form of another variant's, filled up: one may have found more."""
    return {**predictions, "outputs": fit_answers(predictions["outputs"], form)}


def _score_by_user(
    metric: UserMetric,
    predictions: dict[str, Array],
    baseline: dict[str, Array] | None,
    classes: int | None,
    fp32: dict[str, Array] | None,
    outputs: Outputs,
    kept: Path,
) -> Accuracy:
    """The score by the user's function, which is given all outputs by name where the suite names none of several; what
    it says of each example is ``kept``."""
    if len(outputs.names) < 2 or not outputs.all_judged:
        _keep_values(metric, predictions, fp32 or baseline, kept)
        return score_predictions(metric, predictions, baseline, classes, fp32)
    named, (given, *others) = join_outputs(metric, (predictions, baseline, fp32), outputs.names)
    assert given is not None
    accuracy = score_predictions(named, given, others[0], classes, others[1])
    _keep_values(named, given, others[1] or others[0], kept)
    rows = tuple(
        OutputScore(name=name, judged=name_outputs(place) in predictions) for place, name in enumerate(outputs.names)
    )
    return replace(accuracy, outputs=rows, flips=None, agreement=None, only_answer=None)


def join_outputs(
    metric: UserMetric, parts: Sequence[dict[str, Array] | None], names: Sequence[str]
) -> tuple[UserMetric, list[dict[str, Array] | None]]:
    """The user's metric as a function of all outputs by name, and predictions in which all that the first of ``parts``
    has stand beside each other where the first output does."""
    predictions = parts[0]
    assert predictions is not None
    places = [place for place in range(len(names)) if name_outputs(place) in predictions]
    layout = {names[place]: predictions[name_outputs(place)].shape[1:] for place in places}
    joined = [None if part is None else {**part, "outputs": _join_outputs(part, places, names)} for part in parts]
    return metric.of_outputs(layout), joined


def _join_outputs(predictions: dict[str, Array], places: Sequence[int], names: Sequence[str]) -> Array:
    """The outputs at these places beside each other, a row for each example."""
    for place in places:
        if name_outputs(place) not in predictions:
            raise EvaluateError(f"its fp32 has no output {names[place]!r} with a row of numbers for each example")
    rows = [predictions[name_outputs(place)] for place in places]
    return np.concatenate([array.reshape(len(array), -1) for array in rows], axis=1)


def take_outputs(predictions: dict[str, Array], place: int) -> dict[str, Array]:
    """Predictions in which the outputs at a place stand where the first do."""
    return predictions if place == 0 else {**predictions, "outputs": predictions[name_outputs(place)]}


def score_outputs(
    metric: Metric,
    predictions: dict[str, Array],
    baseline: dict[str, Array] | None,
    classes: int | None,
    fp32: dict[str, Array] | None = None,
    outputs: Outputs = ONE_OUTPUT,
) -> Accuracy:
    """``score_predictions`` of the first output, or of the worst where all are judged, which no user's metric and no
    label says: the one whose score, or change, may be lowest. Where that one holds a limit, each does."""
    first = score_predictions(metric, predictions, baseline, classes, fp32)
    if len(outputs.names) < 2:
        return first
    scores, held = {0: first}, fp32 or baseline or predictions
    for place in list_judged(metric, predictions, held, classes, outputs)[1:]:
        base, exact = (None if part is None else take_outputs(part, place) for part in (baseline, fp32))
        scores[place] = score_predictions(metric, take_outputs(predictions, place), base, classes, exact)
    judged = min(scores, key=lambda place: _find_worst(metric, scores[place]))
    described = []
    for place, name in enumerate(outputs.names):
        if place in scores:
            ours = scores[place]
            limits = {"value": ours.value, "low": ours.low, "high": ours.high}
            described.append(OutputScore(name=name, judged=True, metric=metric.name, **limits))
        else:
            asked = False if outputs.all_judged else None
            distance = None if baseline is None else _measure_distance(predictions, held, name_outputs(place))
            told = None if distance is None else DISTANCE
            described.append(OutputScore(name=name, judged=asked, metric=told, value=distance))
    return replace(
        scores[judged],
        judged=judged,
        outputs=tuple(described),
        flips=first.flips,  # labels are of the first output
        agreement=first.agreement,
        only_answer=first.only_answer,
    )


def list_judged(
    metric: Metric, predictions: dict[str, Array], fp32: dict[str, Array], classes: int | None, outputs: Outputs
) -> list[int]:
    """The places of the outputs that are judged: the first and, where all are, those that ``metric`` can hold against
    fp32's."""
    if not outputs.all_judged or metric.against != "fp32":
        return [0]
    others = [(place, name_outputs(place)) for place in range(1, len(outputs.names))]
    return [0] + [
        place
        for place, name in others
        if _is_comparable(predictions, fp32, name) and not metric.problem(predictions[name], None, classes)
    ]


def _find_worst(metric: Metric, accuracy: Accuracy) -> float:
    """What the score, or its change, may be at worst; lower is worse."""
    estimate = accuracy if accuracy.delta is None else accuracy.delta
    low, high = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
    return low if metric.higher_is_better else -high


def _is_comparable(predictions: dict[str, Array], fp32: dict[str, Array], name: str) -> bool:
    """Whether both have that output, in one shape, and fp32's are numbers."""
    ours, theirs = predictions.get(name), fp32.get(name)
    return ours is not None and theirs is not None and ours.shape == theirs.shape and bool(np.isfinite(theirs).all())


def _measure_distance(predictions: dict[str, Array], fp32: dict[str, Array], name: str) -> float | None:
    """The SQNR of outputs that nothing judges, in dB; None where they are not there, or no numbers."""
    if not _is_comparable(predictions, fp32, name) or not np.isfinite(predictions[name]).all():
        return None
    distance: Metric = registry.load("metric", DISTANCE)
    return distance.value(predictions[name], fp32[name])


def _keep_values(metric: Metric, predictions: dict[str, Array], baseline: dict[str, Array] | None, file: Path) -> None:
    values = metric.per_example(predictions["outputs"], find_reference(metric, predictions, baseline))
    file.unlink(missing_ok=True)
    if values is not None:
        with atomic.replace_file(file) as part, part.open("wb") as stream:
            np.savez_compressed(stream, values=values)
