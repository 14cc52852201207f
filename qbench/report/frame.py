"""A run as tidy frames for pandas: one row a case, one a call, one a layer. Raw values in SI units.

``columns.COLUMNS`` says what each column of the cases means.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbench.decide import cases as settings_of
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.record import schema
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report.cells import typical_times
from qbench.report.columns import AS_JSON, COLUMNS, DTYPES, OPEN

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


def cases_frame(run: StoredRun, judged: Judged, decisions: Sequence[Decision]) -> pd.DataFrame:
    """One row per case, in the order of the records, with every column of ``COLUMNS``, and after them those of ``OPEN``
    that the records have. What was not measured is missing."""
    import pandas as pd

    named = {decision.setting: decision for decision in decisions}
    best = {
        setting: settings_of.fastest_fp32(settings_of.of_setting(setting, judged.records))
        for setting in settings_of.settings(judged.records)
    }
    rows = []
    for record in judged.records:
        setting = setting_of(record)
        rows.append(
            {"run": run.folder.name, "suite": run.info.suite.name}
            | _fold(dict(schema.flatten(record)))
            | _derive(record, judged, best[setting])
            | _name_role(record, named.get(setting), best[setting])
            | {"decision.tie": judged.decide.tie}
        )
    free = sorted({name for row in rows for name in row if name.startswith(tuple(OPEN))})
    names = [*COLUMNS, *free]
    content = pd.DataFrame([{name: row.get(name) for name in names} for row in rows], columns=names, dtype=object)
    return content.astype({name: DTYPES[column.kind] for name, column in COLUMNS.items()})


def calls_frame(run: StoredRun, records: Iterable[Record]) -> pd.DataFrame:
    """One row per timed call: ``case.id``, ``process`` (0, 1, … in which process it ran), ``seconds``."""
    import numpy as np
    import pandas as pd

    frames = []
    for record in records:
        stored = run.samples(record)
        nanoseconds = stored.get("calls_ns")
        if nanoseconds is not None and nanoseconds.size:
            process = process_of_calls(stored)
            codes = np.zeros(nanoseconds.size, dtype=np.int8)
            names = pd.Categorical.from_codes(codes, pd.Index([record.case.id]))
            frames.append(pd.DataFrame({"case.id": names, "process": process, "seconds": nanoseconds * 1e-9}))
    if not frames:
        return pd.DataFrame({"case.id": [], "process": [], "seconds": []})
    joined = pd.concat(frames, ignore_index=True)
    joined["case.id"] = joined["case.id"].astype("category")
    return joined


def process_of_calls(stored: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """In which process each stored call ran; all in one where that is not told."""
    import numpy as np

    block, process = stored.get("block"), stored.get("process")
    count = stored["calls_ns"].size
    if block is None or block.size != count or process is None or not process.size or not block.size:
        return np.zeros(count, dtype=np.int64)
    places = np.searchsorted(np.unique(block), block)  # blocks are numbered in the order of `process`
    return process[places] if places.max() < process.size else np.zeros(count, dtype=np.int64)


def layers_frame(run: StoredRun) -> pd.DataFrame:
    """One row per layer of each variant that the run kept numbers of, or that has layers in float: ``case.id``,
    ``layer``, ``sqnr_db``, ``cosine``, ``n`` (values compared), ``clipped`` (share of them), ``is_float``, ``reason``.
    Cases of one variant share their layers and are listed once."""
    import pandas as pd

    names = ("case.id", "layer", "sqnr_db", "cosine", "n", "clipped", "is_float", "reason")
    rows: list[tuple[object, ...]] = []
    listed: set[str] = set()
    for record in run.records:
        if record.layers is None or record.layers in listed:
            continue
        listed.add(record.layers)
        coverage = record.artifact.coverage if record.artifact else None
        floats = set() if coverage is None else set(coverage.float_layers)
        numbers = run.layer_numbers(record)
        for layer in numbers:
            is_float = layer.name in floats
            reason = (coverage.float_reasons.get(layer.name) if coverage else None) or layer.reason
            values = (layer.sqnr_db, layer.cosine, layer.n, layer.clipped)
            rows.append((record.case.id, layer.name, *values, is_float, reason))
        with_numbers = {layer.name for layer in numbers}
        for name in coverage.float_layers if coverage else ():
            if name not in with_numbers:
                reason = coverage.float_reasons.get(name) if coverage else None
                rows.append((record.case.id, name, None, None, 0, None, True, reason))
    frame = pd.DataFrame(rows, columns=list(names))
    return frame.astype({"sqnr_db": float, "cosine": float, "clipped": float, "n": int, "is_float": bool})


def setting_of(record: Record) -> settings_of.Setting:
    """The setting that a case is decided in."""
    return settings_of.setting_of(record.case)


def _fold(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nested values: lists joined, and the mappings of ``AS_JSON`` as JSON."""
    folded: dict[str, Any] = {}
    for name, value in row.items():
        holder = next((key for key in AS_JSON if name.startswith(f"{key}.")), None)
        if holder is not None:
            folded.setdefault(holder, {})[name.removeprefix(f"{holder}.")] = value
        else:
            folded[name] = value
    return {name: _plain(value) for name, value in folded.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False) if value else None
    if isinstance(value, list | tuple):
        return ";".join(json.dumps(item) if isinstance(item, dict) else str(item) for item in value)
    return value


