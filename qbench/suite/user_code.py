"""What a suite says of a user's Python file, held against the file's text; nothing of it is run.

A file that binds names in a way that cannot be read (``import *``, ``globals()``, a module's ``__getattr__``) is left
to the run; so are decorated functions, whose parameters may be others.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import first_names
from qbench.files import regular_file
from qbench.suite.types import near

LARGEST = 2**22  # bytes; a larger file is no source code


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parameters of a function that may be given by name, those that must be, and whether it takes any other."""

    names: tuple[str, ...]
    needed: tuple[str, ...]
    open: bool


@dataclass(frozen=True, kw_only=True)
class Source:
    """A user's file: the names that it binds at its top (None: not known), its plain functions, and the names that an
    attribute of a function lists (``load.splits``; None where it is no plain list)."""

    names: tuple[str, ...] | None
    functions: dict[str, Signature]
    listed: dict[tuple[str, str], tuple[str, ...] | None]


def read_source(file: Path) -> Source | str | None:
    """What the text tells; a message where it is no Python; None where the file cannot be read at all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a remark on an escape in the user's text is for whoever runs it
            tree = ast.parse(regular_file.read_bytes(file, LARGEST), str(file))
    except OSError:
        return None
    except SyntaxError as error:
        return f"{file}:{error.lineno or 1}: SyntaxError: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, another encoding, thousands of brackets
        return f"{file}: no Python that can be read: {error or type(error).__name__}"
    names = list(_bound(tree.body))
    unknown = "*" in names or "__getattr__" in names or _binds_by_hand(tree)
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    functions = {node.name: _signature(node) for node in definitions if names.count(node.name) == 1}
    return Source(
        names=None if unknown else tuple(dict.fromkeys(names)), functions=functions, listed=dict(_listed(tree.body))
    )


def problem_of_name(source: Source, name: str, file: Path) -> str | None:
    """Why the file has no such function; None where it has, or where that is not known."""
    if source.names is None or name in source.names:
        return None
    functions = [function for function in source.names if function in source.functions and not function.startswith("_")]
    has = f"it has {first_names(functions)}" if functions else "it has no function"
    return f"no '{name}' in {file.name}{near(name, source.names) or ';'} {has}"


def problems_of_arguments(signature: Signature, given: Iterable[str], before: int) -> Iterator[tuple[str | None, str]]:
    """Each argument that is wrong (None: one is missing) and why; qbench gives the first ``before`` parameters."""
    given = list(given)
    names = signature.names[before:]
    for name in given:
        if name not in names and not signature.open:
            takes = f"it takes {', '.join(names)}" if names else "it takes none"
            yield name, f"the function has no argument '{name}'{near(name, names) or ';'} {takes}"
    missing = [name for name in signature.needed if name in names and name not in given]
    if missing:
        yield None, f"the function needs {', '.join(missing)}; give {{args: {{{missing[0]}: …}}}}"


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Every name that statements bind, also inside of ``if``, ``try``, ``with`` and loops; ``*`` for an open import."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield inner.name
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in inner.names)


def _binds_by_hand(tree: ast.Module) -> bool:
    words = {"globals", "exec", "vars", "setattr", "eval", "locals"}
    return any(isinstance(node, ast.Name) and node.id in words for node in ast.walk(tree)) or any(
        isinstance(node, ast.Global) for node in ast.walk(tree)
    )


def _signature(node: ast.FunctionDef) -> Signature:
    takes = node.args
    positional = [argument.arg for argument in (*takes.posonlyargs, *takes.args)]
    needed = positional[: len(positional) - len(takes.defaults)]
    needed += [
        argument.arg for argument, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if default is None
    ]
    return Signature(
        names=(*positional, *(argument.arg for argument in takes.kwonlyargs)),
        needed=tuple(needed),
        open=takes.kwarg is not None or takes.vararg is not None or bool(takes.posonlyargs),
    )


def _listed(body: Iterable[ast.stmt]) -> Iterator[tuple[tuple[str, str], tuple[str, ...] | None]]:
    """``function.attribute = ("a", "b")`` at the top of a file."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                yield (target.value.id, target.attr), _strings(node.value)  # type: ignore[attr-defined]  # an Assign


def _strings(node: ast.expr) -> tuple[str, ...] | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    fits = isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value)
    return tuple(value) if fits else None
