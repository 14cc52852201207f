"""Which predictions of a run are compared, and what pages tell of several variants: qbench/report/int8_predictions.py,
and the lists of changed texts, searches and tokens that rest on it."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, case_key, failed, fp32, info, int8
from made_runs import run_folder, write_with_predictions

from qbench.datasets.text_labels import join_texts
from qbench.evaluate import text_changes
from qbench.metrics.base import ANSWERS
from qbench.metrics.next_token import TOKEN_FLIPS
from qbench.record import jsonl
from qbench.record.stored_run import MetricInfo, StoredRun, read_run
from qbench.report import search_changes, text_gallery, token_changes
from qbench.report.int8_predictions import list_int8_predictions

Stored = dict[str, np.ndarray]
DYNAMIC = CASE.replace("static", "dynamic")
NOTHING: Stored = {"ids": np.array(["a"])}


def make_run(folder: Path, metric: str, stored: dict[str, Stored]) -> StoredRun:
    """A run of these cases with their predictions."""
    run_folder(folder, [], info(tuple(stored), metric=MetricInfo(name=metric)))
    records = []
    for case, predictions in stored.items():
        record = fp32(case) if case_key(case).mode == "fp32" else int8(case, accuracy=accuracy())
        records.append(write_with_predictions(folder, record, predictions))
    jsonl.write(folder / "records.jsonl", records)
    return read_run(folder)


def test_a_file_is_compared_once_by_its_first_case(tmp_path: Path) -> None:
    """Threads and batches share one; what has no answers on either side is left out."""
    run = make_run(tmp_path / "run", "top1", {FP32: NOTHING, CASE: NOTHING, DYNAMIC: NOTHING})
    base, static, dynamic = run.records
    more = replace(static, case=case_key(CASE.replace("/t1/", "/t2/")))
    changed = replace(run, records=(base, static, more, replace(dynamic, predictions=None), failed(DYNAMIC)))
    assert [(each.record, each.fp32) for each in list_int8_predictions(changed)] == [(static, base)]
    without = replace(run, records=(replace(base, predictions=None), static))
    assert list(list_int8_predictions(without)) == []


def test_variants_are_called_by_their_model_where_there_are_several(tmp_path: Path) -> None:
    """And in the order of the run."""
    run = make_run(tmp_path / "one", "top1", {FP32: NOTHING, DYNAMIC: NOTHING, CASE: NOTHING})
    assert [(each.name, each.of_fp32) for each in list_int8_predictions(run)] == [
        ("dynamic · onednn", "fp32 · torch"),
        ("static · onednn", "fp32 · torch"),
    ]
    other = FP32.replace("net/", "other/")
    two = make_run(tmp_path / "two", "top1", {FP32: NOTHING, other: NOTHING, CASE: NOTHING})
    assert [(each.name, each.of_fp32) for each in list_int8_predictions(two)] == [
        ("net static · onednn", "net fp32 · torch")
    ]


def texts(*written: str) -> Stored:
    """Predictions of texts of which all should be ``abcd``."""
    ids = np.array([f"line {number}" for number in range(len(written))])
    answers = join_texts(written).astype(np.float32)
    scores = np.zeros((len(written), 4, 9), np.float32)
    return {"outputs": scores, ANSWERS: answers, "labels": join_texts(["abcd"] * len(written)), "ids": ids}


@pytest.fixture
def lines(tmp_path: Path) -> StoredRun:
    """Two variants that write other texts than fp32, and the pictures of all lines but the second."""
    run = make_run(
        tmp_path / "run",
        "cer",
        {
            FP32: texts("abcd", "abcd", "abcx", "abcd"),
            CASE: texts("abcx", "xxxx", "abcd", "abcd"),
            DYNAMIC: texts("abcx", "abcd", "abcd", "xbcx"),
        },
    )
    (run.folder / text_changes.FOLDER).mkdir()
    for position in (0, 2, 3):
        (run.folder / text_changes.FOLDER / f"{position:06d}.jpg").write_bytes(bytes(100))
    return run


def test_lines_that_most_variants_change_come_first(lines: StoredRun) -> None:
    """Then those with most edits; each text once, with all that write it, fp32's first."""
    changed = text_gallery.list_lines(lines)
    assert changed.sentences == (
        "static · onednn: 3 of 4 texts changed, 2 for the worse and 1 for the better",
        "dynamic · onednn: 3 of 4 texts changed, 2 for the worse and 1 for the better",
    )
    assert [picture.id for picture in changed.pictures] == ["line 0", "line 2", "line 3"]
    content = base64.b64encode((lines.folder / text_changes.FOLDER / "000000.jpg").read_bytes()).decode()
    assert changed.pictures[0].source == f"data:image/jpeg;base64,{content}"
    both = "static · onednn, dynamic · onednn"
    assert [(each.names, each.right) for each in changed.pictures[0].writings] == [
        ("fp32 · torch", True),
        (both, False),
    ]
    assert [(each.names, each.right) for each in changed.pictures[1].writings] == [
        ("fp32 · torch", False),
        (both, True),
    ]
    assert changed.pictures[0].reference == "abcd"


