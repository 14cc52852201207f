"""Values of ONNX as numpy's, and how large they are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from qbench.quant.onnx.graph import tensor_proto


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (np.float32, (3, 4), 48),
        (np.float16, (3, 4), 24),
        (np.int8, (3, 4), 12),
        (np.int64, (), 8),
        (np.float32, (0, 4), 0),
        (ml_dtypes.bfloat16, (5,), 10),
    ],
)
def test_the_size_is_that_of_the_values(kind: type, shape: tuple[int, ...], size: int) -> None:
    """Whatever the file says beside them."""
    assert tensor_proto.byte_size(numpy_helper.from_array(np.zeros(shape, kind), "values")) == size


def test_a_size_that_is_told_is_read_without_the_values() -> None:
    """Of weights that lie beside the model there are dimensions and a type alone."""
    assert tensor_proto.byte_size(TensorProto(dims=[1000, 1000, 1000], data_type=TensorProto.FLOAT)) == 4 * 10**9
