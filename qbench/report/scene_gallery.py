"""Pictures of the scenes whose boxes or masks int8 changes most, as the report's page shows them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass

from qbench.evaluate import scenes
from qbench.evaluate.scenes import SceneAnswers
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report.int8_predictions import Int8Predictions, list_int8_predictions

MOST_PICTURES = 48
MOST_BYTES = 1_000_000  # of all, before base64 adds a third
_MOST_OF_ONE = 200_000


@dataclass(frozen=True, kw_only=True)
class ScenePicture:
    """One example as fp32 (left) and a variant (right) answer it: a ``data:`` address, its id, the variant, what
    changed."""

    id: str
    source: str
    variant: str
    change: str


def list_scenes(run: StoredRun) -> tuple[ScenePicture, ...]:
    """The pictures that the run kept, the largest change of each variant first, as many as fit into a page."""
    pictures, size = list[tuple[int, ScenePicture]](), 0
    by_file: dict[str, SceneAnswers | None] = {}
    for predictions in list_int8_predictions(run):
        of_variant = sorted(_read_pictures(run, predictions, by_file), key=lambda item: -item[0])
        for place, (_, content, picture) in enumerate(of_variant):
            if content > _MOST_OF_ONE or size + content > MOST_BYTES or len(pictures) == MOST_PICTURES:
                continue
            size += content
            pictures.append((place, picture))
    return tuple(picture for _, picture in sorted(pictures, key=lambda item: item[0]))


def _read_pictures(
    run: StoredRun, predictions: Int8Predictions, by_file: dict[str, SceneAnswers | None]
) -> Iterator[tuple[float, int, ScenePicture]]:
    """How much a scene changed, the size of its picture in bytes, and the picture."""

    def read(record: Record) -> SceneAnswers | None:
        file = str(record.predictions)
        if file not in by_file:
            by_file[file] = scenes.read_scenes(run.predictions(record))
        return by_file[file]

    record = predictions.record
    stored = list(scenes.list_stored(run.folder, str(record.predictions)))
    if not stored:
        return
    ours, theirs = read(record), read(predictions.fp32)
    if ours is None or theirs is None:
        return
    ids = run.predictions(record).get("ids", ())
    for position, media, content in stored:
        if position >= min(len(ids), ours.n, theirs.n):
            continue
        change = scenes.compare_scene(ours, theirs, position)
        source = f"data:{media};base64,{base64.b64encode(content).decode()}"
        picture = ScenePicture(id=str(ids[position]), source=source, variant=predictions.name, change=str(change))
        yield change.size, len(content), picture
