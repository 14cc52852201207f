"""Which variants wait for which while a run builds, and what breaks which cases; nothing is built."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import CaseError, CaseSkipped, ModeImpossible
from qbench.plan.planner import Variant, make_plan
from qbench.quant.recipe import Recipe
from qbench.running import build_stage
from qbench.running.build_stage import build_variants
from qbench.running.case_tracker import CaseTracker
from qbench.running.context import RunContext
from qbench.suite import parse

WAITING_SECONDS = 20.0


class Tracker:
    """Remembers which variants could not be built."""

    def __init__(self):
        self.broken = {}

    def open_cases(self):
        return self.planned

    def list_cases(self, variant):
        return [variant]

    def break_cases(self, cases, stage, error, artifacts=None):
        self.broken |= dict.fromkeys(cases, str(error))


def make_context(*ids):
    """Two threads, and open cases of these variants."""
    tracker = Tracker()
    tracker.planned = []
    for name in ids:
        model, mode, backend = name.split("/")
        variant = Variant(model=SimpleNamespace(name=model), mode=mode, backend=backend, recipe=Recipe())
        assert variant.id == name
        tracker.planned.append(SimpleNamespace(case=SimpleNamespace(variant=variant)))
    context = SimpleNamespace(
        tracker=tracker,
        jobs=2,
        fleet=None,
        kept=None,
        progress=SimpleNamespace(stage=lambda *_: None, advance=lambda *_: None),
    )
    context.run_parallel = lambda *args, **options: RunContext.run_parallel(context, *args, **options)
    return context


def build(monkeypatch, context, act):
    """The ids of what was built where ``act(id)`` is what building one takes."""
    artifact = SimpleNamespace(repair=None, built=SimpleNamespace(fixed_batch=None))

    def make(context, prepared, variant, data, name):
        act(name)
        return artifact

    monkeypatch.setattr(build_stage, "_build", make)
    prepared = SimpleNamespace(data=SimpleNamespace(other_subsets=()))
    return set(build_stage.build_variants(context, prepared))


def test_a_variant_waits_for_its_own_baseline_alone(monkeypatch):
    """int8 of one network begins while fp32 of another is still being built."""
    context = make_context("slow/fp32/torch", "fast/fp32/torch", "fast/dynamic/onednn", "slow/dynamic/onednn")
    begun, order = threading.Event(), []

    def act(name):
        if name == "slow/fp32/torch":
            assert begun.wait(WAITING_SECONDS)
        if name == "fast/dynamic/onednn":
            begun.set()
        order.append(name)

    assert build(monkeypatch, context, act) == set(order)
    assert order.index("slow/fp32/torch") < order.index("slow/dynamic/onednn")


@pytest.mark.parametrize("error", [CaseError("no room"), None])
def test_without_its_baseline_a_variant_is_not_built(monkeypatch, error):
    """Where fp32 fails, and where it is no part of the run; others are built."""
    fp32 = ["bad/fp32/torch"] if error else []
    context = make_context(*fp32, "bad/dynamic/onednn", "good/fp32/torch", "good/dynamic/onednn")

    def act(name):
        if name == "bad/fp32/torch":
            raise error

    assert build(monkeypatch, context, act) == {"good/fp32/torch", "good/dynamic/onednn"}
    assert context.tracker.broken["bad/dynamic/onednn"] == "its baseline bad/fp32/torch could not be built"


# --- what breaks what ---------------------------------------------------------------------------------------


SUITE = """
suite: small
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static, qat], backends: [torch, onednn], batch_sizes: [1, 4]}
quantize: {qat: {fp32_twin: true}}
"""
FP32, STATIC, QAT = "digits-cnn/fp32/torch", "digits-cnn/static/onednn", "digits-cnn/qat/onednn"


class Building:
    """A build stage whose builds are told: ``answers`` by name of what is built, an error or what is special of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seeds: tuple[int, ...] = (), **answers: Any) -> None:
        self.built: list[str] = []
        self.waves: list[tuple[list[str], list[Any]]] = []
        self.heard: list[Any] = []
        self.records: list[Any] = []
        self.near: list[str] = []
        self.answers = {name.replace("__", "/"): answer for name, answer in answers.items()}
        directory: Any = SimpleNamespace(write_record=self.records.append)
        plan = make_plan(parse(SUITE, file="<test>"), cores=2)
        data = SimpleNamespace(
            other_subsets=tuple(SimpleNamespace(seed=seed) for seed in seeds),
            with_calibration=lambda subset: f"data of {subset.seed}",
        )
        self.context: Any = SimpleNamespace(
            kept=None,
            tracker=CaseTracker(plan, directory, (), started="2026-01-01"),
            progress=SimpleNamespace(
                stage=lambda *told: self.heard.append(told), advance=self.heard.append, note=self.heard.append
            ),
            note_missing=lambda name, reason: self.heard.append((name, reason)),
            report_under=lambda name: name, cache=None, limits=None, train_qat=True, run_parallel=self.run_parallel,
            find_place=lambda host: SimpleNamespace(run_child_near=self.near.append),
            memory=SimpleNamespace(call=lambda function, act: act()),
        )  # fmt: skip
        self.prepared: Any = SimpleNamespace(data=data, models={"digits-cnn": "model"})
        monkeypatch.setattr(build_stage, "build", self.build)

    def run_parallel(self, name: str, items: Any, work: Any, *, kind: Any) -> list[Any]:
        """One after the other; what was asked for together is kept, with what it shares."""
        self.waves.append(([getattr(item, "id", None) or item[0].id for item in items], [kind(item) for item in items]))
        return [work(item) for item in items]

    def build(self, variant: Any, *, data: Any, progress: str, **_: Any) -> Any:
        """The artifact, or the error, of what progress calls so."""
        self.built.append(progress)
        answer = self.answers.get(progress, {})
        if isinstance(answer, Exception):
            raise answer
        values = {"repair": None, "fixed_batch": None, **answer}
        return SimpleNamespace(
            repair=values["repair"], built=SimpleNamespace(fixed_batch=values["fixed_batch"]), recipe=variant.recipe,
            facts=lambda: None, data=data,
        )  # fmt: skip

    def run(self) -> dict[str, Any]:
        """What was built, by variant."""
        return dict(build_variants(self.context, self.prepared))

    def told(self) -> dict[str, tuple[str, str]]:
        """Status and reason of each record."""
        return {record.case.id: (record.status, record.reason) for record in self.records}


