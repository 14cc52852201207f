"""``--set KEY=VALUE``: values put into a suite's tree before anything is checked."""

from __future__ import annotations

from collections.abc import Sequence

from qbench.errors import Problem, SuiteError
from qbench.suite.types import shown
from qbench.suite.yaml_tree import Mark, Node, Path, path_of, path_text, read_value

EXAMPLE = "measure.protocol=sequential or matrix.threads=[1,2]"


def override(root: Node, overrides: Sequence[str]) -> tuple[Node, list[Problem]]:
    """The tree with every ``KEY=VALUE`` put in, in order, and what is wrong with those that cannot be."""
    problems: list[Problem] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        mark = Mark(f"--set {key}")
        path = path_of(key)
        if not equals or not path:
            problems.append(mark.problem(f"expected KEY=VALUE, such as {EXAMPLE}, got {shown(text)}"))
            continue
        try:
            node, more = read_value(value, file=mark.file)
            problems += more
            root = _put(root, path, 0, node, mark)
        except SuiteError as error:
            problems += error.problems
    return root, problems


def _put(here: Node, path: Path, depth: int, new: Node, mark: Mark) -> Node:
    """A copy of the tree with ``new`` at the path; nodes that an alias shares elsewhere stay as they are."""
    if depth == len(path):
        return new
    step = path[depth]
    if isinstance(here.value, list) and isinstance(step, int):
        if step >= len(here.value):
            count = len(here.value)
            raise SuiteError([mark.problem(f"{path_text(path[:depth])} has no item [{step}]; it has {count}")])
        items = [*here.value]
        items[step] = _put(items[step], path, depth + 1, new, mark)
        return Node(here.mark, items)
    if isinstance(step, str) and (here.value is None or isinstance(here.value, dict)):
        keys = here.value or {}
        key_mark, inner = keys.get(step, (mark, Node(mark, None)))
        if depth + 1 == len(path):
            key_mark = mark
        return Node(here.mark, {**keys, step: (key_mark, _put(inner, path, depth + 1, new, mark))})
    container = "a list" if isinstance(step, int) else "a mapping"
    raise SuiteError([mark.problem(f"{path_text(path[:depth])} is {shown(here.plain())}, not {container}")])
