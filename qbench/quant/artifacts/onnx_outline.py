"""An ONNX file without the values of its weights: to know its nodes, inputs and outputs takes no memory for these."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SMALL = 4096  # bytes of values that are kept: scales, shapes, indices
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types; there are no groups in an ONNX file
_VALUES = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "raw_data")


class _Field(NamedTuple):
    """A field of a message: its number and wire type, where it begins, and where what it holds begins and ends."""

    number: int
    wire: int
    start: int
    content: int
    end: int


def read_outline(file: Path) -> Any:
    """A file as ``onnx.load`` reads it without external data, but for the values of initializers above ``SMALL`` bytes:
    of these the name, the type and the shape are left. Raises what that raises.

    A message is a row of fields, each its number with its wire type, its length, and what it holds
    (https://protobuf.dev/programming-guides/encoding).
    """
    import onnx

    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return onnx.ModelProto.FromString(_outline_model(content))
    except (ValueError, IndexError):  # not such a row: onnx knows other formats, and says what is wrong
        return onnx.load(str(file), load_external_data=False)


def _outline_model(content: mmap.mmap) -> bytes:
    import onnx

    (graph, initializer), numbers = _path(onnx), onnx.TensorProto.DESCRIPTOR.fields_by_name
    values = {numbers[name].number for name in _VALUES}

    def outline_tensor(start: int, end: int) -> bytes:
        fields = _read_fields(content, start, end)
        return b"".join(
            content[field.start : field.end]
            for field in fields
            if field.number not in values or field.end - field.content <= SMALL
        )

    def outline_graph(start: int, end: int) -> bytes:
        return _replace(content, start, end, initializer, outline_tensor)

    return _replace(content, 0, len(content), graph, outline_graph)


def _path(onnx: Any) -> tuple[int, int]:
    """The numbers of the graph in a model and of the initializers in a graph."""
    model, graph = onnx.ModelProto.DESCRIPTOR, onnx.GraphProto.DESCRIPTOR
    return model.fields_by_name["graph"].number, graph.fields_by_name["initializer"].number


def _replace(content: mmap.mmap, start: int, end: int, number: int, outline: Any) -> bytes:
    """A message with what ``outline`` gives for each message of that number in it."""
    parts = []
    for field in _read_fields(content, start, end):
        if field.number != number or field.wire != _LENGTH_DELIMITED:
            parts.append(content[field.start : field.end])
            continue
        inner = outline(field.content, field.end)
        parts += [head(number, len(inner)), inner]
    return b"".join(parts)


def _read_fields(content: mmap.mmap, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message; raises ``ValueError`` where it ends within one, or for a wire type that is none."""
    while start < end:
        key, place = _read_varint(content, start)
        wire = key & 7
        if wire == _LENGTH_DELIMITED:
            length, place = _read_varint(content, place)
            stop = place + length
        elif wire == _VARINT:
            _, stop = _read_varint(content, place)
        elif wire in (_FIXED64, _FIXED32):
            stop = place + (8 if wire == _FIXED64 else 4)
        else:
            raise ValueError(f"wire type {wire}")
        if stop > end:
            raise ValueError("a field ends behind its message")
        yield _Field(key >> 3, wire, start, place, stop)
        start = stop


def _read_varint(content: mmap.mmap, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number of more than 64 bits")


def head(number: int, length: int) -> bytes:
    """What stands before a message of that many bytes."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
