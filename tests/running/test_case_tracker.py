"""What a record shows of a recipe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from made_records import int8

from qbench.errors import CaseError, CaseSkipped
from qbench.plan.planner import Plan, make_plan
from qbench.quant.recipe import Recipe
from qbench.record.schema import Record
from qbench.running.case_tracker import CaseTracker, describe_recipe
from qbench.suite import parse


def test_a_record_shows_the_choices_that_a_recipe_has() -> None:
    """Not its name, nor what is no choice of its mode; False and 0 are choices."""
    shown = describe_recipe(Recipe(name="mine", flow="fx", calibrator="mse", per_channel=False, skip_layers=("stem",)))
    assert {key: shown[key] for key in ("flow", "calibrator", "per_channel", "skip_layers")} == {
        "flow": "fx",
        "calibrator": "mse",
        "per_channel": False,
        "skip_layers": ("stem",),
    }
    assert "name" not in shown
    assert not {None, ()} & {value for value in shown.values() if not isinstance(value, list)}


def test_fp32_has_no_recipe_but_the_training_of_its_twin() -> None:
    """How it would be quantized is not part of it."""
    assert describe_recipe(Recipe()) == {}
    twin = describe_recipe(Recipe(epochs=2, learning_rate=0.01, seed=3))
    assert (twin["epochs"], twin["learning_rate"], twin["seed"]) == (2, 0.01, 3)
    assert set(twin) <= {"epochs", "learning_rate", "batch_size", "samples", "seed", "schedule", "distill"}


SUITE = """
suite: small
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static, qat], backends: [torch, onednn], threads: [1, 2]}
quantize: {qat: {fp32_twin: true}}
"""
FP32, STATIC, QAT = (f"digits-cnn/{name}/t1/b1" for name in ("fp32/torch", "static/onednn", "qat/onednn"))


@pytest.fixture
def plan() -> Plan:
    """fp32, its twin, static and qat, each on one and two threads."""
    return make_plan(parse(SUITE, file="<test>"), cores=2)


def track(plan: Plan, *records: Record) -> tuple[CaseTracker, list[Record]]:
    """The cases of a run with those records, and what is written from now on."""
    written: list[Record] = []
    directory: Any = SimpleNamespace(write_record=written.append)
    return CaseTracker(plan, directory, records, started="2026-01-01"), written


def record(case: str, status: Any = "ok") -> Record:
    """A record of one case."""
    measured = int8(case)
    return Record(case=measured.case, status=status, stage=None, reason=None)


def find(plan: Plan, *cases: str) -> Any:
    """The planned cases of those ids."""
    return [planned.case for planned in plan.cases if planned.case.id in cases]


def list_open(tracker: CaseTracker) -> set[str]:
    """The ids of the open cases."""
    return {planned.case.id for planned in tracker.open_cases()}


def test_every_case_is_open_at_first(plan: Plan) -> None:
    """In the order of the plan."""
    tracker, _ = track(plan)
    assert tracker.open_cases() == list(plan.cases)
    assert tracker.done == set()
    assert {case.id for case in tracker.list_cases("digits-cnn/static/onednn")} == {STATIC, STATIC.replace("t1", "t2")}


def test_what_is_recorded_is_done_and_open_only_for_who_needs_it(plan: Plan) -> None:
    """fp32 is the reference of whatever is left; what failed is tried again; records of other cases say nothing."""
    every = {planned.case.id for planned in plan.cases}
    tracker, _ = track(plan, record(FP32), record(STATIC), record(QAT, "failed"), record("other/static/x86/t1/b1"))
    assert tracker.done == {FP32, STATIC}
    assert list_open(tracker) == every - {STATIC}
    finished, _ = track(plan, *(record(case) for case in every))
    assert finished.open_cases() == []
    (twin,) = {planned.twin.id for planned in plan.cases if planned.twin is not None and planned.case.id == QAT}
    left, _ = track(plan, *(record(case) for case in every - {QAT}))
    assert list_open(left) == {FP32, QAT, twin}


def test_a_case_that_breaks_is_recorded_at_once_and_once(plan: Plan) -> None:
    """With its stage and reason; the others go on."""
    tracker, written = track(plan)
    for error in (CaseError("no such layer"), CaseError("again")):
        tracker.break_cases(find(plan, STATIC), "build", error)
    (told,) = written
    assert (told.case.id, told.status, told.stage, told.reason, told.started) == (
        STATIC, "failed", "build", "no such layer", "2026-01-01",
    )  # fmt: skip
    assert told.recipe is not None
    assert told.recipe["flow"] is not None
    assert told.artifact is None
    assert list_open(tracker) == {planned.case.id for planned in plan.cases} - {STATIC}


@pytest.mark.parametrize(("error", "status"), [(CaseError("no"), "failed"), (CaseSkipped("no"), "skipped")])
def test_a_reference_that_breaks_takes_along_what_is_compared_with_it(plan: Plan, error: Any, status: str) -> None:
    """Skipped with a skipped one; the reason names the reference. Those of two threads have another."""
    tracker, written = track(plan)
    tracker.break_cases(find(plan, FP32), "evaluate", error)
    told = {each.case.id: (each.status, each.stage, each.reason) for each in written}
    assert told.pop(FP32) == (status, "evaluate", "no")
    assert set(told) == {
        planned.case.id for planned in plan.cases if planned.reference and planned.reference.id == FP32
    }
    assert set(told.values()) == {(status, "evaluate", f"its baseline {FP32} has no result: no")}
    assert all(case.rsplit("/", 2)[1] == "t2" for case in list_open(tracker))


def test_what_is_done_keeps_its_record_but_serves_nobody(plan: Plan) -> None:
    """An fp32 that an earlier part has measured and that cannot be built now: what is compared with it breaks."""
    tracker, written = track(plan, record(FP32), record(QAT))
    tracker.break_cases(find(plan, FP32), "build", CaseError("gone"))
    assert FP32 not in list_open(tracker)
    assert {each.case.id for each in written}.isdisjoint({FP32, QAT})
    assert STATIC in {each.case.id for each in written}


def test_nothing_breaks_while_the_user_interrupts(plan: Plan) -> None:
    """It is qbench that ends the children then."""
    tracker, written = track(plan)
    tracker.stopping = True
    tracker.break_cases(find(plan, FP32, STATIC), "build", CaseError("ended by SIGKILL"))
    assert (written, tracker.open_cases()) == ([], list(plan.cases))


def test_a_result_is_recorded_unless_it_was(plan: Plan) -> None:
    """A case that races only so that others have somebody to be held against has its record."""
    tracker, written = track(plan, record(FP32))
    for case in (FP32, STATIC):
        tracker.record_result(record(case))
    assert [each.case.id for each in written] == [STATIC]


def test_a_broken_case_shows_the_artifact_that_it_had(plan: Plan) -> None:
    """By its variant's id, with the recipe that it was built by."""
    tracker, written = track(plan)
    built: Any = SimpleNamespace(recipe=Recipe(flow="fx", calibrator="mse"), facts=lambda: int8(STATIC).artifact)
    tracker.break_cases(find(plan, STATIC, QAT), "evaluate", CaseError("no"), {"digits-cnn/static/onednn": built})
    told = {each.case.id: each for each in written}
    assert told[STATIC].artifact == int8(STATIC).artifact
    assert told[STATIC].recipe is not None
    assert told[STATIC].recipe["calibrator"] == "mse"
    assert told[QAT].artifact is None


def test_a_file_of_the_users_has_choices_though_it_has_no_flow() -> None:
    """And the keys of an optimizer are shown by name."""
    shown = describe_recipe(Recipe(file="m.onnx"))
    assert shown["file"] == "m.onnx"
    trained = describe_recipe(Recipe(flow="fx", epochs=1, optimizer_keys=(("momentum", 0.9),)))
    assert trained["optimizer_keys"] == {"momentum": 0.9}
