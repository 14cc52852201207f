"""An ONNX model written weight by weight: to serialize it whole, protobuf holds two more copies of all weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_LENGTH_DELIMITED = 2  # the wire type of messages


def write_model(model: Any, file: Path) -> None:
    """Writes a ``ModelProto``, the same bytes as its own ``SerializeToString`` gives.

    A field is its number with its wire type, its length, and what it holds
    (https://protobuf.dev/programming-guides/encoding).
    """
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    graph = model.graph
    if len(UnknownFieldSet(model)) or len(UnknownFieldSet(graph)):  # of a newer onnx: they have their places as well
        file.write_bytes(model.SerializeToString())
        return
    place, number = _number(model, "graph"), _number(graph, "initializer")
    before, behind = _serialize(graph, lambda field: field < number), _serialize(graph, lambda field: field > number)
    sizes = [tensor.ByteSize() for tensor in graph.initializer]  # each is serialized for it
    heads = [_head(number, size) for size in sizes]
    length = len(before) + sum(map(len, heads)) + sum(sizes) + len(behind)
    with file.open("wb") as target:
        target.write(_serialize(model, lambda field: field < place))
        target.write(_head(place, length))
        target.write(before)
        for head, tensor in zip(heads, graph.initializer, strict=True):
            target.write(head)
            target.write(tensor.SerializeToString())
        target.write(behind)
        target.write(_serialize(model, lambda field: field > place))


def _number(message: Any, field: str) -> int:
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    return number


def _serialize(message: Any, wanted: Callable[[int], bool]) -> bytes:
    """The bytes of the fields of a message whose numbers are wanted."""
    part = type(message)()
    for field, value in message.ListFields():
        if not wanted(field.number):
            continue
        if hasattr(value, "MergeFrom"):  # a message or several values
            getattr(part, field.name).MergeFrom(value)
        else:
            setattr(part, field.name, value)
    content: bytes = part.SerializeToString()
    return content


def _head(field: int, length: int) -> bytes:
    """What stands before a message of that many bytes."""
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
