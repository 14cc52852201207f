"""YAML text -> a tree of nodes that know where they stand, with limits on what a file may ask of the reader.

Parser events are walked, never constructed: no tag can make an object, and depth and size are known before
anything is built. Scalars follow YAML 1.2's core schema as editors do (``1e-3`` is a number, ``yes`` and
``2026-01-01`` are text; YAML 1.1, PyYAML's own, says otherwise), with merge keys (``<<``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from qbench.errors import Problem, SuiteError
from qbench.suite.types import shown

MAX_BYTES = 2**20
MAX_DEPTH = 32
MAX_NODES = 100_000
TOO_LARGE = "larger than 1 MiB; a suite is a few lines of YAML"
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
KEYS = "suite, models, data and matrix"

Path = tuple[str | int, ...]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = {None, "!", *(_STANDARD + tag for tag in ("str", "int", "float", "bool", "null", "seq", "map"))}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    form: word == "true" for word in ("true", "false") for form in (word, word.title(), word.upper())
}
# A whole number of 19 digits is past anything a suite counts, and past what JSON readers keep exact.
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([0-9]{1,6})\]")


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a node stands. ``line`` and ``column`` count from 1; 0 where there are none (an override)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def problem(self, what: str, where: str = "") -> Problem:
        """What is wrong here."""
        return Problem(file=self.file, line=self.line, column=self.column, where=where, what=what)


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a list of nodes, or a mapping from key to (the key's mark, node).

    ``size`` counts the nodes with every alias expanded; ``broken`` says that the value was refused already.
    """

    mark: Mark
    value: Any
    size: int = 1
    broken: bool = False

    def plain(self) -> Any:
        """The value without marks: dicts, lists, scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, (_, node) in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def child(self, step: str | int) -> tuple[Mark, Node] | None:
        """The mark of a key (or item) and its node; None where there is none."""
        if isinstance(self.value, dict) and isinstance(step, str):
            return self.value.get(step)
        if isinstance(self.value, list) and isinstance(step, int) and step < len(self.value):
            return self.value[step].mark, self.value[step]
        return None

    def walk(self, path: Path) -> Iterator[tuple[Mark, Node]]:
        """The marks and nodes along a path, as far as it is given, this node first."""
        reached: tuple[Mark, Node] | None = (self.mark, self)
        for step in (*path, None):
            assert reached is not None
            yield reached
            reached = None if step is None else reached[1].child(step)
            if reached is None:
                return

    def at(self, path: Path) -> Node | None:
        """The node at exactly that path."""
        nodes = list(self.walk(path))
        return nodes[-1][1] if len(nodes) == len(path) + 1 else None

    def mark_of(self, path: Path) -> Mark:
        """Where the key at a path stands, or its nearest ancestor that is given."""
        return list(self.walk(path))[-1][0]


NOTHING = Node(Mark("<text>"), {})


def path_text(path: Path) -> str:
    """A path in the words of a suite: ``matrix.backends[1]``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def path_of(text: str) -> Path:
    """The inverse of ``path_text``; empty where the text is no path."""
    path: list[str | int] = []
    end = 0
    while match := _STEP.match(text, end):
        path.append(match[1] if match[1] is not None else int(match[2]))
        end = match.end()
    return tuple(path) if end == len(text) and not text.startswith(".") else ()


def scalar(text: str) -> Any:
    """What an unquoted scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(re.sub(r"\.(?=[inIN])", "", text))
    return text


def read_text(text: str, *, file: str) -> tuple[Node, list[Problem]]:
    """The root mapping and the problems that leave it readable; raises ``SuiteError`` where none can be read."""
    root, problems = _read(text, partial(_mark, file))
    start = Mark(file, 1, 1)
    if root is None or (root.value is None and not root.broken):
        raise SuiteError([*problems, start.problem(f"the file is empty; a suite needs {KEYS}")])
    if not isinstance(root.value, dict):
        what = f"expected a mapping with {KEYS}, got {shown(root.plain())}"
        raise SuiteError(problems if root.broken else [*problems, root.mark.problem(what)])
    return root, problems


def read_value(text: str, *, file: str) -> tuple[Node, list[Problem]]:
    """One YAML value that stands in no file (an override); its marks have no line."""
    root, problems = _read(text, lambda _: Mark(file))
    return root or Node(Mark(file), None), problems


def _mark(file: str, mark: Any) -> Mark:
    return Mark(file, mark.line + 1, mark.column + 1)


@dataclass(frozen=True, slots=True)
class _Position:
    """A place in a text, counted from 0 as PyYAML's marks are."""

    line: int
    column: int


