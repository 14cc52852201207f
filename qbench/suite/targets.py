"""The key ``target`` of a recipe: the kinds of CPU that an artifact is made for, one or a list.

target: avx2
target: [avx2, vnni, arm]
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from qbench.quant.target import CPUS
from qbench.suite.types import near, shown, wrong


def _read_target(value: Any) -> tuple[str, ...]:
    """The kinds of CPU in the order of ``CPUS``; raises at the place of the first that is none."""
    several = isinstance(value, list | tuple)
    if several and not value:
        raise wrong(f"expected at least one kind of CPU, got an empty list; there are {', '.join(CPUS)}")
    for index, name in enumerate(value if several else [value]):
        at = (index,) if several else ()
        if not isinstance(name, str):
            raise wrong(f"expected a kind of CPU, got {shown(name)}; there are {', '.join(CPUS)}", *at)
        if name not in CPUS:
            raise wrong(f"no kind of CPU named '{name}'{near(name, CPUS) or ';'} there are {', '.join(CPUS)}", *at)
        if several and name in value[:index]:
            raise wrong(f"'{name}' stands there twice", *at)
    return tuple(cpu for cpu in CPUS if cpu == value or (several and cpu in value))


_ONE = {"enum": list(CPUS)}
Target = Annotated[
    tuple[str, ...],
    BeforeValidator(_read_target),
    WithJsonSchema({"anyOf": [_ONE, {"type": "array", "items": _ONE, "minItems": 1, "uniqueItems": True}]}),
]
