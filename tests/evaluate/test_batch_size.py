"""How many examples are evaluated at once: what is faster, what fits, and never what changes an output."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.evaluate.batch_size import BASE, SHARE, WIDEST, MemoryRoom, choose_batch_size

PLENTY = MemoryRoom(used=lambda: 0, most=None)


class Machine:
    """Evaluates examples by their number; ``call`` seconds a batch and ``each`` seconds an example. ``odd``: from that
    width on the last bit is another; ``room``: wider batches raise what the runtime says when memory is gone."""

    def __init__(self, *, call=0.0, each=0.0, odd=10**9, room=10**9, error=None):
        self.now, self.evaluated, self.widths = 0.0, 0, []
        self._call, self._each, self._odd, self._room, self._error = call, each, odd, room, error or MemoryError()

    def __call__(self, start, stop):
        if stop - start > self._room:
            raise self._error
        self.now += self._call + self._each * (stop - start)
        self.evaluated += stop - start
        self.widths.append(stop - start)
        rows = np.arange(start, stop, dtype=np.float32)[:, None] + np.zeros((1, 3), dtype=np.float32)
        return np.nextafter(rows, np.float32(np.inf)) if stop - start >= self._odd else rows

    def choose(self, count, memory=PLENTY):
        width, rows = choose_batch_size(self, count, memory, lambda: self.now)
        np.testing.assert_array_equal(rows[:, 0], np.arange(len(rows)))
        return width


@pytest.mark.parametrize(
    ("machine", "width"),
    [
        (Machine(call=1.0), WIDEST),
        (Machine(each=1.0), BASE),
        (Machine(call=1.0, each=1.0), 64),  # seconds an example: 1.125 by 8, 1.063 by 16, 1.031, 1.016, 1.008
        (Machine(call=1.0, odd=32), 16),
        (Machine(call=1.0, odd=16), BASE),
    ],
    ids=["a call costs", "an example costs", "both", "other bits from 32 on", "other bits from 16 on"],
)
def test_batches_grow_while_that_is_faster_and_changes_no_output(machine, width):
    """It must save 3 %, and give bit by bit what the narrower batch gave."""
    assert machine.choose(10_000) == width


def test_one_slow_reading_does_not_end_the_search_and_a_loss_does():
    """Beyond a tenth nothing wider is tried; a step without gain is passed over, and not taken."""

    class Uneven(Machine):
        def __call__(self, start, stop):
            rows = super().__call__(start, stop)
            self.now += {8: 1.0, 16: 1.09, 32: 0.9, 64: 1.0, 128: 0.8}[stop - start] * (stop - start)
            return rows

    machine = Uneven()
    assert (machine.choose(2_000), max(machine.widths)) == (32, 32)
    machine = Uneven()
    assert (machine.choose(10_000), max(machine.widths)) == (32, 64)


@given(st.integers(1, 30_000), st.floats(0, 1), st.floats(0, 1), st.sampled_from([16, 64, 10**9]))
def test_what_is_tried_costs_little(count, call, each, odd):
    """Whatever the clock says: few examples are evaluated twice, and the first of them are in order."""
    machine = Machine(call=call, each=each, odd=odd)
    width = machine.choose(count)
    assert width in (8, 16, 32, 64, 128)
    assert machine.evaluated <= BASE + 3 * BASE + 7 * count / SHARE
    assert max(machine.widths) <= max(BASE, count // SHARE)


def test_few_examples_are_not_tried_on():
    """Below 640 examples there is nothing to be won by it: one batch of 8, or all there are."""
    for count in (3, 8, 639):
        machine = Machine(call=1.0)
        assert (machine.choose(count), machine.widths) == (BASE, [min(count, BASE)])


@pytest.mark.parametrize(("most", "width"), [(1000, 8), (1600, 16), (3300, 32)])
def test_a_wider_batch_must_fit(most, width):
    """A batch of 100 bytes an example: the next one is taken only where twice what this one took is there, beside what
    the process had before."""
    machine = Machine(call=1.0)
    used = MemoryRoom(used=lambda: 5000 + 100 * max(machine.widths, default=0), most=most)
    assert machine.choose(10_000, used) == width


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("std::bad_alloc")])
@pytest.mark.parametrize(("room", "width"), [(32, 32), (8, 8), (3, 2), (1, 1)])
def test_where_memory_runs_out_batches_are_narrower(error, room, width):
    """A wider batch that fails is not taken, and below 8 the batch is halved until it passes."""
    machine = Machine(call=1.0, room=room, error=error)
    assert machine.choose(10_000) == width
    if width < BASE:
        assert machine.widths == [width], "what has so little room is not tried on anything wider"


@pytest.mark.parametrize(
    ("room", "error"), [(32, ValueError("shape")), (2, ValueError("shape")), (0, MemoryError("no"))]
)
def test_any_other_error_is_told(room, error):
    """Only memory is a reason to take fewer; and where one example does not fit, that is told."""
    with pytest.raises(type(error), match=str(error)):
        Machine(call=1.0, room=room, error=error).choose(10_000)


def test_a_runtime_that_is_cold_is_warmed_up_before_it_is_timed():
    """Else the width that it warmed up with would seem slow."""

    class Cold(Machine):
        def __call__(self, start, stop):
            rows = super().__call__(start, stop)
            self.now += 1e6 if len(self.widths) == 2 else 0.0
            return rows

    assert Cold(each=1.0).choose(10_000) == BASE


@pytest.mark.parametrize(("room", "width"), [(7, 4), (3, 2), (1, 1)])
def test_a_width_is_a_whole_number_also_where_it_was_halved(room, width):
    """Slices of arrays take no other."""
    halved = Machine(room=room).choose(10_000)
    assert (halved, type(halved)) == (width, int)


def test_from_640_examples_on_a_wider_batch_is_tried_on_sixteen_of_them():
    """After one batch, three that warm up, and two that are timed; the wider one is compiled, then timed."""
    machine = Machine(call=1.0)
    assert (machine.choose(640), machine.widths) == (16, [8] * (1 + 3 + 2) + [16] * 2)


@pytest.mark.parametrize(
    ("count", "seconds", "width"),
    [
        (640, (1.0, 0.97), 8),
        (640, (1.0, 0.969), 16),
        (1280, (1.0, 1.1, 0.5), 32),
        (1280, (1.0, 1.101, 0.5), 8),
    ],
)
def test_a_gain_of_three_hundredths_is_none_and_a_loss_of_a_tenth_is_passed_over(count, seconds, width):
    """Less time is needed, or more, to be one."""
    readings = iter([reading for each in seconds for reading in (0.0, each)])
    assert choose_batch_size(Machine(), count, PLENTY, lambda: next(readings))[0] == width
