"""What the stages of a run will take, from earlier runs of the same suite that lie beside it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from qbench.errors import UsageError
from qbench.files.stored_name import is_digest
from qbench.record.stored_run import RUN, RunInfo, read_info, read_run
from qbench.suite import Suite

_NEWEST = 5  # so many earlier runs are looked at
_CACHED = ("build", "evaluate")  # what a later run takes from the cache
# The share of its seconds that a stage takes where all that it made is in the cache: quickstart, cold and then warm.
_WARM = {"prepare": 0.5, "build": 0.02, "evaluate": 0.25}
_BY_CASE = ("build", "evaluate", "measure")


def expect_seconds(reports: Path, suite: Suite, *, cases: int, cache: Path) -> dict[str, float]:
    """Seconds by stage for a run of ``cases`` open cases; empty where no finished run of this suite lies in
    ``reports``.

    The newest run with the same overrides tells, else the newest of the same text. What it made and left in the
    ``cache`` is not made again, and what is cached takes no longer than in the fastest of them.
    """
    runs = _read_finished(reports, suite)
    same = {folder: info for folder, info in runs.items() if info.suite.overrides == suite.overrides} or runs
    if not same:
        return {}
    scaled = [_scale(info, cases) for info in same.values()]
    built_share = _count_built(*next(iter(same.items())), cache)
    newest = {stage: seconds * (1 - built_share * (1 - _WARM.get(stage, 1.0))) for stage, seconds in scaled[0].items()}
    shortest = {stage: min(run.get(stage, 0.0) for run in (newest, *scaled[1:])) for stage in _CACHED}
    return {**newest, **shortest}


def _count_built(folder: Path, info: RunInfo, cache: Path) -> float:
    """The share of a run's artifacts that it built itself and that are still in the cache, 0 to 1."""
    try:
        records = read_run(folder, lenient=True).records
        began = datetime.fromisoformat(info.started or "").timestamp()
    except (UsageError, ValueError):
        return 0.0
    keys = {facts.key for record in records if (facts := record.artifact) is not None and facts.key is not None}
    entries = [cache / "artifacts" / key for key in keys if is_digest(key)]
    built = [entry for entry in entries if entry.is_dir() and entry.stat().st_mtime >= began]
    return len(built) / len(entries) if entries else 0.0


def _read_finished(reports: Path, suite: Suite) -> dict[Path, RunInfo]:
    """What the newest finished runs of this suite's text say of themselves, by folder, the newest first."""
    finished: dict[Path, RunInfo] = {}
    for file in sorted(reports.glob(f"*/{RUN}"), reverse=True):
        if file.parent.is_symlink():
            continue
        try:
            info = read_info(file)
        except UsageError:
            continue  # somebody else's; it tells nothing
        alike = info.suite.text == suite.text and (info.quick is not None) == suite.quick
        if alike and info.finished is not None and info.plan.cases:
            finished[file.parent] = info
        if len(finished) == _NEWEST:
            break
    return finished


def _scale(info: RunInfo, cases: int) -> dict[str, float]:
    share = cases / len(info.plan.cases)
    return {stage: seconds * (share if stage in _BY_CASE else 1.0) for stage, seconds in info.elapsed_seconds.items()}
