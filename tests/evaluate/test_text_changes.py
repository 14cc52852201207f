"""Rules of qbench/evaluate/text_changes.py: which texts changed, which lines are drawn, what a report shows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, fp32, info, int8
from made_runs import HOSTILE, Page, Raw, quiet, run_folder, write_with_predictions
from PIL import Image

from qbench.datasets.text_labels import join_texts
from qbench.evaluate import kept_pictures, text_changes
from qbench.evaluate.text_changes import list_changes, read_texts
from qbench.metrics.base import ANSWERS
from qbench.record import jsonl
from qbench.record.stored_run import MetricInfo
from qbench.report import text_gallery
from qbench.report.build import build_report
from qbench.report.text_gallery import Piece, split_pieces

REFERENCES = ("paid on", "RATE", "No.25", "", "the same", "total 3")
WRITTEN = ("paid on", "RATE", "No.26", "", "the sane", "total 3")
CHANGED = ("pald on ", "RATE", "No.25", "x", "the sale", "")


def stored(written: tuple[str, ...], references: tuple[str, ...] = REFERENCES) -> dict[str, np.ndarray]:
    """Predictions of texts."""
    scores = np.zeros((len(written), 4, 9), np.float32)
    return {"outputs": scores, ANSWERS: join_texts(written).astype(np.float32), "labels": join_texts(references)}


def changes(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[text_changes.TextChange, ...]:
    """What differs."""
    pair = read_texts(stored(ours)), read_texts(stored(theirs))
    assert pair[0] is not None
    assert pair[1] is not None
    return list_changes(*pair)


def test_changed_texts_are_listed_with_their_edits() -> None:
    """Those with most edits between fp32 and int8 first; white space at the ends is no change."""
    listed = changes(CHANGED, WRITTEN)
    assert [(each.position, each.edits, each.edits_of_fp32, each.edits_of_int8) for each in listed] == [
        (5, 7, 0, 7),
        (0, 1, 0, 1),
        (2, 1, 1, 0),
        (3, 1, 0, 1),
        (4, 1, 1, 1),
    ]
    assert (listed[1].fp32, listed[1].int8, listed[1].reference) == ("paid on", "pald on", "paid on")
    assert changes(WRITTEN, WRITTEN) == ()


@pytest.mark.parametrize(
    "predictions",
    [
        {},
        {"outputs": np.zeros((3, 10)), "labels": np.zeros(3, int)},
        {"outputs": np.full((3, 10), 0.5), "labels": np.zeros((3, 4), int)},
        {"outputs": np.zeros((3, 10)), "labels": np.zeros((3, 4))},
        {"outputs": np.zeros((2, 10)), "labels": np.zeros((3, 4), int)},
    ],
)
def test_other_answers_are_no_texts(predictions: dict[str, Any]) -> None:
    """Classes, scores, and what is damaged."""
    assert read_texts(predictions) is None


@pytest.mark.parametrize(
    ("text", "reference", "pieces"),
    [
        ("ab", "ab", [("ab", "same")]),
        ("axb", "ab", [("a", "same"), ("x", "wrong"), ("b", "same")]),
        ("b", "ab", [("a", "missing"), ("b", "same")]),
        ("xbc", "abc", [("a", "missing"), ("x", "wrong"), ("bc", "same")]),
        ("xyzc", "abc", [("xyzc", "wrong")]),
        ("abcxy", "abcuv", [("abc", "same"), ("uv", "missing"), ("xy", "wrong")]),
        ("", "", []),
        ("", "ab", []),
        ("x" * 500, "", [("x" * 160, "wrong")]),
    ],
)
def test_pieces_tell_what_stands_there(text: str, reference: str, pieces: list[tuple[str, str]]) -> None:
    """Of the reference, not of it, or missing; where little is alike the text stands as it is."""
    assert list(split_pieces(text, reference)) == [Piece(text=part, kind=kind) for part, kind in pieces]  # type: ignore[arg-type]


def made_run(
    folder: Path, ours: dict[str, Any], theirs: dict[str, Any], ids: list[str], metric: str = "cer"
) -> list[tuple[Path, Path]]:
    """A run folder of an fp32 and an int8 case with these predictions; the pair of their files."""
    run_folder(folder, [], info((FP32, CASE), metric=MetricInfo(name=metric)))
    names = {"ids": np.array(ids)}
    records = [
        write_with_predictions(folder, fp32(), theirs | names),
        write_with_predictions(folder, int8(accuracy=accuracy()), ours | names),
    ]
    jsonl.write(folder / "records.jsonl", records)
    return [(folder / str(records[1].predictions), folder / str(records[0].predictions))]


def lines(width: int = 100) -> np.ndarray:
    """Images of lines: noise at the left, grey behind it."""
    images = np.full((len(REFERENCES), 3, 48, 320), 128, dtype=np.uint8)
    images[:, :, :, :width] = np.random.default_rng(0).integers(0, 256, (len(REFERENCES), 3, 48, width), dtype=np.uint8)
    return images


IDS = [f"line/{number}" for number in range(len(REFERENCES))]


def test_lines_whose_text_changed_are_kept_without_their_padding(tmp_path: Path) -> None:
    """Each once, by its position; a line of one colour is kept as it is."""
    images = lines()
    images[5] = 128
    pairs = made_run(tmp_path / "run", stored(CHANGED), stored(WRITTEN), IDS)
    told: list[tuple[str, float]] = []
    kept = kept_pictures.keep_here(
        pairs * 2, Raw((images,)), tmp_path / "run", progress=lambda *step: told.append(step)
    )
    assert kept == 5
    assert told[-1] == ("keep pictures of lines whose text changed", 0.8)
    assert sorted(file.name for file in (tmp_path / "run" / "lines").iterdir()) == [
        "000000.jpg",
        "000002.jpg",
        "000003.jpg",
        "000004.jpg",
        "000005.jpg",
    ]
    for position, width in ((0, 100), (5, 320)):
        stored_line = text_changes.find_stored(tmp_path / "run", position)
        assert stored_line is not None
        with Image.open(io.BytesIO(stored_line[1])) as picture:
            assert (stored_line[0], picture.size) == ("image/jpeg", (width, 48))
    assert text_changes.find_stored(tmp_path / "run", 1) is None


def test_where_no_text_changed_there_is_no_folder(tmp_path: Path) -> None:
    """And nothing is told of one."""
    told: list[str] = []
    pairs = made_run(tmp_path / "run", stored(WRITTEN), stored(WRITTEN), IDS)
    keep = text_changes.keep_here(pairs, Raw((lines(),)), tmp_path / "run", progress=lambda text, _: told.append(text))
    assert (keep, told) == (0, [])
    assert not (tmp_path / "run/lines").exists()


def test_only_the_largest_changes_of_a_variant_are_kept(tmp_path: Path) -> None:
    """A large and wide line becomes a small picture."""
    count = 12 + 3
    ours, theirs = ("ab" * number for number in range(count)), ("",) * count
    pairs = made_run(tmp_path / "run", stored(tuple(ours), theirs), stored(theirs, theirs), ["a"] * count)
    images = np.random.default_rng(0).integers(0, 256, (count, 1, 100, 1200), dtype=np.uint8)
    assert text_changes.keep_here(pairs, Raw((images,)), tmp_path / "run", progress=quiet) == 12
    kept = text_changes.find_stored(tmp_path / "run", count - 1)
    assert kept is not None
    with Image.open(io.BytesIO(kept[1])) as picture:
        assert picture.size == (480, 40)
        assert picture.quantization[0][0] == 5  # type: ignore[attr-defined]  # JPEG of quality 85: 16 by 30 %
    square = np.random.default_rng(0).integers(0, 256, (100, 100, 1), dtype=np.uint8)
    with Image.open(io.BytesIO(text_changes.draw_line(square)[1])) as picture:
        assert picture.size == (64, 64)


def test_without_images_there_is_nothing_to_keep(tmp_path: Path) -> None:
    """Texts of sounds."""
    pairs = made_run(tmp_path / "run", stored(CHANGED), stored(WRITTEN), IDS)
    assert text_changes.keep_here(pairs, Raw((np.zeros((6, 5)),)), tmp_path / "run", progress=quiet) == 0


def test_a_report_shows_both_texts_beside_the_line(tmp_path: Path) -> None:
    """With what is wrong and what is missing, and how many changed; the right text is told as such."""
    pairs = made_run(tmp_path / "run", stored(CHANGED), stored(WRITTEN), IDS)
    kept_pictures.keep_here(pairs, Raw((lines(),)), tmp_path / "run", progress=quiet)
    text = build_report(tmp_path / "run").read_text(encoding="utf-8")
    page = Page(text)
    assert [image["alt"] for image in page.all("img")] == [f"line line/{number}" for number in (5, 0, 2, 3, 4)]
    assert "5 of 6 texts changed, 3 for the worse and 1 for the better" in text
    assert "<q>pa<del>i</del><ins>l</ins>d on</q>" in text
    assert "<q>No.2<del>5</del><ins>6</ins></q>" in text
    assert '<dd class="good"><q>No.25</q> (right)</dd>' in text
    assert "<dt>stands there</dt><dd>nothing</dd>" in text
    assert 'class="good">nothing (right)</dd>' in text


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    """Of the reference, of both variants, and of the name."""
    names = [HOSTILE.replace("\x00", "")] * 6
    hostile = stored((*CHANGED[:5], "<script>alert(1)</script>\u202e"), (*REFERENCES[:5], "<img src=x>"))
    pairs = made_run(tmp_path / "run", hostile, stored(WRITTEN, (*REFERENCES[:5], "<img src=x>")), names)
    kept_pictures.keep_here(pairs, Raw((lines(),)), tmp_path / "run", progress=quiet)
    text = build_report(tmp_path / "run").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.all("script")) == 1
    assert all(set(image) == {"src", "alt"} for image in page.all("img"))
    assert "\u202e" not in text


def test_a_run_without_pictures_tells_the_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder came without them, or a page has no room."""
    pairs = made_run(tmp_path / "run", stored(CHANGED), stored(WRITTEN), IDS)
    text = build_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "5 of 6 texts changed" in text
    assert Page(text).all("img") == []
    kept_pictures.keep_here(pairs, Raw((lines(),)), tmp_path / "run", progress=quiet)
    monkeypatch.setattr(text_gallery, "MOST_LINES", 2)
    assert len(Page(build_report(tmp_path / "run").read_text(encoding="utf-8")).all("img")) == 2


def test_predictions_of_other_runs_are_not_read(tmp_path: Path) -> None:
    """They may be large; with a score of the user's own the pictures that were kept tell that there are texts."""
    pairs = made_run(tmp_path / "run", stored(CHANGED), stored(WRITTEN), IDS, "python:score.py:fn")
    assert "texts changed" not in build_report(tmp_path / "run").read_text(encoding="utf-8")
    kept_pictures.keep_here(pairs, Raw((lines(),)), tmp_path / "run", progress=quiet)
    assert "5 of 6 texts changed" in build_report(tmp_path / "run").read_text(encoding="utf-8")
