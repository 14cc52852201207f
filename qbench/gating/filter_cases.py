"""``--filter``: the part of a run and of its baseline that is judged."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench.errors import UsageError, first_names
from qbench.record.schema import Record, read_case_id
from qbench.record.stored_run import StoredRun

if TYPE_CHECKING:
    from qbench.gating.baseline import Baseline


def keep_cases(run: StoredRun, baseline: Baseline | None, only: str) -> tuple[StoredRun, Baseline | None]:
    """Both with the int8 cases whose id matches one of the comma-separated globs, and every fp32; raises ``UsageError``
    for a glob without a match."""
    ids = {record.case.id for record in (*run.records, *(baseline.records if baseline else ()))}
    ids |= {*run.info.plan.cases}
    matched = set()
    for glob in (part.strip() for part in only.split(",")):
        matching = {case for case in ids if fnmatch.fnmatchcase(case, glob)}
        if not matching:
            raise UsageError(f"--filter '{glob}' matches no case; there are {first_names(sorted(ids), 5)}")
        matched |= matching

    def keep(records: Sequence[Record]) -> tuple[Record, ...]:
        return tuple(record for record in records if record.case.id in matched or record.case.mode == "fp32")

    def is_fp32(case: str) -> bool:
        key = read_case_id(case)
        return key is not None and key.mode == "fp32"

    plan = replace(
        run.info.plan,
        cases=tuple(case for case in run.info.plan.cases if case in matched or is_fp32(case)),
        skipped=tuple(skip for skip in run.info.plan.skipped if skip.id in matched),
    )
    kept = replace(run, info=replace(run.info, plan=plan), records=keep(run.records))
    if baseline is None:
        return kept, None
    contradictions = {case: text for case, text in baseline.contradictions.items() if case in matched}
    return kept, replace(baseline, records=keep(baseline.records), contradictions=contradictions)
