"""Samples to figures: what n supports is given, what it does not is null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.measure import estimates, samples
from qbench.measure.samples import Samples


def of(calls=(), ratios=(), control=(), process=None, protocol="paired"):
    ratios = np.asarray(ratios, dtype=float)
    return Samples(
        protocol=protocol,
        stopped="precision",
        calls_ns=np.asarray(calls, dtype=np.int64),
        log_ratios=ratios,
        process=np.zeros(len(ratios), dtype=np.int64) if process is None else np.asarray(process),
        control_log_ratios=np.asarray(control, dtype=float),
        control_process=np.zeros(len(control), dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("n", "known"), [(0, ()), (5, ()), (6, ("p50",)), (36, ("p50", "p90")), (368, ("p50", "p90", "p99"))]
)
def test_percentiles_appear_where_n_supports_them(n, known):
    """Two-sided 95 %: 6 independent calls for p50, 36 for p90, 368 for p99; below that null, never 0. Calls that
    alternate are worth all of them."""
    latency = estimates.latency(of([1000, 2000] * (n // 2) + [1000] * (n % 2)))
    supported = tuple(name for name in ("p50", "p90", "p99") if getattr(latency, f"{name}_seconds") is not None)
    assert supported == known
    assert latency.n == n
    assert (latency.mean_seconds is None) == (n == 0)


def test_seconds_are_seconds():
    """Nanoseconds in, seconds out."""
    latency = estimates.latency(of([2_000_000] * 40))
    assert latency.p50_seconds == pytest.approx(2e-3)
    assert latency.mean_seconds == pytest.approx(2e-3)


def test_calls_of_unknown_processes_are_one_group():
    """Samples that name the processes of their ratios, not the blocks of their calls."""
    calls = [1000, 1010] * 20
    assert estimates.latency(of(calls, [0.1, 0.2, 0.3], process=[0, 1, 2])) == estimates.latency(of(calls))


def test_p50_over_processes_shows_their_spread():
    """Three processes at 1.00, 1.03 and 0.97 ms: the calls within each are equal, the limits still differ, and more
    where the other cases of the setting differ as much."""
    calls = np.repeat([1_000_000, 1_030_000, 970_000], 60)
    several = Samples(
        protocol="paired", stopped="precision", calls_ns=calls, block=np.repeat([0, 1, 2], 60), process=np.arange(3)
    )
    latency = estimates.latency(several)
    assert latency.p50_seconds == pytest.approx(1e-3)
    assert latency.p50_low < 0.965e-3
    assert latency.p50_high > 1.035e-3
    beside_others = estimates.latency(several, spreads=estimates.pool_spreads([several] * 8))
    assert beside_others.p50_low < latency.p50_low * 0.995
    assert beside_others.p50_high > latency.p50_high * 1.005


def drifting(n, lasts):
    """Calls of two host states, each of which lasts so many calls, with some noise of their own."""
    random = np.random.default_rng(0)
    states = np.where(np.arange(n) // lasts % 2, 1_450_000, 1_000_000)
    return (states * np.exp(0.03 * random.standard_normal(n))).astype(np.int64)


def test_calls_that_hang_together_support_no_percentile_of_the_tail():
    """4,000 calls in host states of 100 calls are worth some 20 to 100: no p99, whatever n says; independent ones give
    it. 36 independent calls are taken for p90, 368 for p99."""
    hanging, free = (estimates.latency(of(drifting(4000, lasts))) for lasts in (100, 1))
    assert hanging.effective_n < 368
    assert (hanging.p99_seconds, hanging.p99_low, hanging.p99_high) == (None, None, None)
    assert free.p99_seconds is not None
    few = estimates.latency(of(drifting(600, 100)))
    assert few.effective_n < 36
    assert few.p90_seconds is None


def test_the_median_of_one_process_without_six_independent_calls_has_no_limits():
    """Two host states in 200 calls: the value stands, an interval would be made up."""
    latency = estimates.latency(of(drifting(200, 100)))
    assert latency.effective_n < 6
    assert latency.p50_seconds is not None
    assert (latency.p50_low, latency.p50_high) == (None, None)


@pytest.mark.parametrize("processes", [1, 3, 9])
def test_a_percentile_and_its_limits_have_one_centre(processes):
    """The value is the percentile of all calls and lies within its limits, also where processes of unlike length
    differ: the mean of their medians is another number."""
    random = np.random.default_rng(1)
    lengths = [600 + 200 * number for number in range(processes)]
    calls = [1e6 * (1 + 0.03 * number) * np.exp(0.02 * random.standard_normal(n)) for number, n in enumerate(lengths)]
    blocks = [np.repeat(np.arange(n // 20), 20) for n in lengths]
    offset = np.cumsum([0, *(n // 20 for n in lengths)])
    several = Samples(
        protocol="paired",
        stopped="precision",
        calls_ns=np.concatenate(calls).astype(np.int64),
        block=np.concatenate([block + offset[number] for number, block in enumerate(blocks)]),
        process=np.repeat(np.arange(processes), [n // 20 for n in lengths]),
    )
    latency = estimates.latency(several)
    seconds = several.calls_ns / 1e9
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = getattr(latency, f"{name}_seconds")
        if value is not None:
            assert value == pytest.approx(np.quantile(seconds, q))
            assert getattr(latency, f"{name}_low") <= value <= getattr(latency, f"{name}_high")


def test_sequential_has_a_value_and_no_interval():
    """Means of two separate series say nothing of their own error."""
    speedup = estimates.speedup(of([100] * 9, protocol="sequential"), "base", of([250] * 9, protocol="sequential"))
    assert (speedup.value, speedup.low, speedup.high, speedup.control) == (2.5, None, None, None)


def test_nothing_measured_is_null():
    """Neither ratios nor calls: no speed-up."""
    assert estimates.speedup(of(), "base", of()) is None


def test_a_shift_between_first_and_last_third_is_not_steady():
    """A series that jumps is found; a stationary one is not accused; a short one is not judged."""
    noise = np.tile([-0.002, 0.0, 0.002], 10)

    def is_steady(log_ratios):
        rounds = np.arange(len(log_ratios))
        own, base = (
            replace(
                of(np.round(1e9 * np.exp(part)), process=np.zeros(len(part), dtype=np.int64)),
                block=rounds,
                round=rounds,
            )
            for part in (log_ratios, np.zeros(len(log_ratios)))
        )
        return estimates.speedup(own, "base", base).steady

    assert is_steady(noise) is True
    assert is_steady(noise + np.repeat([0.0, 0.0, 0.1], 10)) is False
    assert is_steady(noise[:12]) is None


@given(st.lists(st.integers(1, 10**12), max_size=50), st.lists(st.floats(-3, 3), max_size=30))
def test_samples_survive_the_disk(calls, ratios):
    """What is saved is what is read, empty arrays included."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.npz"
        saved = of(calls, ratios)
        samples.save(path, saved)
        back = samples.load(path)
    assert back.protocol == "paired"
    assert back.calls_ns.tolist() == saved.calls_ns.tolist()
    assert back.log_ratios.tolist() == saved.log_ratios.tolist()


