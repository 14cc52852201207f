"""Rules of qbench/upgrade/upgrade.py: three arms, two ways, and planted faults that a way is refused for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_verdicts import IDENTICAL, SAME, SIZE, SLOW, UNSURE, make_gated
from made_wheels import FAILS, FLIPS, use_index, wrap_onnxruntime

from qbench import suite as suites
from qbench.environments.pins import parse_pins
from qbench.errors import UsageError
from qbench.gating.rerun import Rerunner
from qbench.measure.group import RemoteWorker
from qbench.measure.samples import BlockTiming
from qbench.measure.worker import WorkerFacts, WorkerSpec
from qbench.progress.live import Silent
from qbench.upgrade import text
from qbench.upgrade.asked import Request, read_run_request
from qbench.upgrade.sentence import write_sentence
from qbench.upgrade.upgrade import ANEW, KEPT, Upgraded, upgrade

SUITE = """\
suite: small
models: [{name: net, source: {python: "network.py:perceptron"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static], backends: [onnxruntime]}
measure: {cold_starts: 1, processes: 1, max_seconds: 0.1}
gate: {latency: {max_regression: 3%}, accuracy: {margin: 10.0}}
"""
NETWORK = """\
import torch
from torch import nn

def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small suite, and an index with releases of onnxruntime that never were."""
    rng = np.random.default_rng(0)
    train, test = (rng.random((count, 1, 8, 8), dtype=np.float32) for count in (32, 400))
    test[::50, 0, 0, 0] = 2
    np.savez(tmp_path / "data.npz", train_inputs=train, train_labels=np.arange(32) % 10,
             test_inputs=test, test_labels=np.arange(400) % 10)  # fmt: skip
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "small.yaml").write_text(SUITE)
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    wrap_onnxruntime(tmp_path / "index", "91.0", FLIPS)
    wrap_onnxruntime(tmp_path / "index", "92.0", FAILS)
    use_index(tmp_path / "index", monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "small.yaml"


class SlowedWorkers:
    """Stands for ``RemoteWorker``: each arm is loaded once by a real one, under its environment; the times of calls are
    made up, those under ``slow`` 5 % longer, and move the clock."""

    def __init__(self, slow: str) -> None:
        self.slow = slow
        self.loaded: dict[str, WorkerFacts] = {}
        self.now = 0.0
        self.rng = np.random.default_rng(0)

    def __call__(self, spec: WorkerSpec, **options: Any) -> SlowedWorker:
        if spec.case not in self.loaded:
            worker = RemoteWorker(spec, **options)
            try:
                worker.load()
            finally:
                worker.close()
            assert worker.facts is not None
            self.loaded[spec.case] = worker.facts
        seconds = 1e-3 * (1.05 if spec.versions["onnxruntime"] == self.slow else 1) * self.rng.normal(1, 0.003)
        return SlowedWorker(self, self.loaded[spec.case], float(seconds))

    def clock(self) -> float:
        """The time that calls took."""
        return self.now


class SlowedWorker:
    """One process, pretended."""

    peak_rss_bytes = 100

    def __init__(self, workers: SlowedWorkers, facts: WorkerFacts, seconds: float) -> None:
        self.workers, self.facts, self.seconds = workers, facts, seconds

    def load(self) -> None:
        """Its artifact was loaded before."""

    def block(self, calls: int) -> BlockTiming:
        """Calls that spread by a thousandth."""
        self.workers.now += calls * self.seconds
        calls_ns = (self.seconds * 1e9 * self.workers.rng.normal(1, 0.001, calls)).astype(np.int64)
        return BlockTiming(calls_ns=calls_ns, involuntary=0, faults=0)

    def close(self) -> None:
        """Nothing is left behind."""


def ask(file: Path, version: str, workers: SlowedWorkers) -> Upgraded:
    """What upgrading to a version comes to."""
    to = parse_pins([f"onnxruntime=={version}"])
    request = Request(suite=suites.read(file), to=to, since=(), out=file.parent / "runs", quiet=True)
    return upgrade(request, Rerunner(progress=Silent(), open_remote=workers, clock=workers.clock))


def test_releases_with_planted_faults(file: Path) -> None:
    """One that is 5 % slower is named by that, and told with the 2 % of the examples that it answers otherwise; one
    that loads nothing by what it says. The old side of the first serves the second, too, and must be what the run was
    made under."""
    workers = SlowedWorkers("91.0")
    flipped = ask(file, "91.0", workers)
    assert flipped.after == {"onnxruntime": "91.0"}
    assert workers.loaded.keys() == {"baseline", "contender"}
    assert flipped.exit_code == 1
    assert write_sentence(flipped).startswith("Do not: static int8 on ONNX Runtime (net): 1.05")
    assert [change.reason for change in flipped.changes] == [None, None]
    assert [(change.way, change.same_file) for change in flipped.changes] == [(KEPT, True), (ANEW, True)]
    for change in flipped.changes:
        assert change.outputs is not None
        assert change.flips is not None
        assert (change.outputs.differing, change.outputs.n) == (8, 400)
        assert change.flips.harmful + change.flips.beneficial <= 8
        assert change.time is not None
        assert change.time.value == pytest.approx(1.05, abs=0.005)

    folder, to = min((file.parent / "runs/small").glob("2*")), parse_pins(["onnxruntime==92.0"])
    with pytest.raises(UsageError, match=r"--from onnxruntime==1: the run in .* was made under onnxruntime"):
        read_run_request(folder, to, parse_pins(["onnxruntime==1"]), only=None)
    broken = upgrade(
        read_run_request(folder, to, (), only=None, out=file.parent / "more", quiet=True), Rerunner(progress=Silent())
    )
    assert broken.exit_code == 1
    assert write_sentence(broken) == (
        "Do not: fp32 on ONNX Runtime (net) does not run: build: ONNX Runtime cannot load the model: NOT_IMPLEMENTED: "
        "Unsupported model IR version: 10"
    )
    assert "does not run" in text.text(broken)


def made(kept: Sequence[object], anew: Sequence[object]) -> Upgraded:
    """An upgrade whose two gates have these verdicts."""
    gates = {KEPT: make_gated(kept), ANEW: make_gated(anew)}  # type: ignore[arg-type]
    return Upgraded(suite="demo", before={}, after={}, along={}, gates=gates, changes=())


@pytest.mark.parametrize(
    ("kept", "anew", "way", "code"),
    [
        ([SAME], [SAME], KEPT, 0),
        ([SLOW], [SAME], ANEW, 0),
        ([SAME], [SLOW], KEPT, 0),
        ([SLOW], [UNSURE], ANEW, 4),
        ([SLOW], [SLOW], KEPT, 1),
        ([UNSURE], [SLOW], KEPT, 4),
    ],
)
def test_the_better_way_decides(kept: list[object], anew: list[object], way: str, code: int) -> None:
    """The exit code is its gate's, of both gates as one, too: what the other way breaks is noted there."""
    upgraded = made(kept, anew)
    assert (upgraded.way, upgraded.exit_code) == (way, code)
    assert upgraded.joined.exit_code == code
    rules = [verdict.rule for verdict in upgraded.joined.verdicts]
    assert rules == [f"{kept[0].rule} (same file)", f"{anew[0].rule} (built anew)"]  # type: ignore[attr-defined]


def test_both_gates_as_one_keep_their_notes_once() -> None:
    """And every verdict."""
    upgraded = made([SAME, SIZE], [IDENTICAL])
    gates = {way: replace(gated, notes=("a note",)) for way, gated in upgraded.gates.items()}
    joined = replace(upgraded, gates=gates).joined
    assert joined.notes == ("a note",)
    assert len(joined.verdicts) == 3
