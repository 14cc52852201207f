"""Rules of metrics/base: what stands where the outputs do, and which of them stay fp32's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench.metrics.base import MeanMetric, keep_fixed, list_outputs, name_outputs, take_answers, values_file


class FirstStays(MeanMetric):
    """Whose outputs of the first and the last example are fp32's."""

    name = "mine"

    def __init__(self, places: tuple[int, ...] = (0, -1), against: str = "labels") -> None:
        self.places, self.against = places, against  # type: ignore[assignment]

    def find_fixed(self, labels: np.ndarray) -> np.ndarray:
        """Both."""
        return np.asarray(self.places, dtype=np.intp)

    def problem(self, outputs: np.ndarray, labels: np.ndarray | None, classes: int | None) -> str | None:
        """None."""
        return None

    def per_example(self, outputs: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """The outputs themselves."""
        return outputs[:, 0]


LABELS = np.zeros(3)
OURS, FP32 = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [20.0], [30.0]])


def test_fixed_outputs_are_those_of_fp32() -> None:
    """The others stay, and so does the array that was given."""
    assert keep_fixed(FirstStays(), OURS, LABELS, FP32).tolist() == [[10.0], [2.0], [30.0]]
    assert OURS.tolist() == [[1.0], [2.0], [3.0]]
    with pytest.raises(ValueError, match=r"the outputs have the shape \(3, 1\), those of its fp32 \(3, 2\)"):
        keep_fixed(FirstStays(), OURS, LABELS, np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("metric", "labels", "fp32"),
    [
        (FirstStays(), LABELS, None),
        (FirstStays(), None, FP32),
        (FirstStays(), LABELS[:2], FP32),
        (FirstStays(against="fp32"), LABELS, FP32),
        (FirstStays(()), LABELS, FP32[:2]),
    ],
    ids=["fp32 itself", "no labels", "other examples", "against fp32", "nothing is fixed"],
)
def test_where_nothing_is_fixed_outputs_are_judged_as_they_are(
    metric: FirstStays, labels: np.ndarray | None, fp32: np.ndarray | None
) -> None:
    """Also where fp32's would not fit."""
    assert keep_fixed(metric, OURS, labels, fp32) is OURS


def test_answers_stand_where_outputs_do() -> None:
    """For whoever judges; the file keeps both, and without answers it is as it was."""
    both = {"outputs": OURS, "answers": FP32, "labels": LABELS}
    taken = take_answers(both)
    assert taken["outputs"] is FP32
    assert (both["outputs"] is OURS, list(taken)) == (True, list(both))
    plain = {"outputs": OURS}
    assert take_answers(plain) is plain


def test_outputs_are_named_by_their_place() -> None:
    """The first has no number; the others by number, not by text, and whatever else a file holds is none."""
    assert [name_outputs(place) for place in (0, 1, 12)] == ["outputs", "outputs.1", "outputs.12"]
    assert list_outputs(["labels", "outputs.12", "outputs", "outputs.2"]) == ["outputs", "outputs.2", "outputs.12"]
    assert list_outputs(["labels"]) == ["outputs"]
    assert values_file(Path("a/b.npz")) == Path("a/b.values.npz")


def test_what_a_metric_does_not_have_it_does_not_say() -> None:
    """No facts, no units, no rows in place of outputs."""
    metric = FirstStays()
    assert (metric.facts(OURS, LABELS), metric.units(LABELS)) == (None, None)
    assert metric.value(OURS, LABELS) == 2.0
    with pytest.raises(NotImplementedError, match="mine has no facts"):
        metric.of_facts(OURS)
    with pytest.raises(NotImplementedError, match="mine takes the outputs themselves"):
        metric.summarize([OURS], LABELS)


def test_what_a_metric_does_not_say_of_itself() -> None:
    """It is a share of which more is better, whose limits are told without parts and without what nobody saw."""
    metric = FirstStays()
    assert (metric.percent, metric.higher_is_better, metric.unit, metric.perfect) == (True, True, "", None)
    assert (metric.groups, metric.unseen, metric.summary, metric.fact_score.groups) == (None, 0.0, "", None)
