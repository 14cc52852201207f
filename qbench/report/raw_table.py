"""The table of cases as a reader takes it away from the page: raw numbers, whose heads name their unit; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from qbench import formatting
from qbench.decide.judged import Judged
from qbench.report.case_line import CaseLine, Raw
from qbench.report.columns import AS_SHARE, list_shown

# What a column holds besides its value: by its key, how that is headed.
BESIDE: Mapping[str, str] = {"delta": "accuracy limit", "flips": "examples gained", "size": "size over that of fp32"}
_OWN = {"flips": "examples lost"}
_UNITS = {"bytes": "bytes", "0 to 1": AS_SHARE}


def list_raw(
    judged: Judged, keys: Sequence[str], columns: Sequence[str], lines: Sequence[CaseLine]
) -> tuple[tuple[Raw, ...], ...]:
    """The heads, then the cells of each case; ``keys`` say where a case stands, ``columns`` what was measured. Seconds,
    bytes, ratios and shares of 1, whatever the page scales them to; limits in columns of their own."""
    titled = list_shown(judged, "s", raw=True)
    limited = {key for key in columns if any(line.cells[key].low is not None for line in lines)}
    heads = ["case", *keys, "mode", "backend", "verdict"]
    for key in columns:
        heads += _list_heads(key, titled[key].title, _unit_of(judged, key, titled[key].unit), key in limited)
    rows = [tuple(_list_cells(line, keys, columns, limited)) for line in lines]
    return tuple(heads), *rows


def _unit_of(judged: Judged, key: str, unit: str) -> str:
    """What is not in the title of a column yet."""
    if key == "minimized":
        return "bytes" if judged.decide.minimize == "memory" else "s"
    return _UNITS.get(unit, "")


def _list_heads(key: str, title: str, unit: str, is_limited: bool) -> Iterator[str]:
    name, comma, of_title = _OWN.get(key, title).rpartition(", ")
    name, unit = (name, of_title) if comma else (of_title, unit)
    for end in ("", " low", " high") if is_limited else ("",):
        yield f"{name}{end}, {unit}" if unit else f"{name}{end}"
    if key in BESIDE:
        yield BESIDE[key]


def _list_cells(line: CaseLine, keys: Sequence[str], columns: Sequence[str], limited: set[str]) -> Iterator[Raw]:
    case = line.record.case
    yield formatting.clean(case.id)
    for key in keys:
        value = getattr(case, key)
        yield formatting.clean(value) if isinstance(value, str) else value
    yield from map(formatting.clean, (case.mode, case.backend, line.ruling.word))
    for key in columns:
        cell = line.cells[key]
        yield from map(_finite, (cell.sort, cell.low, cell.high) if key in limited else (cell.sort,))
        if key in BESIDE:
            yield _read_beside(line, key)


def _read_beside(line: CaseLine, key: str) -> Raw:
    if key == "delta":
        return line.outcome
    if key == "size":
        return _finite(line.cells["ratio"].sort)
    scores = line.record.accuracy
    return scores.flips.beneficial if scores is not None and scores.flips is not None else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
