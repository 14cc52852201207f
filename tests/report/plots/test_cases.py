"""Rules of qbench/report/plots/cases.py: which cases a picture shows."""

from __future__ import annotations

import pandas as pd

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
    chosen, more = choose(cases, lambda case: case.pace)
    assert len(chosen) == MOST
    assert more == 99 - MOST
    assert {"c090", "c095", "c000", "c001"} <= {case.key for case in chosen}
    assert [case.setting for case in chosen] == sorted(case.setting for case in chosen)


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
