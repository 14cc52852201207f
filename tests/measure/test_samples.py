"""Raw observations: what one block does not have is had of none, and what is stored is what was seen."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from qbench.files.npz_file import BadNpz
from qbench.measure import samples
from qbench.measure.samples import Samples


def test_what_the_system_does_not_tell_of_a_block_is_told_of_none() -> None:
    """A sum over some of them would be taken for that of all; zero is a value."""
    assert samples.counts([0, 3]).tolist() == [0, 3]
    assert samples.counts([1, None]).tolist() == []
    assert samples.counts([None]).tolist() == []
    assert samples.shares([0.0, 0.5]).tolist() == [0.0, 0.5]
    assert samples.shares([0.5, None]).tolist() == []
    assert samples.canary_rows([(1, 2), (3, 4)]).tolist() == [[1, 2], [3, 4]]
    assert samples.canary_rows([(1, 2), None]).shape == (0, 2)
    assert samples.canary_rows([]).shape == (0, 2)


def test_calls_are_joined_with_the_block_of_each() -> None:
    """Blocks may be of unlike length; none are none."""
    calls, block = samples.joined([np.asarray([1, 2, 3]), np.asarray([4])])
    assert (calls.tolist(), block.tolist(), block.dtype) == ([1, 2, 3, 4], [0, 0, 0, 1], np.int64)
    calls, block = samples.joined([])
    assert (calls.tolist(), block.tolist()) == ([], [])


def test_readings_of_the_canary_are_listed_by_block() -> None:
    """None for each block where nothing was read."""
    read = Samples(
        protocol="paired", stopped="tied", block=np.asarray([0, 0, 1]), canary_ns=np.asarray([[1, 2], [3, 4]])
    )
    assert samples.list_canary(read) == [(1, 2), (3, 4)]
    unread = Samples(protocol="paired", stopped="tied", block=np.asarray([0, 0, 1]))
    assert samples.list_canary(unread) == [None, None]


def test_every_field_survives_the_disk(tmp_path: Path) -> None:
    """Numbers, names and what was never set."""
    stored = Samples(
        protocol="paired", stopped="left", calls_ns=np.asarray([1, 2]), block=np.asarray([0, 1]),
        process=np.asarray([4, 4]), round=np.asarray([0, 1]), involuntary=np.asarray([0, 1]),
        off_core=np.asarray([0.5, 0]), discarded=3, seconds=1.5,
    )  # fmt: skip
    samples.save(tmp_path / "a.npz", stored)
    again = samples.load(tmp_path / "a.npz")
    for name, value in vars(stored).items():
        assert np.array_equal(getattr(again, name), value), name
    assert (type(again.protocol), type(again.discarded), type(again.seconds)) == (str, int, float)
    plain = Samples(protocol="sequential", stopped="fixed")
    samples.save(tmp_path / "b.npz", plain)
    assert math.isnan(samples.load(tmp_path / "b.npz").seconds)
    assert samples.load(tmp_path / "b.npz").discarded == 0


@pytest.mark.parametrize(
    ("arrays", "missing"), [({"protocol": "paired"}, "stopped"), ({"stopped": "tied"}, "protocol"), ({}, "protocol")]
)
def test_a_file_without_what_every_one_has_is_none_of_qbenchs(
    tmp_path: Path, arrays: dict[str, str], missing: str
) -> None:
    """The first name that is missing is told; a file of an older version lacks others."""
    np.savez(tmp_path / "a.npz", **{name: np.asarray(value) for name, value in arrays.items()})  # type: ignore[arg-type]
    with pytest.raises(BadNpz, match=f"no array '{missing}' in it"):
        samples.load(tmp_path / "a.npz")
