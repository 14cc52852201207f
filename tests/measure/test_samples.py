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


def test_what_was_never_measured_is_empty() -> None:
    """Of a case of which nothing else is known."""
    bare = Samples(protocol="race", stopped="left")
    arrays = {name: value for name, value in vars(bare).items() if isinstance(value, np.ndarray)}
    assert len(arrays) == 14
    assert {name for name, array in arrays.items() if len(array)} == set()
    assert arrays["canary_ns"].shape == (0, 2)
    assert samples.list_blocks(bare) == []


def test_first_calls_are_left_out_of_both_clocks() -> None:
    """What is known of the whole block stays."""
    block = samples.BlockTiming(calls_ns=np.arange(5), processor_ns=np.arange(5) * 10, off_core=0.5, canary_ns=(1, 2))
    rest = block.without_first(2)
    assert rest.processor_ns is not None
    assert (rest.calls_ns.tolist(), rest.processor_ns.tolist()) == ([2, 3, 4], [20, 30, 40])
    assert (rest.off_core, rest.canary_ns) == (0.5, (1, 2))
    assert samples.BlockTiming(calls_ns=np.arange(5)).without_first(1).processor_ns is None


def test_stored_blocks_are_those_that_a_worker_saw() -> None:
    """Of unlike lengths; of one the processor time is not known, and what was told of whole blocks is told again."""
    stored = Samples(
        protocol="race", stopped="left", calls_ns=np.arange(6), block=np.asarray([0, 0, 0, 1, 2, 2]),
        processor_ns=np.asarray([5, 4, 3, -1, 2, 1]), involuntary=np.asarray([7, 8, 9]), faults=np.asarray([0, 1, 0]),
        off_core=np.asarray([0.0, 0.5, 0.25]), canary_ns=np.asarray([[1, 2], [3, 4], [5, 6]]),
    )  # fmt: skip
    blocks = samples.list_blocks(stored)
    assert [block.calls_ns.tolist() for block in blocks] == [[0, 1, 2], [3], [4, 5]]
    known = [None if block.processor_ns is None else block.processor_ns.tolist() for block in blocks]
    assert known == [[5, 4, 3], None, [2, 1]]
    told = [(block.involuntary, block.faults, block.off_core, block.canary_ns) for block in blocks]
    assert told == [(7, 0, 0.0, (1, 2)), (8, 1, 0.5, (3, 4)), (9, 0, 0.25, (5, 6))]
    assert samples.join_processor_times(blocks).tolist() == stored.processor_ns.tolist()
    bare = samples.list_blocks(
        Samples(protocol="race", stopped="left", calls_ns=np.arange(3), block=np.asarray([0, 1, 1]))
    )
    assert [(len(block.calls_ns), block.involuntary, block.canary_ns) for block in bare] == [
        (1, None, None),
        (2, None, None),
    ]
    assert samples.join_processor_times(bare).tolist() == []
