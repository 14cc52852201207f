"""Rules of qbench/report/token_changes.py: how many tokens flip, and in which documents most of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, fp32, info, int8
from made_runs import HOSTILE, Page, run_folder, write_with_predictions

from qbench.metrics.next_token import TOKEN_FLIPS
from qbench.record import jsonl
from qbench.record.stored_run import MetricInfo
from qbench.report import token_changes
from qbench.report.build import build_report

# Two documents, of two windows and of one; three positions of each window count, of the last two.
LABELS = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [4, 1, 2, -1]])
IDS = ["reviews/1@0", "reviews/1@3", "reviews/2@0"]


def stored(ids: list[str], likeliest: list[list[int]]) -> dict[str, np.ndarray]:
    """Predictions with these likeliest tokens, of a vocabulary of 5."""
    logits = np.eye(5, dtype=np.float32)[likeliest]
    answers = TOKEN_FLIPS.summarize([logits], LABELS)
    return {"outputs": logits, "answers": answers, "labels": LABELS, "ids": np.array(ids)}


def make_run(folder: Path, ids: list[str], metric: str = "nll") -> Path:
    """A run folder of an fp32 and an int8 case: one token of six flips in one document, one of two in the other."""
    run_folder(folder, [], info((FP32, CASE), metric=MetricInfo(name=metric)))
    records = [
        write_with_predictions(folder, fp32(), stored(ids, [[0, 1, 2], [0, 1, 2], [0, 1, 2]])),
        write_with_predictions(folder, int8(accuracy=accuracy()), stored(ids, [[0, 1, 2], [0, 4, 2], [3, 1, 4]])),
    ]
    jsonl.write(folder / "records.jsonl", records)
    return folder


def test_a_report_shows_the_documents_with_most_flips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their share of tokens that count; windows of a document are one."""
    folder = make_run(tmp_path / "run", IDS)
    text = build_report(folder).read_text(encoding="utf-8")
    assert "2 of 8 tokens flip (25.00 %), in 2 of 2 documents" in text.replace("\u202f", "")
    table = text[text.index('id="tokens"') :]
    table = table[: table.index("</section>")]
    assert 0 < table.index(">reviews/2<") < table.index("1 (50.0 %)") < table.index(">reviews/1<")
    monkeypatch.setattr(token_changes, "MOST_DOCUMENTS", 1)
    assert ">reviews/1<" not in build_report(folder).read_text(encoding="utf-8")


def test_a_run_of_another_metric_has_no_tokens(tmp_path: Path) -> None:
    """Whatever its answers look like."""
    folder = make_run(tmp_path / "run", IDS, metric="top1")
    assert 'id="tokens"' not in build_report(folder).read_text(encoding="utf-8")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Of documents."""
    folder = make_run(tmp_path / "run", [HOSTILE.replace("\x00", "")] * 3)
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    assert len(page.all("script")) == 1
    assert page.all("img") == []
