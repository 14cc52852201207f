"""Rules of qbench/report/plots/cases.py: which cases a picture shows; anything that is no frame is one clear error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_records import RUN_V1
from made_runs import run_folder

import qbench
from qbench.errors import UsageError
from qbench.report import plots
from qbench.report.plots.cases import MOST, choose, list_settings, read_cases
from qbench.stats.interval_type import Interval


def frame_of(count: int, roles: dict[int, str]) -> pd.DataFrame:
    """So many cases of two settings, each a little slower than the last."""
    return pd.DataFrame(
        {
            "case.id": [f"c{i:03}" for i in range(count)],
            "case.setting": [f"s{i % 2}" for i in range(count)],
            "case.mode": "static",
            "status": ["ok"] * (count - 1) + ["failed"],
            "over_best_fp32.value": [0.5 + i for i in range(count)],
            "decision.role": [roles.get(i) for i in range(count)],
            "latency.n": pd.array([None] * count, dtype="Int64"),
        }
    )


def test_named_and_tied_cases_are_always_shown() -> None:
    """However slow they are; the rest is the fastest of each setting, and the picture says how many are left out."""
    cases = read_cases(frame_of(100, {90: "ship", 95: "tied"}))
    chosen, more = choose(cases)
    assert len(chosen) == MOST
    assert more == 99 - MOST
    assert {"c090", "c095", "c000", "c001"} <= {case.key for case in chosen}
    assert [case.setting for case in chosen] == sorted(case.setting for case in chosen)


def test_what_is_named_is_shown_before_what_ties_and_that_before_the_fastest_fp32() -> None:
    """However slow; where there is room for so many only."""
    frame = frame_of(8, {4: "undecided", 3: "tied"}).assign(**{"decision.is_best_fp32": [i == 2 for i in range(8)]})
    for most, shown in ((1, {"c004"}), (2, {"c003", "c004"}), (3, {"c002", "c003", "c004"})):
        chosen, more = choose(read_cases(frame), most)
        assert ({case.key for case in chosen}, more) == (shown, 7 - most)


def test_what_is_missing_is_none() -> None:
    """Whatever pandas has for it: NaN, NA or None; so is a column that the frame lacks."""
    case = read_cases(frame_of(3, {}))[0]
    assert (case["latency.n"], case["decision.role"], case["no such column"]) == (None, None, None)
    assert case.number("latency.n") is None
    assert case.interval("over_best_fp32") == Interval(value=0.5)


def test_this_machine_comes_before_other_hosts() -> None:
    """In whatever order the cases were recorded: its pictures are those that are read first."""
    frame = frame_of(5, {})
    assert list_settings(read_cases(frame)) == ["s0", "s1"]
    hosts = ["avx2", "native", "avx2", "native", "avx2"]
    assert list_settings(read_cases(frame.assign(**{"case.host": hosts}))) == ["s1", "s0"]


Draw = Callable[[pd.DataFrame], Any]


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    """The run of schema 1 as its three frames, with numbers of layers of one case."""
    cases = qbench.load(RUN_V1)
    layer = {"case.id": cases["case.id"].iloc[-1], "layer": "conv", "sqnr_db": 30.0, "clipped": 0.0}
    numbers = pd.DataFrame([layer | {"is_float": False, "n": 9, "cosine": 1.0, "reason": None, "run": "v1"}])
    return {"cases": cases, "calls": qbench.load(RUN_V1, "calls"), "layers": numbers}


def pictures(frames: dict[str, pd.DataFrame]) -> Iterator[tuple[str, Draw]]:
    """Every public picture as a function of the frame of cases."""
    yield from ((name, getattr(plots, name)) for name in ("pareto", "speedup", "accuracy", "roofline"))
    yield from ((what, partial(plots.footprint, what=what)) for what in ("size", "memory", "cold_start"))
    yield from ((by, partial(plots.scaling, by=by)) for by in ("threads", "batch_size"))
    yield "latency", lambda frame: plots.latency(frame, frames["calls"])
    yield "layers", lambda frame: plots.layers(frame, frames["layers"])


def test_every_picture_is_in_the_list(frames: dict[str, pd.DataFrame]) -> None:
    """So that a new one is tried, too."""
    public = {getattr(draw, "func", draw).__name__ for _, draw in pictures(frames)} - {"<lambda>"}
    assert public | {"latency", "layers"} == set(plots.__all__)


def test_a_frame_is_drawn_or_refused_in_words(frames: dict[str, pd.DataFrame]) -> None:
    """Nothing but ``UsageError`` for frames without rows, of one row, of missing values alone, of other columns and of
    no frame at all."""
    cases = frames["cases"]
    measured = cases[cases["status"] == "ok"]
    missing = measured.assign(**dict.fromkeys(measured.select_dtypes("number"), np.nan))
    for name, draw in pictures(frames):
        for frame in (*(measured.iloc[[place]] for place in range(len(measured))), missing):
            with contextlib.suppress(UsageError):  # where that one has no such quantity
                assert draw(frame).axes, name
        for frame, told in (
            (cases.iloc[:0], "nothing to draw: "),
            (pd.DataFrame(), "the frame lacks case.id, "),
            (cases.drop(columns="case.variant"), "the frame lacks case.variant; give it all columns of qbench.load"),
            (cases["case.id"], "not from Series"),
            (None, "not from NoneType"),
        ):
            with pytest.raises(UsageError, match=told):
                draw(frame)


def test_a_name_that_there_is_not_is_told_with_those_that_there_are(frames: dict[str, pd.DataFrame]) -> None:
    """Of a quantity, an axis and a case; so are a number of rows that is none, text for a number, other frames."""
    cases, calls, numbers = frames["cases"], frames["calls"], frames["layers"]
    text = cases.assign(**{"artifact.size_bytes": "large"})
    for draw, told in (
        (lambda: plots.footprint(cases, "nonsense"), "footprint: 'nonsense' is none of size, memory, cold_start"),
        (lambda: plots.scaling(cases, "cores"), "scaling: 'cores' is none of threads, batch_size"),
        (lambda: plots.layers(cases, numbers, "nobody"), f"'nobody' is none of {numbers['case.id'][0]}"),
        (lambda: plots.speedup(cases, 0), "most: 0 is not a number of rows; take 1 or more"),
        (lambda: plots.footprint(text), "artifact.size_bytes: 'large' is no number"),
        (lambda: plots.latency(cases, cases), "the frame lacks process, seconds; give it all columns of .*calls"),
        (lambda: plots.layers(cases, calls), "the frame lacks layer, "),
    ):
        with pytest.raises(UsageError, match=told):
            draw()


def test_several_runs_are_drawn_apart_or_refused(tmp_path: Path, frames: dict[str, pd.DataFrame]) -> None:
    """Each setting of each run has rows of its own; calls of cases with one id cannot be told apart."""
    other = frames["cases"].assign(run="other")
    both = pd.concat([frames["cases"], other], ignore_index=True)
    single, double = (len(plots.pareto(frame).axes) for frame in (other, both))
    assert double - 1 == 2 * (single - 1)
    with pytest.raises(UsageError, match=r"latency: the frame holds 2 runs \(v1, other\); draw one of them"):
        plots.latency(both, frames["calls"])


def test_a_run_without_records_has_frames_that_are_refused(tmp_path: Path) -> None:
    """As after a run that was killed at once."""
    folder = run_folder(tmp_path / "run", [])
    with pytest.raises(UsageError, match="pareto: nothing to draw"):
        plots.pareto(qbench.load(folder))
    with pytest.raises(UsageError, match="latency: nothing to draw"):
        plots.latency(qbench.load(RUN_V1), qbench.load(folder, "calls"))
