"""Rules of qbench/evaluate/scenes.py: how a scene changed, which are drawn, and that a report shows them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, fp32, info, int8
from made_runs import HOSTILE, Page, Raw, quiet, run_folder, write_with_predictions
from PIL import Image

from qbench.evaluate import scenes
from qbench.evaluate.scenes import SceneAnswers, SceneChange, compare_scene, read_scenes
from qbench.evaluate.thumbnails import Pictures
from qbench.metrics.base import ANSWERS
from qbench.record import jsonl
from qbench.record.stored_run import read_run
from qbench.report import scene_gallery
from qbench.report.build import build_report

N = 6


def box(x: float, score: float = 0.9, kind: float = 0, size: float = 10) -> list[float]:
    return [x, 5, x + size, 5 + size, score, kind]


def boxes(*images: list[list[float]]) -> dict[str, np.ndarray]:
    """Predictions of boxes, filled up, and labels of boxes."""
    rows = np.full((len(images), 4, 6), -1, np.float32)
    for row, image in zip(rows, images, strict=True):
        row[: len(image)] = np.array(image).reshape(-1, 6)
    labels = np.zeros((len(images), 1, 6), np.float32)
    return {"outputs": np.zeros((len(images), 3), np.float32), ANSWERS: rows, "labels": labels}


def masks(seed: int, wrong: float = 0.0) -> dict[str, np.ndarray]:
    """Predictions of masks of three classes, a share of whose pixels is wrong."""
    labels = (np.arange(N * 64).reshape(N, 8, 8) // 7 % 3).astype(np.int16)
    random = np.random.default_rng(seed)
    chosen = np.where(random.random(labels.shape) < wrong * np.arange(N)[:, None, None] / N, (labels + 1) % 3, labels)
    return {"outputs": np.eye(3)[chosen].transpose(0, 3, 1, 2).astype(np.float32), "labels": labels}


def change(int8_boxes: list[list[float]], fp32_boxes: list[list[float]]) -> SceneChange:
    """How the only scene of two predictions changed."""
    ours, theirs = read_scenes(boxes(int8_boxes)), read_scenes(boxes(fp32_boxes))
    assert ours is not None
    assert theirs is not None
    return compare_scene(ours, theirs, 0)


@pytest.mark.parametrize(
    ("new", "old", "words", "size"),
    [
        ([box(5)], [box(5)], "1 the same, overlapping by 100 %", 0),
        ([box(6)], [box(5)], "1 the same, overlapping by 82 %", 2 / 11),
        ([box(6), box(41)], [box(5), box(40)], "2 the same, overlapping by 82 %", 4 / 11),
        ([box(5, kind=1)], [box(5)], "1 lost, 1 new", 2),
        ([box(5), box(40)], [box(5)], "1 new, 1 the same, overlapping by 100 %", 1),
        ([box(5, score=0.2), box(40)], [box(5), box(40)], "1 lost, 1 the same, overlapping by 100 %", 1),
        ([], [], "no box in either", 0),
    ],
)
def test_boxes_are_lost_new_or_the_same(
    new: list[list[float]], old: list[list[float]], words: str, size: float
) -> None:
    """Of one class and place; those far below the highest score are none. A change is as large as what is lost and
    new, and what does not overlap of the others."""
    changed = change(new, old)
    assert str(changed) == words
    assert changed.size == pytest.approx(size)


def test_masks_change_by_pixels() -> None:
    """The share whose class is another."""
    ours, theirs = read_scenes(masks(1, wrong=0.5)), read_scenes(masks(1))
    assert ours is not None
    assert theirs is not None
    assert compare_scene(ours, theirs, 0).size == 0
    last = compare_scene(ours, theirs, N - 1)
    assert 0.2 < last.size < 0.6
    assert str(last).endswith(" % of the pixels have another class")
    assert str(SceneChange(size=0.015, pixels=0.015)) == "1.5 % of the pixels have another class"
    assert (last.lost, last.found, last.same, last.overlap, ours.least) == (0, 0, 0, 1.0, 0.0), "there are no boxes"
    assert (ours.n, SceneAnswers().n) == (N, 0)


def test_a_box_is_shown_from_the_least_score_on() -> None:
    """Which itself is shown; rows of no class are no boxes, however sure they are."""
    rows = np.array([[box(5, score=0.5), box(40, score=0.49), box(70, kind=-1)]], np.float32)
    shown = SceneAnswers(boxes=rows, least=0.5)
    assert compare_scene(shown, SceneAnswers(boxes=rows[:, :0]), 0).found == 1


def test_a_single_channel_is_the_logit_of_the_second_class() -> None:
    """Above 0 it is that; of two channels the higher one is it."""
    logits = np.array([[-1.0, 0.0], [0.1, 2.0]])
    stored = {"labels": np.zeros((1, 2, 2), int)}
    alone = read_scenes({**stored, "outputs": logits[None, None]})
    both = read_scenes({**stored, "outputs": np.stack([np.zeros((2, 2)), logits])[None]})
    assert alone is not None
    assert both is not None
    assert alone.masks is not None
    assert both.masks is not None
    assert alone.masks.tolist() == both.masks.tolist() == [[[0, 0], [1, 1]]]


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"outputs": np.zeros((3, 10)), "labels": np.zeros(3, int)},
        {"outputs": np.zeros((3, 4, 6)), "labels": np.zeros((2, 4, 6))},
        {"outputs": np.zeros((3, 4, 6)), "labels": np.zeros((3, 6))},
        {"outputs": np.zeros((3, 0, 6)), "labels": np.zeros((3, 4, 6))},
        {"outputs": np.zeros((3, 4, 5)), "labels": np.zeros((3, 4, 6))},
        {"outputs": np.zeros((3, 2, 4, 4)), "labels": np.zeros((3, 8, 8), int)},
        {"outputs": np.zeros((3, 4, 6)), "labels": np.zeros((3, 4, 6), int)},
        {"outputs": np.zeros((3, 2, 8, 8)), "labels": np.zeros((3, 8, 8))},
        {"outputs": np.zeros((3, 6)), "labels": np.zeros((3, 4, 6))},
    ],
)
def test_other_answers_are_no_scenes(stored: dict[str, Any]) -> None:
    """Classes, numbers, and what is damaged."""
    assert read_scenes(stored) is None


def made_run(
    folder: Path, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], ids: list[str]
) -> tuple[Any, Any]:
    """A run folder of an fp32 and an int8 case with these predictions, and the pair of their files."""
    run_folder(folder, [], info((FP32, CASE)))
    names = {"ids": np.array(ids)}
    records = [
        write_with_predictions(folder, fp32(), theirs | names),
        write_with_predictions(folder, int8(accuracy=accuracy()), ours | names),
    ]
    jsonl.write(folder / "records.jsonl", records)
    return folder, [(folder / str(records[1].predictions), folder / str(records[0].predictions))]


IDS = [f"scene/{number}" for number in range(N)]


@pytest.mark.parametrize("side", [20, 90])
def test_what_changed_most_is_drawn_beside_fp32(tmp_path: Path, side: int) -> None:
    """At most four scenes of a variant, none of those that did not change, each twice as wide as it is."""
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), IDS)
    images = np.random.default_rng(1).integers(0, 256, (N, side, side, 3), dtype=np.uint8)
    assert scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet) == scenes.MOST
    files = sorted((folder / scenes.FOLDER).iterdir())
    assert [int(file.name.rsplit(".", 2)[1]) for file in files] == [2, 3, 4, 5]
    assert {file.suffix for file in files} == {".png" if side == 20 else ".jpg"}
    with Image.open(files[0]) as picture:
        assert picture.size == (2 * scenes.SIDE + 4, scenes.SIDE)


def test_boxes_are_drawn_where_they_lie(tmp_path: Path) -> None:
    """The int8 half has the frame of a box that fp32 did not find; a box without an end breaks nothing."""
    answers = boxes(*[[box(5)]] * N)
    answers[ANSWERS][0, 1] = [np.float32(3e38), 0, np.float32(-3e38), 1, 0.9, 0]
    answers[ANSWERS][0, 2:4] = [[10, 0, 5, 20, 0.9, 0], [0, 20, 30, 10, 0.9, 0]]
    folder, pairs = made_run(tmp_path / "run", answers, boxes(*[[]] * N), IDS)
    images = np.full((N, 3, 48, 48), 200, dtype=np.uint8)
    images[:, :, 0, 0] = 0
    scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet)
    ((_, media, content), *_) = scenes.list_stored(folder, pairs[0][0].name)
    pixels = np.asarray(Image.open(io.BytesIO(content)))
    assert media == "image/png"
    left, right = pixels[:, : scenes.SIDE], pixels[:, -scenes.SIDE :]
    assert not (left == scenes._COLOURS[0]).all(axis=2).any()
    down, across = np.nonzero((right == scenes._COLOURS[0]).all(axis=2))
    assert (across.min(), down.min()) == (20, 20)
    assert across.max() == pytest.approx(60, abs=1)
    frame = (right[40] == scenes._COLOURS[0]).all(axis=1)
    assert (frame[20:24].tolist(), int(frame.sum())) == ([True, True, False, False], 4), "two pixels wide"


@pytest.mark.parametrize("corners", [(10, 10, 10, 20), (10, 10, 20, 10)])
def test_a_box_without_width_or_height_is_drawn(corners: tuple[float, ...]) -> None:
    """As the line that it is."""
    half = Image.new("RGB", (32, 32))
    row = np.array([[[*corners, 0.9, 1]]], np.float32)
    pixels = np.asarray(scenes._draw(half, SceneAnswers(boxes=row), 0, 1.0))
    assert (pixels == scenes._COLOURS[1]).all(axis=2).sum() >= 11


def test_a_mask_has_half_of_its_colour() -> None:
    """127 of 255 parts of it, over what lies below."""
    half = scenes._draw(Image.new("RGB", (4, 4)), SceneAnswers(masks=np.full((1, 4, 4), 4, np.int16)), 0, 1.0)
    expected = np.array(scenes._COLOURS[3]) * 127 / 255
    np.testing.assert_allclose(np.asarray(half, dtype=float)[1, 1], expected, atol=0.6)


def test_classes_keep_their_colours() -> None:
    """Pages of two runs are looked at beside each other."""
    colours = "e64b3c 00aa5a 326ee6 eba000 9650c8 00afc8 eb5aa5 829628"
    assert " ".join(bytes(colour).hex() for colour in scenes._COLOURS) == colours


def test_only_scenes_that_changed_are_drawn(tmp_path: Path) -> None:
    """Where these are fewer than there is room for."""
    answers = boxes([box(5)], *[[]] * (N - 1))
    folder, pairs = made_run(tmp_path / "run", answers, boxes(*[[]] * N), IDS)
    images = np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8)
    assert scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet) == 1


@pytest.mark.parametrize(
    ("shape", "suffix", "size"),
    [((64, 32), ".png", (2 * 96 + 4, 192)), ((65, 32), ".jpg", (2 * 95 + 4, 192)), ((4096, 4), ".jpg", (6, 192))],
)
def test_a_scene_is_192_pixels_long(shape: tuple[int, int], suffix: str, size: tuple[int, int]) -> None:
    """Small ones as PNG, of which every pixel is kept, larger ones as JPEG of quality 85; no side is less than 1."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, *shape, 3)).astype(np.float64)
    images = Pictures(values=pixels, channels_first=False, low=0.0, high=255.0)
    nothing = SceneAnswers(masks=np.zeros((1, *shape), np.int16))
    actual, content = scenes.draw_pair(images, 0, nothing, nothing)
    with Image.open(io.BytesIO(content)) as picture:
        assert (actual, picture.size) == (suffix, size)
        if suffix == ".jpg":
            assert picture.quantization[0][0] == 5  # type: ignore[attr-defined]  # 16, the standard's, by 30 %


