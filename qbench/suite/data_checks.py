"""What a suite says of its data set and of a user's Python files, checked before anything is run or read. Pure but for
the text of those files."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from pydantic import ValidationError

from qbench.datasets.options import OPTIONS, SPLITS, TRAIN_AND_TEST, explain
from qbench.errors import Problem, first_names
from qbench.files import regular_file
from qbench.suite.models_and_data import CalibrateSpec, EvaluateSpec
from qbench.suite.types import near
from qbench.suite.yaml_tree import Mark, Node, Path, path_text

DATASET: Path = ("data", "dataset")

_WITH_ARGS = ("source", "dataset")  # sections in which `args` may stand beside python


def problems(root: Node, *, base: File | None) -> list[Problem]:
    """Options that a data set does not have, splits that it cannot have; with ``base``, functions and arguments that a
    user's file does not have."""
    collected = [*_check_options(root)]
    splits = _find_splits(root)
    if base is not None:
        for path, before in _list_python_keys(root):
            collected += _check_code(root, path, base, before)
        splits = splits or _find_own_splits(root, base)
    return [*collected, *_check_splits(root, splits)]


def _check_options(root: Node) -> Iterator[Problem]:
    node = root.at(DATASET)
    if node is None or not isinstance(node.value, dict):
        return
    loaders = [key for key in node.value if key in OPTIONS]
    if len(loaders) != 1:
        return  # a package's own data set, or a problem that is told already
    model = OPTIONS[loaders[0]]
    try:
        model.model_validate({key: value for key, value in node.plain().items() if key not in loaders})
    except ValidationError as error:
        for refusal in explain(error, model):
            key_mark, value = node.value.get(refusal.key, (node.mark, node))
            mark, path = (key_mark, DATASET) if refusal.unknown else (value.mark, (*DATASET, refusal.key))
            yield mark.problem(refusal.what, path_text(path if refusal.key else DATASET))


def _find_splits(root: Node) -> tuple[str, ...] | None:
    node = root.at(DATASET)
    value = node.value if node is not None else None
    if isinstance(value, dict):
        value = next((key for key in value if key in SPLITS), "")
    return SPLITS.get(value) if isinstance(value, str) else None


def _find_own_splits(root: Node, base: File) -> tuple[str, ...] | None:
    """The splits of a user's plain function: those that ``function.splits`` lists, else train and test."""
    node = root.at((*DATASET, "python"))
    if node is None or not isinstance(node.value, str):
        return None
    file, name = _split_target(node.value, base)
    source = _read_python(file)
    if not isinstance(source, _PythonFile) or name not in source.functions or source.names is None:
        return None
    return source.listed.get((name, "splits"), TRAIN_AND_TEST)


def _check_splits(root: Node, splits: tuple[str, ...] | None) -> Iterator[Problem]:
    if splits is None:
        return
    for part, default in (("calibrate", CalibrateSpec().split), ("evaluate", EvaluateSpec().split)):
        path: Path = ("data", part, "split")
        node = root.at(path)
        split = default if node is None else node.value
        if isinstance(split, str) and split.strip() and split not in splits:
            what = f"no split '{split}'{near(split, splits) or ';'} the data set has: {', '.join(splits)}"
            yield list(root.walk(path))[-1][1].mark.problem(what, path_text(path))


def _list_python_keys(root: Node) -> Iterator[tuple[Path, int]]:
    """The keys that name a function of the user's, and how many parameters qbench gives it itself."""
    models = root.at(("models",))
    for index in range(len(models.value) if models is not None and isinstance(models.value, list) else 0):
        yield ("models", index, "source", "python"), 0
        yield ("models", index, "postprocess", "python"), 1
    yield (*DATASET, "python"), 1
    yield ("gate", "accuracy", "metric", "python"), 2
    yield from list_training_code(root)


def list_training_code(root: Node) -> Iterator[tuple[Path, int]]:
    """The keys that name a function of a training, and how many arguments qbench gives it."""
    qat: Path = ("quantize", "qat")
    backends = root.at((*qat, "backends"))
    names = backends.value if backends is not None and isinstance(backends.value, dict) else {}
    for section in (qat, *((*qat, "backends", str(name)) for name in names)):
        yield (*section, "loss", "python"), 2
        yield (*section, "train", "python"), 3


