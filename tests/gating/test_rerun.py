"""Rules of qbench/gating/rerun.py: what is run again, from which files, and what becomes of a process that dies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from made_records import CASE, FP32, fp32, info, int8, skipped

from qbench import suite
from qbench.cache import store
from qbench.data import request_of
from qbench.environments.environment import Environment
from qbench.errors import CaseError, DataError, WorkerError
from qbench.gating import live_case, rerun
from qbench.gating.baseline import Baseline
from qbench.gating.live_case import LiveRules
from qbench.gating.rerun import Rerunner
from qbench.gating.sequential_test import NotRun, ProcessPair, Rerun
from qbench.machine import fingerprint
from qbench.measure.pairing import PairedBlocks
from qbench.measure.samples import BlockTiming
from qbench.measure.worker import WorkerFacts, WorkerSpec
from qbench.process.child_process import Limits
from qbench.progress.live import Silent
from qbench.record.schema import Accuracy, ArtifactFacts, HostFacts, OutputScore, Record
from qbench.record.stored_run import POSTPROCESS, RunInfo, StoredRun, SuiteInfo
from qbench.suite import Suite

SUITE = suite.parse("suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n")
OTHER = "net/static/onnxruntime/t1/b1"


def here(**changes: Any) -> RunInfo:
    """A run on this machine."""
    return info(environment={**fingerprint.fingerprint(), **changes})


class Arms:
    """Stands for ``RemoteWorker``: the contender's time over the baseline's is 1 + ``change``, fp32 takes twice the
    baseline's; an arm dies on demand, told by (arm, how many of it were opened before, copies of the baseline apart),
    and ``tells`` how it started; each contender takes longer by ``grows`` than the one before. A call moves the clock.
    """

    def __init__(
        self,
        change: float = 0.0,
        *,
        dies: Callable[[str, int], bool] = lambda arm, number: False,
        tells: Callable[[str, int], bool] = lambda arm, number: True,
        grows: float = 0.0,
    ) -> None:
        self.change, self.grows = change, grows
        self.dies, self.tells = dies, tells
        self.specs: list[WorkerSpec] = []
        self.options: list[dict[str, Any]] = []
        self.now = 0.0
        self.rng = np.random.default_rng(0)

    def __call__(self, spec: WorkerSpec, **options: Any) -> Arm:
        number = sum(other.case == spec.case for other in self.specs)
        self.specs.append(spec)
        self.options.append(options)
        took = {"baseline": 1e-3, "contender": (1 + self.change) * 1e-3, "kept": 1.02e-3, "fp32": 2e-3}
        seconds = took[spec.case]
        seconds *= float(np.exp(self.rng.normal(0, 0.003))) * (1 + self.grows * number * (spec.case == "contender"))
        return Arm(self, seconds, dies=self.dies(spec.case, number), tells=self.tells(spec.case, number))

    def clock(self) -> float:
        return self.now

    @property
    def pairs(self) -> int:
        """How many process pairs were begun."""
        return sum(spec.case == "contender" for spec in self.specs)


class Arm:
    """One worker."""

    peak_rss_bytes = 100

    def __init__(self, arms: Arms, seconds: float, *, dies: bool, tells: bool) -> None:
        self.arms, self.seconds, self.dies = arms, seconds, dies
        facts = WorkerFacts(
            load_seconds=seconds, first_call_seconds=seconds, next_calls_seconds=(), loaded_rss_bytes=1, observed={}
        )
        self.facts = facts if tells else None
        self.blocks = 0

    def load(self) -> None:
        """Loaded at once."""

    def block(self, calls: int) -> BlockTiming:
        """Calls that spread by a thousandth."""
        self.blocks += 1
        if self.dies and self.blocks == 30:
            raise WorkerError("the process was ended by SIGSEGV")
        self.arms.now += calls * self.seconds
        calls_ns = (self.seconds * 1e9 * self.arms.rng.normal(1, 0.001, calls)).astype(np.int64)
        return BlockTiming(calls_ns=calls_ns, involuntary=0, faults=0)

    def close(self) -> None:
        """Nothing is left behind."""


def rerunner(arms: Arms | None = None, **changes: Any) -> Rerunner:
    """One whose workers and clock are ``arms``."""
    arms = arms or Arms()
    return Rerunner(**{"progress": Silent(), "open_remote": arms, "clock": arms.clock, **changes})


class Told(Silent):
    """What was reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shares: list[float | None] = []

    def stage(self, name: str, total: int | None = None) -> None:
        """Keeps the name of a stage and its number of steps."""
        self.lines.append(f"{name} {total}")

    def advance(self, text: str, share: float | None = None) -> None:
        """Keeps what is said of a step, and how far it is."""
        self.lines.append(text)
        self.shares.append(share)

    def note(self, text: str) -> None:
        """Keeps a note."""
        self.lines.append(text)


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
    arms = Arms()
    reruns = rerunner(arms)(stored([fp32(), built(int8(), "new")]), SUITE, held([fp32(), built(int8(), "old")]))
    assert list(reruns) == [CASE]
    old, new, control = arms.specs[:3]
    assert control == old
    assert (old.file.read_text(), new.file.read_text()) == ("old", "new")
    assert (old.cores, old.threads, old.batch_size, old.backend) == (new.cores, 1, 1, "onednn")
    assert old.inputs[0].shape == (8, 1, 8, 8)
    assert all(options["fresh"] for options in arms.options)
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
    arms = Arms()
    refused = rerunner(arms)(stored([new]), SUITE, baseline)[CASE]
    assert isinstance(refused, NotRun)
    assert "it is native code: --trust-baseline-artifacts runs it" in refused.reason
    assert not arms.specs
    executed = rerunner(arms, trust_beside=True)(stored([new]), SUITE, baseline)[CASE]
    assert isinstance(executed, Rerun)


