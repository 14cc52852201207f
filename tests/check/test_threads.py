"""Files rebuilt from public threads: the cause of the thread comes first, and nothing wrong is called a fault."""

from __future__ import annotations

import pytest
from optional_packages import needs_openvino
from short_measurements import PEAK
from thread_files import THREADS, ask

from qbench.check import core_peak, race, runtimes

# In the codes of what only OpenVINO tells, always or where a race as short as here tells nothing.
OPENVINO = "elsewhere"


@pytest.fixture(autouse=True)
def _short_races(monkeypatch):
    monkeypatch.setattr(race, "PROCESSES", 2)
    monkeypatch.setattr(runtimes, "SECONDS", 0.05)
    monkeypatch.setattr(core_peak, "find_peak", lambda: PEAK)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "thread",
    [
        pytest.param(
            thread, marks=[needs_openvino] if OPENVINO in f"{thread.code} {thread.instead}" else [], id=thread.name
        )
        for thread in THREADS
    ],
)
def test_the_cause_of_the_thread_comes_first(thread, tmp_path):
    """In words that name it; ``python tests/benchmarks/check_threads.py`` prints what is said of each."""
    answer = ask(thread, tmp_path / "model.onnx", seconds=0.05)
    assert answer.list_wrong(thread) == []
    assert answer.is_right(thread), answer
