"""What is made of a setting's samples: the fastest fp32, the finalists, generations that are never mixed up, and what
a record is told of each case."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from qbench import suite
from qbench.errors import CaseError
from qbench.measure import group as groups
from qbench.measure import measure, samples
from qbench.measure.group import Measured
from qbench.measure.measure import (
    count_processes,
    find_fastest_fp32,
    list_finalists,
    measure_setting,
    remove_checkpoint,
)
from qbench.measure.protocol import SequentialProtocol
from qbench.measure.race_rules import MOST_GENERATIONS, Arm
from qbench.measure.samples import Samples
from qbench.measure.setting import Setting
from qbench.measure.timed_cores import TimedCores
from qbench.measure.worker import FIRST_CALLS, INPUTS, WorkerFacts
from qbench.models.base import ModelReference
from qbench.plan.cases import Case, Variant
from qbench.process.child_process import Limits
from qbench.quant.recipe import Recipe

ARMS = [
    Arm(case="m/fp32/torch/t1/b1", role="fp32"),
    Arm(case="m/fp32/onnxruntime/t1/b1", role="fp32"),
    Arm(case="m/static/onednn/t1/b1", role="candidate", baseline="m/fp32/torch/t1/b1"),
    Arm(case="m/static/onnxruntime/t1/b1", role="candidate", baseline="m/fp32/onnxruntime/t1/b1"),
]


def raced(nanoseconds: int, stopped: str, processes: tuple[int, ...] = (0,)) -> Samples:
    count = len(processes)
    return Samples(
        protocol="paired",
        stopped=stopped,
        calls_ns=np.full(count, nanoseconds),
        block=np.arange(count),
        process=np.asarray(processes),
        round=np.zeros(count, dtype=np.int64),
    )


def test_the_fastest_fp32_is_found_by_shared_rounds():
    """Of those that have samples; None where none has."""
    timed = {ARMS[0].case: raced(200, "screened"), ARMS[1].case: raced(100, "decided"), ARMS[2].case: raced(10, "tied")}
    assert find_fastest_fp32(ARMS, timed) == "m/fp32/onnxruntime/t1/b1"
    assert find_fastest_fp32(ARMS, {ARMS[2].case: raced(10, "tied")}) is None


def test_finalists_bring_their_fp32():
    """Who was in to the end, with what it is compared with: these have their cold starts topped up."""
    timed = {
        ARMS[0].case: raced(200, "cut_short"),
        ARMS[1].case: raced(100, "left"),
        ARMS[2].case: raced(10, "screened"),
        ARMS[3].case: raced(9, "decided"),
    }
    assert list_finalists(ARMS, timed) == {ARMS[0].case, ARMS[3].case, ARMS[1].case}


def test_a_resumed_setting_goes_on_counting_its_generations(tmp_path):
    """Blocks of an earlier part of the run must not look as if they had run beside later ones: the first generation has
    the next number. Other settings do not count."""
    for name, processes in (("m__static__onednn__t1__b1", (0, 1, 4)), ("m__static__onednn__t2__b1", (9,))):
        samples.save(tmp_path / f"{name}.npz", raced(10, "tied", processes))
    assert count_processes(tmp_path, "m/static/qnnpack/t1/b1") == 5
    assert count_processes(tmp_path, "other/static/qnnpack/t1/b1") == 0
    (tmp_path / "m__static__x86__t1__b1.npz").write_bytes(b"damaged")
    assert count_processes(tmp_path, "m/static/qnnpack/t1/b1") == 5
    assert count_processes(tmp_path, "no case of qbench's") == 0


# --- what a record is told ---------------------------------------------------------------------------------


FP32, STAYS, LEAVES = "m/fp32/fake/t1/b2", "m/static/fake/t1/b2", "m/dynamic/fake/t1/b2"
FIELD = [
    Arm(case=FP32, role="fp32"),
    Arm(case=STAYS, role="candidate", baseline=FP32),
    Arm(case=LEAVES, role="candidate", baseline=FP32),
]
TEXT = "suite: s\nmodels: [digits-cnn]\ndata: {{dataset: digits}}\nmatrix: {{backends: [fake]}}\n{more}"


def start(load_seconds=1.0):
    """What one process said of itself."""
    return WorkerFacts(
        load_seconds=load_seconds, first_call_seconds=0.1, next_calls_seconds=(0.1,) * 4, loaded_rss_bytes=100,
        observed={"threads": 1},
    )  # fmt: skip


class Group:
    """Stands for the processes of a setting: what each case's gave, and how many more starts were asked for."""

    def __init__(self, monkeypatch, *, starts=(), peak=None, error=None, start_error=None):
        self._starts, self._peak, self._error, self._start_error = tuple(starts), peak, error, start_error
        self.asked, self.specs, self.protocols = {}, {}, []
        monkeypatch.setattr(measure, "measure_group", self.measure_group)
        monkeypatch.setattr(measure, "cold_starts", self.cold_starts)

    def measure_group(self, baseline, contenders, *, protocol, keep=None, **_):
        self.protocols.append(protocol)
        self.specs = {spec.case: spec for spec in (baseline, *contenders)}
        if keep is not None:
            keep({})
        return {
            case: Measured(
                samples=None if self._error else raced(10**6, "screened" if case == LEAVES else "decided", (0,) * 6),
                error=self._error, facts=self._starts, peak_rss_bytes=self._peak,
            )
            for case in self.specs
        }  # fmt: skip

    def cold_starts(self, spec, count, **_):
        self.asked[spec.case] = count
        if self._start_error is not None:
            raise self._start_error
        return [start(3.0)] * count, 700


