"""qbench.plan: every cell that a suite asks for becomes a case, a skip with a reason, or a word in a note."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from qbench.backends.base import Backend, BuildJob, Built, Runner
from qbench.errors import UsageError
from qbench.hosts.limited import Limited
from qbench.modes import MODES
from qbench.plan.matrix import expand_matrix
from qbench.plan.planner import Plan, PlannedCase, load_backends, make_plan, measuring_cores
from qbench.quant.recipe import Recipe
from qbench.record.schema import CaseKey
from qbench.suite import Suite, parse, read

HERE = Path(__file__).parent.parent
INT8 = ("dynamic", "static", "qat")


class Stand(Backend):
    """A backend that only answers a plan's questions, and counts them."""

    def __init__(self, name: str, runtime: str, modes: tuple[str, ...], **answers: Any) -> None:
        self.name, self.runtime, self.modes = name, runtime, modes
        self.absent: str | None = answers.get("absent")
        self.cannot: Mapping[str, str] = answers.get("cannot", {})
        self.asked = 0

    def missing(self) -> str | None:
        """What the test said."""
        self.asked += 1
        return self.absent

    def why_not(self, *, mode: str, kind: str) -> str | None:
        """What the test said of the mode."""
        return self.cannot.get(mode)

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Marks that it was asked."""
        return Recipe(flow=f"{self.name}-{mode}", skip_layers=recipe.skip_layers)

    def libraries(self) -> tuple[str, ...]:
        """None."""
        return ()

    def build(self, job: BuildJob) -> Built:
        """Never in a plan."""
        raise AssertionError("a plan builds nothing")

    def load(self, file: Path, *, threads: int) -> Runner:
        """Never in a plan."""
        raise AssertionError("a plan loads nothing")


def stands(**changes: Stand) -> dict[str, Backend]:
    """Backends shaped as the built-in ones, with some replaced (underscore for a dash)."""
    usual = [Stand("torch", "torch", ("fp32",)), Stand("onnxruntime", "onnxruntime", ("fp32", "dynamic", "static"))]
    usual += [Stand("openvino", "openvino", ("fp32", "static", "qat"))]
    usual += [Stand(name, "torch", INT8) for name in ("fbgemm", "x86", "onednn", "qnnpack")]
    usual += [Stand(name, name, ("fp32", *INT8)) for name in ("inductor", "executorch")]
    return {stand.name: stand for stand in usual} | changes


def suite(matrix: str, *, models: str = "[digits-cnn]", more: str = "") -> Suite:
    """A suite around a matrix."""
    return parse(f"suite: s\nmodels: {models}\ndata: {{dataset: digits}}\nmatrix: {matrix}\n{more}", file="s.yaml")


def reference_of(planned: PlannedCase) -> str | None:
    """The id of the case that a case is compared with."""
    return None if planned.reference is None else planned.reference.id


def ids(plan: Plan) -> list[str]:
    """The ids of the cases, in order."""
    return [planned.case.id for planned in plan.cases]


def test_plan_of_the_quickstart_is_the_golden_one() -> None:
    """What the quickstart runs, skips and says, in full and in order, with the built-in backends' shapes."""
    plan = make_plan(read(HERE.parent / "suites" / "quickstart.yaml"), stands(), cores=2)
    lines = [f"{planned.case.id}  baseline {reference_of(planned) or '-'}" for planned in plan.cases]
    lines += [f"skip {skip.key.id}: {skip.reason}" for skip in plan.skipped]
    lines += [f"note {note}" for note in plan.notes]
    assert "\n".join(lines) + "\n" == (HERE / "golden" / "plan_quickstart.txt").read_text(encoding="utf-8")


