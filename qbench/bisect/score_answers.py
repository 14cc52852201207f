"""What the suite's metric says of each example of a file of answers; in a child process, since a metric may be code of
the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.bisect.judge_answers import Scored
from qbench.bisect.open_suite import OpenSuite
from qbench.errors import EvaluateError
from qbench.evaluate.one_output import find_reference
from qbench.evaluate.predictions import load_predictions
from qbench.evaluate.score import ONE_OUTPUT, Outputs, join_outputs, list_judged, take_outputs
from qbench.metrics.base import ANSWERS, Metric, take_answers
from qbench.metrics.spec import MetricSpec
from qbench.metrics.user_metric import UserMetric
from qbench.models.postprocess import find_form, fit_answers
from qbench.progress.callback import Progress
from qbench.record.stored_run import MetricInfo

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """Scores files of answers of a suite's case. ``fp32``: the answers of its like-for-like fp32, for a metric that
    holds them against these."""

    opened: OpenSuite
    fp32: Path | None

    def __call__(self, file: Path) -> Mapping[str, Scored]:
        """The scores of a file's answers by the name of the output, better being higher; the name is empty where one
        output, or all as one, are judged. Raises ``CaseError``."""
        spec, data, model = self.opened.metric, self.opened.data, self.opened.model
        outputs = Outputs(names=model.outputs, all_judged=model.reference.output is None)
        said: Mapping[str, tuple[Array, bool]] = self.opened.call_child(
            score_here, spec, file, self.fp32, data.classes, outputs
        )
        return {name: self._orient(values, whole=whole) for name, (values, whole) in said.items()}

    def _orient(self, values: Array, *, whole: bool) -> Scored:
        spec = self.opened.metric
        info = describe_metric(spec)
        if not whole:
            return Scored(values=info.sign * values, bounds=info.bounds)
        metric: Metric = registry.load("metric", spec.name)
        return Scored(values=values, score=metric.fact_score.turn(info.sign))


def describe_metric(spec: MetricSpec) -> MetricInfo:
    """How a metric is shown; nothing of the user's is run."""
    metric = spec.load()
    return MetricInfo(
        name=metric.name,
        percent=metric.percent,
        higher_is_better=metric.higher_is_better,
        against=metric.against,
        own_unit=metric.unit,
        perfect=metric.perfect,
    )


def score_here(
    spec: MetricSpec,
    file: Path,
    fp32: Path | None,
    classes: int | None,
    outputs: Outputs = ONE_OUTPUT,
    *,
    progress: Progress,
) -> Mapping[str, tuple[Array, bool]]:
    """By the name of each output that is judged (empty where that is one, or all as one) what the metric says of each
    example; or, and True, its facts of each, where it is none of single examples."""
    progress("score", 0.9)
    metric, answers = spec.load(), take_answers(load_predictions(file))
    base = None if fp32 is None else take_answers(load_predictions(fp32))
    if ANSWERS in answers:  # they are made of all outputs
        outputs = ONE_OUTPUT
        if base is not None:
            form = find_form([answers["outputs"], base["outputs"]])
            base, answers = ({**part, "outputs": fit_answers(part["outputs"], form)} for part in (base, answers))
    several = len(outputs.names) > 1 and outputs.all_judged
    if several and isinstance(metric, UserMetric):
        metric, (joined, base) = join_outputs(metric, (answers, base), outputs.names)
        assert joined is not None
        return {"": _score_examples(metric, joined, base, classes)}
    places = list_judged(metric, answers, answers if base is None else base, classes, outputs)
    return {
        outputs.names[place] if several and metric.against == "fp32" else "": _score_examples(
            metric, take_outputs(answers, place), None if base is None else take_outputs(base, place), classes
        )
        for place in places
    }


def _score_examples(
    metric: Metric, answers: dict[str, Array], base: dict[str, Array] | None, classes: int | None
) -> tuple[Array, bool]:
    """As ``score_here`` of the output that stands where the first does."""
    outputs = answers["outputs"]
    if problem := metric.problem(outputs, answers.get("labels"), classes):
        raise EvaluateError(problem)
    reference = find_reference(metric, answers, base)
    values = metric.per_example(outputs, reference)
    if values is not None:
        return np.asarray(values, dtype=np.float64), False
    facts = metric.facts(outputs, reference)
    if facts is None:
        raise EvaluateError(f"{metric.name} says nothing of single examples, so no candidate can be judged by it")
    return facts, True
