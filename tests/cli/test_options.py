"""What a command takes, and what it does for a caller who names nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_records import same_as_golden

from qbench.cli.options import with_hosts

ROOT = Path(__file__).parents[2]


def test_the_options_of_every_command_and_what_holds_without_them() -> None:
    """Names, defaults and limits are what scripts rely on; tests give most options, so that none would notice another
    default. They are those of a process that has just started. ``QBENCH_WRITE_GOLDEN=1`` writes the list anew."""
    command = [sys.executable, str(ROOT / "tests/fixtures/listed_options.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert same_as_golden("options.txt", listed.stdout)


@pytest.mark.parametrize(
    ("overrides", "hosts", "expected"),
    [
        (None, None, ()),
        (["a=1"], None, ("a=1",)),
        (None, "native, avx2,", ("hosts=[native, avx2]",)),
        (["a=1"], "", ("a=1", "hosts=[]")),
    ],
)
def test_hosts_are_one_more_override(overrides, hosts, expected) -> None:
    """Behind the others, so that it wins; where none are named, the suite's stay."""
    assert with_hosts(overrides, hosts) == expected
