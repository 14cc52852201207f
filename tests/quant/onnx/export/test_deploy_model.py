"""Rules of qbench/quant/onnx/export/deploy_model.py: what decides the form of a file, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx_networks import Draft
from optional_packages import needs_openvino
from quantized_networks import Quantized, of, run, values

from qbench.quant.onnx.export import deploy_model, slow_in_int8
from qbench.quant.onnx.export.executed_layers import Settled
from qbench.quant.onnx.export.narrow_weights import Fitted
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import WeightParams
from qbench.quant.onnx.sites import Scales, Sites, WeightSite
from qbench.quant.onnx.weights.mean_inputs import MeanInputs
from qbench.record.schema import TargetFacts

RECORD = {"a": Scales(scale_w=(1.0,)), "b": Scales(scale_w=(1.0,))}
SITES = Sites(
    weights=tuple(WeightSite(layer=n, tensor=f"{n}.w", axis=None, params=WeightParams()) for n in ("a", "b")),
    activations=(),
)
WIDE = {"a": 2, "b": 0}


class Steps:
    """The steps of a build, replaced by what notes how it was called."""

    def __init__(self, patch: pytest.MonkeyPatch, form: str) -> None:
        self.called: dict[str, Any] = {}
        self.floats: dict[str, str] = {}
        self.gap: str | None = None
        self.held = SITES
        patch.setattr(deploy_model, "_find_form", lambda runtime: form)
        patch.setattr(deploy_model.attention, "find_products", lambda graph: ("product",))
        patch.setattr(deploy_model.attention, "leave_float", self.note("attention", lambda sites, products: sites))
        patch.setattr(deploy_model.export_narrow_weights, "fitted", self.fitted)
        arm = self.note("arm", lambda *words: replace(words[2], widened={"a": 0, "b": 3}, channels=8))
        patch.setattr(deploy_model, "widen_for_arm", arm)
        patch.setattr(deploy_model.deploy_openvino, "deploy", self.note("openvino", lambda *words, **named: "graph"))
        patch.setattr(deploy_model, "_save_for_openvino", lambda deployed, file: ("apart",))
        patch.setattr(deploy_model.slow_in_int8, "find_slow", self.note("slow", lambda *words: {"b": "slow"}))
        patch.setattr(deploy_model, "_save_for_onnxruntime", self.note("ort", lambda *words: (self.floats, self.held)))
        patch.setattr(deploy_model.executed_layers, "outputs_quantized", lambda *words: "y")
        patch.setattr(deploy_model.simulation_gap, "note", self.note("gap", lambda *words: self.gap))

    def note(self, name: str, function: Any) -> Any:
        """The function, which also writes down its arguments."""

        def call(*words: Any, **named: Any) -> Any:
            self.called[name] = (words, named)
            return function(*words, **named)

        return call

    def fitted(self, graph: Any, sites: Any, record: Any, choice: str, *, original: Any) -> Fitted:
        """Weights of ten channels, of which two are wider where that was chosen."""
        self.called["fitted"] = (choice, original)
        narrow = choice == "U8S8-narrow"
        return Fitted(
            choice=choice, form="U8S8", record=record, widened=WIDE if narrow else None, channels=10,  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.fixture(name="write")
def write_(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a file with the steps of a machine that multiplies in a form; the steps, and what is to be known."""

    def write(form: str, runtime: str = "onnxruntime", change: Any = None, **named: Any) -> Any:
        steps = Steps(monkeypatch, form)
        if change:
            change(steps)
        return steps, deploy_model.write(None, SITES, RECORD, Path("f"), runtime=runtime, **named)  # type: ignore[arg-type]

    return write


@pytest.mark.parametrize(
    ("form", "named", "choice"),
    [
        ("U8S8", {}, "U8S8"),
        ("U8U8", {}, "U8S8-narrow"),
        ("U8U8", {"narrow_weights": False}, "U8S8"),
        ("U8S8", {"target": ("avx2",)}, "U8S8-narrow"),
        ("U8S8", {"target": ("avx2",), "narrow_weights": False}, "U8S8"),
        ("U8S8", {"target": ("vnni", "arm")}, "U8S8"),
        ("S8S8", {}, "S8S8"),
        ("S8S8", {"target": ("avx512",)}, "S8S8"),  # another form is no file of theirs
    ],
)
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_weights_are_narrowed_where_sums_have_16_bits(
    form: str, named: dict[str, Any], choice: str, runtime: str, write: Any
) -> None:
    """Here or on a CPU of the target, unless the recipe leaves them."""
    steps, _ = write(form, runtime, original="before", **named)
    assert steps.called["fitted"] == (choice, "before")