def _read(text: str, mark: Callable[[Any], Mark]) -> tuple[Node | None, list[Problem]]:
    """The only document; None for an empty text."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise SuiteError([mark(_Position(0, 0)).problem(TOO_LARGE)])
    if bad := _UNPRINTABLE.search(text, 1 if text.startswith("\ufeff") else 0):
        before = text[: bad.start()]
        place = _Position(before.count("\n"), len(before) - before.rfind("\n") - 1)
        raise SuiteError([mark(place).problem(f"YAML allows no character U+{ord(bad[0]):04X}; remove it")])
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER), mark).document()
    except yaml.YAMLError as error:
        raise SuiteError([_syntax(error, text, mark)]) from error


def _syntax(error: yaml.YAMLError, text: str, mark: Callable[[Any], Mark]) -> Problem:
    place = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None) or _Position(0, 0)
    said = ", ".join(part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    lines = text.splitlines()
    line = lines[place.line] if place.line < len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        place = _Position(place.line, indentation.index("\t"))
        return mark(place).problem("YAML allows no tab in the indentation; use spaces")
    if "maximum nesting depth" in said:  # libyaml's own limit, which reads ahead of ours
        return mark(place).problem(TOO_DEEP)
    return mark(place).problem(f"not valid YAML: {said or error}")


class _Reader:
    """Walks the events of one text."""

    def __init__(self, events: Iterator[Any], mark: Callable[[Any], Mark]) -> None:
        self._events = events
        self._mark = mark
        self._anchors: dict[str, Node | None] = {}  # None while the anchor's own node is being read
        self._problems: list[Problem] = []

    def document(self) -> tuple[Node | None, list[Problem]]:
        """The node of the only document, None where there is none, and the problems that did not stop it."""
        root = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._refuse(event, "a second document; a suite file holds one")
                    break
                root = self._node(next(self._events), depth=1)
        return root, self._problems

    def _refuse(self, event: Any, what: str) -> None:
        self._problems.append(self._mark(event.start_mark).problem(what))

    def _stop(self, event: Any, what: str) -> SuiteError:
        return SuiteError([*self._problems, self._mark(event.start_mark).problem(what)])

    def _node(self, event: Any, *, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._stop(event, TOO_DEEP)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if event.tag not in _PLAIN_TAGS:
            tag = event.tag.replace(_STANDARD, "!!")
            self._refuse(event, f"the tag {tag} is not allowed; a suite holds plain YAML values")
            node = Node(node.mark, None, node.size, broken=True)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        node = self._anchors.get(event.anchor)
        if node is not None:
            return node
        if event.anchor in self._anchors:
            what = f"the alias *{event.anchor} stands inside its own anchor; a suite cannot contain itself"
        else:
            what = f"no anchor &{event.anchor} above this alias"
        self._refuse(event, what)
        return Node(self._mark(event.start_mark), None, broken=True)

    def _scalar(self, event: Any) -> Node:
        as_text = event.tag in ("!", f"{_STANDARD}str") or (event.tag is None and not event.implicit[0])
        return Node(self._mark(event.start_mark), event.value if as_text else scalar(event.value))

    def _sequence(self, event: Any, depth: int) -> Node:
        items: list[Node] = []
        size = 1
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(inner, depth=depth + 1))
            size = self._grown(inner, size + items[-1].size)
        return Node(self._mark(event.start_mark), items, size)

    def _mapping(self, event: Any, depth: int) -> Node:
        items: dict[str, tuple[Mark, Node]] = {}
        merged: list[Node] = []
        size = 1
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            name = self._key(key, depth)
            node = self._node(next(self._events), depth=depth + 1)
            size = self._grown(key, size + node.size)
            if name == "<<" and key.implicit[0]:
                merged += node.value if isinstance(node.value, list) else [node]
            elif name in items:
                self._refuse(key, f"duplicate key '{name}'; first given in line {items[name][0].line}")
            elif name is not None:
                items[name] = (self._mark(key.start_mark), node)
        for node in merged:
            if isinstance(node.value, dict):
                items = {**node.value, **items}
            elif not node.broken:
                self._problems.append(node.mark.problem("expected a mapping behind '<<'"))
        return Node(self._mark(event.start_mark), items, size)

    def _key(self, event: Any, depth: int) -> str | None:
        """The key's text; a key that is no scalar is refused and read past."""
        if isinstance(event, yaml.ScalarEvent) and event.anchor is None and event.tag in _PLAIN_TAGS:
            return str(event.value)
        self._refuse(event, "expected plain text as a key")
        self._node(event, depth=depth + 1)
        return None

    def _grown(self, event: Any, size: int) -> int:
        if size > MAX_NODES:
            raise self._stop(event, f"more than {MAX_NODES:,} values once every alias is expanded")
        return size