def test_masks_are_drawn_over_a_grey_picture() -> None:
    """Half of its colour over each pixel that has a class; the background stays as it is, and colours come again
    behind the last."""
    values = np.full((1, 6, 12, 1), 0.4)
    values[0, 0, 0] = 1.0
    images = Pictures(values=values, channels_first=False, low=0.0, high=1.0)
    mask = np.zeros((1, 6, 12), dtype=np.int16)
    mask[0, :, 4:8], mask[0, :, 8:] = 2, len(scenes._COLOURS) + 1
    suffix, content = scenes.draw_pair(images, 0, SceneAnswers(masks=mask * 0), SceneAnswers(masks=mask))
    picture = np.asarray(Image.open(io.BytesIO(content))).astype(int)
    assert (suffix, picture.shape) == (".png", (96, 2 * 192 + 4, 3))
    grey = np.array([102, 102, 102])
    assert (picture[50:, :192] == grey).all()
    assert (picture[:, 192:196] == 255).all()
    assert (picture[50:, 196:258] == grey).all()
    for place, colour in ((300, scenes._COLOURS[1]), (370, scenes._COLOURS[0])):
        np.testing.assert_allclose(picture[60, place], (grey + colour) / 2, atol=2)


def test_a_report_shows_them_with_what_changed(tmp_path: Path) -> None:
    """The largest change first, as many as there is room for; hostile names stay text."""
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), [HOSTILE.replace("\x00", "")] * N)
    images = np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8)
    scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet)
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    assert len(page.all("img")) == scenes.MOST
    assert all(set(image) == {"src", "alt"} for image in page.all("img"))
    assert len(page.all("script")) == 1
    shares = [float(str(image["alt"]).rsplit(": ", 1)[1].split(" %")[0]) for image in page.all("img")]
    assert shares == sorted(shares, reverse=True)