def test_fp32_is_built_before_what_is_compared_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the long ones first: what is trained, a twin among them, which all runtimes share."""
    building = Building(monkeypatch)
    built = building.run()
    (names, kinds), (again, _) = building.waves
    twin = next(name for name in names[1:] if "/fp32" in name)
    assert (names[0], set(names[1:3]), names[3], again) == (FP32, {twin, QAT}, STATIC, [])
    assert set(built) == {FP32, twin, STATIC, QAT}
    shared = dict(zip(names, kinds, strict=True))
    assert shared[twin] == ("digits-cnn", "fp32", "")
    assert shared[STATIC] == ("digits-cnn", "static", "torch")
    assert building.heard == [("build", 4), *names]
    assert (building.near[0], building.near[names.index(twin)]) == ("digits-cnn:torch", "digits-cnn:")
    assert building.records == []
    assert all(0 <= result.seconds < 60 for result in built.values())


def test_without_its_fp32_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compare it with; both say why."""
    building = Building(monkeypatch, **{FP32.replace("/", "__"): CaseError("no memory")})
    assert building.run() == {}
    assert building.built == [FP32]
    told = building.told()
    assert told["digits-cnn/fp32/torch/t1/b1"] == ("failed", "no memory")
    assert told["digits-cnn/static/onednn/t1/b1"] == (
        "failed",
        "its baseline digits-cnn/fp32/torch/t1/b1 has no result: no memory",
    )
    assert len(told) == len(building.context.tracker.planned)