def test_readings_of_the_canary_survive_the_disk(tmp_path):
    """One row a block; a block without readings leaves none, and so does a file from before there was a canary."""
    rows = [(5600, 5700), (9000, 5600)]
    kept = Samples(protocol="paired", stopped="precision", block=np.arange(2), canary_ns=samples.canary_rows(rows))
    samples.save(tmp_path / "new.npz", kept)
    assert samples.list_canary(samples.load(tmp_path / "new.npz")) == rows
    assert samples.canary_rows([*rows, None]).shape == (0, 2)
    with np.load(tmp_path / "new.npz") as archive:
        np.savez(tmp_path / "old.npz", **{name: archive[name] for name in archive if name != "canary_ns"})
    assert samples.list_canary(samples.load(tmp_path / "old.npz")) == [None, None]


def facts(load, first):
    from qbench.measure.worker import WorkerFacts

    return WorkerFacts(
        load_seconds=load,
        first_call_seconds=first,
        next_calls_seconds=(first / 2, first / 4, first / 4, first / 4),
        loaded_rss_bytes=1,
        observed={},
    )


def test_cold_start_is_a_median_over_processes():
    """Six processes support 95 % limits, which are then the smallest and the largest; fewer support none."""
    cold_start = estimates.cold_start([facts(i / 100, i / 10) for i in range(1, 7)])
    assert (cold_start.load_seconds, cold_start.processes) == (pytest.approx(0.035), 6)
    assert (cold_start.load_low, cold_start.load_high) == (0.01, 0.06)
    assert (cold_start.first_call_low, cold_start.first_call_seconds, cold_start.first_call_high) == (
        0.1,
        pytest.approx(0.35),
        0.6,
    )
    assert cold_start.next_calls_seconds < cold_start.first_call_seconds
    few = estimates.cold_start([facts(0.1, 0.2)])
    assert (few.load_low, few.first_call_high, few.processes) == (None, None, 1)
    assert estimates.cold_start([]) is None
    older = estimates.cold_start([replace(facts(0.1, 0.2), next_calls_seconds=())])
    assert (older.next_calls_seconds, older.first_call_seconds) == (None, 0.2)


def raced(*medians, rounds=7, control=()):
    """Samples of a race: the block minima of each process lie about its median (nanoseconds), with rounds of its own
    jitter, the same for every case."""
    jitter = np.tile([0.99, 1.0, 1.01], rounds)[:rounds]
    return Samples(
        protocol="paired",
        stopped="tied",
        calls_ns=np.concatenate([np.round(median * jitter) for median in medians]).astype(np.int64),
        block=np.arange(rounds * len(medians)),
        process=np.repeat(np.arange(len(medians)), rounds),
        round=np.tile(np.arange(rounds), len(medians)),
        control_log_ratios=np.repeat(control, rounds),
        control_process=np.repeat(np.arange(len(control)), rounds),
    )