def test_who_watches_is_told_of_each_variant_that_is_drawn(tmp_path: Path) -> None:
    """With how many of all pictures there are before it; one that is passed over adds none."""
    images = np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8)
    classes = {"outputs": np.eye(N, dtype=np.float32), "labels": np.arange(N)}
    _, without = made_run(tmp_path / "classes", classes, classes, IDS)
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), IDS)
    told: list[tuple[str, float]] = []
    scenes.keep_here([*pairs, *without, *pairs], Raw((images,)), folder, progress=lambda *step: told.append(step))
    assert told == [("draw what int8 changes", share) for share in (0.0, 1 / 3, 1 / 3)]


def test_a_page_has_room_for_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a foreign run's folder holds beside is not taken: other names, other positions, pictures without an end."""
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), IDS)
    images = np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8)
    scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet)
    stem = pairs[0][0].stem
    for name in (f"{stem}.999999.png", f"{stem}.5.png", f"{stem}.000001.svg", "other.000001.png"):
        (folder / scenes.FOLDER / name).write_bytes(b"<svg onload=alert(1)>")
    page = build_report(folder).read_text(encoding="utf-8")
    assert page.count("<img ") == scenes.MOST
    monkeypatch.setattr(scene_gallery, "MOST_PICTURES", 1)
    assert build_report(folder).read_text(encoding="utf-8").count("<img ") == 1
    monkeypatch.setattr(scene_gallery, "MOST_BYTES", 10)
    assert "<img " not in build_report(folder).read_text(encoding="utf-8")


