"""Which examples flipped and which classes changed in a stored run, for each measured int8 case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbench import compare, compare_words, decide, flips, wording
from qbench.flips import Answers, ClassChange, Flip, Kind
from qbench.record import Record
from qbench.report import answer
from qbench.report.text import TextTable
from qbench.stored import StoredRun

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
    known: dict[str, Answers | None] = {}
    first: dict[tuple[str, str], str] = {}

    def read(record: Record) -> Answers | None:
        if record.predictions is None:
            return None
        if record.predictions not in known:
            known[record.predictions] = flips.answers(run.predictions(record))
        return known[record.predictions]

    found = []
    for record in run.records:
        fp32 = compare.like_for_like(record, run.records)
        if not answer.is_int8(record) or fp32 is None or record.accuracy is None:
            continue
        own, base = read(record), read(fp32)
        if own is None or base is None or (own.labels is None and not run.judged_by_agreement):
            continue
        key = str(record.predictions), str(fp32.predictions)
        found.append(_case(record, own, base, first.get(key)))
        first.setdefault(key, record.case.id)
    return tuple(found)


def _case(record: Record, own: Answers, base: Answers, same_as: str | None) -> CaseFlips:
    changes = flips.flips(own, base)
    case = CaseFlips(record=record, flips=changes, classes=flips.by_class(own, base), same_as=same_as)
    counted = record.accuracy.flips if record.accuracy else None
    if counted is None or own.labels is None:
        return case
    seen = case.count("harmful"), case.count("beneficial")
    if seen == (counted.harmful, counted.beneficial):
        return case
    doubt = (
        f"{record.case.id}: the stored predictions give {seen[0]} harmful and {seen[1]} beneficial flips, the record "
        f"counted {counted.harmful} and {counted.beneficial}: a file was changed since the run; run the suite again"
    )
    return CaseFlips(record=record, flips=(), classes=(), same_as=same_as, doubt=doubt)


# --- files ---------------------------------------------------------------------------------------------------


def flips_frame(cases: Sequence[CaseFlips]) -> pd.DataFrame:
    """``flips.csv``: one row per case and flipped example; ``case.id`` is that of results.csv."""
    import pandas as pd

    columns = ["case.id", "kind", "example", "position", "label", "fp32", "int8", "fp32_surer_than"]
    rows = [
        (case.record.case.id, one.kind, one.id, one.position, one.label, one.fp32, one.int8, round(one.sure, 6))
        for case in cases
        for one in case.flips
    ]
    return pd.DataFrame(rows, columns=columns)


def classes_frame(cases: Sequence[CaseFlips]) -> pd.DataFrame:
    """``classes.csv``: one row per case and class of the labels."""
    import pandas as pd

    columns = ["case.id", "class", "n", "fp32_right", "int8_right", "harmful", "beneficial", "mid_p", "mid_p_holm"]
    rows = [
        (case.record.case.id, one.label, one.n, one.fp32_right, one.int8_right, one.harmful, one.beneficial,
         one.p_value, one.p_adjusted)
        for case in cases
        for one in case.classes
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


# --- tables --------------------------------------------------------------------------------------------------


def distinct(cases: Iterable[CaseFlips]) -> list[CaseFlips]:
    """The cases without those that share an earlier one's predictions."""
    return [case for case in cases if case.same_as is None]


def table(cases: Sequence[CaseFlips]) -> TextTable:
    """One row per variant with a flip: how many of each kind, the mid-p value, and the first ids."""
    shown = [case for case in distinct(cases) if case.flips]
    if any(case.count("changed") for case in shown):
        rows = [(case.record.case.id, f"{case.count('changed'):,}", _named(case, "changed")) for case in shown]
        return TextTable(columns=("case", "changed", "the first, surest first"), rows=tuple(rows), words=(0, 2))
    lines = [
        (
            case.record.case.id,
            f"{case.count('harmful'):,} / {case.count('beneficial'):,}",
            compare_words.p_value(decide.mcnemar_midp(case.count("harmful"), case.count("beneficial"))),
            _named(case, "harmful"),
            _named(case, "beneficial"),
        )
        for case in shown
    ]
    columns = ("case", "flips", "McNemar, mid-p", "right to wrong", "wrong to right")
    return TextTable(columns=columns, rows=tuple(lines), words=(0, 3, 4))


