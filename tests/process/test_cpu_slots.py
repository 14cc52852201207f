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
    """``is_waited_for`` says so while anybody does, and nobody gets a spare place meanwhile."""
    slots, entered, leave = Slots(2), threading.Event(), threading.Event()

    def wait():
        with slots.occupy():
            entered.set()
            leave.wait(10)

    with slots.occupy():
        assert slots.take_spare()
        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        while slots._waiting < len(threads):
            pass
        assert not slots.take_spare()
        slots.give_back()
        assert entered.wait(10)
        assert slots.is_waited_for
        assert not slots.take_spare()
        leave.set()
    for thread in threads:
        thread.join()
    assert not slots.is_waited_for
    assert [slots.take_spare() for _ in range(3)] == [True, True, False]


def test_there_is_one_place_at_least():
    """None at all would wait for ever."""
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Slots(0)
    assert Slots(1).take_spare()
