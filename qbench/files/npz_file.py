"""Arrays in an ``.npz`` file that somebody else may have written, read without trusting what the file says of itself.

numpy reads a header by compiling it and takes the shape that it names on trust: an open bracket ends in a tokenizer's
error, a huge shape in all the memory. Here a header must fit the bytes that are there before an array is made.
"""

from __future__ import annotations

import ast
import lzma
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from qbench.files import regular_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SUFFIX = ".npy"
# Deflate makes at most 1,032 bytes of one (zlib's technical notes); a file that claims more is made to fill memory.
MOST_EXPANSION = 1032
_LONGEST_HEADER = 1 << 14  # bytes; numpy writes 128
_SLACK = 1 << 16  # bytes that even an empty file may claim: a header
# What zipfile, zlib, lzma and numpy raise for a damaged file; NotImplementedError and RecursionError are RuntimeErrors.
_DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError),
    *(MemoryError, SyntaxError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


class BadNpz(ValueError):
    """The file, or the array ``key`` in it, cannot be read; the text says why. ``pickled``: it holds objects, which
    only a pickle could bring back."""

    def __init__(self, what: str, *, key: str | None = None, pickled: bool = False) -> None:
        self.key, self.pickled = key, pickled
        super().__init__(what)


def names(file: Path) -> tuple[str, ...]:
    """The names of the arrays in a file, without reading one; raises ``BadNpz``."""
    with _opened(file) as archive:
        return tuple(dict.fromkeys(_keys(archive)))


def shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The shape that the header of each array names, without numpy and without reading an array; an array whose header
    is no plain one is left out. Raises ``BadNpz``."""
    with _opened(file) as archive:
        by_key = {key: _shape(archive, entry) for key, entry in _keys(archive).items()}
        return {key: shape for key, shape in by_key.items() if shape is not None}


def _shape(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, ...] | None:
    try:
        with archive.open(entry) as stream:
            start = stream.read(_LONGEST_HEADER)
        width = {1: 2, 2: 4}[start[6]]
        length = int.from_bytes(start[8 : 8 + width], "little")
        shape = ast.literal_eval(start[8 + width : 8 + width + length].decode("latin-1").strip())["shape"]
    except _DAMAGE:
        return None
    sound = isinstance(shape, tuple) and all(type(side) is int and side >= 0 for side in shape)
    return shape if sound and start[:6] == b"\x93NUMPY" else None


def read(file: Path, only: Collection[str] | None = None) -> dict[str, Array]:
    """The arrays of a file by name, all of them or those that are named; raises ``BadNpz``."""
    with _opened(file) as archive:
        entries = _keys(archive)
        missing = [key for key in only or () if key not in entries]
        if missing:
            raise BadNpz(f"no array '{missing[0]}' in it", key=missing[0])
        return {key: _array(archive, entries[key], key) for key in (entries if only is None else only)}


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        stream = regular_file.open_file(file)
    except OSError as error:
        raise BadNpz(error.strerror or _said(error)) from error
    with stream:
        try:
            archive = zipfile.ZipFile(stream)
        except _DAMAGE as error:
            raise BadNpz(_said(error)) from error
        with archive:
            yield archive


def _keys(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entry of each array; of two with one name the last, as numpy has it."""
    return {
        entry.filename.removesuffix(SUFFIX): entry for entry in archive.infolist() if entry.filename.endswith(SUFFIX)
    }


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, key: str) -> Array:
    import numpy as np

    if entry.file_size > entry.compress_size * MOST_EXPANSION + _SLACK:
        raise BadNpz(f"{entry.compress_size:,} bytes that claim to be {entry.file_size:,}", key=key)
    try:
        with warnings.catch_warnings():
            # numpy's remark on headers of Python 2; they are read all the same.
            warnings.simplefilter("ignore", UserWarning)
            with archive.open(entry) as stream:
                _require_sound(stream, entry.file_size, key)
            with archive.open(entry) as stream:
                array: Array = np.lib.format.read_array(stream, allow_pickle=False)
                return array
    except BadNpz:
        raise
    except _DAMAGE as error:
        raise BadNpz(_said(error), key=key) from error


def _require_sound(stream: IO[bytes], size: int, key: str) -> None:
    """Raises ``BadNpz`` unless the header's shape and type account for every byte of the entry."""
    import numpy as np

    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise BadNpz(f"written in version {version} of numpy's format, which holds no plain numbers", key=key)
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise BadNpz("Object arrays cannot be read without pickle", key=key, pickled=True)
    claimed = math.prod(shape) * dtype.itemsize
    there = size - stream.tell()
    empty_words = dtype.itemsize == 0 and math.prod(shape) > 0  # any number of them would fit into no bytes
    if any(side < 0 for side in shape) or claimed != there or empty_words:
        raise BadNpz(f"its header says {dtype}{list(shape)}, {claimed:,} bytes, but {there:,} are there", key=key)


def _said(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__
