"""Rules of qbench/report/search_changes.py: first hits of stored embeddings, and those that a report tells of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, fp32, info, int8
from made_runs import HOSTILE, Page, run_folder, write_with_predictions

from qbench.metrics.retrieval import mrr_at
from qbench.record import jsonl
from qbench.record.stored_run import MetricInfo, read_run
from qbench.report import search_changes
from qbench.report.build import build_report
from qbench.report.search_changes import read_hits

# Three documents along the axes, then three queries; each query's relevant document is that of its own number.
DOCUMENTS = np.eye(3)
LABELS = np.full((6, 2, 2), -1)
LABELS[:3, 0, 0] = [7, 8, 9]
LABELS[3:, 1] = [[7, 1], [8, 1], [9, 2]]
IDS = ["document a: first", "document b: second", "document c: third", "query 1: x", "query 2: y", "query 3: z"]


def stored(*queries: tuple[float, float, float]) -> dict[str, np.ndarray]:
    """Predictions of embeddings."""
    return {"outputs": np.concatenate([DOCUMENTS, np.array(queries)]).astype(np.float32), "labels": LABELS}


FP32_QUERIES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 1.0, 0.9))
INT8_QUERIES = ((0.4, 0.5, 0.0), (0.0, 90.0, 0.0), (0.0, 0.8, 0.9))


def test_first_hits_are_those_that_the_scores_rank_first() -> None:
    """By the cosine, whatever the lengths; of equal ones the earlier document."""
    hits = read_hits(stored(*INT8_QUERIES))
    assert hits is not None
    assert hits.hits == {3: 1, 4: 1, 5: 2}
    assert hits.relevant == {3: {0}, 4: {1}, 5: {2}}
    tied = read_hits(stored((1, 1, 0), (0, 0, 0), (0, 2, 2)))
    assert tied is not None
    assert tied.hits == {3: 0, 4: 0, 5: 1}
    random = np.random.default_rng(0)
    outputs, labels = random.standard_normal((400, 8)), np.full((400, 2, 2), -1)
    labels[:100, 0, 0] = random.permutation(100)
    labels[100:, 1] = np.stack([random.integers(0, 100, 300), np.ones(300)], axis=1)
    read = read_hits({"outputs": outputs, "labels": labels})
    assert read is not None
    right = [hit in read.relevant[query] for query, hit in read.hits.items()]
    assert np.mean(right) == pytest.approx(mrr_at("1").value(outputs, labels))


@pytest.mark.parametrize(
    "predictions",
    [
        {},
        {"outputs": np.zeros((3, 10)), "labels": np.zeros(3, int)},
        {"outputs": np.zeros((3, 10)), "labels": np.zeros((3, 2, 2))},
        {"outputs": np.zeros((3, 10)), "labels": np.zeros((3, 2, 2), int)},
        {"outputs": np.full((6, 3), np.nan), "labels": LABELS},
        {"outputs": np.zeros((5, 3)), "labels": LABELS},
    ],
)
def test_other_answers_are_no_search(predictions: dict[str, Any]) -> None:
    """Classes, documents without a query, and what is damaged."""
    assert read_hits(predictions) is None


def made_run(folder: Path, ids: list[str], metric: str = "ndcg@10") -> Path:
    """A run folder of an fp32 and an int8 case."""
    run_folder(folder, [], info((FP32, CASE), metric=MetricInfo(name=metric)))
    names = {"ids": np.array(ids)}
    records = [
        write_with_predictions(folder, fp32(), stored(*FP32_QUERIES) | names),
        write_with_predictions(folder, int8(accuracy=accuracy()), stored(*INT8_QUERIES) | names),
    ]
    jsonl.write(folder / "records.jsonl", records)
    return folder


def test_a_report_shows_the_queries_with_another_first_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they ask, both hits and which is relevant; those that lost a relevant one first."""
    folder = made_run(tmp_path / "run", IDS)
    text = build_report(folder).read_text(encoding="utf-8")
    assert "2 of 3 queries have another first hit; 1 lost a relevant one, 1 found one" in text
    table = text[text.index('id="searches"') :]
    table = table[: table.index("</section>")]
    cells = [">1<", ">x<", "a: first (relevant)", "b: second", ">3<", ">z<", "b: second", "c: third (relevant)"]
    places = []
    for cell in cells:
        places.append(table.index(cell, places[-1] + 1 if places else 0))
    assert places == sorted(places)
    assert ">y<" not in table
    assert 'id="searches"' not in build_report(made_run(tmp_path / "other", IDS, "cosine")).read_text(encoding="utf-8")
    monkeypatch.setattr(search_changes, "MOST_QUERIES", 1)
    assert ">z<" not in build_report(folder).read_text(encoding="utf-8")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Of queries and of documents."""
    folder = made_run(tmp_path / "run", [HOSTILE.replace("\x00", "")] * 6)
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    assert len(page.all("script")) == 1
    assert page.all("img") == []


def test_what_has_no_id_is_told_by_its_place(tmp_path: Path) -> None:
    """A document; a query without one asks nothing that could be shown."""
    folder = made_run(tmp_path / "run", IDS[:4])
    table = search_changes.list_searches(read_run(folder)).table
    assert [row[0] for row in table.rows] == ["1"]
    change = search_changes._Change(query=0, fp32=1, int8=0, fp32_is_right=False, int8_is_right=False)
    row = search_changes._make_row(change, ("query 1: x",), ["a", "b"])
    assert row == ("1", "x", "1", "query 1: x", "a, b")
