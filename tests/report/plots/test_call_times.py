"""What the picture of single calls says of processes that differ."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qbench.report.plots.call_times import choose_timed, list_drawings, split_calls
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


def calls_of(**seconds: list[float]) -> pd.DataFrame:
    """A frame of calls, half of each case's in one process and half in another."""
    frames = [
        pd.DataFrame({"case.id": key, "process": np.arange(len(each)) * 2 // max(len(each), 1), "seconds": each})
        for key, each in seconds.items()
    ]
    return pd.concat(frames, ignore_index=True)


def frame_of(*keys: str, **columns: object) -> pd.DataFrame:
    """A frame of measured cases."""
    plain = {
        "case.id": list(keys), "case.setting": "m, 1 thread, batch 1", "case.mode": "static",
        "case.backend": "onednn", "case.variant": "static", "status": "ok", "over_best_fp32.value": 0.5,
    }  # fmt: skip
    return pd.DataFrame(plain | columns)


def test_calls_of_a_case_are_put_together_wherever_they_stand() -> None:
    """In the order in which they stand."""
    frame = calls_of(b=[1.0, 2.0], a=[3.0])
    again = pd.concat([frame, calls_of(b=[4.0], a=[5.0, 6.0])], ignore_index=True)
    timed = split_calls(again)
    assert {key: seconds.tolist() for key, (_, seconds) in timed.items()} == {
        "b": [1.0, 2.0, 4.0],
        "a": [3.0, 5.0, 6.0],
    }
    assert timed["b"][0].tolist() == [0, 1, 0]


def test_a_case_is_shown_that_has_two_calls_of_some_time() -> None:
    """One is no distribution, and of none no logarithm exists."""
    timed = split_calls(calls_of(single=[1e-3], pair=[1e-3, 2e-3], zero=[0.0, 1e-3]))
    chosen, more = choose_timed(read_cases(frame_of("single", "pair", "zero", "absent")), timed)
    assert ([case.key for case in chosen], more) == (["pair"], 0)
    both = split_calls(calls_of(a=[1e-3] * 2, b=[2e-3] * 2))
    assert choose_timed(read_cases(frame_of("a", "b")), both, 1)[1] == 1


def test_calls_of_one_process_say_nothing_of_others() -> None:
    """So the caption says; the table has quantiles, processes and the ends of their medians."""
    frame = frame_of("a", "b")
    calls = calls_of(a=[1e-3] * 500 + [3e-3] * 500, b=[2e-3] * 4)
    alone = calls.assign(process=0)
    (drawing,) = list_drawings(frame, read_cases(frame), ["a", "b"], lambda cases: alone)
    assert drawing.caption == (
        "Each case was measured in one process: how much processes differ is not known. Shown are n = 1,004 calls. "
        "Each tick is the median of a process; a second hill is noise or a slow path. The slowest 2 % of calls may lie "
        "beyond the axis."
    )
    (drawing,) = list_drawings(frame, read_cases(frame), ["a", "b"], lambda cases: calls)
    assert drawing.caption.startswith(
        "From one process to the next the median differs most for static int8 on oneDNN (PyTorch): by 200 %. Shown"
    )
    assert [row[1:] for row in drawing.data.rows] == [
        ("1,000", "1.00 ms", "2.00 ms", "3.00 ms", "2", "1.00 ms to 3.00 ms"),
        ("4", "2.00 ms", "2.00 ms", "2.00 ms", "2", "2.00 ms to 2.00 ms"),
    ]
    assert list(list_drawings(frame, read_cases(frame), [], lambda cases: calls.iloc[:0])) == []
