"""What else was measured of each case: cold start, memory, interference, steadiness, the literature's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qbench import formatting
from qbench.compare import above_peak, host_share
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval

Value = Callable[[Record], str | None]


def details(records: Sequence[Record]) -> TextTable:
    """One row for each measured case; a column that no case has anything for is left out."""
    measured = [record for record in records if record.status == "ok" and record.latency is not None]
    columns = {title: [value(record) for record in measured] for title, value in COLUMNS.items()}
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    rows = [
        (record.case.id, *(cells[i] or formatting.DASH for cells in shown.values()))
        for i, record in enumerate(measured)
    ]
    return TextTable(columns=("case", *shown), rows=tuple(rows))


def _calls(record: Record) -> str | None:
    return None if record.latency is None else f"{record.latency.n:,}"


def _effective(record: Record) -> str | None:
    count = record.latency.effective_n if record.latency else None
    return None if count is None else f"{count:,.0f}"


def _p99(record: Record) -> str | None:
    latency = record.latency
    if latency is None or latency.p99_seconds is None:
        return None
    low, high = latency.p99_low, latency.p99_high
    limits = "" if low is None or high is None else f" [{formatting.duration(low)}, {formatting.duration(high)}]"
    return formatting.duration(latency.p99_seconds) + limits


def _steady(record: Record) -> str | None:
    steady = record.speedup.steady if record.speedup else None
    return None if steady is None else ("yes" if steady else "no")


def _sequential(record: Record) -> str | None:
    sequential = record.sequential
    return None if sequential is None else f"{formatting.duration(sequential.mean_seconds)} (n = {sequential.n})"


def _sequential_speedup(record: Record) -> str | None:
    speedup = record.sequential.speedup if record.sequential else None
    return None if speedup is None else formatting.number(Interval(value=speedup))


def _peak(record: Record) -> str | None:
    return above_peak.describe(record)


def _shared(record: Record) -> str | None:
    shared = host_share.share_of(record)
    return None if shared is None else formatting.share(shared, 0)


def _p50_from(record: Record) -> str | None:
    latency = record.latency
    if latency is None or latency.p50_from is None:
        return None
    if latency.p50_from == "all" or latency.p50_all_seconds is None:
        return latency.p50_from
    return f"undisturbed (of all: {formatting.duration(latency.p50_all_seconds)})"


def _throughput(record: Record) -> str | None:
    rate = record.throughput_per_second
    return None if rate is None else f"{rate:,.0f}"


def _load(record: Record) -> str | None:
    return formatting.duration(record.cold_start.load_seconds) if record.cold_start else None


def _first(record: Record) -> str | None:
    return formatting.duration(record.cold_start.first_call_seconds) if record.cold_start else None


def _next(record: Record) -> str | None:
    seconds = record.cold_start.next_calls_seconds if record.cold_start else None
    return None if seconds is None else formatting.duration(seconds)


def _loaded(record: Record) -> str | None:
    return formatting.size(record.memory.loaded_rss_bytes) if record.memory else None


def _peak_rss(record: Record) -> str | None:
    size = record.memory.peak_rss_bytes if record.memory else None
    return None if size is None else formatting.size(size)


def _switches(record: Record) -> str | None:
    count = record.interference.involuntary_switches if record.interference else None
    return None if count is None else f"{count:,}"


def _faults(record: Record) -> str | None:
    count = record.interference.page_faults if record.interference else None
    return None if count is None else f"{count:,}"


COLUMNS: dict[str, Value] = {
    "calls": _calls,
    "effective sample size": _effective,
    "p99": _p99,
    "steady": _steady,
    "sequential mean": _sequential,
    "sequential speed-up": _sequential_speedup,
    "of this core's peak": _peak,
    "examples a second": _throughput,
    "load": _load,
    "first call": _first,
    "calls 2 to 5": _next,
    "memory, loaded": _loaded,
    "memory, peak": _peak_rss,
    "involuntary context switches": _switches,
    "page faults": _faults,
    "core busy with other work": _shared,
    "p50 from blocks": _p50_from,
}
