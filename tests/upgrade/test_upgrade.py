"""Rules of qbench/upgrade/upgrade.py: three arms, two ways, and planted faults that a way is refused for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_changes import CHANGE
from made_records import CASE, FP32, failed, fp32, info, int8, skipped
from made_runs import run_folder
from made_verdicts import IDENTICAL, OTHER_CPU, SAME, SIZE, SLOW, UNSURE, make_gated
from made_wheels import FAILS, FLIPS, use_index, wrap_onnxruntime

from qbench import suite as suites
from qbench.environments.environment import Environment, Locked, find_present
from qbench.environments.pins import parse_pin, parse_pins
from qbench.errors import NotComparable, UsageError
from qbench.gating.rerun import Rerunner
from qbench.gating.sequential_test import NotRun, ProcessPair, Rerun
from qbench.measure.group import RemoteWorker
from qbench.measure.samples import BlockTiming
from qbench.measure.worker import WorkerFacts, WorkerSpec
from qbench.portability.compare_hosts import OutputChange
from qbench.progress.live import Silent
from qbench.record.schema import ArtifactFacts, Record
from qbench.record.stored_run import StoredRun, SuiteInfo, read_run
from qbench.upgrade import text
from qbench.upgrade import upgrade as story
from qbench.upgrade.asked import Request, Sides, read_run_request
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


def make_upgraded(kept: Sequence[object], anew: Sequence[object]) -> Upgraded:
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
        ([OTHER_CPU], [SLOW], ANEW, 1),
        ([OTHER_CPU], [OTHER_CPU], KEPT, 3),
    ],
)
def test_the_better_way_decides(kept: list[object], anew: list[object], way: str, code: int) -> None:
    """The exit code is its gate's, of both gates as one, too: what the other way breaks is noted there."""
    upgraded = make_upgraded(kept, anew)
    assert (upgraded.way, upgraded.exit_code) == (way, code)
    assert upgraded.joined.exit_code == code
    rules = [verdict.rule for verdict in upgraded.joined.verdicts]
    assert rules == [f"{kept[0].rule} (same file)", f"{anew[0].rule} (built anew)"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kept", "anew", "effects"),
    [
        ([SAME], [SLOW, SAME], ["pass", "note", "pass"]),
        ([SLOW], [SLOW], ["fail", "fail"]),
        ([UNSURE], [SLOW, UNSURE, SAME], ["hold", "note", "hold", "pass"]),
    ],
)
def test_of_the_other_way_only_what_is_worse_than_all_is_set_aside(
    kept: list[object], anew: list[object], effects: list[str]
) -> None:
    """What is as bad as the better way weighs as it does there; what passes, passes."""
    assert [verdict.effect for verdict in make_upgraded(kept, anew).joined.verdicts] == effects


def test_both_gates_as_one_keep_their_notes_once() -> None:
    """And every verdict."""
    upgraded = make_upgraded([SAME, SIZE], [IDENTICAL])
    gates = {way: replace(gated, notes=("a note",)) for way, gated in upgraded.gates.items()}
    joined = replace(upgraded, gates=gates).joined
    assert joined.notes == ("a note",)
    assert len(joined.verdicts) == 3


RULES = """\
suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {}
gate: {size: {max_ratio: 0.9}}
"""
OTHER_BITS = OutputChange(n=450, differing=9, largest=0.1, agreement=1.0)
ONNX = ArtifactFacts(format="onnx", sha256="0" * 64, size_bytes=5)
ADDED = "net/dynamic/onednn/t1/b1"  # which the old side does not have
NEW = Environment(
    digest="1" * 64,
    folder=Path("/overlay"),
    lock=tuple(Locked(pin=parse_pin(pin)) for pin in ("onnxruntime==99.0", "qbt-along==1.0", "numpy==0.1")),
)
SIDES = Sides(old=find_present(), new=NEW, cases=(ADDED, "net/qat/onednn/t1/b1", CASE))


def store(tmp_path: Path, name: str, *records: Record) -> Path:
    """A run of the suite with those records, which has the rules of ``RULES`` and a file that has stricter ones."""
    (tmp_path / "demo.yaml").write_text(RULES.replace("0.9", "0.1"))
    suite = SuiteInfo(name="demo", file=str(tmp_path / "demo.yaml"), text=RULES)
    cases = tuple(record.case.id for record in records)
    return run_folder(
        tmp_path / name, list(records), info(cases, suite=suite, started=f"2026-01-01T00:00:0{len(name)}Z")
    )