def test_a_record_leads_to_no_folder_outside_the_cache(tmp_path: Path) -> None:
    """The key in a committed record is data: `../` in it is no way to a folder of the same commit."""
    record = built(int8(), "theirs")
    assert record.artifact is not None
    assert record.artifact.key is not None
    (store.cache_folder() / "artifacts" / record.artifact.key).rename(tmp_path / "committed")
    evil = replace(record, artifact=replace(record.artifact, key="../../committed"))
    new = built(int8(), "ours")
    assert (store.cache_folder() / "artifacts" / "../../committed").is_dir()
    reruns = rerunner()(stored([new]), SUITE, held([evil]))[CASE]
    assert isinstance(reruns, NotRun)


def test_data_of_a_suite_that_is_not_here_are_not_opened(tmp_path: Path) -> None:
    """Somebody else's run names Python: it is not imported, and the verdict says why the stored figures were judged."""
    text = f"suite: demo\nmodels: [digits-cnn]\ndata: {{dataset: {{python: '{tmp_path}/d.py:f'}}}}\nmatrix: {{}}\n"
    (tmp_path / "d.py").write_text("raise SystemExit('imported')")
    described = replace(here(), suite=SuiteInfo(name="demo", file=str(tmp_path / "gone.yaml"), text=text))
    old, new = built(int8(), "old"), built(int8(), "new")
    reruns = rerunner()(stored([new], described), suite.parse(text), held([old]))[CASE]
    assert isinstance(reruns, NotRun)
    assert "gone.yaml is not there; name it with --suite" in reruns.reason


DECODED = """suite: demo
models:
- {{name: net, source: {{python: 'net.py:build'}}, postprocess: {{python: '{file}:decode', timed: {timed}}}}}
data: {{dataset: digits}}
matrix: {{}}
"""


