"""Whether the int8 files that a suite names are int8, and of the mode that it says; told before a build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File

from qbench.errors import ModelError, Problem
from qbench.files import regular_file
from qbench.models.base import format_of
from qbench.suite.cross_checks import int8_paths
from qbench.suite.yaml_tree import Node, Path, path_text


def problems(root: Node, *, base: File | None) -> Iterator[Problem]:
    """Each file below ``int8`` that cannot be read, is a float model, or is of the other mode; none without ``base``,
    the folder where paths start."""
    models = root.at(("models",)) if base is not None else None
    for index in range(len(models.value) if models is not None and isinstance(models.value, list) else 0):
        for path in int8_paths(root, ("models", index, "int8")):
            node = root.at(path)
            if base is None or node is None or not isinstance(node.value, str):
                continue
            what = _why_not_int8(node.value, _mode(root, path), base)
            if what is not None:
                yield node.mark.problem(what, path_text(path))


def _mode(root: Node, path: Path) -> str:
    node = root.at((*path[:-1], "mode")) if path[-1] == "file" else None
    return "static" if node is None else str(node.value)


def _why_not_int8(text: str, mode: str, base: File) -> str | None:
    from qbench.models.own_int8 import why_not_int8

    file = regular_file.resolve_path(text, base)
    if format_of(text) is None or regular_file.explain_unusable(file) is not None:
        return None  # told already
    try:
        reason = why_not_int8(file, text, mode)
    except ModelError as error:
        return str(error)
    return None if reason is None else f"{file}: {reason}"
