"""What the picture of single calls says of processes that differ."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qbench.report.plots.call_times import list_drawings
from qbench.report.plots.cases import read_cases


def caption_of(p50_seconds: float, p50_from: str = "undisturbed") -> str:
    """The caption for two processes of one case, of which the second was disturbed half of the time."""
    frame = pd.DataFrame(
        {
            "case.id": ["a"],
            "case.setting": "m, 1 thread, batch 1",
            "case.mode": "static",
            "case.backend": "onednn",
            "case.recipe": "default",
            "status": "ok",
            "latency.p50_seconds": p50_seconds,
            "latency.p50_from": p50_from,
            "over_best_fp32.value": 0.5,
        }
    )
    seconds = np.repeat([1e-3, 1e-3, 1e-3, 1.5e-3], 10)
    calls = pd.DataFrame({"case.id": "a", "process": np.repeat([0, 1], 20), "seconds": seconds})
    (drawing,) = list_drawings(frame, read_cases(frame), ["a"], lambda cases: calls)
    return drawing.caption


@pytest.mark.parametrize(("p50_seconds", "says"), [(1e-3, False), (1.01e-3, False), (0.9e-3, True)])
def test_medians_of_all_calls_beside_a_figure_of_undisturbed_ones_are_called_so(p50_seconds: float, says: bool) -> None:
    """Else the picture's headline says of processes what the machine's other work did."""
    caption = caption_of(p50_seconds)
    words = "the median of all calls, also those that others on the machine made longer, differs most"
    assert (words in caption) == says
    assert ("the median differs most for static int8 on oneDNN (PyTorch): by 25 %" in caption) != says
    assert "by 25 %" in caption
    assert words not in caption_of(p50_seconds, "all")
