"""The key ``int8`` of a model: int8 files of the user's own, contenders beside the float model.

int8: mine-int8.onnx
int8: {file: mine-int8.onnx, mode: dynamic}
int8: [by-nncf.onnx, {name: vendor, file: other.onnx}]
int8: {file: mine-int8.pt, engine: fbgemm}
int8: {nncf: by-nncf.onnx, vendor: {file: other.onnx, mode: dynamic}}
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, get_args

from pydantic import PlainValidator, WithJsonSchema

from qbench.errors import ModelError, Problem
from qbench.files import regular_file
from qbench.models.base import FORMATS, OWN_FILE, OwnInt8, format_of
from qbench.quant.pytorch.torch_ao import ENGINES
from qbench.suite.types import near, shown, wrong
from qbench.suite.yaml_tree import Node, path_text
from qbench.suite.yaml_tree import Path as KeyPath

FileMode = Literal["static", "dynamic"]
KEYS = ("file", "mode", "name", "engine")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_EXAMPLE = "a path, or {file: path, mode: static or dynamic}"
_SLIP = 0.75  # at least as alike as 'flie' and 'file'; 'profile', 'final' and 'mobile' are less
At = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Int8File:
    """One file: ``recipe`` is what its cases are called (``file``, ``file-<name>``), ``mode`` whether it quantizes
    activations with fixed ranges or as it runs. ``engine``: that of torch on which a TorchScript file runs."""

    recipe: str
    file: str
    mode: FileMode = "static"
    engine: str | None = None

    def under(self, base: Path) -> OwnInt8:
        """What the later stages take, with an absolute path."""
        path = regular_file.resolve_path(self.file, base)
        return OwnInt8(recipe=self.recipe, path=path, file=self.file, mode=self.mode, engine=self.engine)

    def choose_backends(self, listed: Sequence[str]) -> tuple[str, ...]:
        """Those on which it is tried, of those that a matrix lists. A TorchScript file runs on the engine that the
        suite names for it; where neither it nor the matrix names one, on the one that torch itself takes here."""
        if self.engine is not None:
            return (self.engine,)
        if format_of(self.file) == "torchscript" and not set(listed) & set(ENGINES):
            return (*listed, find_default_engine())
        return tuple(listed)


def find_default_engine() -> str:
    """The engine on which torch runs a loaded file on this kind of CPU, where a program sets none."""
    return "x86" if platform.machine() in ("x86_64", "AMD64") else "qnnpack"


def _files(value: Any) -> tuple[Int8File, ...]:
    """The files that the key names; raises at the place of the first that is none."""
    files: dict[str, Int8File] = {}
    for item, name, at in _items(value):
        file = _file(item, name, at)
        if file.recipe in files:
            raise wrong(f"two files are called '{file.recipe}'; give one a name: {{name: …, file: {file.file}}}", *at)
        files[file.recipe] = file
    return tuple(files.values())


def _items(value: Any) -> Iterator[tuple[Any, str | None, At]]:
    """Each file as it is written, the name that a mapping gives it, and its place."""
    if isinstance(value, list | tuple):
        if not value:
            raise wrong("expected at least one file, got an empty list; leave the key out")
        yield from ((item, _stem(item), (index,)) for index, item in enumerate(value))
    elif isinstance(value, dict) and "file" not in value and not set(value) & {"mode", "name"}:
        if not value:
            raise wrong(f"expected {_EXAMPLE}, got an empty mapping; leave the key out")
        _refuse_misspelt_file(value)
        yield from ((item, str(name), (str(name),)) for name, item in value.items())
    else:
        yield value, None, ()


def _refuse_misspelt_file(names: dict[Any, Any]) -> None:
    """One path under a key that is almost ``file`` is a slip; a contender of that name is written with its own keys."""
    paths = [key for key, item in names.items() if isinstance(item, str) and format_of(item)]
    if len(paths) != 1:
        return
    key = str(paths[0])
    if SequenceMatcher(None, key.lower(), "file").ratio() >= _SLIP:
        own = f"a contender of that name is written {{{key}: {{file: {names[paths[0]]}}}}}"
        raise wrong(f"unknown key '{key}'; did you mean 'file'? {own}", key)


def _stem(item: Any) -> str | None:
    """The name that a file of a list has if none is given."""
    path = item.get("file") if isinstance(item, dict) else item
    if not isinstance(path, str):
        return None
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", PurePath(path).stem).strip("-._+")[:40] or None


def _file(item: Any, name: str | None, at: At) -> Int8File:
    keys = {"file": item} if isinstance(item, str) else item
    if not isinstance(keys, dict):
        raise wrong(f"expected {_EXAMPLE}, got {shown(item)}", *at)
    for key in keys:
        if key not in KEYS:
            raise wrong(f"unknown key '{key}'{near(str(key), KEYS) or ';'} available: {', '.join(KEYS)}", *at, str(key))
    path, mode = keys.get("file"), keys.get("mode", "static")
    place: At = at if isinstance(item, str) else (*at, "file")
    if not isinstance(path, str) or not path.strip():
        raise wrong(f"expected the path of an int8 file, got {shown(path)}", *place)
    if format_of(path) is None:
        raise wrong(f"expected ONNX, TorchScript or OpenVINO ({', '.join(FORMATS)}), got {shown(path)}", *place)
    if mode not in get_args(FileMode):
        raise wrong(
            f"expected static (fixed ranges, also where they were trained) or dynamic, got {shown(mode)}", *at, "mode"
        )
    engine = _engine(keys.get("engine"), path, at)
    return Int8File(recipe=_recipe(keys.get("name", name), at), file=path, mode=mode, engine=engine)


def _engine(engine: Any, path: str, at: At) -> str | None:
    if engine is None:
        return None
    if engine not in ENGINES:
        hint = near(engine, ENGINES) if isinstance(engine, str) else ""
        raise wrong(
            f"expected an engine of torch, got {shown(engine)}{hint or ';'} available: {', '.join(ENGINES)}",
            *at,
            "engine",
        )
    if format_of(path) != "torchscript":
        raise wrong("only a TorchScript file runs on an engine of torch; remove this key", *at, "engine")
    return str(engine)


def _recipe(name: Any, at: At) -> str:
    if name is None:
        return OWN_FILE
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise wrong(
            f"expected a short name of letters, digits, '.', '_', '+' and '-' for an int8 file, got {shown(name)}", *at
        )
    return f"{OWN_FILE}-{name}"


_ONE = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "file": {"type": "string"},
                "mode": {"enum": list(get_args(FileMode))},
                "engine": {"enum": list(ENGINES)},
                "name": {"type": "string"},
            },
            "required": ["file"],
            "additionalProperties": False,
        },
    ]
}
_SCHEMA = {
    "anyOf": [
        *_ONE["anyOf"],
        {"type": "array", "items": _ONE, "minItems": 1},
        {"type": "object", "additionalProperties": _ONE, "minProperties": 1},
    ]
}
Int8Files = Annotated[tuple[Int8File, ...], PlainValidator(_files), WithJsonSchema(_SCHEMA)]


def problems(root: Node, *, base: Path | None) -> Iterator[Problem]:
    """Each file below ``int8`` that cannot be read, is a float model, or is of the other mode; none without ``base``,
    the folder where paths start."""
    models = root.at(("models",)) if base is not None else None
    for index in range(len(models.value) if models is not None and isinstance(models.value, list) else 0):
        for path in list_int8_paths(root, ("models", index, "int8")):
            node = root.at(path)
            if base is None or node is None or not isinstance(node.value, str):
                continue
            what = _why_not_int8(node.value, _mode(root, path), base)
            if what is not None:
                yield node.mark.problem(what, path_text(path))


def list_int8_paths(root: Node, path: KeyPath) -> Iterator[KeyPath]:
    """Every key below ``int8`` that may hold a path: itself, its items, and the key ``file`` of each."""
    node = root.at(path)
    if node is None:
        return
    steps: list[str | int] = [*range(len(node.value))] if isinstance(node.value, list) else []
    steps += [str(key) for key in node.value] if isinstance(node.value, dict) and "file" not in node.value else []
    for place in (path, *((*path, step) for step in steps)):
        yield place
        yield (*place, "file")


def _mode(root: Node, path: KeyPath) -> str:
    node = root.at((*path[:-1], "mode")) if path[-1] == "file" else None
    return "static" if node is None else str(node.value)


def _why_not_int8(text: str, mode: str, base: Path) -> str | None:
    from qbench.models.own_int8 import why_not_int8

    file = regular_file.resolve_path(text, base)
    if format_of(text) is None or regular_file.explain_unusable(file) is not None:
        return None  # told already
    try:
        reason = why_not_int8(file, text, mode)
    except ModelError as error:
        return str(error)
    return None if reason is None else f"{file}: {reason}"
