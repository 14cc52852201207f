"""Rules of qbench/record/origin.py: which files can have come in one archive with a run."""

from __future__ import annotations

from pathlib import Path

from qbench.record.origin import came_with


def test_where_one_works_nothing_came_with_a_run(tmp_path: Path) -> None:
    """reports/ and suites/ lie side by side in every project; from elsewhere the same project is somebody's archive."""
    folder, file = tmp_path / "reports" / "demo" / "x", tmp_path / "suites" / "demo.yaml"
    assert not came_with(folder, file, here=tmp_path)
    assert not came_with(folder, file, here=tmp_path / "below")
    assert came_with(folder, file, here=tmp_path / ".." / "elsewhere")
    assert came_with(folder, tmp_path / "reports" / "demo.yaml", here=tmp_path)
