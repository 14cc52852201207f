"""Rules of qbench/report/plots/costs.py: what a variant costs beside its time, and in which unit."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from qbench.report.plots.cases import FrameCase, read_cases
from qbench.report.plots.costs import _unit, amount, list_drawings, show_amount


def cases(**columns: Any) -> tuple[pd.DataFrame, list[FrameCase]]:
    """An fp32 and two int8 variants with these columns."""
    plain = {
        "case.id": ["f", "a", "b"], "case.setting": "s", "case.mode": ["fp32", "static", "static"],
        "case.backend": ["torch", "x86", "onednn"], "case.variant": ["fp32", "a", "b"], "status": "ok",
        "over_best_fp32.value": [1.0, 0.5, 0.6],
    }  # fmt: skip
    frame = pd.DataFrame(plain | columns)
    return frame, read_cases(frame)


@pytest.mark.parametrize(
    ("largest", "unit"),
    [
        (999.0, (1.0, "B")),
        (1e3, (1e3, "kB")),
        (999_999.0, (1e3, "kB")),
        (1e6, (1e6, "MB")),
        (1e9 - 1, (1e6, "MB")),
        (1e9, (1e9, "GB")),
    ],
)
def test_bytes_have_the_unit_of_the_largest(largest: float, unit: tuple[float, str]) -> None:
    """And seconds have theirs."""
    assert _unit("size", largest) == _unit("memory", largest) == unit
    assert _unit("cold_start", 0.5) == (1e-3, "ms")


def test_a_cost_is_what_was_measured() -> None:
    """The peak of the memory, else what was loaded; a cold start that is known in both parts."""
    _, listed = cases(
        **{
            "artifact.size_bytes": [1000, 260, None],
            "memory.peak_rss_bytes": [None, 5e6, None],
            "memory.loaded_rss_bytes": [4e6, 3e6, None],
            "cold_start.load_seconds": [0.25, 0.5, None],
            "cold_start.first_call_seconds": [0.5, None, 0.5],
        }
    )
    assert [amount(case, "size") for case in listed] == [1000.0, 260.0, None]
    assert [amount(case, "memory") for case in listed] == [4e6, 5e6, None]
    assert [amount(case, "cold_start") for case in listed] == [0.75, None, None]


def test_a_size_is_told_with_its_share_of_fp32s() -> None:
    """Of a variant that is no fp32, and where it is another size; other costs have none."""
    _, listed = cases(
        **{
            "artifact.size_bytes": [1000, 260, None],
            "size_over_fp32": [0.5, 0.26, 1.0],
            "memory.loaded_rss_bytes": 2000,
            "cold_start.load_seconds": 0.25,
            "cold_start.first_call_seconds": 0.5,
        }
    )
    assert [show_amount(case, "size") for case in listed] == ["1.00 kB", "260 B (26 %)", "\u2014"]
    assert show_amount(listed[1], "memory") == "2.00 kB"
    assert show_amount(listed[1], "cold_start") == "750 ms"
    _, same = cases(**{"artifact.size_bytes": 1000, "size_over_fp32": 1.0})
    assert show_amount(same[1], "size") == "1.00 kB"


def test_a_caption_tells_what_is_shipped_and_the_least() -> None:
    """Three of the first at most, for their setting where there are several; the least only where it is another."""
    size = {"artifact.size_bytes": [1000, 260, 250]}
    said = {}
    for roles in ((None, "ship", None), (None, None, "ship"), (None, None, None)):
        frame, listed = cases(**size, **{"decision.role": list(roles)})
        (drawing,) = list_drawings(frame, listed)
        said[roles] = drawing.caption
    end = (
        "Measured are n = 3 cases, without intervals; hollow bars are fp32. Exact bytes; in brackets the share of "
        "fp32's."
    )
    shipped, least = "To ship: static int8 on {}, {}", "Smallest of all: static int8 on oneDNN (PyTorch), 250 B"
    assert list(said.values()) == [
        f"{shipped.format('x86 (PyTorch)', '260 B')}. {least}. {end}",
        f"{shipped.format('oneDNN (PyTorch)', '250 B')}. {end}",
        f"{least}. {end}",
    ]
    frame = pd.DataFrame(
        {
            "case.id": list("abcd"), "case.setting": [f"s{number}" for number in range(4)], "case.mode": "static",
            "case.backend": "x86", "case.variant": "a", "status": "ok", "decision.role": "ship",
            "artifact.size_bytes": [1, 2, 3, 4], "over_best_fp32.value": 0.5,
        }
    )  # fmt: skip
    (drawing,) = list_drawings(frame, read_cases(frame))
    assert drawing.caption.count("To ship for s") == 3
    assert "To ship for s2: static int8 on x86 (PyTorch), 3 B. Measured are n = 4 cases" in drawing.caption
