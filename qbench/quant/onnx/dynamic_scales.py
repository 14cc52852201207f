"""Scales of the weights in a file of ONNX Runtime's dynamic quantizer: one for each channel, where it has fewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def scale_channels(floats: Path, file: Path, *, top: int) -> None:
    """Writes the file again with a scale for each channel of a convolution's weight, and for each column of each
    matrix of a stack.

    The quantizer has one scale for all channels of a convolution, also where it is asked for one each, and for a stack
    one for the columns of all matrices in a shape that the kernel refuses ("B zero point is not valid"). ``floats``
    holds the weights from which the quantizer began; ``top`` is the largest byte.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(file))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = {tensor.name: tensor for tensor in onnx.load(str(floats)).graph.initializer}
    rewritten: dict[str, Array] = {}
    for name, kind in _list_products(model.graph, tensors):
        plain = name.removesuffix("_quantized")
        if plain not in weights:
            continue
        values = numpy_helper.to_array(weights[plain])
        if kind == "MatMulInteger" and values.ndim < 3:
            continue
        axes = tuple(range(1, values.ndim)) if kind == "ConvInteger" else (values.ndim - 2,)
        scales = np.abs(values).max(axis=axes, keepdims=True) / top
        scales = np.where(scales > 0, scales, 1).astype(numpy_helper.to_array(tensors[f"{plain}_scale"]).dtype)
        of_outputs = scales[:, 0] if kind == "ConvInteger" else scales
        zeros = np.zeros((), np.int8) if kind == "ConvInteger" else np.zeros(scales.shape, np.int8)
        rewritten[name] = np.rint(values / scales).astype(np.int8)
        rewritten |= {f"{plain}_scale": of_outputs, f"{plain}_zero_point": zeros}
    for key, array in rewritten.items():
        tensors[key].CopyFrom(numpy_helper.from_array(array, key))
    if rewritten:
        onnx.save(model, str(file))


def _list_products(graph: Any, tensors: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The constant weights that are read by integer products of one kind alone, and the kind."""
    readers: dict[str, set[tuple[str, int]]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, set()).add((node.op_type, place))
    for name, places in readers.items():
        for kind in ("ConvInteger", "MatMulInteger"):
            if name in tensors and places == {(kind, 1)}:
                yield name, kind
