"""How much of what a core can do each case does: operations a second beside the measured peaks of fp32 and int8."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.modes import HALVES, precision_of
from qbench.report.plots import rows, scale
from qbench.report.plots.cases import MOST, FrameCase, choose, measured_cases, nothing_to_draw
from qbench.report.plots.picture import Drawing, name_case, plural, tabulate, upper
from qbench.report.plots.rows import Flag, PictureRow

if TYPE_CHECKING:
    import pandas as pd


def roofline(frame: pd.DataFrame, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases: of the peak that a core was measured to have, in the
    format that a case multiplies in, the share that each case reaches."""
    cases = measured_cases(frame, most)
    chosen, _ = choose_rated(cases, most)
    if not chosen:
        raise nothing_to_draw("roofline", "no case of the frame has its share of the peak measured")
    shares = {id(case): 100 * (case.number("roofline.peak_fraction") or 0.0) for case in chosen}
    across = scale.from_zero([100.0, *shares.values()])

    def draw(axes: Any, y: float, row: PictureRow) -> None:
        axes.barh([y - 1], [shares[id(by_row[row.key])]], height=8, **rows.bar_style(row))

    groups, by_row = rows.group_rows(chosen, show_share)
    flags = [Flag(at=100.0, text=show_peaks(cases), role="ink", dashed=True)]
    return rows.draw_rows(groups, across, "share of the peak, %", draw, flags)


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase]) -> Iterator[Drawing]:
    """The picture, where the share of a peak is known of a case."""
    chosen, more = choose_rated(cases)
    if chosen:
        yield Drawing(
            key="roofline",
            heading="Share of what the core can do",
            draw=partial(roofline, frame),
            caption=_conclude(cases),
            data=tabulate(
                chosen,
                {
                    "operations a second and core": lambda case: show_rate(rate_of(case) or 0.0),
                    "share of the peak": show_share,
                },
            ),
            more=more,
        )


def _conclude(cases: Sequence[FrameCase]) -> str:
    """How much of the int8 peak the best int8 case reaches."""
    by_name = find_peaks(cases)
    rated = [case for case in cases if case.number("roofline.peak_fraction")]
    clauses = []
    for name in by_name:
        of_peak = [case for case in rated if precision_of(case.mode) == name]
        best = max(of_peak, key=lambda case: case.number("roofline.peak_fraction") or 0.0)
        share = formatting.share(best.number("roofline.peak_fraction"), 0)
        clauses.append(f"of the {name} peak, {name_case(best)} reaches most: {share}")
    doubt = any(case["roofline.peak_shared"] for case in rated)
    shared = " Something else used the core while the peak was measured: the shares are too high." if doubt else ""
    count = plural(len(rated), "case")
    return (
        f"{upper('; '.join(clauses))}. Measured on one core of this machine: {show_peaks(cases)}; n = {count}.{shared}"
    )


def choose_rated(cases: Sequence[FrameCase], most: int = MOST) -> tuple[list[FrameCase], int]:
    """The cases whose share of a peak is known, the fastest first, and how many are not shown."""
    return choose([case for case in cases if case.number("roofline.peak_fraction")], most)


def rate_of(case: FrameCase) -> float | None:
    """Operations a second and core; a multiply-accumulate is two."""
    rate = case.number("roofline.operations_per_second")
    return None if rate is None else rate / (case.number("case.threads") or 1)


def find_peaks(cases: Sequence[FrameCase]) -> dict[str, float]:
    """The measured peak of a core for ``fp32``, ``int8`` and 16-bit floats, operations a second; the median of what
    cases tell."""
    peaks: dict[str, float] = {}
    for name in ("fp32", *HALVES, "int8"):
        measured = sorted(
            peak / (case.number("case.threads") or 1)
            for case in cases
            if precision_of(case.mode) == name and (peak := case.number("roofline.peak_per_second"))
        )
        if measured and math.isfinite(measured[len(measured) // 2]):
            peaks[name] = measured[len(measured) // 2]
    return peaks


def show_peaks(cases: Sequence[FrameCase]) -> str:
    """``fp32 peak 115 G/s and int8 peak 428 G/s``."""
    return " and ".join(f"{name} peak {show_rate(peak)}" for name, peak in find_peaks(cases).items())


def show_rate(rate: float) -> str:
    """``428 G/s``."""
    return f"{formatting.fixed(rate / 1e9, 0 if rate >= 1e11 else 1)} G/s"


def show_share(case: FrameCase) -> str:
    """``42 % of int8 peak``."""
    name = precision_of(case.mode)
    return f"{formatting.share(case.number('roofline.peak_fraction'), 0)} of {name} peak"
