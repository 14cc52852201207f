"""Rules of datasets/idx_format.py and idx.py: what a file's header says is what is read, and no more."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from qbench import registry
from qbench.datasets.idx_format import find_file, read_idx
from qbench.errors import DataError


def write(file: Path, array: np.ndarray, code: int = 8) -> Path:
    """An array in the format, gzipped where the name says so."""
    data = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


@pytest.mark.parametrize(
    ("code", "kind"), [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")]
)
def test_each_code_stands_for_a_type(tmp_path: Path, code: int, kind: str) -> None:
    """Stored with the high byte first, read as this machine has it."""
    values = np.array([[-1 if kind[0] != "u" else 255, 2, 3]], dtype=f">{kind}")
    array = read_idx(write(tmp_path / "x", values, code))
    assert array.dtype == np.dtype(kind)
    assert array.dtype.isnative
    assert array.tolist() == values.tolist()


@pytest.mark.parametrize("code", [0x07, 0x0A, 0x0F, 0x00])
def test_other_codes_are_no_type(tmp_path: Path, code: int) -> None:
    """Nor is a file one of whose first bytes is not 0, or which has no axis."""
    with pytest.raises(DataError, match=f"its magic number is 0x0000{code:02x}01"):
        read_idx(write(tmp_path / "x", np.ones(3, np.uint8), code))
    for start in (b"\1\0\x08\1", b"\0\1\x08\1", b"\0\0\x08\0", b"\0\0\x08"):
        (tmp_path / "x").write_bytes(start + (b"\0\0\0\1a" if len(start) == 4 else b""))
        with pytest.raises(DataError, match=f"not an IDX file: its magic number is 0x{start.hex()}$"):
            read_idx(tmp_path / "x")


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_what_compresses_best_is_read(tmp_path: Path, name: str) -> None:
    """Three million zeros are a thousandth when they are packed."""
    assert read_idx(write(tmp_path / name, np.zeros((3, 1_000_000), np.uint8))).shape == (3, 1_000_000)


def test_a_promise_is_not_kept_beyond_what_a_file_can_hold(tmp_path: Path) -> None:
    """A packed one a thousand times its size, a plain one its size; nothing is read of others."""
    file = write(tmp_path / "x", np.ones(100, np.uint8))
    header = b"\0\0\x08\1"
    for count in (100, 101, 108, 109):
        file.write_bytes(header + struct.pack(">I", count) + bytes(100))
        if count == 100:
            assert read_idx(file).shape == (100,)
            continue
        with pytest.raises(DataError, match=rf"says \({count},\), {count} bytes, but fewer bytes follow; download it"):
            read_idx(file)


@pytest.mark.parametrize("name", ["a-idx3", "a-idx3.gz", "a.idx3", "a.idx3.gz"])
def test_a_file_may_be_called_in_four_ways(tmp_path: Path, name: str) -> None:
    """With a dash or a dot, plain or packed; of two the plain one with a dash comes first."""
    assert find_file(tmp_path, "a", "idx3") is None
    (tmp_path / name).write_bytes(b"")
    assert find_file(tmp_path, "a", "idx3") == tmp_path / name
    (tmp_path / "a-idx3").write_bytes(b"")
    assert find_file(tmp_path, "a", "idx3") == tmp_path / "a-idx3"


def test_a_split_may_have_no_labels(tmp_path: Path) -> None:
    """Left out or null; the images have one channel, other arrays stay as they are, and ids count them."""
    write(tmp_path / "x", np.arange(24, dtype=np.uint8).reshape(4, 2, 3))
    write(tmp_path / "y", np.arange(4, dtype=np.uint8))
    write(tmp_path / "flat", np.arange(8, dtype=np.uint8).reshape(4, 2))
    value = {
        "a": {"inputs": "x"},
        "b": {"inputs": "x", "labels": None},
        "c": {"inputs": "flat", "labels": "y"},
    }
    dataset = registry.load("dataset", "idx")(value, base=tmp_path, options={})
    assert (dataset.name, dataset.splits) == ("idx:a,b,c", ("a", "b", "c"))
    loaded = [dataset.load(split) for split in "abc"]
    assert [None if part.labels is None else part.labels.tolist() for part in loaded] == [None, None, [0, 1, 2, 3]]
    assert [part.inputs[0].shape for part in loaded] == [(4, 1, 2, 3), (4, 1, 2, 3), (4, 2)]
    assert loaded[0].ids == ("a[0]", "a[1]", "a[2]", "a[3]")
    with pytest.raises(DataError, match=r"d: expected \{inputs: file, labels: file\}, got \{'inputs': 'x', 'more': 1"):
        registry.load("dataset", "idx")({"d": {"inputs": "x", "more": 1}}, base=tmp_path, options={})
