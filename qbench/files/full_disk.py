"""Is the disk full? Native writers tell of it in their own words ("unexpected pos 142848 vs 142736"), or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

# What must fit: a writer that failed at its next block has left less than that, or nothing at all.
ROOM_BYTES = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def names_full_disk(error: BaseException) -> bool:
    """Whether an error says so in the system's words: what did not fit may be gone, so that there is room again."""
    return any(os.strerror(code) in str(error) for code in FULL)


def is_full(folder: Path) -> bool:
    """Whether a folder takes no further ``ROOM_BYTES``: no room, the quota is used up, or files may not be longer."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            missing = ROOM_BYTES
            while missing > 0:
                missing -= file.write(bytes(missing))
    except OSError as error:
        return error.errno in FULL
    return False
