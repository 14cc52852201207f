"""Which examples flipped and which classes changed in a stored run, for each measured int8 case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbench import formatting
from qbench.compare import compare, text
from qbench.decide.cases import is_contender
from qbench.evaluate import flips
from qbench.evaluate.flips import Answers, ClassChange, Flip, Kind
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report.cells import count_flips
from qbench.stats import mcnemar

if TYPE_CHECKING:
    import pandas as pd

NAMED = 5  # ids of each kind in a table's row; all are in flips.csv
MOST_CLASSES = 10  # of one case


@dataclass(frozen=True, kw_only=True)
class CaseFlips:
    """The flips of one case and its classes (none without labels). ``same_as`` names an earlier case with the very same
    predictions: of another number of threads, say. ``doubt``: why these are not the flips that the record counted."""

    record: Record
    flips: tuple[Flip, ...]
    classes: tuple[ClassChange, ...]
    same_as: str | None = None
    doubt: str | None = None

    def count(self, kind: Kind) -> int:
        """How many flips are of a kind."""
        return sum(flip.kind == kind for flip in self.flips)


def of_run(run: StoredRun) -> tuple[CaseFlips, ...]:
    """The flips of every measured int8 case whose predictions, and those of its fp32, are stored and are classes.

    Without labels only where the metric is the share of equal answers: other outputs may be no classes.
    """
    by_file: dict[str, Answers | None] = {}
    first: dict[tuple[str, str], str] = {}

    def read(record: Record) -> Answers | None:
        if record.predictions is None:
            return None
        if record.predictions not in by_file:
            by_file[record.predictions] = flips.answers(run.predictions(record))
        return by_file[record.predictions]

    cases = []
    for record in run.records:
        fp32 = compare.like_for_like(record, run.records)
        if not is_contender(record) or fp32 is None or record.accuracy is None:
            continue
        int8, base = read(record), read(fp32)
        if int8 is None or base is None or (int8.labels is None and not run.judged_by_agreement):
            continue
        key = str(record.predictions), str(fp32.predictions)
        cases.append(_case(record, int8, base, first.get(key)))
        first.setdefault(key, record.case.id)
    return tuple(cases)


def _case(record: Record, int8: Answers, base: Answers, same_as: str | None) -> CaseFlips:
    changes = flips.flips(int8, base)
    case = CaseFlips(record=record, flips=changes, classes=flips.by_class(int8, base), same_as=same_as)
    counted = record.accuracy.flips if record.accuracy else None
    if counted is None or int8.labels is None:
        return case
    stored = case.count("harmful"), case.count("beneficial")
    if stored == (counted.harmful, counted.beneficial):
        return case
    doubt = (
        f"{record.case.id}: the stored predictions give {stored[0]} harmful and {stored[1]} beneficial flips, the "
        f"record counted {counted.harmful} and {counted.beneficial}: a file was changed since the "
        "run; run the suite again"
    )
    return CaseFlips(record=record, flips=(), classes=(), same_as=same_as, doubt=doubt)


# --- files ---------------------------------------------------------------------------------------------------


def flips_frame(cases: Sequence[CaseFlips]) -> pd.DataFrame:
    """``flips.csv``: one row per case and flipped example; ``case.id`` is that of results.csv."""
    import pandas as pd

    columns = ["case.id", "kind", "example", "position", "label", "fp32", "int8", "fp32_surer_than"]
    rows = [
        (case.record.case.id, flip.kind, flip.id, flip.position, flip.label, flip.fp32, flip.int8, round(flip.sure, 6))
        for case in cases
        for flip in case.flips
    ]
    return pd.DataFrame(rows, columns=columns)


def classes_frame(cases: Sequence[CaseFlips]) -> pd.DataFrame:
    """``classes.csv``: one row per case and class of the labels."""
    import pandas as pd

    columns = ["case.id", "class", "n", "fp32_right", "int8_right", "harmful", "beneficial", "mid_p", "mid_p_holm"]
    rows = [
        (case.record.case.id, counts.label, counts.n, counts.fp32_right, counts.int8_right, counts.harmful,
         counts.beneficial, counts.p_value, counts.p_adjusted)
        for case in cases
        for counts in case.classes
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


# --- tables --------------------------------------------------------------------------------------------------


def distinct(cases: Iterable[CaseFlips]) -> list[CaseFlips]:
    """The cases without those that share an earlier one's predictions."""
    return [case for case in cases if case.same_as is None]


