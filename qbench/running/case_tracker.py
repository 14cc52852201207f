"""What is known of each case of a run: done before, broken on the way, or still open; every end becomes a record."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from qbench.build import Artifact
from qbench.errors import CaseError, CaseSkipped
from qbench.plan.planner import Case, Plan, PlannedCase
from qbench.quant.recipe import TRAINING, Recipe
from qbench.record.schema import Record, Status
from qbench.running.directory import RunDirectory

_NO_ARTIFACTS: Mapping[str, Artifact] = {}


class CaseTracker:
    """The cases of a plan and what became of them; several threads may break cases at once.

    ``planned`` are all cases of the plan, ``started`` is when this part of the run began, ``done`` are the ids of the
    cases that an earlier part has recorded. ``stopping`` is set when the user interrupts: from then on nothing breaks,
    since it is qbench that ended the children.
    """

    def __init__(self, plan: Plan, directory: RunDirectory, records: Iterable[Record], *, started: str) -> None:
        self.planned = plan.cases
        self.started = started
        self._directory = directory
        self._lock = threading.RLock()
        self._compared: dict[str, list[PlannedCase]] = {}  # by reference
        self._of_variant: dict[str, list[Case]] = {}
        for planned in plan.cases:
            if planned.reference is not None:
                self._compared.setdefault(planned.reference.id, []).append(planned)
            self._of_variant.setdefault(planned.case.variant.id, []).append(planned.case)
        self._broken: dict[str, tuple[Status, str]] = {}  # case -> status, reason
        # A failed case is tried again: whatever made it fail may have been mended.
        recorded = {record.case.id for record in records if record.status == "ok"}
        self.done = recorded & {planned.case.id for planned in plan.cases}
        self.stopping = False

    def open_cases(self) -> list[PlannedCase]:
        """The cases that still need work: not done, not broken; and the references and twins of such."""
        unbroken = [planned for planned in self.planned if planned.case.id not in self._broken]
        undone = [planned for planned in unbroken if planned.case.id not in self.done]
        needed = {key for planned in undone for key in (planned.case.key, planned.reference, planned.twin)}
        return [planned for planned in unbroken if planned.case.key in needed]

    def list_cases(self, variant: str) -> list[Case]:
        """All cases of a variant, whatever became of them."""
        return self._of_variant[variant]

    def record_result(self, record: Record) -> None:
        """Records a case that was measured, unless an earlier part of this run has."""
        if record.case.id not in self.done:
            self._directory.write_record(record)

    def break_cases(
        self,
        cases: Sequence[Case],
        stage: str,
        error: CaseError | CaseSkipped,
        artifacts: Mapping[str, Artifact] = _NO_ARTIFACTS,
    ) -> None:
        """Records at once, so that nothing can lose them, cases that cannot go on and those compared with them, each
        with its variant's artifact where ``artifacts`` has it by the variant's id."""
        status: Status = "skipped" if isinstance(error, CaseSkipped) else "failed"
        with self._lock:
            for case in cases:
                if not self.stopping and case.id not in self._broken:
                    self._broken[case.id] = (status, str(error))
                    # A case that an earlier part of the run has measured keeps its record, but serves no other now.
                    if case.id not in self.done:
                        artifact = artifacts.get(case.variant.id)
                        self._directory.write_record(self._broken_record(case, status, stage, str(error), artifact))
            self._break_dependents({case.id for case in cases}, stage, artifacts)

    def _break_dependents(self, references: set[str], stage: str, artifacts: Mapping[str, Artifact]) -> None:
        """Breaks the contenders of broken references: they have nothing to be compared with."""
        for reference in references & self._broken.keys():
            status, reason = self._broken[reference]
            kind = CaseSkipped if status == "skipped" else CaseError
            error = kind(f"its baseline {reference} has no result: {reason}")
            self.break_cases([planned.case for planned in self._compared.get(reference, ())], stage, error, artifacts)

    def _broken_record(self, case: Case, status: Status, stage: str, reason: str, artifact: Artifact | None) -> Record:
        return Record(
            case=case.key,
            status=status,
            stage=stage,
            reason=reason,
            recipe=describe_recipe(artifact.recipe if artifact else case.variant.recipe),
            artifact=artifact.facts() if artifact else None,
            started=self.started,
        )


def describe_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe as a record shows it: without the choices that it does not have; fp32 has none but its twin's."""
    choices = {key: value for key, value in asdict(recipe).items() if value not in (None, ()) and key != "name"}
    choices |= {key: dict(choices[key]) for key in ("optimizer_keys", "schedule_keys") if key in choices}
    if recipe.flow is None and recipe.file is None:
        return {key: value for key, value in choices.items() if recipe.trains and key in TRAINING}
    return choices