def test_pictures_that_a_page_has_no_room_for_are_left_out(lines: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all of them together; a smaller one behind may still fit."""
    (lines.folder / text_changes.FOLDER / "000002.jpg").write_bytes(bytes(101))
    monkeypatch.setattr(text_gallery, "MOST_BYTES", 200)
    assert [picture.id for picture in text_gallery.list_lines(lines).pictures] == ["line 0", "line 3"]


def test_a_text_without_an_id_has_no_picture(lines: StoredRun) -> None:
    """Its place is beyond all names; the others are shown."""
    for record in lines.records:
        file = lines.folder / str(record.predictions)
        stored = dict(np.load(file))
        np.savez(file, **(stored | {"ids": stored["ids"][:3]}))
    changed = text_gallery.list_lines(read_run(lines.folder))
    assert [picture.id for picture in changed.pictures] == ["line 0", "line 2"]


def test_texts_that_stay_are_told_without_more(tmp_path: Path) -> None:
    """Nothing is worse or better of none."""
    run = make_run(tmp_path / "run", "wer", {FP32: texts("abcd"), CASE: texts("abcd ")})
    assert text_gallery.list_lines(run) == text_gallery.ChangedLines(
        sentences=("static · onednn: 0 of 1 texts changed",)
    )


def searches(*hits: int) -> Stored:
    """Predictions of a search for ``document 0`` by each query, whose first hits are these of three documents."""
    labels = np.full((3 + len(hits), 2, 2), -1)
    labels[:3, 0, 0] = range(3)
    labels[3:, 1] = [0, 1]
    ids = [f"document {number}" for number in range(3)] + [f"query {number}: q" for number in range(len(hits))]
    return {"outputs": np.eye(3, dtype=np.float32)[[0, 1, 2, *hits]], "labels": labels, "ids": np.array(ids)}


def test_searches_that_lost_their_document_come_first(tmp_path: Path) -> None:
    """Then those of most variants, then in their order; what found one is last."""
    run = make_run(
        tmp_path / "run",
        "recall@1",
        {FP32: searches(1, 1, 0, 0, 0), CASE: searches(0, 2, 1, 2, 0), DYNAMIC: searches(1, 2, 2, 2, 0)},
    )
    changes = search_changes.list_searches(run)
    static, dynamic = "static · onednn", "dynamic · onednn"
    assert changes.sentences == (
        f"{static}: 4 of 5 queries have another first hit; 2 lost a relevant one, 1 found one",
        f"{dynamic}: 3 of 5 queries have another first hit; 2 lost a relevant one, 0 found one",
    )
    assert [list(row) for row in changes.table.rows] == [
        ["3", "q", "0 (relevant)", "2", f"{static}, {dynamic}"],
        ["2", "q", "0 (relevant)", "1", static],
        ["2", "q", "0 (relevant)", "2", dynamic],
        ["1", "q", "1", "2", f"{static}, {dynamic}"],
        ["0", "q", "1", "0 (relevant)", static],
    ]
    same = make_run(tmp_path / "same", "mrr@5", {FP32: searches(0), CASE: searches(0)})
    assert search_changes.list_searches(same).sentences == (f"{static}: 0 of 1 queries have another first hit",)


def tokens(*likeliest: list[int]) -> Stored:
    """Predictions of documents of three positions each, with these likeliest tokens of a vocabulary of 5."""
    logits = np.eye(5, dtype=np.float32)[list(likeliest)]
    labels = np.tile([0, 1, 2, 3], (len(likeliest), 1))
    labels[:, 0] = range(len(likeliest))
    ids = np.array([f"d{number}@0" for number in range(len(likeliest))])
    return {"outputs": logits, "answers": TOKEN_FLIPS.summarize([logits], labels), "labels": labels, "ids": ids}


def test_documents_are_told_by_the_variant_that_flips_most(tmp_path: Path) -> None:
    """The largest share first; a document without a flip is not told."""
    same = [0, 1, 2]
    run = make_run(
        tmp_path / "run",
        "token_flips",
        {
            FP32: tokens(same, same, same),
            CASE: tokens([0, 1, 3], same, [4, 1, 2]),
            DYNAMIC: tokens([0, 3, 3], same, [4, 1, 2]),
        },
    )
    changes = token_changes.list_tokens(run)
    assert [row[0] for row in changes.table.rows] == ["d0", "d2"]
    assert [row[3] for row in changes.table.rows] == ["dynamic · onednn", "static · onednn"]
    assert changes.sentences[0].startswith("static · onednn: 2 of 9 tokens flip (22.22 %), in 2 of 3 documents")
    assert token_changes.list_tokens(make_run(tmp_path / "other", "top1", {FP32: tokens(same)})).sentences == ()
    own = make_run(tmp_path / "own", "python:score.py:fn", {FP32: tokens(same)})
    assert token_changes.list_tokens(own) == token_changes.ChangedTokens()


def many_lines(folder: Path, *sizes: int) -> StoredRun:
    """A variant that changes so many texts, of which each has a picture of so many bytes."""
    run = make_run(folder, "cer", {FP32: texts(*["abcd"] * len(sizes)), CASE: texts(*["abcx"] * len(sizes))})
    (run.folder / text_changes.FOLDER).mkdir()
    for position, size in enumerate(sizes):
        (run.folder / text_changes.FOLDER / f"{position:06d}.jpg").write_bytes(bytes(size))
    return run


def test_a_page_shows_24_lines_of_500_kb_together(tmp_path: Path) -> None:
    """To the byte; what is behind one that has no room may fit."""
    assert len(text_gallery.list_lines(many_lines(tmp_path / "many", *[10] * 26)).pictures) == 24
    large = text_gallery.list_lines(many_lines(tmp_path / "large", 300_000, 200_001, 200_000))
    assert [picture.id for picture in large.pictures] == ["line 0", "line 2"]


def test_a_table_has_16_searches_and_12_documents(tmp_path: Path) -> None:
    """Of those that changed."""
    queries = 17
    run = make_run(tmp_path / "s", "recall@1", {FP32: searches(*[0] * queries), CASE: searches(*[1] * queries)})
    assert len(search_changes.list_searches(run).table.rows) == 16
    documents = 13
    run = make_run(
        tmp_path / "t", "token_flips", {FP32: tokens(*[[0, 1, 2]] * documents), CASE: tokens(*[[0, 1, 3]] * documents)}
    )
    assert len(token_changes.list_tokens(run).table.rows) == 12


def test_words_of_these_tables_stand_to_the_left() -> None:
    """Also where they are empty; of tokens only names are words."""
    assert search_changes.ChangedSearches().table.words == (0, 1, 2, 3, 4)
    assert token_changes.ChangedTokens().table.words == (0, 3)
