"""The user's own Python in a training: its loss and its loop, as a recipe names them (``file.py:function``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbench import user_code
from qbench.errors import BuildError
from qbench.quant.recipe import Recipe

KINDS = ("loss", "train")


def is_python(text: str | None) -> bool:
    """Whether a recipe's loss is a function of the user's; a named one has no colon."""
    return text is not None and ":" in text


def digests(recipe: Recipe, base: Path | None) -> dict[str, str]:
    """``loss`` and ``train`` -> the sha256 of the user's code that they name, as its text stands; empty without any."""
    named = {kind: getattr(recipe, kind) for kind in KINDS}
    return {
        kind: user_code.digest(file, user_code.read_sources(file))
        for kind, text in named.items()
        if is_python(text)
        for file in [_file(text, base)]
    }


def load(text: str, base: Path | None) -> tuple[Callable[..., Any], Path]:
    """The user's function and its file; raises ``BuildError`` where there is none."""
    file, name = _file(text, base), text.rpartition(":")[2]
    function = user_code.attribute(file, name, error=BuildError)
    if not callable(function):
        raise BuildError(f"{file}: '{name}' is {type(function).__name__}, not a function")
    return function, file


def _file(text: str, base: Path | None) -> Path:
    return user_code.parse(text, base=base or Path(), error=BuildError)[0]
