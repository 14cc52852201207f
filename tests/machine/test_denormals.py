"""How denormals are handled is set, and read back."""

from __future__ import annotations

import platform
import sys

import numpy as np
import pytest

from qbench.errors import MeasureError
from qbench.machine import denormals

SETTABLE = platform.machine() == "x86_64" and sys.platform == "linux"


@pytest.mark.parametrize(("system", "machine"), [("linux", "aarch64"), ("darwin", "x86_64")])
def test_where_there_is_no_way_it_is_refused(monkeypatch, system, machine):
    """By the system's and the machine's name."""
    monkeypatch.setattr(denormals.sys, "platform", system)
    monkeypatch.setattr(denormals.platform, "machine", lambda: machine)
    with pytest.raises(MeasureError, match=f"cannot be set on {system} {machine}"):
        denormals.flush(True)


@pytest.mark.skipif(not SETTABLE, reason="glibc on x86-64 alone has the way that qbench knows")
def test_what_the_arithmetic_does_not_show_is_no_setting(monkeypatch):
    """A system that takes the setting and does nothing about it is told."""
    monkeypatch.setattr(denormals, "are_flushed", lambda: False)
    try:
        with pytest.raises(MeasureError, match="does not let this process set"):
            denormals.flush(True)
        denormals.flush(False)
    finally:
        monkeypatch.undo()
        denormals.flush(False)


@pytest.mark.skipif(not SETTABLE, reason="glibc on x86-64 alone has the way that qbench knows")
def test_denormals_are_flushed_as_asked_and_back():
    """As the arithmetic of this thread shows; asking twice changes nothing."""
    try:
        for on in (True, True, False):
            denormals.flush(on)
            assert denormals.are_flushed() is on
            taken, product = np.float32(1e-45) * np.float32(1e30), np.float32(1e-30) * np.float32(1e-10)
            assert [float(taken) == 0.0, float(product) == 0.0] == [on, on], "as a factor, and as a product"
    finally:
        denormals.flush(False)