def test_cases_carry_what_later_stages_need() -> None:
    """A case knows its variant, its resolved recipe, its key for records and its like-for-like baseline."""
    plan = make_plan(
        suite("{modes: [static], backends: [onednn]}", more="quantize: {static: {skip_layers: [fc]}}"),
        stands(),
        cores=1,
    )
    fp32, static = plan.cases
    assert (fp32.case.id, fp32.reference, fp32.added) == ("digits-cnn/fp32/torch/t1/b1", None, True)
    assert (reference_of(static), static.added) == (fp32.case.id, False)
    assert static.case.variant.id == "digits-cnn/static/onednn"
    assert static.case.variant.recipe == Recipe(flow="onednn-static", skip_layers=("fc",))
    assert fp32.case.variant.recipe == Recipe()
    assert static.case.key == CaseKey(
        id="digits-cnn/static/onednn/t1/b1",
        model="digits-cnn",
        mode="static",
        backend="onednn",
        threads=1,
        batch_size=1,
    )


def test_order_is_model_threads_batch_then_runtime_with_its_fp32_first() -> None:
    """A contender stands behind its baseline, and cases that are compared stand together."""
    matrix = "{modes: [static, fp32], backends: [onednn, onnxruntime, torch], threads: [2, 1], batch_sizes: [1, 8]}"
    plan = make_plan(suite(matrix, models="[digits-lstm, digits-cnn]"), stands(), cores=2)
    group = ["fp32/torch", "static/onednn", "fp32/onnxruntime", "static/onnxruntime"]
    assert ids(plan) == [
        f"{model}/{cell}/t{threads}/b{batch}"
        for model in ("digits-lstm", "digits-cnn")
        for threads in (2, 1)
        for batch in (1, 8)
        for cell in group
    ]


@pytest.fixture
def _new_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An x86 CPU with VNNI, whatever runs the tests."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    words = ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "avx512_vnni")
    monkeypatch.setattr("qbench.machine.fingerprint.isa", lambda: words)


@pytest.mark.usefixtures("_new_cpu")
def test_a_host_is_an_axis_with_its_own_baseline() -> None:
    """Each case is there once for each host, against the fp32 of that host, and ids of this machine have no suffix."""
    plan = make_plan(suite("{modes: [static], backends: [onednn]}", more="hosts: [native, avx2]"), stands(), cores=1)
    assert [(planned.case.id, reference_of(planned)) for planned in plan.cases] == [
        ("digits-cnn/fp32/torch/t1/b1", None),
        ("digits-cnn/static/onednn/t1/b1", "digits-cnn/fp32/torch/t1/b1"),
        ("digits-cnn/fp32/torch/t1/b1/avx2", None),
        ("digits-cnn/static/onednn/t1/b1/avx2", "digits-cnn/fp32/torch/t1/b1/avx2"),
    ]
    assert [planned.case.key.host for planned in plan.cases] == ["native", "native", "avx2", "avx2"]
    assert len({planned.case.variant.id for planned in plan.cases}) == 2  # what is built is built once


@pytest.mark.usefixtures("_new_cpu")
def test_a_backend_that_cannot_be_limited_is_skipped_there() -> None:
    """Its cases run on this machine, and those of the other host say why they do not."""
    matrix = "{modes: [fp32, static], backends: [onnxruntime]}"
    plan = make_plan(suite(matrix, more="hosts: [native, avx512]"), stands(), cores=1)
    assert ids(plan) == ["digits-cnn/fp32/onnxruntime/t1/b1", "digits-cnn/static/onnxruntime/t1/b1"]
    assert {skip.key.id: skip.reason.split(":")[0] for skip in plan.skipped} == {
        "digits-cnn/fp32/onnxruntime/t1/b1/avx512": "not limited",
        "digits-cnn/static/onnxruntime/t1/b1/avx512": "not limited",
    }