def decoding(folder: Path, timed: str = "true", *, digest: str | None = None) -> tuple[StoredRun, Suite, Path]:
    """A run whose suite lies in a folder and has a postprocess, which it keeps the digest of."""
    (folder / "decode.py").write_text("def decode(outputs): return outputs['boxes']")
    (folder / "net.py").write_text("def build(): ...")
    text = DECODED.format(file=folder / "decode.py", timed=timed)
    (folder / "demo.yaml").write_text(text)
    read = suite.read(folder / "demo.yaml")
    (reference,) = read.references()
    assert reference.own_postprocess is not None
    kept = {f"{POSTPROCESS}net": digest or reference.own_postprocess.digest()}
    described = replace(here(), suite=SuiteInfo(name="demo", file=str(folder / "demo.yaml"), text=text), digests=kept)
    names = tuple(OutputScore(name=name, judged=None) for name in ("boxes", "scores"))
    plain = Accuracy(metric="map", value=0.5, low=None, high=None, n=9, outputs=names)
    return stored([fp32(), built(int8(accuracy=plain), "new")], described), suite.parse(text), folder / "demo.yaml"


def test_what_is_timed_with_a_network_is_timed_with_both_artifacts(tmp_path: Path) -> None:
    """By the names of its outputs, in each process; where the suite does not say so, and where the person did not run
    the suite here or name it, it is not called."""
    run, demo, file = decoding(tmp_path)
    baseline, arms = held([fp32(), built(int8(), "old")]), Arms()
    refused = rerunner(arms)(run, demo, baseline)[CASE]
    assert isinstance(refused, NotRun)
    assert "postprocess of net" in refused.reason
    assert not arms.specs
    rerunner(arms, suite_file=file)(run, demo, baseline)
    assert {spec.case for spec in arms.specs} == {"baseline", "contender"}
    for spec in arms.specs:
        assert spec.postprocess is not None
        assert (spec.postprocess.attribute, spec.postprocess.names) == ("decode", ("boxes", "scores"))
    run, demo, file = decoding(tmp_path, "false")
    arms = Arms()
    rerunner(arms)(run, demo, baseline)
    assert {spec.postprocess for spec in arms.specs} == {None}


def test_another_function_than_the_run_timed_is_not_timed(tmp_path: Path) -> None:
    """Neither one that was edited since, nor one that the suite on this disk names in its place."""
    run, demo, file = decoding(tmp_path, digest="of another text")
    baseline = held([fp32(), built(int8(), "old")])
    edited = rerunner(suite_file=file)(run, demo, baseline)[CASE]
    assert isinstance(edited, NotRun)
    assert "decode() is no longer what this run timed; run the suite again" in edited.reason
    run, demo, file = decoding(tmp_path)
    (tmp_path / "decode.py").write_text("def decode(outputs): ...\ndef other(outputs): ...")
    file.write_text(file.read_text().replace(":decode", ":other"))
    replaced = rerunner(suite_file=file)(run, demo, baseline)[CASE]
    assert isinstance(replaced, NotRun)
    assert "times another postprocess than the run" in replaced.reason


def pair_of(record: Record | None = None) -> tuple[StoredRun, Suite, Baseline]:
    """A run and a baseline whose artifacts of that case differ, and the suite."""
    record = record or int8()
    return stored([fp32(), built(record, "new")]), SUITE, held([fp32(), built(record, "old")])


def test_equal_artifacts_are_not_run() -> None:
    """The same bytes have nothing that could be measured."""
    arms = Arms()
    record = built(int8(), "same")
    assert rerunner(arms)(stored([record]), SUITE, held([record])) == {}
    assert arms.specs == []


