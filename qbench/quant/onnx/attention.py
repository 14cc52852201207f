"""The products of two activations in attention, which OpenVINO computes faster on bytes.

Time on bytes over that in float, one thread, AVX512-VNNI: 64 tokens, 4 layers of 384: 0.97; 128 tokens, 4 layers of
256: 0.93; 197 tokens, 6 layers of 384: 0.88, each tensor rounded where a product reads it. They are rounded once,
behind what gives them (``tests/benchmarks/by_hand.py encoder bert vit``, guide/evidence/models.md: 4 dB above NNCF's
files, which round residuals, too). On AVX2 without VNNI they are 2 % slower on bytes. ONNX Runtime gains nothing
(1.02), since what they read is quantized by nodes of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import MOVES, STANDARD
from qbench.quant.onnx.sites import Sites

Place = tuple[str, int]  # a node and the position of one of its inputs
_PRODUCTS = ("MatMul", "Gemm")
_ON_SCORES = ("Add", "Sub", "Where", *MOVES)  # with what scales them, between scores and their Softmax
_GIVE_BYTES = ("Conv", "ConvTranspose", "AveragePool")


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of attention. ``keys``: how many probabilities are in a row of what it reads first, 0 where it reads
    queries and keys. ``sources``: input -> the Split, or else the move, that it comes from behind a matrix product, and
    the number by which it was multiplied on the way; only of one all of which these products read."""

    name: str
    keys: int
    sources: Mapping[int, tuple[str, float]]


def find_products(graph: Graph) -> tuple[Product, ...]:
    """The products of queries and keys and those of probabilities and values, in the order of the graph; none of what a
    convolution gives, and none whose number of keys is not known."""
    products = []
    for node in graph.nodes:
        keys = _count_keys(graph, node) if _multiplies_activations(graph, node) else None
        if keys is not None:
            sources = {i: source for i, name in enumerate(node.input) if (source := _find_source(graph, name))}
            products.append(Product(name=node.name, keys=keys, sources=sources))
    names = {product.name for product in products}
    whole = {name for product in products for name, _ in product.sources.values() if _only_for(graph, name, names)}
    return tuple(
        replace(product, sources={i: source for i, source in product.sources.items() if source[0] in whole})
        for product in products
    )


def find_inputs(graph: Graph) -> Iterator[Place]:
    """What is to be calibrated for these products, in the order of the graph: both inputs of each, and what each of
    their sources reads."""
    products = find_products(graph)
    names = {product.name for product in products}
    sources = {source for product in products for source, _ in product.sources.values()}
    for node in graph.nodes:
        if node.name in names:
            yield from ((node.name, 0), (node.name, 1))
        elif node.name in sources:
            yield node.name, 0


def leave_float(sites: Sites, products: Collection[Product]) -> Sites:
    """Sites without what these products read, nor their sources."""
    names = {product.name for product in products}
    names |= {source for product in products for source, _ in product.sources.values()}
    activations = []
    for site in sites.activations:
        keys = {key: place for key, place in site.keys.items() if place[0] not in names}
        if keys:
            activations.append(replace(site, keys=keys))
    return replace(sites, activations=tuple(activations))


def _multiplies_activations(graph: Graph, node: Any) -> bool:
    """Whether a node is a matrix product of two computed float tensors, neither of which a convolution gives."""
    if node.op_type != "MatMul" or node.domain not in STANDARD:
        return False
    for name in node.input:
        maker = graph.maker(name)
        computed = maker is not None and graph.constant(name) is None and maker.op_type not in _GIVE_BYTES
        if not computed or graph.element_type(name) != np.float32 or len(graph.shape(name) or ()) < 3:
            return False
    return True


def _count_keys(graph: Graph, node: Any) -> int | None:
    """How many probabilities are in a row of what a product reads first, 0 where it gives the scores of them; None
    where it does neither, the number is not known, or what they multiply was made of probabilities (a matrix that is
    inverted step by step, as in Nystroemformer: differences of products, 25.5 dB on bytes, in float 64)."""
    maker = graph.maker(node.input[0])
    if maker is not None and _is(maker, "Softmax"):
        if _comes_from_softmax(graph, node.input[1]):
            return None
        shape = graph.shape(node.input[0]) or ()
        keys = shape[-1] if attribute(maker, "axis", -1) in (-1, len(shape) - 1) else None
        return keys if isinstance(keys, int) and keys > 0 else None
    return 0 if _leads_to_softmax(graph, node.output[0]) else None


