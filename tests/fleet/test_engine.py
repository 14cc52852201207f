"""What ``--on`` takes, and what it says without Ray. A cluster itself: tests/fleet/test_fleet.py."""

from __future__ import annotations

import importlib.util
import tempfile
import threading
from types import SimpleNamespace

import pytest

from qbench.errors import NodeLost, UsageError
from qbench.fleet import engine


@pytest.mark.parametrize("on", ["", "local", "local-cluster:0", "ray://host", "http://x:1", "a b:1"])
def test_what_names_no_cluster_is_refused(on):
    """The message lists what does."""
    with pytest.raises(UsageError, match="expected ray://HOST:PORT"):
        engine.read_target(on)


def test_ray_address_counts_only_where_it_is_asked_for(monkeypatch):
    """`--on ray` without it says so; a run without --on never reads it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UsageError, match="RAY_ADDRESS is not set"):
        engine.read_target("ray")
    monkeypatch.setenv("RAY_ADDRESS", "head")
    with pytest.raises(UsageError, match="RAY_ADDRESS is 'head': expected ray://HOST:PORT"):
        engine.read_target("ray")


def test_without_ray_one_message_says_what_to_install(monkeypatch):
    """The extra is named."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install .*\[cluster\]'?$"):
        engine.read_target("local-cluster")


@pytest.mark.parametrize("length", range(4, 60))
def test_the_folder_of_a_cluster_has_room_for_the_sockets_of_ray(monkeypatch, length):
    """Whatever the temporary folder is: the path of a socket may have 107 characters (unix(7))."""
    temporary = "/tmp/".ljust(length, "x").rstrip("/")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: temporary)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **given: f"{given['dir']}/{given['prefix']}12345678")
    longest = "ray/session_2026-11-23_16-07-20_442282_4194304/sockets/plasma_store.999"
    assert len(str(engine._make_folder() / longest)) <= 107


class SilentRay:
    """A cluster that answers once it was asked ``times`` times."""

    exceptions = SimpleNamespace(GetTimeoutError=TimeoutError)

    def __init__(self, times):
        self._times = times

    def get(self, reference, timeout):
        self._times -= 1
        if self._times > 0:
            raise TimeoutError
        return reference


def test_nobody_waits_for_a_node_once_the_run_ends():
    """A cluster whose head has ended never says that the node is gone; before the end an answer may take its time."""
    ending = threading.Event()
    assert engine.get(SilentRay(times=3), "answer", ending) == "answer"
    ending.set()
    with pytest.raises(NodeLost, match="the run was ended"):
        engine.get(SilentRay(times=3), "answer", ending)
