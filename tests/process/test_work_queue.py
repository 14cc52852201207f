"""Things that share work are done by one worker, and no worker is idle while there are any."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from qbench.process.work_queue import WorkQueue


def test_a_worker_stays_with_a_kind_until_it_is_done():
    """Two workers begin two kinds; whoever is done first takes the third."""
    queue = WorkQueue(["a", "b", "a", "c", "b"])
    assert [queue.take(1), queue.take(2)] == [0, 1]
    assert [queue.take(1), queue.take(1)] == [2, 3]
    assert queue.take(2) == 4


def test_an_idle_worker_helps_with_the_longest_kind():
    """Waiting for the other would end no sooner."""
    queue = WorkQueue(["a", "b", "b", "b", "a", "a", "b"])
    assert [queue.take(1), queue.take(2)] == [0, 1]
    assert queue.take(3) in (2, 3)


def test_each_thing_is_taken_once():
    """By however many workers; then there is nothing."""
    queue = WorkQueue([number % 7 for number in range(100)])
    assert sorted(queue.take(number % 5) for number in range(100)) == list(range(100))
    with pytest.raises(IndexError):
        queue.take(0)


def test_a_worker_is_its_thread_where_no_number_is_given():
    """Another thread begins another kind."""
    queue = WorkQueue(["a", "b", "a", "b"])
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        assert [pool.submit(queue.take).result() for pool in (first, second, first, second)] == [0, 1, 2, 3]