def table(cases: Sequence[CaseFlips]) -> TextTable:
    """One row per variant with a flip: how many of each kind, the mid-p value, and the first ids."""
    flipped = [case for case in distinct(cases) if case.flips]
    if any(case.count("changed") for case in flipped):
        rows = [(case.record.case.id, f"{case.count('changed'):,}", _name_flips(case, "changed")) for case in flipped]
        return TextTable(columns=("case", "changed", "the first, surest first"), rows=tuple(rows), words=(0, 2))
    lines = [
        (
            case.record.case.id,
            count_flips(case.count("harmful"), case.count("beneficial")),
            text.p_value(mcnemar.midp(case.count("harmful"), case.count("beneficial"))),
            _name_flips(case, "harmful"),
            _name_flips(case, "beneficial"),
        )
        for case in flipped
    ]
    columns = ("case", "examples", "McNemar, mid-p", "lost: right to wrong", "gained: wrong to right")
    return TextTable(columns=columns, rows=tuple(lines), words=(0, 1, 3, 4))


def meaning(cases: Sequence[CaseFlips]) -> str:
    """What counts as a flip in this run."""
    if any(case.count("changed") for case in cases):
        return "Without labels: every example that int8 answers otherwise than fp32; nobody knows which is right."
    return "Lost: examples that fp32 has right and int8 wrong; gained: the other way round."


def without(cases: Sequence[CaseFlips]) -> str:
    """What is said of the variants without a flip; empty where there are none."""
    names = [case.record.case.id for case in distinct(cases) if not case.flips and not case.doubt]
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"No answer changes in {formatting.clean(', '.join(names[:NAMED]))}{more}."


def _name_flips(case: CaseFlips, kind: Kind) -> str:
    """``digits/0123 (3: 3 -> 5), … and 8 more``: label, fp32's answer and int8's."""
    named = flips.first(case.flips, kind, NAMED)
    more = case.count(kind) - len(named)
    said = ", ".join(f"{flip.id} ({move(flip)})" for flip in named)
    return formatting.clean(said) + (f" and {more:,} more" if more > 0 else "")


def move(flip: Flip) -> str:
    """``3 -> 5`` with an arrow: fp32's answer and int8's."""
    return f"{flip.fp32}\N{NO-BREAK SPACE}\N{RIGHTWARDS ARROW}\N{NO-BREAK SPACE}{flip.int8}"


def classes_table(cases: Sequence[CaseFlips]) -> TextTable:
    """The classes that changed by more than chance, the surest of each case first."""
    rows = []
    for case in distinct(cases):
        changed = [change for change in case.classes if change.changed]
        changed.sort(key=lambda change: (change.p_adjusted, change.p_value))
        rows += [_class_row(case.record.case.id, change) for change in changed[:MOST_CLASSES]]
        if len(changed) > MOST_CLASSES:
            rows.append((case.record.case.id, f"{len(changed) - MOST_CLASSES} more in classes.csv", *[""] * 6))
    columns = ("case", "class", "examples", "right, fp32 to int8", "flips", "mid-p", "mid-p, Holm", "the class")
    return TextTable(columns=columns, rows=tuple(rows), words=(0, 7))


def classes_told(cases: Sequence[CaseFlips]) -> str:
    """How many variants were examined class by class, and what came nearest where none changed; empty without
    classes."""
    examined = [case for case in distinct(cases) if case.classes]
    if not examined:
        return ""
    classes = max(len(case.classes) for case in examined)
    said = (
        f"McNemar's mid-p value for each class, Holm over the {classes:,} classes of a case, {len(examined)} variants."
    )
    if any(change.changed for case in examined for change in case.classes):
        return said
    pairs = ((case, change) for case in examined for change in case.classes)
    case, nearest = min(pairs, key=lambda pair: pair[1].p_value)
    if nearest.p_value == 1:
        return f"{said} No class changed by more than chance."
    return (
        f"{said} No class changed by more than chance; nearest to it is class {nearest.label} of "
        f"{formatting.clean(case.record.case.id)}: {nearest.harmful} right to wrong and {nearest.beneficial} wrong to "
        f"right of {nearest.n:,}, {text.p_value(nearest.p_value)}, by Holm {text.p_value(nearest.p_adjusted)}."
    )


def _class_row(case: str, change: ClassChange) -> tuple[str, ...]:
    points = 100 * (change.int8_right - change.fp32_right) / change.n
    moved = f"{change.fp32_right:,} to {change.int8_right:,} ({formatting.fixed(points, 1, signed=True)} points)"
    outcome = {"lost": "lost", "gained": "gained", None: "no change shown"}[change.changed]
    counts = f"{change.harmful} / {change.beneficial}"
    values = (text.p_value(p).removeprefix("p ").removeprefix("= ") for p in (change.p_value, change.p_adjusted))
    return (case, str(change.label), f"{change.n:,}", moved, counts, *values, outcome)
