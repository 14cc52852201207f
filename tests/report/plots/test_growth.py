"""Rules of qbench/report/plots/growth.py: which variants have a line, in which panel, and what is said of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from qbench.errors import UsageError
from qbench.report.plots import growth
from qbench.report.plots.cases import MOST, read_cases


def row(variant: str, threads: int, rate: float | None, *, batch: int = 1, role: str = "", model: str = "net") -> Any:
    """A case that gives so many examples a second."""
    mode, backend = variant.split(" · ")
    setting = f"{model}, {threads} threads, batch {batch}"
    return {
        "case.id": f"{model}/{mode}/{backend}/t{threads}/b{batch}", "case.model": model, "case.mode": mode,
        "case.backend": backend, "case.threads": threads, "case.batch_size": batch, "case.setting": setting,
        "case.variant": variant, "status": "ok", "throughput_per_second": rate, "decision.role": role or None,
        "latency.p50_seconds": batch / rate if rate else None,
    }  # fmt: skip


def lines_of(*rows: Any, by: growth.By = "threads") -> tuple[list[tuple[Any, ...]], int]:
    """Of each line its variant, panel, counts and gains; and how many are left out."""
    lines, more = growth.list_lines(read_cases(pd.DataFrame(rows)), by)
    return [(line.case.key, line.panel, line.at, line.gain) for line in lines], more


def test_a_line_has_a_point_for_each_number_from_the_fewest_on() -> None:
    """Each over the first, whatever order they stand in; one that was measured once, or has no rate, has none."""
    rows = [
        row("static · x86", 4, 300.0),
        row("static · x86", 1, 100.0),
        row("static · x86", 2, 150.0),
        row("fp32 · torch", 1, 50.0),
        row("qat · x86", 1, 10.0),
        row("qat · x86", 2, None),
        row("dynamic · x86", 1, 0.0),
        row("dynamic · x86", 2, 5.0),
    ]
    assert lines_of(*rows) == ([("net/static/x86/t1/b1", "net, batch 1", (1, 2, 4), (1.0, 1.5, 3.0))], 0)
    assert lines_of(*rows, by="batch_size") == ([], 0)


def test_panels_are_by_model_and_by_what_stays() -> None:
    """One thread is one, two are several; the case that a decision names stands for its line."""
    rows = [
        row("static · x86", threads, 100.0 * threads * batch, batch=batch, role="ship" if batch == 8 else "")
        for threads in (1, 2)
        for batch in (1, 8)
    ]
    assert lines_of(*rows, by="batch_size")[0] == [
        ("net/static/x86/t1/b8", "net, 1 thread", (1, 8), (1.0, 8.0)),
        ("net/static/x86/t2/b8", "net, 2 threads", (1, 8), (1.0, 8.0)),
    ]
    assert [panel for _, panel, _, _ in lines_of(*rows)[0]] == ["net, batch 1", "net, batch 8"]


def test_of_many_lines_the_named_then_fp32_then_the_fastest_are_drawn_in_four_panels() -> None:
    """In the order of the panels; the rest is counted."""
    rows = [
        row(f"static · e{number}", threads, float(100 - number) * threads, role="ship" if number == MOST else "")
        for number in range(MOST + 1)
        for threads in (1, 2)
    ]
    rows += [row("fp32 · torch", threads, 1.0 * threads) for threads in (1, 2)]
    drawn, more = lines_of(*rows)
    assert [key.split("/")[2] for key, *_ in drawn] == [f"e{MOST}", "torch", *(f"e{n}" for n in range(MOST - 2))]
    assert more == 2
    models = [row("static · x86", threads, 1.0, model=f"m{number}") for number in range(5) for threads in (1, 2)]
    drawn, more = lines_of(*models)
    assert ([panel for _, panel, _, _ in drawn], more) == ([f"m{number}, batch 1" for number in range(4)], 1)


def test_the_caption_names_who_gains_most_and_who_least() -> None:
    """As a share of what is ideal for as many; of a single line there is no least."""
    single = [row("static · x86", 1, 100.0), row("static · x86", 4, 200.0)]
    both = [*single, row("fp32 · torch", 1, 50.0), row("fp32 · torch", 4, 60.0)]
    (drawing,) = growth.list_drawings(pd.DataFrame(both), read_cases(pd.DataFrame(both)))
    assert (drawing.key, drawing.heading, drawing.more) == ("scaling-threads", "More threads", 0)
    assert drawing.caption == (
        "From 1 to 4 threads, static int8 on x86 (PyTorch) gains most: 2.00 times as many examples a second, 50 % of "
        "the ideal; fp32 on PyTorch gains least, 1.20 times. Shown are n = 2 variants; medians, without intervals."
    )
    assert drawing.data.rows == (("fp32 · torch", "net, batch 1", "1: 1.00; 4: 1.20"),
                                 ("static · x86", "net, batch 1", "1: 1.00; 4: 2.00"))  # fmt: skip
    batches = [row("static · x86", 1, 100.0, batch=2), row("static · x86", 1, 150.0, batch=4)]
    (drawing,) = growth.list_drawings(pd.DataFrame(batches), read_cases(pd.DataFrame(batches)))
    assert drawing.key == "scaling-batch-size"
    assert drawing.caption == (
        "From batch size 2 to 4, static int8 on x86 (PyTorch) gains most: 1.50 times as many examples a second, 75 % "
        "of the ideal. Shown are n = 1 variant; medians, without intervals."
    )


def test_without_a_line_there_is_no_picture() -> None:
    """Asked for by name, it is refused with the reason."""
    frame = pd.DataFrame([row("static · x86", 1, 100.0)])
    assert list(growth.list_drawings(frame, read_cases(frame))) == []
    with pytest.raises(UsageError, match="no variant of the frame was measured with several values of batch_size"):
        growth.scaling(frame, "batch_size")


def test_a_frame_that_does_not_say_how_many_is_of_one() -> None:
    """Thread and example a call."""
    frame = pd.DataFrame([row("static · x86", 1, 100.0), row("static · x86", 2, 150.0)])
    lines, _ = growth.list_lines(read_cases(frame.drop(columns="case.batch_size")), "threads")
    assert [line.panel for line in lines] == ["net, batch 1"]
    lines, _ = growth.list_lines(read_cases(frame.assign(**{"case.threads": [None, 2.0]})), "threads")
    assert [line.at for line in lines] == [(1, 2)]
