"""What else was measured: one row a case, a column only where some case has something to say."""

from __future__ import annotations

from dataclasses import replace

from qbench.record.schema import CaseKey, ColdStart, Interference, Latency, Memory, Record, Roofline, Sequential
from qbench.report.measurement_table import details


def record(name="a", **changes):
    key = CaseKey(id=name, model="m", mode="static", backend="x86", threads=1, batch_size=1)
    latency = Latency(
        p50_seconds=1e-3,
        p50_low=None,
        p50_high=None,
        p90_seconds=None,
        p99_seconds=None,
        mean_seconds=1e-3,
        n=1234,
        effective_n=800.4,
    )
    return replace(Record(case=key, status="ok", latency=latency), **changes)


def test_columns_without_content_are_left_out():
    """A record that knows only its calls has two columns beside its name."""
    found = details([record()])
    assert found.columns == ("case", "calls", "effective sample size")
    assert found.rows == (("a", "1,234", "800"),)


def test_everything_that_is_known_is_shown():
    """Each field of the record has its place; what another case lacks is a dash."""
    full = record(
        "full",
        cold_start=ColdStart(load_seconds=0.02, first_call_seconds=0.03, next_calls_seconds=0.001),
        memory=Memory(loaded_rss_bytes=100_000_000, peak_rss_bytes=None),
        interference=Interference(blocks=3, involuntary_switches=5, page_faults=None),
        sequential=Sequential(mean_seconds=0.002, n=100, speedup=1.5),
        roofline=Roofline(macs=1000, peak_fraction=0.41),
        throughput_per_second=1000.0,
    )
    found = details([full, record("bare")])
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert row["of this core's peak"] == "41.0 %"
    assert row["sequential mean"] == "2.00 ms (n = 100)"
    assert row["involuntary context switches"] == "5"
    assert "page faults" not in row
    assert "memory, peak" not in row
    assert dict(zip(found.columns, found.rows[1], strict=True))["load"] == "—"


def test_what_the_host_did_is_shown():
    """How much of the time the core was shared, and which blocks p50 is of, beside the p50 of all."""
    host = Interference(blocks=9, involuntary_switches=0, page_faults=0, shared=0.6, undisturbed_blocks=4)
    plain = record().latency
    shared = record(interference=host, latency=replace(plain, p50_from="undisturbed", p50_all_seconds=2e-3))
    busy = record("b", interference=host, latency=replace(plain, p50_from="all", p50_all_seconds=1e-3))
    found = details([shared, busy])
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [row["core busy with other work"] for row in rows] == ["60 %", "60 %"]
    assert [row["p50 from blocks"] for row in rows] == ["undisturbed (of all: 2.00 ms)", "all"]


def test_failed_and_skipped_cases_have_no_row():
    """What was not measured has nothing else measured."""
    assert details([replace(record(), status="failed"), replace(record(), latency=None)]).rows == ()
