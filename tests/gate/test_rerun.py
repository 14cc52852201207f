"""Rules of qbench/gate/rerun.py: what is run again, from which files, and what becomes of a process that dies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import CASE, FP32, fp32, info, int8, skipped

from qbench import suite
from qbench.cache import store
from qbench.errors import DataError, WorkerError
from qbench.gate import rerun
from qbench.gate.baseline import Baseline
from qbench.gate.rerun import Rerunner
from qbench.gate.sequential_test import NotRun, Rerun
from qbench.machine import fingerprint
from qbench.measure.group import Measured, measure_group
from qbench.measure.protocol import CONTROL
from qbench.measure.samples import BlockTiming, Samples
from qbench.measure.worker import WorkerSpec
from qbench.progress.live import Silent
from qbench.record.schema import ArtifactFacts, Record
from qbench.record.stored_run import RunInfo, StoredRun, SuiteInfo

SUITE = suite.parse("suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n")
OTHER = "net/static/onnxruntime/t1/b1"


def here(**changes: Any) -> RunInfo:
    """A run on this machine."""
    return info(environment={**fingerprint.fingerprint(), **changes})


class Measuring:
    """Stands for ``measure_group``: the contender's time over the baseline's is 1 + ``change``; dies on demand."""

    def __init__(self, change: float = 0.0, *, dies: Callable[[int], bool] = lambda number: False) -> None:
        self.change = change
        self.dies = dies
        self.calls: list[tuple[WorkerSpec, WorkerSpec, dict[str, Any]]] = []

    def __call__(self, baseline: WorkerSpec, contenders: Sequence[WorkerSpec], **options: Any) -> dict[str, Measured]:
        (contender,) = contenders
        self.calls.append((baseline, contender, options))
        samples = error = None
        if self.dies(len(self.calls)):
            error = WorkerError("the process was ended by SIGSEGV")
        else:
            rng = np.random.default_rng(len(self.calls))
            ratios = np.log1p(self.change) + rng.normal(0, 0.005, 20)
            samples = Samples(
                protocol="paired", stopped="fixed", log_ratios=ratios, control_log_ratios=rng.normal(0, 0.005, 20)
            )
        return {contender.case: Measured(samples=samples, error=error, facts=(), peak_rss_bytes=None)}


class Told(Silent):
    """What was reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def advance(self, text: str, share: float | None = None) -> None:
        """Keeps what is said of a step."""
        self.lines.append(text)

    note = advance


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The data is read here, not in a child, into a cache of the test's own."""
    monkeypatch.setattr(rerun, "call", lambda function, *args, limits: function(*args, progress=lambda *_: None))
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))


def built(record: Record, text: str) -> Record:
    """The record with an artifact of that content in the cache."""
    root = store.open_cache()

    def fill(folder: Path) -> dict[str, Any]:
        (folder / "model.pt").write_text(text)
        return {"file": "model.pt"}

    key = store.key_of({"artifact": text})
    entry = store.fetch(root, "artifacts", key, fill)
    facts = ArtifactFacts(
        format="torchscript", sha256=store.file_digest(entry.folder / "model.pt"), size_bytes=len(text), key=key
    )
    return replace(record, artifact=facts)


def stored(records: Sequence[Record], described: RunInfo | None = None) -> StoredRun:
    """A run of those records, on this machine."""
    return StoredRun(folder=Path("r"), info=described or here(), records=tuple(records))


def held(records: Sequence[Record], described: RunInfo | None = None) -> Baseline:
    """A baseline of those records, from this machine."""
    return Baseline(info=described or here(), records=tuple(records))


