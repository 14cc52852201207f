"""Arrays of an .npz: what a file says of itself is checked against the bytes that are there."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from qbench.files import npz_file
from qbench.files.npz_file import BadNpz


def entry(header: str, content: bytes = b"") -> bytes:
    """An .npy with that header."""
    padded = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + content


def archive(folder: Path, content: bytes, *, compress: bool = False) -> Path:
    """An .npz whose one array ``a`` is these bytes."""
    file = folder / "held.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as stream:
        stream.writestr("a.npy", content)
    return file


def test_what_numpy_wrote_is_read(tmp_path: Path) -> None:
    """Every array by name, or those that were asked for; text and numbers of any order in memory."""
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.asfortranarray(np.eye(3)), "c": np.array(["é", ""]),
              "none": np.empty((0, 4)), "scalar": np.float32(2)}  # fmt: skip
    np.savez_compressed(tmp_path / "held.npz", **arrays)
    content = npz_file.read(tmp_path / "held.npz")
    assert npz_file.names(tmp_path / "held.npz") == tuple(arrays) == tuple(content)
    assert all(np.array_equal(content[name], array) for name, array in arrays.items())
    assert list(npz_file.read(tmp_path / "held.npz", ["b"])) == ["b"]
    with pytest.raises(BadNpz, match="no array 'd' in it"):
        npz_file.read(tmp_path / "held.npz", ["a", "d"])


def test_no_words_at_all_are_read(tmp_path: Path) -> None:
    """An array without elements fits into no bytes, whatever its type is; one of empty words without end does not."""
    header = "{'descr': '<U0', 'fortran_order': False, 'shape': (0, 3), }"
    assert npz_file.read(archive(tmp_path, entry(header)))["a"].shape == (0, 3)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (", "Cannot parse header|EOF|header"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000000), }", "but 0 are there"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "but 0 are there"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 0), }", r"<f4\[-1, 0\]|float32\[-1, 0\]"),
        ("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,), }", "but 0 are there"),
        ("{'descr': '<U0', 'fortran_order': False, 'shape': (1,), }", "but 0 are there"),
        ("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,), }", "descr"),
        ("(" * 100, "EOF|never closed|multi-line"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "pickle"),
    ],
)
def test_a_header_that_does_not_fit_is_named(header: str, words: str, tmp_path: Path) -> None:
    """No traceback of a tokenizer, and no array made for a shape that no bytes stand behind."""
    with pytest.raises(BadNpz, match=words) as caught:
        npz_file.read(archive(tmp_path, entry(header)))
    assert caught.value.key == "a"
    assert caught.value.pickled == ("|O" in header)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """Deflate expands a byte to 1,032 at most: a directory that claims more was made to fill memory."""
    file = archive(tmp_path, b"x" * 1000, compress=True)
    data = bytearray(file.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", 2**31)  # the unpacked size
    file.write_bytes(data)
    with pytest.raises(BadNpz, match="that claim to be 2,147,483,648"):
        npz_file.read(file)


@pytest.mark.parametrize(("more", "is_bomb"), [(0, False), (1, True)])
def test_what_deflate_can_expand_is_no_bomb(tmp_path: Path, more: int, is_bomb: bool) -> None:
    """1,032 times, and a header."""
    file = archive(tmp_path, b"x" * 1000, compress=True)
    with zipfile.ZipFile(file) as stream:
        most = stream.infolist()[0].compress_size * 1032 + 2**16
    data = bytearray(file.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", most + more)
    file.write_bytes(data)
    with pytest.raises(BadNpz) as caught:
        npz_file.read(file)
    assert ("that claim to be" in str(caught.value)) == is_bomb


PLAIN = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"
LONG = (PLAIN % "(4, 0)").encode().ljust(70_000)
# Of 16 KiB twelve bytes are what stands before the header.
LONGEST, TOO_LONG = (b"{" + (PLAIN % "(4, 0)")[1:].encode().rjust(2**14 - 13 + more) for more in (0, 1))


@pytest.mark.parametrize(
    ("content", "shape"),
    [
        (entry(PLAIN % "(4, 0)"), (4, 0)),
        (entry(PLAIN % "()"), ()),
        (entry(PLAIN % "(-1,)"), None),
        (entry(PLAIN % "(True,)"), None),
        (entry(PLAIN % "[4]"), None),
        (entry("{'descr': '<f4'}"), None),
        (b"\x93NUMPX" + entry(PLAIN % "(4,)")[6:], None),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 60) + (PLAIN % "(4,)").encode().ljust(60), (4,)),
        (b"\x93NUMPY\x03\x00" + struct.pack("<I", 60) + (PLAIN % "(4,)").encode().ljust(60), None),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", len(LONG)) + LONG, (4, 0)),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", len(LONGEST)) + LONGEST, (4, 0)),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", len(TOO_LONG)) + TOO_LONG, None),
        (b"\x93NUM", None),
    ],
)
def test_a_shape_is_told_where_the_header_is_a_plain_one(
    tmp_path: Path, content: bytes, shape: tuple[int, ...] | None
) -> None:
    """Of numpy's versions 1 and 2; any other array is left out, not refused."""
    assert npz_file.shapes(archive(tmp_path, content)) == ({} if shape is None else {"a": shape})


