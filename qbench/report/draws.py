"""The luck of the calibration subset, case by case: how far apart the scores of several seeds lie."""

from __future__ import annotations

from qbench import luck, wording
from qbench.report.answer import Judged
from qbench.report.text import TextTable


def table(judged: Judged) -> TextTable:
    """One row per variant that was calibrated with several seeds: its scores, their spread, the worst one judged."""
    columns = ("case", "by seed", "spread", "worst seed", "change with it", "within margin with it")
    return TextTable(columns=columns, rows=tuple(_rows(judged)), words=(0, 1, 5))


def _rows(judged: Judged) -> list[tuple[str, ...]]:
    metric = judged.metric
    rows: list[tuple[str, ...]] = []
    seen: set[tuple[str | None, tuple[int, ...]]] = set()
    for record in judged.records:
        found = judged.luck.get(record.case.id)
        if found is None or metric is None or (key := (record.predictions, found.seeds)) in seen:
            continue
        seen |= {key} if record.predictions else set()
        places = 2 if metric.percent else 4
        scores = [wording.fixed(value * metric.scale, places) for value in found.values]
        named = [f"{seed}: {score}" for seed, score in zip(found.seeds, scores, strict=True)]
        named += [f"{seed}: {wording.one_line(reason)}" for seed, reason in found.failed.items()]
        spread = wording.fixed(found.spread * metric.scale, places)
        rows.append(
            (
                record.case.id,
                ", ".join(named),
                f"{spread} {metric.unit}".rstrip(),
                str(found.worst),
                luck.changed(found, metric) or wording.DASH,
                found.test.outcome if found.test else wording.DASH,
            )
        )
    return rows