@pytest.mark.parametrize(
    ("error", "status"),
    [(CaseError("bits"), "failed"), (ModeImpossible("bits"), "skipped"), (CaseSkipped("bits"), "skipped")],
)
def test_a_variant_that_fails_breaks_its_own_cases(monkeypatch: pytest.MonkeyPatch, error: Any, status: str) -> None:
    """All of its batches; what a network cannot have is skipped."""
    building = Building(monkeypatch, **{STATIC.replace("/", "__"): error})
    assert STATIC not in building.run()
    assert building.told() == {f"digits-cnn/static/onednn/t1/b{batch}": (status, "bits") for batch in (1, 4)}


def test_a_damaged_copy_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made again; nothing breaks."""
    building = Building(monkeypatch, **{STATIC.replace("/", "__"): {"repair": "it was damaged"}})
    building.run()
    assert f"{STATIC}: it was damaged" in building.heard
    assert building.records == []


def test_a_model_of_one_batch_size_skips_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do; the size that it takes is measured."""
    building = Building(monkeypatch, **{STATIC.replace("/", "__"): {"fixed_batch": 4}})
    assert STATIC in building.run()
    (told,) = building.told().items()
    assert told[0] == "digits-cnn/static/onednn/t1/b1"
    assert told[1][0] == "skipped"
    assert "takes batches of 4 only; export it with a dynamic batch axis" in told[1][1]


def test_static_ones_are_built_with_each_further_calibration_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails is kept with its reason and breaks nothing; the variant's own artifact stays."""
    failing = f"{STATIC} (calibration seed 2)"
    building = Building(monkeypatch, seeds=(1, 2), **{failing.replace("/", "__"): CaseError("no range")})
    built = building.run()
    assert building.waves[1] == (
        [STATIC, STATIC],
        [("digits-cnn", "static", "torch", 1), ("digits-cnn", "static", "torch", 2)],
    )
    first, second = built[STATIC].recalibrated
    assert (first.subset.seed, first.artifact.data, first.reason) == (1, "data of 1", None)
    assert (second.subset.seed, second.artifact, second.reason) == (2, None, "no range")
    assert built[QAT].recalibrated == ()
    assert all(0 <= each.seconds < 60 for each in (first, second))
    assert (failing, "not built: no range") in building.heard
    assert building.heard[0] == ("build", 6)
    assert building.heard[-1] == failing
    assert building.records == []


def test_what_was_not_built_is_not_built_with_other_subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be compared with nothing; the step counts all the same."""
    building = Building(monkeypatch, seeds=(1,), **{STATIC.replace("/", "__"): CaseError("bits")})
    assert STATIC not in building.run()
    assert f"{STATIC} (calibration seed 1)" not in building.built
    assert f"{STATIC} (calibration seed 1)" in building.heard


def test_kept_artifacts_are_not_built_with_further_subsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are those of an earlier run, which holds one of each; what it does not hold is not built."""
    building = Building(monkeypatch, seeds=(1, 2))
    building.context.kept = {planned.case.variant.id: tmp_path for planned in building.context.tracker.planned}
    del building.context.kept[QAT]
    built = building.run()
    assert set(built) == building.context.kept.keys()
    assert building.waves[1] == ([], [])
    assert building.told()["digits-cnn/qat/onednn/t1/b1"] == (
        "failed",
        "the run whose artifacts are taken has none of it that is still in the cache",
    )


def test_a_static_file_of_the_users_is_calibrated_already() -> None:
    """Nothing of it hangs on a subset, whatever the file's mode is."""
    data: Any = SimpleNamespace(other_subsets=("a", "b"))
    for mode, file, subsets in (("static", None, ("a", "b")), ("static", "m.onnx", ()), ("qat", None, ())):
        variant: Any = SimpleNamespace(mode=mode, recipe=SimpleNamespace(file=file))
        assert build_stage._list_subsets(data, variant) == subsets
