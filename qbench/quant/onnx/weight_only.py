"""Weights of few bits for ONNX Runtime: matrix products as ``MatMulNBits``, whose activations stay floats in the file,
and tables whose rows are looked up as ``GatherBlockQuantized``.

Weights are in blocks of consecutive inputs of one output, each block with a scale of its own. What multiplies them is
the runtime's choice by ``accuracy_level``: 1 makes floats of the weights, 4 makes bytes of the activations, block by
block, as it runs. Definition of both: ONNX Runtime's contrib operators, ``com.microsoft``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import ModeImpossible
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.node_names import match_nodes, module_of
from qbench.quant.recipe import Recipe

Array = NDArray[Any]
ACCURACY_LEVELS = {"fp32": 1, "int8": 4}
_SKIPPED = "the recipe skips it"
_LARGE = 4096  # values of a table that is kept in few bits: a small one saves nothing
_SMALLEST_BLOCK = 16  # that the kernels take


def quantize_file(source: Path, file: Path, recipe: Recipe) -> dict[str, str]:
    """Writes ``source`` with the weights of its matrix products, and large tables, in ``recipe.bits`` bits; layers that
    keep their floats with the reason. Raises ``ModeImpossible`` where none has a weight that is constant."""
    graph = Graph.load(source)
    labels, skipped = _find_skipped(graph, recipe)
    with graph.editing() as nodes:
        replaced = [*_replace_products(graph, nodes, recipe, skipped)]
        _replace_tables(graph, nodes, recipe, skipped)
    if not replaced:
        raise ModeImpossible(
            "weight_only is for matrix products whose weight is a constant, and this network has none that is not "
            "skipped; use static or dynamic for convolutions"
        )
    _import_domain(graph.model)
    graph.drop_unused()
    graph.save(file)
    return {labels[name]: _SKIPPED for name in skipped}


def find_skipped(source: Path, recipe: Recipe) -> tuple[dict[str, str], list[str]]:
    """The layers of a file that the recipe skips, with the reason, and what their nodes give."""
    graph = Graph.load(source, valid=False)
    labels, skipped = _find_skipped(graph, recipe)
    nodes = [node for node in graph.nodes if node.name in skipped]
    return {labels[node.name]: _SKIPPED for node in nodes}, [name for node in nodes for name in node.output]


def _find_skipped(graph: Graph, recipe: Recipe) -> tuple[dict[str, str], set[str]]:
    """The layers of nodes as a person knows them, and the nodes that the recipe skips."""
    labels = {node.name: module_of(node) or node.name for node in graph.nodes}
    return labels, {name for pattern in recipe.skip_layers for name in match_nodes(pattern, labels)}


def _replace_products(graph: Graph, nodes: list[Any], recipe: Recipe, skipped: set[str]) -> Iterator[str]:
    """Puts a product of few bits in the place of each that can have one; their names."""
    for place, node in reversed([*enumerate(nodes)]):
        if node.name in skipped or (weight := _find_weight(graph, node)) is None:
            continue
        nodes[place : place + 1] = _write_product(graph, node, weight, recipe)
        yield str(node.name)


def _replace_tables(graph: Graph, nodes: list[Any], recipe: Recipe, skipped: set[str]) -> None:
    """Puts a look-up in few bits in the place of each that reads rows of a large table; they multiply nothing."""
    from onnx import helper

    bits = recipe.bits or 8
    for place, node in enumerate(nodes):
        table = None if node.name in skipped else _find_table(graph, node, bits)
        if table is None:
            continue
        name, width = node.name or node.output[0], table.shape[1]
        block = choose_block(recipe.group, width)
        parts = quantize_blocks(table.T, bits=bits, block=block, symmetric=recipe.symmetric is True)
        levels, scales, zeros = parts
        rows = levels.reshape(len(table), -1)[:, :width]
        nodes[place] = helper.make_node(
            "GatherBlockQuantized",
            [
                graph.add_constant(f"{name}.table", pack(rows, bits)),
                node.input[1],
                graph.add_constant(f"{name}.scales", scales),
                graph.add_constant(f"{name}.zeros", pack_rows(zeros, bits)),
            ],
            [node.output[0]],
            name=node.name,
            domain="com.microsoft",
            gather_axis=0,
            quantize_axis=1,
            block_size=block,
            bits=bits,
        )


def _find_table(graph: Graph, node: Any, bits: int) -> Array | None:
    """The constant table whose rows a node looks up, where it is worth it; None where it is none."""
    if node.op_type != "Gather" or node.domain not in ("", "ai.onnx") or attribute(node, "axis", 0) != 0:
        return None
    table = graph.constant(node.input[0])
    if table is None or table.ndim != 2 or table.dtype != np.float32 or table.size < _LARGE:
        return None
    return None if table.shape[1] < _SMALLEST_BLOCK or (bits == 4 and table.shape[1] % 2) else table


def _find_weight(graph: Graph, node: Any) -> Array | None:
    """The constant weight of a matrix product, (inputs, outputs); None where a node is no such product."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
        return None
    weight = graph.constant(node.input[1])
    if weight is None or weight.ndim != 2 or weight.dtype != np.float32:
        return None
    if node.op_type == "MatMul":
        return weight
    plain = not attribute(node, "transA", 0) and all(attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
    return (weight.T if attribute(node, "transB", 0) else weight) if plain else None


def _write_product(graph: Graph, node: Any, weight: Array, recipe: Recipe) -> list[Any]:
    """``MatMulNBits``, and an addition where a Gemm has a bias."""
    from onnx import helper

    bits, symmetric, name = recipe.bits or 8, recipe.symmetric is True, node.name or node.output[0]
    block = choose_block(recipe.group, len(weight))
    levels, scales, zeros = quantize_blocks(weight, bits=bits, block=block, symmetric=symmetric)
    inputs = [node.input[0], graph.add_constant(f"{name}.weight", pack(levels, bits))]
    inputs.append(graph.add_constant(f"{name}.scales", scales.reshape(-1)))
    if not symmetric:
        inputs.append(graph.add_constant(f"{name}.zeros", pack_rows(zeros, bits).reshape(-1)))
    has_bias = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
    output = graph.fresh(f"{name}.product") if has_bias else node.output[0]
    product = helper.make_node(
        "MatMulNBits",
        inputs,
        [output],
        name=node.name,
        domain="com.microsoft",
        K=weight.shape[0],
        N=weight.shape[1],
        bits=bits,
        block_size=block,
        accuracy_level=ACCURACY_LEVELS[recipe.arithmetic or "int8"],
    )
    if not has_bias:
        return [product]
    return [
        product,
        helper.make_node("Add", [output, node.input[2]], [node.output[0]], name=graph.fresh(f"{name}.bias")),
    ]


def choose_block(group: int | str | None, inputs: int) -> int:
    """The size of a block: a power of two; for ``channel`` the least that holds all inputs of an output."""
    if group != "channel":
        return int(group or 128)
    return max(_SMALLEST_BLOCK, 1 << (inputs - 1).bit_length())


def quantize_blocks(weight: Array, *, bits: int, block: int, symmetric: bool) -> tuple[Array, Array, Array]:
    """Levels (outputs, blocks, block), scales and zero points (outputs, blocks) of a weight (inputs, outputs).

    Symmetric: the value of the largest size gets the lowest level, whose side has one more, and the zero point is the
    middle. Else the range from the least to the largest, 0 included, gets all levels. A last block that is not full is
    filled with zeros.
    """
    inputs, outputs = weight.shape
    blocks, top, middle = -(-inputs // block), 2**bits - 1, 2 ** (bits - 1)
    padded = np.zeros((blocks * block, outputs), np.float32)
    padded[:inputs] = weight
    groups = padded.reshape(blocks, block, outputs).transpose(2, 0, 1)
    if symmetric:
        largest = np.take_along_axis(groups, np.abs(groups).argmax(-1, keepdims=True), -1)[..., 0]
        scales, zeros = largest / -middle, np.full((outputs, blocks), middle, np.uint8)
    else:
        low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
        scales = (high - low) / top
        zeros = np.clip(np.rint(-low / np.where(scales == 0, 1, scales)), 0, top).astype(np.uint8)
    scales = np.where(scales == 0, 1, scales).astype(np.float32)
    levels = np.rint(groups / scales[..., None]) + zeros[..., None]
    return np.clip(levels, 0, top).astype(np.uint8), scales, zeros


def pack(levels: Array, bits: int) -> Array:
    """Levels along the last axis, as they lie in the file: of 4 bits two in a byte, the first one below."""
    return levels if bits == 8 else (levels[..., 0::2] | (levels[..., 1::2] << 4)).astype(np.uint8)


def pack_rows(zeros: Array, bits: int) -> Array:
    """Zero points (outputs, blocks) likewise, each row in bytes of its own."""
    odd = bits == 4 and zeros.shape[1] % 2
    return pack(np.pad(zeros, ((0, 0), (0, 1))) if odd else zeros, bits)


def _import_domain(model: Any) -> None:
    import onnx

    if all(imported.domain != "com.microsoft" for imported in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