def test_both_artifacts_are_run_on_the_same_cores_with_the_same_examples() -> None:
    """The baseline's file against the run's, in fresh interpreters, with the run's threads, batch and real inputs."""
    measuring = Measuring()
    reruns = Rerunner(progress=Silent(), measure=measuring)(
        stored([fp32(), built(int8(), "new")]), SUITE, held([fp32(), built(int8(), "old")])
    )
    assert list(reruns) == [CASE]
    old, new, options = measuring.calls[0]
    assert (old.file.read_text(), new.file.read_text()) == ("old", "new")
    assert (old.cores, old.threads, old.batch_size, old.backend) == (new.cores, 1, 1, "onednn")
    assert old.inputs[0].shape == (8, 1, 8, 8)
    assert options["fresh"] is True
    assert old.case != new.case


def test_native_code_beside_a_baseline_runs_only_where_that_is_said(tmp_path: Path) -> None:
    """Whoever commits a baseline writes both artifact and sha256; what lies in the cache was built here."""
    record = built(int8(), "theirs")
    old, new = record, built(int8(), "ours")
    assert record.artifact is not None
    assert record.artifact.key is not None
    file = tmp_path / "baselines" / "demo.jsonl"
    cached = store.cache_folder() / "artifacts" / record.artifact.key
    cached.rename((file.parent / "demo").mkdir(parents=True) or file.parent / "demo" / record.artifact.sha256)
    baseline = replace(held([old]), file=file)
    measuring = Measuring()
    refused = Rerunner(progress=Silent(), measure=measuring)(stored([new]), SUITE, baseline)[CASE]
    assert isinstance(refused, NotRun)
    assert "it is native code: --trust-baseline-artifacts runs it" in refused.reason
    assert not measuring.calls
    executed = Rerunner(progress=Silent(), measure=measuring, trust_beside=True)(stored([new]), SUITE, baseline)[CASE]
    assert isinstance(executed, Rerun)


def test_a_record_leads_to_no_folder_outside_the_cache(tmp_path: Path) -> None:
    """The key in a committed record is data: `../` in it is no way to a folder of the same commit."""
    record = built(int8(), "theirs")
    assert record.artifact is not None
    assert record.artifact.key is not None
    (store.cache_folder() / "artifacts" / record.artifact.key).rename(tmp_path / "committed")
    evil = replace(record, artifact=replace(record.artifact, key="../../committed"))
    assert (store.cache_folder() / "artifacts" / "../../committed").is_dir()
    reruns = Rerunner(progress=Silent(), measure=Measuring())(stored([evil]), SUITE, held([evil]))[CASE]
    assert isinstance(reruns, NotRun)


def test_data_of_a_suite_that_is_not_here_are_not_opened(tmp_path: Path) -> None:
    """Somebody else's run names Python: it is not imported, and the verdict says why the stored figures were judged."""
    text = f"suite: demo\nmodels: [digits-cnn]\ndata: {{dataset: {{python: '{tmp_path}/d.py:f'}}}}\nmatrix: {{}}\n"
    (tmp_path / "d.py").write_text("raise SystemExit('imported')")
    described = replace(here(), suite=SuiteInfo(name="demo", file=str(tmp_path / "gone.yaml"), text=text))
    record = built(int8(), "same")
    reruns = Rerunner(progress=Silent(), measure=Measuring())(
        stored([record], described), suite.parse(text), held([record])
    )[CASE]
    assert isinstance(reruns, NotRun)
    assert "gone.yaml is not there; name it with --suite" in reruns.reason


def test_equal_artifacts_are_still_run() -> None:
    """The same bytes on both sides are the A/A check that a user can make."""
    measuring = Measuring()
    record = built(int8(), "same")
    reruns = Rerunner(progress=Silent(), measure=measuring)(stored([record]), SUITE, held([record]))
    assert len(measuring.calls) == 6
    assert isinstance(reruns[CASE], Rerun)


