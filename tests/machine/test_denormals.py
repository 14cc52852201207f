"""How denormals are handled is set, and read back."""

from __future__ import annotations

import platform
import sys

import pytest

from qbench.machine import denormals

SETTABLE = platform.machine() == "x86_64" and sys.platform == "linux"


@pytest.mark.skipif(not SETTABLE, reason="glibc on x86-64 alone has the way that qbench knows")
def test_denormals_are_flushed_as_asked_and_back():
    """As the arithmetic of this thread shows; asking twice changes nothing."""
    try:
        for on in (True, True, False):
            denormals.flush(on)
            assert denormals.are_flushed() is on
    finally:
        denormals.flush(False)
