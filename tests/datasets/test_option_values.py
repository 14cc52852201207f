"""Rules of datasets/option_values.py: which values an option takes, and as what."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from qbench.datasets import option_values as values

TAKEN: list[tuple[Any, Any, Any]] = [
    (values.Count, 1, 1),
    (values.Count, None, None),
    (values.Classes, 2, 2),
    (values.Pad, 0, 0),
    (values.Seed, None, 0),
    (values.Seed, 7, 7),
    (values.Share, 0.5, 0.5),
    (values.Channels, 3, 3),
    (values.Channels, 1, 1),
    (values.Whether, True, True),
    (values.Scale, "1/255", 1 / 255),
    (values.Scale, 2, 2.0),
    (values.Scale, -0.5, -0.5),
    (values.Numbers, [0, "1/2", -1.5], (0.0, 0.5, -1.5)),
    (values.Numbers, 3, (3.0,)),
    (values.Above0, (0.1, 1), (0.1, 1.0)),
    (values.Size, 8, (8, 8)),
    (values.Size, [8, 1], (8, 1)),
    (values.Size, None, None),
    (values.TokenKinds, ["mask", "ids"], ("mask", "ids")),
    (values.TokenKinds, "ids", ("ids",)),
    (values.Text, "a", "a"),
    (values.TwoColumns, ["a", "b"], ("a", "b")),
    (values.TwoColumns, ("a", "b"), ("a", "b")),
    (values.File, None, None),
    (values.File, "x.csv", "x.csv"),
    (values.File, Path("x.csv"), Path("x.csv")),
    (values.Character, ";", ";"),
    (values.NamedClasses, 2, 2),
    (values.NamedClasses, ["a", 3], ("a", "3")),
    (values.NamedClasses, None, None),
    (values.FolderClasses, 1, 1),
    (values.FolderClasses, ["a"], ("a",)),
    (values.FolderClasses, "classes.txt", "classes.txt"),
    (values.FolderClasses, None, None),
    (values.Arguments, {"a": 1}, {"a": 1}),
    (values.Layout, "nhwc", "nhwc"),
]
WHOLE = "expected a whole number of at least {}, got {!r}"
REFUSED: list[tuple[Any, Any, str]] = [
    *((values.Count, value, WHOLE.format(1, value)) for value in (0, True, 1.0, "1")),
    (values.Classes, 1, WHOLE.format(2, 1)),
    (values.Pad, -1, WHOLE.format(0, -1)),
    (values.Seed, -1, WHOLE.format(0, -1)),
    *((values.Share, value, f"expected a number between 0 and 1, got {value!r}") for value in (0, 1, True, "0.5", -1)),
    (values.Channels, 2, "expected one of 3, 1, got 2"),
    *((values.Scale, value, f"expected a number such as 0.5 or 1/255, got {value!r}") for value in ("1/0", "x", [])),
    *((values.Scale, value, f"expected a finite number, got {value!r}") for value in (math.inf, math.nan, True)),
    (values.Numbers, [], "expected a number, or one for each channel, got []"),
    (values.Above0, [1, 0], "must be above 0, got [1, 0]"),
    (values.Size, [8], "expected a whole number or [height, width], got [8]"),
    (values.Size, [8, 8, 8], "expected a whole number or [height, width], got [8, 8, 8]"),
    (values.Size, [8, None], "expected a whole number or [height, width], got [8, None]"),
    (values.Size, [None, 8], "expected a whole number or [height, width], got [None, 8]"),
    (values.Size, 0, WHOLE.format(1, 0)),
    *((values.TokenKinds, value, f"expected a list of ids, mask, types, each once, got {value!r}")
      for value in ([], ["ids", "ids"], ["ids", "x"], "x")),
    *((values.Text, value, f"expected text, got {value!r}") for value in ("", 3, None)),
    *((values.TwoColumns, value, f"expected the names of two columns, got {value!r}")
      for value in (["a"], ["a", "a"], ["a", ""], ["a", 1], "ab", ["a", "b", "c"])),
    *((values.File, value, f"expected a path, got {value!r}") for value in ("", 3)),
    *((values.Character, value, f"expected one character, got {value!r}") for value in ("", "ab", 1)),
    *((values.NamedClasses, value, f"expected a number, or a list of different names, got {value!r}")
      for value in (["a"], ["1", 1], [])),
    (values.NamedClasses, 1, WHOLE.format(2, 1)),
    (values.FolderClasses, 0, WHOLE.format(1, 0)),
    *((values.FolderClasses, value, "expected a number, a list of folder names") for value in ([], ["a", 1], {})),
    *((values.Arguments, value, f"expected a mapping of names to values, got {value!r}") for value in ([], {1: 2})),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_what_an_option_takes(kind: Any, value: Any, expected: Any) -> None:
    """As what it is kept, type and all."""
    read = TypeAdapter(kind).validate_python(value)
    assert (read, type(read)) == (expected, type(expected))


@pytest.mark.parametrize(("kind", "value", "message"), REFUSED)
def test_what_an_option_refuses(kind: Any, value: Any, message: str) -> None:
    """With what it expects, and what it got."""
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(kind).validate_python(value)
    assert message in raised.value.errors()[0]["msg"]