@pytest.mark.parametrize(
    ("change", "outcome", "pairs"), [(0.0, "PASS", 6), (0.1, "FAIL", 6), (0.05, "INCONCLUSIVE", 12)]
)
def test_it_stops_at_the_analysis_that_decides(change: float, outcome: str, pairs: int) -> None:
    """Clear cases take 6 process pairs; what lies at the tolerance takes all 12, each round in another order."""
    measuring = Measuring(change)
    record = built(int8(), "same")
    result = Rerunner(progress=Silent(), measure=measuring)(stored([record]), SUITE, held([record]))[CASE]
    assert isinstance(result, Rerun)
    assert result.analysis is not None
    assert (result.analysis.outcome, len(result.pairs), len(measuring.calls)) == (outcome, pairs, pairs)
    assert len({options["protocol"].seed for _, _, options in measuring.calls}) == pairs


def test_a_process_that_dies_ends_its_own_case() -> None:
    """The reason is kept, the pairs before it too, and the next case is still judged."""
    records = [built(int8(), "one"), built(int8(OTHER), "two")]
    reruns = Rerunner(progress=Silent(), measure=Measuring(dies=lambda number: number == 3))(
        stored(records), SUITE, held(records)
    )
    first, second = reruns[CASE], reruns[OTHER]
    assert isinstance(first, Rerun)
    assert (first.analysis, first.reason, len(first.pairs)) == (None, "the process was ended by SIGSEGV", 2)
    assert isinstance(second, Rerun)
    assert second.analysis is not None
    assert second.analysis.outcome == "PASS"


@pytest.mark.parametrize("blocks", [0, 7])
def test_a_control_that_died_is_said(blocks: int) -> None:
    """Without the control nothing vouches for the ratio: the case ends with that reason, however far it came."""
    measuring = Measuring()

    def without(*args: Any, watch: Callable[[str], None], **options: Any) -> dict[str, Measured]:
        (case, result), *_ = measuring(*args, **options).items()
        assert result.samples is not None
        watch(CONTROL)
        return {case: replace(result, samples=replace(result.samples, control_log_ratios=np.zeros(blocks)))}

    record = built(int8(), "same")
    result = Rerunner(progress=Silent(), measure=without)(stored([record]), SUITE, held([record]))[CASE]
    assert isinstance(result, Rerun)
    assert "control" in str(result.reason)


class DyingControl:
    """An arm that answers at once; the second one of the baseline, the control, dies after some rounds."""

    facts = peak_rss_bytes = None
    opened = 0

    def __init__(self, spec: WorkerSpec, *, limits: Any, fresh: bool) -> None:
        self.control = spec.case == "baseline" and DyingControl.opened == 1
        DyingControl.opened += spec.case == "baseline"
        self.timed = 0

    def load(self) -> None:
        """Loaded at once."""

    def block(self, calls: int) -> BlockTiming:
        """Calls of a millisecond; the first ten are the warm-up."""
        self.timed += calls != 10
        if self.control and self.timed == 15:
            raise WorkerError("the process was ended by SIGKILL")
        return BlockTiming(calls_ns=np.full(calls, 1_000_000), cpu_ns=0, involuntary=0, faults=0)

    def close(self) -> None:
        """Nothing is left behind."""


