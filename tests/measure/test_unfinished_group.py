"""What a group knows so far: all of it or nothing, for the very same group."""

from __future__ import annotations

import numpy as np

from qbench.measure.protocol import CONTROL
from qbench.measure.samples import Samples
from qbench.measure.unfinished_group import Checkpoint


def known(*cases):
    return {
        case: Samples(protocol="paired", stopped="precision", calls_ns=np.asarray([i, i + 1]))
        for i, case in enumerate(cases)
    }


def test_what_is_written_is_read_by_the_same_group(tmp_path):
    """Case names with slashes are no trouble; nothing temporary stays."""
    group = Checkpoint(tmp_path, ["m/fp32/torch/t1/b1", "m/static/x86/t1/b1"])
    assert group.read() == {}
    group.write(known("m/fp32/torch/t1/b1", CONTROL, "m/static/x86/t1/b1"))
    again = Checkpoint(tmp_path, ["m/fp32/torch/t1/b1", "m/static/x86/t1/b1"]).read()
    assert again["m/static/x86/t1/b1"].calls_ns.tolist() == [2, 3]
    assert len(list(tmp_path.iterdir())) == 1


def test_another_group_starts_anew(tmp_path):
    """One case more or less is another schedule."""
    Checkpoint(tmp_path, ["b", "a"]).write(known("b", CONTROL, "a"))
    assert Checkpoint(tmp_path, ["b", "a", "c"]).read() == {}
    assert Checkpoint(tmp_path, ["b"]).read() == {}


def test_half_a_group_is_none(tmp_path):
    """A missing or damaged file means to start anew."""
    group = Checkpoint(tmp_path, ["b", "a"])
    group.write(known("b", "a"))
    assert group.read() == {}
    for damage in (b"damaged", b""):
        group.write(known("b", CONTROL, "a"))
        for file in tmp_path.rglob("*.npz"):
            file.write_bytes(damage)
        assert group.read() == {}


def test_no_damage_ends_the_run_that_goes_on(tmp_path):
    """A disk that lost power leaves anything: a file cut off anywhere, a bit that is another."""
    group = Checkpoint(tmp_path, ["b", "a"])
    group.write(known("b", CONTROL, "a"))
    file, rng = next(tmp_path.rglob("*.npz")), np.random.default_rng(0)
    whole = file.read_bytes()
    for position in rng.integers(0, len(whole), 250).tolist():
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (position % 8)
        for damaged in (whole[:position], bytes(flipped)):
            file.write_bytes(damaged)
            assert set(group.read()) in (set(), {"b", CONTROL, "a"})


def test_removing_leaves_nothing(tmp_path):
    """After its cases are recorded."""
    group = Checkpoint(tmp_path, ["b", "a"])
    group.write(known("b", CONTROL, "a"))
    group.remove()
    group.remove()
    assert list(tmp_path.iterdir()) == []
