"""The options behind a data set's name in a suite, checked one by one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from qbench.datasets.base import Preprocessing
from qbench.errors import DataError
from qbench.files import regular_file

PREPROCESSING = ("scale", "mean", "std")


def require_known(loader: str, options: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raises ``DataError`` for an option that the loader does not have, with a near match."""
    for key in options:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ";"
            has = f"options: {', '.join(names)}" if names else f"{loader} takes no options"
            raise DataError(f"{loader}: no option '{key}'{hint} {has}")


def read_path(loader: str, value: Any, base: Path) -> Path:
    """The absolute path of a value; a relative one starts at the suite's folder. It must exist."""
    if not isinstance(value, str | Path) or not str(value):
        raise DataError(f"{loader}: expected a path, got {value!r}")
    file = regular_file.resolve_path(value, base)
    if (why := regular_file.explain_unusable(file)) is not None:
        raise DataError(f"{loader}: {file}: {why}; a relative path starts at the suite's folder")
    return file


def read_whole(loader: str, options: Mapping[str, Any], key: str, default: int | None, *, low: int = 1) -> int | None:
    """A whole number of at least ``low``."""
    value = options.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise DataError(f"{loader}: {key}: expected a whole number of at least {low}, got {value!r}")
    return value


def read_share(loader: str, options: Mapping[str, Any], key: str, default: float) -> float:
    """A number between 0 and 1, both excluded."""
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise DataError(f"{loader}: {key}: expected a number between 0 and 1, got {value!r}")
    return float(value)


def read_choice(loader: str, options: Mapping[str, Any], key: str, allowed: tuple[Any, ...], default: Any) -> Any:
    """One of the allowed values."""
    value = options.get(key, default)
    if value not in allowed:
        raise DataError(f"{loader}: {key}: expected one of {', '.join(map(str, allowed))}, got {value!r}")
    return value


def read_preprocessing(
    loader: str,
    options: Mapping[str, Any],
    *,
    scale: float = 1.0,
    channel_axis: int = 1,
    reverse_channels: bool = False,
) -> Preprocessing:
    """``scale``, ``mean`` and ``std`` (after scaling) of the options; a scale may be written ``1/255``."""
    mean = _numbers(loader, options, "mean", 0.0)
    std = _numbers(loader, options, "std", 1.0)
    if min(std) <= 0:
        raise DataError(f"{loader}: std: must be above 0, got {options['std']!r}")
    if 1 < len(mean) != len(std) > 1:
        raise DataError(f"{loader}: mean has {len(mean)} channels, std has {len(std)}")
    return Preprocessing(
        scale=_number(loader, "scale", options.get("scale", scale)),
        mean=mean,
        std=std,
        channel_axis=channel_axis,
        reverse_channels=reverse_channels,
    )


def _numbers(loader: str, options: Mapping[str, Any], key: str, default: float) -> tuple[float, ...]:
    value = options.get(key, default)
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise DataError(f"{loader}: {key}: expected a number, or one for each channel, got {value!r}")
    return tuple(_number(loader, key, entry) for entry in values)


def _number(loader: str, key: str, value: Any) -> float:
    try:
        number = float(Fraction(value)) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise DataError(f"{loader}: {key}: expected a number such as 0.5 or 1/255, got {value!r}") from error
    if isinstance(value, bool) or not math.isfinite(number):
        raise DataError(f"{loader}: {key}: expected a finite number, got {value!r}")
    return number
