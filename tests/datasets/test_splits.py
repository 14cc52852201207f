"""Rules of datasets/splits.py: every class in its proportion, and no example on both sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.datasets.base import Examples
from qbench.datasets.options import SplitOptions
from qbench.datasets.splits import split_by_share, split_stratified, split_without_twins
from qbench.errors import DataError


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.data(), st.sampled_from([0, 5, 2**32 + 5]))
def test_each_class_gives_its_share(groups: list[int], data: st.DataObject, seed: int) -> None:
    """Rounded down or up, and together exactly as many as are asked for; both sides are in order and hold all."""
    test = data.draw(st.integers(1, len(groups) - 1))
    split = split_stratified(np.array(groups), test=test, seed=seed)
    assert len(split["test"]) == test
    assert sorted([*split["train"], *split["test"]]) == list(range(len(groups)))
    assert all((np.diff(side) > 0).all() for side in split.values())
    for group in set(groups):
        exact = groups.count(group) * test / len(groups)
        assert np.floor(exact) <= sum(groups[place] == group for place in split["test"]) <= np.floor(exact) + 1


def test_what_is_left_goes_to_those_that_lost_most_by_rounding() -> None:
    """7, 2 and 1 of 10, of which 5 are for test: 3.5, 1 and 0.5, so the first of the halves gets one more."""
    groups = np.repeat([0, 1, 2], [7, 2, 1])
    assert np.bincount(groups[split_stratified(groups, test=5, seed=0)["test"]], minlength=3).tolist() == [4, 1, 0]


def test_a_split_is_the_same_for_ever() -> None:
    """By its seed, of which 32 bits count: scores of other versions are of the same examples."""
    groups = np.arange(12) % 2
    split = split_stratified(groups, test=4, seed=3)
    assert split["test"].tolist() == [6, 9, 10, 11]
    assert split_stratified(groups, test=4, seed=3 + 2**32)["test"].tolist() == [6, 9, 10, 11]
    assert split_stratified(groups, test=4, seed=4)["test"].tolist() != [6, 9, 10, 11]


@pytest.mark.parametrize(("n", "test"), [(1, 1), (3, 0), (3, 3), (0, 0)])
def test_a_split_without_an_example_is_none(n: int, test: int) -> None:
    """Both sides need one."""
    with pytest.raises(DataError, match=f"^{n} examples cannot be split into train and test with {test} for test"):
        split_stratified(np.zeros(n), test=test, seed=0)


@pytest.mark.parametrize(
    ("n", "share", "test"), [(10, 0.25, 2), (10, 0.01, 1), (10, 0.99, 9), (2, 0.5, 1), (6, 0.25, 2)]
)
def test_a_share_is_at_least_one_example_on_either_side(n: int, share: float, test: int) -> None:
    """Rounded, half to even."""
    assert len(split_by_share(np.zeros(n), test_share=share, seed=0)["test"]) == test


@pytest.mark.parametrize("labels", [None, np.arange(8.0), np.zeros((8, 2), dtype=int), np.arange(8) % 2])
def test_what_is_the_same_to_the_model_stays_on_one_side(labels: np.ndarray | None) -> None:
    """Two inputs are the same where all their arrays are; classes count where labels are classes."""
    values = np.array([[1.0], [2.0], [1.0], [3.0], [1.0], [4.0], [2.0], [5.0]])
    mask = np.array([[1], [1], [1], [1], [1], [1], [0], [1]])  # the second 2 is another one
    options = SplitOptions.model_validate({"test_share": 0.5})
    split = split_without_twins(options, Examples(inputs=(values, mask), labels=labels))
    assert sorted([*split["train"], *split["test"]]) == list(range(8))
    ones = {0, 2, 4}
    assert {len(ones & set(side.tolist())) for side in split.values()} == {0, 3}
    assert sum(len(set(side.tolist()) - {2, 4}) for side in split.values()) == 6
    assert {len(set(side.tolist()) - {2, 4}) for side in split.values()} == {3}


def test_each_class_keeps_its_proportion_where_there_are_classes() -> None:
    """Of 12 and 4 a quarter each, whatever the seed; numbers with a point, and rows, are no classes."""
    labels = np.repeat([0, 1], [12, 4])
    by_kind = []
    for kind in (labels, labels.astype(float), labels[:, None]):
        shares = set()
        for seed in range(8):
            options = SplitOptions.model_validate({"seed": seed})
            split = split_without_twins(options, Examples(inputs=(np.arange(16)[:, None],), labels=kind))
            shares.add(int(labels[split["test"]].sum()))
        by_kind.append(shares)
    assert by_kind[0] == {1}
    assert len(by_kind[1]) > 1
    assert by_kind[1] == by_kind[2]


def test_examples_that_are_all_the_same_cannot_be_split() -> None:
    """Two different ones can."""
    same, two = (Examples(inputs=(np.array(values),), labels=None) for values in ([[1], [1]], [[1], [1], [2]]))
    with pytest.raises(DataError, match="1 different examples cannot be split into train and test"):
        split_without_twins(SplitOptions(), same)
    assert {len(side) for side in split_without_twins(SplitOptions(), two).values()} == {1, 2}
