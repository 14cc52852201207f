"""The fuzzers work: a few seeded examples of each go through, and a failure is found, named and made smaller."""

from __future__ import annotations

import random
from pathlib import Path

import harness
import pytest
import records

import suites
from qbench.errors import UsageError


@pytest.mark.parametrize(("fuzzer", "count"), [(suites.FUZZER, 60), (records.FUZZER, 8)], ids=lambda one: str(one)[:20])
def test_mutated_files_are_results_or_messages(fuzzer: harness.Fuzzer, count: int) -> None:
    """No traceback and no hang; an hour of it: ``python tests/fuzz/suites.py --seconds 3600 --seed 0``."""
    finds = [harness._tried(fuzzer, harness._made(fuzzer, 2, number), number)[1] for number in range(count)]
    assert [find.trace for find in finds if find is not None] == []


def test_an_example_follows_from_seed_and_number() -> None:
    """So that a find is seen again."""
    one, other = (harness._made(suites.FUZZER, 5, 7) for _ in range(2))
    assert one == other != harness._made(suites.FUZZER, 5, 8)


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

    def attempt(folder: Path) -> None:
        while True:
            try:
                sum(range(10**6))
            except Exception:
                continue

    fuzzer = harness.Fuzzer(name="made", make=lambda _: {}, attempt=attempt, deadline_seconds=0.2)
    find = harness._tried(fuzzer, {}, 0)[1]
    assert find is not None
    assert find.signature == "Hang"
