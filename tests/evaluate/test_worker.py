"""Rules of qbench/evaluate/worker.py: which outputs of a batch are kept, and how batches are filled and joined."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from qbench.evaluate import worker
from qbench.evaluate.worker import MOST_BYTES, count_kept, fill_batch, join_rows, take_usable


def test_outputs_with_a_row_of_floats_for_each_example_are_usable() -> None:
    """Beside the first, which is there whatever it is."""
    outputs = [
        np.zeros((4, 2), np.float64), np.ones((4, 3), np.float32), np.ones((4, 3), np.int64), np.ones((5, 3)),
        np.ones((4, 0)), np.float32(1.0), np.ones(4, np.float32),
    ]  # fmt: skip
    usable = take_usable(outputs, 4)
    assert list(usable) == [0, 1, 6]
    assert usable[0].dtype == np.float32
    only = take_usable([np.arange(3)], 3)
    assert only[0].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(("begin", "kept"), [(0, 64), (60, 4), (63, 1), (64, 0), (100, 0)])
def test_beside_answers_outputs_are_kept_up_to_so_many_bytes(begin: int, kept: int) -> None:
    """Of the first examples, wherever a batch stands."""
    outputs = np.zeros((2, MOST_BYTES // 64), np.uint8)
    assert count_kept(begin, outputs) == kept
    assert count_kept(0, outputs[:, :0]) == MOST_BYTES


def test_batches_are_joined_where_each_has_the_output_in_one_form() -> None:
    """Another one is left out, but for the first, which must be there."""
    first = [{0: np.zeros((2, 3)), 1: np.ones((2, 4)), 2: np.ones((2, 5)), 3: np.ones((2, 6))}]
    second = [{0: np.ones((1, 3)), 1: np.zeros((1, 4)), 2: np.ones((1, 6))}]
    joined = join_rows([*first, *second])
    assert list(joined) == [0, 1]
    assert joined[0][:, 0].tolist() == [0.0, 0.0, 1.0]
    assert joined[1][:, 0].tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="match exactly"):
        join_rows([{0: np.zeros((2, 3))}, {0: np.zeros((2, 4))}])


@pytest.mark.parametrize(("size", "rows"), [(0, [1, 2]), (1, [1, 2]), (2, [1, 2]), (4, [1, 2, 2, 2])])
def test_a_batch_is_filled_with_its_last_example(size: int, rows: list[int]) -> None:
    """Where an artifact takes no fewer."""
    filled = fill_batch((np.array([1, 2]), np.array([[1], [2]])), size)
    assert [array.reshape(-1).tolist() for array in filled] == [rows, rows]


@pytest.mark.parametrize("library", [True, False])
def test_freed_memory_is_kept_for_the_next_batch(monkeypatch: pytest.MonkeyPatch, library: bool) -> None:
    """By two settings of glibc; elsewhere there are none."""
    told: list[tuple[int, int]] = []
    made = SimpleNamespace(mallopt=lambda name, value: told.append((name, value))) if library else SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    worker._keep_memory()
    assert told == ([(-4, 0), (-1, 2**30)] if library else [])
