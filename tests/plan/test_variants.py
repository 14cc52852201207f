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


def twins(whole_plan: Plan) -> dict[str, str | None]:
    """The twin of each QAT case."""
    return {
        planned.case.id: planned.twin and planned.twin.id
        for planned in whole_plan.cases
        if planned.case.variant.mode == "qat"
    }


def test_variants_that_are_trained_alike_have_one_twin_on_each_runtime() -> None:
    """Engines of torch share the twin on torch; it is compared with the plain fp32 and follows it in the run."""
    whole_plan = plan()
    assert twins(whole_plan) == {
        "digits-cnn/qat/fbgemm/t1/b1": TWIN.format("torch"),
        "digits-cnn/qat/onednn/t1/b1": TWIN.format("torch"),
        "digits-cnn/qat/inductor/t1/b1": TWIN.format("inductor"),
    }
    cases = {planned.case.id: planned for planned in whole_plan.cases}
    assert list(cases)[:2] == ["digits-cnn/fp32/torch/t1/b1", TWIN.format("torch")]
    twin = cases[TWIN.format("torch")]
    assert (twin.reference.id, twin.added, twin.twin) == ("digits-cnn/fp32/torch/t1/b1", False, None)
    assert (twin.case.key.recipe, twin.case.key.is_twin) == ("twin", True)
    assert cases["digits-cnn/qat/onednn/t1/b1"].reference.id == "digits-cnn/fp32/torch/t1/b1"
    assert whole_plan.notes[-1].startswith("2 fp32 twins are trained as the qat cases beside")


def test_a_twin_has_the_training_and_nothing_of_int8() -> None:
    """Its recipe holds what decides the training; how QAT rounds does not matter to it."""
    whole_plan = plan("quantize.qat.per_channel=false", "quantize.qat.distill=0.5")
    (twin,) = [planned.case.variant for planned in whole_plan.cases if planned.case.id == TWIN.format("torch")]
    assert twin.recipe == Recipe(
        name="twin", epochs=2, learning_rate=1e-3, batch_size=64, seed=0, schedule="cosine", distill=0.5
    )
    assert twin.recipe.trains


@pytest.mark.parametrize(
    ("override", "name"), [("epochs: 3", "twin-fbgemm"), ("epochs: 2", "twin"), ("per_channel: false", "twin")]
)
def test_another_training_on_one_backend_has_a_twin_of_its_own(override: str, name: str) -> None:
    """The name says whose; a backend that is trained as the others shares theirs."""
    whole_plan = plan(f"quantize.qat.backends={{fbgemm: {{{override}}}}}")
    assert twins(whole_plan)["digits-cnn/qat/fbgemm/t1/b1"] == f"digits-cnn/fp32@{name}/torch/t1/b1"
    assert twins(whole_plan)["digits-cnn/qat/onednn/t1/b1"] == TWIN.format("torch")


def test_recipes_say_how_to_quantize_and_share_a_twin() -> None:
    """The framework's default is trained alike, so nothing is trained a third time."""
    whole_plan = plan("recipe=[default, framework-default]")
    assert set(twins(whole_plan).values()) == {TWIN.format("torch"), TWIN.format("inductor")}


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
    whole_plan = plan("quantize.qat.fp32_twin=false")
    cases: list[Any] = [planned for planned in whole_plan.cases if planned.twin is not None or planned.case.key.is_twin]
    assert cases == []


def test_joins_in_float_are_no_recipe_where_a_framework_cannot_be_told() -> None:
    """On OpenVINO that recipe is no case, and the plan says why."""
    whole_plan = plan("recipe=[framework-default+float_joins]", "matrix.backends=[torch, onednn, openvino]")
    static = [planned.case.id for planned in whole_plan.cases if planned.case.key.mode == "static"]
    assert static == ["digits-cnn/static@framework-default+float_joins/onednn/t1/b1"]
    assert any("its framework cannot be told to join in float" in note for note in whole_plan.notes)


def recipes(*overrides: str) -> dict[str, Recipe]:
    """The recipe of each case of the plan, by the case's id without model, threads and batch size."""
    whole_plan = plan("quantize.qat.fp32_twin=false", *overrides)
    ids = {
        planned.case.id.removeprefix("digits-cnn/").removesuffix("/t1/b1"): planned.case for planned in whole_plan.cases
    }
    return {name: case.variant.recipe for name, case in ids.items()}


