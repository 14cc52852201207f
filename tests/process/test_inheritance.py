"""What a child process has from the one that starts it: which signals it never hears of."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from qbench.process import inheritance
from qbench.process.parent import Limits, Worker

QUICK = Limits(seconds=60.0)


class Signals:
    """Says which signals its process blocks."""

    def blocked(self):
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("fresh", [False, True])
def test_a_child_never_hears_of_ctrl_c(fresh):
    """From its first moment: a terminal sends it to all its processes. Who starts it still does."""
    with Worker(Signals, limits=QUICK, fresh=fresh) as worker:
        worker.ready()
        assert signal.SIGINT in worker.ask("blocked")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_what_starts_meanwhile_never_hears_of_a_signal():
    """It comes to this process when the block ends."""
    program = "import signal; signal.raise_signal(signal.SIGHUP); print('alive')"
    came = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
    try:
        with inheritance.block_signal("SIGHUP"):
            signal.raise_signal(signal.SIGHUP)
            started = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            assert came == []
    finally:
        signal.signal(signal.SIGHUP, before)
    assert came == [signal.SIGHUP]
    assert started.stdout == "alive\n"
