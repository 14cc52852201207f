"""Rules of qbench/quant/onnx/openvino_layers.py: what an executed node tells of its work and its format."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.quant.artifacts import openvino_model
from qbench.quant.artifacts.node_profile import WARMUP_CALLS, WatchedCalls
from qbench.quant.onnx import openvino_layers


class Text:
    """A text as OpenVINO gives it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def astype(self, kind: type) -> str:
        """The text."""
        return self._text


def shape(*sizes: int | None) -> Any:
    """A shape, None for a size that is free."""
    return [SimpleNamespace(is_dynamic=size is None, get_length=lambda size=size: size) for size in sizes]


def constant(name: str, precision: str = "f32", kind: str = "Const") -> Any:
    """A node that makes an input."""
    info = {"layerType": Text(kind), "runtimePrecision": Text(precision)}
    return SimpleNamespace(get_friendly_name=lambda: name, get_rt_info=lambda: info)


def make_node(
    kind: str,
    output: Any,
    *inputs: Any,
    types: tuple[str, ...] = (),
    sources: tuple[Any, ...] = (),
    name: str = "node",
    **said: str,
) -> Any:
    """An executed node with these shapes, types of its inputs, what makes these, and what else it says of itself."""
    info = {"layerType": kind, "execTimeMcs": "3", "originalLayersNames": name, **said}
    makers = sources or tuple(constant(f"c{i}") for i in range(len(inputs)))
    values = [
        SimpleNamespace(
            get_partial_shape=lambda each=each: each,
            get_element_type=lambda i=i: SimpleNamespace(get_type_name=lambda: types[i]),
            get_source_output=lambda i=i: SimpleNamespace(get_node=lambda: makers[i]),
        )
        for i, each in enumerate(inputs)
    ]
    return SimpleNamespace(
        get_output_partial_shape=lambda place: output,
        inputs=lambda: values,
        input_value=lambda i: SimpleNamespace(get_node=lambda: makers[i]),
        get_rt_info=lambda: {key: Text(value) for key, value in info.items()},
        get_friendly_name=lambda: name,
    )


ACTIVATION = constant("a", kind="Parameter")


@pytest.mark.parametrize(
    ("kind", "node", "macs"),
    [
        ("Convolution", make_node("", shape(2, 8, 5, 5), shape(2, 4, 7, 7), shape(8, 4, 3, 3)), 2 * 8 * 25 * 4 * 9),
        ("Convolution", make_node("", shape(1, 8, 5, 5), shape(1, 4, 7, 7), shape(2, 4, 2, 3, 3)), 8 * 25 * 2 * 9),
        ("Deconvolution", make_node("", shape(2, 8, 9, 9), shape(2, 4, 4, 4), shape(4, 8, 3, 3)), 2 * 4 * 16 * 8 * 9),
        ("FullyConnected", make_node("", shape(2, 10), shape(2, 64), shape(10, 64)), 2 * 10 * 64),
        ("MatMul", make_node("", shape(2, 3, 5, 7), shape(2, 3, 5, 4), shape(2, 3, 4, 7)), 2 * 3 * 5 * 7 * 4),
        ("MatMul", make_node("", shape(5, 7), shape(4, 5), shape(4, 7)), 5 * 7 * 4),
        ("MatMul", make_node("", shape(7), shape(4), shape(4, 7)), 7 * 4),
        ("MatMul", make_node("", shape(None, 7), shape(None, 4), shape(4, 7)), 7 * 4),
        ("RNNSeq", make_node("", shape(1, 8, 16), shape(1, 8, 32), shape(1, 1, 16), shape(1, 64, 32), shape(1, 64, 16),
                        shape(1, 64), sources=(ACTIVATION, ACTIVATION, *(constant("c"),) * 3)),
         8 * (64 * 32 + 64 * 16)),
    ],
)  # fmt: skip
def test_the_work_of_a_node_follows_from_its_shapes(kind: str, node: Any, macs: int) -> None:
    """Of a convolution by its outputs, of a transposed one by its inputs, of a product by the axis that is summed over,
    of a recurrent layer by its constant weights in every step."""
    assert openvino_layers._multiply_accumulates(kind, node) == macs