def test_the_flow_is_the_one_that_is_asked_for_or_the_backends_own() -> None:
    """``auto`` asks for nothing."""
    by_case = recipes(
        "recipe=[{name: a, flow: auto, calibrator: minmax}, {name: e, flow: eager}]", "matrix.modes=[static]"
    )
    plain = recipes("matrix.modes=[static]")
    assert by_case["static@e/fbgemm"].flow == "eager"
    assert by_case["static@a/fbgemm"].flow == plain["static/fbgemm"].flow
    assert by_case["static@a/inductor"].flow == plain["static/inductor"].flow == "pt2e"


def test_what_counts_as_int8_is_the_suites_to_say_of_dynamic_variants() -> None:
    """A recipe changes no file by it there, so it is the same case; of a static one it is the recipe's."""
    by_case = recipes(
        "recipe=[default, {name: strict, min_coverage: 0.75}]",
        "matrix.modes=[dynamic, static]",
        "matrix.backends=[fbgemm]",
    )
    assert list(by_case) == ["fp32/torch", "dynamic/fbgemm", "static/fbgemm", "static@strict/fbgemm"]
    assert by_case["static@strict/fbgemm"].min_coverage == 0.75
    assert by_case["static/fbgemm"].min_coverage != 0.75


def test_a_recipe_is_held_against_each_earlier_one_that_the_backend_can_take() -> None:
    """One of another flow is passed over; one behind it may be the same."""
    whole_plan = plan(
        "quantize.qat.fp32_twin=false",
        "recipe=[{name: first, flow: eager}, {name: second, calibrator: minmax}, {name: third, calibrator: minmax}]",
        "matrix.modes=[static]",
        "matrix.backends=[inductor]",
    )
    assert [planned.case.id for planned in whole_plan.cases if planned.case.key.mode == "static"] == [
        "digits-cnn/static@second/inductor/t1/b1"
    ]
    assert "inductor: static with the recipe first is no case: its flow is pt2e" in whole_plan.notes
    assert "inductor: static with the recipe third is no case: it is the same as second" in whole_plan.notes


def test_only_what_holds_machine_code_has_a_target_without_int8() -> None:
    """fp32 and 16-bit floats of torch run anywhere; those of Inductor are compiled for a CPU, as is its twin."""
    overrides = ("quantize.target=avx2", "matrix.backends=[torch, inductor]", "matrix.modes=[fp32, bf16, qat]")
    variants = {planned.case.id.split("/", 1)[1]: planned.case.variant for planned in plan(*overrides).cases}
    targets = {name.removesuffix("/t1/b1"): variant.recipe.target for name, variant in variants.items()}
    assert {name: targets[name] for name in ("fp32/torch", "fp32/inductor", "fp32@twin/inductor")} == {
        "fp32/torch": (),
        "fp32/inductor": ("avx2",),
        "fp32@twin/inductor": ("avx2",),
    }
    assert {name: target for name, target in targets.items() if name.startswith("bf16")} == {
        "bf16/torch": (),
        "bf16/inductor": ("avx2",),
    }


def test_a_file_of_the_users_is_neither_rewritten_nor_clipped() -> None:
    """Its recipe says nothing but where it is and how much of it has to be int8; it is trained by nobody."""
    whole_plan = plan(
        "quantize.qat.fp32_twin=false",
        "models=[{name: digits-cnn, int8: {v: {file: a.pt, mode: static, engine: fbgemm}}}]",
        "matrix.modes=[fp32]",
    )
    (own,) = [planned for planned in whole_plan.cases if planned.case.variant.recipe.file]
    recipe = own.case.variant.recipe
    assert (recipe.canonicalize, recipe.clip_ranges, recipe.file, recipe.name) == (False, False, "a.pt", "file-v")
    assert own.twin is None


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("{name: n, balance: 0.5, flow: onnx}", "balance is for static on onnxruntime and openvino alone"),
        ("{name: n, bits: 4}", "bits is for weight_only alone"),
        ("{name: n, bits: 4, group: 32}", "bits and group are for weight_only alone"),
    ],
)
def test_keys_of_one_mode_alone_are_no_recipe_of_another(recipe: str, told: str) -> None:
    """The note names them all."""
    asked = ("quantize.qat.fp32_twin=false", "matrix.modes=[dynamic]", "matrix.backends=[onnxruntime]")
    whole_plan = plan(f"recipe=[default, {recipe}]", *asked)
    assert [note for note in whole_plan.notes if note.endswith(told)], whole_plan.notes
