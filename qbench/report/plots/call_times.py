"""How the time of single calls is distributed, on one absolute axis, with a tick for each process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.progress.table import TextTable
from qbench.report.plots import rows, scale
from qbench.report.plots.canvas import ROLES, color_of
from qbench.report.plots.cases import (
    CALLS,
    MOST,
    FrameCase,
    choose,
    measured_cases,
    nothing_to_draw,
    require_columns,
    require_single_run,
)
from qbench.report.plots.picture import Drawing, name_case, name_setting, tabulate
from qbench.report.plots.rows import PictureRow

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SHOWN = (0.005, 0.98)  # the axis ends where these shares of some case's calls are left out
_BINS = 120
_ALIKE = 0.02  # two medians of one case that are so close are one figure to a reader
Timed = Mapping[str, "tuple[NDArray[Any], NDArray[Any]]"]  # of each case the process and the seconds of its calls


def latency(frame: pd.DataFrame, calls: pd.DataFrame, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases and one of their calls (``qbench.load(run, "calls")``): a hill for the
    calls of each case, and a tick at the median of each process."""
    cases = measured_cases(frame, most)
    require_columns(calls, CALLS, 'qbench.load(run, "calls")')
    require_single_run("latency", frame, calls)
    timed = split_calls(calls)
    chosen, _ = choose_timed(cases, timed, most)
    if not chosen:
        raise nothing_to_draw("latency", "no measured case of the frame has two calls or more")
    ends = [bound for case in chosen for bound in _quantiles(timed[case.key][1], SHOWN)]
    units = formatting.time_unit(min(ends))
    across = scale.logarithmic(ends, (), ends, words=lambda seconds: _in_unit(seconds, units))

    def draw(axes: Any, y: float, row: PictureRow) -> None:
        process, seconds = timed[by_row[row.key].key]
        _draw_hill(axes, y, row, seconds, across)
        medians = process_medians(process, seconds)
        inside = [median for median in medians if not across.side_of(median)]
        axes.vlines(inside, y - 10, y - 5, color=ROLES["ink"], linewidth=1.0, zorder=4)

    def text(case: FrameCase) -> str:
        process, seconds = timed[case.key]
        return f"{formatting.duration(typical(case, seconds))} · {len(set(process.tolist()))} proc."

    groups, by_row = rows.group_rows(chosen, text)
    return rows.draw_rows(groups, across, f"time of a call, {units[1]} (log)", draw)


def list_drawings(
    frame: pd.DataFrame,
    cases: Sequence[FrameCase],
    stored: Collection[str],
    read: Callable[[Sequence[FrameCase]], pd.DataFrame],
) -> Iterator[Drawing]:
    """The picture, where cases have calls: ``stored`` are the ids of these, ``read`` gives the calls of some."""
    likely, left_out = choose([case for case in cases if case.key in stored])
    calls = read(likely)
    timed = split_calls(calls)
    chosen, more = choose_timed(likely, timed)
    if chosen:
        yield Drawing(
            key="latency",
            heading="Time of single calls",
            draw=partial(latency, frame, calls),
            caption=_conclude(chosen, timed),
            data=_tabulate(chosen, timed),
            more=more + left_out,
        )


def _conclude(cases: Sequence[FrameCase], timed: Timed) -> str:
    """Which case differs most from one process to the next."""
    spreads = []
    for case in cases:
        medians = process_medians(*timed[case.key])
        if len(medians) > 1:
            spreads.append((max(medians) / min(medians), case))
    total = sum(timed[case.key][1].size for case in cases)
    if spreads:
        spread, case = max(spreads, key=lambda pair: pair[0])
        first = (
            f"From one process to the next the median {_say_which(cases, timed)}differs most for "
            f"{name_case(case)}{name_setting(case, cases)}: by {formatting.fixed((spread - 1) * 100, 0)} %"
        )
    else:
        first = "Each case was measured in one process: how much processes differ is not known"
    rest = "Each tick is the median of a process; a second hill is noise or a slow path"
    return f"{first}. Shown are n = {total:,} calls. {rest}. The slowest 2 % of calls may lie beyond the axis."


