"""The contract of a metric: a score of outputs against labels or fp32's outputs, per example where it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qbench.stats.jackknife import FactScore

Array = NDArray[Any]
Against = Literal["labels", "fp32"]


def values_file(predictions: Path) -> Path:
    """Where what a score of the user's own says of each example is kept, beside a file of predictions: whoever reads a
    run must not need, or run, the user's code."""
    return predictions.with_suffix(".values.npz")


ANSWERS = "answers"  # what a file of predictions calls what a postprocess made of the outputs


def take_answers(predictions: dict[str, Array]) -> dict[str, Array]:
    """Predictions in which the answers stand where the outputs do, for whoever judges; as they are without any."""
    return predictions if ANSWERS not in predictions else {**predictions, "outputs": predictions[ANSWERS]}


def name_outputs(place: int) -> str:
    """What a file of predictions calls the outputs at a place of all that a network returns: 0 is the first."""
    return f"outputs.{place}" if place else "outputs"


def list_outputs(predictions: Iterable[str]) -> list[str]:
    """The names of the outputs in a file of predictions, the first one first."""
    behind = sorted(int(name.partition(".")[2]) for name in predictions if name.startswith("outputs."))
    return [name_outputs(place) for place in (0, *behind)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """What the values, or facts, of a metric are of where that is not one example each: ``members`` has the
    places of the examples that make each unit, ``among`` those of the examples that each is scored among."""

    members: Sequence[Array]
    among: Array


class Metric(ABC):
    """A score of outputs (first axis n) against a reference (first axis n).

    ``against`` says what the reference is: the labels, or the outputs of the like-for-like fp32 on the same examples,
    for models without labels. The fp32 is then scored against its own outputs, which gives ``perfect``.
    ``groups``: how many parts of the examples tell the limits of a score that moves in steps (``stats.jackknife``).
    ``unseen`` is what one that was not seen may score where all of so many are perfect (0: nobody knows).
    ``percent`` says whether the value is a share between 0 and 1 that is shown in percent and compared in percentage
    points; else ``unit`` is the value's unit. ``higher_is_better`` orients deltas.
    """

    name: str
    against: Against = "labels"
    percent: bool = True
    higher_is_better: bool = True
    unit: str = ""
    perfect: float | None = None
    groups: int | None = None
    unseen: float = 0.0
    summary: str = ""  # what names `summarize`; metrics with the same one share predictions

    @abstractmethod
    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why these outputs and labels do not fit the metric, with what to do; None if they fit.

        A metric against fp32 looks at the outputs alone; that fp32's have the same shape is checked where both are.
        """

    @abstractmethod
    def value(self, outputs: Array, reference: Array) -> float:
        """The score over all examples."""

    def summarize(self, outputs: Sequence[Array], labels: Array | None) -> Array:
        """All that the metric needs of the outputs of a batch, where these are too large to keep: a row for each
        example, made in the process that evaluates, and judged in their place. Of a metric with a ``summary``."""
        raise NotImplementedError(f"{self.name} takes the outputs themselves")

    def per_example(self, outputs: Array, reference: Array) -> Array | None:
        """One float per example whose mean is ``value``, or None where the metric is not a mean. A metric of a part of
        the examples, which the reference alone decides, gives those of that part."""
        return None

    def facts(self, outputs: Array, reference: Array) -> Array | None:
        """All that ``of_facts`` needs, one small row per example (first axis n), or None where it has no such form.

        For metrics that are no mean: their score is taken without each example, and rows of facts are cheaper to draw
        than rows of outputs. Where several examples are one unit, such as the windows of a document, it has one row.
        Where an example has several rows, as many as each needs, those behind its own are -1.
        """
        return None

    def find_fixed(self, labels: Array) -> Array:
        """The places of the examples whose outputs are fp32's whatever the variant, such as an index that stays."""
        return np.array([], dtype=np.intp)

    def units(self, reference: Array) -> Units | None:
        """What each value, or row of facts, is of; None where it is one example each, in their order. Of a metric
        against fp32 ``reference`` may be any variant's outputs."""
        return None

    def of_facts(self, facts: Array) -> float:
        """The score of examples by their facts; ``value`` is that of all."""
        raise NotImplementedError(f"{self.name} has no facts")

    @property
    def fact_score(self) -> FactScore:
        """``of_facts`` as limits are told of it."""
        return FactScore(of=self.of_facts, groups=self.groups)


def keep_fixed(metric: Metric, outputs: Array, labels: Array | None, fp32: Array | None) -> Array:
    """The outputs of a variant as they are judged: where ``metric.find_fixed`` says so, those of its ``fp32`` (None: it
    is fp32). Raises ``ValueError`` where those have another shape."""
    if fp32 is None or labels is None or metric.against != "labels" or len(labels) != len(outputs):
        return outputs
    places = metric.find_fixed(labels)
    if not len(places):
        return outputs
    if fp32.shape != outputs.shape:
        raise ValueError(f"the outputs have the shape {outputs.shape}, those of its fp32 {fp32.shape}")
    judged = outputs.copy()
    judged[places] = fp32[places]
    return judged


class MeanMetric(Metric):
    """A metric that is the mean of what each example scores."""

    def value(self, outputs: Array, reference: Array) -> float:
        """The mean over examples."""
        return float(self.per_example(outputs, reference).mean())

    @abstractmethod
    def per_example(self, outputs: Array, reference: Array) -> Array:
        """One float per example."""


class WholeMetric(Metric):
    """A metric of the examples as a whole, which no example has alone."""

    def value(self, outputs: Array, reference: Array) -> float:
        """The score of all examples' facts."""
        return self.of_facts(self.facts(outputs, reference))

    @abstractmethod
    def facts(self, outputs: Array, reference: Array) -> Array:
        """One small row per example."""

    @abstractmethod
    def of_facts(self, facts: Array) -> float:
        """The score of the examples with these facts, in any order, repeats allowed."""
