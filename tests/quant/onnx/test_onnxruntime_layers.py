"""What an event of ONNX Runtime's profile tells of an operator where the graph it wrote has no such node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, TensorProto, helper

from qbench.modes import Precision
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import WARMUP_CALLS, WatchedCalls
from qbench.quant.onnx import onnxruntime_layers
from qbench.quant.onnx.onnxruntime_layers import Executed
from qbench.quant.onnx.onnxruntime_profile import RuntimeProfile

EVENT = {
    "op_name": "Gemm",
    "input_type_shape": [{"float": [1, 8]}, {"float": [8, 4]}],
    "output_type_shape": [{"float": [1, 4]}],
}


def test_a_node_that_the_written_graph_lacks_is_told_by_its_event() -> None:
    """The runtime renames nodes as it likes: without one the shapes of the event count, in their order."""
    shapes = onnxruntime_layers._Shapes(helper.make_graph([], "g", [], []))
    call = onnxruntime_layers._call(EVENT, None, shapes)
    assert (call.operator, call.inputs, call.outputs, call.attributes) == ("Gemm", ((1, 8), (8, 4)), ((1, 4),), {})


def test_an_absent_input_has_no_shape_and_those_behind_it_keep_theirs() -> None:
    """The event leaves absent inputs out; taken in order, a bias would be a weight."""
    node = helper.make_node("Gemm", ["x", "", "c"], ["y"], transB=1)
    shapes = onnxruntime_layers._Shapes(helper.make_graph([node], "g", [], []))
    call = onnxruntime_layers._call(EVENT, node, shapes)
    assert (call.inputs, call.attributes) == (((1, 8), None, (8, 4)), {"transB": 1})


def ran(name: str, macs: int | None, *names: str, precision: Precision = "fp32") -> Executed:
    """An executed node of these names."""
    layer = Layer(name=name, operator=f"{precision} kernel", macs=macs, precision=precision)
    return Executed(names=frozenset([name, *names]), layer=layer)


def test_layers_are_matched_by_their_names_whatever_the_order() -> None:
    """Then, of what has no name left, by the work in order; a name with other work is another layer."""
    reference = (ran("a", 10), ran("b", 10), ran("c", 20), ran("d", 30))
    artifact = (
        ran("d_made", 31, "d", precision="int8"),
        ran("other", 20, precision="int8"),
        ran("b_nhwc", 10, "b", precision="int8"),
        ran("a", 10),
        ran("unknown", None),
    )
    matched = onnxruntime_layers.match(reference, artifact)
    assert [(layer.name, layer.precision) for layer in matched] == [
        ("a", "fp32"),
        ("b", "int8"),
        ("c", "int8"),
        ("d", "fp32"),
        ("unknown", "fp32"),
    ]
    assert [layer.macs for layer in matched] == [10, 10, 20, 30, None]


@pytest.mark.parametrize("second", ["int8", "fp32"])
def test_calls_that_share_the_work_of_a_layer_are_that_layer(second: Precision) -> None:
    """It is int8 where all of them are. Calls that do other work between them are not it."""
    parts = (ran("a/signed", 4, "a", precision="int8"), ran("a", 6, precision=second))
    matched = onnxruntime_layers.match((ran("a", 10), ran("b", 7)), (*parts, ran("b", 7)))
    assert [(layer.name, layer.macs, layer.precision) for layer in matched] == [("a", 10, second), ("b", 7, "fp32")]
    assert [layer.precision for layer in onnxruntime_layers.match((ran("a", 11),), parts)] == ["fp32"]


def test_what_runs_twice_is_one_layer_with_the_work_of_both() -> None:
    """Unknown where one of them cannot be counted."""
    for first, second, both in ((10, 5, 15), (None, 5, None), (10, None, None), (None, None, None)):
        assert onnxruntime_layers._added(ran("a", first), ran("a", second)).layer.macs == both


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("conv_nchwc", "conv"),
        ("conv_nhwc", "conv"),
        ("conv_token_12", "conv"),
        ("conv_token_", "conv_token_"),
        ("my_nhwc_conv", "my_nhwc_conv"),
    ],
)
def test_what_the_runtime_hangs_on_a_name_is_taken_off(name: str, own: str) -> None:
    """At its end alone."""
    assert onnxruntime_layers.own_name(name) == own


def test_shapes_of_constants_are_known_through_what_keeps_them() -> None:
    """Also in a branch; of two that differ by one name none is known, nor of what is computed otherwise."""

    def constant(name: str, *shape: int) -> TensorProto:
        return helper.make_tensor(name, TensorProto.FLOAT, shape, [0.0] * int(np.prod(shape)))

    def branch(*shape: int) -> GraphProto:
        output = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
        return helper.make_graph([], "b", [], [output], [constant("inner", 5), constant("either", *shape)])

    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("Relu", ["w"], ["r"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch(2), else_branch=branch(3)),
    ]
    shapes = onnxruntime_layers._Shapes(helper.make_graph(nodes, "g", [], [], [constant("w", 4, 3), constant("s", 1)]))
    known = {name: shapes.constant(name) for name in ("w", "d", "r", "inner", "either", "none")}
    assert known == {"w": (4, 3), "d": (4, 3), "r": None, "inner": (5,), "either": None, "none": None}


def test_times_of_a_node_in_a_loop_are_added() -> None:
    """In seconds, of the nodes that are asked for."""
    call = [("a", {"dur": 2.0}), ("b", {"dur": 5.0}), ("a", {"dur": 1.5}), ("loop", {"dur": 9.0})]
    seconds = onnxruntime_layers._sum_by_node(call, {"a", "b"})  # type: ignore[arg-type]
    assert seconds == {"a": pytest.approx(3.5e-6), "b": pytest.approx(5e-6)}


def test_layers_of_an_int8_file_as_a_reference_are_floats() -> None:
    """What is seen to run marks them."""
    (layer,) = onnxruntime_layers.as_float([ran("a", 10, precision="int8")])
    assert (layer.layer.precision, layer.layer.weight_bits, layer.layer.macs) == ("fp32", None, 10)


def event(operator: str, seconds: float, *shapes: list[int]) -> dict[str, Any]:
    """What the profile tells of an execution; the last shape is that of the output."""
    typed = [{"float": each} for each in shapes]
    arguments = {"op_name": operator, "input_type_shape": typed[:-1], "output_type_shape": typed[-1:]}
    return {"args": arguments, "dur": seconds * 1e6}


def test_the_time_of_a_call_is_that_of_its_nodes() -> None:
    """By kind, each the median over the calls that are looked at; what holds other nodes has none of its own."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="a.weight_nhwc"), helper.make_node("If", ["c"], ["z"])]
    graph = helper.make_graph(nodes, "g", [], [])

    def call(seconds: float) -> list[tuple[str, Any]]:
        return [
            ("a_nhwc", event("MatMul", seconds, [2, 8], [8, 4], [2, 4])),
            ("q", event("QuantizeLinear", 2 * seconds, [2, 4], [1], [2, 4])),
            ("i", event("MatMulInteger", 3 * seconds, [2, 8], [8, 4], [2, 4])),
            ("r", event("Relu", 4 * seconds, [2, 4], [2, 4])),
            ("if", event("If", 100 * seconds, [1], [1])),
        ]

    profile = RuntimeProfile(graph=graph, calls=(call(50), call(1), call(2), call(4)), call_seconds=(99, 20, 10, 30))
    bare = onnxruntime_layers._take_times(profile, 1, 15.0)
    assert [(node.layer, node.kind, node.seconds) for node in bare.nodes] == [
        ("a", "float product", pytest.approx(2)),
        ("q", "conversion", pytest.approx(4)),
        ("i", "int8 product", pytest.approx(6)),
        ("r", "other", pytest.approx(8)),
    ]
    assert (bare.call_seconds, bare.watched_seconds) == (15.0, 20)
    assert onnxruntime_layers._take_times(profile, 1, None).call_seconds == 20
    layers = onnxruntime_layers._list_executed(profile, 2)
    assert [(each.layer.name, each.layer.macs, each.layer.int8) for each in layers] == [
        ("a", 32, False),
        ("i", 32, True),
    ]
    assert layers[0].names == {"a_nhwc", "a"}


