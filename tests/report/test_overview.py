"""Rules of qbench/report/overview.py: the whole run in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import fp32, info, judged, setting

from qbench.decide.decision import decide
from qbench.record.schema import read_case_id
from qbench.record.stored_run import StoredRun
from qbench.report.overview import count_answers, describe_state, overview
from qbench.report.ruling import rule


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ((0.5, 0.6, 2.0), "2 of 3 int8 variants are slower than plain fp32 on ONNX Runtime, 1 is faster."),
        ((0.5, 0.6), "Both int8 variants are slower than plain fp32 on ONNX Runtime."),
        ((2.0, 2.1, 2.2), "All 3 int8 variants are faster than plain fp32 on ONNX Runtime."),
        ((0.5, 1.0), "1 of 2 int8 variants is slower than plain fp32 on ONNX Runtime, 1 is too close to call."),
        (
            (1.0, 1.0, 2.0),
            "2 of 3 int8 variants are too close to call against plain fp32 on ONNX Runtime, 1 is faster.",
        ),
        ((2.0,), "The int8 variant is faster than plain fp32 on ONNX Runtime."),
    ],
)
def test_the_run_is_told_in_one_line(ratios: tuple[float, ...], told: str) -> None:
    """How many int8 variants are slower than plain fp32, where that has one runtime; the most frequent comes first."""
    run = judged(*(record for model, ratio in zip("abc", ratios, strict=False) for record in setting(model, 1, ratio)))
    decisions = decide(run)
    assert overview(run, decisions, rule(run, decisions)) == told


def test_without_int8_there_is_nothing_to_say() -> None:
    """No sentence about none of none."""
    run = judged(fp32())
    assert overview(run, decide(run), rule(run, decide(run))) == ""


@pytest.mark.parametrize(
    ("finished", "missing", "told"),
    [
        (True, 0, ""),
        (True, 1, "This run is not complete: 1 of 3 planned cases have no record yet."),
        (False, 0, "This run is not complete: 0 of 2 planned cases have no record yet."),
    ],
)
def test_a_run_is_whole_where_it_ended_and_has_every_record(finished: bool, missing: int, told: str) -> None:
    """Either alone is not enough."""
    records = setting("net", 1)
    planned = (*(record.case.id for record in records), *["net/qat/x86/t1/b1"][:missing])
    facts = info(planned) if finished else info(planned, finished=None)
    assert describe_state(StoredRun(folder=Path("run"), info=facts, records=tuple(records))) == told


def test_answers_are_counted_by_their_kind() -> None:
    """In the order in which they come up."""
    run = judged(*setting("a", 1), *setting("b", 1, 0.5), *setting("c", 1))
    assert count_answers(decide(run)) == "Of 3 settings: ship int8 in 2, keep fp32 in 1."


def test_of_as_many_slower_and_faster_the_slower_are_told_first() -> None:
    """Then those that are too close to call."""
    records = [record for number, value in enumerate((2.0, 0.5, 1.0)) for record in setting(f"n{number}", 1, value)]
    run = judged(*records)
    assert overview(run, decide(run), rule(run, decide(run))) == (
        "1 of 3 int8 variants is slower than plain fp32 on ONNX Runtime, 1 is faster, 1 is too close to call."
    )


def test_a_variant_of_two_settings_is_two_cases() -> None:
    """And where the fastest fp32 is another one from setting to setting, none is named."""
    run = judged(*setting("net", 1), *setting("net", 2))
    assert overview(run, decide(run), rule(run, decide(run))).startswith(
        "Both int8 cases are faster than plain fp32 on"
    )
    other = [replace(each, case=read_case_id(each.case.id.replace("onnxruntime", "torch"))) for each in setting("b", 1)]
    other[1] = replace(other[1], speedup=None, speedup_fastest=None)
    mixed = judged(*setting("a", 1), *other)
    assert overview(mixed, decide(mixed), rule(mixed, decide(mixed))).endswith(" than the fastest plain fp32.")