def case_of(name, threads=1):
    model, mode, backend, *_ = name.split("/")
    variant = Variant(model=ModelReference(name=model), mode=mode, backend=backend, recipe=Recipe())
    return Case(variant=variant, threads=threads, batch_size=2)


def setting_of(folder, more="", examples=100, cases=None, **options):
    """The field, or these cases, as a setting of a suite with ``more``."""
    data = SimpleNamespace(evaluation_count=examples, evaluation=lambda start, stop: (np.zeros((stop - start, 3)),))
    cases = cases or [case_of(arm.case) for arm in FIELD]
    roles = {arm.case: arm for arm in FIELD}
    return Setting(
        suite=suite.parse(TEXT.format(more=more)), data=data, limits=Limits(seconds=1),
        arms=tuple(roles.get(case.id, Arm(case=case.id, role="fp32")) for case in cases),
        cases={case.id: case for case in cases},
        artifacts={case.id: SimpleNamespace(file=folder / "m", size_bytes=1) for case in cases}, **options,
    )  # fmt: skip


def measure_field(folder, more="", **options):
    """The field's latencies."""
    cores = TimedCores(numbers=(0, 1, 2), root=folder, limits=Limits())
    return measure_setting(setting_of(folder, more, **options), folder, cores).latencies


def test_who_was_in_to_the_end_is_started_as_often_as_the_suite_asks(tmp_path, monkeypatch):
    """Beside the processes of the race; who left has those, and no more are started for it."""
    group = Group(monkeypatch, starts=[start()], peak=900)
    latencies = measure_field(tmp_path, "measure: {cold_starts: 3}")
    assert group.asked == {FP32: 2, STAYS: 2}
    assert [latencies[case].cold_start.processes for case in (FP32, STAYS, LEAVES)] == [3, 3, 1]
    assert latencies[STAYS].cold_start.load_seconds == 3.0
    assert latencies[STAYS].memory.peak_rss_bytes == 900  # not that of the processes that made five calls


def test_a_resumed_race_starts_each_case_again_that_has_none_to_tell_of(tmp_path, monkeypatch):
    """The killed run took with it what its processes had said: one more says it of those that left, and the peak of
    its memory, which limits are on."""
    group = Group(monkeypatch)
    latencies = measure_field(tmp_path, "measure: {cold_starts: 3}")
    assert group.asked == {FP32: 3, STAYS: 3, LEAVES: 1}
    assert latencies[LEAVES].observed == {"threads": 1}
    assert latencies[LEAVES].cold_start.processes == 1
    assert (latencies[LEAVES].memory.loaded_rss_bytes, latencies[LEAVES].memory.peak_rss_bytes) == (100, 700)