def test_a_weight_that_a_kernel_packed_is_known_from_the_graph() -> None:
    """The event leaves it out, and has an activation of its shape in its place."""
    graph = helper.make_graph(
        [], "g", [], [], [helper.make_tensor(name, TensorProto.FLOAT, [4, 4], [0.0] * 16) for name in "wv"]
    )
    shapes = onnxruntime_layers._Shapes(graph)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    for given, expected in (
        ([(2, 4), (4, 4), (4,)], ((2, 4), (4, 4), (4,))),
        ([(2, 4), (4,)], ((2, 4), (4, 4), (4,))),
        ([(2, 4)], ((2, 4), (4, 4), None)),
    ):
        assert onnxruntime_layers._in_place(node, given, shapes) == expected


def test_numbers_and_texts_of_a_node_are_its_attributes() -> None:
    """Lists and tensors are left out; a text need not be one."""
    node = helper.make_node("N", [], [], f=0.5, i=3, s="text", many=[1, 2])
    node.attribute.add(name="strange", type=3, s=b"\xff")
    told = onnxruntime_layers._attributes(node)
    assert told == {"f": 0.5, "i": 3, "s": "text", "strange": "\ufffd"}


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(("array", "batch"), [(np.zeros((3, 2)), 3), (np.zeros(()), 1)])
def test_a_session_that_is_watched_tells_layers_and_times(
    monkeypatch: pytest.MonkeyPatch, apart: bool, array: np.ndarray, batch: int
) -> None:
    """By the same calls, those that warm up left out of the times; calls that nobody watches run in a session of their
    own."""
    calls, timed, opened = [], [], []
    profile = SimpleNamespace(calls=("planning", "planning", "warm", 1, 2))

    class Session:
        def __init__(self, *what: Any, **how: Any) -> None:
            assert (what, how) == ((Path("m"), (array,)), {"threads": 2})

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            calls.append("closed")

        def run(self) -> None:
            calls.append("run")

        def finish(self) -> Any:
            return profile

    def plan_watching(call: Any, seconds: float) -> WatchedCalls:
        call()
        assert seconds == 0.5
        return WatchedCalls(calls=2, warmups=1, apart=apart)

    def open_session(file: Path, *, threads: int) -> Any:
        opened.append((file, threads))
        run = lambda names, feed: calls.append((names, list(feed)))  # noqa: E731
        return SimpleNamespace(get_inputs=lambda: [SimpleNamespace(name="x")], run=run)

    def time_calls(call: Any, count: int, warmups: int) -> float:
        call()
        timed.append((count, warmups))
        return 7.0

    fakes = {
        "ProfiledSession": Session,
        "plan_watching": plan_watching,
        "time_calls": time_calls,
        "_take_times": lambda *what: what,
        "_list_executed": lambda *what: what,
        "profile_calls": lambda *what, **how: (what, how),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(onnxruntime_layers, name, fake)
    monkeypatch.setattr(onnxruntime_layers.onnxruntime_session, "open_session", open_session)
    told = onnxruntime_layers.watch(Path("m"), (array,), threads=2, seconds=0.5)
    assert told == ((profile, batch), (profile, 3, 7.0 if apart else None))
    assert calls == ["run"] * 4 + ["closed"] + ([(None, ["x"])] if apart else [])
    assert (timed, opened) == (([(2, 1)], [(Path("m"), 2)]) if apart else ([], []))
    times: Any = onnxruntime_layers.time_nodes(Path("m"), (array,), threads=2, calls=4)
    asked = ((Path("m"), (array,)), {"calls": WARMUP_CALLS + 4, "threads": 2})
    assert times == (asked, WARMUP_CALLS, 7.0)
    assert timed[-1] == (4, WARMUP_CALLS)
