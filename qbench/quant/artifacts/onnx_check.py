"""An ONNX file from anywhere -> a model that can be worked with, or one message: the file and what is wrong in it.

onnx's readers trust what a file says of itself. Before one of them decodes a tensor, its type, its dimensions and the
bytes that it holds must belong together, every name must be text, and weights beside the file must lie beside it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbench.errors import DataError, ModelError, QbenchError, out_of_memory, reraise
from qbench.files import regular_file
from qbench.quant.artifacts import onnx_outline, onnx_problems

MOST_BYTES = 2**31 - 1  # bytes of a protobuf message
_LFS = b"version https://git-lfs"  # how a pointer begins (the specification of Git LFS, version 1)
_LONGEST = 300  # characters of a library's message that are quoted


def load(file: Path, *, weights: bool = True, valid: bool = True) -> Any:
    """The ``ModelProto`` of a file; ``weights``: with its external data taken in, ``valid``: after ``require_valid``.

    Raises ``ModelError``: no such file, not ONNX, names that are no text, tensors whose type, dimensions and bytes
    contradict each other, external data outside the model's folder or larger than this machine's memory.
    """
    model = _parsed(file)
    for what in onnx_problems.find_problems(model, file):
        raise ModelError(f"{file}: {what}")
    if valid:
        require_valid(model, file)
    if weights:
        _take_in(model, file)
        _make_dense(model, file)
    return model


@contextlib.contextmanager
def name_file_in_errors(file: Path, *others: Path, kind: type[QbenchError] = QbenchError) -> Iterator[None]:
    """What is raised inside (of ``kind``) names ``file`` before each of its lines, unless it names it or one of the
    others already or is about data; memory that runs out is a ``ModelError``."""
    try:
        yield
    except DataError:
        raise
    except kind as error:
        text = str(error)
        if any(str(path) in text for path in (file, *others)):
            raise
        raise type(error)("\n".join(f"{file}: {line}" for line in text.splitlines())) from error
    except RecursionError as error:
        raise ModelError(f"{file}: too many of its nodes lie behind or within one another") from error
    except Exception as error:  # that memory ran out every library says in a class of its own
        if isinstance(error, QbenchError) or not out_of_memory(error):
            raise
        what = f"memory ran out ({_words(error)}); is there a very large shape in it, or is a batch too large?"
        raise ModelError(f"{file}: {what}") from error


def require_valid(model: Any, file: Path) -> None:
    """Raises ``ModelError`` with what onnx's checker finds, on a copy without the large weights."""
    import onnx

    with reraise(
        ModelError,
        lambda error: f"{file}: not a valid ONNX model: {_words(error)}",
        (onnx.checker.ValidationError, RuntimeError, ValueError, TypeError, KeyError, IndexError),
    ):
        onnx.checker.check_model(_without_weights(model))


def _parsed(file: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = _read_by_parts(file) or onnx.ModelProto.FromString(regular_file.read_bytes(file, MOST_BYTES))
    except FileNotFoundError as error:
        raise ModelError(f"{file}: no such file") from error
    except (DecodeError, OSError) as error:
        if getattr(error, "errno", None) == errno.EFBIG:
            what = "more than 2 GB, which protobuf does not read; save it with external data"
            raise ModelError(f"{file}: {what}") from error
        what = _describe_bytes(file, error) if isinstance(error, DecodeError) else _describe(error)
        raise ModelError(f"{file}: {what}") from error
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{file}: an ONNX file without {'nodes' if model.graph.output else 'outputs'}")
    return model


def _read_by_parts(file: Path) -> Any:
    """A file that can be read from any place; None of one that cannot be, and where anything is wrong with it."""
    from google.protobuf.message import DecodeError

    try:
        with regular_file.open_file(file, MOST_BYTES) as stream:
            return onnx_outline.read_whole(onnx_outline.Content(stream))
    except (DecodeError, OSError, ValueError, IndexError):
        return None


def _describe_bytes(file: Path, error: BaseException) -> str:
    """What a file is that is no ONNX file."""
    begin = regular_file.read_bytes(file, MOST_BYTES)[: len(_LFS)]
    if begin == _LFS:
        return "a pointer of Git LFS and not the file itself, which `git lfs pull` fetches"
    return f"not a whole ONNX file ({_words(error)})"


def _describe(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _take_in(model: Any, file: Path) -> None:
    """External data becomes part of the model."""
    import onnx

    try:
        onnx.external_data_helper.load_external_data_for_model(model, str(file.parent))
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        raise ModelError(f"{file}: its weights cannot be read ({_words(error)})") from error


def _make_dense(model: Any, file: Path) -> None:
    """Sparse initializers become dense ones, as ONNX Runtime takes them."""
    import numpy as np
    from onnx import numpy_helper

    for sparse in model.graph.sparse_initializer:
        values, indices = (numpy_helper.to_array(part) for part in (sparse.values, sparse.indices))
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        try:
            dense[np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)] = values
        except (IndexError, TypeError, ValueError) as error:
            name = onnx_problems.quote(sparse.values.name)
            raise ModelError(f"{file}: tensor {name}: its indices do not fit ({_words(error)})") from error
        model.graph.initializer.append(numpy_helper.from_array(dense, sparse.values.name))
    del model.graph.sparse_initializer[:]


def _without_weights(model: Any) -> Any:
    """A copy in which initializers are inputs of their type and shape: the checker serializes what it is given."""
    import onnx

    stripped = type(model)()
    for field in ("opset_import", "functions", "metadata_props"):
        getattr(stripped, field).extend(getattr(model, field))
    if model.HasField("ir_version"):
        stripped.ir_version = model.ir_version
    stripped.graph.name = model.graph.name
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(stripped.graph, field).extend(getattr(model.graph, field))
    for value in (*stripped.graph.input, *stripped.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()  # a rank that is not known is no fault, to the checker it is
    listed = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in listed:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            stripped.graph.input.append(value)
    return stripped


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