def test_a_picture_of_more_than_200_kb_is_left_out_and_the_rest_up_to_the_room_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One alone would be a fifth of all; what fits to the byte is shown, and what comes behind one that does not."""
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), IDS)
    images = np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8)
    scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet)
    files = sorted((folder / scenes.FOLDER).iterdir())
    for file, size in zip(files, (200_000, 200_001, 10_000, 10_000), strict=True):
        file.write_bytes(file.read_bytes().ljust(size, b"\0"))

    positions = [int(file.suffixes[-2].removeprefix(".")) for file in files]
    ids = [IDS[position] for position in positions]
    pictures = scene_gallery.list_scenes(read_run(folder))
    assert sorted(picture.id for picture in pictures) == sorted([ids[0], *ids[2:]])
    for room, count in ((220_000, 3), (219_999, 2), (10_000, 1), (9_999, 0)):
        monkeypatch.setattr(scene_gallery, "MOST_BYTES", room)
        assert len(scene_gallery.list_scenes(read_run(folder))) == count
    monkeypatch.undo()
    for most in (1, 2, 3):
        monkeypatch.setattr(scene_gallery, "MOST_PICTURES", most)
        assert len(scene_gallery.list_scenes(read_run(folder))) == most


def test_a_classifier_takes_no_pictures_from_a_detector(tmp_path: Path) -> None:
    """Files without scenes are passed over, wherever they stand in the list."""
    images = np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8)
    classes = {"outputs": np.eye(N, dtype=np.float32), "labels": np.arange(N)}
    _, without = made_run(tmp_path / "classes", classes, classes, IDS)
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), IDS)
    alone = scenes.keep_here(pairs, Raw((images,)), folder, progress=quiet)
    assert alone > 0
    assert scenes.keep_here([*without, *pairs], Raw((images,)), folder, progress=quiet) == alone


def test_features_have_no_pictures(tmp_path: Path) -> None:
    """Nor have classes of images."""
    folder, pairs = made_run(tmp_path / "run", masks(1, wrong=0.5), masks(1), IDS)
    assert scenes.keep_here(pairs, Raw((np.zeros((N, 5)),)), folder, progress=quiet) == 0
    classes = {"outputs": np.eye(N, dtype=np.float32), "labels": np.arange(N)}
    folder, pairs = made_run(tmp_path / "classes", classes, classes, IDS)
    assert (
        scenes.keep_here(
            pairs,
            Raw((np.random.default_rng(1).integers(0, 256, (N, 20, 20, 3), dtype=np.uint8),)),
            folder,
            progress=quiet,
        )
        == 0
    )
    assert not (folder / scenes.FOLDER).exists()


def test_a_page_has_room_for_48_pictures_of_a_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest change of each variant first, then the second of each."""

    def give(sizes: list[int]) -> list[str]:
        def read(run: object, predictions: str, by_file: object) -> list[tuple[float, int, scene_gallery.ScenePicture]]:
            return [
                (place, size, scene_gallery.ScenePicture(id=f"{predictions}{place}", source="", variant="", change=""))
                for place, size in enumerate(sizes)
            ]

        monkeypatch.setattr(scene_gallery, "_read_pictures", read)
        return [picture.id for picture in scene_gallery.list_scenes(None)]  # type: ignore[arg-type]

    monkeypatch.setattr(scene_gallery, "list_int8_predictions", lambda run: ["a", "b"])
    assert give([1, 1]) == ["a1", "b1", "a0", "b0"]
    assert len(give([1] * 25)) == 48
    assert len(give([100_000] * 5)) == 10
    assert len(give([100_000] * 4 + [100_001])) == 9