def meaning(cases: Sequence[CaseFlips]) -> str:
    """What counts as a flip in this run."""
    if any(case.count("changed") for case in cases):
        return "Without labels: every example that int8 answers otherwise than fp32; nobody knows which is right."
    return "A flip: an example that fp32 has right and int8 wrong, or the other way round."


def without(cases: Sequence[CaseFlips]) -> str:
    """What is said of the variants without a flip; empty where there are none."""
    names = [case.record.case.id for case in distinct(cases) if not case.flips and not case.doubt]
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"No answer flips in {wording.clean(', '.join(names[:NAMED]))}{more}."


def _named(case: CaseFlips, kind: Kind) -> str:
    """``digits/0123 (3: 3 -> 5), … and 8 more``: label, fp32's answer and int8's."""
    found = flips.first(case.flips, kind, NAMED)
    more = case.count(kind) - len(found)
    said = ", ".join(f"{one.id} ({move(one)})" for one in found)
    return wording.clean(said) + (f" and {more:,} more" if more > 0 else "")


def move(flip: Flip) -> str:
    """``3 -> 5`` with an arrow: fp32's answer and int8's."""
    return f"{flip.fp32}\N{NO-BREAK SPACE}\N{RIGHTWARDS ARROW}\N{NO-BREAK SPACE}{flip.int8}"


def classes_table(cases: Sequence[CaseFlips]) -> TextTable:
    """The classes that changed by more than chance, the surest of each case first."""
    rows = []
    for case in distinct(cases):
        changed = sorted((one for one in case.classes if one.changed), key=lambda one: (one.p_adjusted, one.p_value))
        rows += [_class_row(case.record.case.id, one) for one in changed[:MOST_CLASSES]]
        if len(changed) > MOST_CLASSES:
            rows.append((case.record.case.id, f"{len(changed) - MOST_CLASSES} more in classes.csv", *[""] * 6))
    columns = ("case", "class", "examples", "right, fp32 to int8", "flips", "mid-p", "mid-p, Holm", "the class")
    return TextTable(columns=columns, rows=tuple(rows), words=(0, 7))


def classes_told(cases: Sequence[CaseFlips]) -> str:
    """How many variants were looked at class by class, and what came nearest where none changed; empty without
    classes."""
    looked = [case for case in distinct(cases) if case.classes]
    if not looked:
        return ""
    classes = max(len(case.classes) for case in looked)
    said = f"McNemar's mid-p value for each class, Holm over the {classes:,} classes of a case, {len(looked)} variants."
    if any(one.changed for case in looked for one in case.classes):
        return said
    p, case, one = min(((one.p_value, case, one) for case in looked for one in case.classes), key=lambda each: each[0])
    if p == 1:
        return f"{said} No class changed by more than chance."
    return (
        f"{said} No class changed by more than chance; nearest to it is class {one.label} of "
        f"{wording.clean(case.record.case.id)}: {one.harmful} right to wrong and {one.beneficial} wrong to right of "
        f"{one.n:,}, {compare_words.p_value(p)}, by Holm {compare_words.p_value(one.p_adjusted)}."
    )


def _class_row(case: str, one: ClassChange) -> tuple[str, ...]:
    points = 100 * (one.int8_right - one.fp32_right) / one.n
    moved = f"{one.fp32_right:,} to {one.int8_right:,} ({wording.fixed(points, 1, signed=True)} points)"
    told = {"lost": "lost", "gained": "gained", None: "no change shown"}[one.changed]
    counts = f"{one.harmful} / {one.beneficial}"
    values = (compare_words.p_value(p).removeprefix("p ").removeprefix("= ") for p in (one.p_value, one.p_adjusted))
    return (case, str(one.label), f"{one.n:,}", moved, counts, *values, told)


def lost_classes(case: CaseFlips) -> str:
    """``3, 5 and 8``: the classes that lost more than chance explains; empty where none did."""
    lost = [str(one.label) for one in case.classes if one.changed == "lost"]
    return ", ".join(lost[:-1]) + (" and " if len(lost) > 1 else "") + lost[-1] if lost else ""
