"""qbench.plan.notes: what a plan says beside its cases and skips."""

from __future__ import annotations

import pytest

from qbench import registry
from qbench.hosts.emulated import Emulated
from qbench.plan.planner import Plan, make_plan
from qbench.suite import parse


@pytest.fixture(autouse=True)
def _everything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend can do its modes and every CPU is emulated, whatever this machine has."""
    for name in ("torch", "fbgemm", "onednn", "onnxruntime", "inductor"):
        kind = type(registry.load("backend", name))
        monkeypatch.setattr(kind, "missing", lambda self: None)
        monkeypatch.setattr(kind, "why_not", lambda self, *, mode, kind: None)
    monkeypatch.setattr(Emulated, "missing", lambda self: None)


def plan(matrix: str, more: str = "", only: str | None = None) -> Plan:
    """The plan of a suite around a matrix."""
    text = f"suite: s\nmodels: [digits-cnn]\ndata: {{dataset: digits}}\nmatrix: {matrix}\n{more}"
    return make_plan(parse(text, file="s.yaml"), cores=4, only=only)


def test_modes_that_a_backend_has_not_are_one_note_in_words() -> None:
    """All floats of an engine are its runtime's; two modes are joined by "and" alone."""
    notes = plan("{modes: [fp32, bf16, fp16], backends: [torch, fbgemm]}").notes
    assert "fbgemm: fp32, bf16 and fp16 are no cases; its runtime is torch, which runs floats" in notes
    notes = plan("{modes: [static, qat], backends: [torch, fbgemm]}").notes
    assert notes[0] == f"torch: static and qat are no cases; it runs {_words('torch')} only"


def _words(backend: str) -> str:
    *first, last = registry.load("backend", backend).modes
    return f"{', '.join(first)} and {last}"


def test_floats_of_a_cpu_in_software_are_no_case() -> None:
    """Each mode once, of those that are cases anywhere; int8 there is one, and floats of this machine are."""
    planned = plan(
        "{modes: [fp32, static], backends: [onnxruntime, fbgemm], batch_sizes: [1, 2]}",
        "hosts: [native, 'qemu:max', 'qemu:Haswell']",
    )
    held = "is no case: int8 answers there are held against those of native"
    assert [note for note in planned.notes if "held against" in note] == [
        f"fp32 on qemu:max {held}",
        f"fp32 on qemu:Haswell {held}",
    ]
    assert not any("held against" in note for note in plan("{modes: [fp32, static], backends: [fbgemm]}").notes)


@pytest.mark.parametrize(
    ("modes", "artifacts"), [("[static]", "1 artifact"), ("[static, qat]", "2 artifacts"), ("[dynamic]", "2 artifacts")]
)
def test_what_an_emulated_host_answers_is_counted_by_artifact(modes: str, artifacts: str) -> None:
    """One serves every batch size, but a dynamic one is looked at with each."""
    planned = plan(f"{{modes: {modes}, backends: [fbgemm], batch_sizes: [1, 2]}}", "hosts: [native, 'qemu:max']")
    (told,) = [note for note in planned.notes if note.startswith("qemu:max: answers only, no latency, of ")]
    assert told.startswith(f"qemu:max: answers only, no latency, of {artifacts}, for the ")
    assert not any("answers only" in note for note in plan(f"{{modes: {modes}, backends: [fbgemm]}}").notes)


def test_a_training_has_no_twin_on_an_emulated_cpu() -> None:
    """There int8 is held against the same file here; the case here has its twin."""
    planned = plan(
        "{modes: [qat], backends: [fbgemm]}", "hosts: [native, 'qemu:max']\nquantize: {qat: {fp32_twin: true}}\n"
    )
    twins = {each.case.host: each.twin and each.twin.id for each in planned.cases if each.case.variant.mode == "qat"}
    assert twins == {"native": "digits-cnn/fp32@twin/torch/t1/b1", "qemu:max": None}
    assert "1 fp32 twin is trained as the qat cases beside, without fake quantization (quantize.qat.fp32_twin)" in (
        planned.notes
    )


def test_one_variant_that_is_calibrated_several_times_is_one() -> None:
    """With the seeds from the first to the last."""
    text = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits, calibrate: {seed: 2, seeds: 2}}\n"
    planned = make_plan(parse(f"{text}matrix: {{modes: [static], backends: [fbgemm]}}\n"), cores=1)
    assert planned.notes[-1] == (
        "1 static variant is built and evaluated with 2 calibration subsets, of the seeds 2 to 3; what is measured is "
        "the first"
    )
    dynamic = make_plan(parse(f"{text}matrix: {{modes: [dynamic], backends: [fbgemm]}}\n"), cores=1)
    assert not any("subsets" in note for note in dynamic.notes)


def test_a_target_has_no_effect_on_what_a_framework_does_alone() -> None:
    """That of all modes and that of one, with joins in float or without; not where a recipe of qbench's is beside none
    of its own."""
    for recipe in ("framework-default", "framework-default+float_joins"):
        planned = plan(
            "{modes: [static, dynamic], backends: [fbgemm]}",
            f"recipe: {recipe}\nquantize: {{target: avx2, dynamic: {{target: vnni}}, qat: {{target: vnni}}}}\n",
        )
        told = [note.partition(": ")[2] for note in planned.notes if "has no effect on recipe" in note]
        assert [note.partition(" ")[0] for note in told] == ["quantize.target", "quantize.dynamic.target"]
    planned = plan("{modes: [static], backends: [fbgemm]}", "quantize: {target: avx2}\n")
    assert not any("has no effect on recipe" in note for note in planned.notes)
