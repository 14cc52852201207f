"""The values of data sets' options: each says in plain words what is wrong with it. No numpy, since a plan asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from qbench.datasets.npz_keys import LAYOUTS

TOKENS = ("ids", "mask", "types")
ORDERS = ("rgb", "bgr")
FITS = ("letterbox", "stretch")
CORPORA = ("variant", "fp32")
LINE_FITS = ("pad", "stretch")


def wrong(what: str, *at: str) -> PydanticCustomError:
    """The error to raise: ``what`` in plain words, ``at`` the option that it is about where several are checked."""
    return PydanticCustomError("qbench", "{what}", {"what": what, "at": at})


def _read_whole(value: Any, *, low: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise wrong(f"expected a whole number of at least {low}, got {value!r}")
    return value


def _read_seed(value: Any) -> int:
    return _read_whole(value, low=0) or 0


def _read_share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise wrong(f"expected a number between 0 and 1, got {value!r}")
    return float(value)


def _read_choice(value: Any, *, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise wrong(f"expected one of {', '.join(map(str, allowed))}, got {value!r}")
    return value


def _read_number(value: Any) -> float:
    try:
        number = float(Fraction(value)) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise wrong(f"expected a number such as 0.5 or 1/255, got {value!r}") from error
    if isinstance(value, bool) or not math.isfinite(number):
        raise wrong(f"expected a finite number, got {value!r}")
    return number


def _read_numbers(value: Any, *, positive: bool) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise wrong(f"expected a number, or one for each channel, got {value!r}")
    numbers = tuple(_read_number(entry) for entry in values)
    if positive and min(numbers) <= 0:
        raise wrong(f"must be above 0, got {value!r}")
    return numbers


def _read_size(value: Any) -> tuple[int, int] | None:
    sides = [_read_whole(side, low=1) for side in (value if isinstance(value, list | tuple) else [value, value])]
    if value is None:
        return None
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        raise wrong(f"expected a whole number or [height, width], got {value!r}")
    return sides[0], sides[1]


def _read_tokens(value: Any) -> tuple[str, ...]:
    kinds = list(value) if isinstance(value, list | tuple) else [value]
    if not kinds or any(kind not in TOKENS for kind in kinds) or len(set(kinds)) < len(kinds):
        raise wrong(f"expected a list of {', '.join(TOKENS)}, each once, got {value!r}")
    return tuple(kinds)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(f"expected text, got {value!r}")
    return value


def _read_two(value: Any) -> tuple[str, str]:
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if len(names) != 2 or not all(isinstance(name, str) and name for name in names) or names[0] == names[1]:
        raise wrong(f"expected the names of two columns, got {value!r}")
    return names[0], names[1]


def _read_path(value: Any) -> str | Path | None:
    if value is not None and (not isinstance(value, str | Path) or not str(value)):
        raise wrong(f"expected a path, got {value!r}")
    return value


def _read_character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise wrong(f"expected one character, got {value!r}")
    return value


def _read_names(value: Any) -> int | tuple[str, ...] | None:
    """How many classes, or their names."""
    if not isinstance(value, list | tuple):
        return _read_whole(value, low=2)
    names = tuple(str(name) for name in value)
    if len(names) < 2 or len(set(names)) < len(names):
        raise wrong(f"expected a number, or a list of different names, got {value!r}")
    return names


def _read_folders(value: Any) -> int | str | tuple[str, ...] | None:
    """How many classes, a file with the names of their folders, or these names."""
    if isinstance(value, int):
        return _read_whole(value, low=1)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(name, str) for name in value):
        raise wrong(
            "expected a number, a list of folder names (in quotes where they are numbers) or a file with one a line, "
            f"got {value!r}"
        )
    return tuple(value)


def _read_arguments(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise wrong(f"expected a mapping of names to values, got {value!r}")
    return value


Count = Annotated[int | None, PlainValidator(partial(_read_whole, low=1))]
Classes = Annotated[int | None, PlainValidator(partial(_read_whole, low=2))]
Channels = Annotated[int, PlainValidator(partial(_read_choice, allowed=(3, 1)))]
Layout = Annotated[Literal["nchw", "nhwc"], PlainValidator(partial(_read_choice, allowed=("nchw", "nhwc")))]
Order = Annotated[str, PlainValidator(partial(_read_choice, allowed=ORDERS))]
Fit = Annotated[str, PlainValidator(partial(_read_choice, allowed=FITS))]
Corpus = Annotated[str, PlainValidator(partial(_read_choice, allowed=CORPORA))]
LineFit = Annotated[str, PlainValidator(partial(_read_choice, allowed=LINE_FITS))]
Stored = Annotated[str, PlainValidator(partial(_read_choice, allowed=LAYOUTS))]
Whether = Annotated[bool, PlainValidator(partial(_read_choice, allowed=(True, False)))]
Numbers = Annotated[tuple[float, ...], PlainValidator(partial(_read_numbers, positive=False))]
Above0 = Annotated[tuple[float, ...], PlainValidator(partial(_read_numbers, positive=True))]
Text = Annotated[str, PlainValidator(_read_text)]
TwoColumns = Annotated[tuple[str, str], PlainValidator(_read_two)]
Size = Annotated[tuple[int, int] | None, PlainValidator(_read_size)]
Seed = Annotated[int, PlainValidator(_read_seed)]
Share = Annotated[float, PlainValidator(_read_share)]
Scale = Annotated[float | None, PlainValidator(_read_number)]
File = Annotated[str | Path | None, PlainValidator(_read_path)]
TokenKinds = Annotated[tuple[str, ...], PlainValidator(_read_tokens)]
Pad = Annotated[int | None, PlainValidator(partial(_read_whole, low=0))]
FolderClasses = Annotated[int | str | tuple[str, ...] | None, PlainValidator(_read_folders)]
NamedClasses = Annotated[int | tuple[str, ...] | None, PlainValidator(_read_names)]
Character = Annotated[str, PlainValidator(_read_character)]
Arguments = Annotated[Mapping[str, Any], PlainValidator(_read_arguments)]