@pytest.mark.parametrize("before", ["1.0", fingerprint.versions(["torch"])["torch"]])
def test_the_same_file_is_run_where_each_side_has_versions_of_its_own(before: str) -> None:
    """The baseline's process finds its own libraries, and must have loaded them; the run's those that are here. Of the
    same versions nothing is to be measured."""
    record, arms = built(int8(), "same"), Arms()
    own = info(environment=fingerprint.fingerprint(), versions={"torch": before})
    run = stored([built(fp32(), "fp32"), record], replace(own, versions=fingerprint.versions(["torch"])))
    environments = {"baseline": Environment(digest="0" * 64, folder=Path("/env/packages"))}
    again = rerunner(arms, environments=environments)(run, SUITE, held([record], own))
    if before != "1.0":
        assert again == {}
        return
    assert isinstance(again[CASE], Rerun)
    assert again[CASE].own_versions
    by_arm = {spec.case: spec for spec in arms.specs}
    assert by_arm["baseline"].environment["QBENCH_IMPORT_PATHS"].startswith("/env/packages:")
    assert by_arm["baseline"].versions == {"torch": "1.0"}
    assert "QBENCH_IMPORT_PATHS" not in by_arm["contender"].environment
    assert by_arm["contender"].versions == fingerprint.versions(["torch"])


def test_the_baselines_artifact_under_the_run_s_libraries_rides_along() -> None:
    """As a third arm in the same rounds, judged by itself; where the run has the very file, one measurement is both's;
    one that did not run there has none."""
    present, own = Environment(digest="0" * 64), Environment(digest="1" * 64, folder=Path("/env/packages"))
    environments = {"baseline": present, "contender": own}
    old, new = built(int8(), "old"), built(int8(), "new")
    described = [replace(here(), versions={"torch": version}) for version in ("1.0", "2.0")]
    run, baseline = stored([built(fp32(), "fp32"), new], described[1]), held([old], described[0])
    kept = stored([built(int8(), "old")], described[1])
    arms = Arms(0.1)
    reruns, of_kept = rerunner(arms, environments=environments).run_arms(run, SUITE, baseline, kept)
    both = [each[CASE] for each in (reruns, of_kept)]
    assert all(isinstance(each, Rerun) and each.own_versions for each in both)
    slowdowns = [each.analysis.slowdown.value for each in both]  # type: ignore[union-attr]
    assert slowdowns == pytest.approx([1.1, 1.02], rel=0.01)
    by_arm = {spec.case: spec for spec in arms.specs}
    assert by_arm["kept"].file == by_arm["baseline"].file
    assert by_arm["kept"].environment == by_arm["contender"].environment
    assert by_arm["kept"].versions == {"torch": "2.0"}
    assert "QBENCH_IMPORT_PATHS" not in by_arm["baseline"].environment

    same = stored([built(fp32(), "fp32"), old], described[1])
    reruns, of_kept = rerunner(Arms(), environments=environments).run_arms(same, SUITE, baseline, kept)
    assert reruns == of_kept
    for gone in (stored([replace(old, status="failed", reason="it does not load")], described[1]), stored([])):
        assert rerunner(Arms(), environments=environments).run_arms(run, SUITE, baseline, gone)[1] == {}


def test_what_no_rule_asks_about_is_not_run() -> None:
    """Where the suite gates no time, nothing is to be measured."""
    arms = Arms()
    run, _, baseline = pair_of()
    rules = "gate: {latency: {max_regression: null}, size: {max_growth: 1%}}\n"
    assert rerunner(arms)(run, suite.parse(f"{SUITE.text}{rules}"), baseline) == {}
    assert arms.specs == []


@pytest.mark.parametrize(
    ("change", "outcome", "pairs"), [(0.0, "PASS", 3), (0.1, "FAIL", 3), (0.05, "INCONCLUSIVE", 12)]
)
def test_it_stops_at_the_analysis_that_decides(change: float, outcome: str, pairs: int) -> None:
    """Clear cases take 3 process pairs; what lies at the tolerance takes all 12."""
    arms = Arms(change)
    result = rerunner(arms)(*pair_of())[CASE]
    assert isinstance(result, Rerun)
    assert result.analysis is not None
    assert (result.analysis.outcome, len(result.pairs), arms.pairs) == (outcome, pairs, pairs)
    assert result.analysis.slowdown.value == pytest.approx(1 + change, abs=0.01)
    assert result.pairs[0].seconds == pytest.approx((1e-3, (1 + change) * 1e-3), rel=0.03)
    assert result.pairs[0].start == pytest.approx(np.log1p(change), abs=0.03)
    assert not result.cut


