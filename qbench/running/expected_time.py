"""What the stages of a run will take, from earlier runs of the same suite that lie beside it."""

from __future__ import annotations

from pathlib import Path

from qbench.errors import UsageError
from qbench.record.stored_run import RUN, RunInfo, read_info
from qbench.suite import Suite

_NEWEST = 5  # so many earlier runs are looked at
_CACHED = ("build", "evaluate")  # what a later run takes from the cache
_BY_CASE = ("build", "evaluate", "measure")


def expect_seconds(reports: Path, suite: Suite, *, cases: int) -> dict[str, float]:
    """Seconds by stage for a run of ``cases`` open cases; empty where no finished run of this suite lies in
    ``reports``.

    The newest run with the same overrides tells, else the newest of the same text. What is cached by now takes no
    longer than it took in the fastest of them.
    """
    runs = _read_finished(reports, suite)
    same = [info for info in runs if info.suite.overrides == suite.overrides] or runs
    if not same:
        return {}
    scaled = [_scale(info, cases) for info in same]
    shortest = {stage: min(run.get(stage, 0.0) for run in scaled) for stage in _CACHED}
    return {**scaled[0], **shortest}


def _read_finished(reports: Path, suite: Suite) -> list[RunInfo]:
    """What the newest finished runs of this suite's text say of themselves, the newest first."""
    finished: list[RunInfo] = []
    for file in sorted(reports.glob(f"*/{RUN}"), reverse=True):
        if file.parent.is_symlink():
            continue
        try:
            info = read_info(file)
        except UsageError:
            continue  # somebody else's; it tells nothing
        alike = info.suite.text == suite.text and (info.quick is not None) == suite.quick
        if alike and info.finished is not None and info.plan.cases:
            finished.append(info)
        if len(finished) == _NEWEST:
            break
    return finished


def _scale(info: RunInfo, cases: int) -> dict[str, float]:
    share = cases / len(info.plan.cases)
    return {stage: seconds * (share if stage in _BY_CASE else 1.0) for stage, seconds in info.elapsed_seconds.items()}