@pytest.mark.usefixtures("_new_cpu")
def test_an_emulated_host_alone_has_the_native_case_that_it_is_held_against(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite need not name native for it: int8 there is compared with the same artifact's answers here."""
    monkeypatch.setattr("qbench.hosts.emulated.Emulated.missing", lambda self: None)
    plan = make_plan(suite("{modes: [static], backends: [onnxruntime]}", more="hosts: ['qemu:max']"), stands(), cores=1)
    assert [(planned.case.id, reference_of(planned), planned.added) for planned in plan.cases] == [
        ("digits-cnn/fp32/onnxruntime/t1/b1", None, True),
        ("digits-cnn/static/onnxruntime/t1/b1", "digits-cnn/fp32/onnxruntime/t1/b1", True),
        ("digits-cnn/static/onnxruntime/t1/b1/qemu:max", "digits-cnn/static/onnxruntime/t1/b1", False),
    ]
    assert plan.notes[:2] == (
        "added 1 reference case: fp32 on onnxruntime, as the baseline",
        "added 1 reference case: int8 on onnxruntime, as the baseline",
    )


@pytest.mark.usefixtures("_new_cpu")
def test_a_backend_that_is_predicted_on_a_host_is_noted() -> None:
    """Its cases are planned like others; a note says that nothing is measured there."""
    matrix = "{modes: [fp32, static], backends: [onnxruntime]}"
    plan = make_plan(suite(matrix, more="hosts: [native, avx2]"), stands(), cores=1)
    assert len(plan.cases) == 4
    assert not plan.skipped
    assert [note for note in plan.notes if note.startswith("onnxruntime on avx2: its answers are predicted")]


@pytest.mark.usefixtures("_new_cpu")
def test_cells_are_chosen_by_host() -> None:
    """A filter, an exclusion and an override of the gate may name a host; its baseline comes with it."""
    wanted = suite("{modes: [static], backends: [onednn, fbgemm], exclude: [{backend: fbgemm, host: avx2}]}",
                   more="hosts: [native, avx2]\ngate: {overrides: [{host: avx2, accuracy: {margin: 2}}]}")  # fmt: skip
    plan = make_plan(wanted, stands(), cores=1, only="*/avx2")
    assert ids(plan) == ["digits-cnn/fp32/torch/t1/b1/avx2", "digits-cnn/static/onednn/t1/b1/avx2"]
    assert not any("no case" in note and "overrides" in note for note in plan.notes)


def test_cells_without_meaning_are_one_note_for_each_backend() -> None:
    """fp32 on an engine of another runtime and int8 on an fp32 backend are no cases, and the plan says so once."""
    plan = make_plan(suite("{backends: [torch, fbgemm], batch_sizes: [1, 2]}"), stands(), cores=1)
    assert plan.notes == (
        "torch: dynamic, static and qat are no cases; it runs fp32 only",
        "fbgemm: fp32 is no case; its runtime is torch, whose fp32 is the baseline",
    )
    assert not plan.skipped


def test_a_missing_backend_is_asked_once_and_skipped_with_its_reason() -> None:
    """A backend that is not installed gives skips that say how to mend it."""
    absent = Stand("onnxruntime", "onnxruntime", ("fp32", "static"), absent="not installed; pip install onnxruntime")
    matrix = "{modes: [fp32, static], backends: [torch, onnxruntime], batch_sizes: [1, 2, 4]}"
    plan = make_plan(suite(matrix), stands(onnxruntime=absent), cores=1)
    assert ids(plan) == [f"digits-cnn/fp32/torch/t1/b{batch}" for batch in (1, 2, 4)]
    assert {skip.reason for skip in plan.skipped} == {"not installed; pip install onnxruntime"}
    assert (len(plan.skipped), absent.asked) == (6, 1)


def test_a_mode_that_a_backend_cannot_build_is_a_skip_with_its_reason() -> None:
    """``why_not`` becomes the reason; a mode outside ``modes`` has one even where the backend gives none."""
    x86 = Stand("x86", "torch", INT8, cannot={"static": "no FX here"})
    plan = make_plan(suite("{modes: [static, qat], backends: [x86, onnxruntime]}"), stands(x86=x86), cores=1)
    assert {skip.key.id: skip.reason for skip in plan.skipped} == {
        "digits-cnn/static/x86/t1/b1": "no FX here",
        "digits-cnn/qat/onnxruntime/t1/b1": "onnxruntime has no qat mode; it has fp32, dynamic, static",
    }


def test_a_contender_whose_baseline_cannot_be_is_skipped_for_that() -> None:
    """Without the like-for-like fp32 there is nothing to compare with: the contender's reason names it."""
    torch = Stand("torch", "torch", ("fp32",), absent="pip install torch")
    plan = make_plan(suite("{modes: [static], backends: [x86]}"), stands(torch=torch), cores=1)
    (skip,) = plan.skipped
    assert skip.reason == "its baseline digits-cnn/fp32/torch/t1/b1 is skipped: pip install torch"
    assert plan.cases == ()
    assert plan.notes[-1] == "nothing to run: every case is skipped"


def test_a_matrix_without_a_case_says_so() -> None:
    """Only meaningless cells: no case, no skip, and a note that says that nothing runs."""
    plan = make_plan(suite("{modes: [static], backends: [torch]}"), stands(), cores=1)
    assert (plan.cases, plan.skipped) == ((), ())
    assert plan.notes == (
        "torch: static is no case; it runs fp32 only",
        "nothing to run: the matrix holds no case",
    )


def test_further_calibration_subsets_are_announced() -> None:
    """`calibrate.seeds` multiplies the static variants only, and the plan says how often and which is measured."""
    plan = make_plan(
        parse(
            "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits, calibrate: {seed: 7, seeds: 3}}\n"
            "matrix: {backends: [torch, x86, onnxruntime], batch_sizes: [1, 8]}\n",
            file="s.yaml",
        ),
        stands(),
        cores=1,
    )
    assert plan.notes[-1] == (
        "2 static variants are built and evaluated with 3 calibration subsets, of the seeds 7 to 9; what is measured "
        "is the first"
    )
    assert "subsets" not in str(make_plan(suite("{modes: [static], backends: [x86]}"), stands(), cores=1).notes)


def test_filter_keeps_matches_and_the_baselines_they_need() -> None:
    """--filter is a glob on ids, alternatives by comma; a dropped fp32 comes back as a reference."""
    plan = make_plan(
        suite("{backends: [torch, x86, onnxruntime]}"), stands(), cores=1, only="*/static/x86/*, */fp32/onnx*"
    )
    assert [(planned.case.id, planned.added) for planned in plan.cases] == [
        ("digits-cnn/fp32/torch/t1/b1", True),
        ("digits-cnn/static/x86/t1/b1", False),
        ("digits-cnn/fp32/onnxruntime/t1/b1", False),
    ]
    assert plan.notes[-2:] == (
        "--filter '*/static/x86/*, */fp32/onnx*' keeps 2 of 8 cells",
        "added 1 reference case: fp32 on torch, as the baseline",
    )


def test_a_filter_that_keeps_every_cell_is_not_told() -> None:
    """And one of a matrix without any says that there is none."""
    plan = make_plan(suite("{modes: [fp32, static], backends: [torch, x86]}"), stands(), cores=1, only="*")
    assert not any("--filter" in note for note in plan.notes)
    with pytest.raises(UsageError, match="matches no case; ids are .*: none$"):
        make_plan(suite("{modes: [static], backends: [torch]}"), stands(), cores=1, only="*")


@pytest.mark.parametrize("only", ["nothing*", "*/static/*,DIGITS-CNN*", "", "*,", "*/fp32/x86/*"])
def test_a_filter_without_a_match_is_a_usage_error_with_examples(only: str) -> None:
    """Each alternative must match some case, in the ids' own case; the error shows ids."""
    with pytest.raises(UsageError, match=r"matches no case.* ids are model/mode.*digits-cnn/fp32/torch/t1/b1"):
        make_plan(suite("{modes: [fp32, static], backends: [torch, x86]}"), stands(), cores=1, only=only)


@pytest.mark.parametrize(
    ("batches", "hosts", "shape", "listed"),
    [
        (5, "[native]", "b<batch size>", ", ".join(f"digits-cnn/fp32/torch/t1/b{n}" for n in range(1, 6))),
        (6, "[native]", "b<batch size>", ", ".join(f"digits-cnn/fp32/torch/t1/b{n}" for n in range(1, 6)) + ", …"),
        (
            1,
            "[native, avx2]",
            "b<batch size>[/<host>]",
            "digits-cnn/fp32/torch/t1/b1, digits-cnn/fp32/torch/t1/b1/avx2",
        ),
    ],
)
def test_a_filter_without_a_match_shows_how_ids_look(batches: int, hosts: str, shape: str, listed: str) -> None:
    """Up to five of them, and that there are more; the host is part of an id where the suite has others."""
    matrix = f"{{modes: [fp32], backends: [torch], batch_sizes: {[*range(1, batches + 1)]}}}"
    with pytest.raises(UsageError) as raised:
        make_plan(suite(matrix, more=f"hosts: {hosts}"), stands(), cores=1, only="*/nothing")
    assert str(raised.value).endswith(f"ids are model/mode/backend/t<threads>/{shape}: {listed}")


@pytest.mark.parametrize(("only", "meant"), [("*/static/ort/*", "onnxruntime"), ("*/statik/x86/*", "static")])
def test_a_filter_without_a_match_suggests_the_part_that_is_meant(only: str, meant: str) -> None:
    """A part of the glob that no id has is held against those that there are."""
    matrix = suite("{modes: [fp32, static], backends: [onnxruntime, x86]}")
    with pytest.raises(UsageError, match=rf"matches no case; did you mean '{meant}'\? ids are"):
        make_plan(matrix, stands(), cores=1, only=only)


def test_more_threads_than_cores_are_skipped_with_the_reason() -> None:
    """A suite travels between machines: cells that this one is too small for are skipped, baselines and all, and the
    others run. Threads that share cores would measure the scheduler."""
    plan = make_plan(suite("{modes: [fp32, static], backends: [torch, x86], threads: [1, 4, 8]}"), stands(), cores=2)
    assert ids(plan) == ["digits-cnn/fp32/torch/t1/b1", "digits-cnn/static/x86/t1/b1"]
    advice = "take fewer threads, or allow it more (taskset)"
    assert {skip.key.id: skip.reason for skip in plan.skipped} == {
        f"digits-cnn/{cell}/t{threads}/b1": f"{threads} threads, but this process may use 2 cores; {advice}"
        for threads in (4, 8)
        for cell in ("fp32/torch", "static/x86")
    }


def test_a_suite_that_names_cores_is_told_so_where_they_are_too_few() -> None:
    """Where `measure.cores` is what limits the threads, taskset would not help, and the reason says what does."""
    plan = make_plan(suite("{modes: [fp32], threads: [1, 2]}", more="measure: {cores: [3]}"), stands(), cores=1)
    assert {skip.reason for skip in plan.skipped} == {
        "2 threads, but measure.cores names 1 core; take fewer threads, or name more"
    }


def test_only_a_suite_of_which_too_many_threads_leave_nothing_is_refused() -> None:
    """Without a case left there is nothing to find out here: an error that names the line, before anything runs. A
    backend that is missing is a reason of its own, which fewer threads would not mend."""
    with pytest.raises(UsageError, match=r"^s\.yaml:4: matrix\.threads: nothing to run: 4 threads, but this process"):
        make_plan(suite("{threads: [4]}"), stands(), cores=2)
    with pytest.raises(UsageError, match=r"^s\.yaml:4: matrix\.threads: nothing to run: 4 threads, but this process"):
        make_plan(suite("{threads: [1, 4]}"), stands(), cores=2, only="*/t4/*")
    included = suite("{modes: [qat], backends: [torch], include: [{mode: fp32, backend: torch, threads: 3}]}")
    with pytest.raises(UsageError, match=r"matrix\.include: nothing to run: 3 threads, .* 1 core;"):
        make_plan(included, stands(), cores=1)
    absent = Stand("x86", "torch", INT8, absent="not installed")
    plan = make_plan(suite("{modes: [static], backends: [x86], threads: [4]}"), stands(x86=absent), cores=2)
    assert (plan.cases, {skip.reason for skip in plan.skipped}) == ((), {"not installed"})


def test_cases_are_measured_on_the_cores_that_the_suite_names() -> None:
    """`measure.cores` chooses among the cores that this process may use; without it all of them serve."""
    assert measuring_cores(suite("{}"), (0, 1, 2)) == (0, 1, 2)
    assert measuring_cores(suite("{}", more="measure: {cores: [2, 1]}"), (0, 1, 2)) == (2, 1)


def test_cores_outside_the_affinity_mask_are_refused_before_anything_runs() -> None:
    """The message has the line, the cores that may be used and the one that may not, and what to do."""
    with pytest.raises(UsageError, match=r"s\.yaml:\d+: measure\.cores: .* the cores 0, 1, not 7; .*taskset"):
        measuring_cores(suite("{}", more="measure: {cores: [1, 7]}"), (0, 1))


def test_include_and_exclude_work_as_in_ci_matrices() -> None:
    """exclude takes out what agrees with all its keys; include adds, also outside the axes, untouched by exclude."""
    matrix = """
  modes: [fp32, static]
  backends: [torch, x86, onnxruntime]
  batch_sizes: [1, 8]
  exclude:
    - {backend: onnxruntime, batch_size: 8}
    - {model: digits-lstm}
  include:
    - {model: digits-lstm, mode: dynamic, backend: onnxruntime, batch_size: 8}
    - {model: digits-cnn, mode: qat, backend: x86, threads: 2, batch_size: 4}
"""
    plan = make_plan(suite(matrix, models="[digits-cnn, digits-lstm]"), stands(), cores=2)
    assert [(planned.case.id, planned.added) for planned in plan.cases] == [
        ("digits-cnn/fp32/torch/t1/b1", False),
        ("digits-cnn/static/x86/t1/b1", False),
        ("digits-cnn/fp32/onnxruntime/t1/b1", False),
        ("digits-cnn/static/onnxruntime/t1/b1", False),
        ("digits-cnn/fp32/torch/t1/b8", False),
        ("digits-cnn/static/x86/t1/b8", False),
        ("digits-cnn/fp32/torch/t2/b4", True),
        ("digits-cnn/qat/x86/t2/b4", False),
        ("digits-lstm/fp32/onnxruntime/t1/b8", True),
        ("digits-lstm/dynamic/onnxruntime/t1/b8", False),
    ]
    assert not any("matrix." in note for note in plan.notes)


def test_include_and_exclude_without_effect_are_noted_at_their_line() -> None:
    """An exclude that takes out nothing and an include that adds nothing are likely slips."""
    matrix = """
  modes: [fp32, static]
  exclude:
    - {mode: qat}
  include:
    - {mode: static, backend: x86}
"""
    notes = make_plan(suite(matrix), stands(), cores=1).notes
    assert notes[:2] == (
        "s.yaml:7: matrix.exclude[0] takes out no cell",
        "s.yaml:9: matrix.include[0] adds no cell",
    )


def test_an_override_of_the_gate_for_no_case_is_noted_at_its_line() -> None:
    """It would pass in silence; one that is for a case is not named."""
    gate = """gate:
  latency: {max_regression: 5%}
  overrides:
    - {mode: qat, latency: {max_regression: 10%}}
    - {mode: static, latency: {max_regression: 10%}}
    - {model: digits-cnn, mode: static, backend: x86, threads: 1, batch_size: 1, recipe: default, host: native,
       latency: {max_regression: 20%}}
"""
    described = suite("{backends: [x86], modes: [static]}", more=gate)
    idle = [note for note in make_plan(described, stands(), cores=1).notes if "override" in note]
    assert [note.partition(": ")[2] for note in idle] == ["gate.overrides[0] is for no case of this suite"]


def test_an_included_cell_with_an_unknown_recipe_is_refused_by_name() -> None:
    """At its line, with the recipes that the suite has; such a cell is never a traceback."""
    matrix = """
  backends: [x86]
  modes: [static]
  include:
    - {mode: static, backend: x86, recipe: finer}
"""
    with pytest.raises(UsageError, match=r"^s\.yaml:\d+: matrix\.include: no recipe named 'finer'; there are default$"):
        make_plan(suite(matrix), stands(), cores=1)


def test_keys_of_quantize_that_no_case_takes_are_noted_at_their_lines() -> None:
    """Those of a backend without such a mode, and a target on the framework's own recipe; one that is taken is not."""
    more = """recipe: [default, framework-default]
quantize:
  static: {target: avx2, backends: {torch: {target: vnni}, fbgemm: {per_channel: false}}}
"""
    described = suite("{backends: [fbgemm], modes: [static]}", more=more)
    planned = make_plan(described, load_backends(described), cores=1)
    assert [note.partition(": ")[2] for note in planned.notes if "quantize." in note] == [
        "quantize.static.backends.torch is for no case of this suite",
        "quantize.static.target has no effect on recipe framework-default, which is left as the framework has it",
    ]
    described = suite("{backends: [fbgemm], modes: [static]}", more="quantize: {static: {target: avx2}}\n")
    assert not any("quantize." in note for note in make_plan(described, load_backends(described), cores=1).notes)


def test_a_matrix_beyond_all_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of the axes and of every include are counted, up to the most that is planned, before they are made."""
    wanted = suite("{modes: [fp32], backends: [torch], threads: [1, 2], include: [{mode: static, backend: x86}]}")
    monkeypatch.setattr("qbench.plan.matrix.MAX_CELLS", 4)
    assert len(expand_matrix(wanted)[0]) == 4
    monkeypatch.setattr("qbench.plan.matrix.MAX_CELLS", 3)
    with pytest.raises(UsageError, match=r"s\.yaml:4: the matrix has 4 cells; qbench plans up to 3"):
        expand_matrix(wanted)
    monkeypatch.undo()
    sizes = [[*range(1, 1001)], [*range(1, 1002)]]
    wanted = suite(f"{{modes: [fp32], backends: [torch], threads: {sizes[0]}, batch_sizes: {sizes[1]}}}")
    with pytest.raises(UsageError, match=r"the matrix has 1,001,000 cells; qbench plans up to 1,000,000$"):
        expand_matrix(wanted)


def test_load_backends_brings_the_runtimes_too() -> None:
    """What the registry gives for a suite is enough for its plan."""
    wanted = suite("{modes: [static], backends: [onednn], include: [{mode: fp32, backend: onnxruntime}]}")
    backends = load_backends(wanted)
    assert sorted(backends) == ["onednn", "onnxruntime", "torch"]
    assert make_plan(wanted, backends, cores=1).cases


def test_floats_are_their_runtimes_and_have_no_recipe() -> None:
    """bf16 is a case of torch's once, whatever recipes there are, and none of fbgemm's; torch without bf16 skips it."""
    wanted = suite("{modes: [bf16], backends: [torch, fbgemm, openvino]}", more="recipe: [default, {flow: eager}]")
    backends = stands(openvino=Stand("openvino", "openvino", ("fp32", "bf16", "static")))
    plan = make_plan(wanted, backends, cores=1)
    assert ids(plan) == ["digits-cnn/fp32/openvino/t1/b1", "digits-cnn/bf16/openvino/t1/b1"]
    assert [(skip.key.id, skip.reason) for skip in plan.skipped] == [
        ("digits-cnn/bf16/torch/t1/b1", "torch has no bf16 mode; it has fp32")
    ]
    assert "fbgemm: bf16 is no case; its runtime is torch, which runs floats" in plan.notes


@pytest.mark.parametrize("host", ["avx2", "avx512"])
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("bf16", "{host} stands for CPUs whose instructions do not multiply bf16; take bf16 on native"),
        ("weight_only", "on {host} no switch tells a runtime that weights of few bits meet a CPU without VNNI: "),
    ],
)
def test_what_a_limited_cpu_cannot_stand_for_is_no_case_of_it(
    mode: str, why: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16-bit floats that such CPUs do not multiply; weights of few bits, for which runtimes ask the CPU itself. Both
    are cases of native."""
    monkeypatch.setattr(Limited, "missing", lambda self: None)
    wanted = suite(f"{{modes: [{mode}], backends: [openvino]}}", more=f"hosts: [native, {host}]")
    plan = make_plan(wanted, stands(openvino=Stand("openvino", "openvino", ("fp32", mode))), cores=1)
    (skip,) = plan.skipped
    assert skip.key.id == f"digits-cnn/{mode}/openvino/t1/b1/{host}"
    assert skip.reason.startswith(why.format(host=host))
    assert f"digits-cnn/{mode}/openvino/t1/b1" in ids(plan)


names = ["torch", "onnxruntime", "fbgemm", "x86", "onednn", "qnnpack"]
numbers = st.lists(st.integers(1, 4), min_size=1, max_size=2, unique=True)
cells = st.fixed_dictionaries(
    {"mode": st.sampled_from(MODES), "backend": st.sampled_from(names)},
    optional={"model": st.just("digits-cnn"), "threads": st.integers(1, 4), "batch_size": st.integers(1, 9)},
)
matrices = st.fixed_dictionaries(
    {
        "modes": st.lists(st.sampled_from(MODES), min_size=1, unique=True),
        "backends": st.lists(st.sampled_from(names), min_size=1, unique=True),
        "threads": numbers,
        "batch_sizes": numbers,
        "include": st.lists(cells, max_size=2),
        "exclude": st.lists(cells, max_size=2),
    }
)
answers = st.dictionaries(st.sampled_from(names), st.sampled_from(["absent", "no static", "no fp32"]), max_size=3)


def _answering(said: Mapping[str, str]) -> dict[str, Backend]:
    backends = stands()
    for name, answer in said.items():
        stand = backends[name]
        assert isinstance(stand, Stand)
        stand.absent = "not installed" if answer == "absent" else None
        stand.cannot = {} if answer == "absent" else {answer.removeprefix("no "): answer}
    return backends


@given(matrices, answers, st.sampled_from([None, "*/t1/*", "*/x86/*,*/static/*"]))
def test_every_requested_cell_is_a_case_a_skip_or_named_in_a_note(
    matrix: dict[str, Any], said: dict[str, str], only: str | None
) -> None:
    """Nothing is dropped silently, ids are unique, and every contender has its baseline before it in the plan."""
    wanted = parse(
        f"suite: s\nmodels: [digits-cnn, digits-lstm]\ndata: {{dataset: digits}}\nmatrix: {matrix!r}".replace("'", "")
    )
    try:
        plan = make_plan(wanted, _answering(said), cores=4, only=only)
    except UsageError:
        event("no match")
        assert only is not None
        return
    runs, skips = ids(plan), [skip.key.id for skip in plan.skipped]
    assert len({*runs, *skips}) == len(runs) + len(skips)
    asked, _ = expand_matrix(wanted)
    for cell in asked:
        noted = any(re.match(rf"{cell.backend}: [^;]*\b{cell.mode}\b[^;]* no case", note) for note in plan.notes)
        places = (cell.id in runs) + (cell.id in skips) + noted
        assert places == 1 or (places == 0 and only is not None)
    assert set(skips) <= {cell.id for cell in asked}
    for place, planned in enumerate(plan.cases):
        assert planned.reference is None or planned.reference.id in runs[:place]
        assert planned.added <= (planned.reference is None)
        assert planned.added or planned.case.key in asked
    assert all(skip.reason for skip in plan.skipped)
    assert plan == make_plan(wanted, _answering(said), cores=4, only=only)


@given(matrices)
def test_the_matrix_is_the_product_less_the_excluded_plus_the_included(matrix: dict[str, Any]) -> None:
    """The cells are those that the definition of include and exclude gives, each once."""
    wanted = parse(f"suite: s\nmodels: [digits-cnn]\ndata: {{dataset: digits}}\nmatrix: {matrix!r}".replace("'", ""))
    axes = [["digits-cnn"], matrix["modes"], matrix["backends"], matrix["threads"], matrix["batch_sizes"]]
    axes += [["default"], ["native"]]
    fields = ("model", "mode", "backend", "threads", "batch_size", "recipe", "host")

    def agrees(cell: tuple[Any, ...], keys: Mapping[str, Any]) -> bool:
        return all(cell[fields.index(key)] == value for key, value in keys.items())

    def values(keys: Mapping[str, Any]) -> list[Any]:
        return [[keys[name]] if name in keys else axis for name, axis in zip(fields, axes, strict=True)]

    left = {cell for cell in itertools.product(*axes) if not any(agrees(cell, keys) for keys in matrix["exclude"])}
    for keys in matrix["include"]:
        left |= set(itertools.product(*values(keys)))
    cells, _ = expand_matrix(wanted)
    assert len(cells) == len(set(cells))
    assert {tuple(getattr(cell, name) for name in fields) for cell in cells} == left
