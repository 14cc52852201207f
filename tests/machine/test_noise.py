"""qbench.machine.noise: a loop against itself, on a clock that does not pass by itself."""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.machine import fingerprint
from qbench.machine import noise as noise_module
from qbench.machine.noise import Noise, Reading, Watched, _size, decidable, judged, noise, watched
from qbench.process.child_process import Limits
from qbench.stats.interval_type import Interval


class Machine:
    """A clock that only work moves; every ``slow_every``-th call takes ``factor`` times as long, and arm 1 always
    ``bias`` times as long as arm 0."""

    def __init__(self, factor: float = 1.0, slow_every: int = 7, bias: float = 1.0) -> None:
        self.now = 0.0
        self.calls = 0
        self._factor = factor
        self._slow_every = slow_every
        self._bias = bias

    def clock(self) -> float:
        """Seconds of work so far."""
        return self.now

    def work(self, arm: int, size: int) -> None:
        """Moves the clock."""
        self.calls += 1
        slow = self.calls % self._slow_every == 0
        self.now += size * 1e-7 * (self._factor if slow else 1.0) * (self._bias if arm else 1.0)


def heard(machine: Machine, seconds: float = 1.0) -> Noise:
    return judged(watched(seconds, clock=machine.clock, work=machine.work, read=lambda: 5600), core=None)


def test_a_perfect_machine_has_no_noise() -> None:
    """Where every call takes the same time, the ratio is 1, nothing spreads, and a gate can be decided."""
    measured = heard(Machine())
    assert measured.ratio.value == pytest.approx(1.0, abs=1e-9)
    assert measured.pair_spread == pytest.approx(0.0, abs=1e-9)
    assert measured.call_spread == pytest.approx(0.0, abs=1e-9)
    assert measured.decidable


def test_it_watches_for_the_time_asked_and_its_calls_last_what_they_should() -> None:
    """One second holds 1 / (2 blocks x (2 cold + 8 kept) calls x 0.7 ms) pairs, give or take the last."""
    measured = heard(Machine())
    assert measured.seconds == pytest.approx(1.0, rel=0.02)
    assert measured.pairs == pytest.approx(1.0 / (20 * 0.0007), rel=0.02)


def test_rare_slow_calls_show_in_calls_but_not_in_pairs() -> None:
    """A block's minimum ignores a call that something else interrupted; a plain percentile does not."""
    measured = heard(Machine(factor=3.0))
    assert measured.pair_spread == pytest.approx(0.0, abs=1e-9)
    assert measured.call_spread == pytest.approx(2.0, rel=1e-6)
    assert measured.decidable


def test_slow_spells_show_in_pairs() -> None:
    """When whole blocks are slow, pairs spread, and the median stays near 1 since the order is drawn."""
    spells = Machine()
    original = spells.work

    def work(arm: int, size: int) -> None:
        original(arm, size)
        spells.now += size * 1e-7 * 0.5 * (spells.calls // 24 % 2)

    measured = judged(watched(2.0, clock=spells.clock, work=work), core=None)
    assert measured.pair_spread > 0.2
    assert measured.ratio.value == pytest.approx(1.0, rel=0.05)


def test_a_difference_of_the_arms_shows_in_the_ratio() -> None:
    """The ratio is arm 1 over arm 0 whichever came first, so a true difference cannot average out."""
    measured = heard(Machine(bias=1.04))
    assert measured.ratio.value == pytest.approx(1.04, rel=1e-6)
    assert not measured.decidable


def test_no_time_gives_six_pairs() -> None:
    """Six pairs are the least that a median's 95 % interval needs, so six there are, and limits with them."""
    measured = heard(Machine(), seconds=0.0)
    assert measured.pairs == 6
    assert measured.ratio.low is not None


@pytest.mark.parametrize(
    ("low", "high", "yes"),
    [
        (0.99, 1.01, True),
        (1 / 1.025, 1.025, True),
        (0.99, 1.026, False),
        (0.97, 1.01, False),
        (1.026, 1.03, False),
        (None, None, False),
        (None, 1.0, False),
        (1.0, None, False),
    ],
)
def test_a_gate_can_be_decided_where_the_control_lies_within_half_the_tolerance(
    low: float | None, high: float | None, yes: bool
) -> None:
    """The rule that a gate holds its own control to, symmetrical in the logarithm; no limits decide nothing."""
    assert decidable(Interval(value=1.0, low=low, high=high), 0.05) is yes


@given(st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=60))
def test_the_interval_holds_the_ratio(logs: list[float]) -> None:
    """Whatever the pairs say, the limits enclose the estimate, which is the exponential of their median."""
    measured = judged(Watched(log_ratios=tuple(logs), calls=(1.0, 1.0), seconds=1.0), core=None)
    assert measured.ratio.low is not None
    assert measured.ratio.high is not None
    assert measured.ratio.low <= measured.ratio.value * (1 + 1e-12)
    assert measured.ratio.value <= measured.ratio.high * (1 + 1e-12)
    assert min(logs) - 1e-9 <= math.log(measured.ratio.value) <= max(logs) + 1e-9


