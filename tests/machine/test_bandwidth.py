"""How fast a core reads."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl

from qbench.machine import bandwidth


def test_more_bytes_take_longer():
    """A hundred times as many by far; nothing reads a megabyte in a microsecond."""
    few, many = bandwidth.read_here(1 << 20), bandwidth.read_here(100 << 20)
    assert 1e-6 < few < many / 10


def test_what_does_not_fit_is_counted_by_its_share(monkeypatch):
    """The buffer is limited, the answer is for all bytes."""
    monkeypatch.setattr(bandwidth, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(bandwidth, "_SECONDS", 0.0)
    ratio = bandwidth.read_here(1 << 24) / bandwidth.read_here(1 << 20)
    assert ratio == pytest.approx(16, rel=0.9)


class Clock:
    """A clock that only reading moves, by so many seconds for each of its turns."""

    def __init__(self, *seconds):
        self.now, self.seconds, self.turns = 0.0, seconds, 0

    def perf_counter(self):
        return self.now

    def read(self, first, second):
        assert first is second
        self.sizes = first.nbytes
        self.now += self.seconds[min(self.turns, len(self.seconds) - 1)]
        self.turns += 1


@pytest.mark.parametrize(("seconds", "turns"), [((1.0,), 5), ((0.5, 0.25, 1.0), 5), ((1 / 64,), 8), ((1 / 63,), 8)])
def test_it_reads_for_an_eighth_of_a_second_and_five_times_at_least(monkeypatch, seconds, turns):
    """The least turn counts, whenever it was."""
    clock = Clock(*seconds)
    monkeypatch.setattr(bandwidth, "time", clock)
    monkeypatch.setattr(bandwidth, "_SECONDS", 0.125)
    monkeypatch.setattr("numpy.dot", clock.read)
    assert bandwidth.read_here(1 << 20) == min(seconds)
    assert (clock.turns, clock.sizes) == (turns, 1 << 20)


@pytest.mark.parametrize(("size", "buffer"), [(1, 1 << 16), (1 << 16, 1 << 16), (1 << 20, 1 << 20), (1 << 21, 1 << 20)])
def test_the_buffer_is_neither_tiny_nor_huge(monkeypatch, size, buffer):
    """The seconds are scaled to the bytes that were asked for."""
    clock = Clock(1.0)
    monkeypatch.setattr(bandwidth, "time", clock)
    monkeypatch.setattr(bandwidth, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr("numpy.dot", clock.read)
    assert bandwidth.read_here(size) == size / buffer
    assert clock.sizes == buffer


def test_one_thread_reads_512_mib_at_most_for_a_tenth_of_a_second(monkeypatch):
    """More would take the memory of others and tell nothing else; several threads are not what one core does."""
    clock, sizes, limits = Clock(1 / 64), [], []

    class Limits(threadpoolctl.threadpool_limits):
        def __init__(self, threads):
            limits.append(threads)
            super().__init__(threads)

    def make(size, dtype):
        sizes.append(size * np.dtype(dtype).itemsize)
        return np.zeros(1, dtype)

    monkeypatch.setattr(bandwidth, "time", clock)
    monkeypatch.setattr("numpy.ones", make)
    monkeypatch.setattr("numpy.dot", clock.read)
    monkeypatch.setattr(threadpoolctl, "threadpool_limits", Limits)
    assert bandwidth.read_here(1 << 30) == 2 / 64
    assert (sizes, clock.turns, limits) == ([1 << 29], 7, [1])
