"""Signals that end a command: the exit code, what is ignored, and a run that is measuring when one comes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from ending_signals import as_a_shell_starts_it

from qbench.cli.signals import ENDING, EndingSignals

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    with as_a_shell_starts_it():
        yield


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_interrupts_and_gives_the_exit_code(number: signal.Signals) -> None:
    """Those that come while the command ends are ignored, until nothing is left that must end."""
    signals = EndingSignals()
    with pytest.raises(KeyboardInterrupt), signals.interrupting():
        signal.raise_signal(number)
    for later in ENDING:
        signal.raise_signal(later)
    assert signals.exit_code == CODES[number]


def test_a_signal_interrupts_again_once_all_has_ended() -> None:
    """The report of an interrupted run can be left out; the exit code is that of the first signal."""
    signals = EndingSignals()
    with signals.interrupting():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        signals.raise_again()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert signals.exit_code == 143


class Finalized:
    """A signal comes while it is finalized."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        len("the handler runs before this")


def test_an_interrupt_that_python_drops_comes_again() -> None:
    """What a finalizer raises is dropped: SIGTERM, which is sent once, would have no effect."""
    signals = EndingSignals()
    with signals.interrupting():
        Finalized()
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(30)
    assert signals.exit_code == 143


def test_what_was_ignored_at_the_start_stays_ignored() -> None:
    """nohup ignores SIGHUP, a shell SIGINT of what it starts in the background."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with EndingSignals().interrupting():
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_command_that_ends_by_itself_leaves_the_handlers() -> None:
    """Nothing of it is left in a process that goes on, and an interrupt that was no signal is that of Ctrl-C."""
    before = [signal.getsignal(number) for number in ENDING]
    signals = EndingSignals()
    with signals.interrupting():
        assert [signal.getsignal(number) for number in ENDING] != before
    assert [signal.getsignal(number) for number in ENDING] == before
    assert signals.exit_code == 130


CLOSED = """
import signal, sys
from qbench.cli.signals import EndingSignals

signals = EndingSignals()
try:
    with signals.interrupting():
        print("ready", flush=True)
        signal.pause()
finally:
    print("ends", flush=True)
    sys.exit(signals.exit_code)
"""


def test_what_is_written_to_a_closed_terminal_goes_nowhere() -> None:
    """Otherwise the first line of progress would be an error, in place of an orderly end."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", CLOSED], stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        assert os.read(ours, 100).startswith(b"ready")
        os.close(ours)
        running.send_signal(signal.SIGHUP)
        assert running.wait(30) == 129
