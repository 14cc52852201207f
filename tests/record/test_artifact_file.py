"""Rules of qbench/record/artifact_file.py: only the file of the recorded bytes is a record's artifact."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import int8

from qbench.cache import manifest
from qbench.record.artifact_file import find_in_cache, find_sound
from qbench.record.schema import Record

KEY = "a" * 64


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Record, Path]:
    """A record and the file of its artifact in the cache."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path))
    folder = tmp_path / "artifacts" / KEY
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"a model")
    manifest.write(folder, {"file": "model.onnx"})
    record = int8()
    assert record.artifact is not None
    sha256 = manifest.file_digest(folder / "model.onnx")
    return replace(record, artifact=replace(record.artifact, key=KEY, sha256=sha256)), folder / "model.onnx"


def test_an_artifact_is_found_by_its_key(kept: tuple[Record, Path]) -> None:
    """And by nothing where the record has none."""
    record, file = kept
    assert record.artifact is not None
    assert find_in_cache(record) == file
    assert find_in_cache(replace(record, artifact=None)) is None
    assert find_in_cache(replace(record, artifact=replace(record.artifact, key=None))) is None
    assert find_in_cache(replace(record, artifact=replace(record.artifact, key="b" * 64))) is None


def test_a_record_names_no_other_folder(kept: tuple[Record, Path]) -> None:
    """A key that is no digest leads nowhere, whatever lies there."""
    record, file = kept
    assert record.artifact is not None
    moved = file.parent.parent.parent / "elsewhere"
    file.parent.rename(moved)
    assert find_in_cache(replace(record, artifact=replace(record.artifact, key="../elsewhere"))) is None
    content = json.loads((moved / "manifest.json").read_text())
    assert find_sound(moved, content["files"]["model.onnx"]) == moved / "model.onnx"


def test_a_file_of_other_bytes_is_no_artifact(kept: tuple[Record, Path]) -> None:
    """Neither one that changed, nor one that never was the record's, nor a folder that names no file."""
    record, file = kept
    assert record.artifact is not None
    assert find_in_cache(replace(record, artifact=replace(record.artifact, sha256="0" * 64))) is None
    for name in (None, ["model.onnx"], "other.onnx"):
        manifest.write(file.parent, {"file": name})
        assert find_in_cache(record) is None
    manifest.write(file.parent, {"file": "model.onnx"})
    assert find_in_cache(record) == file
    file.write_bytes(b"a mod")
    assert find_in_cache(record) is None
