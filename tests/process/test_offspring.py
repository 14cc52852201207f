"""What a process tells the one that ends its children, and how it ends itself."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from qbench.process import offspring


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
def test_the_end_is_over_when_it_returns(tmp_path: Path) -> None:
    """qbench that has ended has left nothing behind; a fork of it ends nothing of its parent's."""
    reaper = offspring._start(tmp_path, "a mark of no process")
    assert reaper is not None
    parents = offspring.Offspring(folder=tmp_path, mark="", reaper=reaper, owner=os.getpid())
    dataclasses.replace(parents, owner=os.getppid()).end()
    assert reaper.poll() is None
    parents.end()
    assert reaper.returncode == 0


def test_a_process_has_one() -> None:
    """Every child of it is told to the same."""
    assert offspring.offspring() is offspring.offspring()
