"""What a suite says of its data set and of a user's Python files, checked before anything is run or read. Pure but for
the text of those files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

from pydantic import ValidationError

from qbench.datasets.options import OPTIONS, SPLITS, TRAIN_AND_TEST, explain
from qbench.errors import Problem
from qbench.files import regular_file
from qbench.suite.models_and_data import CalibrateSpec, EvaluateSpec
from qbench.suite.types import near
from qbench.suite.user_code import Signature, Source, problem_of_name, problems_of_arguments, read_source
from qbench.suite.yaml_tree import Mark, Node, Path, path_text

DATASET: Path = ("data", "dataset")


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
    source = read_source(file)
    if not isinstance(source, Source) or name not in source.functions or source.names is None:
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
    yield (*DATASET, "python"), 1
    yield ("gate", "accuracy", "metric", "python"), 2
    yield from list_training_code(root)


def list_training_code(root: Node) -> Iterator[tuple[Path, int]]:
    """The keys that name a function of a training, and how many arguments qbench gives it."""
    qat: Path = ("quantize", "qat")
    backends = root.at((*qat, "backends"))
    names = backends.value if backends is not None and isinstance(backends.value, dict) else {}
    for place in (qat, *((*qat, "backends", str(name)) for name in names)):
        yield (*place, "loss", "python"), 2
        yield (*place, "train", "python"), 3


def _check_call(signature: Signature, name: str, before: int) -> str | None:
    """Why a function cannot be called with so many arguments by their order; None where it can."""
    needed = [parameter for parameter in signature.names[before:] if parameter in signature.needed]
    if needed:
        return f"qbench calls {name} with {before} arguments; give {', '.join(needed)} a default"
    if len(signature.names) < before and not signature.open:
        return f"qbench calls {name} with {before} arguments, and it takes {len(signature.names)}"
    return None


def _check_code(root: Node, path: Path, base: File, before: int) -> Iterator[Problem]:
    node = root.at(path)
    if node is None or not isinstance(node.value, str):
        return
    file, name = _split_target(node.value, base)
    source = read_source(file) if name else None
    if isinstance(source, str):
        yield node.mark.problem(source, path_text(path))
    if not isinstance(source, Source):
        return
    what = problem_of_name(source, name, file)
    if what is not None:
        yield node.mark.problem(what, path_text(path))
    elif source.names is not None and name in source.functions and path[:2] == ("quantize", "qat"):
        what = _check_call(source.functions[name], name, before)
        if what is not None:
            yield node.mark.problem(what, path_text(path))
    elif source.names is not None and name in source.functions:
        given = _find_arguments(root, (*path[:-1], "args"))
        if given is not None:
            for key, why in problems_of_arguments(source.functions[name], given, before):
                mark: Mark = node.mark if key is None else given[key]
                yield mark.problem(why, path_text(path if key is None else (*path[:-1], "args")))


def _find_arguments(root: Node, path: Path) -> dict[str, Mark] | None:
    """Where each argument stands; None where they are no mapping."""
    node = root.at(path)
    value: Any = {} if node is None else node.value
    return {key: mark for key, (mark, _) in value.items()} if isinstance(value, dict) else None


def _split_target(text: str, base: File) -> tuple[File, str]:
    file, _, name = text.rpartition(":")
    return regular_file.resolve_path(file, base), name if file and name.isidentifier() else ""
