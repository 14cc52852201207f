"""Whether there is anything to measure: the baseline's artifact, byte by byte, run by the same versions on the same
kind of host, has not changed. What differs is named; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbench.backends.libraries import list_runtime_libraries
from qbench.record.schema import Record

# An artifact is built for these; another CPU of the same kind runs it alike, so a ratio of two means something.
BUILT_FOR = ("arch", "isa", "isa_switches", "os")


def is_same_file(old: Record | None, new: Record) -> bool:
    """Whether both records have an artifact, of one sha256."""
    if old is None or old.artifact is None or new.artifact is None:
        return False
    return old.artifact.sha256 == new.artifact.sha256


def list_updates(old: Mapping[str, str | None], new: Mapping[str, str | None], backend: str) -> list[str]:
    """What runs the artifacts of a backend, and is here in another version than in the baseline."""
    known = [name for name in list_runtime_libraries(backend) if old.get(name) is not None]
    return [name for name in known if old[name] != new.get(name)]


def differing_host(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first field by which two machines are not of one kind; None where they are."""
    return next((field for field in BUILT_FOR if old.get(field) != new.get(field)), None)