def test_three_runs_come_to_a_gate_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rules that the runs were made with, whatever the suite's file says now; only what the old side has is
    described. The packages that were named, and what came along where it is another, have their versions."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(story, "find_sides", lambda request, tell: SIDES)
    old = store(tmp_path, "old", fp32(), int8(), failed("net/qat/onednn/t1/b1"))
    sides = {"the old files under the new libraries": "kept", "files built anew": "built"}
    folders = {name: store(tmp_path, folder, fp32(), int8(), skipped(ADDED)) for name, folder in sides.items()}
    built: list[tuple[list[str], Environment]] = []

    def build(words: Sequence[str], name: str, environment: Environment) -> Path:
        built.append(([*words], environment))
        return folders[name]

    request = Request(suite=suites.parse(RULES), to=parse_pins(["onnxruntime==99.0"]), since=(), run=old)
    upgraded = upgrade(request, Rerunner(progress=Silent()), build=build)
    assert built == [(["--artifacts", str(old)], NEW), ([], NEW)]
    assert [(change.case, change.way) for change in upgraded.changes] == [(CASE, KEPT), (CASE, ANEW)]
    assert {verdict.rule for gated in upgraded.gates.values() for verdict in gated.verdicts} >= {"size"}
    assert (upgraded.exit_code, upgraded.outcome) == (0, "PASS")
    assert upgraded.after == {"onnxruntime": "99.0"}
    assert upgraded.along == {"qbt-along": (None, "1.0"), "numpy": (np.__version__, "0.1")}


def test_an_old_side_without_a_case_that_is_ok_is_nothing_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as that, not as a baseline that nobody asked for."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(story, "find_sides", lambda request, tell: SIDES)
    old = store(tmp_path, "old", failed(FP32), failed())
    request = Request(suite=suites.parse(RULES), to=(), since=(), run=old)
    with pytest.raises(NotComparable, match="^the old side: "):
        upgrade(request, Rerunner(progress=Silent()), build=lambda words, name, environment: old)


def pairs(*ratios: float) -> Rerun:
    """What running a case again gave, before any look."""
    return Rerun(pairs=tuple(ProcessPair(ratio=ratio, control=0.0, drift=0.0) for ratio in ratios), analysis=None)


@pytest.mark.parametrize(
    ("sha256", "kept", "anew", "is_told"),
    [
        ("1", pairs(0.01, 0.02), pairs(0.03, 0.05), True),
        ("0", pairs(0.01, 0.02), pairs(0.03, 0.05), False),
        ("1", NotRun(reason="it died"), pairs(0.03, 0.05), False),
        ("1", pairs(0.01, 0.02), NotRun(reason="it died"), False),
    ],
)
def test_what_building_anew_adds_is_told_of_another_file(
    tmp_path: Path, sha256: str, kept: Rerun | NotRun, anew: Rerun | NotRun, is_told: bool
) -> None:
    """Where both were measured; beside the old file under the new libraries, of which nothing is told."""
    record = int8()
    assert record.artifact is not None
    after = replace(record, artifact=replace(record.artifact, sha256=sha256 * 64))
    old = read_run(store(tmp_path, "old", fp32(), record))
    new = read_run(store(tmp_path, "new", fp32(), after))
    measured = {KEPT: {CASE: kept}, ANEW: {CASE: anew}}
    changes = story._describe(old, {KEPT: old, ANEW: new}, SIDES, measured, suites.parse(RULES))
    assert [change.way for change in changes] == [KEPT, ANEW]
    assert changes[0].rebuilt is None
    assert (changes[1].rebuilt is not None) == is_told


