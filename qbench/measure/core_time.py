"""What a call needed of its core, where other processes of this machine took it meanwhile; pure.

Wall time counts the others' turns: a long call is cut more often than a short one, so their ratio creeps up with what
is taken. The processor time of the calling thread does not. fp32 over int8 of three networks on ONNX Runtime, one
thread, by wall and by processor time, beside loops on both cores of a 2-vCPU guest. Tried by hand, one to three series
each, in blocks that the host left alone where there were any (``tests/benchmarks/busy_machine.py`` tells of whole
races):

    calls                      alone   one loop         three loops
    2.0 and 0.7 ms             2.82    2.86    2.86     2.85    2.85
    20 and 8 ms                2.71    3.22    2.72     3.23    2.74
    26 and 8 ms (ResNet-18)    3.37    3.10    3.18     3.20    3.03

What is left is the memory of the core, which the others' turns fill: of ResNet-18 (11 MB in int8, 45 MB in fp32) a
call in int8 takes 6 % more processor time beside one loop, 12 % beside three; of the smaller networks 1 to 2 %. No
clock shows it, so ``CUT_SPREAD`` widens the limits of what rests on calls that were cut.

Processor time is blind to what a hypervisor takes (it counts as the thread's own), and says nothing of calls on
several threads, nor of calls that wait by themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qbench.measure.samples import Nanoseconds

AWAY_NS = 20_000  # the system's own short turns and the reading of two clocks stay below; a turn of another is longer
# Standard deviation of ln(processor time of a call that was cut / time of one that was not), for each share of the
# call that others had the core.
CUT_SPREAD = 0.08


def needed_ns(calls_ns: Nanoseconds, processor_ns: Nanoseconds | None) -> Nanoseconds:
    """Nanoseconds that each call needed: its processor time where others had the core meanwhile, else what it took."""
    if processor_ns is None or not len(processor_ns):
        return calls_ns
    return np.where(find_cut(calls_ns, processor_ns), processor_ns, calls_ns)


def find_cut(calls_ns: Nanoseconds, processor_ns: Nanoseconds) -> NDArray[np.bool_]:
    """Of each call whether another process had the core meanwhile; False where it is not known (-1)."""
    cut: NDArray[np.bool_] = (processor_ns >= 0) & (calls_ns - processor_ns > AWAY_NS)
    return cut