def test_enough_starts_are_not_added_to(tmp_path, monkeypatch):
    """A race of as many processes as the suite asks for has them all."""
    group = Group(monkeypatch, starts=[start()] * 3)
    measure_field(tmp_path, "measure: {cold_starts: 3}")
    assert group.asked == {}


def test_a_start_that_fails_does_not_cost_the_latency(tmp_path, monkeypatch):
    """It was measured: only what the start would have told is unknown."""
    Group(monkeypatch, start_error=CaseError("no memory"))
    latency = measure_field(tmp_path)[STAYS]
    assert latency.reason is None
    assert latency.latency.p50_seconds == pytest.approx(1e-3)
    assert (latency.cold_start, latency.memory, latency.observed) == (None, None, None)


def test_a_case_that_died_is_not_started_again(tmp_path, monkeypatch):
    """Its record says why it has no latency, with what its process had said before."""
    group = Group(monkeypatch, starts=[start()], error=CaseError("ended by SIGKILL"))
    latency = measure_field(tmp_path)[STAYS]
    assert (latency.reason, latency.observed, latency.latency) == ("ended by SIGKILL", {"threads": 1}, None)
    assert group.asked == {}
    assert list((tmp_path / "samples").glob("*.npz")) == []


def test_recorded_cases_are_neither_started_nor_stored_again(tmp_path, monkeypatch):
    """They race so that others have somebody to be held against."""
    group = Group(monkeypatch)
    latencies = measure_field(tmp_path, "measure: {cold_starts: 2}", done={FP32})
    assert set(latencies) == {STAYS, LEAVES} == set(group.asked)
    assert sorted(path.name for path in (tmp_path / "samples").glob("m__*")) == [
        f"{case.replace('/', '__')}.npz" for case in sorted((STAYS, LEAVES))
    ]
    assert latencies[STAYS].speedup.baseline == FP32


def test_examples_a_second_are_those_of_a_batch(tmp_path, monkeypatch):
    """Two examples a call of a millisecond."""
    Group(monkeypatch, starts=[start()])
    latency = measure_field(tmp_path)[STAYS]
    assert latency.throughput_per_second == pytest.approx(2000)
    assert latency.speedup_fastest.baseline == FP32
    assert samples.load(tmp_path / latency.samples).stopped == "decided"


def test_samples_that_cannot_be_written_fail_the_case(tmp_path, monkeypatch):
    """A latency without the raw observations behind it could not be derived again."""
    Group(monkeypatch, starts=[start()])
    full = {f"{STAYS.replace('/', '__')}.npz", f"{FP32.replace('/', '__')}__sequential.npz"}

    def savez_compressed(file, **arrays):
        if Path(file.name).name in full:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        np.savez(file, **arrays)

    monkeypatch.setattr(samples.np, "savez_compressed", savez_compressed)
    latencies = measure_field(tmp_path, "measure: {protocol: both}")
    assert latencies[STAYS].reason == latencies[FP32].reason == "its samples cannot be written: No space left on device"
    assert latencies[LEAVES].reason is None
    assert {path.name for path in (tmp_path / "samples").iterdir()} & full == set()
    assert count_processes(tmp_path / "samples", LEAVES) == 1


def test_a_case_takes_the_last_cores_and_the_first_examples(tmp_path, monkeypatch):
    """The first core serves interrupts; a batch is filled with different examples, as far as there are."""
    group, case = Group(monkeypatch), case_of(FP32, threads=2)
    for examples, taken in ((100, 2 * INPUTS), (5, 5)):
        measure_field(tmp_path, examples=examples, cases=[case])
        spec = group.specs[case.id]
        assert (spec.cores, spec.threads, len(spec.inputs[0])) == ((1, 2), 2, taken)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", (3, MOST_GENERATIONS, False)),
        ("measure: {processes: 12}", (12, 12, False)),
        ("measure: {spend: all}", (3, MOST_GENERATIONS, True)),
        ("measure: {spend: screening}", (0, 0, False)),
        ("decide: {minimize: size}", (3, MOST_GENERATIONS, True)),
        ("measure: {spend: screening}\ndecide: {minimize: size}", (0, 0, False)),
    ],
)
def test_how_long_a_race_runs_is_what_the_suite_spends(tmp_path, monkeypatch, more, expected):
    """To the decision, to the precision of every case, or a first look; where another quantity decides, limits on
    latency are on every case all the same."""
    group = Group(monkeypatch)
    measure_field(tmp_path, more)
    rules = group.protocols[0].rules
    assert (rules.least, rules.most, rules.everything) == expected
    assert (len(group.protocols), group.protocols[0].warmup_calls) == (1, 10 - FIRST_CALLS)


