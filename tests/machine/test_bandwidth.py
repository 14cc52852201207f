"""How fast a core reads."""

from __future__ import annotations

import pytest

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
