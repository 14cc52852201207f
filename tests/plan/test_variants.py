"""Rules of the fp32 twins in qbench/plan/variants.py: a further fp32 case for each training, on each runtime."""

from __future__ import annotations

from typing import Any

import pytest

from qbench import registry
from qbench.plan.planner import Plan, make_plan
from qbench.quant.recipe import Recipe
from qbench.suite import parse

SUITE = """
suite: twins
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static, qat], backends: [torch, fbgemm, onednn, inductor]}
quantize: {qat: {fp32_twin: true, epochs: 2}}
"""
TWIN = "digits-cnn/fp32@twin/{}/t1/b1"


@pytest.fixture(autouse=True)
def _everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend can do its modes, whatever this machine has."""
    for name in ("torch", "fbgemm", "onednn", "inductor"):
        kind = type(registry.load("backend", name))
        monkeypatch.setattr(kind, "missing", lambda self: None)
        monkeypatch.setattr(kind, "why_not", lambda self, *, mode, kind: None)


def plan(*overrides: str, only: str | None = None) -> Plan:
    """The plan of the suite with these overrides."""
    suite = parse(SUITE, overrides=overrides)
    return make_plan(suite, cores=4, only=only)


def twins(found: Plan) -> dict[str, str | None]:
    """The twin of each QAT case."""
    return {
        planned.case.id: planned.twin and planned.twin.id
        for planned in found.cases
        if planned.case.variant.mode == "qat"
    }


def test_variants_that_are_trained_alike_have_one_twin_on_each_runtime() -> None:
    """Engines of torch share the twin on torch; it is compared with the plain fp32 and follows it in the run."""
    found = plan()
    assert twins(found) == {
        "digits-cnn/qat/fbgemm/t1/b1": TWIN.format("torch"),
        "digits-cnn/qat/onednn/t1/b1": TWIN.format("torch"),
        "digits-cnn/qat/inductor/t1/b1": TWIN.format("inductor"),
    }
    cases = {planned.case.id: planned for planned in found.cases}
    assert list(cases)[:2] == ["digits-cnn/fp32/torch/t1/b1", TWIN.format("torch")]
    twin = cases[TWIN.format("torch")]
    assert (twin.reference.id, twin.added, twin.twin) == ("digits-cnn/fp32/torch/t1/b1", False, None)
    assert (twin.case.key.recipe, twin.case.key.is_twin) == ("twin", True)
    assert cases["digits-cnn/qat/onednn/t1/b1"].reference.id == "digits-cnn/fp32/torch/t1/b1"
    assert found.notes[-1].startswith("2 fp32 twins are trained as the qat cases beside")


def test_a_twin_has_the_training_and_nothing_of_int8() -> None:
    """Its recipe holds what decides the training; how QAT rounds does not matter to it."""
    found = plan("quantize.qat.per_channel=false", "quantize.qat.distill=0.5")
    (twin,) = [planned.case.variant for planned in found.cases if planned.case.id == TWIN.format("torch")]
    assert twin.recipe == Recipe(
        name="twin", epochs=2, learning_rate=1e-3, batch_size=64, seed=0, schedule="cosine", distill=0.5
    )
    assert twin.recipe.trains


@pytest.mark.parametrize(
    ("override", "name"), [("epochs: 3", "twin-fbgemm"), ("epochs: 2", "twin"), ("per_channel: false", "twin")]
)
def test_another_training_on_one_backend_has_a_twin_of_its_own(override: str, name: str) -> None:
    """The name says whose; a backend that is trained as the others shares theirs."""
    found = plan(f"quantize.qat.backends={{fbgemm: {{{override}}}}}")
    assert twins(found)["digits-cnn/qat/fbgemm/t1/b1"] == f"digits-cnn/fp32@{name}/torch/t1/b1"
    assert twins(found)["digits-cnn/qat/onednn/t1/b1"] == TWIN.format("torch")


def test_recipes_say_how_to_quantize_and_share_a_twin() -> None:
    """The framework's default is trained alike, so nothing is trained a third time."""
    found = plan("recipe=[default, framework-default]")
    assert set(twins(found).values()) == {TWIN.format("torch"), TWIN.format("inductor")}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("*/qat/onednn/*", ["fp32/torch", "fp32@twin/torch", "qat/onednn"]),
        ("*/fp32@twin/torch/*", ["fp32/torch", "fp32@twin/torch"]),
        ("*/static/onednn/*", ["fp32/torch", "static/onednn"]),
    ],
)
def test_a_filter_keeps_the_twins_that_it_needs(only: str, expected: list[str]) -> None:
    """As it keeps baselines; a twin can be asked for alone."""
    ids = [planned.case.id.removeprefix("digits-cnn/").removesuffix("/t1/b1") for planned in plan(only=only).cases]
    assert ids == expected


def test_a_qat_that_is_skipped_has_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would be compared with it."""
    reasons = {"qat": "no torchao"}
    kind = type(registry.load("backend", "inductor"))
    monkeypatch.setattr(kind, "why_not", lambda self, *, mode, kind: reasons.get(mode))
    assert TWIN.format("inductor") not in {planned.case.id for planned in plan().cases}


def test_nobody_gets_a_twin_unasked() -> None:
    """The key is off by default, and the plan as without it."""
    found = plan("quantize.qat.fp32_twin=false")
    cases: list[Any] = [planned for planned in found.cases if planned.twin is not None or planned.case.key.is_twin]
    assert cases == []


def test_joins_in_float_are_no_recipe_where_a_framework_cannot_be_told() -> None:
    """On OpenVINO that recipe is no case, and the plan says why."""
    found = plan("recipe=[framework-default+float_joins]", "matrix.backends=[torch, onednn, openvino]")
    static = [planned.case.id for planned in found.cases if planned.case.key.mode == "static"]
    assert static == ["digits-cnn/static@framework-default+float_joins/onednn/t1/b1"]
    assert any("its framework cannot be told to join in float" in note for note in found.notes)