def _check_call(signature: _Signature, name: str, before: int) -> str | None:
    """Why a function cannot be called with so many arguments by their order; None where it can."""
    needed = [parameter for parameter in signature.names[before:] if parameter in signature.needed]
    call = f"qbench calls {name} with {before} argument{'' if before == 1 else 's'}"
    if needed:
        return f"{call}; give {', '.join(needed)} a default"
    if len(signature.names) < before and not signature.open:
        return f"{call}, and it takes {len(signature.names)}"
    return None


def _check_code(root: Node, path: Path, base: File, before: int) -> Iterator[Problem]:
    node = root.at(path)
    if node is None or not isinstance(node.value, str):
        return
    file, name = _split_target(node.value, base)
    source = _read_python(file) if name else None
    if isinstance(source, str):
        yield node.mark.problem(source, path_text(path))
    if not isinstance(source, _PythonFile):
        return
    problem = _explain_absent(source, name, file)
    if problem is not None:
        yield node.mark.problem(problem, path_text(path))
    elif source.names is not None and name in source.functions and path[-2] not in _WITH_ARGS:
        problem = _check_call(source.functions[name], name, before)
        if problem is not None:
            yield node.mark.problem(problem, path_text(path))
    elif source.names is not None and name in source.functions:
        arguments = _find_arguments(root, (*path[:-1], "args"))
        if arguments is not None:
            for key, why in _explain_arguments(source.functions[name], arguments, before):
                mark: Mark = node.mark if key is None else arguments[key]
                yield mark.problem(why, path_text(path if key is None else (*path[:-1], "args")))


def _find_arguments(root: Node, path: Path) -> dict[str, Mark] | None:
    """Where each argument stands; None where they are no mapping."""
    node = root.at(path)
    value: Any = {} if node is None else node.value
    return {key: mark for key, (mark, _) in value.items()} if isinstance(value, dict) else None


def _split_target(text: str, base: File) -> tuple[File, str]:
    file, _, name = text.rpartition(":")
    return regular_file.resolve_path(file, base), name if file and name.isidentifier() else ""


_LARGEST = 2**22  # bytes; a larger file is no source code


@dataclass(frozen=True, kw_only=True)
class _Signature:
    """The parameters of a function that may be given by name, those that must be, and whether it takes any other."""

    names: tuple[str, ...]
    needed: tuple[str, ...]
    open: bool


@dataclass(frozen=True, kw_only=True)
class _PythonFile:
    """A user's file: the names that it binds at its top (None: not known), its plain functions, and the names that an
    attribute of a function lists (``load.splits``; None where it is no plain list)."""

    names: tuple[str, ...] | None
    functions: dict[str, _Signature]
    listed: dict[tuple[str, str], tuple[str, ...] | None]


def _read_python(file: File) -> _PythonFile | str | None:
    """What the text tells; a message where it is no Python; None where the file cannot be read at all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a remark on an escape in the user's text is for whoever runs it
            tree = ast.parse(regular_file.read_bytes(file, _LARGEST), str(file))
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
    return _PythonFile(
        names=None if unknown else tuple(dict.fromkeys(names)), functions=functions, listed=dict(_listed(tree.body))
    )


def _explain_absent(source: _PythonFile, name: str, file: File) -> str | None:
    """Why the file has no such function; None where it has, or where that is not known."""
    if source.names is None or name in source.names:
        return None
    functions = [function for function in source.names if function in source.functions and not function.startswith("_")]
    has = f"it has {first_names(functions)}" if functions else "it has no function"
    return f"no '{name}' in {file.name}{near(name, source.names) or ';'} {has}"


def _explain_arguments(
    signature: _Signature, arguments: Iterable[str], before: int
) -> Iterator[tuple[str | None, str]]:
    """Each argument that is wrong (None: one is missing) and why; qbench gives the first ``before`` parameters."""
    arguments = list(arguments)
    names = signature.names[before:]
    for name in arguments:
        if name not in names and not signature.open:
            takes = f"it takes {', '.join(names)}" if names else "it takes none"
            yield name, f"the function has no argument '{name}'{near(name, names) or ';'} {takes}"
    missing = [name for name in signature.needed if name in names and name not in arguments]
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


def _signature(node: ast.FunctionDef) -> _Signature:
    takes = node.args
    positional = [argument.arg for argument in (*takes.posonlyargs, *takes.args)]
    needed = positional[: len(positional) - len(takes.defaults)]
    needed += [
        argument.arg for argument, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if default is None
    ]
    return _Signature(
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