@pytest.mark.parametrize(("promise", "outcome"), [(1.5, "PASS"), (2.5, "FAIL")])
def test_fp32_runs_along_where_there_is_a_promise(promise: float, outcome: str) -> None:
    """It is a further arm of the same generations, so that the speed-up is of here and now."""
    suite_ = suite.parse(f"{SUITE.text}gate: {{latency: {{min_speedup: {promise}}}}}\n")
    arms = Arms()
    run, _, baseline = pair_of()
    run = replace(run, records=(built(fp32(), "float"), *run.records[1:]))
    result = rerunner(arms)(run, suite_, baseline)[CASE]
    assert isinstance(result, Rerun)
    assert result.promise is not None
    assert result.promise.outcome == outcome
    assert {spec.case for spec in arms.specs} == {"baseline", "contender", "fp32"}
    assert len(result.pairs[0].seconds) == 3


def test_a_change_that_no_rule_asks_about_is_known_and_takes_no_pair() -> None:
    """Beside a promise alone it lies at 5 %, where a rule on it would take all 12 process pairs."""
    suite_ = suite.parse(f"{SUITE.text}gate: {{latency: {{max_regression: null, min_speedup: 1.5}}}}\n")
    run, _, baseline = pair_of()
    run = replace(run, records=(built(fp32(), "float"), *run.records[1:]))
    result = rerunner(Arms(0.05))(run, suite_, baseline)[CASE]
    assert isinstance(result, Rerun)
    assert result.promise is not None
    assert result.analysis is not None
    assert (result.promise.outcome, result.analysis.outcome, len(result.pairs)) == ("PASS", "INCONCLUSIVE", 3)
    assert not result.cut


@pytest.mark.parametrize(
    ("rules", "asks", "sharing"),
    [
        (LiveRules(), False, 0),
        (LiveRules(start=0.5), True, 0),
        (LiveRules(tolerance=0.05), True, 1),
        (LiveRules(promise=2.0, start=0.5), True, 1),
        (LiveRules(tolerance=0.0, promise=2.0), True, 2),
    ],
)
def test_rules_on_the_time_of_a_call_share_its_error(rules: LiveRules, asks: bool, sharing: int) -> None:
    """A start is another time; a tolerance of nothing is a rule, too."""
    assert (rules.asks, rules.sharing) == (asks, sharing)


def test_the_times_of_a_process_pair_are_its_own() -> None:
    """A contender that takes 10 % longer in each generation shows so in each."""
    result = rerunner(Arms(grows=0.1))(*pair_of())[CASE]
    assert isinstance(result, Rerun)
    assert [pair.seconds[1] for pair in result.pairs[:3]] == pytest.approx([1e-3, 1.1e-3, 1.2e-3], rel=0.02)