def test_the_speedup_of_a_race_comes_from_blocks_of_one_round():
    """What a whole generation does to both cancels: processes 30 % apart, a ratio that holds to 1 %."""
    base, own = raced(1e6, 1.3e6, 0.9e6, 1e6), raced(5e5, 6.5e5, 4.55e5, 5.02e5, control=[0.0, 0.001, -0.001, 0.0])
    speedup = estimates.speedup(own, "base", base)
    assert speedup.value == pytest.approx(1.99, rel=0.01)
    assert speedup.high - speedup.low < 0.08  # the next run's may differ by 1.6 %
    assert (speedup.processes, speedup.stopped, speedup.steady) == (4, "tied", True)
    assert speedup.control.value == pytest.approx(1.0)


def test_a_screened_case_has_wide_limits():
    """One process: what is known of processes in general is in its limits, about 5 % to either side, never none."""
    speedup = estimates.speedup(raced(5e5), "base", raced(1e6))
    assert speedup.processes == 1
    assert 0.04 < 1 - speedup.low / speedup.value < 0.08
    assert speedup.control is None
    assert estimates.speedup(raced(5e5), "base", None) is None


def test_the_speedup_over_the_fastest_fp32_is_paired_too():
    """From rounds that both ran in, never from two speed-ups as if they were independent; of the fastest itself 1."""
    own, fastest = raced(5e5, 6.5e5, 4.5e5), raced(8e5, 10.4e5, 7.2e5)
    over = estimates.over_fastest(own, "fast", fastest)
    assert (over.baseline, over.value) == ("fast", pytest.approx(1.6, rel=1e-3))
    assert over.high - over.low < 0.06
    itself = estimates.over_fastest(fastest, "fast", fastest)
    assert (itself.low, itself.value, itself.high) == pytest.approx((0.984, 1, 1.016), abs=1e-3)
    assert estimates.over_fastest(of([100] * 9, protocol="sequential"), "fast", fastest) is None


def test_the_literatures_figures_stand_beside():
    """Mean and ratio of means, without an interval."""
    sequential = estimates.sequential(of([200] * 10), of([500] * 10))
    assert (sequential.mean_seconds, sequential.n, sequential.speedup) == (2e-7, 10, 2.5)
    assert estimates.sequential(of(), None) is None
    for nothing in (None, of()):
        assert estimates.sequential(of([200] * 10), nothing).speedup is None


def test_interference_is_the_sum_over_blocks():
    """Totals; null where the system told nothing."""
    two_blocks = Samples(
        protocol="paired",
        stopped="precision",
        calls_ns=np.ones(4, np.int64),
        block=np.asarray([0, 0, 1, 1]),
        involuntary=np.asarray([2, 3]),
    )
    interference = estimates.interference(two_blocks)
    assert (interference.blocks, interference.involuntary_switches, interference.page_faults) == (2, 5, None)
    assert interference.off_core is None
    assert estimates.interference(of()) is None


def test_how_much_the_host_disturbed_is_told_by_the_canary_alone():
    """Of blocks and readings; what it takes on this core alone says nothing of blocks beside which nobody read it."""
    blocks = replace(of([100] * 4), block=np.asarray([0, 0, 1, 1]))
    bare = estimates.interference(blocks, 10.0)
    assert (bare.blocks, bare.shared, bare.undisturbed_blocks, bare.calm_seconds) == (2, None, None, None)
    read = estimates.interference(replace(blocks, canary_ns=np.asarray([[10, 10], [10, 30]])), 10.0)
    assert (read.shared, read.undisturbed_blocks, read.calm_seconds) == (0.25, 1, 1e-8)


def test_time_without_the_core_is_that_of_all_blocks():
    """A long block counts for as much as it took; nothing where one block has no share."""
    blocks = Samples(
        protocol="paired",
        stopped="precision",
        calls_ns=np.asarray([300, 300, 100, 100]),
        block=np.asarray([0, 0, 1, 1]),
        off_core=np.asarray([0.8, 0.0]),
    )
    assert estimates.interference(blocks).off_core == pytest.approx(0.6)
    assert estimates.interference(replace(blocks, off_core=np.asarray([0.8]))).off_core is None


def test_a_block_that_took_no_time_has_no_share_without_the_core():
    """Below the clock's resolution."""
    nothing = replace(of([0, 0]), block=np.asarray([0, 1]), off_core=np.asarray([0.5, 0.5]))
    assert estimates.average_off_core(nothing) is None


def test_a_case_that_was_never_timed_says_nothing_of_processes():
    """The others of its setting do."""
    several = raced(1e6, 1.03e6, 0.97e6)
    assert estimates.pool_spreads([several, of()]) == estimates.pool_spreads([several])
    assert estimates.pool_spreads([of()])["all", 0.5] == estimates.KNOWN


@pytest.mark.parametrize(("seconds", "told"), [(float("nan"), None), (1.5, 1.5)])
def test_a_speedup_tells_how_long_its_rounds_took(seconds, told):
    """Where that is known."""
    own = replace(raced(5e5, 5e5, 5e5), seconds=seconds)
    assert estimates.speedup(own, "base", raced(1e6, 1e6, 1e6)).measured_seconds == told
