"""Times of calls and speed-ups, what disturbed them, cold start, memory, the share of what a core can do; and files."""

from __future__ import annotations

from dataclasses import replace

from qbench import formatting
from qbench.compare import above_peak, host_share
from qbench.decide import cases
from qbench.report.cells import CaseRow, Cell, interval_cell, ratio_cell
from qbench.report.columns.column import Family
from qbench.stats.interval_type import Interval

family = Family()

family.list("[latency.]")


@family.drawn(
    "p50_seconds|number|s|median time of a call; of undisturbed blocks where `p50_from` says so|time, {time}",
    key="p50",
    note="time",
    terminal="{time}",
    card="time of a call",
    hint="half of all calls take at most this long (p50)",
)
def _p50(row: CaseRow) -> Cell:
    latency = row.record.latency
    if latency is None or latency.p50_seconds is None:
        return Cell()
    p50 = Interval(value=latency.p50_seconds, low=latency.p50_low, high=latency.p50_high)
    cell = interval_cell(p50, row.digits.time, scale=1 / row.unit)
    return replace(cell, hint=host_share.describe(row.record) or "")


family.list("""
p50_low|number|s|its lower limit, 95 %
p50_high|number|s|its upper limit, 95 %
""")


@family.drawn(
    "p90_seconds|number|s|nine calls in ten are at least this fast|9 in 10, {time}",
    key="p90",
    hint="nine calls in ten take at most this long (p90)",
)
def _p90(row: CaseRow) -> Cell:
    latency = row.record.latency
    if latency is None or latency.p90_seconds is None:
        return Cell()
    return interval_cell(Interval(value=latency.p90_seconds), row.digits.time, scale=1 / row.unit)


@family.drawn("p99_seconds|number|s|99 calls in 100 are|p99")
def _p99(row: CaseRow) -> Cell:
    latency = row.record.latency
    if latency is None:
        return Cell()
    ends = (latency.p99_low, latency.p99_high)
    low, high = (None if end is None else formatting.duration(end) for end in ends)
    return Cell(text=formatting.duration(latency.p99_seconds), limits=f"[{low}, {high}]" if low and high else "")


family.list("""
mean_seconds|number|s|mean time of a call
n|count||timed calls|calls
p90_low|number|s|lower limit of p90, 95 %
p90_high|number|s|upper limit of p90, 95 %
p99_low|number|s|lower limit of p99, 95 %
p99_high|number|s|upper limit of p99, 95 %
effective_n|number||effective sample size: how many independent calls these are worth|effective sample size
""")


@family.drawn("p50_from|text||`undisturbed` blocks, or `all`|p50 from blocks")
def _p50_from(row: CaseRow) -> Cell:
    latency = row.record.latency
    if latency is None or not latency.p50_from:
        return Cell()
    if latency.p50_from == "all" or latency.p50_all_seconds is None:
        return Cell(text=latency.p50_from)
    return Cell(text="undisturbed", limits=f"(of all: {formatting.duration(latency.p50_all_seconds)})")


family.list("""
p50_all_seconds|number|s|median of all calls
[speedup.]
baseline|text||the fp32 on the same runtime that the case is compared with
""")


@family.drawn(
    "value|number|ratio|its time over the case's; above 1 is faster|times its own fp32",
    key="speedup",
    note="compared",
    hint="how many times as fast as fp32 on the same runtime (like for like)",
)
def _speedup(row: CaseRow) -> Cell:
    speedup = row.record.speedup
    if speedup is None:
        return Cell()
    processes = f"{speedup.processes} process{'' if speedup.processes == 1 else 'es'}"
    return ratio_cell(row.record, speedup, hint=f"against {speedup.baseline}, {speedup.protocol}, {processes}")


family.list("""
low|number|ratio|lower limit at `speedup.level`
high|number|ratio|upper limit at `speedup.level`
level|number|0 to 1|level of the limits
processes|count||processes that were measured
""")


