"""SiLU and GELU between bytes are the one operator that ONNX Runtime joins them to in fp32."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx_networks import Draft
from quantized_networks import Quantized, executed, of, run

from qbench.quant.onnx.export import deploy_onnxruntime, executed_layers, narrow_weights
from qbench.quant.onnx.export.fused_activations import fuse_activations
from qbench.quant.onnx.graph.graph import Graph

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


def number(draft: Draft, value: object) -> str:
    return draft.constant(f"number{len(draft.initializers)}", np.array(value, np.float32))


def gate(draft: Draft, x: str, *, by: object = math.sqrt(0.5), added: float = 1.0, swapped: bool = False) -> str:
    """``1 + erf(x * by)``."""
    terms = [draft.add("Erf", [draft.add("Mul", [x, number(draft, by)], "")], ""), number(draft, added)]
    return draft.add("Add", terms[::-1] if swapped else terms, "")


def halved(draft: Draft, x: str, gate: str, half: object = 0.5) -> str:
    return draft.add("Mul", [draft.add("Mul", [x, gate], ""), number(draft, half)], "")


def sigmoid(draft: Draft, x: str) -> str:
    return draft.add("Sigmoid", [x], "")


def own(draft: Draft, x: str) -> str:
    """The product of a SiLU in another domain."""
    y = draft.add("Mul", [x, sigmoid(draft, x)], "")
    draft.nodes[-1].domain = "own"
    return y


def rewritten(write: Callable[[Draft, str], str], *, dequantized: bool = True) -> Graph:
    """The graph of an activation of bytes that are given as floats (else of floats), as it is then fused."""
    draft = Draft()
    pair = [draft.constant("scale", np.float32(0.05)), draft.constant("zero", np.uint8(128))]
    x = draft.add("DequantizeLinear", ["q", *pair], "give") if dequantized else draft.add("Cast", ["q"], "cast", to=1)
    y = write(draft, x)
    for i, node in enumerate(draft.nodes):
        node.name = f"{node.op_type}{i}"
    ends = ({"q": (onnx.TensorProto.UINT8, ["n", 4])}, {y: [None] * 2})
    values = [[onnx.helper.make_tensor_value_info(name, *(each if isinstance(each, tuple) else (1, each)))
               for name, each in end.items()] for end in ends]  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    body = onnx.helper.make_graph(draft.nodes, "net", *values, draft.initializers)
    graph = Graph(onnx.helper.make_model(body, opset_imports=opsets))
    fuse_activations(graph)
    return graph


@pytest.mark.parametrize(
    ("write", "operator"),
    [
        (lambda d, x: d.add("Mul", [x, sigmoid(d, x)], ""), "QuickGelu"),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Div", [x, number(d, 0.5)], ""))], ""), "QuickGelu"),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Div", [number(d, 0.5), x], ""))], ""), None),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Add", [x, number(d, 2)], ""))], ""), None),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Mul", [x, number(d, [[2]])], ""))], ""), None),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Mul", [x, number(d, [2])], ""))], ""), "QuickGelu"),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Mul", [x, number(d, [2] * 4)], ""))], ""), None),
        (lambda d, x: d.add("Mul", [x, sigmoid(d, d.add("Mul", [x, x], ""))], ""), None),
        (lambda d, x: d.add("Mul", [x, d.add("Mul", [sigmoid(d, x), number(d, 0)], "")], ""), None),
        (lambda d, x: d.add("Mul", [x, d.add("Tanh", [x], "")], ""), None),
        (lambda d, x: d.add("Mul", [x, d.add("Mul", [x, sigmoid(d, x)], "")], ""), "QuickGelu"),  # the inner one
        (own, None),
        (lambda d, x: halved(d, x, gate(d, x)), "Gelu"),
        (lambda d, x: halved(d, x, gate(d, x, swapped=True)), "Gelu"),
        (lambda d, x: halved(d, x, gate(d, x, by=0.7071)), "Gelu"),
        (lambda d, x: halved(d, x, gate(d, x, by=0.7073)), None),
        (lambda d, x: halved(d, x, gate(d, x), 0.50004), "Gelu"),
        (lambda d, x: halved(d, x, gate(d, x), 0.5001), None),
        (lambda d, x: halved(d, x, gate(d, x, added=1.01)), None),
        (lambda d, x: halved(d, x, gate(d, sigmoid(d, x))), None),
        (lambda d, x: halved(d, x, d.add("Sub", [number(d, 1), x], "")), None),
        (lambda d, x: d.add("Mul", [x, gate(d, x)], ""), None),
        (lambda d, x: d.add("Div", [halved(d, x, gate(d, x), 2), number(d, 4)], ""), "Gelu"),
        (lambda d, x: halved(d, x, sigmoid(d, x), 0.5), "QuickGelu"),
    ],
)  # fmt: skip
def test_which_products_are_an_activation(write: Callable[[Draft, str], str], operator: str | None) -> None:
    """By their factors, which are numbers of one element, and one tensor; constants as near as exporters write them."""
    kinds = {node.op_type for node in rewritten(write).nodes}
    assert kinds & {"QuickGelu", "Gelu"} == ({operator} if operator else set())
    assert not {node.op_type for node in rewritten(write, dequantized=False).nodes} & {"QuickGelu", "Gelu"}


@pytest.mark.parametrize("alpha", [1.0, 1.702, -2.0])
def test_the_factor_of_a_silu_is_an_attribute(alpha: float) -> None:
    """The one that the tensor is multiplied by before its sigmoid; the operator's domain is declared once."""

    def two(draft: Draft, x: str) -> str:
        gates = [sigmoid(draft, draft.add("Mul", [x, number(draft, alpha)], "")) for _ in range(2)]
        return draft.add("Add", [draft.add("Mul", [x, each], "") for each in gates], "")

    graph = rewritten(two)
    fused = [node for node in graph.nodes if node.op_type == "QuickGelu"]
    assert [[(each.name, each.f) for each in node.attribute] for node in fused] == [[("alpha", np.float32(alpha))]] * 2
    assert [list(node.input) for node in fused] == [["give_out"]] * 2
    assert [opset.domain for opset in graph.model.opset_import] == ["", "own", "com.microsoft"]
    fuse_activations(graph)
    assert len(graph.model.opset_import) == 3
