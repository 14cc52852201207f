"""What a runtime's refusal means, and what to do about it."""

from __future__ import annotations

import itertools

import pytest

from qbench.check.runtimes import explain_refusal
from qbench.errors import WorkerError
from qbench.process.child_process import Limits, call


def count_forever(*, progress):
    """A call that never ends."""
    for _ in itertools.count():
        pass


def test_a_call_that_does_not_end_is_no_matter_of_a_suite():
    """What a process is stopped for is told in words of a check, which has no ``limits`` to raise."""
    with pytest.raises(WorkerError) as stopped:
        call(count_forever, limits=Limits(seconds=0.2))
    meaning, advice = explain_refusal(str(stopped.value))
    assert meaning == "a call of it did not end in 0.2 s, what a check has for a file of this size"
    assert "loop that never ends" in advice
    assert "(limits: {stage_seconds: …})" in advice
