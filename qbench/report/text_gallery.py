"""Lines whose recognized text int8 changes, as the page shows them: the picture, and what each variant writes."""

from __future__ import annotations

import base64
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from qbench.evaluate import text_changes
from qbench.evaluate.text_changes import ReadTexts, TextChange
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report.int8_predictions import list_int8_predictions

SCORES = ("cer", "wer")
MOST_LINES = 24
MOST_BYTES = 500_000  # of all pictures, before base64 adds a third
MOST_LETTERS = 160  # of a text that is shown
LEAST_ALIKE = 0.6  # of two texts that are compared letter by letter, difflib's ratio


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a text: as the reference has it, not of the reference, or of the reference and missing."""

    text: str
    kind: Literal["same", "wrong", "missing"]


@dataclass(frozen=True, kw_only=True)
class Writing:
    """What some variants write: their names, the pieces of the text, and whether it is as the reference is."""

    names: str
    pieces: tuple[Piece, ...]
    right: bool


@dataclass(frozen=True, kw_only=True)
class LinePicture:
    """One example: its id, its picture as a ``data:`` address, what stands there, fp32's and the variants' texts."""

    id: str
    source: str
    reference: str
    writings: tuple[Writing, ...]


@dataclass(frozen=True, kw_only=True)
class ChangedLines:
    """How many texts each variant changes, a sentence each, and the lines that change in most of them."""

    sentences: tuple[str, ...] = ()
    pictures: tuple[LinePicture, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A variant, its fp32 and the texts that differ."""

    name: str
    fp32: str
    changes: tuple[TextChange, ...]
    ids: tuple[str, ...]
    count: int


def list_lines(run: StoredRun) -> ChangedLines:
    """The changed texts of a run, as many pictures as it kept and a page has room for; none of a run whose score is not
    of texts and that kept no line: its predictions are not read for it."""
    metric = run.info.metric
    if (metric is None or metric.name not in SCORES) and not (run.folder / text_changes.FOLDER).is_dir():
        return ChangedLines()
    compared = list(_compare_texts(run))
    by_position: dict[int, list[tuple[_Compared, TextChange]]] = {}
    for each in compared:
        for change in each.changes:
            by_position.setdefault(change.position, []).append((each, change))
    order = sorted(
        by_position.items(), key=lambda item: (-len(item[1]), -max(change.edits for _, change in item[1]), item[0])
    )
    pictures, size = list[LinePicture](), 0
    for position, changes in order:
        stored = text_changes.find_stored(run.folder, position)
        if stored is None or len(pictures) == MOST_LINES or size + len(stored[1]) > MOST_BYTES:
            continue
        size += len(stored[1])
        source = f"data:{stored[0]};base64,{base64.b64encode(stored[1]).decode()}"
        pictures.append(_make_picture(changes[0][0].ids[position], source, changes))
    return ChangedLines(sentences=tuple(map(_say_count, compared)), pictures=tuple(pictures))


def _compare_texts(run: StoredRun) -> Iterator[_Compared]:
    by_file: dict[str, ReadTexts | None] = {}

    def read(record: Record) -> ReadTexts | None:
        file = str(record.predictions)
        if file not in by_file:
            by_file[file] = text_changes.read_texts(run.predictions(record))
        return by_file[file]

    for predictions in list_int8_predictions(run):
        ours, theirs = read(predictions.record), read(predictions.fp32)
        if ours is None or theirs is None:
            continue
        ids = tuple(map(str, run.predictions(predictions.record).get("ids", ())))
        changes = tuple(change for change in text_changes.list_changes(ours, theirs) if change.position < len(ids))
        yield _Compared(
            name=predictions.name, fp32=predictions.of_fp32, changes=changes, ids=ids, count=len(ours.written)
        )


def _say_count(compared: _Compared) -> str:
    """``static · openvino: 41 of 500 texts changed, 20 for the worse and 9 for the better``."""
    worse = sum(change.edits_of_int8 > change.edits_of_fp32 for change in compared.changes)
    better = sum(change.edits_of_int8 < change.edits_of_fp32 for change in compared.changes)
    told = f", {worse} for the worse and {better} for the better" if compared.changes else ""
    return f"{compared.name}: {len(compared.changes)} of {compared.count:,} texts changed{told}"


def _make_picture(name: str, source: str, changes: Sequence[tuple[_Compared, TextChange]]) -> LinePicture:
    reference = changes[0][1].reference
    by_text: dict[str, list[str]] = {}
    fp32_first = [(each.fp32, change.fp32) for each, change in changes]
    for variant_name, text in (*fp32_first, *((each.name, change.int8) for each, change in changes)):
        names = by_text.setdefault(text, [])
        if variant_name not in names:
            names.append(variant_name)
    writings = tuple(
        Writing(names=", ".join(names), pieces=tuple(split_pieces(text, reference)), right=text == reference)
        for text, names in by_text.items()
    )
    return LinePicture(id=name, source=source, reference=reference[:MOST_LETTERS], writings=writings)


def split_pieces(text: str, reference: str) -> Iterable[Piece]:
    """The text in pieces that are, are not, or are missing of the reference; one piece where most of it is another, and
    none where it is empty. Both are cut where they are long."""
    text, reference = text[:MOST_LETTERS], reference[:MOST_LETTERS]
    matcher = difflib.SequenceMatcher(None, reference, text, autojunk=False)
    if matcher.ratio() < LEAST_ALIKE:
        yield from [Piece(text=text, kind="wrong")] * bool(text)
        return
    for operation, low, high, start, end in matcher.get_opcodes():
        if operation == "equal":
            yield Piece(text=text[start:end], kind="same")
            continue
        if low < high:
            yield Piece(text=reference[low:high], kind="missing")
        if start < end:
            yield Piece(text=text[start:end], kind="wrong")
