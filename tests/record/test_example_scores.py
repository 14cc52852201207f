"""Rules of qbench/record/example_scores.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from qbench.datasets import overlap
from qbench.datasets.base import Examples
from qbench.metrics.base import Units
from qbench.record.example_scores import ExampleScores, example_scores, pair, pair_scores


def stored(images: np.ndarray, labels: np.ndarray | None, ids: list[str] | None = None) -> dict[str, np.ndarray]:
    """What predictions hold of examples, but the outputs."""
    paired: dict[str, Any] = {"contents": overlap.digest_examples(Examples(inputs=(images,), labels=labels))}
    if labels is not None:
        paired["labels"] = labels
    paired["ids"] = np.asarray(ids or [str(place) for place in range(len(images))])
    return paired


IMAGES = np.arange(60, dtype=np.uint8).reshape(6, 10)
LABELS = np.array([0, 1, 0, 1, 0, 1])
VALUES = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])


def test_examples_are_found_again_wherever_they_stand_and_however_they_are_stored() -> None:
    """Another order, float32 in place of bytes and labels of another width are the same examples."""
    order = np.array([3, 1, 5, 0, 2, 4])
    old = example_scores(VALUES, stored(IMAGES, LABELS))
    new = example_scores(VALUES[order], stored(IMAGES[order].astype(np.float32), LABELS[order].astype(np.int8)))
    paired = pair(new, old)
    assert paired.whole
    assert (paired.new == paired.old).all()
    assert paired.new.tolist() == VALUES[order].tolist()


def test_only_shared_examples_are_paired() -> None:
    """Examples that one run lacks, or that got another label, are left out and counted."""
    relabelled = LABELS.copy()
    relabelled[0] = 1
    old = example_scores(VALUES, stored(IMAGES, LABELS))
    new = example_scores(VALUES[:5], stored(IMAGES[:5], relabelled[:5]))
    paired = pair(new, old)
    assert (paired.n, paired.of_new, paired.of_old, paired.whole) == (4, 5, 6, False)
    assert pair(example_scores(VALUES, stored(IMAGES + 100, LABELS)), old).n == 0


def test_equal_examples_are_told_apart_by_counting() -> None:
    """An image that stands there three times has three values, and two of them here pair with two of those there."""
    three = np.zeros((3, 10), dtype=np.uint8)
    old = example_scores(VALUES[:3], stored(three, LABELS[[0, 0, 0]]))
    new = example_scores(VALUES[:2], stored(three[:2], LABELS[[0, 0]]))
    assert pair(new, old).n == 2


def test_names_pair_what_was_read_otherwise_positions_do_not() -> None:
    """Photos that are cut to another size are the same by their names, and so it is said; 0, 1, 2 are no names."""
    names = [f"cat/{place}.jpg" for place in range(6)]
    old = example_scores(VALUES, stored(IMAGES, LABELS, names))
    new = example_scores(VALUES, stored(IMAGES + 100, LABELS, names))
    paired = pair(new, old)
    assert (paired.n, paired.by_id, paired.whole) == (6, 6, False)
    unnamed = example_scores(VALUES, stored(IMAGES + 100, LABELS))
    assert pair(unnamed, example_scores(VALUES, stored(IMAGES, LABELS))).n == 0


def test_predictions_without_contents_are_paired_by_their_names() -> None:
    """Runs of qbench before it kept contents have ids, or at least an order."""
    older = {key: array for key, array in stored(IMAGES, LABELS).items() if key != "contents"}
    paired = pair(example_scores(VALUES, older), example_scores(VALUES, older))
    assert paired.whole


def test_values_of_two_kinds_are_not_paired() -> None:
    """Right or wrong beside what another metric is made from: nothing is shared."""
    old = example_scores(np.zeros((6, 2)), stored(IMAGES, LABELS), facts=True)
    assert pair(example_scores(VALUES, stored(IMAGES, LABELS)), old).n == 0


def test_facts_of_another_width_are_those_of_a_run_with_fewer() -> None:
    """As boxes are, of which an image of one run can have more: what is missing says nothing."""
    many, few = np.arange(36.0).reshape(6, 3, 2), np.full((6, 1, 2), 7.0)
    new, old = (example_scores(facts, stored(IMAGES, LABELS), facts=True) for facts in (many, few))
    for first, second in ((new, old), (old, new)):
        paired = pair(first, second)
        assert (paired.n, paired.new.shape, paired.old.shape) == (6, (6, 3, 2), (6, 3, 2))
        assert paired.facts
    values = example_scores(VALUES, stored(IMAGES, LABELS))
    for other, has_score, pairs in ((None, True, False), (values, True, False), (old, False, False), (old, True, True)):
        assert (pair_scores(new, other, has_score=has_score) is not None) is pairs
    assert pair_scores(values, values, has_score=False) is not None


def test_numbers_are_compared_as_a_baseline_keeps_them() -> None:
    """float32: what is the same in both must not differ by rounding."""
    exact = ExampleScores(values=np.array([0.1, 0.2]), contents=np.array([1, 2], dtype=np.uint64))
    example_scores = ExampleScores(
        values=np.float32([0.1, 0.2]).astype(float), contents=np.array([1, 2], dtype=np.uint64)
    )
    paired = pair(exact, example_scores)
    assert (paired.new == paired.old).all()


def test_a_unit_of_several_examples_is_found_whatever_their_order_and_only_among_the_same() -> None:
    """Both texts of a pair make its key, in either order; those that it is scored among do, too, but for its name."""
    names = [f"text {place}" for place in range(6)]
    described = {**stored(IMAGES, None, names), "outputs": np.zeros((6, 2))}
    old = example_scores(VALUES[:2], described, units=Units(members=np.array([[0, 1], [2, 3]]), among=np.array([4])))
    turned = Units(members=np.array([[3, 2], [1, 0]]), among=np.array([4]))
    again = pair(example_scores(VALUES[:2][::-1], described, units=turned), old)
    assert again.whole
    assert (again.new == again.old).all()
    beside = Units(members=np.array([[0, 1], [2, 3]]), among=np.array([4, 5]))
    paired = pair(example_scores(VALUES[:2], described, units=beside), old)
    assert (paired.n, paired.by_id) == (2, 2)
    others = Units(members=np.array([[0, 3], [2, 5]]), among=np.array([4]))
    assert pair(example_scores(VALUES[:2], described, units=others), old).n == 0
