"""Cells that others need beside them: the fp32 that a case is compared with, and the fp32 twin of a QAT. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from qbench.plan.cases import PlannedCase, Skip
from qbench.record.schema import CaseKey

Resolved = Mapping[CaseKey, PlannedCase | Skip]


def find_references(keys: list[CaseKey], resolved: Resolved) -> set[CaseKey]:
    """The references that the cells that run need and that are not among the cells; and theirs."""
    present, references = set(keys), set[CaseKey]()
    pending = list(keys)
    while pending:
        case = resolved[pending.pop()]
        reference = case.reference if isinstance(case, PlannedCase) else None
        if reference is not None and reference not in present:
            present.add(reference)
            references.add(reference)
            pending.append(reference)
    return references


def add_twins(keys: list[CaseKey], resolved: Resolved) -> list[CaseKey]:
    """The cells, then the fp32 twins of the QAT cells that run and that are not among them."""
    twins = (case.twin for key in keys if isinstance(case := resolved[key], PlannedCase))
    return [*dict.fromkeys([*keys, *(twin for twin in twins if twin is not None)])]
