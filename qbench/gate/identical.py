"""Whether a case's artifact is the baseline's, byte by byte: then nothing needs measuring; pure."""

from __future__ import annotations

from qbench.record.schema import Record


def is_identical(old: Record | None, new: Record) -> bool:
    """Whether both records have an artifact, of one sha256."""
    if old is None or old.artifact is None or new.artifact is None:
        return False
    return old.artifact.sha256 == new.artifact.sha256
