"""Images of the examples that flip, as the report's page shows them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qbench.decide.cases import variant
from qbench.evaluate import thumbnails
from qbench.evaluate.flips import Flip
from qbench.record.stored_run import StoredRun
from qbench.report.flips import CaseFlips, distinct, move

MOST_EXAMPLES = 48
MOST_BYTES = 700_000  # of all images, before base64 adds a third
_WAYS = {
    "harmful": ("right to wrong", "bad"),
    "beneficial": ("wrong to right", "good"),
    "changed": ("changed", "muted"),
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One flipped example: its thumbnail as a ``data:`` address, and what fp32 and the variants answer."""

    id: str
    source: str
    label: str
    lines: tuple[str, ...]
    tone: str
    alternative: str


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The examples that flip in most variants; ``more`` have an image in the run's folder and are not shown."""

    pictures: tuple[Picture, ...] = ()
    more: int = 0


def gallery(run: StoredRun, cases: Sequence[CaseFlips]) -> Gallery:
    """The thumbnails that the run kept, each once, those that flip in most variants first."""
    by_place: dict[int, list[tuple[CaseFlips, Flip]]] = {}
    for case in distinct(cases):
        for flip in case.flips:
            by_place.setdefault(flip.position, []).append((case, flip))
    order = sorted(by_place.items(), key=lambda item: (-len(item[1]), -item[1][0][1].sure, item[0]))
    pictures: list[Picture] = []
    more = size = 0
    for position, moves in order:
        images = thumbnails.stored(run.folder, position)
        if images is None:
            continue
        media, content = images
        if len(pictures) == MOST_EXAMPLES or size + len(content) > MOST_BYTES:
            more += 1
            continue
        size += len(content)
        pictures.append(_make_picture(f"data:{media};base64,{base64.b64encode(content).decode()}", moves))
    return Gallery(pictures=tuple(pictures), more=more)


def _make_picture(source: str, flips: Sequence[tuple[CaseFlips, Flip]]) -> Picture:
    first = flips[0][1]
    kinds = {flip.kind for _, flip in flips}
    way, tone = _WAYS[next(iter(kinds))] if len(kinds) == 1 else ("both ways", "muted")
    label = way if first.label is None else f"label {first.label}, {way}"
    alternative = f"example {first.id}, {label}"
    return Picture(
        id=first.id, source=source, label=label, lines=tuple(_describe_moves(flips)), tone=tone, alternative=alternative
    )


def _describe_moves(flips: Sequence[tuple[CaseFlips, Flip]]) -> Iterator[str]:
    """``3 -> 5: static · onednn, static · x86``: each move with the variants that make it."""
    models = {case.record.case.model for case, _ in flips}
    by_move: dict[str, list[str]] = {}
    for case, flip in flips:
        model = f"{case.record.case.model} " if len(models) > 1 else ""
        names = by_move.setdefault(move(flip), [])
        if (name := f"{model}{variant(case.record)}") not in names:
            names.append(name)
    for change, names in by_move.items():
        yield f"{change}: {', '.join(names)}"
