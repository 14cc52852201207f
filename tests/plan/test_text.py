"""qbench.plan.text: a plan as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from qbench.models.base import ModelReference
from qbench.plan.decision_rule import DecisionRule
from qbench.plan.planner import Case, Plan, PlannedCase, Skip, Variant
from qbench.plan.text import as_json, text
from qbench.quant.recipe import Recipe
from qbench.quant.target import name_cpus


def case(mode: str, backend: str) -> Case:
    """A case of model m, one thread, batch size 1."""
    recipe = Recipe() if mode == "fp32" else Recipe(flow="fx", calibrator="minmax", per_channel=True)
    variant = Variant(model=ModelReference(name="m"), mode=mode, backend=backend, recipe=recipe)
    return Case(variant=variant, threads=1, batch_size=1)


PLAN = Plan(
    suite="demo",
    cases=(
        PlannedCase(case=case("fp32", "torch"), reference=None, added=True),
        PlannedCase(case=case("static", "onednn"), reference=case("fp32", "torch").key),
        PlannedCase(case=case("fp32", "onnxruntime"), reference=None),
    ),
    skipped=(
        Skip(key=case("qat", "onnxruntime").key, reason="no QAT in ONNX yet", too_wide=False),
        Skip(key=case("static", "inductor").key, reason="no C++ compiler; install g++", too_wide=False),
        Skip(key=case("dynamic", "inductor").key, reason="no C++ compiler; install g++", too_wide=False),
    ),
    notes=("fp32 on fbgemm is no case",),
    decision=DecisionRule(
        minimize="latency",
        tie=0.03,
        prefer=("accuracy", "size"),
        limits={"gate.accuracy.margin": 1.0, "gate.size.max_ratio": None},
        metric="top1",
        limit_texts=("top1 at most 1 point worse than fp32",),
    ),
)


def test_text_shows_every_case_skip_and_note() -> None:
    """What decides, each case with what it is compared with, each reason once with its cases, then the notes."""
    assert text(PLAN) == "\n".join(
        (
            "demo: 3 cases, 3 skipped; more may be skipped by what tracing and building find",
            "decide: the shortest latency; within 3 % of it by accuracy, size",
            "limits: top1 at most 1 point worse than fp32",
            "  m/fp32/torch/t1/b1        baseline, added by the plan",
            "  m/static/onednn/t1/b1     against m/fp32/torch/t1/b1",
            "  m/fp32/onnxruntime/t1/b1  baseline",
            "skipped:",
            "  no QAT in ONNX yet",
            "    m/qat/onnxruntime/t1/b1",
            "  no C++ compiler; install g++",
            "    m/static/inductor/t1/b1",
            "    m/dynamic/inductor/t1/b1",
            "note: fp32 on fbgemm is no case",
        )
    )


def test_text_of_a_plan_with_nothing_in_it() -> None:
    """A plan without cases says so and does not fail."""
    assert text(Plan(suite="empty", cases=(), skipped=(), notes=("nothing to run",))) == (
        "empty: 0 cases, 0 skipped\nnote: nothing to run"
    )


def test_json_holds_what_the_text_says_and_the_recipe() -> None:
    """A program gets each case's key, baseline and recipe, each skip with its reason, and the notes."""
    data = json.loads(as_json(PLAN))
    assert [entry["id"] for entry in data["cases"]] == [planned.case.id for planned in PLAN.cases]
    static = data["cases"][1]
    assert static["baseline"] == "m/fp32/torch/t1/b1"
    assert static["recipe"]["per_channel"] is True
    assert (static["threads"], static["batch_size"], static["reference"]) == (1, 1, False)
    assert {entry["id"]: entry["reason"] for entry in data["skipped"]}[
        "m/qat/onnxruntime/t1/b1"
    ] == "no QAT in ONNX yet"
    assert data["notes"] == list(PLAN.notes)
    assert data["decide"] == {
        "minimize": "latency",
        "tie": 0.03,
        "prefer": ["accuracy", "size"],
        "metric": "top1",
        "limits": {"gate.accuracy.margin": 1.0, "gate.size.max_ratio": None},
    }


def test_json_is_written_for_people_too() -> None:
    """A line for each field below the number of its form; letters as they are."""
    written = as_json(replace(PLAN, suite="größe"))
    assert written.startswith('{\n "schema": 1,\n "suite": "größe",\n')
    data = json.loads(as_json(Plan(suite="empty", cases=(), skipped=(), notes=())))
    assert (data["decide"], data["cases"], data["skipped"]) == (None, [], [])
    assert [each["twin"] for each in json.loads(written)["cases"]] == [None, None, None]


def test_a_case_says_its_twin_and_the_cpus_that_it_is_for() -> None:
    """Behind what it is compared with; one case and one skip are one."""
    fp32 = case("fp32", "torch").key
    twin = replace(case("fp32", "torch"), threads=3).key
    qat = case("qat", "onednn")
    targeted = replace(qat, variant=replace(qat.variant, recipe=Recipe(target=("avx2",))))
    lines = text(
        Plan(
            suite="s",
            cases=(PlannedCase(case=targeted, reference=fp32, twin=twin),),
            skipped=PLAN.skipped[:1],
            notes=(),
        )
    ).splitlines()
    assert lines[0].startswith("s: 1 case, 1 skipped; more may be")
    assert lines[1] == (
        "  m/qat/onednn/t1/b1  against m/fp32/torch/t1/b1; its fp32 twin is m/fp32/torch/t3/b1; for "
        f"{name_cpus(('avx2',))}"
    )
    data = json.loads(as_json(Plan(suite="s", cases=(PlannedCase(case=qat, reference=fp32, twin=twin),),
                                   skipped=(), notes=())))  # fmt: skip
    assert data["cases"][0]["twin"] == twin.id
