"""Rules of qbench/report/matrix.py: many settings at a glance."""

from __future__ import annotations

from dataclasses import replace

from made_records import fp32, info, judged, setting

from qbench.decide.decision import decide
from qbench.decide.judged import Judged
from qbench.record.schema import read_case_id
from qbench.report.cards import cards
from qbench.report.matrix import SettingMatrix, matrix
from qbench.report.ruling import rule


def drawn(run: Judged) -> SettingMatrix | None:
    """The matrix of a run."""
    decisions = decide(run)
    rulings = rule(run, decisions)
    return matrix(decisions, cards(decisions, run, rulings, info()), rulings)


def test_few_settings_need_no_matrix() -> None:
    """Their cards are read at a glance."""
    assert drawn(judged(*setting("net", 1))) is None


def test_a_matrix_has_models_down_and_threads_across() -> None:
    """Each square says what is shipped and how much faster, and leads to its card; a hole stays a hole."""
    models = [f"net{number}" for number in range(6)]
    records = [record for model in models for record in setting(model, 1)]
    table = drawn(judged(*records, *setting("net0", 2)))
    assert table is not None
    assert table.columns == ("1 thread, batch 1", "2 threads, batch 1")
    assert [model for model, _ in table.rows] == models
    first, second = table.rows[0][1]
    assert first is not None
    assert second is not None
    assert (first.name, first.ratio, first.symbol) == ("static · onnxruntime", "2.00 ×", "✓")  # noqa: RUF001
    assert table.rows[1][1][1] is None
    assert first.anchor != second.anchor


def test_settings_that_fit_as_cards_need_no_matrix() -> None:
    """So many are read one by one; one more is not."""
    records = [record for number in range(6) for record in setting(f"net{number}", 1)]
    assert drawn(judged(*records)) is None
    assert drawn(judged(*records, *setting("more", 1))) is not None


def test_a_square_names_what_is_shipped_or_the_answer() -> None:
    """And the column its host, where that is not this machine as it is."""
    records = [record for number in range(6) for record in setting(f"net{number}", 1)]
    slow = [replace(each, case=read_case_id(f"{each.case.id}/avx2")) for each in setting("net0", 1, 0.5)]
    shown = drawn(judged(*records, *slow))
    assert shown is not None
    assert shown.columns == ("1 thread, batch 1", "1 thread, batch 1, on avx2")
    fast, kept = shown.rows[0][1]
    assert fast is not None
    assert kept is not None
    assert (fast.name, kept.name, kept.verdict) == ("static · onnxruntime", "keep fp32", "keep fp32")


def test_a_setting_without_a_pick_has_its_answer_and_no_ratio() -> None:
    """As where nothing but fp32 was measured."""
    records = [record for number in range(6) for record in setting(f"net{number}", 1)]
    shown = drawn(judged(*records, fp32("bare/fp32/onnxruntime/t1/b1")))
    assert shown is not None
    (square,) = dict(shown.rows)["bare"]
    assert square is not None
    assert (square.name, square.ratio) == (square.verdict, "")
