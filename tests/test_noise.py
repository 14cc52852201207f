"""qbench.noise: the loop against itself, on a clock that does not pass by itself."""

from __future__ import annotations

import pytest

from qbench.noise import noise


class Machine:
    """A clock that only work moves; every ``slow_every``-th call takes ``factor`` times as long."""

    def __init__(self, factor: float = 1.0, slow_every: int = 10) -> None:
        self.now = 0.0
        self.calls = 0
        self._factor = factor
        self._slow_every = slow_every

    def clock(self) -> float:
        """Seconds of work so far."""
        return self.now

    def work(self, size: int) -> None:
        """Moves the clock."""
        self.calls += 1
        slow = self.calls % self._slow_every == 0
        self.now += size * 1e-7 * (self._factor if slow else 1.0)


def test_a_perfect_machine_has_no_noise() -> None:
    """Where every call takes the same time, the ratio is 1 and nothing spreads."""
    perfect = Machine()
    seen = noise(1.0, clock=perfect.clock, work=perfect.work)
    assert seen.ratio == pytest.approx(1.0, abs=1e-9)
    assert seen.pair_spread == pytest.approx(0.0, abs=1e-9)
    assert seen.call_spread == pytest.approx(0.0, abs=1e-9)


def test_it_watches_for_the_time_asked_and_its_calls_last_what_they_should() -> None:
    """One second holds 1 / (2 blocks x 8 calls x 0.7 ms) pairs, give or take the last."""
    perfect = Machine()
    seen = noise(1.0, clock=perfect.clock, work=perfect.work)
    assert seen.seconds == pytest.approx(1.0, rel=0.02)
    assert seen.pairs == pytest.approx(1.0 / (16 * 0.0007), rel=0.02)


def test_rare_slow_calls_show_in_calls_but_not_in_pairs() -> None:
    """A block's minimum ignores a call that something else interrupted; a plain percentile does not."""
    hiccups = Machine(factor=3.0)
    seen = noise(1.0, clock=hiccups.clock, work=hiccups.work)
    assert seen.pair_spread == pytest.approx(0.0, abs=1e-9)
    assert seen.call_spread == pytest.approx(2.0, rel=1e-6)


def test_slow_spells_show_in_pairs() -> None:
    """When whole blocks are slow, pairs spread, and the median stays near 1 since the order is drawn."""
    spells = Machine(factor=1.0)
    original = spells.work

    def work(size: int) -> None:
        original(size)
        spells.now += size * 1e-7 * 0.5 * (spells.calls // 24 % 2)

    seen = noise(2.0, clock=spells.clock, work=work)
    assert seen.pair_spread > 0.2
    assert seen.ratio == pytest.approx(1.0, rel=0.05)


def test_no_time_still_gives_six_pairs_with_the_real_clock() -> None:
    """Six pairs are the least that a median's interval needs, so six there are."""
    seen = noise(0.0)
    assert seen.pairs == 6
    assert seen.seconds > 0
