"""An ONNX model written weight by weight: to serialize it whole, protobuf holds two more copies of all weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbench.quant.artifacts import onnx_outline


def write_model(model: Any, file: Path, *, weights: Path | None = None) -> None:
    """Writes a ``ModelProto``, the same bytes as its own ``SerializeToString`` gives. ``weights``: the folder of the
    files beside it that hold weights, which are taken in, one at a time.

    A field is its number with its wire type, its length, and what it holds
    (https://protobuf.dev/programming-guides/encoding).
    """
    import onnx

    graph = model.graph
    if not is_known(model):
        if weights is not None:
            onnx.load_external_data_for_model(model, str(weights))
        file.write_bytes(model.SerializeToString())
        return
    place, number = _number(model, "graph"), _number(graph, "initializer")
    before, behind = _serialize(graph, lambda field: field < number), _serialize(graph, lambda field: field > number)
    sizes = [_whole(tensor, weights).ByteSize() for tensor in graph.initializer]  # each is serialized for it
    heads = [onnx_outline.head(number, size) for size in sizes]
    length = len(before) + sum(map(len, heads)) + sum(sizes) + len(behind)
    with file.open("wb") as target:
        target.write(_serialize(model, lambda field: field < place))
        target.write(onnx_outline.head(place, length))
        target.write(before)
        for head, tensor in zip(heads, graph.initializer, strict=True):
            target.write(head)
            target.write(_whole(tensor, weights).SerializeToString())
        target.write(behind)
        target.write(_serialize(model, lambda field: field > place))


def is_known(model: Any) -> bool:
    """Whether a model and its graph have only fields that this onnx knows; those of a newer one have places as well."""
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    return not len(UnknownFieldSet(model)) and not len(UnknownFieldSet(model.graph))


def copy_fields(source: Any, target: Any, wanted: Callable[[Any], bool]) -> None:
    """Gives a message those fields of another whose descriptors are wanted."""
    for field, value in source.ListFields():
        if not wanted(field):
            continue
        if hasattr(value, "MergeFrom"):  # a message or several values
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _whole(tensor: Any, folder: Path | None) -> Any:
    """A tensor with its values; a copy where a file in the folder holds them."""
    from onnx import external_data_helper

    if folder is None or not external_data_helper.uses_external_data(tensor):
        return tensor
    whole = type(tensor)()
    whole.CopyFrom(tensor)
    external_data_helper.load_external_data_for_tensor(whole, str(folder))
    whole.ClearField("data_location")
    del whole.external_data[:]
    return whole


def _number(message: Any, field: str) -> int:
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    return number


def _serialize(message: Any, wanted: Callable[[int], bool]) -> bytes:
    """The bytes of the fields of a message whose numbers are wanted."""
    part = type(message)()
    copy_fields(message, part, lambda field: wanted(field.number))
    content: bytes = part.SerializeToString()
    return content
