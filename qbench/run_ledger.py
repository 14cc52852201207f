"""What is known of each case of a run: done before, broken on the way, or still open; every end becomes a record."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from qbench.build import Artifact
from qbench.errors import CaseError, CaseSkipped
from qbench.plan import Case, Plan, PlannedCase
from qbench.quant.recipe import Recipe
from qbench.record import Record, Status
from qbench.run_folder import RunFolder


class Ledger:
    """The cases of a plan and what became of them; several threads may break cases at once.

    ``artifacts`` are the variants built so far, by variant id. ``stopping`` is set when the user interrupts: from
    then on nothing breaks, since it is qbench that ended the children.
    """

    def __init__(self, plan: Plan, folder: RunFolder, *, started: str) -> None:
        self._plan = plan
        self._folder = folder
        self._started = started
        self._lock = threading.RLock()
        self._broken: dict[str, tuple[Status, str]] = {}  # case -> status, reason
        planned = {one.case.id for one in plan.cases}
        # A failed case is tried again: whatever made it fail may have been mended.
        self.done = {one.case.id for one in folder.records() if one.status == "ok"} & planned
        self.artifacts: dict[str, Artifact] = {}
        self.stopping = False

    def skip(self) -> None:
        """Records what the plan left out, with its reason."""
        for skip in self._plan.skipped:
            self._folder.append(Record(case=skip.case.key, status="skipped", stage="plan", reason=skip.reason))

    def open_cases(self) -> list[PlannedCase]:
        """The cases that still need work: not done, not broken; and the baselines of such."""
        alive = [one for one in self._plan.cases if one.case.id not in self._broken]
        wanted = [one for one in alive if one.case.id not in self.done]
        needed = {one.case.id for one in wanted} | {one.baseline for one in wanted}
        return [one for one in alive if one.case.id in needed]

    def finish(self, record: Record) -> None:
        """Records a case that went all the way, unless an earlier part of this run has."""
        if record.case.id not in self.done:
            self._folder.append(record)

    def break_(self, cases: Sequence[Case], stage: str, error: CaseError | CaseSkipped) -> None:
        """Cases that cannot go on, and those compared with them: recorded at once, so that nothing can lose them."""
        status: Status = "skipped" if isinstance(error, CaseSkipped) else "failed"
        with self._lock:
            for case in cases:
                if not self.stopping and case.id not in self._broken:
                    self._broken[case.id] = (status, str(error))
                    # A case that an earlier part of the run has measured keeps its record, but serves no other now.
                    if case.id not in self.done:
                        self._folder.append(self._broken_record(case, status, stage, str(error)))
            self._break_dependents({case.id for case in cases}, stage)

    def _break_dependents(self, baselines: set[str], stage: str) -> None:
        """A contender without its baseline has nothing to be compared with."""
        for one in self._plan.cases:
            if one.baseline in baselines and one.baseline in self._broken and one.case.id not in self._broken:
                status, reason = self._broken[one.baseline]
                kind = CaseSkipped if status == "skipped" else CaseError
                self.break_([one.case], stage, kind(f"its baseline {one.baseline} has no result: {reason}"))

    def _broken_record(self, case: Case, status: Status, stage: str, reason: str) -> Record:
        artifact = self.artifacts.get(case.variant.id)
        return Record(
            case=case.key,
            status=status,
            stage=stage,
            reason=reason,
            recipe=plain(artifact.recipe if artifact else case.variant.recipe),
            artifact=artifact.facts() if artifact else None,
            started=self._started,
        )


def plain(recipe: Recipe) -> dict[str, Any]:
    """A recipe as a record shows it: without the choices that it does not have; fp32 has none."""
    if recipe.flow is None:
        return {}
    return {key: value for key, value in asdict(recipe).items() if value not in (None, ()) and key != "name"}
