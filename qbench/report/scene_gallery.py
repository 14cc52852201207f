"""Pictures of the scenes whose boxes or masks int8 changes most, as the report's page shows them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass

from qbench.compare import compare
from qbench.decide.cases import is_contender, variant
from qbench.evaluate import scenes
from qbench.evaluate.scenes import SceneAnswers
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun

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
    seen = set[str]()
    for record in run.records:
        fp32 = compare.like_for_like(record, run.records)
        if not is_contender(record) or fp32 is None or record.predictions is None or record.predictions in seen:
            continue
        seen.add(record.predictions)
        of_record = sorted(_read_record(run, record, fp32, by_file), key=lambda item: -item[0])
        for place, (_, content, picture) in enumerate(of_record):
            if content > _MOST_OF_ONE or size + content > MOST_BYTES or len(pictures) == MOST_PICTURES:
                continue
            size += content
            pictures.append((place, picture))
    return tuple(picture for _, picture in sorted(pictures, key=lambda item: item[0]))


def _read_record(
    run: StoredRun, record: Record, fp32: Record, by_file: dict[str, SceneAnswers | None]
) -> Iterator[tuple[float, int, ScenePicture]]:
    """How much a scene changed, the size of its picture in bytes, and the picture."""
    assert record.predictions is not None
    stored = list(scenes.list_stored(run.folder, record.predictions))
    if not stored:
        return
    for each in (record, fp32):
        if each.predictions is not None and each.predictions not in by_file:
            by_file[each.predictions] = scenes.read_scenes(run.predictions(each))
    ours, theirs = by_file[record.predictions], by_file.get(str(fp32.predictions))
    if ours is None or theirs is None:
        return
    ids = run.predictions(record).get("ids", ())
    models = {each.case.model for each in run.records}
    named = f"{record.case.model} {variant(record)}" if len(models) > 1 else variant(record)
    for position, media, content in stored:
        if position >= min(len(ids), ours.n, theirs.n):
            continue
        change = scenes.compare_scene(ours, theirs, position)
        source = f"data:{media};base64,{base64.b64encode(content).decode()}"
        picture = ScenePicture(id=str(ids[position]), source=source, variant=named, change=str(change))
        yield change.size, len(content), picture