@pytest.mark.parametrize(
    ("types", "bits"),
    [
        (("f32", "i8"), 8),
        (("bf16", "u8"), 8),
        (("f16", "u4"), 4),
        (("f32", "i4"), 4),
        (("u8", "i8"), None),
        (("f32", "f32"), None),
        (("f32",), None),
    ],
)
def test_a_weight_of_few_bits_meets_floats(types: tuple[str, ...], bits: int | None) -> None:
    """Where an activation is bytes, too, it is an int8 product."""
    assert openvino_layers._count_weight_bits(make_node("", shape(1), *(shape(1) for _ in types), types=types)) == bits


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        ("brgconv_avx512_core_I8", "int8"),
        ("jit_u8", "int8"),
        ("brgemm_avx512_bf16", "bf16"),
        ("jit_f16", "fp16"),
        ("brgconv_avx2_f32", "fp32"),
        ("i8_brgconv", "fp32"),
    ],
)
def test_a_kernels_name_ends_with_its_format(kernel: str, precision: str) -> None:
    """What is no format of its own is float32."""
    assert openvino_layers._precision(kernel) == precision


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("conv/WithoutBiases", "conv"),
        ("conv/signed", "conv"),
        ("conv/DequantizationMultiply/WithoutBiases", "conv"),
        ("conv/WithoutBiases/more", "conv/WithoutBiases/more"),
        ("conv", "conv"),
    ],
)
def test_a_part_of_a_node_goes_by_the_nodes_name(name: str, whole: str) -> None:
    """Whatever was hung on it, at its end."""
    assert openvino_layers._whole(name) == whole


@pytest.mark.parametrize(
    ("kind", "sources", "names"),
    [
        ("Subgraph", (ACTIVATION, constant("w", "i8")), ["w"]),
        ("Subgraph", (ACTIVATION, constant("w", "u8"), constant("v", "i8")), ["w", "v"]),
        ("Subgraph", (ACTIVATION, constant("w", "f32")), []),
        ("Subgraph", (constant("u", "i8"), constant("w", "i8")), []),
        ("Subgraph", (ACTIVATION, constant("w", "i8", kind="Reorder")), []),
        ("FullyConnected", (ACTIVATION, constant("w", "i8")), []),
    ],
)
def test_a_joined_kernel_reads_matrices_of_bytes(kind: str, sources: tuple[Any, ...], names: list[str]) -> None:
    """Constants of two axes, beside an activation."""
    shapes = [shape(2, 64), *(shape(64, 10) for _ in sources[1:])]
    node = make_node(kind, shape(2, 10), *shapes, sources=sources)
    assert [name for name, _ in openvino_layers._matrices_of_bytes(node)] == names
    deep = make_node(kind, shape(2, 10), *(shape(1, 64, 10) for _ in sources), sources=sources)
    assert openvino_layers._matrices_of_bytes(deep) == []


@pytest.mark.parametrize("text", ["i8", Text("i8")])
def test_a_text_may_be_wrapped(text: Any) -> None:
    """OpenVINO gives both kinds."""
    assert openvino_layers._text(text) == "i8"


@pytest.mark.parametrize(
    ("node", "kernel", "kind"),
    [
        ("FullyConnectedQuantizedLegacy", "brgemm_avx512_i8", "int8 product"),
        ("Convolution", "brgconv_avx2_f32", "float product"),
        ("Convolution", "brgconv_bf16", "float product"),
        ("Reorder", "jit_i8", "conversion"),
        ("Eltwise", "jit_i8", "other"),
    ],
)
def test_a_nodes_time_is_that_of_its_kind(node: str, kernel: str, kind: str) -> None:
    """Products by their format, and what only changes the form of values apart."""
    assert openvino_layers._kind(SimpleNamespace(node_type=node, exec_type=kernel)) == kind


def test_a_node_goes_by_its_own_name_and_those_that_it_was_made_of() -> None:
    """Whole ones."""
    info = {"originalLayersNames": "conv/WithoutBiases,relu"}
    assert openvino_layers._names(make_node("", shape(1)), info) == {"node", "conv", "relu"}


HERE = Path("m.xml")


