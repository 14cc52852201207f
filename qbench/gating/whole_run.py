"""What is said of a run as a whole, beside the verdicts on its cases; pure."""

from __future__ import annotations

from pathlib import Path

from qbench.gating.verdict import Rule, Verdict
from qbench.record import locate
from qbench.record.stored_run import QUICK, RunInfo, StoredRun

SAME_RUN = "the baseline was made of this very run, so nothing can have changed; gate a later run: `qbench run SUITE`"


def refuse_quick(run: RunInfo, baseline: RunInfo | None, place: str) -> list[Verdict]:
    """INVALID for a quick look: it is too coarse to be held to anything, or to hold anything to."""
    sides = {"the run": run, "the baseline": baseline}
    rule = Rule(name="run", kind="run", case=run.suite.name, place=place)
    return [
        rule.verdict("INVALID", f"{what} is a {QUICK}", f"make it without --quick: `qbench run {info.suite.file}`")
        for what, info in sides.items()
        if info is not None and info.quick is not None
    ]


def report_newest(newest: Path, run: StoredRun, place: str) -> Verdict:
    """MISSING: a benchmark that failed wholly proves nothing by an older run that is still there."""
    return Rule(name="run", kind="run", case=run.info.suite.name, place=place).verdict(
        "MISSING",
        f"the latest run, {newest.name}, has no case that is ok",
        f"it has {locate.without_ok(newest)} ({newest}); judged is {run.folder.name}, which is older: "
        f"fix the cause and run the suite again, or judge that run by its folder, {run.folder}",
    )
