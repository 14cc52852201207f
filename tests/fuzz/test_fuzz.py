"""The fuzzers work: a few seeded examples of each go through, and a failure is found, named and made smaller."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import harness
import pytest
import records

import suites
from qbench.errors import UsageError

FUZZERS = Path(__file__).parent


@pytest.mark.parametrize(
    ("fuzzer", "count"), [(suites.FUZZER, 60), (records.FUZZER, 8)], ids=lambda value: str(value)[:20]
)
def test_mutated_files_are_results_or_messages(fuzzer: harness.Fuzzer, count: int) -> None:
    """No traceback and no hang; an hour of it: ``python tests/fuzz/suites.py --seconds 3600 --seed 0``."""
    finds = [harness._tried(fuzzer, harness._make_files(fuzzer, 2, number), number)[1] for number in range(count)]
    assert [find.trace for find in finds if find is not None] == []


def test_odd_command_lines_end_in_one_message() -> None:
    """Each in time, with a documented exit code; thousands: ``python tests/fuzz/command_lines.py --count 7000``."""
    command = [sys.executable, str(FUZZERS / "command_lines.py"), "--count", "25", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_example_follows_from_seed_and_number() -> None:
    """So that a find is seen again."""
    files, again = (harness._make_files(suites.FUZZER, 5, 7) for _ in range(2))
    assert files == again != harness._make_files(suites.FUZZER, 5, 8)


def test_a_failure_is_named_and_made_smaller() -> None:
    """What the failure does not need goes; an error that qbench raises on purpose is none."""

    def attempt(folder: Path) -> None:
        text = (folder / "a").read_bytes()
        if b"x" in text:
            raise KeyError("x")
        raise UsageError("no x")

    fuzzer = harness.Fuzzer(name="made", make=lambda _: {"a": b"one\ntwo x\nthree\n"}, attempt=attempt)
    outcome, find = harness._tried(fuzzer, fuzzer.make(random.Random(0)), 0)
    assert (outcome, find is not None) == ("find", True)
    assert find is not None
    assert find.signature == "KeyError at outside of qbench"
    assert harness._shrunk(fuzzer, find).files == {"a": b"x"}
    assert harness._tried(fuzzer, {"a": b"none"}, 0) == ("refused", None)


def test_a_hang_is_a_find() -> None:
    """A loop that no exception handler ends is stopped by its deadline."""
    assert in_a_process(LOOPS, "print(harness._tried(loops, {}, 0)[1].signature)") == (0, "Hang")


def test_a_signal_that_comes_after_its_attempt_ends_nothing() -> None:
    """By default either of the deadline's two signals ends a process without a word."""
    late = "for number in SIGNALS:\n    os.kill(os.getpid(), number)\n"
    ended = "print(harness._tried(done, {}, 0), harness._tried(loops, {}, 0)[0])\n"
    assert in_a_process(LOOPS, ended + late) == (0, "('ok', None) find")


def test_both_limits_in_the_same_moment_are_one_hang() -> None:
    """A machine that stood still passes both at once; the second signal interrupts nobody who tidies up."""
    tried = "for _ in range(3):\n    print(harness._tried(both, {}, 0)[1].trace.count('harness.Hang:'), end=' ')\n"
    assert in_a_process(LOOPS, tried + "print(harness._tried(done, {}, 0))") == (0, "1 1 1 ('ok', None)")


LOOPS = """
import os, signal
import harness

SIGNALS = {signal.SIGPROF, signal.SIGALRM}

def loop(folder):
    while True:
        try:
            sum(range(10**6))
        except Exception:
            continue

def both_limits(folder):
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    loop(folder)

loops, both, done = (
    harness.Fuzzer(name="made", make=lambda _: {}, attempt=attempt, deadline_seconds=0.2)
    for attempt in (loop, both_limits, lambda folder: None)
)
"""


def in_a_process(*program: str) -> tuple[int, str]:
    """The exit code (negative: the signal that ended it) and the output of a program that sends itself signals."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parents[2], FUZZERS)))}
    command = [sys.executable, "-c", "\n".join(program)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout.strip() or ended.stderr