@pytest.mark.parametrize(
    ("form", "named", "note"),
    [
        ("U8S8", {}, None),
        ("U8U8", {}, "no VNNI: 20% of the channels of weights use fewer than 8 bits, so that 16-bit sums hold"),
        ("U8U8", {"narrow_weights": False},
         "no VNNI: products are added in 16 bits, which may overflow; narrow_weights: true avoids it"),
        ("U8S8", {"target": ("avx2", "avx512", "vnni")},
         "for avx2 and avx512: 20% of the channels of weights use fewer than 8 bits, so that 16-bit sums hold"),
        ("U8S8", {"target": ("vnni",)}, None),
        ("S8S8", {"target": ("avx2",)}, None),
    ],
)  # fmt: skip
def test_what_sums_of_16_bits_do_is_told(form: str, named: dict[str, Any], note: str | None, write: Any) -> None:
    """Before what is told of the outputs."""
    _, written = write(form, **named)
    assert written.notes[:-1] == (() if note is None else (note,))
    assert written.notes[-1].startswith("y: quantized to 8 bits for ONNX Runtime, whose convolutions give bytes only;")


@pytest.mark.parametrize(
    ("runtime", "form", "target", "left"),
    [
        ("openvino", "U8S8", (), False),
        ("openvino", "U8S8", ("avx2",), False),
        ("openvino", "U8S8", ("arm",), True),
        ("openvino", "U8U8", (), True),
        ("onnxruntime", "U8S8", (), True),
    ],
)
def test_products_of_attention_are_bytes_where_that_gains(
    runtime: str, form: str, target: tuple[str, ...], left: bool, write: Any
) -> None:
    """On OpenVINO with VNNI."""
    steps, _ = write(form, runtime, target=target)
    assert ("attention" in steps.called) == left
    if left:
        assert steps.called["attention"][0] == (SITES, ("product",))


@pytest.mark.parametrize(
    ("runtime", "form", "named", "overflowing", "narrowed"),
    [
        ("onnxruntime", "U8S8", {"target": ("arm",)}, (), 1),
        ("onnxruntime", "U8S8", {"target": ("arm",), "narrow_weights": False}, ("b",), 0),
        ("onnxruntime", "U8S8", {"target": ("avx2", "arm"), "narrow_weights": False}, ("a", "b"), 0),
        ("onnxruntime", "S8S8", {"target": ("vnni",)}, (), 1),
        ("onnxruntime", "U8S8", {"target": ("avx2",)}, (), 1),
        ("onnxruntime", "U8S8", {"target": ("vnni",)}, (), 0),
        ("openvino", "U8S8", {"target": ("arm",)}, (), 0),
        ("openvino", "U8S8", {"target": ("avx2",), "narrow_weights": False}, ("a", "b"), 0),
    ],
)
def test_what_was_done_for_other_cpus_is_told(
    runtime: str, form: str, named: dict[str, Any], overflowing: tuple[str, ...], narrowed: int, write: Any
) -> None:
    """Of the layers whose sums can overflow there, and of those that got wider steps."""
    steps, written = write(form, runtime, **named)
    facts = written.target
    assert (facts.cpus, facts.layers, facts.overflowing) == (named["target"], 2, overflowing)
    assert facts.layers_narrowed == narrowed
    by_arm = runtime == "onnxruntime" and ("arm" in named["target"] or form == "S8S8")
    assert ("arm" in steps.called) == by_arm
    assert facts.channels_narrowed == (0 if not narrowed else 3 if by_arm else 2)
    if by_arm:
        assert steps.called["arm"][0][3] == RECORD


