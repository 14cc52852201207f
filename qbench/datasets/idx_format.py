"""Reading IDX files, the format of MNIST.

Format: http://yann.lecun.com/exdb/mnist/ (magic: two zero bytes, type, dimensions; sizes big-endian).
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from qbench.datasets.base import Array
from qbench.errors import DataError
from qbench.files import regular_file

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
# Deflate cannot do better (zlib's technical details); a header that promises more is damaged or a bomb.
MAX_DEFLATE_RATIO = 1032


def find_file(folder: Path, stem: str, kind: str) -> Path | None:
    """The file of that name in a folder, with a dash or a dot before its kind, plain or gzipped; None without one."""
    names = [f"{stem}{dot}{kind}{end}" for dot in "-." for end in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_idx(file: Path) -> Array:
    """The array of one file in native byte order; raises ``DataError`` for a wrong magic number or length."""
    try:
        with regular_file.open_file(file) as raw, gzip.open(raw) if file.suffix == ".gz" else raw as stream:
            return _read(stream, file)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise DataError(f"{file}: cannot read this IDX file: {error}; is the download complete?") from error


def _read(stream: BinaryIO | gzip.GzipFile, file: Path) -> Array:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] == 0:
        raise DataError(f"{file}: not an IDX file: its magic number is 0x{magic.hex() or '(empty)'}")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataError(f"{file}: truncated in the header; download it again")
    shape = struct.unpack(f">{magic[3]}I", sizes)
    dtype = np.dtype(TYPES[magic[2]])
    expected = math.prod(shape) * dtype.itemsize
    possible = file.stat().st_size * (MAX_DEFLATE_RATIO if file.suffix == ".gz" else 1)
    # One byte more shows a file that is too long; a promise that cannot be kept is not allocated.
    data = stream.read(expected + 1) if expected <= possible else b""
    if len(data) != expected:
        problem = f"{'more' if len(data) > expected else 'fewer'} bytes follow"
        raise DataError(f"{file}: the header says {shape}, {expected} bytes, but {problem}; download it again")
    return np.frombuffer(data, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))