@family.drawn(
    "control.value|number|ratio|noise check (fp32 against fp32): 1 in truth|noise check",
    key="control",
    note="noise check",
    hint="fp32 against fp32 (A/A): a second copy of the baseline, measured alike; the true answer is 1",
)
def _control(row: CaseRow) -> Cell:
    control = row.record.speedup.control if row.record.speedup else None
    if control is None or control.low is None or control.high is None or control.low <= 1 <= control.high:
        return interval_cell(control)
    return replace(interval_cell(control), tone="unsure", hint="1 is outside: biased by noise")


family.list("""
control.low|number|ratio|its lower limit
control.high|number|ratio|its upper limit
protocol|text||paired or sequential
stopped|text||what ended the measurement
steady|flag||whether later processes agree with earlier ones|steady
measured_seconds|number|s|what the case's blocks took
[speedup_fastest.]
baseline|text||the fastest fp32 of the setting
value|number|ratio|its time over the case's; above 1 is faster
low|number|ratio|its lower limit, 95 %
high|number|ratio|its upper limit, 95 %
[sequential.]
""")


@family.drawn(
    "mean_seconds|number|s|mean by the literature's protocol, in a process of its own|sequential mean",
)
def _sequential(row: CaseRow) -> Cell:
    sequential = row.record.sequential
    if sequential is None:
        return Cell()
    return Cell(text=formatting.duration(sequential.mean_seconds), limits=f"(n = {sequential.n})")


family.list("""
n|count||its calls
speedup|number|ratio|the baseline's mean over it; without an interval|sequential speed-up
[interference.]
blocks|count||blocks of calls
involuntary_switches|count||involuntary context switches in them|involuntary context switches
page_faults|count||page faults in them|page faults
shared|number|0 to 1|share of the time that something else used the core|core busy with other work
undisturbed_blocks|count||blocks in which nothing else did
calm_seconds|number|s|what the canary takes on a core of its own
off_core|number|0 to 1|share of the time that other processes of the machine had the core
[]
throughput_per_second|number|1/s|examples a second|examples a second
[cold_start.]
load_seconds|number|s|loading the artifact in a fresh process|load
first_call_seconds|number|s|the first call|first call
next_calls_seconds|number|s|median of calls 2 to 5|calls 2 to 5
processes|count||fresh processes
load_low|number|s|lower limit of the loading time, 95 %
load_high|number|s|upper limit of the loading time, 95 %
first_call_low|number|s|lower limit of the first call, 95 %
first_call_high|number|s|upper limit of the first call, 95 %
[memory.]
loaded_rss_bytes|count|bytes|resident set of the process after loading|memory, loaded
peak_rss_bytes|count|bytes|its peak|memory, peak
""")


# --- behind the accuracy in results.csv -----------------------------------------------------------------------------


def _rate(row: CaseRow) -> float | None:
    roofline, typical = row.record.roofline, cases.p50(row.record)
    return None if roofline is None or not roofline.macs or not typical else 2 * roofline.macs / typical


def _peak(row: CaseRow) -> float | None:
    rate, roofline = _rate(row), row.record.roofline
    return rate / roofline.peak_fraction if rate and roofline and roofline.peak_fraction else None


roofline = Family()

roofline.list("""
[roofline.]
macs|count||multiply-accumulates of one call
""")


@roofline.drawn(
    "peak_fraction|number||share of this core's measured peak: of fp32 for fp32, of int8 for the others"
    "|of this core's peak",
)
def _peak_fraction(row: CaseRow) -> Cell:
    return Cell(text=above_peak.describe(row.record) or formatting.DASH)


roofline.list(
    """
peak_shared|flag||something else used the core while the peak was measured: the share is too high
operations_per_second|number|1/s|two for each multiply-accumulate
peak_per_second|number|1/s|the peak that `peak_fraction` is a share of, all threads together
[]
samples|text||file of every timed call, in the run's folder
predictions|text||file of every output
layers|text||file of the numbers of each layer
started|text||when the case was begun, UTC
""",
    {"operations_per_second": _rate, "peak_per_second": _peak},
)