def test_both_protocols_are_measured_where_both_are_asked_for(tmp_path, monkeypatch):
    """The calls of the sequential one lie beside those of the race, with the speed-up of means."""
    group = Group(monkeypatch, starts=[start()])
    latency = measure_field(tmp_path, "measure: {protocol: both, warmup_calls: 7, calls: 20}")[STAYS]
    assert group.protocols[1] == SequentialProtocol(warmup=7, calls=20)
    assert (latency.sequential.n, latency.sequential.speedup) == (6, 1.0)
    assert (tmp_path / "samples" / f"{STAYS.replace('/', '__')}__sequential.npz").is_file()
    alone = measure_field(tmp_path, "measure: {protocol: sequential, warmup_calls: 7, calls: 20}")[STAYS]
    assert (group.protocols[2:], alone.sequential) == ([SequentialProtocol(warmup=7, calls=20)], None)


def test_what_is_kept_of_a_setting_goes_once_its_cases_are_recorded(tmp_path, monkeypatch):
    """Until then a killed run goes on from it."""
    Group(monkeypatch)
    measure_field(tmp_path)
    assert len(list((tmp_path / "samples").glob("partial-*"))) == 1
    remove_checkpoint(setting_of(tmp_path), tmp_path)
    assert list((tmp_path / "samples").glob("partial-*")) == []


def test_what_was_timed_teaches_the_cores_and_mends_their_peak(tmp_path, monkeypatch):
    """The least level of the canary that any case shows; the peak is looked at again once that is known, and is what
    the setting has."""
    Group(monkeypatch, starts=[start()])
    learned, asked = [], []
    cores = TimedCores(numbers=(0, 1), root=tmp_path, limits=Limits(), peak="peak", unknown="why")
    monkeypatch.setattr(TimedCores, "learn", lambda self, timed: learned.extend(each.protocol for each in timed))
    monkeypatch.setattr(TimedCores, "mend_peak", lambda self: asked.append(len(learned)))
    measured = measure_setting(setting_of(tmp_path), tmp_path, cores)
    assert (learned, asked) == (["paired"] * 3, [3])
    assert (measured.peak, measured.unknown_peak, measured.node) == ("peak", "why", None)
    assert 0 <= measured.seconds < 60


def test_a_case_whose_baseline_has_no_samples_has_no_speedup(tmp_path, monkeypatch):
    """Its latency stands, and so does that of fp32 that is compared with nothing."""
    group = Group(monkeypatch, starts=[start()])
    whole = group.measure_group

    def measure_group(baseline, contenders, **options):
        results = whole(baseline, contenders, **options)
        return {**results, FP32: Measured(samples=None, error=CaseError("died"), facts=(), peak_rss_bytes=None)}

    monkeypatch.setattr(measure, "measure_group", measure_group)
    latencies = measure_field(tmp_path)
    assert (latencies[STAYS].speedup, latencies[STAYS].speedup_fastest, latencies[STAYS].reason) == (None, None, None)
    assert latencies[STAYS].latency.p50_seconds == pytest.approx(1e-3)
    assert (latencies[FP32].reason, latencies[FP32].observed) == ("died", None)
    Group(monkeypatch, starts=[start()])
    assert measure_field(tmp_path)[FP32].speedup is None


