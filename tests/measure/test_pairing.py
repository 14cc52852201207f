"""Blocks of two cases that ran in the same round are held against each other."""

from __future__ import annotations

import math

import numpy as np

from qbench.measure.pairing import pair_blocks
from qbench.measure.samples import Samples


def make_samples(blocks: list[list[int]], process: list[int], rounds: list[int]) -> Samples:
    return Samples(
        protocol="race",
        stopped="fixed",
        calls_ns=np.concatenate([np.asarray(block) for block in blocks]),
        block=np.repeat(np.arange(len(blocks)), [len(block) for block in blocks]),
        process=np.asarray(process),
        round=np.asarray(rounds),
    )


def test_only_blocks_of_the_same_round_and_process_are_paired():
    """Each round that both ran in gives the log ratio of the two block minima; a round of one alone gives none."""
    fast = make_samples([[30, 20], [40, 50], [10, 11]], [0, 0, 1], [0, 1, 0])
    slow = make_samples([[40, 60], [90, 80], [20, 25]], [0, 0, 1], [0, 2, 0])
    log_ratios = pair_blocks(fast, slow)
    assert list(log_ratios) == [0, 1]
    assert log_ratios[0].tolist() == [math.log(20 / 40)]
    assert log_ratios[1].tolist() == [math.log(10 / 20)]


def test_samples_without_rounds_are_not_paired():
    """Runs of older versions do not know which blocks ran beside each other."""
    with_rounds = make_samples([[30, 20]], [0], [0])
    without = make_samples([[30, 20]], [0], [])
    assert pair_blocks(with_rounds, without) == {}
    assert pair_blocks(without, with_rounds) == {}


def test_a_call_below_the_clocks_resolution_counts_as_one_nanosecond():
    """A block minimum of 0 ns has a ratio."""
    assert pair_blocks(make_samples([[0]], [0], [0]), make_samples([[10]], [0], [0]))[0].tolist() == [math.log(1 / 10)]