def compiled(*nodes: Any, request: Any = None) -> Any:
    """A compiled model that runs these nodes."""
    model = SimpleNamespace(get_ordered_ops=lambda: list(nodes))
    return SimpleNamespace(get_runtime_model=lambda: model, create_infer_request=lambda: request)


def product(name: str, kernel: str, *types: str) -> Any:
    """A matrix product of 640 multiply-accumulates an example, executed for two."""
    shapes = (shape(2, 64), shape(10, 64))
    return make_node("FullyConnected", shape(2, 10), *shapes, types=types, name=name, primitiveType=kernel)


RUN = (
    product("bytes", "brgemm_i8", "u8", "i8"),
    product("floats", "brgemm_f32", "f32", "f32"),
    product("small", "brgemm_f32", "f32", "u4"),
    product("also small", "brgemm_f32", "f32", "i8"),
    product("halves", "brgemm_bf16", "bf16", "i8"),
    make_node("MatMul", shape(2, 10), shape(2, 64), shape(64, 10), execTimeMcs="not_executed",
              primitiveType="brgemm_f32"),
    make_node("Eltwise", shape(2, 10), shape(2, 10), primitiveType="jit_i8"),
    make_node("Subgraph", shape(2, 10), shape(2, 64), shape(64, 10), name="joined", primitiveType="jit_f32",
         sources=(ACTIVATION, constant("w", "i8"))),
)  # fmt: skip


@pytest.mark.parametrize("in_bytes", [True, False])
def test_the_layers_of_a_run_are_its_products(monkeypatch: pytest.MonkeyPatch, in_bytes: bool) -> None:
    """Of an example, in order. Whether bytes are made of what meets few bits is asked once, and of float kernels
    alone."""
    asked = []
    monkeypatch.setattr(openvino_layers, "_makes_bytes", lambda *what: asked.append(what) or in_bytes)
    inputs, outputs = (np.zeros((2, 64)),), np.zeros(1)
    ran = openvino_layers._list_executed(compiled(*RUN), HERE, inputs, outputs)
    few = "int8" if in_bytes else "fp32"
    expected = [("bytes", "int8", None), ("floats", "fp32", None), ("small", few, 4), ("also small", few, 8),
                ("halves", "bf16", 8), ("w", "int8", None)]  # fmt: skip
    assert [(call.layer.name, call.layer.precision, call.layer.weight_bits) for call in ran] == expected
    assert [repr(call.layer.macs) for call in ran] == ["640"] * 6  # whole numbers
    assert [call.layer.operator for call in (ran[0], ran[-1])] == ["FullyConnected brgemm_i8", "Subgraph jit_f32"]
    assert [call.names for call in (ran[0], ran[-1])] == [{"bytes"}, {"joined"}]
    assert asked == [(HERE, inputs, outputs)]
    whole = openvino_layers._list_executed(compiled(*RUN[:1]), HERE, (np.zeros(()),), outputs)
    assert [call.layer.macs for call in whole] == [1280], "an input without axes is no batch"


@pytest.mark.parametrize(
    ("plain", "makes"), [([1.0, np.nan], False), ([1.0, 2.0], True), ([1.0 + 1e-12, np.nan], True)]
)
def test_bytes_are_made_where_answers_without_them_are_others(
    monkeypatch: pytest.MonkeyPatch, plain: list[float], makes: bool
) -> None:
    """To the last bit; what is no number is equal to itself."""
    inputs = (np.zeros((2, 64)),)
    monkeypatch.setattr(openvino_model, "compile_file", lambda *what, **how: (what, how))
    asked = ((HERE, inputs), {"dynamic_group": 0})
    monkeypatch.setattr(openvino_model, "run", lambda *what: np.array(plain) if what == (asked, inputs) else None)
    assert openvino_layers._makes_bytes(HERE, inputs, np.array([1.0, np.nan])) == makes


class Status(enum.Enum):
    EXECUTED = 2
    OPTIMIZED_OUT = 1


