"""What a call needed of its core, by the two clocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbench.measure.core_time import find_cut, needed_ns

TIMES = st.integers(1, 10**9)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1))
def test_a_call_needed_its_processor_time_where_it_was_cut_and_what_it_took_elsewhere(
    calls: list[tuple[int, int]],
) -> None:
    """Never more than it took; a call that had its core throughout is timed by the finer clock."""
    calls_ns, processor_ns = (np.asarray(times) for times in zip(*calls, strict=True))
    needed, cut = needed_ns(calls_ns, processor_ns), find_cut(calls_ns, processor_ns)
    assert (needed <= calls_ns).all()
    assert (needed[cut] == processor_ns[cut]).all()
    assert (needed[~cut] == calls_ns[~cut]).all()


def test_a_short_absence_is_none() -> None:
    """The system's own turns, and what it takes to read two clocks, lie within 20 us."""
    assert find_cut(np.asarray([20_000, 20_001]), np.asarray([0, 0])).tolist() == [False, True]


def test_without_processor_time_a_call_needed_what_it_took() -> None:
    """Of several threads, of calls that wait (-1), and of older runs."""
    calls_ns = np.asarray([10**6, 2 * 10**6])
    assert needed_ns(calls_ns, None) is calls_ns
    assert needed_ns(calls_ns, calls_ns[:0]) is calls_ns
    assert needed_ns(calls_ns, np.asarray([-1, -1])).tolist() == calls_ns.tolist()
