"""Which pictures a report shows: a run's frames -> inline SVG, a caption with the conclusion, and what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.decide import decision
from qbench.decide.cases import setting_name, setting_of
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.formatting import clean
from qbench.progress.table import TextTable
from qbench.record.stored_run import StoredRun
from qbench.report.frame import calls_frame, cases_frame, layers_frame
from qbench.report.plots import call_times, costs, growth, layer_errors, peaks, ratios, svg, trade_off
from qbench.report.plots.cases import FrameCase, read_cases
from qbench.report.plots.picture import Drawing

if TYPE_CHECKING:
    import pandas as pd

_DESCRIBED = 40  # rows of a table that are read out to those who cannot see the picture


@dataclass(frozen=True, kw_only=True)
class Figure(Drawing):
    """A picture that is drawn; ``narrow`` is that for a phone, empty where it is the same."""

    svg: str
    narrow: str = ""


def figures(run: StoredRun, judged: Judged, decisions: Sequence[Decision] | None = None) -> tuple[Figure, ...]:
    """The pictures for which the run has data, in reading order. ``decisions``: those of ``judged``, where they are
    known already."""
    names = _list_names(run)
    return tuple(_inline(drawing, names) for drawing in list_drawings(run, judged, decisions))


def _list_names(run: StoredRun) -> frozenset[str]:
    """What pictures call the cases of a run."""
    cases = [record.case for record in run.records]
    names = {name for case in cases for name in (case.variant, f"{case.variant}, {case.model}", case.backend)}
    names |= {setting_name(setting_of(record.case)) for record in run.records}
    return frozenset(map(clean, names))


def list_drawings(
    run: StoredRun, judged: Judged, decisions: Sequence[Decision] | None = None, model: str | None = None
) -> tuple[Drawing, ...]:
    """The same before they are drawn, of all models or of one; ``draw()`` gives the matplotlib figure."""
    frame = cases_frame(run, judged, decision.decide(judged) if decisions is None else decisions)
    if model is not None:
        frame = frame[frame["case.model"] == model].reset_index(drop=True)
    cases = read_cases(frame)
    stored = {record.case.id for record in run.records if record.samples is not None}

    def read_calls(likely: Sequence[FrameCase]) -> pd.DataFrame:
        return calls_frame(run, [run.by_id[case.key] for case in likely])

    return (
        *trade_off.list_drawings(frame, cases),
        *ratios.list_drawings(frame, cases),
        *call_times.list_drawings(frame, cases, stored, read_calls),
        *growth.list_drawings(frame, cases),
        *peaks.list_drawings(frame, cases),
        *layer_errors.list_drawings(frame, cases, layers_frame(run)),
        *costs.list_drawings(frame, cases),
    )


def _inline(drawing: Drawing, names: frozenset[str]) -> Figure:
    described = f"{drawing.caption} {_describe(drawing.data)}"
    listed = {clean(cell) for row in drawing.data.rows for cell in row}
    words = svg.Words(key=drawing.key, title=drawing.heading, description=described, names=names | listed)
    narrow = ""
    if drawing.draw_narrow is not None:
        narrow = svg.inline(drawing.draw_narrow(), replace(words, key=f"{drawing.key}-narrow"))
    return Figure(**vars(drawing), svg=svg.inline(drawing.draw(), words), narrow=narrow)


def _describe(table: TextTable) -> str:
    """The table in words: ``digits-cnn …: speed-up 2.51; …``."""
    rows = [
        f"{row[0]}: "
        + ", ".join(f"{title} {cell}" for title, cell in zip(table.columns[1:], row[1:], strict=True) if cell)
        for row in table.rows[:_DESCRIBED]
    ]
    return "; ".join(rows)
