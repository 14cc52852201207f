"""Doubts about the data of a run: raised where fp32 itself guesses, and only there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from qbench.datasets.base import Examples, Preprocessing
from qbench.record import Accuracy
from qbench.run_guard import doubt, doubt_scores

IMAGES = np.linspace(0, 255, 2 * 48).reshape(2, 3, 4, 4).astype(np.uint8)


def data(classes=10, **preprocessing):
    made = Preprocessing(**preprocessing)
    return SimpleNamespace(
        classes=classes,
        preprocessing=made,
        evaluation_count=len(IMAGES),
        evaluation=lambda start, stop: made((IMAGES[start:stop],)),
        evaluation_examples=lambda: Examples(inputs=(IMAGES,), labels=None),
    )


def score(value, low, metric="top1"):
    return Accuracy(metric=metric, value=value, low=low, high=1.0, n=1000)


def test_images_that_were_not_scaled_are_named():
    """What the network gets stands in the words, and that whole numbers came as they are."""
    said = doubt(score(0.11, 0.09), data())
    assert said.startswith("fp32 is right on 11.0 % of 1,000 examples, which 10 classes give by guessing, too")
    assert "reach it from 0 to 255 (uint8, not scaled): is that what it was trained on" in said
    assert "reach it from 0 to 1: is that" in doubt(score(0.11, 0.09), data(scale=1 / 255))


@pytest.mark.parametrize(
    ("accuracy", "classes"),
    [
        (score(0.2, 0.101), 10),
        (score(0.6, 0.51), 2),
        (score(0.11, 0.09), None),
        (score(0.01, 0.0, "spearman"), 10),
        (replace(score(0.11, 0.09), low=None), 10),
    ],
    ids=["better", "of two", "classes not known", "another metric", "no limits"],
)
def test_nothing_is_said_of_a_network_that_knows_something(accuracy, classes):
    """Or of which that cannot be told: a guard that cries wolf is switched off."""
    assert doubt(accuracy, data(classes)) is None


def test_a_network_is_doubted_once_and_by_fp32_alone():
    """Two runtimes give one note; int8 that guesses where fp32 does not is a matter of the verdict."""

    def case(name, mode, baseline=None):
        variant = SimpleNamespace(model=SimpleNamespace(name=name))
        return SimpleNamespace(case=SimpleNamespace(id=f"{name}/{mode}", variant=variant), baseline=baseline)

    notes = []
    cases = [case("a", "fp32"), case("a", "fp32/b"), case("b", "fp32"), case("b", "static", "b/fp32")]
    poor = score(0.1, 0.08)
    state = SimpleNamespace(
        data=data(),
        plan=SimpleNamespace(cases=cases),
        accuracy={"a/fp32": poor, "a/fp32/b": poor, "b/fp32": score(0.9, 0.88), "b/static": poor},
        progress=SimpleNamespace(note=notes.append),
    )
    doubt_scores(state)
    assert [note.partition(":")[0] for note in notes] == ["a"]
