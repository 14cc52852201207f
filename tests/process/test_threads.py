"""Threads of this process: set for torch and read back, and those that may leave its cores."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import torch

from qbench.errors import MeasureError
from qbench.process import threads


def test_a_number_that_torch_does_not_keep_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set is read back: another number would be another case."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(MeasureError, match="torch kept 2 threads, not 1"):
        threads.set_torch(1)


def test_a_thread_outside_the_cores_of_the_process_is_no_measurement() -> None:
    """Only threads that came with the model count: those of other libraries idle."""
    me = os.getpid()
    threads.require_inside({me: {0}, 7: {0, 1}, 8: {0}}, frozenset([7]), "OpenVINO")
    with pytest.raises(MeasureError, match=r"OpenVINO lets .* the cores 1, outside those of this process \(0\)"):
        threads.require_inside({me: {0}, 7: {0, 1}, 8: {0}}, frozenset([8]), "OpenVINO")


def test_a_system_that_tells_no_threads_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither their number nor their cores; where it does, this thread is among them."""
    assert os.getpid() in threads.list_cores()
    assert threads.count_tasks() == len(threads.list_cores())
    monkeypatch.setattr(threads, "TASKS", tmp_path / "nothing")
    assert (threads.list_cores(), threads.count_tasks()) == ({}, None)
    monkeypatch.setattr(threads, "TASKS", Path("/proc/self/task"))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert threads.list_cores() == {}


@pytest.mark.parametrize("fails", [False, True])
def test_one_thread_is_for_a_while(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as before compute afterwards, also where what was computed failed."""
    numbers = [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: numbers[-1])
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    with contextlib.suppress(ZeroDivisionError), threads.one_torch_thread():
        assert numbers == [3, 1]
        if fails:
            raise ZeroDivisionError
    assert numbers == [3, 1, 3]


def test_the_pools_of_a_library_s_own_copies_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn brings an OpenMP for itself, and a BLAS is none; each pool is told by its interface and file."""
    pools = [
        {"user_api": api, "internal_api": inside, "filepath": path, "num_threads": count}
        for api, inside, path, count in (
            ("openmp", "openmp", "/lib/libgomp.so.1", 2),
            ("openmp", "openmp", "/site/scikit_learn.libs/libgomp-a.so", 8),
            ("openmp", "openmp", "/site/some.libs/torch/libgomp-b.so", 4),
            ("blas", "openblas", "/lib/libopenblas.so", 16),
        )
    ]
    monkeypatch.setattr(threads, "_list_pools", lambda: pools)
    assert threads.read_openmp() == [2, 4]
    assert threads.read_pools() == {
        "openmp:libgomp.so.1": 2,
        "openmp:libgomp-a.so": 8,
        "openmp:libgomp-b.so": 4,
        "openblas:libopenblas.so": 16,
    }


def test_threads_that_came_later_are_brought_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that may run elsewhere only: on all cores of the process, whichever are left to them; one that has ended
    meanwhile is none."""
    me, confined = os.getpid(), []

    def confine(task: int, cores: set[int]) -> None:
        confined.append((task, cores))
        if task == 8:
            raise ProcessLookupError

    monkeypatch.setattr(os, "sched_setaffinity", confine)
    threads.confine({me: {0, 1}, 7: {0, 2}, 8: {2, 3}, 9: {3}, 10: {1}}, frozenset([7]))
    assert confined == [(8, {0, 1}), (9, {0, 1})]


def test_all_cores_outside_are_named_once() -> None:
    """In order, and beside them those of the process."""
    with pytest.raises(MeasureError, match=r"the cores 2, 10, outside those of this process \(0, 1\)"):
        threads.require_inside({os.getpid(): {1, 0}, 8: {10, 0}, 9: {2, 10}}, frozenset(), "it")


def test_torch_gets_one_thread_between_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pool has started the number stays as it is, and the read-back decides."""
    numbers: list[int] = []

    def refuse(count: int) -> None:
        numbers.append(count)
        raise RuntimeError("cannot set number of interop threads after parallel work has started")

    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_interop_threads", refuse)
    threads.set_torch(2)
    assert numbers == [2, 1]
