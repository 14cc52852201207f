"""Cases without a result, those of one reason together; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qbench.record.stored_run import StoredRun
from qbench.report import palette
from qbench.report.palette import Sign


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Cases without a result for one reason: status, stage, and a reason that a person can act on."""

    status: str
    stage: str
    reason: str
    cases: tuple[str, ...]

    @property
    def sign(self) -> Sign:
        """The status as symbol and word."""
        return palette.VERDICTS[self.status]


def group_failures(run: StoredRun) -> tuple[Failure, ...]:
    """Failed cases first, then skipped ones, then those that the run did not reach; each reason once."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for case, status, stage, reason in _list_failures(run):
        grouped.setdefault((status, stage, reason), []).append(case)
    return tuple(
        Failure(status=status, stage=stage, reason=reason, cases=tuple(cases))
        for (status, stage, reason), cases in grouped.items()
    )


def _list_failures(run: StoredRun) -> Iterator[tuple[str, str, str, str]]:
    for status in ("failed", "skipped"):
        for record in run.records:
            if record.status == status:
                yield record.case.id, status, record.stage or "", record.reason or ""
    for skip in run.info.plan.skipped:
        if skip.id not in run.by_id:
            yield skip.id, "skipped", "plan", skip.reason
    for case in run.info.plan.cases:
        if case not in run.by_id:
            yield case, "no record", "", "the run did not reach it; resume the run"
