"""Threads of this process: set for torch and read back, and those that may leave its cores."""

from __future__ import annotations

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
    monkeypatch.setattr(threads, "TASKS", tmp_path / "nothing")
    assert (threads.list_cores(), threads.count_tasks()) == ({}, None)
    monkeypatch.setattr(threads, "TASKS", Path("/proc/self/task"))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert threads.list_cores() == {}