def test_the_steps_before_are_what_arm_is_counted_against(write: Any) -> None:
    """Where some were widened already; without a target nothing is told of one."""
    steps, written = write("S8S8", original={"a": Scales()})
    assert steps.called["arm"][0][3] == {"a": Scales()}
    assert written.target is None


def test_layers_that_are_float_in_the_file_count_for_no_target(write: Any) -> None:
    """Neither as narrowed nor as overflowing."""

    def change(steps: Steps) -> None:
        steps.held = replace(SITES, weights=SITES.weights[1:])
        steps.floats = {"a": "slow"}

    _, written = write("U8S8", change=change, target=("avx2",))
    assert written.target == TargetFacts(cpus=("avx2",), layers=1)
    assert written.floats == {"a": "slow"}
    _, written = write("U8S8", change=change, target=("avx2",), narrow_weights=False)
    assert written.target.overflowing == ("b",)


@pytest.mark.parametrize(
    ("form", "leave", "slow"), [("U8S8", True, {"b": "slow"}), ("U8S8", False, {}), ("S8S8", True, {})]
)
def test_what_is_faster_in_float_is_left_so_where_that_is_asked_for(
    form: str, leave: bool, slow: dict[str, str], write: Any
) -> None:
    """On CPUs on which it was measured."""
    steps, _ = write(form, leave_slow_float=leave, learned=leave)
    assert steps.called["ort"][0][4:] == (leave, slow, {})


@pytest.mark.parametrize(
    ("target", "narrow_weights", "narrow"),
    [(("avx2",), True, True), (("avx2",), False, False), (("vnni",), True, False)],
)
def test_openvino_gets_what_it_needs(target: tuple[str, ...], narrow_weights: bool, narrow: bool, write: Any) -> None:
    """Room in the products of attention for older CPUs, what was trained, and examples."""
    steps, written = write(
        "U8S8", "openvino", target=target, narrow_weights=narrow_weights, learned=True, calibration=("x",)
    )
    assert steps.called["openvino"][1] == {"learned": True, "narrow": narrow, "calibration": ("x",)}
    assert written.notes[-1] == "apart"
    assert write("U8S8", "openvino")[0].called["openvino"][1]["learned"] is False


def test_what_the_runtime_computes_otherwise_is_told(write: Any) -> None:
    """Where there are examples to try it on."""
    steps, written = write("U8S8")
    assert "gap" not in steps.called
    steps, written = write("U8S8", calibration=("x",))
    assert steps.called["gap"][0][3:] == (Path("f"), ("x",), "onnxruntime", False)
    assert len(written.notes) == 1
    _, written = write("U8S8", change=lambda steps: setattr(steps, "gap", "it differs"), calibration=("x",))
    assert written.notes[-1] == "it differs"


@pytest.mark.parametrize(
    ("form", "target", "adds"),
    [("U8U8", (), True), ("U8S8", (), False), ("U8S8", ("avx512",), True), ("S8S8", ("avx2",), False)],
)
def test_whether_sums_have_16_bits(form: str, target: tuple[str, ...], adds: bool, monkeypatch: Any) -> None:
    """Here, or there; not in a form for ARM."""
    monkeypatch.setattr(deploy_model, "_find_form", lambda runtime: form)
    assert deploy_model.adds_in_16_bits("onnxruntime", target) == adds


def test_the_form_is_that_of_the_instructions_that_the_runtime_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch hides some from oneDNN, and so from OpenVINO."""
    monkeypatch.setattr(deploy_model.fingerprint, "isa", lambda: "all")
    monkeypatch.setattr(deploy_model.fingerprint, "onednn_isa", lambda: "some")
    monkeypatch.setattr(deploy_model.deploy_onnxruntime, "form_for", lambda isa: isa)
    assert deploy_model._find_form("openvino") == "some"
    assert deploy_model._find_form("onnxruntime") == "all"


@pytest.mark.parametrize(
    ("isa", "count", "told"), [({"amx_int8"}, 3, True), ({"amx_int8"}, 0, False), ({"avx2"}, 3, False)]
)
def test_silu_stands_apart_with_amx(isa: set[str], count: int, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many do is told; the file is written all the same, its float layers with one constant for equal weights."""
    saved: list[Any] = []
    graph: Any = SimpleNamespace(save=saved.append)
    monkeypatch.setattr(deploy_model.constants, "share", saved.append)
    monkeypatch.setattr(deploy_model.fingerprint, "onednn_isa", lambda: isa)
    monkeypatch.setattr(deploy_model.swish_apart, "set_apart", lambda deployed: count)
    notes = deploy_model._save_for_openvino(graph, Path("f"))
    assert [note.split(" SiLU ")[0] for note in notes] == (["3"] if told else [])
    assert saved == [graph, Path("f")]


