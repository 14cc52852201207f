"""qbench.measure.undisturbed_blocks: which blocks ran on a core of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.machine.canary import calm_level, share_disturbed
from qbench.measure import estimates, undisturbed_blocks
from qbench.measure.samples import Samples

CALM = 5600


def samples_of(
    shared: list[bool], *, process: list[int] | None = None, slower: float = 1.6, calls: int = 20
) -> Samples:
    """One block for each entry: 140 us a call on a core of its own, ``slower`` times that where it is shared."""
    rng = np.random.default_rng(0)
    state = np.asarray(shared, dtype=bool)
    own = np.where(state, 140e3 * slower, 140e3)
    calls_ns = np.repeat(own, calls) * rng.normal(1, 0.005, len(state) * calls)
    readings = np.where(state, 1.5, 1.0)[:, None] * CALM * rng.uniform(1.0, 1.06, (len(state), 2))
    return Samples(
        protocol="paired",
        stopped="precision",
        calls_ns=calls_ns.astype(np.int64),
        block=np.repeat(np.arange(len(state)), calls),
        process=np.asarray(process if process is not None else [0] * len(state), dtype=np.int64),
        canary_ns=readings.astype(np.int64),
    )


def readings_of(*pairs: tuple[int, int]) -> np.ndarray:
    return np.asarray(pairs, dtype=np.int64)


def test_a_block_is_undisturbed_where_both_readings_are_calm() -> None:
    """A neighbour that came or went inside a block shows in one of its two readings."""
    rows = readings_of((5600, 5700), (5600, 9000), (9000, 5600), (9000, 9100))
    assert undisturbed_blocks.find_undisturbed(rows, CALM).tolist() == [True, False, False, False]
    assert share_disturbed(rows, CALM) == 0.5


@given(st.lists(st.floats(1.0, 1.2), min_size=2, max_size=200).filter(lambda values: len(values) % 2 == 0))
def test_a_machine_that_nobody_shares_is_never_called_disturbed(spread: list[float]) -> None:
    """Readings that lie within a fifth of each other are one state."""
    rows = (np.asarray(spread) * CALM).astype(np.int64).reshape(-1, 2)
    level = calm_level(rows)
    assert level is not None
    assert undisturbed_blocks.find_undisturbed(rows, level).all()
    assert share_disturbed(rows, level) == 0.0


def test_a_run_that_is_disturbed_throughout_is_seen_against_what_is_known() -> None:
    """All readings 1.5 times the level that the machine is known for: no block is undisturbed; without that
    knowledge they are one state, and no more can be said."""
    disturbed = samples_of([True] * 40)
    known = calm_level(disturbed.canary_ns, CALM)
    assert known == CALM
    assert share_disturbed(disturbed.canary_ns, known) == 1.0
    assert undisturbed_blocks.select_calls(disturbed, CALM) is None
    alone = calm_level(disturbed.canary_ns)
    assert alone is not None
    assert share_disturbed(disturbed.canary_ns, alone) == 0.0


def test_cases_measured_together_are_held_against_one_level() -> None:
    """A case with six blocks, all disturbed, is seen to be so where another one had the core for itself."""
    disturbed, calm = samples_of([True] * 6), samples_of([False] * 6)
    level = undisturbed_blocks.lowest_level([disturbed.canary_ns, calm.canary_ns])
    assert level == undisturbed_blocks.lowest_level([calm.canary_ns, disturbed.canary_ns]) == calm_level(calm.canary_ns)
    assert estimates.latency(disturbed, level).p50_from == "all"
    assert estimates.latency(calm, level).p50_from == "undisturbed"
    assert undisturbed_blocks.lowest_level([], 5.0) == 5.0
    assert undisturbed_blocks.lowest_level([]) is None


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_p50_is_that_of_the_undisturbed_blocks(share: float) -> None:
    """However much of the time the core is shared, p50 is what a call takes on a core of its own, and says so; p90
    stays that of all calls, since that is what the host gave."""
    shared = (np.arange(100) % 10 < 10 * share).tolist()
    latency = estimates.latency(samples_of(shared, process=sorted([0, 1] * 50)))
    assert latency.p50_from == "undisturbed"
    assert latency.p50_seconds == pytest.approx(140e-6, rel=0.005)
    assert latency.p50_low <= 140e-6 <= latency.p50_high
    assert latency.p50_all_seconds == pytest.approx(140e-6 * (1.6 if share > 0.5 else 1.0), rel=0.01)
    assert latency.n == 2000
    if share >= 0.3 and latency.p90_seconds is not None:
        assert latency.p90_seconds == pytest.approx(224e-6, rel=0.02)


def test_p50_is_that_of_all_blocks_where_too_few_are_undisturbed() -> None:
    """Two undisturbed blocks are too few."""
    few = estimates.latency(samples_of([True] * 18 + [False] * 2))
    assert (few.p50_from, few.p50_seconds) == ("all", few.p50_all_seconds)


def test_where_one_process_was_undisturbed_the_limits_allow_for_the_others() -> None:
    """p50 is that of its blocks, whether others ran or not; how processes differ is what is known of them (1.5 %)."""
    shared = [False] * 10 + [True] * 20
    of_one, of_several = (
        estimates.latency(samples_of(shared, process=process)) for process in ([0] * 30, sorted([0, 1, 2] * 10))
    )
    assert of_several.p50_from == of_one.p50_from == "undisturbed"
    assert of_several.p50_seconds == of_one.p50_seconds == pytest.approx(140e-6, rel=0.005)
    for latency in (of_one, of_several):
        assert latency.p50_low < 140e-6 * 0.97
        assert latency.p50_high > 140e-6 * 1.03


def test_a_series_that_is_short_but_undisturbed_is_that_of_undisturbed_blocks() -> None:
    """The sequential protocol has a single block: where both of its readings are calm, nothing was left out."""
    assert estimates.latency(samples_of([False], calls=100)).p50_from == "undisturbed"
    assert estimates.latency(samples_of([True], calls=100), CALM).p50_from == "all"


def test_what_was_not_read_is_null() -> None:
    """Samples from before there was a canary: p50 is that of all calls, and how much was shared is not known."""
    old = samples_of([False, True] * 10)
    old = Samples(protocol="paired", stopped="precision", calls_ns=old.calls_ns, block=old.block, process=old.process)
    latency, interference = estimates.latency(old), estimates.interference(old)
    assert (latency.p50_from, latency.p50_all_seconds) == (None, None)
    assert latency.p50_seconds is not None
    assert interference is not None
    assert (interference.shared, interference.undisturbed_blocks, interference.calm_seconds) == (None, None, None)


def test_how_much_was_shared_is_recorded() -> None:
    """The share of readings, the undisturbed blocks, and the level that the readings were held against."""
    interference = estimates.interference(samples_of([False] * 15 + [True] * 5))
    assert interference is not None
    assert (interference.blocks, interference.undisturbed_blocks, interference.shared) == (20, 15, 0.25)
    assert interference.calm_seconds == pytest.approx(CALM * 1e-9, rel=0.06)


def test_blocks_without_a_reading_each_are_not_known_to_be_undisturbed() -> None:
    """Nor is what has no block; with a row for each they are."""
    calm = samples_of([False] * 6)
    chosen = undisturbed_blocks.select_calls(calm, CALM)
    assert chosen is not None
    assert chosen.all()
    assert undisturbed_blocks.select_calls(replace(calm, canary_ns=calm.canary_ns[:5]), CALM) is None
    assert undisturbed_blocks.select_calls(replace(calm, canary_ns=calm.canary_ns[:0]), CALM) is None
    assert undisturbed_blocks.select_calls(Samples(protocol="paired", stopped="precision"), CALM) is None


@pytest.mark.parametrize(
    ("shared", "kept"), [([True] * 4 + [False] * 2, 0), ([True] * 4 + [False] * 3, 60), ([False] * 2, 40)]
)
def test_three_undisturbed_blocks_are_enough_or_all(shared: list[bool], kept: int) -> None:
    """Of two blocks both."""
    chosen = undisturbed_blocks.select_calls(samples_of(shared), CALM)
    assert (0 if chosen is None else int(chosen.sum())) == kept
