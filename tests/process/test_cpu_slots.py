"""Places for processes: nobody has more than there are, and who waits comes first."""

from __future__ import annotations

import threading

import pytest

from qbench.process.cpu_slots import Slots


def test_more_places_are_taken_only_while_they_are_free():
    """Two of three are spare beside the first; a place that was given back is there again."""
    slots = Slots(3)
    with slots.occupy():
        assert [slots.take_spare(), slots.take_spare(), slots.take_spare()] == [True, True, False]
        slots.give_back()
        assert slots.take_spare()
    assert slots.take_spare()


def test_whoever_waits_for_a_first_place_comes_before_a_second_one():
    """``wanted`` says so, and nobody gets a spare place meanwhile."""
    slots, entered = Slots(2), threading.Event()

    def wait():
        with slots.occupy():
            entered.set()

    with slots.occupy():
        assert slots.take_spare()
        thread = threading.Thread(target=wait)
        thread.start()
        while not slots.is_waited_for:
            pass
        assert not slots.take_spare()
        slots.give_back()
        assert entered.wait(10)
        thread.join()
    assert not slots.is_waited_for


def test_there_is_one_place_at_least():
    """None at all would wait for ever."""
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Slots(0)