def test_each_arm_reads_a_buffer_of_its_own() -> None:
    """Reading finds nothing in either buffer, and the two are not one, so that a switch costs what it costs a case."""
    reading = Reading()
    assert [reading(arm, 2) for arm in (0, 1)] == [-1, -1]
    first, second = reading._buffers
    assert first is not second
    assert len(first) == len(second) == 256 * 1024, "both fit one core's own cache"


def test_the_real_loop_runs_pinned_in_a_child() -> None:
    """The test runs where a measured case would: on one core, which is read back, in a process of its own."""
    core = fingerprint.allowed_cores()[-1]
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    measured = noise(0.0, limits=Limits(seconds=60), core=core)
    assert measured.pairs == 6
    assert measured.seconds > 0
    if before is not None:
        assert measured.core == core
        assert os.sched_getaffinity(0) == before


def test_without_a_core_it_runs_unpinned_and_says_so() -> None:
    """A system that pins nothing still gets its noise; the core is null, unless there is only one."""
    measured = noise(0.0, limits=Limits(seconds=60), core=None)
    assert measured.core == fingerprint.pinned_core()


def test_what_the_host_did_is_heard() -> None:
    """Six of ten readings of the canary are half as long again: the host shared the core 60 % of the time. Where all
    are, only what the canary is known to take on the core alone shows it."""
    readings = itertools.cycle([5600, 9000, 8400, 8400, 5650, 8400, 5600, 8400, 5600, 8400])
    recorded = watched(0.99, clock=(machine := Machine()).clock, work=machine.work, read=lambda: next(readings))
    recorded = replace(recorded, canary_ns=recorded.canary_ns[:50])
    measured = judged(recorded, core=None)
    assert (measured.shared, measured.calm_seconds, measured.shared_seconds) == (0.6, pytest.approx(5.6e-6), 8.4e-6)
    throughout = replace(recorded, canary_ns=(8400,) * 50)
    assert judged(throughout, core=None).shared == 0.0
    assert judged(throughout, core=None, calm_seconds=5.6e-6).shared == 1.0
    assert judged(replace(recorded, canary_ns=()), core=None).shared is None


def test_the_figures_of_what_was_watched() -> None:
    """The middle 95 % of 41 pairs end at the second and the last but one; of 21 calls the slowest 5 % begin near the
    longest, which is held against the median."""
    logs = tuple(0.001 * (number - 20) for number in range(41))
    calls = (*(1.0 + 0.01 * number for number in range(20)), 2.0)
    measured = judged(Watched(log_ratios=logs, calls=calls, seconds=3.5), core=3, tolerance=0.02)
    assert measured.ratio.value == pytest.approx(1.0)
    assert (measured.ratio.low, measured.ratio.high) == pytest.approx((math.exp(-0.007), math.exp(0.007)))
    assert measured.pair_spread == pytest.approx(math.expm1(0.019))
    assert measured.call_spread == pytest.approx((1.19 + 0.9 * 0.81) / 1.1 - 1)
    assert (measured.pairs, measured.seconds, measured.core, measured.tolerance) == (41, 3.5, 3, 0.02)
    assert measured.decidable
    assert not judged(Watched(log_ratios=logs, calls=calls, seconds=3.5), core=3, tolerance=0.01).decidable


