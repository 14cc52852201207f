"""How the time of single calls is distributed, on one absolute axis, with a tick for each process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.report.plots import rows, scale
from qbench.report.plots.canvas import ROLES, color_of
from qbench.report.plots.cases import MOST, Case, choose
from qbench.report.plots.frames import CALLS, measured_cases, nothing_to_draw, require_columns, require_single_run
from qbench.report.plots.ratios import group_rows
from qbench.report.plots.rows import Row

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SHOWN = (0.005, 0.98)  # the axis ends where these shares of some case's calls are left out
_BINS = 120


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

    def draw(axes: Any, y: float, row: Row) -> None:
        process, seconds = timed[by_row[row.key].key]
        _draw_hill(axes, y, row, seconds, across)
        medians = process_medians(process, seconds)
        inside = [median for median in medians if not across.side_of(median)]
        axes.vlines(inside, y - 10, y - 5, color=ROLES["ink"], linewidth=1.0, zorder=4)

    def text(case: Case) -> str:
        process, seconds = timed[case.key]
        return f"{formatting.duration(typical(case, seconds))} · {len(set(process.tolist()))} proc."

    groups, by_row = group_rows(chosen, text)
    return rows.draw_rows(groups, across, f"time of a call, {units[1]} (log)", draw)


def split_calls(calls: pd.DataFrame) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Of each case its calls: the process and the seconds of each."""
    import numpy as np

    codes, names = (
        calls["case.id"].astype("category").cat.codes.to_numpy(),
        calls["case.id"].astype("category").cat.categories,
    )
    process, seconds = calls["process"].to_numpy(), calls["seconds"].to_numpy(dtype=float)
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
    parts: dict[str, list[slice]] = {}
    for start, end in zip(starts, [*starts, len(codes)][1:], strict=True):
        parts.setdefault(str(names[codes[start]]), []).append(slice(start, end))
    return {
        name: (np.concatenate([process[p] for p in slices]), np.concatenate([seconds[p] for p in slices]))
        for name, slices in parts.items()
    }


def choose_likely(cases: Sequence[Case], stored: Collection[str], most: int = MOST) -> tuple[list[Case], int]:
    """The cases whose calls are worth reading, by the ids that have any; and how many are not shown."""
    return choose([case for case in cases if case.key in stored], lambda case: case.pace, most)


def choose_timed(
    cases: Sequence[Case], timed: dict[str, tuple[NDArray[Any], NDArray[Any]]], most: int = MOST
) -> tuple[list[Case], int]:
    """The cases with calls that are shown, the fastest first, and how many are not."""
    return choose(
        [
            case
            for case in cases
            if case.key in timed and timed[case.key][1].size > 1 and (timed[case.key][1] > 0).all()
        ],
        lambda case: case.pace,
        most,
    )


def process_medians(process: NDArray[Any], seconds: NDArray[Any]) -> list[float]:
    """The median call of each process, in the order of the processes."""
    import numpy as np

    return [float(np.median(seconds[process == number])) for number in np.unique(process)]


def typical(case: Case, seconds: NDArray[Any]) -> float:
    """The record's median, which may be that of undisturbed blocks alone; else that of all calls."""
    import numpy as np

    return case.number("latency.p50_seconds") or float(np.median(seconds))


def _quantiles(seconds: NDArray[Any], shares: Sequence[float]) -> list[float]:
    import numpy as np

    return [float(value) for value in np.quantile(seconds, shares)]


def _draw_hill(axes: Any, y: float, row: Row, seconds: NDArray[Any], across: scale.Axis) -> None:
    import numpy as np

    edges = np.geomspace(across.low, across.high, _BINS + 1)
    counts, _ = np.histogram(seconds[(seconds >= across.low) & (seconds <= across.high)], bins=edges)
    base = y - 5
    used = np.flatnonzero(counts)
    if not used.size:
        return
    first, last = used[0], used[-1] + 1
    heights = base + 1 + 11 * counts[first:last] / counts.max()
    axes.stairs(heights, edges[first : last + 1], baseline=base, fill=True, color=color_of(row.backend), alpha=0.8)


def _in_unit(seconds: float, unit: tuple[float, str]) -> str:
    return f"{seconds / unit[0]:g}"