@pytest.mark.parametrize("floats", [{}, {"a": "no kernel"}])
@pytest.mark.parametrize("learned", [False, True])
def test_trained_ranges_clip_where_a_layer_is_left_out(
    learned: bool, floats: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the file is settled again; scales that may change are joined at a Concat."""
    asked: list[Any] = []

    def settled(graph: Any, sites: Any, fitted: Any, slow: Any = None) -> Settled:
        asked.append((graph, fitted.record, slow))
        return Settled(graph=f"of {graph}", sites=sites, floats=floats if len(asked) == 1 else {"b": "later"})  # type: ignore[arg-type]

    monkeypatch.setattr(deploy_model.executed_layers, "settled", settled)
    monkeypatch.setattr(deploy_model.concat_ranges, "ranges", lambda *_: {"joined": Scales(scale_d=1.0)})
    monkeypatch.setattr(deploy_model.left_out_ranges, "clip", lambda graph, *_: "clipped")
    fitted = Fitted(choice="U8S8", form="U8S8", record=RECORD)
    graph: Any = "graph"
    result = deploy_model._settle(graph, SITES, fitted, learned, {"b": "slow"})
    joined = {} if learned else {"joined": Scales(scale_d=1.0)}
    assert asked[0] == ("graph", {**RECORD, **joined}, {"b": "slow"})
    if learned and floats:
        assert asked[1:] == [("clipped", RECORD, None)]
        assert (result.graph, result.floats) == ("of clipped", {"a": "no kernel", "b": "later"})
    else:
        assert len(asked) == 1
        assert (result.graph, result.floats) == ("of graph", floats)


# --- biases give back what rounded weights do on average ----------------------------------------------------------


def two_layers(*, transposed: bool = False) -> Quantized:
    """Two convolutions, each behind a ReLU; ``transposed``: beside the second a ConvTranspose, "float", which ONNX
    Runtime runs in float."""
    draft = Draft()
    x = draft.add("Relu", ["x"], "positive")
    x = draft.add("Relu", [draft.conv(x, "one", 4, 16, 3)], "relu")
    outputs = {draft.conv(x, "two", 16, 4, 1): ["batch", 4, 8, 8]}
    if transposed:
        y = draft.add("ConvTranspose", [x, draft.weight("float.weight", 16, 4, 3, 3)], "float")
        outputs |= {y: ["batch", 4, 10, 10]}
    return of(draft.model({"x": ["batch", 4, 8, 8]}, outputs))


def means_of(network: Quantized, **factors: float) -> dict[str, Any]:
    """What its layers are given on average, that of some times a factor."""
    inputs = MeanInputs(network.graph, network.sites)
    tensors = [node.output[0] for node in network.graph.nodes if node.op_type == "Relu"]
    inputs.add(dict(zip(tensors, values(network.graph, network.feed, *tensors), strict=True)))
    return {layer: means * np.float32(factors.get(layer, 1.0)) for layer, means in inputs.means().items()}


def outputs_of(network: Quantized, file: Path, runtime: str, **options: Any) -> Any:
    """All that a file gives that is written of a copy of the network, by example."""
    deploy_model.write(network.graph.copy(), network.sites, network.record, file, runtime=runtime, **options)
    if runtime == "onnxruntime":
        outputs = run(Graph.load(file), network.feed)
        return np.concatenate([values.reshape(len(values), -1) for values in outputs], axis=1)
    from qbench.quant.artifacts import openvino_model

    return openvino_model.run(openvino_model.compile_file(file), tuple(network.feed.values()))


@pytest.mark.parametrize("runtime", ["onnxruntime", pytest.param("openvino", marks=needs_openvino)])
def test_the_mean_error_of_the_outputs_is_nearly_gone(tmp_path: Path, runtime: str) -> None:
    """Channel by channel, on the examples whose means are known: less than half of what it is without."""
    network, file = two_layers(), tmp_path / "model.onnx"
    (exact,) = run(network.graph, network.feed)
    errors = [
        outputs_of(network, file, runtime, **options).reshape(exact.shape) - exact
        for options in ({}, {"mean_inputs": means_of(network)})
    ]
    errors = [np.linalg.norm(error.mean(axis=(0, 2, 3))) for error in errors]
    assert errors[1] < errors[0] / 2


def test_a_layer_that_runs_in_float_keeps_its_bias(tmp_path: Path) -> None:
    """Where ONNX Runtime has no kernel for a layer its weights are not rounded, and nothing is taken off, be its inputs
    however large. The others stay corrected."""
    network, file = two_layers(transposed=True), tmp_path / "model.onnx"
    plain = outputs_of(network, file, "onnxruntime")
    as_they_are, huge = (
        outputs_of(network, file, "onnxruntime", mean_inputs=means_of(network, float=factor)) for factor in (1.0, 1e4)
    )
    np.testing.assert_allclose(as_they_are, huge, atol=1e-4 * np.abs(plain).max())
    assert np.abs(as_they_are - plain).max() > 1e-4 * np.abs(plain).max()


def test_a_layer_that_is_faster_in_float_keeps_its_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left float for its time is not rounded either."""
    network, file = two_layers(), tmp_path / "model.onnx"
    monkeypatch.setattr(slow_in_int8, "find_slow", lambda graph, sites: {"two": "slow"})
    as_they_are, huge = (
        outputs_of(network, file, "onnxruntime", leave_slow_float=True, mean_inputs=means_of(network, two=factor))
        for factor in (1.0, 1e4)
    )
    np.testing.assert_array_equal(as_they_are, huge)


def test_on_openvino_a_layer_is_int8_whatever_is_slow_on_onnx_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of slow layers is ONNX Runtime's: OpenVINO's file has the weights of all of them rounded, so all are
    corrected."""
    network = two_layers()
    monkeypatch.setattr(slow_in_int8, "find_slow", lambda graph, sites: {"two": "slow"})
    graph = network.graph.copy()
    before = graph.constant("two.bias")
    options = {"runtime": "openvino", "leave_slow_float": True, "mean_inputs": means_of(network)}
    deploy_model.write(graph, network.sites, network.record, tmp_path / "model.onnx", **options)
    after = graph.constant("two.bias")
    assert before is not None
    assert after is not None
    assert np.abs(before - after).max() > 0


@pytest.mark.parametrize("runtime", ["onnxruntime", pytest.param("openvino", marks=needs_openvino)])
def test_float_layers_that_share_a_weight_share_it_in_the_file(tmp_path: Path, runtime: str) -> None:
    """The filters of a spectrogram, used for two octaves: below a logarithm both stay float, and each had a copy."""
    draft = Draft()
    filters = draft.weight("filters", 16, 4, 3, 3)
    octaves = [draft.add("Conv", [x, filters], f"octave_{x}") for x in ("x", draft.add("Neg", ["x"], "other"))]
    power = draft.add("Add", [draft.add("Mul", [y, y], f"power_{i}") for i, y in enumerate(octaves)], "power")
    finite = draft.add("Add", [power, draft.constant("floor", np.float32(1e-6))], "finite")
    output = draft.conv(draft.add("Log", [finite], "level"), "last", 16, 4, 1)
    network, file = of(draft.model({"x": ["batch", 4, 8, 8]}, {output: ["batch", 4, 6, 6]})), tmp_path / "model.onnx"
    assert [site.layer for site in network.sites.weights] == ["last"]
    outputs_of(network, file, runtime)
    written = Graph.load(file)
    (weight,) = {node.input[1] for node in written.nodes if node.name.startswith("octave")}
    assert [tensor.name for tensor in written.model.graph.initializer if list(tensor.dims) == [16, 4, 3, 3]] == [weight]
