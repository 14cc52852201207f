"""What else was measured of each case: cold start, memory, interference, steadiness, the literature's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qbench import formatting
from qbench.compare import above_peak
from qbench.progress.table import TextTable
from qbench.record.schema import Record, flatten
from qbench.report.columns import COLUMNS

ORDER = (
    "latency.n",
    "latency.effective_n",
    "latency.p99_seconds",
    "speedup.steady",
    "sequential.mean_seconds",
    "sequential.speedup",
    "roofline.peak_fraction",
    "throughput_per_second",
    "cold_start.load_seconds",
    "cold_start.first_call_seconds",
    "cold_start.next_calls_seconds",
    "memory.loaded_rss_bytes",
    "memory.peak_rss_bytes",
    "interference.involuntary_switches",
    "interference.page_faults",
    "interference.shared",
    "latency.p50_from",
)


def details(records: Sequence[Record]) -> TextTable:
    """One row for each measured case; a column that no case has anything for is left out."""
    measured = [record for record in records if record.status == "ok" and record.latency is not None]
    written = [_write(record) for record in measured]
    filled = [name for name in ORDER if any(cells[name] for cells in written)]
    rows = [
        (record.case.id, *(cells[name] or formatting.DASH for name in filled))
        for record, cells in zip(measured, written, strict=True)
    ]
    return TextTable(columns=("case", *(COLUMNS[name].title for name in filled)), rows=tuple(rows))


def _write(record: Record) -> dict[str, str | None]:
    """The cells of a case by the name of their column."""
    values = dict(flatten(record))
    cells = {name: COLUMNS[name].write(values.get(name)) for name in ORDER}
    return cells | {name: write(record) for name, write in _BESIDE.items() if cells[name]}


def _p99(record: Record) -> str | None:
    latency = record.latency
    if latency is None or latency.p99_low is None or latency.p99_high is None:
        limits = ""
    else:
        limits = f" [{formatting.duration(latency.p99_low)}, {formatting.duration(latency.p99_high)}]"
    return None if latency is None else formatting.duration(latency.p99_seconds) + limits


def _sequential(record: Record) -> str | None:
    sequential = record.sequential
    return None if sequential is None else f"{formatting.duration(sequential.mean_seconds)} (n = {sequential.n})"


def _p50_from(record: Record) -> str | None:
    latency = record.latency
    if latency is None or latency.p50_from == "all" or latency.p50_all_seconds is None:
        return latency.p50_from if latency else None
    return f"undisturbed (of all: {formatting.duration(latency.p50_all_seconds)})"


# Columns that say more than their one value.
_BESIDE: dict[str, Callable[[Record], str | None]] = {
    "latency.p99_seconds": _p99,
    "sequential.mean_seconds": _sequential,
    "roofline.peak_fraction": above_peak.describe,
    "latency.p50_from": _p50_from,
}
