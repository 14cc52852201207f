"""The values of a suite: names, shares, counts; each says in plain words what is wrong with it.

A value that does not fit raises through ``wrong``; ``words`` turns everything else that pydantic finds
into the same kind of sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from qbench import registry

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]*")
# A case id becomes a file name, and 255 bytes is the longest that common file systems take.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SECONDS_IN = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
# fmt: off
BYTES_IN = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}
# fmt: on
AMOUNT = re.compile(r"\s*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([A-Za-zµ]+)\s*")
PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\s*")


class Section(BaseModel):
    """What every part of a suite shares: it cannot change, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Names:
    """The registry's names by kind, asked once per parsed suite (each answer reads every installed package)."""

    def __init__(self, *, stored: bool = False) -> None:
        self.stored = stored  # whether this is the text of a run, which an earlier qbench may have taken
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, kind: str) -> tuple[str, ...]:
        """The sorted names of a kind."""
        if kind not in self._known:
            self._known[kind] = registry.names(kind)
        return self._known[kind]


def known(info: ValidationInfo) -> Names:
    """The names that validation was started with, or fresh ones where a model is made by hand."""
    return info.context if isinstance(info.context, Names) else Names()


def wrong(what: str, *at: str | int) -> PydanticCustomError:
    """The error to raise: ``what`` in plain words, ``at`` the place below the value that is being checked."""
    return PydanticCustomError("qbench", "{what}", {"what": what, "at": at})


near = registry.suggest


def near_case(name: str, options: Iterable[str]) -> str:
    """``; did you mean 'MB'?`` where an option differs in its capitals alone, else nothing."""
    match = next((option for option in options if option.lower() == name.lower()), None)
    return f"; did you mean '{match}'?" if match else ""


def shown(value: Any) -> str:
    """The value as a message shows it: short, and in YAML's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…{text[-1]}"


def _registered(kind: str, name: Any, info: ValidationInfo) -> str:
    if not isinstance(name, str):
        raise wrong(f"expected the name of a {kind}, got {shown(name)}")
    options = known(info).of(kind)
    if name not in options and registry.find_in_family(kind, name) is None:
        raise wrong(registry.unknown(kind, name, (*options, *registry.FAMILIES.get(kind, {}))))
    return name


def _share(value: Any, *, zero: bool, above_one: bool) -> float:
    number = value
    if isinstance(value, str) and (match := PERCENT.fullmatch(value)):
        number = float(match[1]) / 100
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise wrong(f"expected a share such as 2% or 0.02, got {shown(value)}")
    if number < 0 or (number == 0 and not zero):
        raise wrong(f"expected a share {'of at least' if zero else 'above'} 0, got {shown(value)}")
    if number >= 1 and not above_one:
        hint = "" if isinstance(value, str) else f"; did you mean {number:g}%?"
        raise wrong(f"expected a share below 100% (1.0), got {shown(value)}{hint}")
    return float(number)


def _seconds(value: Any, info: ValidationInfo) -> float:
    """Seconds of ``5 ms``."""
    return _amount(value, SECONDS_IN, info, "a time", "ms")


def _bytes(value: Any, info: ValidationInfo) -> int:
    """Bytes of ``200 MB``."""
    return math.ceil(_amount(value, BYTES_IN, info, "an amount", "MB"))


def _amount(value: Any, units: Mapping[str, float], info: ValidationInfo, what: str, usual: str) -> float:
    """In the base unit. A number without a unit, which a suite of an earlier run may hold, is in the base unit there
    and a question elsewhere: 5 may be meant as 5 ms."""
    example, named = {"ms": "5 ms", "MB": "200 MB"}[usual], f"units: {', '.join(units)}"
    number, unit = value, next(iter(units))
    if isinstance(value, str) and (match := AMOUNT.fullmatch(value)):
        number, unit = float(match[1]), match[2]
        if unit not in units:
            close = near_case(unit, units) or near(unit, units)
            raise wrong(f"expected {what} such as {example}, got {shown(value)}; no unit '{unit}'{close}; {named}")
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise wrong(f"expected {what} such as {example}, got {shown(value)}; {named}")
    if number <= 0:
        raise wrong(f"expected {what} above 0, such as {example}, got {shown(value)}")
    if number is value and not known(info).stored:
        guess = usual if 1 <= number < 1000 else unit
        raise wrong(f"expected {what} with its unit, got {shown(value)}; did you mean '{value} {guess}'?")
    return float(number) * units[unit]


def _matching(pattern: re.Pattern[str], rule: str, value: str) -> str:
    if not pattern.fullmatch(value):
        raise wrong(f"{rule}, got {shown(value)}")
    return value


def _free(value: str) -> str:
    if value == "baselines":
        raise wrong("the name is taken: reports/baselines/ holds the baselines of every suite; take another")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise wrong("expected text, got nothing between the quotes")
    return value


def _python(value: str) -> str:
    file, _, attribute = value.rpartition(":")
    if not file or not attribute.isidentifier():
        raise wrong(f"expected file.py:function, got {shown(value)}; write the function's name behind a colon")
    return value


def _name_schema(kind: str) -> WithJsonSchema:
    """Editors complete the built-ins; a name that a package registers is as good."""
    return WithJsonSchema({"anyOf": [{"enum": sorted(registry.BUILT_IN[kind])}, {"type": "string"}]})


SHARE_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\s*[0-9.]+\s*%\s*$"}]}
)

Yes = StrictBool
Text = Annotated[StrictStr, AfterValidator(_text)]
Whole = Annotated[StrictInt, Field(ge=0, le=2**53)]
Count = Annotated[StrictInt, Field(ge=1, le=2**53)]
Seed = Annotated[StrictInt, Field(ge=0, lt=2**32)]
Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
Positive = Annotated[StrictFloat, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, PlainValidator(partial(_share, zero=False, above_one=False)), SHARE_SCHEMA]
ShareOrZero = Annotated[float, PlainValidator(partial(_share, zero=True, above_one=False)), SHARE_SCHEMA]
ShareToOne = Annotated[StrictFloat, Field(ge=0, le=1, allow_inf_nan=False)]
Ratio = Annotated[float, PlainValidator(partial(_share, zero=False, above_one=True)), SHARE_SCHEMA]
AMOUNT_SCHEMA = WithJsonSchema({"type": "string", "pattern": r"^\s*[0-9.]+\s*[A-Za-zµ]+\s*$"})
Seconds = Annotated[float, PlainValidator(_seconds), AMOUNT_SCHEMA]
Bytes = Annotated[int, PlainValidator(_bytes), AMOUNT_SCHEMA]
SuiteName = Annotated[
    StrictStr,
    Field(max_length=100),
    AfterValidator(partial(_matching, SLUG, "expected a short name of a-z, 0-9, '.', '_' and '-'")),
    AfterValidator(_free),
    WithJsonSchema({"type": "string", "pattern": f"^{SLUG.pattern}$", "maxLength": 100}),
]
ModelName = Annotated[
    StrictStr,
    AfterValidator(partial(_matching, NAME, "expected a name of letters, digits, '.', '_' and '-'")),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$", "examples": sorted(registry.BUILT_IN["model"])}),
]
PythonTarget = Annotated[StrictStr, AfterValidator(_python)]
BackendName = Annotated[str, PlainValidator(partial(_registered, "backend")), _name_schema("backend")]
HostName = Annotated[str, PlainValidator(partial(_registered, "host")), _name_schema("host")]
CalibratorName = Annotated[str, PlainValidator(partial(_registered, "calibrator")), _name_schema("calibrator")]
