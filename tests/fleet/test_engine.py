"""What ``--on`` takes, and what it says without Ray. A cluster itself: tests/fleet/test_fleet.py."""

from __future__ import annotations

import importlib.util

import pytest

from qbench.errors import UsageError
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
    with pytest.raises(UsageError, match=r"pip install 'qbench\[cluster\]'"):
        engine.read_target("local-cluster")
