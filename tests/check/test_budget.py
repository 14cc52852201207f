"""How long a check may take, however many processes read the file."""

from __future__ import annotations

import pytest

from qbench.check.budget import open_budget


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_processes_that_do_not_end_take_no_longer_together_than_the_check_has(tmp_path, clock):
    """Each has half of what is left: six of them end within the budget and the little that one always has."""
    (tmp_path / "model.onnx").write_bytes(b"")
    budget = open_budget(tmp_path / "model.onnx", clock)
    granted = []
    for _ in range(6):
        granted.append(budget.limits.seconds)
        clock.now += granted[-1]
    assert granted == [50.0, 25.0, 12.5, 6.2, 5.0, 5.0]
    assert sum(granted) <= 100.0 + 5.0


def test_a_process_that_ends_leaves_the_others_their_time(tmp_path, clock):
    """What counts is the time that passed, not how many were started."""
    (tmp_path / "model.onnx").write_bytes(b"")
    budget = open_budget(tmp_path / "model.onnx", clock)
    clock.now += 4.0
    assert budget.limits.seconds == 48.0


def test_weights_beside_a_file_give_it_time(tmp_path, clock):
    """10 MB of weights in a file of their own are 10 seconds more; another model's are none."""
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "model.onnx.data").write_bytes(bytes(10_000_000))
    (tmp_path / "other.onnx.data").write_bytes(bytes(10_000_000))
    (tmp_path / "model.onnx.link").symlink_to("gone")
    (tmp_path / "model").mkdir()
    assert open_budget(tmp_path / "model.onnx", clock).limits.seconds == 55.0
