"""What pydantic finds in a suite, in plain words at a place in the file. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from qbench.errors import Problem
from qbench.quant.recipe import ONNX_STATIC
from qbench.suite.types import AMOUNT, PERCENT, SECONDS_IN, near, shown
from qbench.suite.yaml_tree import Node, Path, path_text

# pydantic's error type -> what was expected instead.
EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list, such as [a, b]",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "string_too_long": "at most {max_length} characters",
    "literal_error": "{expected}",
}

# The keys of losses and scores, whose unit is that of the metric.
POINTS = ("margin", "max_regression", "at_least")
# fmt: off
TIMES = {**SECONDS_IN, "sec": 1.0, "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "minutes": 60.0, "h": 3600.0}
# fmt: on


def problems(error: ValidationError, root: Node, model: type[BaseModel]) -> list[Problem]:
    """Every error at its place in the tree; what lies below a value that was refused before is left out."""
    candidates = (_problem(item, root, model) for item in error.errors())
    return [problem for problem in candidates if problem is not None]


def _problem(item: Mapping[str, Any], root: Node, model: type[BaseModel]) -> Problem | None:
    context: dict[str, Any] = item.get("ctx", {})
    in_key = item["loc"][-1:] == ("[key]",)
    path: Path = tuple(step for step in item["loc"] if step != "[key]") + tuple(context.get("at", ()))
    steps = list(root.walk(path))
    key_mark, node = steps[-1]
    if any(node.broken for _, node in steps) or (item["type"] == "too_short" and node.value):
        return None  # pydantic counts the good items of a list; the bad ones are reported already
    if item["type"] == "extra_forbidden":
        options = sorted(_keys(model, path[:-1]))
        name = str(path[-1])
        of_recipe = "; it is a key of `recipe:`;" if path[0] == "quantize" and name in ONNX_STATIC else ""
        unknown = f"unknown key '{name}'{of_recipe or near(name, options) or ';'} available: {', '.join(options)}"
        return key_mark.problem(unknown, path_text(path[:-1]))
    mark = key_mark if in_key or len(steps) <= len(path) else node.mark
    return mark.problem(what(item), path_text(path))


def what(item: Mapping[str, Any]) -> str:
    """What is wrong with a value, in plain words, out of one of pydantic's errors."""
    context: Mapping[str, Any] = item.get("ctx", {})
    kind, value = item["type"], item["input"]
    if kind == "qbench":
        return str(context["what"])
    if kind == "missing":
        return "required, but not given"
    if kind == "too_short":
        return "expected at least one item, got an empty list"
    if kind not in EXPECTED:
        return f"{item['msg']}, got {shown(value)}"
    expected = EXPECTED[kind].format(**context)
    hint = "; leave the key out for its default" if value is None else ""
    if kind == "literal_error" and isinstance(value, str):
        hint = near(value, re.findall("'([^']*)'", expected))
    elif kind == "string_type" and isinstance(value, bool | int | float):
        hint = f"; write '{shown(value)}' in quotes if it is meant as text"
    elif kind in ("float_type", "int_type") and isinstance(value, str):
        hint = _drop_unit(value, str(item["loc"][-1]))
    return f"expected {expected}, got {shown(value)}{hint}"


def _drop_unit(value: str, key: str) -> str:
    """What to write in place of ``1%`` or ``5s`` where the key has a unit of its own; nothing for any other text."""
    if match := PERCENT.fullmatch(value):
        of_points = key in POINTS
        return f"; write {match[1]}: {'percentage points for a metric in percent' if of_points else 'no % here'}"
    if key.endswith("seconds") and (match := AMOUNT.fullmatch(value)) and match[2] in TIMES:
        return f"; write {float(match[1]) * TIMES[match[2]]:g}: the key is in seconds"
    return ""


def _keys(model: type[BaseModel], path: Path) -> tuple[str, ...]:
    """The keys that the section at a path may have."""
    here: Any = model
    for step in path:
        here = _inside(here, step)
    section = _section(here)
    return tuple(section.model_fields) if section else ()


def _inside(annotation: Any, step: str | int) -> Any:
    """The type of what stands at one step below a value of that type."""
    section = _section(annotation)
    if get_origin(annotation) in (dict, tuple):
        return get_args(annotation)[1 if get_origin(annotation) is dict else 0]
    if section and isinstance(step, str) and step in section.model_fields:
        return section.model_fields[step].annotation
    return None


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model in a type such as ``SourceSpec | None`` or ``Annotated[ModelSpec, …]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((section for part in get_args(annotation) if (section := _section(part))), None)