def test_the_race_knows_what_the_suite_says(tmp_path, monkeypatch):
    """Its tie, precision, seconds and seed, the warm-up calls that loading has left, and where its numbers go on."""
    group = Group(monkeypatch)
    (tmp_path / "samples").mkdir()
    samples.save(tmp_path / "samples" / "m__static__fake__t1__b2.npz", raced(10, "tied", (0, 6)))
    measure_field(
        tmp_path,
        "measure: {precision: 4%, max_seconds: 7, seed: 9, warmup_calls: 30}\ndecide: {tie: 5%}",
    )
    race = group.protocols[0]
    assert (race.rules.tie, race.rules.precision, race.rules.max_seconds) == (0.05, 0.04, 7)
    assert (race.seed, race.warmup_calls, race.first_process) == (9, 30 - FIRST_CALLS, 7)
    assert [arm.case for arm in race.arms] == [FP32, STAYS, LEAVES]
    # What no suite sets: six rounds to look at everyone, seven of a generation, a fifth of a second to be warm.
    assert (race.screening_rounds, race.rounds, race.warmup_seconds) == (6, 7, 0.2)


def test_the_race_is_run_in_heats_where_memory_is_short(tmp_path, monkeypatch):
    """By the sizes of the artifacts and the memory that is free by then; the blocks so far turn the order."""
    group = Group(monkeypatch)
    measure_field(tmp_path)
    asked = []
    monkeypatch.setattr(measure, "count_free_bytes", lambda: 123)
    monkeypatch.setattr(measure, "split_heats", lambda *given, **named: asked.append((given, named)))
    group.protocols[0].heats(("arms",), "fastest", 40)
    sizes = dict.fromkeys((FP32, STAYS, LEAVES), 1)
    assert asked == [((("arms",), "fastest", sizes), {"free_bytes": 123, "first": 40})]


def test_a_case_is_opened_as_its_host_says(tmp_path, monkeypatch):
    """Its backend, file, batch, and the variables of the host."""
    group = Group(monkeypatch)
    measure_field(tmp_path)
    spec = group.specs[STAYS]
    assert (spec.case, spec.backend, spec.file, spec.threads, spec.batch_size) == (STAYS, "fake", tmp_path / "m", 1, 2)
    assert (spec.cores, dict(spec.environment)) == ((2,), {})


def test_the_typical_call_is_its_mean_where_no_median_is_known(tmp_path, monkeypatch):
    """Few calls give no median, and still so many examples a second."""
    group = Group(monkeypatch, starts=[start()])
    whole = group.measure_group

    def measure_group(baseline, contenders, **options):
        results = whole(baseline, contenders, **options)
        few = replace(results[STAYS], samples=raced(10**6, "decided", (0, 0)))
        return {**results, STAYS: few}

    monkeypatch.setattr(measure, "measure_group", measure_group)
    latency = measure_field(tmp_path)[STAYS]
    assert latency.latency.p50_seconds is None
    assert latency.throughput_per_second == pytest.approx(2000)


@pytest.mark.parametrize("outcome", [CaseError("it hung"), Samples(protocol="sequential", stopped="fixed")])
def test_what_a_group_gave_is_samples_or_an_error(outcome):
    """With the facts of those processes that told any, and the largest peak of their memory; the control's count with
    the baseline's."""
    specs = [SimpleNamespace(case=case) for case in ("base", "a")]
    told = {"base": iter([(None, 5), ("base 2", None)]), "a": iter([("a 1", None)])}

    def open_remote(spec, *, limits, fresh):
        facts, peak = next(told[spec.case])
        return SimpleNamespace(facts=facts, peak_rss_bytes=peak, fresh=fresh)

    class Told:
        def measure(self, baseline, contenders, open_worker, watch, *, tell, earlier, keep):
            assert (baseline, contenders, dict(earlier)) == ("base", ["a"], {})
            assert [open_worker(case).fresh for case in ("base", "a", "control")] == [False] * 3
            return {"base": outcome, "a": outcome}

    results = groups.measure_group(specs[0], specs[1:], protocol=Told(), limits=None, open_remote=open_remote)
    for case, facts, peak in (("base", ("base 2",), 5), ("a", ("a 1",), None)):
        is_error = isinstance(outcome, CaseError)
        assert (results[case].samples, results[case].error) == ((None, outcome) if is_error else (outcome, None))
        assert (results[case].facts, results[case].peak_rss_bytes) == (facts, peak)
