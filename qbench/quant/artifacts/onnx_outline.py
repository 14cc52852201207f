"""An ONNX file field by field: to know its nodes, inputs and outputs, or to write it anew with the weights beside it,
takes no memory for the values of its weights, and to read it whole takes it once."""

from __future__ import annotations

import functools
import io
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_PART = 2**20  # bytes of a model that are read at once
_WINDOW = 4096  # bytes that are read for the first of them: the heads of fields lie close
SMALL = 4096  # bytes of values that are kept: scales, shapes, indices
_BESIDE = "weights"
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types; there are no groups in an ONNX file
_VALUES = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "raw_data")


class _Field(NamedTuple):
    """A field of a message: its number and wire type, where it begins, and where what it holds begins and ends."""

    number: int
    wire: int
    start: int
    content: int
    end: int


class Content:
    """The bytes of an open file by their places, read when they are asked for: where the file is cut short meanwhile,
    or its file system fails, that is an error; a mapping would end the process."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._length = stream.seek(0, io.SEEK_END)
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        return self._length

    def byte(self, place: int) -> int:
        """One of them; raises ``IndexError`` behind the end."""
        offset = place - self._start
        if not 0 <= offset < len(self._window):
            end = min(place + _WINDOW, self._length)
            self._start, self._window, offset = place, self.read(place, max(place, end)), 0
        return self._window[offset]

    def read(self, start: int, end: int) -> bytes:
        """From one place up to another; raises ``ValueError`` where the file has become shorter."""
        self._stream.seek(start)
        content = self._stream.read(end - start)
        if len(content) < end - start:
            raise ValueError("the file was cut short while it was read")
        return content


def read_outline(file: Path) -> Any:
    """A file as ``onnx.load`` reads it without external data, but for the values of initializers above ``SMALL`` bytes:
    of these the name, the type and the shape are left. Raises what that raises.

    A message is a row of fields, each its number with its wire type, its length, and what it holds
    (https://protobuf.dev/programming-guides/encoding).
    """
    import onnx

    try:
        with file.open("rb") as stream:
            content = Content(stream)
            return onnx.ModelProto.FromString(_replace_tensors(content, functools.partial(_outline_tensor, content)))
    except (ValueError, IndexError):  # not such a row: onnx knows other formats, and says what is wrong
        return onnx.load(str(file), load_external_data=False)


def read_whole(content: Content) -> Any:
    """The ``ModelProto`` that ``onnx.ModelProto.FromString`` makes of a file's content, without a copy of all content
    in memory: protobuf merges what is read of it, part by part. Raises what ``FromString`` raises, and ``ValueError``
    or ``IndexError`` where the content is no row of fields."""
    import onnx

    graph, _ = _path(onnx)
    model = onnx.ModelProto()
    for field in _read_fields(content, 0, len(content)):
        if field.number != graph or field.wire != _LENGTH_DELIMITED:
            model.MergeFromString(content.read(field.start, field.end))
            continue
        model.graph.SetInParent()
        for start, end in _list_parts(content, field.content, field.end):
            model.graph.MergeFromString(content.read(start, end))
    return model


def _list_parts(content: Content, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where parts of a message begin and end: whole fields, as many together as have ``_PART`` bytes, or a single
    one."""
    begin = start
    for field in _read_fields(content, start, end):
        if field.end - begin > _PART and field.start > begin:
            yield begin, field.start
            begin = field.start
    if begin < end:
        yield begin, end


def write_weights_apart(file: Path, folder: Path) -> Path:
    """The same model in an empty folder, its large weights in a file beside it, which a runtime maps: from one file
    ONNX Runtime reads all weights, and then copies each. ``file`` itself where its weights lie beside it already, or
    where it holds no large ones. Whole numbers of 64 bits stay: they may be shapes, which onnx reads from the file
    alone. Takes the memory of the largest weight."""
    import onnx

    numbers = onnx.TensorProto.DESCRIPTOR.fields_by_name
    values, external, kind = (numbers[name].number for name in ("raw_data", "external_data", "data_type"))
    target, beside = folder / "model.onnx", folder / _BESIDE

    def move_values(content: Content, weights: BinaryIO, start: int, end: int) -> bytes:
        fields = list(_read_fields(content, start, end))
        if any(field.number == external for field in fields):
            raise ValueError("weights lie beside the file")
        kinds = [_read_varint(content, field.content)[0] for field in fields if field.number == kind]
        movable = {values} if onnx.TensorProto.INT64 not in kinds else ()
        large = [field for field in fields if field.number in movable and field.end - field.content > SMALL]
        kept = b"".join(content.read(field.start, field.end) for field in fields if field not in large)
        return kept + b"".join(_move(content, field, weights) for field in large)

    try:
        with file.open("rb") as stream, beside.open("wb") as weights:
            content = Content(stream)
            target.write_bytes(_replace_tensors(content, functools.partial(move_values, content, weights)))
    except (ValueError, IndexError):  # not such a row: who opens the file says what is wrong
        return file
    return target if beside.stat().st_size else file


def _move(content: Content, field: _Field, weights: BinaryIO) -> bytes:
    """Writes the values of a tensor behind those before them; the fields that say where they are."""
    import onnx

    offset = -(-weights.tell() // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
    weights.seek(offset)
    weights.write(content.read(field.content, field.end))
    place = {"location": _BESIDE, "offset": offset, "length": field.end - field.content}
    entries = [onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in place.items()]
    fields: bytes = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL, external_data=entries).SerializeToString()
    return fields


def _outline_tensor(content: Content, start: int, end: int) -> bytes:
    import onnx

    numbers = onnx.TensorProto.DESCRIPTOR.fields_by_name
    values = {numbers[name].number for name in _VALUES}
    fields = _read_fields(content, start, end)
    return b"".join(
        content.read(field.start, field.end)
        for field in fields
        if field.number not in values or field.end - field.content <= SMALL
    )


def _replace_tensors(content: Content, replace: Callable[[int, int], bytes]) -> bytes:
    """A model with what ``replace`` gives for each of its initializers, told where its message begins and ends."""
    import onnx

    graph, initializer = _path(onnx)
    return _replace(
        content, 0, len(content), graph, lambda start, end: _replace(content, start, end, initializer, replace)
    )


def _path(onnx: Any) -> tuple[int, int]:
    """The numbers of the graph in a model and of the initializers in a graph."""
    model, graph = onnx.ModelProto.DESCRIPTOR, onnx.GraphProto.DESCRIPTOR
    return model.fields_by_name["graph"].number, graph.fields_by_name["initializer"].number


def _replace(content: Content, start: int, end: int, number: int, replace: Callable[[int, int], bytes]) -> bytes:
    """A message with what ``replace`` gives for each message of that number in it."""
    parts = []
    for field in _read_fields(content, start, end):
        if field.number != number or field.wire != _LENGTH_DELIMITED:
            parts.append(content.read(field.start, field.end))
            continue
        inner = replace(field.content, field.end)
        parts += [head(number, len(inner)), inner]
    return b"".join(parts)


def _read_fields(content: Content, start: int, end: int) -> Iterator[_Field]:
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


def _read_varint(content: Content, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        byte = content.byte(place)
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