def test_a_pair_of_which_no_block_can_be_kept_ends_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured; the machine slept."""
    monkeypatch.setattr(live_case, "pair_blocks", lambda *minima: PairedBlocks(log_ratios={}))
    result = rerunner()(*pair_of())[CASE]
    assert isinstance(result, Rerun)
    assert (result.pairs, result.cut) == ((), False)
    assert result.reason == "none of its blocks can be kept: the machine was suspended in each"


def test_the_time_that_may_be_spent_goes_to_the_rules_that_are_open() -> None:
    """Both cases get their first look, the decided one no more; what is cut says so."""
    records = [built(int8(), "new one"), built(int8(OTHER), "new two")]
    before = [built(int8(), "old one"), built(int8(OTHER), "old two")]
    arms = Arms(0.05)
    needed = rerunner(arms)(stored(records), SUITE, held(before))
    assert all(isinstance(result, Rerun) and not result.cut for result in needed.values())
    arms = Arms(0.05)
    reruns = rerunner(arms, most_seconds=6.5 * needed[CASE].spent / 12)(stored(records), SUITE, held(before))
    assert [len(result.pairs) for result in reruns.values() if isinstance(result, Rerun)] == [3, 3]
    for result in reruns.values():
        assert isinstance(result, Rerun)
        assert result.analysis is not None
        assert result.cut is not result.analysis.decided
    for budget, pairs in ((-1e-9, 0), (0.0, 1), (1e-9, 1)):
        (nothing,) = rerunner(Arms(), most_seconds=budget)(*pair_of()).values()
        assert isinstance(nothing, Rerun)
        assert (nothing.cut, nothing.analysis, len(nothing.pairs)) == (True, None, pairs)


@pytest.mark.parametrize(
    ("tells", "starts"),
    [
        (lambda arm, number: True, "FAIL"),
        (lambda arm, number: arm != "contender", None),
        (lambda arm, number: arm != "baseline", None),
        (lambda arm, number: (arm, number) != ("contender", 1), None),
    ],
)
def test_a_start_that_some_worker_did_not_tell_is_not_judged(
    tells: Callable[[str, int], bool], starts: str | None
) -> None:
    """What both arms told in every process pair is held against its limit; else there is nothing to judge, and the
    latency is judged all the same."""
    arms = Arms(0.6, tells=tells)
    gate = "gate: {latency: {max_regression: 90%}, cold_start: {max_regression: 50%}}\n"
    run, _, baseline = pair_of()
    result = rerunner(arms)(run, suite.parse(f"{SUITE.text}{gate}"), baseline)[CASE]
    assert isinstance(result, Rerun)
    assert (None if result.start is None else result.start.outcome) == starts
    assert result.analysis is not None
    assert result.analysis.outcome == "PASS"


def test_a_process_that_dies_ends_its_own_case() -> None:
    """The reason is kept, the pairs before it too, and the next case is still judged."""
    records = [built(int8(), "new one"), built(int8(OTHER), "new two")]
    before = [built(int8(), "old one"), built(int8(OTHER), "old two")]
    arms = Arms(dies=lambda arm, number: arm == "contender" and number == 2)
    reruns = rerunner(arms)(stored(records), SUITE, held(before))
    first, second = reruns[CASE], reruns[OTHER]
    assert isinstance(first, Rerun)
    assert (first.analysis, first.reason, len(first.pairs)) == (
        None, "the artifact of this run: the process was ended by SIGSEGV", 2
    )  # fmt: skip
    assert isinstance(second, Rerun)
    assert second.analysis is not None
    assert second.analysis.outcome == "PASS"


def test_what_a_look_told_before_a_process_died_decides_nothing() -> None:
    """A case on its tolerance is open after the first look; a process of the fifth pair dies: there is a reason, and no
    analysis."""
    arms = Arms(0.05, dies=lambda arm, number: arm == "contender" and number == 4)
    result = rerunner(arms)(*pair_of())[CASE]
    assert isinstance(result, Rerun)
    assert (result.analysis, len(result.pairs)) == (None, 4)
    assert "the process was ended by SIGSEGV" in str(result.reason)


def test_a_control_that_dies_amid_its_rounds_is_said() -> None:
    """Without it nothing vouches for the ratio: the case ends with that reason, however far it came."""
    arms = Arms(dies=lambda arm, number: arm == "baseline" and number == 1)
    result = rerunner(arms)(*pair_of())[CASE]
    assert isinstance(result, Rerun)
    assert (result.analysis, result.pairs) == (None, ())
    assert "the noise check, a second copy" in str(result.reason)


def test_an_artifact_that_no_runtime_loads_is_a_reason_not_a_crash() -> None:
    """With real processes: a file that is no model ends the case with what the runtime said."""
    result = Rerunner(progress=Silent())(*pair_of(int8(OTHER)))[OTHER]
    assert isinstance(result, Rerun)
    assert result.analysis is None
    assert result.reason


def test_only_int8_cases_that_both_have_are_run() -> None:
    """fp32, new cases and those that are not ok on either side have nothing to be held against."""
    arms = Arms()
    run = stored([fp32(), int8(), skipped(OTHER)])
    assert rerunner(arms)(run, SUITE, held([fp32(), skipped(), int8(OTHER)])) == {}
    assert FP32 in {record.case.id for record in run.records}
    assert arms.specs == []


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
    old, new = built(int8(), "old"), built(int8(), "new")
    events = Told()
    reruns = rerunner(progress=events)(stored([new], run), SUITE, held([old], base))
    assert reruns == {CASE: NotRun(reason=said)}
    assert events.lines == ["gate 1", f"{CASE}: not run again: {said}", CASE]


def test_a_case_whose_answers_were_emulated_is_not_run() -> None:
    """Its time was never measured."""
    old, new = built(int8(), "old"), built(int8(host=HostFacts(kind="emulated")), "new")
    assert rerunner()(stored([new]), SUITE, held([old])) == {}


@pytest.mark.parametrize("mode", ["static", "qat"])
def test_data_to_train_on_are_read_where_the_run_trained(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """As the run asked for them, so that they are found where it left them."""
    asked: list[Any] = []

    def call(function: Callable[..., Any], request: Any, *rest: Any, limits: Any) -> Any:
        asked.append(request)
        raise DataError("not here")

    monkeypatch.setattr(rerun, "call", call)
    rerunner()(*pair_of(int8(f"net/{mode}/onednn/t1/b1")))
    assert asked == [request_of(SUITE.data, SUITE.base, train=mode == "qat")]


def test_another_cpu_of_the_same_kind_runs_both() -> None:
    """Both run here, so where the baseline was measured does not matter, unlike for stored figures."""
    old, new = built(int8(), "old"), built(int8(), "new")
    reruns = rerunner()(stored([new]), SUITE, held([old], here(cpu="B")))
    assert isinstance(reruns[CASE], Rerun)


def test_an_artifact_that_is_gone_or_changed_is_not_run() -> None:
    """The file must have the sha256 of its record; the reason says whose artifact is missing."""
    old, new = built(int8(), "old"), built(int8(), "new")
    run_it = rerunner()
    lost = replace(old, artifact=replace(old.artifact, key="0" * 64)) if old.artifact else old
    assert "the baseline's artifact" in str(run_it(stored([new]), SUITE, held([lost]))[CASE])
    assert new.artifact is not None
    file = store.cache_folder() / "artifacts" / str(new.artifact.key) / "model.pt"
    file.write_text("tampered")
    assert "this run is no longer in the cache" in str(run_it(stored([new]), SUITE, held([old]))[CASE])


@pytest.mark.parametrize(
    ("cores", "threads", "used"),
    [((3,), 2, None), ((3,), 1, (3,)), ((3, 5), 2, (3, 5)), ((3, 5, 7), 1, (7,)), ((3, 5, 7), 2, (5, 7))],
)
def test_a_case_takes_the_last_cores_where_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, cores: tuple[int, ...], threads: int, used: tuple[int, ...] | None
) -> None:
    """A case of 2 threads on 1 core would be another case."""
    monkeypatch.setattr(fingerprint, "allowed_cores", lambda *root: cores)
    case, arms = f"net/static/onednn/t{threads}/b1", Arms()
    result = rerunner(arms)(*pair_of(int8(case)))[case]
    assert {spec.cores for spec in arms.specs} == ({used} if used else set())
    assert isinstance(result, Rerun) or result == NotRun(reason="it takes 2 cores, 1 may be used here")


def test_data_that_cannot_be_read_leaves_the_stored_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing needs real examples; without them every case says so and nothing is run."""

    def unreadable(*args: Any, limits: Any) -> Any:
        raise DataError("photos: no such folder")

    monkeypatch.setattr(rerun, "call", unreadable)
    assert rerunner()(*pair_of()) == {CASE: NotRun(reason="the suite's data cannot be read: photos: no such folder")}


