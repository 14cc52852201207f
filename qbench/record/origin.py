"""Whether a file can have come in one archive with a run: then it is no more to be trusted than the run."""

from __future__ import annotations

from pathlib import Path


def came_with(folder: Path, file: Path, here: Path | None = None) -> bool:
    """Whether a suite can have come in one archive with a run: it lies below what holds the run's reports, which is not
    the folder that one works in, nor above it."""
    here = (here or Path.cwd()).resolve()
    reports = folder.resolve().parent.parent
    holder = reports.parent
    inside = file.resolve().is_relative_to(reports)
    return inside or (file.resolve().is_relative_to(holder) and not here.is_relative_to(holder))
