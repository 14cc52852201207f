"""Blocks of two cases that ran in the same round are held against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qbench.machine.process_spread import RUN_SPREAD
from qbench.measure import core_time
from qbench.measure.pairing import (
    SHARED_ALIKE,
    SHARED_SPREAD,
    BlockMinimum,
    find_minima,
    list_minima,
    pair_blocks,
    pair_samples,
)
from qbench.measure.samples import BlockTiming, Samples

CALM, SHARED = True, False


def make_samples(blocks: list[list[int]], process: list[int], rounds: list[int]) -> Samples:
    return Samples(
        protocol="race",
        stopped="fixed",
        calls_ns=np.concatenate([np.asarray(block) for block in blocks]),
        block=np.repeat(np.arange(len(blocks)), [len(block) for block in blocks]),
        process=np.asarray(process),
        round=np.asarray(rounds),
    )


def minima_of(
    *states: bool | None, nanoseconds: float = 100.0, away: float = 0.0
) -> dict[tuple[int, int], BlockMinimum]:
    """One generation: a block a round. On a shared core the blocks take twice as long."""
    return {
        (0, number): BlockMinimum(nanoseconds=nanoseconds * (2 if calm is False else 1), away=away, calm=calm)
        for number, calm in enumerate(states)
    }


def test_only_blocks_of_the_same_round_and_process_are_paired() -> None:
    """Each round that both ran in gives the log ratio of the two block minima; a round of one alone gives none."""
    fast = make_samples([[30, 20], [40, 50], [10, 11]], [0, 0, 1], [0, 1, 0])
    slow = make_samples([[40, 60], [90, 80], [20, 25]], [0, 0, 1], [0, 2, 0])
    blocks = pair_samples(fast, slow)
    assert {process: ratios.tolist() for process, ratios in blocks.log_ratios.items()} == {
        0: [math.log(20 / 40)],
        1: [math.log(10 / 20)],
    }
    assert blocks.unseen == RUN_SPREAD


def test_samples_without_rounds_are_not_paired() -> None:
    """Runs of older versions do not know which blocks ran beside each other."""
    with_rounds = make_samples([[30, 20]], [0], [0])
    without = make_samples([[30, 20]], [0], [])
    assert pair_samples(with_rounds, without).log_ratios == {}
    assert pair_samples(without, with_rounds).log_ratios == {}


def test_a_call_below_the_clocks_resolution_counts_as_one_nanosecond() -> None:
    """A block minimum of 0 ns has a ratio."""
    blocks = pair_samples(make_samples([[0]], [0], [0]), make_samples([[10]], [0], [0]))
    assert blocks.log_ratios[0].tolist() == [math.log(1 / 10)]


def test_rounds_in_which_the_host_took_part_of_the_core_are_left_out_where_there_are_others() -> None:
    """A neighbour slows int8 more than fp32: three rounds in which neither block was disturbed are the comparison."""
    case, other = minima_of(CALM, SHARED, CALM, CALM, SHARED), minima_of(CALM, CALM, CALM, CALM, SHARED, nanoseconds=50)
    blocks = pair_blocks(case, other)
    assert blocks.log_ratios[0] == pytest.approx([math.log(2)] * 3)
    assert blocks.unseen == RUN_SPREAD


@pytest.mark.parametrize("states", [(SHARED,) * 5, (CALM, CALM, SHARED, SHARED)])
def test_a_comparison_on_a_shared_core_alone_is_less_certain(states: tuple[bool, ...]) -> None:
    """What the ratio would be on a core of its own is known to 5 % at best: one or two lucky readings tell nothing."""
    blocks = pair_blocks(minima_of(*states), minima_of(*states))
    assert len(blocks.log_ratios[0]) == len(states)
    assert blocks.unseen == math.hypot(SHARED_SPREAD, RUN_SPREAD)
    assert pair_blocks(minima_of(*states), minima_of(*states), alike=True).unseen == SHARED_ALIKE


def make_generations(*states: tuple[bool, ...]) -> dict[tuple[int, int], BlockMinimum]:
    """A generation for each, with a block a round."""
    return {
        (process, number): BlockMinimum(nanoseconds=100.0, calm=calm)
        for process, rounds in enumerate(states)
        for number, calm in enumerate(rounds)
    }


def test_a_generation_with_a_single_undisturbed_round_is_no_sample_of_it() -> None:
    """The median of one block would stand for a process."""
    case = make_generations(*[(CALM, CALM, SHARED)] * 3, (CALM, SHARED, SHARED))
    assert list(pair_blocks(case, case).log_ratios) == [0, 1, 2]


def test_undisturbed_rounds_of_two_generations_of_many_do_not_show_how_processes_differ() -> None:
    """All rounds count then, with what a shared core makes uncertain; of two generations in all, two are enough."""
    calm, shared = (CALM, CALM, CALM), (SHARED, SHARED, SHARED)
    case = make_generations(calm, calm, shared, shared)
    assert list(pair_blocks(case, case).log_ratios) == [0, 1, 2, 3]
    assert pair_blocks(case, case).unseen > SHARED_SPREAD
    assert pair_blocks(make_generations(calm, calm), make_generations(calm, calm)).unseen == RUN_SPREAD


def test_where_nobody_read_the_canary_all_rounds_count() -> None:
    """No state is known, so none is left out, and nothing is widened."""
    blocks = pair_blocks(minima_of(None, None), minima_of(None, None))
    assert (len(blocks.log_ratios[0]), blocks.unseen) == (2, RUN_SPREAD)


def test_calls_that_were_cut_are_less_certain_by_the_share_that_others_took() -> None:
    """By the larger share of the two; half of the calls cut is half as much."""
    half = minima_of(None, away=0.5) | {(0, 1): BlockMinimum(nanoseconds=100.0)}
    assert pair_blocks(minima_of(None, away=0.5), minima_of(None)).unseen == pytest.approx(
        math.hypot(core_time.CUT_SPREAD * 0.5, RUN_SPREAD)
    )
    assert pair_blocks(minima_of(None, None), half).unseen == pytest.approx(
        math.hypot(core_time.CUT_SPREAD * 0.25, RUN_SPREAD)
    )


def test_the_fastest_call_is_that_which_needed_least() -> None:
    """A call that was cut counts with its processor time; one that was not, with what it took."""
    cut = BlockTiming(calls_ns=np.asarray([400_000, 250_000]), processor_ns=np.asarray([100_000, 240_000]))
    alone = BlockTiming(calls_ns=np.asarray([400_000, 90_000]), processor_ns=np.asarray([100_000, 95_000]))
    minima = find_minima([(0, 0), (0, 1)], [cut, alone])
    assert minima[0, 0] == BlockMinimum(nanoseconds=100_000.0, away=0.75)
    assert minima[0, 1] == BlockMinimum(nanoseconds=90_000.0, away=0.0)


def test_a_block_is_calm_where_both_readings_of_the_canary_are() -> None:
    """Against the level that is known; without one nothing is."""
    readings = [(100, 124), (100, 125), (125, 100)]
    timings = [BlockTiming(calls_ns=np.asarray([5]), canary_ns=pair) for pair in readings]
    keys = [(0, number) for number in range(3)]
    assert [block.calm for block in find_minima(keys, timings, 100.0).values()] == [True, False, False]
    assert [block.calm for block in find_minima(keys, timings).values()] == [None] * 3


def test_stored_samples_give_the_minima_of_their_blocks() -> None:
    """Whatever was read beside the calls is held against the block that it belongs to."""
    samples = Samples(
        protocol="race",
        stopped="left",
        calls_ns=np.asarray([400_000, 90, 300_000]),
        processor_ns=np.asarray([100_000, -1, 300_000]),
        block=np.asarray([0, 1, 2]),
        process=np.asarray([0, 0, 1]),
        round=np.asarray([0, 1, 0]),
        canary_ns=np.asarray([(10, 10), (10, 30), (10, 10)]),
    )
    assert list_minima(samples, 10.0) == {
        (0, 0): BlockMinimum(nanoseconds=100_000.0, away=0.75, calm=True),
        (0, 1): BlockMinimum(nanoseconds=90.0, calm=False),
        (1, 0): BlockMinimum(nanoseconds=300_000.0, calm=True),
    }


def test_what_no_block_shows_is_as_it_was_measured() -> None:
    """0.8 % from run to run; on a shared core 5 % between fp32 and int8 and 2 % between two of a kind; 8 % for a call
    that others had all the while."""
    apart, shared = minima_of(None), minima_of(SHARED)
    assert pair_blocks(apart, apart).unseen == 0.008
    assert pair_blocks(shared, shared).unseen == math.hypot(0.05, 0.008)
    assert pair_blocks(shared, shared, alike=True).unseen == 0.02
    assert pair_blocks(minima_of(None, away=1.0), apart, alike=True).unseen == 0.08