def test_the_protocol_tells_of_a_control_that_dies_amid_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real protocol: the rounds that the control had do not pass for a whole process pair."""
    monkeypatch.setattr(DyingControl, "opened", 0)
    record = built(int8(), "same")
    measure = functools.partial(measure_group, open_remote=DyingControl)
    result = Rerunner(progress=Silent(), measure=measure)(stored([record]), SUITE, held([record]))[CASE]
    assert isinstance(result, Rerun)
    assert (result.analysis, result.pairs) == (None, ())
    assert "control" in str(result.reason)


def test_an_artifact_that_no_runtime_loads_is_a_reason_not_a_crash() -> None:
    """With real processes: a file that is no model ends the case with what the runtime said."""
    record = built(int8(OTHER), "no model")
    result = Rerunner(progress=Silent())(stored([record]), SUITE, held([record]))[OTHER]
    assert isinstance(result, Rerun)
    assert result.analysis is None
    assert result.reason


def test_only_int8_cases_that_both_have_are_run() -> None:
    """fp32, new cases and those that are not ok on either side have nothing to be held against."""
    measuring = Measuring()
    run = stored([fp32(), int8(), skipped(OTHER)])
    assert Rerunner(progress=Silent(), measure=measuring)(run, SUITE, held([fp32(), skipped(), int8(OTHER)])) == {}
    assert FP32 in {record.case.id for record in run.records}
    assert measuring.calls == []


@pytest.mark.parametrize(
    ("run", "base", "said"),
    [
        (
            here(),
            here(isa_switches=["ONEDNN_MAX_CPU_ISA=SSE41"]),
            "the baseline's artifact was built on another kind of machine (isa_switches differs)",
        ),
        (here(), here(isa=["avx2"]), "the baseline's artifact was built on another kind of machine (isa differs)"),
        (here(arch="riscv64"), here(), "this run was built on another kind of machine (arch differs)"),
    ],
)
def test_an_artifact_from_another_kind_of_machine_is_not_run(run: RunInfo, base: RunInfo, said: str) -> None:
    """Architecture, instruction sets and system must be those that it was built for."""
    record = built(int8(), "same")
    events = Told()
    reruns = Rerunner(progress=events, measure=Measuring())(stored([record], run), SUITE, held([record], base))
    assert reruns == {CASE: NotRun(reason=said)}
    assert any(said in line for line in events.lines)


def test_another_cpu_of_the_same_kind_runs_both() -> None:
    """Both run here, so where the baseline was measured does not matter, unlike for stored figures."""
    record = built(int8(), "same")
    reruns = Rerunner(progress=Silent(), measure=Measuring())(stored([record]), SUITE, held([record], here(cpu="B")))
    assert isinstance(reruns[CASE], Rerun)


def test_an_artifact_that_is_gone_or_changed_is_not_run() -> None:
    """The file must have the sha256 of its record; the reason says whose artifact is missing."""
    old, new = built(int8(), "old"), built(int8(), "new")
    run_it = Rerunner(progress=Silent(), measure=Measuring())
    lost = replace(old, artifact=replace(old.artifact, key="0" * 64)) if old.artifact else old
    assert "the baseline's artifact" in str(run_it(stored([new]), SUITE, held([lost]))[CASE])
    assert new.artifact is not None
    file = store.cache_folder() / "artifacts" / str(new.artifact.key) / "model.pt"
    file.write_text("tampered")
    assert "this run is no longer in the cache" in str(run_it(stored([new]), SUITE, held([old]))[CASE])


def test_more_threads_than_cores_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case of 2 threads on 1 core would be another case."""
    monkeypatch.setattr(fingerprint, "allowed_cores", lambda *root: (3,))
    record = built(int8("net/static/onednn/t2/b1"), "same")
    reruns = Rerunner(progress=Silent(), measure=Measuring())(stored([record]), SUITE, held([record]))
    assert reruns["net/static/onednn/t2/b1"] == NotRun(reason="it takes 2 cores, 1 may be used here")


def test_data_that_cannot_be_read_leaves_the_stored_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing needs real examples; without them every case says so and nothing is run."""

    def unreadable(*args: Any, limits: Any) -> Any:
        raise DataError("photos: no such folder")

    monkeypatch.setattr(rerun, "call", unreadable)
    record = built(int8(), "same")
    reruns = Rerunner(progress=Silent(), measure=Measuring())(stored([record]), SUITE, held([record]))
    assert reruns == {CASE: NotRun(reason="the suite's data cannot be read: photos: no such folder")}


def test_progress_tells_the_process_pair_and_the_case() -> None:
    """A user sees how far a gate of half a minute is."""
    events = Told()
    record = built(int8(), "same")
    Rerunner(progress=events, measure=Measuring())(stored([record]), SUITE, held([record]))
    assert events.lines[0] == f"{CASE}: process pair 1"
    assert events.lines[-1] == CASE
