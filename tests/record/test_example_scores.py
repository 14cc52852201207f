"""Rules of qbench/record/example_scores.py."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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
    rounded = ExampleScores(values=np.float32([0.1, 0.2]).astype(float), contents=np.array([1, 2], dtype=np.uint64))
    paired = pair(exact, rounded)
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


def test_a_key_is_48_bits_of_what_an_example_is_and_of_how_many_equal_ones_came_before() -> None:
    """A baseline that was committed holds keys, so that they are the same in every version."""
    images, labels = np.zeros((3, 10), dtype=np.uint8), np.zeros(3, dtype=np.int64)
    described = stored(images, labels)
    scores = example_scores(VALUES[:3], described)
    row = described["contents"][0].tobytes() + bytes(8)
    expected = [hashlib.sha256(count.to_bytes(8, "little") + row).digest()[:6] for count in range(3)]
    assert scores.contents is not None
    assert scores.contents.tolist() == [int.from_bytes(digest, "little") for digest in expected]
    paired = pair(scores, scores)
    assert paired.whole
    assert paired.new.tolist() == paired.old.tolist() == [1.0, 0.0, 1.0]


def test_an_example_that_has_a_partner_is_no_others_by_its_name() -> None:
    """What two runs have by content is gone, on either side, when names are looked for."""
    ids = ["a", "b"]
    new = example_scores(VALUES[:2], stored(np.array([[1] * 10, [2] * 10]), LABELS[[0, 0]], ids))
    old = example_scores(VALUES[:2], stored(np.array([[1] * 10, [3] * 10]), LABELS[[0, 0]], ids[::-1]))
    paired = pair(new, old)
    assert (paired.n, paired.by_id, paired.new.tolist(), paired.old.tolist()) == (1, 0, [1.0], [1.0])


def test_a_run_that_kept_no_contents_is_paired_whole_by_names() -> None:
    """That a content is another one is said only where both are known."""
    names = [f"cat/{place}.jpg" for place in range(6)]
    whole = stored(IMAGES, LABELS, names)
    older = {key: array for key, array in whole.items() if key != "contents"}
    sides = (example_scores(VALUES, whole), example_scores(VALUES, older))
    for new, old in (sides, sides[::-1]):
        assert pair(new, old).whole
    unnamed = {key: array for key, array in older.items() if key != "ids"}
    assert pair(example_scores(VALUES, unnamed), example_scores(VALUES, unnamed)).whole


def test_labels_are_the_same_whatever_their_width_and_none_where_they_are_of_others() -> None:
    """float32 beside float64, and texts; a file with more labels than examples says nothing by them."""
    for labels in (np.arange(6, dtype=np.float32), np.array([*"abcdef"])):
        wide = labels.astype(np.float64) if labels.dtype.kind == "f" else labels
        assert pair(example_scores(VALUES, stored(IMAGES, labels)), example_scores(VALUES, stored(IMAGES, wide))).whole
    more = {**stored(IMAGES, LABELS), "labels": np.arange(7)}
    bare = {key: array for key, array in stored(IMAGES, LABELS).items() if key != "labels"}
    assert pair(example_scores(VALUES, more), example_scores(VALUES, bare)).whole
    fewer = {**stored(IMAGES, LABELS), "contents": stored(IMAGES, LABELS)["contents"][:5]}
    assert example_scores(VALUES, fewer).contents is None


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (ExampleScores(values=VALUES, facts=True), ExampleScores(values=VALUES)),
        (ExampleScores(values=np.zeros((6, 2))), ExampleScores(values=np.zeros((6, 3)))),
        (ExampleScores(values=np.zeros((6, 2))), ExampleScores(values=VALUES)),
    ],
)
def test_only_values_of_one_kind_and_shape_are_paired(new: ExampleScores, old: ExampleScores) -> None:
    """Whatever else they have in common."""
    keys = np.arange(6, dtype=np.uint64)
    paired = pair(replace(new, contents=keys), replace(old, contents=keys))
    assert (paired.n, len(paired.old)) == (0, 0)
    assert pair_scores(None, old, has_score=True) is None


def test_whole_numbers_stay_what_they_are() -> None:
    """float32 holds no more than 16,777,216 of them one by one."""
    large = ExampleScores(values=np.array([2**24 + 1, 3]), contents=np.array([1, 2], dtype=np.uint64))
    paired = pair(large, large)
    assert paired.new.tolist() == [2**24 + 1, 3]
    assert paired.new.dtype == np.int64


def test_units_of_examples_that_have_no_names_have_none() -> None:
    """What stands in its order only is known by its contents."""
    described = {**stored(IMAGES, None), "outputs": np.zeros((6, 2))}
    units = Units(members=np.array([[0, 1], [2, 3]]), among=np.array([4]))
    scores = example_scores(VALUES[:2], described, units=units)
    assert scores.ids is None
    assert scores.contents is not None
