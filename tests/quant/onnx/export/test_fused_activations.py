"""SiLU and GELU between bytes are the one operator that ONNX Runtime joins them to in fp32."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx_networks import Draft
from quantized_networks import Quantized, executed, of, run

from qbench.quant.onnx.export import deploy_onnxruntime, executed_layers, narrow_weights
from qbench.quant.onnx.export.fused_activations import fuse_activations

KINDS = ("QuickGelu", "Gelu")
Write = Callable[..., str]  # a draft, what it reads and its name -> what it gives


def scaled(draft: Draft, x: str, name: str, factor: float, *, divided: bool = False) -> str:
    number = draft.constant(f"{name}_factor", np.array(1 / factor if divided else factor, np.float32))
    return draft.add("Div" if divided else "Mul", [x, number], name)


def silu(draft: Draft, x: str, name: str, *, alpha: float = 1.0, swapped: bool = False) -> str:
    inner = x if alpha == 1 else scaled(draft, x, f"{name}_scaled", alpha)
    gate = draft.add("Sigmoid", [inner], f"{name}_gate")
    return draft.add("Mul", [gate, x] if swapped else [x, gate], name)


def gelu(draft: Draft, x: str, name: str, *, half: str = "last", divided: bool = True) -> str:
    inner = scaled(draft, x, f"{name}_scaled", math.sqrt(0.5), divided=divided)
    unit = draft.constant(f"{name}_one", np.array(1, np.float32))
    gate = draft.add("Add", [draft.add("Erf", [inner], f"{name}_erf"), unit], f"{name}_gate")
    if half == "first":
        return draft.add("Mul", [scaled(draft, x, f"{name}_half", 0.5), gate], name)
    if half == "gate":
        return draft.add("Mul", [x, scaled(draft, gate, f"{name}_half", 0.5, divided=True)], name)
    return scaled(draft, draft.add("Mul", [x, gate], f"{name}_whole"), name, 0.5)


def between(write: Write, **options: object) -> Quantized:
    """An activation between two convolutions."""
    draft = Draft()
    x = write(draft, draft.conv("x", "one", 8, 16), "act", **options)
    draft.conv(x, "two", 16, 4)
    draft.nodes[-1].output[0] = "y"
    return of(draft.model({"x": ["batch", 8, 9, 7]}, {"y": ["batch", 4, 9, 7]}))


def deploy(planned: Quantized) -> deploy_onnxruntime.Graph:
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record, None)
    return executed_layers.settled(planned.graph, planned.sites, fitted).graph


@pytest.mark.parametrize(
    ("kind", "write", "options"),
    [
        ("QuickGelu", silu, {"alpha": 1.702}),
        ("Gelu", gelu, {}),
        ("Gelu", gelu, {"half": "first", "divided": False}),
        ("Gelu", gelu, {"half": "gate"}),
    ],
)
def test_an_activation_between_bytes_is_one_operator(kind: str, write: Write, options: dict[str, object]) -> None:
    """It keeps the name of its product, reads one dequantized tensor, and gives the values of the operators apart."""
    planned = between(write, **options)
    deployed = deploy(planned)
    kinds = [node.op_type for node in executed(deployed)]
    assert kinds.count(kind) == 1
    assert not {"Sigmoid", "Erf", "Mul"} & set(kinds)
    assert kinds.count("DequantizeLinear") == 2, "that of the activation and that of the output"
    assert deployed.node("act").op_type == kind
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record, None)
    apart = deploy_onnxruntime.deploy(planned.graph, planned.sites, fitted.record, form=fitted.form)
    (expected,), (outputs,) = run(apart, planned.feed), run(deployed, planned.feed)
    assert np.abs(outputs - expected).max() <= 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("swapped", [False, True])
def test_a_silu_that_is_read_as_bytes_has_a_gate_of_bytes(swapped: bool) -> None:
    """Sigmoid and product run on bytes; the outputs are off by no more than twice what rounding the product itself
    does."""
    planned = between(silu, swapped=swapped)
    deployed = deploy(planned)
    kinds = [node.op_type for node in executed(deployed)]
    assert [kinds.count(kind) for kind in ("QLinearSigmoid", "QLinearMul", "QuickGelu")] == [1, 1, 0]
    assert kinds.count("DequantizeLinear") == 1, "that of the output"
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record, None)
    apart = deploy_onnxruntime.deploy(planned.graph, planned.sites, fitted.record, form=fitted.form)
    (exact,) = run(planned.graph, planned.feed)
    (expected,), (outputs,) = run(apart, planned.feed), run(deployed, planned.feed)
    assert np.square(outputs - exact).mean() <= 2 * np.square(expected - exact).mean()


@pytest.mark.parametrize(("form", "least"), [("U8S8", 0), ("S8S8", -128)])
def test_a_gate_has_all_steps_from_0_to_1(form: str, least: int) -> None:
    """In the type of the tensor that it multiplies."""
    planned = between(silu)
    deployed = deploy_onnxruntime.deploy(planned.graph, planned.sites, planned.record, form=form)
    fuse_activations(deployed)
    give = deployed.maker(deployed.node("act").input[1])
    scale, zero = (deployed.constant(name) for name in give.input[1:3])
    assert scale == np.float32(1 / 255)
    assert (int(zero), zero.dtype) == (least, np.int8 if least else np.uint8)
    assert "com.microsoft" not in {opset.domain for opset in deployed.model.opset_import}


def test_a_silu_whose_floats_are_read_is_one_operator() -> None:
    """Its values stay those of floats."""
    draft = Draft()
    x = silu(draft, draft.conv("x", "one", 8, 16), "act")
    draft.add("Identity", [x], "same", outputs=["same"])
    draft.conv(x, "two", 16, 4)
    draft.nodes[-1].output[0] = "y"
    planned = of(draft.model({"x": ["batch", 8, 9, 7]}, {"y": [None] * 4, "same": [None] * 4}))
    assert deploy(planned).node("act").op_type == "QuickGelu"


def other_tensor(draft: Draft, x: str, name: str) -> str:
    """A gate of another tensor than the one that it multiplies."""
    side = draft.conv("x", "side", 8, 16)
    return draft.add("Mul", [x, draft.add("Sigmoid", [side], f"{name}_gate")], name)


def gate_read_twice(draft: Draft, x: str, name: str) -> str:
    gate = draft.add("Sigmoid", [x], f"{name}_gate")
    return draft.add("Add", [draft.add("Mul", [x, gate], f"{name}_product"), gate], name)


def doubled(draft: Draft, x: str, name: str) -> str:
    return draft.add("Mul", [x, scaled(draft, draft.add("Sigmoid", [x], f"{name}_gate"), f"{name}_two", 2.0)], name)


def other_error_function(draft: Draft, x: str, name: str) -> str:
    unit = draft.constant(f"{name}_one", np.array(1, np.float32))
    gate = draft.add("Add", [draft.add("Erf", [x], f"{name}_erf"), unit], f"{name}_gate")
    return scaled(draft, draft.add("Mul", [x, gate], f"{name}_whole"), name, 0.5)


def gate_by_division(draft: Draft, x: str, name: str) -> str:
    return draft.add("Div", [x, draft.add("Sigmoid", [x], f"{name}_gate")], name)


@pytest.mark.parametrize(
    "write",
    [other_tensor, gate_read_twice, doubled, other_error_function, gate_by_division],
    ids=lambda write: write.__name__,
)
def test_what_is_no_such_activation_stays(write: Write) -> None:
    """Another tensor's gate, one that is read elsewhere, another factor, another argument, a quotient."""
    assert not {node.op_type for node in deploy(between(write)).nodes} & set(KINDS)


def test_floats_are_left_to_the_runtime() -> None:
    """Where nothing is dequantized ONNX Runtime joins them itself: the graph is left as it is."""
    draft = Draft()
    draft.add("Identity", [silu(draft, draft.conv("x", "one", 8, 16), "act")], "end", outputs=["y"])
    graph = of(draft.model({"x": ["batch", 8, 9, 7]}, {"y": ["batch", 16, 9, 7]})).graph
    before = graph.model.SerializeToString(deterministic=True)
    fuse_activations(graph)
    assert graph.model.SerializeToString(deterministic=True) == before


def test_a_product_of_a_product_is_found_within() -> None:
    """``a * silu(x)`` of another tensor ``a``: the SiLU is fused, the outer product stays."""

    def gated(draft: Draft, x: str, name: str) -> str:
        return draft.add("Mul", [draft.conv("x", "side", 8, 16), silu(draft, x, f"{name}_silu")], name)

    deployed = deploy(between(gated))
    assert deployed.node("act").op_type == "Mul"
    assert deployed.node("act_silu").op_type == "QuickGelu"
