"""What else was measured of each case: cold start, memory, interference, steadiness, the literature's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qbench import wording
from qbench.record import Interval, Record
from qbench.report.text import TextTable

Value = Callable[[Record], str | None]


def details(records: Sequence[Record]) -> TextTable:
    """One row for each measured case; a column that no case has anything for is left out."""
    measured = [record for record in records if record.status == "ok" and record.latency is not None]
    columns = {title: [value(record) for record in measured] for title, value in COLUMNS.items()}
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    rows = [
        (record.case.id, *(cells[i] or wording.DASH for cells in shown.values())) for i, record in enumerate(measured)
    ]
    return TextTable(columns=("case", *shown), rows=tuple(rows))


def _calls(record: Record) -> str | None:
    return None if record.latency is None else f"{record.latency.n:,}"


def _effective(record: Record) -> str | None:
    found = record.latency.effective_n if record.latency else None
    return None if found is None else f"{found:,.0f}"


def _p99(record: Record) -> str | None:
    latency = record.latency
    if latency is None or latency.p99_seconds is None:
        return None
    low, high = latency.p99_low, latency.p99_high
    limits = "" if low is None or high is None else f" [{wording.duration(low)}, {wording.duration(high)}]"
    return wording.duration(latency.p99_seconds) + limits


def _steady(record: Record) -> str | None:
    steady = record.speedup.steady if record.speedup else None
    return None if steady is None else ("yes" if steady else "no")


def _sequential(record: Record) -> str | None:
    found = record.sequential
    return None if found is None else f"{wording.duration(found.mean_seconds)} (n = {found.n})"


def _sequential_speedup(record: Record) -> str | None:
    found = record.sequential
    return None if found is None or found.speedup is None else wording.number(Interval(value=found.speedup))


def _peak(record: Record) -> str | None:
    found = record.roofline.peak_fraction if record.roofline else None
    return None if found is None else wording.share(found)


def _throughput(record: Record) -> str | None:
    found = record.throughput_per_second
    return None if found is None else f"{found:,.0f}"


def _load(record: Record) -> str | None:
    return wording.duration(record.cold_start.load_seconds) if record.cold_start else None


def _first(record: Record) -> str | None:
    return wording.duration(record.cold_start.first_call_seconds) if record.cold_start else None


def _next(record: Record) -> str | None:
    found = record.cold_start.next_calls_seconds if record.cold_start else None
    return None if found is None else wording.duration(found)


def _loaded(record: Record) -> str | None:
    return wording.size(record.memory.loaded_rss_bytes) if record.memory else None


def _peak_rss(record: Record) -> str | None:
    found = record.memory.peak_rss_bytes if record.memory else None
    return None if found is None else wording.size(found)


def _switches(record: Record) -> str | None:
    found = record.interference.involuntary_switches if record.interference else None
    return None if found is None else f"{found:,}"


def _faults(record: Record) -> str | None:
    found = record.interference.page_faults if record.interference else None
    return None if found is None else f"{found:,}"


COLUMNS: dict[str, Value] = {
    "calls": _calls,
    "worth independent": _effective,
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
    "switched away": _switches,
    "page faults": _faults,
}