@pytest.mark.parametrize(
    ("change", "artifact", "is_asked"),
    [
        (replace(CHANGE, outputs=OTHER_BITS), ONNX, True),
        (CHANGE, ONNX, False),
        (replace(CHANGE, outputs=None), ONNX, False),
        (replace(CHANGE, outputs=OTHER_BITS, same_file=False), ONNX, False),
        (replace(CHANGE, outputs=OTHER_BITS), replace(ONNX, format="torchscript"), False),
        (replace(CHANGE, outputs=OTHER_BITS), None, False),
    ],
)
def test_layers_are_asked_where_one_onnx_file_gives_other_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, artifact: ArtifactFacts | None, is_asked: bool
) -> None:
    """On the first examples of the run; elsewhere nothing is opened."""
    old = StoredRun(folder=tmp_path, info=info(), records=(fp32(), int8(artifact=artifact)))
    asked: list[Any] = []
    data = SimpleNamespace(evaluation_count=3, evaluation=lambda start, stop: (np.arange(start, stop),))
    monkeypatch.setattr(story, "find_in_cache", lambda record: Path("/cache/model.onnx"))
    monkeypatch.setattr(story, "prepare_run_data", lambda run, suite: data)
    monkeypatch.setattr(story, "find_first_layer", lambda *words: asked.append(words) or "conv1")
    described = story._with_first_layer(change, old, SIDES, suites.parse(RULES))
    assert described.first_layer == ("conv1" if is_asked else None)
    assert bool(asked) == is_asked
    if is_asked:
        file, inputs, before, after, limits = asked[0]
        assert (file, before, after) == (Path("/cache/model.onnx"), SIDES.old, SIDES.new)
        assert inputs[0].tolist() == [0, 1, 2]
        assert limits.seconds == suites.parse(RULES).limits.stage_seconds


def test_layers_stay_untold_where_the_file_or_the_data_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of the outputs are known all the same."""
    old = StoredRun(folder=tmp_path, info=info(), records=(int8(artifact=ONNX),))
    change = replace(CHANGE, outputs=OTHER_BITS)
    monkeypatch.setattr(story, "prepare_run_data", lambda run, suite: NotRun(reason="gone"))
    for file in (None, Path("/cache/model.onnx")):
        monkeypatch.setattr(story, "find_in_cache", lambda record, file=file: file)
        assert story._with_first_layer(change, old, SIDES, suites.parse(RULES)) == change


def test_a_side_is_run_by_a_program_that_looks_for_nothing_where_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the cases that are concerned, with the suite's overrides, as a first look; not quietly unless that was asked
    for."""
    asked: list[tuple[Any, ...]] = []

    def run_suite(*words: Any, **options: Any) -> Path:
        asked.append((words, options))
        return tmp_path / "run"

    monkeypatch.setattr(story, "run_suite", run_suite)
    suite = suites.parse(RULES, file="demo.yaml", overrides=["measure.processes=2"])
    for request in (Request(suite=suite, to=(), since=()), Request(suite=suite, to=(), since=(), quiet=True)):
        folder = story._build(request, SIDES, ["--artifacts", "x"], "a side", NEW)
        assert folder == tmp_path / "run"
    words, options = asked[0]
    assert words == (suite.file, ["--artifacts", "x", "--filter", ",".join(SIDES.cases)])
    assert options.pop("quiet") is False
    assert asked[1][1].pop("quiet") is True
    assert options == asked[1][1]
    assert options == {
        "name": "a side",
        "out": Request(suite=suite, to=(), since=()).out,
        "settings": ["measure.processes=2", "measure.spend=screening"],
        "environment": NEW,
        "from_here": False,
    }


def test_the_old_files_are_not_run_again_where_the_new_ones_brought_them_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session times all three arms; what only the old files have is timed alone. Each gate is asked as the run was
    made, for the cases that are concerned."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    old = store(tmp_path, "old", fp32(), int8(), int8("net/qat/onednn/t1/b1"))
    runs = {KEPT: read_run(old), ANEW: read_run(old)}
    both, alone = pairs(0.1, 0.2), pairs(0.3)
    timed: list[list[str]] = []

    class Arms:
        def run_arms(self, run: StoredRun, suite: object, held: object, *others: StoredRun) -> Any:
            timed.append([record.case.id for record in run.records])
            if others:
                assert others == (runs[KEPT],)
                return {CASE: both}, {CASE: both}
            return ({record.case.id: alone for record in run.records},)

    def gate_run(folder: Path, baseline: Path, *, rerun: Any, **options: Any) -> Any:
        assert options == {"only": ",".join(SIDES.cases), "as_run": True, "ref": "the old side"}
        rerun(runs[KEPT], None, None)
        return make_gated([SAME])

    monkeypatch.setattr(story, "gate_run", gate_run)
    gates, measured = story._judge(old, runs, SIDES, Arms(), tmp_path)  # type: ignore[arg-type]
    assert timed == [[FP32, CASE, "net/qat/onednn/t1/b1"], [FP32, "net/qat/onednn/t1/b1"]]
    assert list(gates) == [KEPT, ANEW]
    assert measured[KEPT] == {CASE: both, FP32: alone, "net/qat/onednn/t1/b1": alone}
    assert measured[ANEW] == {CASE: both}
