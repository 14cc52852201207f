"""Numbers as a reader sees them: the digits shown follow the interval's width, and null is a dash, never 0."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from qbench.foreign_text import CONTROL
from qbench.stats.interval_type import Interval

_FORMULA = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"  # the last four are the wide forms of the first four
DASH = "—"
_LOPSIDED = 0.25  # a limit that is so much nearer than half the width tells the digits
_MOST_PLACES, _MOST_SIGNIFICANT = 6, 9  # what tells a value from its limit
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def decimals(interval: Interval, scale: float = 1.0) -> int:
    """Digits after the point that the interval supports, between 0 and 6.

    Down to the first digit of its half width, or the second where the first is a 1 (else 1.4 would be shown as 1); of
    the distance to the nearer limit where that is far smaller. Without limits three significant digits are shown.
    """
    if interval.low is None or interval.high is None or interval.high <= interval.low:
        return _of_size(interval.value * scale, significant=3)
    half = (interval.high - interval.low) / 2 * abs(scale)
    near = min(interval.high - interval.value, interval.value - interval.low) * abs(scale)
    half = near if 0 < near < half * _LOPSIDED else half
    leading = half / 10 ** math.floor(math.log10(half))
    return _of_size(half, significant=2 if leading < 2 else 1)


def _of_size(value: float, *, significant: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 1
    return min(6, max(0, significant - 1 - math.floor(math.log10(abs(value)))))


def _rounded(value: float, significant: int) -> str:
    """The value with so many digits: 99.97 with three is 100, not 100.0."""
    return fixed(value, _of_size(float(f"{value:.{significant - 1}e}"), significant=significant))


def fixed(value: float, places: int, *, signed: bool = False) -> str:
    """The value with that many decimals, without a negative zero; ``signed`` puts a plus before a gain."""
    text = f"{value:+.{places}f}" if signed else f"{value:.{places}f}"
    return text.replace("-", "").replace("+", "") if float(text) == 0 else text


def number(interval: Interval | None, *, scale: float = 1.0, signed: bool = False, least: int = 0) -> str:
    """The estimate alone, with the digits that its interval supports, at least ``least`` after the point."""
    if interval is None:
        return DASH
    return fixed(interval.value * scale, max(least, decimals(interval, scale)), signed=signed)


def limits(interval: Interval | None, *, scale: float = 1.0, signed: bool = False, least: int = 0) -> str:
    """``[2.46, 2.57]`` with the digits of ``number``; empty where there are no limits."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    places = max(least, decimals(interval, scale))
    low, high = (fixed(limit * scale, places, signed=signed) for limit in (interval.low, interval.high))
    return f"[{low}, {high}]"


def with_limits(interval: Interval | None, *, scale: float = 1.0, signed: bool = False, least: int = 0) -> str:
    """``2.51 [2.46, 2.57]``."""
    value = number(interval, scale=scale, signed=signed, least=least)
    return f"{value} {limits(interval, scale=scale, signed=signed, least=least)}".strip()


def places_beside(values: Iterable[float | None], bound: float, places: int) -> int:
    """At least ``places`` decimals, and up to 6 so that no value reads like a bound that it does not equal."""
    known = [value for value in values if value is not None and value != bound]
    while places < _MOST_PLACES and any(fixed(value, places) == fixed(bound, places) for value in known):
        places += 1
    return places


def beside(value: float, bound: float, show: Callable[[float, int], str]) -> tuple[str, str]:
    """A value and its bound by ``show(amount, significant digits)``, with as many digits as tell them apart."""
    significant = 3
    while significant < _MOST_SIGNIFICANT and value != bound and show(value, significant) == show(bound, significant):
        significant += 1
    return show(value, significant), show(bound, significant)


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which the value is 1 or more: its size in seconds and its name."""
    return next((unit for unit in _TIME_UNITS if abs(seconds) >= unit[0]), _TIME_UNITS[-1])


def byte_unit(count: float) -> tuple[float, str]:
    """The decimal unit in which the amount is 1 or more: its size in bytes and its name."""
    return next((unit for unit in _BYTE_UNITS if count >= unit[0]), (1.0, "B"))


def duration(seconds: float | None, significant: int = 3) -> str:
    """Three significant digits (or so many) with a unit; minutes from 120 seconds on."""
    if seconds is None:
        return DASH
    if abs(seconds) >= 120:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    if seconds == 0:
        return "0 s"
    size, unit = time_unit(seconds)
    return f"{_rounded(seconds / size, significant)} {unit}"


def size(count: float | None, significant: int = 3) -> str:
    """Three significant digits (or so many) in decimal units; bytes below 1,000 are exact."""
    if count is None:
        return DASH
    for unit, name in _BYTE_UNITS:
        if count >= unit:
            return f"{_rounded(count / unit, significant)} {name}"
    return f"{count:.0f} B"


def share(value: float | None, places: int = 1) -> str:
    """A share in percent; short of all it never rounds up to 100, above none it never rounds down to 0."""
    if value is None:
        return DASH
    step = 10.0**-places
    percent = value * 100
    if 0 < value < 1:
        percent = min(max(percent, step), 100 - step)
    return f"{fixed(percent, places if 0 < value < 1 else 0)} %"


def clean(text: str) -> str:
    """The text with control characters, which neither XML nor a terminal takes, replaced; also those that turn the
    direction of writing, with which a name can look like another."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """The cleaned text with every run of white space as one space."""
    return " ".join(clean(text).split())


def shorten(text: str, letters: int) -> str:
    """The text on one line, its middle left out where it is longer: both ends tell names apart."""
    line = one_line(text)
    if len(line) <= letters:
        return line
    tail = letters // 2
    return f"{line[: letters - tail - 1]}…{line[-tail:]}"


def markdown(text: str) -> str:
    """The text so that no character of it is Markdown, HTML, mathematics, a mention, a link or the end of a table's
    cell, wherever it stands: as GitHub renders it, it reads as it was. Plain brackets hold limits and stay readable."""
    line = one_line(text)
    for pattern, inert in _MARKDOWN:
        line = pattern.sub(inert, line)
    return line


# A part of its own for what means something beside its neighbours; `$` as GitHub's documentation has it.
_MARKDOWN = tuple(
    (re.compile(pattern), inert)
    for pattern, inert in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        (r"([\\`*_|~])", r"\\\1"),
        (r"\](?=[(\[:])", r"\]"),
        (r"\[(?![-+\d])", r"\["),
        ("#", "<span>&#35;</span>"),
        (r"\$", "<span>&#36;</span>"),
        ("@", "<span>&#64;</span>"),
        ("://", ":<span>//</span>"),
        (r"(?i)\b(www)\.", r"\1<span>.</span>"),
        (r"(?i)\b(GH)-(?=\d)", r"\1<span>-</span>"),
        (r":(?=[\w+\\-]+:)", "<span>:</span>"),
        (r"^(?=[-+=](?:\s|$)|[-=]{2,}$)", r"\\"),
        (r"^(\d+)(?=[.)](?:\s|$))", r"\1\\"),
    )
)


def code(text: str) -> str:
    """The text for a Markdown code span inside a table, where only backticks and bars mean something."""
    return one_line(text).replace("`", "'").replace("|", "\\|")


def cell(text: str) -> str:
    """The cleaned text for a CSV cell, with an apostrophe before what a spreadsheet would run as a formula: what starts
    with ``= + - @`` or their wide forms, a tab or a carriage return. A number stays one."""
    start = text.lstrip(" \n")[:1]
    line = clean(text)
    return f"'{line}" if start and start in _FORMULA and not _is_number(text) else line


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