def _derive(record: Record, judged: Judged, best: Record | None) -> dict[str, Any]:
    """What follows from a record and the suite's rules."""
    from qbench.compare import compare

    value, low, high = _over_best(record, best)
    row: dict[str, Any] = {
        "case.variant": record.case.variant,
        "case.setting": settings_of.setting_name(setting_of(record)),
        "over_best_fp32.value": value,
        "over_best_fp32.low": low,
        "over_best_fp32.high": high,
        "size_over_fp32": compare.size_ratio(compare.like_for_like(record, judged.records), record),
    }
    metric, test = judged.metric, judged.tests.get(record.case.id)
    if metric is not None and record.accuracy is not None:
        margin = judged.margin_of(record)
        row |= {"metric.scale": metric.scale, "metric.unit": metric.unit}
        row |= {"metric.higher_is_better": metric.higher_is_better}
        row |= {"accuracy.margin": None if margin is None else margin / metric.scale}
    if test is not None and metric is not None:
        tested = compare.oriented(test.delta, metric.sign)
        row |= {"accuracy.verdict": test.outcome, "accuracy.tested.level": test.level}
        row |= {"accuracy.tested.low": tested.low, "accuracy.tested.high": tested.high}
    return row | _derive_rates(record)


def _derive_rates(record: Record) -> dict[str, Any]:
    """Operations a second, and the measured peak of the precision that they were held against."""
    roofline, typical = record.roofline, settings_of.p50(record)
    if roofline is None or not roofline.macs or not typical:
        return {}
    rate = 2 * roofline.macs / typical
    peak = rate / roofline.peak_fraction if roofline.peak_fraction else None
    return {"roofline.operations_per_second": rate, "roofline.peak_per_second": peak}


def _over_best(record: Record, best: Record | None) -> tuple[float | None, float | None, float | None]:
    """The case's time over that of the setting's fastest fp32, with limits where both were measured side by side."""
    nothing = (None, None, None)
    if record.status != "ok":
        return nothing
    if record is best:
        return 1.0, None, None
    if (fastest := record.speedup_fastest) is not None:
        low = None if fastest.high is None else 1 / fastest.high
        high = None if fastest.low is None else 1 / fastest.low
        return 1 / fastest.value, low, high
    times = typical_times(record, best)
    return nothing if times is None else (times[0] / times[1], None, None)


def _name_role(record: Record, decision: Decision | None, best: Record | None) -> dict[str, Any]:
    """What the decision of its setting says of a case."""
    row: dict[str, Any] = {"decision.is_best_fp32": record is best}
    if decision is None:
        return row
    case = record.case.id
    chosen: dict[str, tuple[Record | None, ...]] = {
        "ship": (decision.pick,),
        "either": (decision.pick, decision.runner_up),
        "undecided": (decision.pick,),
        "keep fp32": (decision.fp32,),
    }
    named = {record.case.id for record in chosen.get(decision.verdict, ()) if record is not None}
    role = decision.verdict if case in named else "tied" if case in decision.tied else None
    return row | {
        "decision.verdict": decision.status,
        "decision.role": role,
        "decision.probability": decision.probability if case in named else None,
    }
