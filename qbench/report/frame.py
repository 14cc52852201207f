"""A run as tidy frames for pandas: one row a case, one a call, one a layer. Raw values in SI units.

``columns.STORED`` says what each column of the cases means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbench.decide import cases as settings_of
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report.cells import CaseRow
from qbench.report.columns import DTYPES, OPEN, STORED

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


def cases_frame(run: StoredRun, judged: Judged, decisions: Sequence[Decision]) -> pd.DataFrame:
    """One row per case, in the order of the records, with every column of ``STORED``, and after them those of ``OPEN``
    that the records have. What was not measured is missing."""
    import pandas as pd

    decided = {decision.setting: decision for decision in decisions}
    best = {
        setting: settings_of.fastest_fp32(settings_of.of_setting(setting, judged.records))
        for setting in settings_of.settings(judged.records)
    }
    rows = []
    for record in judged.records:
        setting = settings_of.setting_of(record.case)
        row = CaseRow(judged=judged, record=record, best=best[setting], decision=decided.get(setting), run=run)
        of_case = {name: value for name, value in row.stored.items() if name.startswith(tuple(OPEN))}
        rows.append({name: column.value(row) for name, column in STORED.items()} | of_case)
    names = [*STORED, *sorted({name for row in rows for name in row} - set(STORED))]
    content = pd.DataFrame([{name: row.get(name) for name in names} for row in rows], columns=names, dtype=object)
    return content.astype({name: DTYPES[column.kind] for name, column in STORED.items() if column.kind})


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
    numbers = np.searchsorted(np.unique(block), block)  # blocks are numbered in the order of `process`
    return process[numbers] if numbers.max() < process.size else np.zeros(count, dtype=np.int64)


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