def test_an_array_of_another_version_is_refused(tmp_path: Path) -> None:
    """With its number."""
    with pytest.raises(BadNpz, match=r"written in version \(3, 0\) of numpy's format") as caught:
        npz_file.read(archive(tmp_path, b"\x93NUMPY\x03\x00" + entry(PLAIN % "()")[8:]))
    assert not caught.value.pickled


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_other_entries_are_no_arrays_and_of_two_with_one_name_the_last_counts(tmp_path: Path) -> None:
    """As numpy has it."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as stream:
        stream.writestr("notes.txt", "mine")
        for content in (b"\0\0\0\0", b"\0\0\x80\x3f"):
            stream.writestr("a.npy", entry(PLAIN % "(1,)", content))
    assert npz_file.names(tmp_path / "x.npz") == ("a",)
    assert npz_file.read(tmp_path / "x.npz")["a"].tolist() == [1.0]


def test_any_damage_is_one_error(tmp_path: Path) -> None:
    """Whatever byte is wrong: read as it is, or refused with BadNpz; nothing else comes out."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.arange(50.0), b=np.array(["x", "y"]))
    whole, random = buffer.getvalue(), np.random.RandomState(0)
    file = tmp_path / "held.npz"
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for place in random.randint(0, len(data), random.randint(1, 6)):
            data[place] = random.randint(256)
        file.write_bytes(bytes(data[: random.choice([len(data), random.randint(len(data))])]))
        try:
            npz_file.read(file)
        except BadNpz:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_either_version_of_the_format_that_holds_plain_numbers_is_read(
    tmp_path: Path, version: tuple[int, int]
) -> None:
    """The third one names fields beyond latin-1, which these have not."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as packed, packed.open("x.npy", "w") as stream:
        np.lib.format.write_array(stream, np.arange(3), version=version)
    if version < (3, 0):
        assert npz_file.read(tmp_path / "a.npz")["x"].tolist() == [0, 1, 2]
        return
    with pytest.raises(BadNpz, match=r"written in version \(3, 0\) of numpy's format"):
        npz_file.read(tmp_path / "a.npz")


def test_a_header_of_python_2_is_read_without_a_word(tmp_path: Path) -> None:
    """numpy remarks on its whole numbers, which end with an L."""
    assert npz_file.read(archive(tmp_path, entry(PLAIN % "(0L, 3)")))["a"].shape == (0, 3)


def test_what_numpy_says_of_damage_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line, of 200 letters at most; what says nothing is called by its kind, and a file that is not there as
    the system calls it."""
    with pytest.raises(BadNpz) as caught:
        npz_file.read(archive(tmp_path, entry("{'descr': '%s', 'fortran_order': False, 'shape': (), }" % ("x" * 300))))
    assert len(str(caught.value)) == 200

    def fail(stream: object) -> None:
        raise EOFError

    monkeypatch.setattr(zipfile, "ZipFile", fail)
    with pytest.raises(BadNpz, match="^EOFError$"):
        npz_file.names(tmp_path / "held.npz")
    with pytest.raises(BadNpz, match="^No such file or directory$"):
        npz_file.names(tmp_path / "none.npz")