def test_a_machine_that_is_never_disturbed_has_no_time_beside_another() -> None:
    """A reading exactly a quarter above the calm one is disturbed, one below that is not."""
    pairs = Watched(log_ratios=(0.0,) * 6, calls=(1.0, 1.0), seconds=1.0, canary_ns=(4000, 4000, 4999))
    measured = judged(pairs, core=None)
    assert (measured.shared, measured.calm_seconds, measured.shared_seconds) == (0.0, 4e-6, None)
    shared = judged(replace(pairs, canary_ns=(4000, 4000, 5000, 7000)), core=None)
    assert (shared.shared, shared.calm_seconds, shared.shared_seconds) == (0.5, 4e-6, 6e-6)
    unread = judged(replace(pairs, canary_ns=()), core=None)
    assert (unread.shared, unread.calm_seconds, unread.shared_seconds) == (None, None, None)
    known = judged(replace(pairs, canary_ns=()), core=None, calm_seconds=4e-6)
    assert (known.shared, known.calm_seconds, known.shared_seconds) == (None, pytest.approx(4e-6), None)


def test_a_call_is_as_long_as_that_of_a_small_model() -> None:
    """0.7 ms, by the best of three: a single interrupted call does not make it shorter; work that takes longer by
    itself is done once."""
    machine = Machine(factor=9.0, slow_every=2)
    sizes: list[int] = []

    def work(arm: int, size: int) -> None:
        sizes.append(size)
        machine.work(arm, size)

    watched(0.0, clock=machine.clock, work=work, read=lambda: 5600)
    assert set(sizes[-120:]) == {7000}
    slow = Machine()
    slow_sizes: list[int] = []

    def work_slowly(arm: int, size: int) -> None:
        slow_sizes.append(size)
        slow.work(arm, size * 100_000)

    watched(0.0, clock=slow.clock, work=work_slowly, read=lambda: 5600)
    assert set(slow_sizes) == {1}
    started = Machine()

    def work_after_a_start(arm: int, size: int) -> None:
        started.work(arm, 900 + size)

    assert _size(started.clock, work_after_a_start) == round(4096 * 7000 / (900 + 4096)), "the first of 0.35 ms or more"


def test_the_order_of_the_arms_is_drawn_and_each_block_runs_one_of_them() -> None:
    """Two calls that are cold and eight that are kept, of one arm and then of the other; which comes first varies, by
    the seed alone; a reading of the canary before each pair."""
    orders = []
    for seed in (0, 0, 1):
        machine, arms, readings = Machine(), list[int](), iter(range(100))

        def work(arm: int, size: int, machine: Machine = machine, arms: list[int] = arms) -> None:
            arms.append(arm)
            machine.work(arm, size)

        recorded = watched(
            0.0,
            clock=machine.clock,
            work=work,
            read=lambda readings=readings: next(readings),  # type: ignore[misc]
            seed=seed,
        )
        blocks = [arms[-120:][at : at + 10] for at in range(0, 120, 10)]
        assert all(len(set(block)) == 1 for block in blocks)
        firsts = [block[0] for block in blocks[::2]]
        assert [block[0] for block in blocks[1::2]] == [1 - first for first in firsts]
        assert (len(recorded.calls), recorded.canary_ns) == (6 * 16, tuple(range(6)))
        orders.append(firsts)
    assert set(orders[0]) == {0, 1}
    assert orders[0] == orders[1] != orders[2]


def test_without_a_seed_the_order_is_the_same_each_time() -> None:
    """That of the first one."""
    orders = []
    for seed in ({}, {"seed": 0}):
        machine, arms = Machine(), list[int]()

        def work(arm: int, size: int, machine: Machine = machine, arms: list[int] = arms) -> None:
            arms.append(arm)
            machine.work(arm, size)

        watched(0.2, clock=machine.clock, work=work, read=lambda: 5600, **seed)
        orders.append(arms)
    assert orders[0] == orders[1]


def test_no_garbage_is_collected_while_it_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a measured case."""
    done: list[str] = []
    monkeypatch.setattr(noise_module.child, "freeze_garbage_collector", lambda: done.append("frozen"))
    monkeypatch.setattr(noise_module, "watched", lambda seconds: done.append(f"watched {seconds}"))
    noise_module.in_this_process(0.5)
    assert done == ["frozen", "watched 0.5"]
