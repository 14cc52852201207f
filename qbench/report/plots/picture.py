"""A picture before it is drawn, and what its caption and its table are made of; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench import formatting
from qbench.decide import names
from qbench.progress.table import TextTable
from qbench.report.plots.cases import FrameCase, list_settings


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One picture: ``key`` names it within a page (``pareto`` is the trade-off), ``draw()`` gives the matplotlib
    figure, ``caption`` says what it shows in a sentence or two, ``data`` holds what is drawn as text, ``more`` counts
    the cases that only the table of cases has, and ``unnamed`` the points that have no name beside them.
    ``draw_narrow()`` gives it for a phone, where ``draw()`` is as wide as a page."""

    key: str
    heading: str
    draw: Callable[[], Any]
    caption: str
    data: TextTable
    more: int = 0
    unnamed: int = 0
    draw_narrow: Callable[[], Any] | None = None
    unnamed_narrow: int = 0


def tabulate(cases: Sequence[FrameCase], columns: Mapping[str, Callable[[FrameCase], str]]) -> TextTable:
    """The variant of each case, its setting where there are several, and what is drawn of it."""
    several = len(list_settings(cases)) > 1
    rows = [
        (case.variant, *([case.setting] if several else []), *(write(case) for write in columns.values()))
        for case in cases
    ]
    return TextTable(columns=("variant", *(["setting"] if several else []), *columns), rows=tuple(rows))


def name_setting(case: FrameCase, cases: Sequence[FrameCase]) -> str:
    """`` (digits-cnn, 1 thread, batch 1)``, where there are several settings."""
    return f" ({case.setting})" if len(list_settings(cases)) > 1 else ""


def name_case(case: FrameCase) -> str:
    """``static int8 on ONNX Runtime``."""
    return names.name_variant(case.mode, str(case["case.recipe"] or "default"), case.backend)


def count_of(count: int, total: int, name: str) -> str:
    """``3 of 15 int8 variants``."""
    if total == 1:
        return f"The one {name}" if count else f"Not the one {name}"
    return f"{count or 'None'} of {total} {name}s"


def be(count: int) -> str:
    """``is`` or ``are``."""
    return "is" if count <= 1 else "are"


def plural(count: int, name: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def upper(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def minus(text: str) -> str:
    """The text with true minus signs, which are as wide as a plus."""
    return text.replace("-", "\N{MINUS SIGN}")


def span(values: Sequence[float]) -> str:
    """``200 to 1,000``."""
    if not values:
        return formatting.DASH
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def span_column(cases: Sequence[FrameCase], column: str) -> str:
    """From the least to the most that a column has."""
    return span([value for case in cases if (value := case.number(column)) is not None])


def count_examples(cases: Sequence[FrameCase]) -> str:
    """``Measured on n = 1,000 examples``."""
    return f"Measured on n = {span_column(cases, 'accuracy.n')} examples"
