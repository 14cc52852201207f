"""Whether this thread's arithmetic takes denormals (below 1.2e-38 in float32) as zero."""

from __future__ import annotations

import ctypes
import platform
import sys

import numpy as np

from qbench.errors import MeasureError

# glibc on x86-64: ``fenv_t`` is the environment of the x87 (28 bytes), then MXCSR, whose bits 15 and 6 are "flush to
# zero" and "denormals are zero" (Intel SDM, volume 1, section 10.2.3).
_WORDS, _MXCSR = 8, 7
_FLUSH = (1 << 15) | (1 << 6)


def are_flushed() -> bool:
    """As a product in this thread shows."""
    return float(np.float32(1e-45) * np.float32(1)) == 0.0


def flush(on: bool) -> None:
    """Sets it for this thread and for those that it starts; raises ``MeasureError`` where qbench has no way to."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise MeasureError(f"how denormals are handled cannot be set on {sys.platform} {platform.machine()}")
    library = ctypes.CDLL("libm.so.6")
    environment = (ctypes.c_uint32 * _WORDS)()
    library.fegetenv(ctypes.byref(environment))
    environment[_MXCSR] = environment[_MXCSR] | _FLUSH if on else environment[_MXCSR] & ~_FLUSH
    library.fesetenv(ctypes.byref(environment))
    if are_flushed() is not on:
        raise MeasureError("the system does not let this process set how denormals are handled")
