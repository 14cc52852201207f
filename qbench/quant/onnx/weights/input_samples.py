"""What single outputs of a layer are computed from: rows of its input, a bounded random choice of them as they stream.

Every linear layer is y = W x for each output position, with x the values that its kernel sees there: ``rows`` makes
the x, ``arrange`` the W, both by group, so that whoever works on the layer needs to know nothing else of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph.graph import Graph, attribute, copy_message
from qbench.quant.onnx.sites import WeightSite

Array = NDArray[Any]
BYTES = 256 * 2**20  # of all rows of all layers together
FEWEST, MOST = 128, 2048  # rows of a layer
PER_EXAMPLE = 32  # positions of one example that may be chosen


class InputSamples:
    """The rows of each given layer. Which are kept depends on the examples and their order alone, not on how they
    are cut into batches: a reservoir (Vitter's algorithm R) with numbers of its own for each layer.

    ``sites``: the weights of interest.
    """

    def __init__(self, graph: Graph, sites: tuple[WeightSite, ...]) -> None:
        nodes = {site.layer: copy_message(graph.node(site.layer)) for site in sites}
        weights = {site.layer: tuple(np.asarray(graph.constant(site.tensor)).shape) for site in sites}
        wide = {name: _row_size(nodes[name], shape) for name, shape in weights.items()}
        most = int(np.clip(BYTES // (4 * max(sum(wide.values()), 1)), FEWEST, MOST))
        self._layers = {
            name: _Reservoir(nodes[name], weights[name], most, seed) for seed, name in enumerate(sorted(nodes))
        }

    def add(self, values: Mapping[str, Array]) -> None:
        """Takes values of tensors in one batch, examples along the first axis; of those that no layer reads nothing."""
        for layer in self._layers.values():
            if (x := values.get(layer.node.input[0])) is not None:
                layer.add(x)

    def rows(self, layer: str) -> Array:
        """Shape (groups, rows, inputs of a row), float32. Raises ``ValueError`` before the first batch."""
        return self._layers[layer].rows()


class _Reservoir:
    def __init__(self, node: Any, shape: tuple[int, ...], most: int, seed: int) -> None:
        self.node, self._shape, self._most = node, shape, most
        self._random = np.random.default_rng(seed)
        self._seen = 0
        self._kept: Array = np.empty((most, _row_size(node, shape)), np.float32)

    def add(self, x: Array) -> None:
        outputs = _outputs(self.node, self._shape, x.shape)
        each = min(math.prod(outputs), PER_EXAMPLE)
        uniforms = self._random.random((len(x), each, 2))
        places = (uniforms[..., 0] * math.prod(outputs)).astype(np.int64).ravel()
        examples = np.repeat(np.arange(len(x)), each)
        order = self._seen + np.arange(places.size)
        slots = np.where(order < self._most, order, (uniforms[..., 1].ravel() * (order + 1)).astype(np.int64))
        self._seen += places.size
        # A slot that is drawn twice keeps the later row.
        by_slot = {int(slot): position for position, slot in enumerate(slots.tolist()) if slot < self._most}
        if by_slot:
            at = np.fromiter(by_slot.values(), np.int64)
            new_rows = rows(self.node, self._shape, x, examples[at], places[at])
            self._kept[np.fromiter(by_slot, np.int64)] = new_rows

    def rows(self) -> Array:
        if not self._seen:
            raise ValueError("no value was seen")
        groups = int(attribute(self.node, "group", 1)) if _is_conv(self.node) else 1
        filled = self._kept[: min(self._seen, self._most)]
        return np.ascontiguousarray(filled.reshape(len(filled), groups, -1).swapaxes(0, 1))


def rows(node: Any, shape: tuple[int, ...], x: Array, examples: Array, places: Array) -> Array:
    """The inputs of single outputs of a layer with a weight of ``shape``: (outputs asked for, inputs), zeros where the
    kernel lies on padding. ``places``: numbers of output positions, counted row by row."""
    if not _is_conv(node):
        flat: Array = x.reshape(len(x), -1, x.shape[-1])[examples, places].astype(np.float32)
        return flat
    sizes, outputs = x.shape[2:], _outputs(node, shape, x.shape)
    flat, inside = np.zeros((places.size, 1), np.int64), np.ones((places.size, 1), bool)
    for axis, output in enumerate(np.unravel_index(places, outputs)):
        taps, valid = _taps(node, shape, sizes, axis, output)
        flat = (flat[:, :, None] * sizes[axis] + taps[:, None, :]).reshape(places.size, -1)
        inside = (inside[:, :, None] & valid[:, None, :]).reshape(places.size, -1)
    channels = np.arange(x.shape[1])[None, :, None]
    values = x.reshape(*x.shape[:2], -1)[examples[:, None, None], channels, flat[:, None, :]]
    return np.where(inside[:, None, :], values, np.float32(0)).reshape(places.size, -1).astype(np.float32)


def mean_row(node: Any, shape: tuple[int, ...], x: Array) -> Array:
    """The mean of what ``rows`` gives for all outputs of all examples of ``x``, float64: (groups, inputs of a row)."""
    if not _is_conv(node):
        row: Array = x.reshape(-1, x.shape[-1]).mean(axis=0, dtype=np.float64)
        return row[None]
    shares = []  # for each axis, of the outputs for which a weight meets an input
    for axis, count in enumerate(_outputs(node, shape, x.shape)):
        taps, exist = _taps(node, shape, x.shape[2:], axis, np.arange(count))
        shares.append(np.zeros((shape[2 + axis], x.shape[2 + axis])))
        np.add.at(shares[axis], (np.arange(shape[2 + axis])[None], taps), exist / count)
    # Along the last axis first, of the array as it lies in memory: little is left for the others, and for float64. A
    # product of matrices would start BLAS's threads, each with its own memory, for a sum.
    last = shares.pop().astype(np.result_type(x, np.float32))
    mean: Array = np.einsum("...i,ki->...k", x, last).mean(axis=0, dtype=np.float64)
    for share in shares:
        mean = np.tensordot(mean, share, (1, 1))  # an axis of inputs goes, one of the kernel comes behind the others
    return np.moveaxis(mean, 1, -1).reshape(int(attribute(node, "group", 1)), -1)


def arrange(node: Any, weight: Array) -> Array:
    """The weight as (groups, outputs of a group, inputs of a row)."""
    if not _is_conv(node):
        matrix = weight if node.op_type == "Gemm" and attribute(node, "transB", 0) else weight.T
        return matrix[None]
    groups = int(attribute(node, "group", 1))
    if node.op_type == "Conv":
        return weight.reshape(groups, len(weight) // groups, -1)
    parts = weight.reshape(groups, len(weight) // groups, weight.shape[1], -1).swapaxes(1, 2)
    return parts.reshape(groups, weight.shape[1], -1)


def restore(node: Any, arranged: Array, shape: tuple[int, ...]) -> Array:
    """The weight in its own ``shape`` again."""
    if not _is_conv(node):
        matrix = arranged[0]
        return matrix if node.op_type == "Gemm" and attribute(node, "transB", 0) else np.ascontiguousarray(matrix.T)
    if node.op_type == "Conv":
        return arranged.reshape(shape)
    groups = int(attribute(node, "group", 1))
    parts = arranged.reshape(groups, shape[1], shape[0] // groups, -1).swapaxes(1, 2)
    return np.ascontiguousarray(parts).reshape(shape)


def _is_conv(node: Any) -> bool:
    return node.op_type in ("Conv", "ConvTranspose")


def _row_size(node: Any, shape: tuple[int, ...]) -> int:
    """Inputs of one output over all groups."""
    if not _is_conv(node):
        return shape[1] if node.op_type == "Gemm" and attribute(node, "transB", 0) else shape[0]
    channels = shape[0] if node.op_type == "ConvTranspose" else shape[1] * int(attribute(node, "group", 1))
    return int(channels * math.prod(shape[2:]))


def _geometry(node: Any, axis: int, rank: int) -> tuple[int, int]:
    """Stride and dilation along a spatial axis."""
    return attribute(node, "strides", [1] * rank)[axis], attribute(node, "dilations", [1] * rank)[axis]


def _pads(node: Any, shape: tuple[int, ...], size: int, axis: int) -> tuple[int, int]:
    """Begin and end along a spatial axis of ``size`` inputs."""
    rank = len(shape) - 2
    stride, dilation = _geometry(node, axis, rank)
    reach = dilation * (shape[2 + axis] - 1) + 1
    auto = attribute(node, "auto_pad", b"NOTSET").decode()
    sizes = attribute(node, "output_shape")
    if node.op_type == "Conv":
        if not auto.startswith("SAME"):
            pads = attribute(node, "pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
            return pads[axis], pads[rank + axis]
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    elif auto.startswith("SAME") or sizes:
        extra = attribute(node, "output_padding", [0] * rank)[axis]
        total = stride * (size - 1) + extra + reach - (sizes[-rank:][axis] if sizes else size * stride)
        if auto != "SAME_UPPER" and sizes:
            return total - total // 2, total // 2
    else:
        pads = attribute(node, "pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
        return pads[axis], pads[rank + axis]
    small, large = total // 2, total - total // 2
    return (large, small) if auto == "SAME_LOWER" else (small, large)


def _outputs(node: Any, shape: tuple[int, ...], positions: tuple[int, ...]) -> tuple[int, ...]:
    """The output positions of one example."""
    if not _is_conv(node):
        return positions[1:-1]
    rank, sizes = len(shape) - 2, []
    for axis, size in enumerate(positions[2:]):
        stride, dilation = _geometry(node, axis, rank)
        reach, (begin, end) = dilation * (shape[2 + axis] - 1) + 1, _pads(node, shape, size, axis)
        if node.op_type == "Conv":
            sizes.append((size + begin + end - reach) // stride + 1)
        else:
            extra = attribute(node, "output_padding", [0] * rank)[axis]
            sizes.append(stride * (size - 1) + extra + reach - begin - end)
    return tuple(sizes)


def _taps(node: Any, shape: tuple[int, ...], sizes: tuple[int, ...], axis: int, output: Array) -> tuple[Array, Array]:
    """The inputs along one axis that each output sees, and which of them exist: (outputs, kernel size) both."""
    stride, dilation = _geometry(node, axis, len(shape) - 2)
    begin, _ = _pads(node, shape, sizes[axis], axis)
    kernel = np.arange(shape[2 + axis]) * dilation
    if node.op_type == "Conv":
        taps = output[:, None] * stride - begin + kernel
        exist = (taps >= 0) & (taps < sizes[axis])
    else:
        far = output[:, None] + begin - kernel
        taps = far // stride
        exist = (far % stride == 0) & (taps >= 0) & (taps < sizes[axis])
    return np.where(exist, taps, 0), exist
