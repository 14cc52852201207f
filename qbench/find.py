"""Which run is meant: a folder, or the latest of a suite."""

from __future__ import annotations

from pathlib import Path

from qbench.errors import UsageError

REPORTS = Path("reports")
BASELINES = REPORTS / "baselines"


def find_run(name: str, reports: Path = REPORTS) -> Path:
    """The folder of a run: ``name`` itself, or the latest run in ``name`` or in ``reports/name``.

    Raises ``UsageError`` that lists the suites which have runs.
    """
    given = Path(name)
    for folder in (given, _latest(given), _latest(reports / name)):
        if (folder / "run.json").is_file():
            return folder.resolve()
    there = sorted({path.parent.name for path in reports.glob("*/latest*")})
    hint = f"suites with runs: {', '.join(there)}" if there else "make one with `qbench run SUITE`"
    raise UsageError(f"{name}: no run is there; {hint}")


def committed_baseline(suite: str, baselines: Path = BASELINES) -> Path | None:
    """The file of a suite's stored baseline; None where none was written yet."""
    file = baselines / f"{suite}.jsonl"
    return file if file.is_file() else None


def _latest(folder: Path) -> Path:
    """A suite's newest run; where there are no symbolic links its name stands in ``latest.txt``."""
    told = folder / "latest.txt"
    if not told.is_file():
        return folder / "latest"
    return folder / told.read_text(encoding="utf-8", errors="replace").strip()
