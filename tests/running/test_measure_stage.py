"""Which cases race to the end, and which are only screened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_records import fp32, info, int8

from qbench import suite as suites
from qbench.measure.setting import CaseLatency, MeasuredSetting
from qbench.models.postprocess import Postprocess
from qbench.plan.planner import make_plan
from qbench.record.schema import CaseKey, HostFacts
from qbench.record.stored_run import StoredRun
from qbench.running import measure_stage
from qbench.running.measure_stage import enter_race

SUITE = """
suite: small
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static, qat], backends: [torch, onednn]}
gate: {size: {max_ratio: 0.3}}
quantize: {qat: {fp32_twin: true}}
"""


@pytest.fixture
def planned():
    suite = suites.parse(SUITE, file="<test>")
    return make_plan(suite, cores=2).cases


def describe(planned, **sizes: int):
    """A record for each case, built and evaluated, not measured; ``sizes`` by mode."""

    def describe_case(key: CaseKey):
        record = fp32(key.id) if key.mode == "fp32" else int8(key.id, size_bytes=sizes.get(key.mode, 260_000))
        return replace(record, case=key, latency=None, speedup=None)

    return [describe_case(each.case.key) for each in planned]


def enter(planned, monkeypatch, **sizes: int):
    suite = suites.parse(SUITE, file="<test>")
    monkeypatch.setattr(measure_stage, "read_run", lambda folder: StoredRun(folder=folder, info=info(), records=()))
    return {arm.case: arm for arm in enter_race(planned, describe(planned, **sizes), suite, Path())}


def test_what_fails_a_limit_is_screened_and_no_more(planned, monkeypatch):
    """A qat artifact that is too large cannot be shipped; a static one within the limit may be."""
    arms = enter(planned, monkeypatch, qat=400_000)
    assert arms["digits-cnn/qat/onednn/t1/b1"].role == "screened_only"
    assert arms["digits-cnn/static/onednn/t1/b1"].role == "candidate"
    assert arms["digits-cnn/static/onednn/t1/b1"].baseline == "digits-cnn/fp32/torch/t1/b1"
    assert next(iter(arms.values())).role == "fp32"
    reversed_arms = list(enter(list(reversed(planned)), monkeypatch).values())
    assert [arm.baseline is None for arm in reversed_arms] == [True, *[False] * (len(planned) - 1)]


def test_an_fp32_twin_is_no_candidate(planned, monkeypatch):
    """It is there for its accuracy: it neither leads the int8 nor is their reference."""
    arms = enter(planned, monkeypatch)
    twins = [each for each in planned if each.case.variant.mode == "fp32" and each.reference is not None]
    assert len(twins) == 1
    assert arms[twins[0].case.id].role == "screened_only"


def test_a_run_that_cannot_be_read_keeps_everyone_in(planned, tmp_path):
    """Nothing is known to fail: every int8 case races; what is wrong with the folder is for the report to say."""
    suite = suites.parse(SUITE, file="<test>")
    roles = {arm.role for arm in enter_race(planned, describe(planned), suite, tmp_path) if "/fp32" not in arm.case}
    assert roles == {"candidate"}


STATIC = "digits-cnn/static/onednn/t1/b1"


class Measuring:
    """A measure stage whose settings are told, with what it heard, asked for and removed."""

    def __init__(
        self, monkeypatch, planned, *, done=(), hosts=None, fleet=None, unknown=None, postprocess=None, **latencies
    ):
        self.postprocess = postprocess
        self.heard, self.asked, self.removed = [], [], []
        self.latencies = latencies
        self.planned = planned
        keep = self.heard.append
        self.context = SimpleNamespace(
            tracker=SimpleNamespace(open_cases=lambda: planned, done=set(done), started="2026-01-01"),
            progress=SimpleNamespace(
                stage=lambda *told: keep(told), note=keep, advance=lambda text, share=None: keep((text, share)),
                reach=lambda share: keep(share),
            ),
            directory=SimpleNamespace(path=Path("run"), layers=lambda variant: f"layers of {variant}"),
            cores=(0, 1), cache=Path("cache"), limits=None, fleet=fleet,
        )  # fmt: skip
        self.built = {
            each.case.variant.id: SimpleNamespace(
                seconds=1.23456, artifact=SimpleNamespace(
                    recipe=each.case.variant.recipe, facts=lambda: int8().artifact, built=SimpleNamespace(macs=1000)
                ),
            )
            for each in planned
        }  # fmt: skip
        self.evaluated = {
            each.case.id: SimpleNamespace(
                accuracy=int8().accuracy, predictions=Path(f"p/{each.case.variant.mode}.npz"), seconds=0.5,
                calibration_seconds=7.0 if each.case.variant.mode == "static" else None,
                host=(hosts or {}).get(each.case.id),
            )
            for each in planned
        }  # fmt: skip
        cores = SimpleNamespace(unknown=unknown)
        monkeypatch.setattr(measure_stage.TimedCores, "look_at", lambda *_: cores)
        monkeypatch.setattr(measure_stage, "measure_setting", self.measure_setting)
        monkeypatch.setattr(measure_stage, "remove_checkpoint", lambda setting, folder: self.removed.append(setting))
        monkeypatch.setattr(measure_stage, "roofline", lambda *given: given)

    def measure_setting(self, setting, folder, cores, *, tell, **_):
        tell("round 1", 0.5)
        self.asked.append(setting)
        given = {case: CaseLatency(reason=None) for case in setting.cases if case not in setting.done}
        return MeasuredSetting(latencies=given | self.latencies, peak="peak", seconds=6.0)

    def run(self):
        suite = suites.parse(SUITE, file="<test>")
        models = {each.case.variant.model.name: SimpleNamespace(postprocess=self.postprocess) for each in self.planned}
        prepared = SimpleNamespace(data="data", models=models)
        return list(measure_stage.measure(self.context, suite, prepared, self.built, self.evaluated))


@pytest.mark.parametrize("timed", [False, True])
def test_what_belongs_to_a_call_is_timed_with_it(planned, monkeypatch, timed):
    """A postprocess where the suite says so; without, the network alone is."""
    own = Postprocess(attribute="shapes-detector", timed=timed)
    stage = Measuring(monkeypatch, planned, postprocess=own)
    stage.run()
    assert stage.asked[0].timed == (dict.fromkeys(stage.asked[0].cases, own) if timed else {})


def test_every_open_case_of_a_setting_is_recorded_with_its_share_of_the_seconds(planned, monkeypatch):
    """Those that are done race and have their record; what is kept for a resumed run goes behind the last record."""
    stage = Measuring(monkeypatch, planned, done={planned[0].case.id})
    records = stage.run()
    assert [record.case.id for record in records] == [each.case.id for each in planned[1:]]
    (setting,) = stage.asked
    assert set(setting.cases) == {each.case.id for each in planned}
    assert (setting.done, setting.data, stage.removed) == ({planned[0].case.id}, "data", [setting])
    assert setting.artifacts[STATIC] is stage.built["digits-cnn/static/onednn"].artifact
    record = next(record for record in records if record.case.id == STATIC)
    assert record.elapsed_seconds == {
        "build": 1.235,
        "evaluate": 0.5,
        "calibrations": 7.0,
        "measure": round(6.0 / len(planned), 3),
    }
    assert (record.status, record.stage, record.reason, record.host) == ("ok", None, None, None)
    assert (record.predictions, record.layers) == ("predictions/static.npz", "layers of digits-cnn/static/onednn")
    assert record.started == "2026-01-01"
    assert stage.heard == [("measure", 1), 0.5, ("round 1", 0.5), ("digits-cnn, 1 thread, batch 1", None)]
    twin = next(record for record in records if record.case.mode != "static")
    assert "calibrations" not in twin.elapsed_seconds


def test_a_case_that_could_not_be_measured_failed(planned, monkeypatch):
    """At this stage, with the reason; on another host the reason is what shipping it there would give."""
    stage = Measuring(monkeypatch, planned, **{STATIC: CaseLatency(reason="it hung")})
    failed = [record for record in stage.run() if record.status != "ok"]
    assert [(record.case.id, record.status, record.stage, record.reason) for record in failed] == [
        (STATIC, "failed", "measure", "it hung")
    ]
    assert measure_stage._name_host("it hung", "avx2") == "does not run on avx2: it hung"
    assert measure_stage._name_host(None, "avx2") is None


@pytest.mark.parametrize("kind", ["predicted", "emulated"])
def test_what_is_answered_in_software_is_recorded_first_and_not_raced(planned, monkeypatch, kind):
    """A latency of it would be of nothing."""
    stage = Measuring(monkeypatch, planned, hosts={STATIC: HostFacts(kind=kind)})
    records = stage.run()
    assert (records[0].case.id, records[0].latency, records[0].host.kind) == (STATIC, None, kind)
    assert STATIC not in stage.asked[0].cases
    assert len(records) == len(planned)
    native = Measuring(monkeypatch, planned, hosts={STATIC: HostFacts(kind="limited")})
    native.run()
    assert STATIC in native.asked[0].cases


def test_a_core_whose_peak_is_not_known_is_told_of_once(planned, monkeypatch):
    """With the reason, before anything races."""
    stage = Measuring(monkeypatch, planned, unknown="no kernel runs")
    stage.run()
    assert stage.heard[1] == "the peak of this core is not known: no kernel runs"
    assert sum("peak" in str(told) for told in stage.heard) == 1


def test_the_stage_is_as_far_as_the_cases_that_raced_and_the_race_in_hand(planned, monkeypatch):
    """A setting of four cases takes longer than one of two: their count alone says little."""
    other = make_plan(suites.parse(SUITE.replace("matrix: {", "matrix: {batch_sizes: [4], "), file="<test>"), cores=2)
    first, second = list(planned)[:4], [each for each in other.cases if each.case.batch_size == 4][:2]
    stage = Measuring(monkeypatch, [*first, *second])
    assert len(stage.run()) == 6
    assert [told for told in stage.heard if isinstance(told, float)] == pytest.approx([0.5 * 4 / 6, (4 + 0.5 * 2) / 6])
    assert stage.heard[0] == ("measure", 2)


def test_a_case_that_a_node_measured_says_which(planned):
    """With what Ray took of it; a native case of a cluster gets a host for that."""
    here = MeasuredSetting(latencies={})
    there = MeasuredSetting(latencies={}, node="10.0.0.1 (n1)", cluster_load=0.25)
    limited = HostFacts(kind="limited", cpu="Zen")
    assert measure_stage._place_host(None, here) is None
    assert measure_stage._place_host(limited, here) is limited
    assert measure_stage._place_host(limited, there) == replace(limited, node="10.0.0.1 (n1)", cluster_load=0.25)
    placed = measure_stage._place_host(None, there)
    assert (placed.kind, placed.node, placed.cluster_load) == ("native", "10.0.0.1 (n1)", 0.25)


def test_settings_of_nodes_are_measured_there_and_the_others_here(planned, monkeypatch):
    """Those first: all machines work at once."""
    asked = []

    def measure_on_nodes(context, fleet, settings, enter):
        asked.extend(name for name, _ in settings)
        for _, of_setting in settings:
            setting = enter(of_setting)
            yield (
                of_setting,
                MeasuredSetting(latencies=dict.fromkeys(setting.cases, CaseLatency(reason=None)), node="n1"),
            )

    monkeypatch.setattr(measure_stage, "measure_on_nodes", measure_on_nodes)
    stage = Measuring(monkeypatch, planned, fleet=SimpleNamespace(find_class=lambda host: "class"))
    assert {record.host.node for record in stage.run()} == {"n1"}
    assert (asked, stage.asked) == (["digits-cnn, 1 thread, batch 1"], [])
    here = Measuring(monkeypatch, planned, fleet=SimpleNamespace(find_class=lambda host: None))
    assert {record.host for record in here.run()} == {None}
    assert len(here.asked) == 1


def test_the_peak_is_that_of_a_core_with_all_its_instructions(planned, monkeypatch):
    """A host that is limited reaches a share of none."""
    stage = Measuring(monkeypatch, planned)
    measured = MeasuredSetting(latencies={STATIC: CaseLatency(reason=None)}, peak="peak")
    case = next(each for each in planned if each.case.id == STATIC)
    assert measure_stage._rate_latency(stage.built, case, measured)[3:] == ("peak", None)
    watched = CaseLatency(reason=None, interference=SimpleNamespace(calm_seconds=5.6e-6))
    measured = MeasuredSetting(latencies={STATIC: watched}, peak="peak")
    assert measure_stage._rate_latency(stage.built, case, measured)[3:] == ("peak", 5.6e-6)
    elsewhere = replace(case, case=replace(case.case, host="avx2"))
    limited = MeasuredSetting(latencies={elsewhere.case.id: CaseLatency(reason=None)}, peak="peak")
    assert measure_stage._rate_latency(stage.built, elsewhere, limited)[3:] == (None, None)
