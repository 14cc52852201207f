"""Why not faster: what ``qbench explain`` confirmed, the largest saving first."""

from __future__ import annotations

from dataclasses import dataclass

from qbench import formatting
from qbench.compare import host_share
from qbench.errors import first_names
from qbench.progress.table import TextTable
from qbench.record.explained import ExplainedCase, read_explained
from qbench.record.run_files import Damaged
from qbench.record.stored_run import StoredRun

NAMED = 4  # overlapping causes of a sentence
COLUMNS = ("case", "saves", "times as fast", "of the gap", "what makes it slow", "avoided by")


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The explained cases that a run has; ``damage`` says why there are none where their file cannot be read."""

    cases: tuple[ExplainedCase, ...] = ()
    damage: str | None = None


def list_explained(run: StoredRun) -> Explained:
    """What the run's folder holds."""
    try:
        explained = read_explained(run.folder)
    except Damaged as error:
        return Explained(damage=str(error))
    return Explained(cases=tuple(case for case in explained if case.case in run.by_id))


def make_table(explained: Explained) -> TextTable:
    """A row for each confirmed cause, ordered by the seconds that it saves for one example."""
    causes = sorted(
        ((case, cause) for case in explained.cases for cause in case.causes), key=lambda pair: -pair[1].seconds
    )
    rows = [
        (
            case.case,
            formatting.duration(max(0.0, cause.seconds)),
            formatting.with_limits(cause.gain),
            formatting.DASH if cause.share is None else formatting.share(max(0.0, cause.share)),
            formatting.one_line(cause.title),
            formatting.one_line(cause.change),
        )
        for case, cause in causes
    ]
    return TextTable(columns=COLUMNS, rows=tuple(rows), words=(0, 4, 5))


def list_sentences(explained: Explained) -> list[str]:
    """For each explained case its gap, what stays unexplained, and what the advice changes in accuracy."""
    damage = [] if explained.damage is None else [explained.damage]
    return [*damage, *(_describe(case) for case in explained.cases)]


def _describe(case: ExplainedCase) -> str:
    gap = case.seconds - case.best_seconds
    ratio = "" if case.over_fp32 is None else f", {formatting.with_limits(case.over_fp32)} times what fp32 takes"
    parts = [f"{case.case}: {formatting.duration(case.seconds)} for one example{ratio}"]
    if gap > 0:
        parts.append(f"it could take {formatting.duration(case.best_seconds)} ({formatting.one_line(case.best)})")
    if not case.causes:
        parts.append("no cause that was tried makes it slower")
    elif case.unexplained is not None and gap > 0:
        parts.append(f"{formatting.share(max(0.0, case.unexplained))} of the gap is not explained")
    if case.overlapping:
        parts.append(f"alone, but not beyond these, gain {_name_overlapping(case)}")
    if case.off_core is not None and case.off_core >= host_share.OFF_CORE:
        parts.append(host_share.describe_off_core([case.off_core], "meanwhile"))
    sentence = f"{'; '.join(parts)}."
    return sentence if case.accuracy is None else f"{sentence} {formatting.one_line(case.accuracy)}"


def _name_overlapping(case: ExplainedCase) -> str:
    names = (f"{each.change}: {formatting.with_limits(each.gain)} times as fast" for each in case.overlapping)
    return first_names([formatting.one_line(name) for name in names], NAMED)


def list_advice(explained: Explained) -> tuple[tuple[str, str], ...]:
    """Of each case that has some, what to write into the suite or to set for the process."""
    texts = (
        (case.case, "\n".join([*([case.suite] if case.suite else []), *case.environment])) for case in explained.cases
    )
    return tuple((case, text) for case, text in texts if text)
