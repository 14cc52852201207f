"""Where the file of a record's artifact lies; only one whose sha256 is the record's is it."""

from __future__ import annotations

from pathlib import Path

from qbench.cache import manifest, store
from qbench.files.stored_name import is_digest
from qbench.record.schema import Record


def find_in_cache(record: Record) -> Path | None:
    """The file of a record's artifact in the cache; None where it is not there."""
    facts = record.artifact
    if facts is None or facts.key is None or not is_digest(facts.sha256) or not is_digest(facts.key):
        return None  # a record is data: it names no folder but those that qbench names
    return find_sound(store.cache_folder() / "artifacts" / facts.key, facts.sha256)


def find_sound(folder: Path, sha256: str) -> Path | None:
    """The artifact's file in a folder of the cache or in a copy of one; None where anything is not as recorded."""
    try:
        listed = manifest.read(folder)
    except manifest.Damaged:
        return None
    name = listed.facts.get("file")
    return folder / name if isinstance(name, str) and listed.files.get(name) == sha256 else None