def _say_which(cases: Sequence[FrameCase], timed: Timed) -> str:
    """Of which calls, where the figure beside a hill is of undisturbed ones and the medians of all lie elsewhere."""
    import numpy as np

    seconds = [(case, timed[case.key][1]) for case in cases if case["latency.p50_from"] == "undisturbed"]
    disturbed = any(abs(np.median(taken) / typical(case, taken) - 1) > _ALIKE for case, taken in seconds)
    return "of all calls, also those that others on the machine made longer, " if disturbed else ""


def _tabulate(cases: Sequence[FrameCase], timed: Timed) -> TextTable:
    """Percentiles of each case, and the medians of its processes."""
    medians = {case.key: process_medians(*timed[case.key]) for case in cases}

    def show_quantile(case: FrameCase, share: float) -> str:
        return formatting.duration(_quantiles(timed[case.key][1], [share])[0])

    def show_medians(case: FrameCase) -> str:
        return " to ".join(formatting.duration(end(medians[case.key])) for end in (min, max))

    return tabulate(
        cases,
        {
            "calls": lambda case: f"{timed[case.key][1].size:,}",
            "5 % below": partial(show_quantile, share=0.05),
            "median of all": partial(show_quantile, share=0.5),
            "95 % below": partial(show_quantile, share=0.95),
            "processes": lambda case: str(len(medians[case.key])),
            "their medians": show_medians,
        },
    )


def split_calls(calls: pd.DataFrame) -> Timed:
    """Of each case its calls."""
    import numpy as np

    codes, names = (
        calls["case.id"].astype("category").cat.codes.to_numpy(),
        calls["case.id"].astype("category").cat.categories,
    )
    process, seconds = calls["process"].to_numpy(), calls["seconds"].to_numpy(dtype=float)
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
    slices_of: dict[str, list[slice]] = {}
    for start, end in zip(starts, [*starts, len(codes)][1:], strict=True):
        slices_of.setdefault(str(names[codes[start]]), []).append(slice(start, end))
    return {
        name: (np.concatenate([process[p] for p in slices]), np.concatenate([seconds[p] for p in slices]))
        for name, slices in slices_of.items()
    }


def choose_timed(cases: Sequence[FrameCase], timed: Timed, most: int = MOST) -> tuple[list[FrameCase], int]:
    """The cases with calls that are shown, the fastest first, and how many are not."""
    seconds = {case.key: timed[case.key][1] for case in cases if case.key in timed}
    usable = {key for key, times in seconds.items() if times.size > 1 and (times > 0).all()}
    return choose([case for case in cases if case.key in usable], most)


def process_medians(process: NDArray[Any], seconds: NDArray[Any]) -> list[float]:
    """The median call of each process, in the order of the processes."""
    import numpy as np

    return [float(np.median(seconds[process == number])) for number in np.unique(process)]


def typical(case: FrameCase, seconds: NDArray[Any]) -> float:
    """The record's median, which may be that of undisturbed blocks alone; else that of all calls."""
    import numpy as np

    return case.number("latency.p50_seconds") or float(np.median(seconds))


def _quantiles(seconds: NDArray[Any], shares: Sequence[float]) -> list[float]:
    import numpy as np

    return [float(value) for value in np.quantile(seconds, shares)]


def _draw_hill(axes: Any, y: float, row: PictureRow, seconds: NDArray[Any], across: scale.Axis) -> None:
    import numpy as np

    edges = np.geomspace(across.low, across.high, _BINS + 1)
    counts, _ = np.histogram(seconds[(seconds >= across.low) & (seconds <= across.high)], bins=edges)
    base = y - 5
    used = np.flatnonzero(counts)
    if not used.size:
        return
    first, last = used[0], used[-1] + 1
    heights = base + 1 + 11 * counts[first:last] / counts.max()
    axes.stairs(heights, edges[first : last + 1], baseline=base, fill=True, color=color_of(row.backend))


def _in_unit(seconds: float, unit: tuple[float, str]) -> str:
    return f"{seconds / unit[0]:g}"
