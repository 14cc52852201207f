"""How far apart the scores of several calibration seeds lie, case by case."""

from __future__ import annotations

from qbench import formatting
from qbench.compare import calibration_seeds
from qbench.decide.judged import Judged
from qbench.progress.table import TextTable


def table(judged: Judged) -> TextTable:
    """One row per variant that was calibrated with several seeds: its scores, their spread, the worst one judged."""
    columns = ("case", "by seed", "spread", "worst seed", "change with it", "within margin with it")
    return TextTable(columns=columns, rows=tuple(_rows(judged)), words=(0, 1, 5))


def _rows(judged: Judged) -> list[tuple[str, ...]]:
    metric = judged.metric
    rows: list[tuple[str, ...]] = []
    listed: set[tuple[str | None, tuple[int, ...]]] = set()
    for record in judged.records:
        spread = judged.seed_spreads.get(record.case.id)
        if spread is None or metric is None or (key := (record.predictions, spread.seeds)) in listed:
            continue
        listed |= {key} if record.predictions else set()
        digits = 2 if metric.percent else 4
        scores = [formatting.fixed(value * metric.scale, digits) for value in spread.values]
        named = [f"{seed}: {score}" for seed, score in zip(spread.seeds, scores, strict=True)]
        named += [f"{seed}: {formatting.one_line(reason)}" for seed, reason in spread.failed.items()]
        difference = formatting.fixed(spread.spread * metric.scale, digits)
        rows.append(
            (
                record.case.id,
                ", ".join(named),
                f"{difference} {metric.unit}".rstrip(),
                str(spread.worst),
                calibration_seeds.describe_change(spread, metric) or formatting.DASH,
                spread.test.outcome if spread.test else formatting.DASH,
            )
        )
    return rows
