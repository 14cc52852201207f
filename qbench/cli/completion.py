"""What the shell offers behind a command: suites below ``suites/``, runs below ``reports/``, and paths; by the names of
files alone, so that the Tab key waits for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SUITES, REPORTS = Path("suites"), Path("reports")
ENDINGS = (".yaml", ".yml")
BASELINES = "baselines"  # below reports/: no suite's runs


def complete_suite(incomplete: str) -> list[str]:
    """The suites below suites/, and beside what was typed suites and folders, that begin with it."""
    below = (str(file) for ending in ENDINGS for file in sorted(SUITES.rglob(f"*{ending}")) if file.is_file())
    return _matching(incomplete, [*below, *_list_paths(incomplete)])


def complete_run(incomplete: str) -> list[str]:
    """The suites that have runs, and the folders of the runs (newest first), that begin with what was typed."""
    suites = [folder for folder in _list_folders(REPORTS) if folder.name != BASELINES]
    runs = [run for suite in suites for run in _list_folders(suite) if (run / "run.json").is_file()]
    named = sorted({run.parent.name for run in runs})
    return _matching(incomplete, [*named, *map(str, sorted(runs, key=lambda run: run.name, reverse=True))])


def _list_paths(incomplete: str) -> Iterator[str]:
    """Suites and folders in the folder of what was typed; folders end with a slash."""
    folder, _, _ = incomplete.rpartition("/")
    try:
        entries = sorted(Path(folder or ("/" if incomplete.startswith("/") else ".")).iterdir())
    except OSError:
        return
    for entry in entries:
        text = f"{folder}/{entry.name}" if "/" in incomplete else entry.name
        if entry.is_dir():
            yield f"{text}/"
        elif entry.suffix in ENDINGS:
            yield text


def _list_folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return []


def _matching(incomplete: str, texts: list[str]) -> list[str]:
    hidden = incomplete.rpartition("/")[2].startswith(".")
    fitting = (text for text in texts if text.startswith(incomplete))
    return list(dict.fromkeys(text for text in fitting if hidden or "/." not in f"/{text.removeprefix('./')}"))