def _comes_from_softmax(graph: Graph, tensor: str) -> bool:
    """Whether a tensor is computed from what a Softmax gives, without a layer between."""
    pending, visited = [tensor], {tensor}
    while pending:
        maker = graph.maker(pending.pop())
        if maker is None or _is_layer(graph, maker):
            continue
        if _is(maker, "Softmax"):
            return True
        pending += [name for name in maker.input if name not in visited]
        visited.update(maker.input)
    return False


def _is_layer(graph: Graph, node: Any) -> bool:
    return _is(node, "Conv", *_PRODUCTS) and any(graph.constant(name) is not None for name in node.input[:2])


def _leads_to_softmax(graph: Graph, tensor: str) -> bool:
    """Whether what is scaled, masked or moved of a tensor is all read by a Softmax."""
    readers = [reader for reader, _ in graph.readers(tensor)]
    return bool(readers) and all(
        _is(reader, "Softmax")
        or ((_is(reader, *_ON_SCORES) or _factor(graph, reader) is not None) and _leads_on(graph, reader))
        for reader in readers
    )


def _leads_on(graph: Graph, node: Any) -> bool:
    return not graph.is_output(node.output[0]) and _leads_to_softmax(graph, node.output[0])


def _find_source(graph: Graph, tensor: str) -> tuple[str, float] | None:
    """The Split, or else the first move, from which a tensor comes behind a matrix product, moved and multiplied by
    numbers, and the product of these."""
    factor, source = 1.0, None
    while (maker := graph.maker(tensor)) is not None:
        if _is(maker, "Split"):
            return (maker.name, factor) if _comes_from_product(graph, maker.input[0]) else None
        number = _factor(graph, maker)
        if number is None and not _is(maker, *MOVES):
            break
        factor *= 1.0 if number is None else number
        source = source if number is not None else (maker.name, factor)
        tensor = next(name for name in maker.input if graph.constant(name) is None)
    return source if source is not None and _comes_from_product(graph, tensor) else None


def _comes_from_product(graph: Graph, tensor: str) -> bool:
    """Whether a tensor is what a product with a constant matrix gives, with a bias or moved."""
    maker = graph.maker(tensor)
    while maker is not None and _is(maker, "Add", *MOVES):
        computed = [name for name in maker.input if graph.constant(name) is None]
        if len(computed) != 1:
            return False
        maker = graph.maker(computed[0])
    return maker is not None and _is(maker, *_PRODUCTS) and graph.constant(maker.input[1]) is not None


def _only_for(graph: Graph, source: str, products: Collection[str]) -> bool:
    """Whether everything that a node gives is read by these products, moved and multiplied by numbers; its shape may be
    read by others."""
    pending = list(graph.node(source).output)
    while pending:
        tensor = pending.pop()
        readers = graph.readers(tensor)
        if graph.is_output(tensor) or not readers:
            return False
        for reader, position in readers:
            if _is(reader, "Shape"):
                continue
            if position < 0 or not (
                reader.name in products or _is(reader, *MOVES) or _factor(graph, reader) is not None
            ):
                return False
            pending += [] if reader.name in products else [reader.output[0]]
    return True


def _factor(graph: Graph, node: Any) -> float | None:
    """The number by which a node multiplies a tensor; None where it does not."""
    if not _is(node, "Mul", "Div"):
        return None
    values = [graph.constant(name) for name in node.input]
    numbers = [i for i, value in enumerate(values) if value is not None and value.size == 1]
    if len(numbers) != 1 or (_is(node, "Div") and numbers != [1]):
        return None
    value = values[numbers[0]]
    number = 0.0 if value is None else float(value.item())
    return None if not number else 1 / number if _is(node, "Div") else number


def _is(node: Any, *kinds: str) -> bool:
    return node.op_type in kinds and node.domain in STANDARD