def test_progress_tells_the_process_pair_and_the_case() -> None:
    """A user sees how far a gate of half a minute is."""
    events, arms = Told(), Arms(0.05)
    rerunner(arms, progress=events)(*pair_of())
    steps = [f"{CASE}: process pair {number}" for number in range(1, 13)]
    assert events.lines == ["gate 1", *steps, CASE]
    assert events.shares == [*(number / 12 for number in range(12)), None]


def test_a_case_tells_what_its_pairs_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing before the first; what failed took its time, too."""
    clock = itertools.count(5.0).__next__
    live = live_case.LiveCase(
        case="case", specs={}, rules=LiveRules(tolerance=0.05), limits=cast("Any", None), clock=clock
    )
    assert (live.seconds_per_pair, live.conclude().spent, live.is_open) == (0.0, 0.0, True)
    monkeypatch.setattr(
        live_case.LiveCase, "measure_pair", lambda self, number: ProcessPair(ratio=0.0, control=0.0, drift=0.0)
    )
    live.run_pair()
    live.run_pair()
    assert (live.seconds_per_pair, live.conclude().spent, live.is_open) == (1.0, 2.0, True)

    def fail(self: live_case.LiveCase, number: int) -> ProcessPair:
        raise CaseError("it died")

    monkeypatch.setattr(live_case.LiveCase, "measure_pair", fail)
    live.run_pair()
    assert (live.conclude().spent, live.conclude().reason, live.is_open) == (3.0, "it died", False)
    assert live.conclude().cut is False


def test_a_case_that_cannot_be_run_keeps_no_other_from_it() -> None:
    """The first one says why; the second is judged."""
    first, second = built(int8(), "old one"), built(int8(OTHER), "old two")
    assert first.artifact is not None
    lost = replace(first, artifact=replace(first.artifact, key="0" * 64))
    reruns = rerunner()(stored([built(int8(), "new one"), built(int8(OTHER), "new two")]), SUITE, held([lost, second]))
    assert list(reruns) == [CASE, OTHER]
    assert isinstance(reruns[CASE], NotRun)
    assert isinstance(reruns[OTHER], Rerun)


def test_a_batch_rotates_through_as_many_examples_a_place() -> None:
    """Eight batches of two are sixteen real examples."""
    case, arms = "net/static/onednn/t1/b2", Arms()
    rerunner(arms)(*pair_of(int8(case)))
    assert {(spec.batch_size, spec.inputs[0].shape) for spec in arms.specs} == {(2, (16, 1, 8, 8))}


def test_one_case_is_run_by_the_limits_and_the_seed_of_its_suite() -> None:
    """Its tolerance decides; the worker is held to the suite's time and memory; the order of a round is its seed's."""
    arms = Arms(0.1)
    limits = "limits: {stage_seconds: 77, memory_bytes: 3000000000}\n"
    demo = suite.parse(f"{SUITE.text}gate: {{latency: {{max_regression: 30%}}}}\n{limits}")
    specs = [
        WorkerSpec(case=arm, backend="onednn", file=None, threads=1, batch_size=1, cores=(0,), inputs=())
        for arm in ("baseline", "contender")
    ]
    result = rerunner(arms).rerun_case("a case", *specs, suite=demo)
    assert result.analysis is not None
    assert (result.analysis.outcome, result.analysis.slowdown.value) == ("PASS", pytest.approx(1.1, rel=0.02))
    assert {options["limits"] for options in arms.options} == {Limits(seconds=77, memory_bytes=3_000_000_000)}
