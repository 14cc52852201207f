"""Signals that end a command: the exit code, what is ignored, and a run that is measuring when one comes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest
from ending_signals import as_a_shell_starts_it

from qbench.cli.signals import ENDING, EndingSignals

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
BEGIN = """
import contextlib, signal, sys, threading
from qbench.cli.signals import ENDING, EndingSignals

def interrupted(act):
    try:
        act()
    except KeyboardInterrupt:
        return True
    return False

number, signals = signal.Signals(int(sys.argv[1])), EndingSignals()
"""


def run_program(program: str, number: signal.Signals = signal.SIGTERM) -> subprocess.CompletedProcess[str]:
    """A program in a process that a shell has just started: signals are not for the process of the tests, where a
    default handler of some library would end them all."""
    with as_a_shell_starts_it():
        running = subprocess.Popen(
            [sys.executable, "-c", BEGIN + program, str(int(number))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    output, errors = running.communicate(timeout=30)
    return subprocess.CompletedProcess(running.args, running.returncode, output, errors)


FIRST = """
with contextlib.suppress(KeyboardInterrupt), signals.interrupting():
    signal.raise_signal(number)
    print("not raised")
for later in ENDING:
    signal.raise_signal(later)
sys.exit(signals.exit_code)
"""


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_interrupts_and_gives_the_exit_code(number: signal.Signals) -> None:
    """Those that come while the command ends are ignored, until nothing is left that must end."""
    ended = run_program(FIRST, number)
    assert (ended.returncode, ended.stdout, ended.stderr) == (CODES[number], "", "")


AGAIN = """
with signals.interrupting():
    raised = [interrupted(lambda: signal.raise_signal(each)) for each in (signal.SIGTERM, signal.SIGINT)]
    signals.raise_again()
    raised += [interrupted(lambda: signal.raise_signal(signal.SIGINT)) for _ in range(2)]
print(raised)
sys.exit(signals.exit_code)
"""


def test_a_signal_interrupts_again_once_all_has_ended() -> None:
    """The report of an interrupted run can be left out; the exit code is that of the first signal."""
    ended = run_program(AGAIN)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "[True, False, True, False]\n", "")


IMPORTING = """
import _imp, os

main = threading.get_ident()
taken = threading.Event()

def import_elsewhere():
    _imp.acquire_lock()
    taken.set()
    while not sys._current_frames()[main].f_code.co_filename.startswith("<frozen importlib"):
        pass
    os.kill(os.getpid(), number)
    _imp.release_lock()

def import_here():
    taken.wait()
    import wave
    threading.Event().wait()

other = threading.Thread(target=import_elsewhere)
with signals.interrupting():
    other.start()
    raised = interrupted(import_here)
other.join()
print(raised, _imp.lock_held())
sys.exit(signals.exit_code)
"""


def test_a_signal_leaves_no_lock_of_imports_taken() -> None:
    """Where the main thread waits for the lock while another imports, it is interrupted behind that, and not between
    the taking of the lock and its release: the other threads of a run import, too, and would wait for ever."""
    ended = run_program(IMPORTING)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "True False\n", "")


FINALIZED = """
class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
        len("the handler runs before this")

with signals.interrupting():
    Finalized()
    print(interrupted(lambda: threading.Event().wait(30)))
sys.exit(signals.exit_code)
"""


def test_an_interrupt_that_python_drops_comes_again() -> None:
    """What a finalizer raises is dropped: SIGTERM, which is sent once, would have no effect."""
    ended = run_program(FINALIZED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "True\n", "")


LOST = """
class Finalized:
    def __del__(self):
        raise ValueError("of a library")

class Interrupted:
    def __del__(self):
        raise KeyboardInterrupt

with signals.interrupting():
    Finalized()
    Interrupted()
    print(interrupted(lambda: signal.raise_signal(number)))
    signals.raise_again()
    Finalized()
"""


def test_what_else_python_drops_is_shown_as_ever() -> None:
    """Before a signal and behind it; an interrupt that was no signal is not sent again."""
    ended = run_program(LOST)
    assert (ended.returncode, ended.stdout) == (0, "True\n")
    kinds = [line.partition(":")[0] for line in ended.stderr.splitlines() if line[0] not in " TE"]
    assert kinds == ["ValueError", "KeyboardInterrupt", "ValueError"]


IGNORED = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with signals.interrupting():
    print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
    signal.raise_signal(signal.SIGHUP)
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
"""


def test_what_was_ignored_at_the_start_stays_ignored() -> None:
    """nohup ignores SIGHUP, a shell SIGINT of what it starts in the background."""
    ended = run_program(IGNORED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\nTrue\n", "")


def test_a_command_that_ends_by_itself_leaves_the_handlers() -> None:
    """Nothing of it is left in a process that goes on, and an interrupt that was no signal is that of Ctrl-C."""
    with as_a_shell_starts_it():
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
    for stream in (sys.stdout, sys.stderr):
        print("ends", file=stream, flush=True)
    sys.exit(signals.exit_code)
"""


def test_what_is_written_to_a_closed_terminal_goes_nowhere() -> None:
    """Otherwise the first line of progress would be an error, in place of an orderly end."""
    ours, theirs = pty.openpty()
    with as_a_shell_starts_it():  # what runs these tests may ignore SIGHUP
        running = subprocess.Popen([sys.executable, "-c", CLOSED], stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        os.close(theirs)
        said = b""
        while not said.endswith(b"\n"):  # a line comes in pieces: closed before its last, the writing of it is an error
            said += os.read(ours, 100)
        assert said == b"ready\r\n"
        os.close(ours)
        running.send_signal(signal.SIGHUP)
        assert running.wait(30) == 129
    finally:
        running.kill()
        running.wait()
