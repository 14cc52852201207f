"""onnx's TensorProto and its declared dimensions, as numpy knows them."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def dtype(kind: int) -> Any:
    """numpy's dtype of a TensorProto's type number."""
    import onnx

    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))


def value(tensor: Any) -> Array:
    """The values of a TensorProto; text as bytes, which need not be UTF-8."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_type == TensorProto.STRING:
        return np.array([*tensor.string_data, None], object)[:-1].reshape(tuple(tensor.dims))
    return np.asarray(numpy_helper.to_array(tensor))


def fill(tensor: Any, name: str, value: Array) -> None:
    """An empty TensorProto gets name, type, shape and values; with one copy of them where numpy has the type."""
    from onnx import helper, numpy_helper

    value = np.asarray(value)
    if value.dtype.kind not in "fiub" or sys.byteorder != "little":
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return
    tensor.name = name
    tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor.dims.extend(value.shape)
    tensor.raw_data = value.tobytes()


def byte_size(tensor: Any) -> int:
    """The bytes that a tensor's values take."""
    kind = dtype(tensor.data_type)
    return int(math.prod(tensor.dims) * kind.itemsize)


def size(dim: Any) -> int | str | None:
    """A declared dimension: its size, its symbol, or None. Some exporters write -1 for a size that is not known."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