class Request:
    """Infers, and tells the microseconds of nodes, one number a call; none of a call: the node did not run."""

    def __init__(self, **nodes: Iterable[float | None]) -> None:
        self.nodes = {name: list(values) for name, values in nodes.items()}
        self.calls = 0

    def infer(self, inputs: list[Any]) -> list[Any]:
        """The first output."""
        assert inputs == ["x"]
        self.calls += 1
        return [np.zeros(1)]

    def get_profiling_info(self) -> list[Any]:
        """Of the last call."""
        told = {name: values[(self.calls - 1) % len(values)] for name, values in self.nodes.items()}
        return [
            SimpleNamespace(
                node_name=name,
                node_type="Convolution",
                exec_type="brgconv_f32",
                status=Status.OPTIMIZED_OUT if value is None else Status.EXECUTED,
                real_time=timedelta(microseconds=value or 0),
            )
            for name, value in told.items()
        ]


def test_the_time_of_a_call_is_that_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The median over the calls behind those that warm up; of nodes that ran in the last one, joined ones as int8."""
    request = Request(joined=[900, 900, 1, 2, 7], out=[None], first=[5, 5, 5, 5, None], late=[None, None, 4, 4, 4])
    seconds = iter(np.cumsum([[0, each] for each in (90, 80, 3, 1, 7)]).tolist())
    monkeypatch.setattr(openvino_layers, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    model = compiled(*RUN, request=request)
    profile = openvino_layers._time_watched(model, ("x",), 3, 2, None)  # type: ignore[arg-type]
    assert [(node.layer, node.operator, node.kind, node.seconds) for node in profile.nodes] == [
        ("joined", "Convolution brgconv_f32", "int8 product", pytest.approx(2e-6)),
        ("late", "Convolution brgconv_f32", "float product", pytest.approx(4e-6)),
    ]
    assert (profile.call_seconds, profile.watched_seconds) == (3, 3)
    assert next(seconds, None) is None


@pytest.mark.parametrize("apart", [True, False])
def test_a_watched_model_is_compiled_for_it(monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    """With the counters of its nodes; calls that nobody watches run without, in a model of their own."""
    compilations, timed = [], []
    request = Request(conv=[4])

    def compile_file(file: Path, inputs: Any, **how: Any) -> Any:
        assert (file, inputs) == (HERE, ("x",))
        compilations.append(how)
        return compiled(request=request)

    def time_calls(call: Any, count: int, warmups: int = WARMUP_CALLS) -> float:
        call()
        timed.append((count, warmups))
        return 7.0

    def plan_watching(call: Any, seconds: float) -> WatchedCalls:
        call()
        assert seconds == 0.5
        return WatchedCalls(calls=2, warmups=1, apart=apart)

    monkeypatch.setattr(openvino_model, "compile_file", compile_file)
    monkeypatch.setattr(openvino_layers, "time_calls", time_calls)
    monkeypatch.setattr(openvino_layers, "plan_watching", plan_watching)
    monkeypatch.setattr(openvino_layers, "_list_executed", lambda *_: ("layers",))
    watched, bare = {"threads": 3, "profile": True}, {"threads": 3}
    layers, profile = openvino_layers.watch(HERE, ("x",), threads=3, seconds=0.5)
    assert (layers, [node.layer for node in profile.nodes]) == (("layers",), ["conv"])
    assert (profile.call_seconds == 7.0) == apart
    assert compilations == [watched, bare] if apart else [watched]
    assert (timed, request.calls) == ([(2, 1)] if apart else [], 5 + apart)
    del compilations[:], timed[:]
    request.calls = 0
    assert openvino_layers.time_nodes(HERE, ("x",), threads=3, calls=4).call_seconds == 7.0  # type: ignore[arg-type]
    assert (compilations, timed, request.calls) == ([bare, watched], [(4, WARMUP_CALLS)], 1 + WARMUP_CALLS + 4)


def test_what_is_executed_is_told_by_a_model_that_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled with the counters of its nodes, which say what was not executed."""
    monkeypatch.setattr(openvino_model, "compile_file", lambda *what, **how: (what, how))
    monkeypatch.setattr(openvino_model, "run", lambda *what: ("answer", what))
    monkeypatch.setattr(openvino_layers, "_list_executed", lambda *what: what)
    model = ((HERE, ("x",)), {"profile": True})
    assert openvino_layers.executed(HERE, ("x",)) == (model, HERE, ("x",), ("answer", (model, ("x",))))
