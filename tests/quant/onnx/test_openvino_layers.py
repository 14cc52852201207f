"""Rules of qbench/quant/onnx/openvino_layers.py: what an executed node tells of its work and its format."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

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


def make_node(kind: str, output: Any, *inputs: Any, types: tuple[str, ...] = (), sources: tuple[Any, ...] = ()) -> Any:
    """An executed node with these shapes, types of its inputs, and what makes these."""
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
        get_rt_info=lambda: {"layerType": Text(kind)},
        get_friendly_name=lambda: "node",
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
