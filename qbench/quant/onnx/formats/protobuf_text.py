"""Protobuf's text format without generated classes: a schema as plain names -> messages."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from qbench.errors import UsageError

# Message name -> field -> its type: a scalar of protobuf, or another message's name; "repeated " before what may
# stand several times. Enumeration -> its words, in the order of their numbers from 0.
Schema: TypeAlias = Mapping[str, Mapping[str, str] | tuple[str, ...]]

_PLACE = re.compile(r"^(?P<line>\d+):(?P<column>\d+) : (?P<what>.*)$", re.DOTALL)


def parse(text: str, name: str, schema: Schema, message: str) -> Any:
    """The protobuf message that a text holds. Raises ``UsageError`` with ``name``, line and column of what is wrong."""
    from google.protobuf import text_format  # type: ignore[import-untyped]

    parsed = empty(schema, message)
    try:
        return text_format.Parse(text, parsed)
    except (text_format.ParseError, ValueError) as error:
        what = " ".join(str(error).split())
        position = _PLACE.match(what)
        place, what = (
            (f"{name}:{position['line']}:{position['column']}", position["what"]) if position else (name, what)
        )
        raise UsageError(f"{place}: not protobuf text as expected here: {_plain(what)}") from error


def text(message: Any) -> str:
    """A message as text; floats with the fewest digits that give them back, names as they are."""
    from google.protobuf import text_format

    lines: str = text_format.MessageToString(message, as_utf8=True)
    return lines


def empty(schema: Schema, message: str) -> Any:
    """A message without any field set."""
    parts = schema.items()
    messages = tuple((name, tuple(fields.items())) for name, fields in parts if not isinstance(fields, tuple))
    words = tuple((name, fields) for name, fields in parts if isinstance(fields, tuple))
    return _classes(messages, words)[message]()


@functools.cache
def _classes(
    schema: tuple[tuple[str, tuple[tuple[str, str], ...]], ...], words: tuple[tuple[str, tuple[str, ...]], ...]
) -> Mapping[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="qbench.proto", package="qbench", syntax="proto2")
    for name, values in words:
        enumeration = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enumeration.value.add(name=value, number=number)
    enumerations = {name for name, _ in words}
    for name, fields in schema:
        described = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            descriptor = described.field.add(name=field, number=number)
            label, _, kind = kind.rpartition(" ")
            descriptor.label = descriptor.LABEL_REPEATED if label else descriptor.LABEL_OPTIONAL
            if hasattr(descriptor, f"TYPE_{kind.upper()}"):
                descriptor.type = getattr(descriptor, f"TYPE_{kind.upper()}")
            else:
                descriptor.type = descriptor.TYPE_ENUM if kind in enumerations else descriptor.TYPE_MESSAGE
                descriptor.type_name = f".qbench.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"qbench.{name}")) for name, _ in schema}


def _plain(what: str) -> str:
    """Protobuf's words without the names of the classes made here."""
    return what.replace("qbench.", "").rstrip(".")
