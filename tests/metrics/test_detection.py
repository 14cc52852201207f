"""Scores of boxes: as pycocotools and faster-coco-eval count them, and what is said where they cannot be."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import numpy as np
import pytest

from qbench.datasets import boxes
from qbench.evaluate.one_output import score_predictions
from qbench.metrics import box_overlaps, detection
from qbench.metrics.detection import AP50, MAP


def scenes(seed: int, most: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Boxes found near objects, or elsewhere, with scores that tie; crowds, empty images and rows that are no boxes."""
    random = np.random.RandomState(seed)
    n, objects, count, classes = (
        random.randint(1, 8),
        random.randint(1, 6),
        random.randint(1, most),
        random.randint(1, 4),
    )
    corners = random.randint(0, 60, (n, objects, 2))
    sides = random.randint(0, 40, (n, objects, 2))
    kinds, crowds = random.randint(-1, classes, (n, objects, 1)), random.random_sample((n, objects, 1)) < 0.3
    labels = np.concatenate([corners, corners + sides, kinds, crowds], axis=2).astype(np.float32)
    near = labels[:, random.randint(0, objects, count)][..., :4] + random.randint(-4, 5, (n, count, 4))
    near[..., 2:] = np.maximum(near[..., 2:], near[..., :2])
    scores, chosen = random.randint(0, 5, (n, count, 1)) / 4, random.randint(-1, classes, (n, count, 1))
    labels[0, 0, 4:], chosen[0, 0] = 0, 0  # one object that counts, and one box
    return np.concatenate([near, scores, chosen], axis=2).astype(np.float32), labels


def reference(library: str, outputs: np.ndarray, labels: np.ndarray) -> list[float]:
    """mAP and AP50 of a library's own evaluation."""
    module = pytest.importorskip(library, reason=f"needs {library} (extra test)")
    if library == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval as Evaluation
    else:
        COCO, Evaluation = module.COCO, module.COCOeval_faster
    annotations: list[dict[str, Any]] = []
    for image, rows in enumerate(labels.astype(float), 1):
        for x1, y1, x2, y2, kind, crowd in rows[rows[:, 4] >= 0].tolist():
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image, "category_id": int(kind) + 1, "iscrowd": int(crowd)}
                | {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
            )
    detections = [
        {"image_id": image, "category_id": int(kind) + 1, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
        for image, rows in enumerate(outputs.astype(float), 1)
        for x1, y1, x2, y2, score, kind in rows[rows[:, 5] >= 0].tolist()
    ]
    kinds = range(1, int(max(outputs[..., 5].max(), labels[..., 4].max())) + 2)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": image + 1, "width": 100, "height": 100} for image in range(len(labels))],
            "annotations": annotations,
            "categories": [{"id": kind, "name": str(kind)} for kind in kinds],
        }
        truth.createIndex()
        evaluation = Evaluation(truth, truth.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [float(value) for value in evaluation.stats[:2]]


@pytest.mark.parametrize("library", ["pycocotools", "faster_coco_eval"])
@pytest.mark.parametrize("seed", range(30))
def test_scores_are_those_of_the_libraries(library: str, seed: int) -> None:
    """On random scenes, with crowds, ties, and more boxes than count, to 1e-9."""
    outputs, labels = scenes(seed, most=130 if seed % 5 == 0 else 12)
    expected = reference(library, outputs, labels)
    assert [MAP.value(outputs, labels), AP50.value(outputs, labels)] == pytest.approx(expected, abs=1e-9)


def test_an_image_more_or_less_is_that_row_more_or_less() -> None:
    """A score of some images follows from their rows, in any order and as often as they are drawn."""
    outputs, labels = scenes(3)
    facts, drawn = MAP.facts(outputs, labels), np.array([0, 0, len(outputs) - 1])
    assert MAP.of_facts(facts[drawn]) == pytest.approx(MAP.value(outputs[drawn], labels[drawn]))
    filled = np.pad(facts, [(0, 0), (0, 7), (0, 0)], constant_values=-1)
    assert MAP.of_facts(filled) == MAP.of_facts(facts), "rows of -1 say nothing"
    assert MAP.of_facts(facts[:0]) == 0.0


def test_data_sets_and_scores_agree_on_what_a_box_is() -> None:
    """They do not import each other."""
    assert (boxes.COLUMNS, boxes.CLASS, boxes.CROWD) == (box_overlaps.COLUMNS, detection._LABEL_CLASS, detection._CROWD)
    assert (boxes.NO_BOX[:, detection._LABEL_CLASS] < 0).all()


def moved(share: float, n: int = 60) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Predictions with exact boxes, and with that share of them 3 pixels beside."""
    random = np.random.default_rng(0)
    corners = random.integers(0, 60, (n, 2, 2)).astype(np.float32) + np.array([[0, 0], [100, 100]], dtype=np.float32)
    objects = np.concatenate([corners, corners + 20, np.zeros((n, 2, 1)), np.zeros((n, 2, 1))], axis=2)
    exact = np.concatenate([objects[..., :4], random.random((n, 2, 1)), np.zeros((n, 2, 1))], axis=2)
    beside = exact.copy()
    beside[..., :4] += np.where(random.random((n, 2, 1)) < share, 3.0, 0.0)
    labels = objects.astype(np.float32)
    return {"outputs": beside.astype(np.float32), "labels": labels}, {
        "outputs": exact.astype(np.float32),
        "labels": labels,
    }


def test_a_change_has_paired_limits() -> None:
    """Over images, both variants on the same ones: a loss is told from none, and equal answers have a narrow limit."""
    ours, fp32 = moved(0.3)
    worse = score_predictions(MAP, ours, fp32, 1).delta
    assert worse is not None
    assert worse.high is not None
    assert worse.value < worse.high < 0
    equal = score_predictions(MAP, fp32, fp32, 1).delta
    assert equal is not None
    assert equal.value == 0
    assert equal.low is not None
    assert -0.1 < equal.low <= 0


def test_variants_that_find_another_number_of_boxes_are_compared() -> None:
    """One finds one box an image, the other two."""
    ours, fp32 = moved(0.0)
    fewer = {**ours, "outputs": ours["outputs"][:, :1]}
    delta = score_predictions(MAP, fewer, fp32, 1).delta
    assert delta is not None
    assert -0.6 < delta.value < -0.4


BOXES, OBJECTS = np.zeros((2, 3, 6), np.float32), np.zeros((2, 1, 6), np.float32)


@pytest.mark.parametrize(
    ("outputs", "labels", "classes", "words"),
    [
        (np.zeros((2, 7, 180)), OBJECTS, 3, "write `postprocess: {python: file.py:function}` beside the model"),
        (np.zeros((2, 10)), OBJECTS, 3, r"takes boxes \(n, boxes, 6\): x1, y1, x2, y2, score, class"),
        (BOXES, np.zeros(2, int), 3, "labels are int64 of shape"),
        (BOXES, np.zeros((2, 4, 6), int), 3, "as the data sets coco and shapes give them"),
        (BOXES, np.full((2, 1, 6), -1, np.float32), 3, "no image has a box"),
        (BOXES, np.zeros((2, 4, 5), np.float32), 3, r"labels are float32 of shape \(2, 4, 5\)"),
        (BOXES, OBJECTS + np.array([0, 0, 0, 0, 0, 1], np.float32), 3, "no image has a box"),  # of a crowd alone
        (BOXES + 0.5, OBJECTS, None, "a box has the class 0.5; expected whole numbers"),
        (np.array([[[0] * 5 + [0.5], [0] * 5 + [2]]] * 2), OBJECTS, 3, "a box has the class 0.5; expected whole"),
        (BOXES + 3, OBJECTS, 3, "a box has the class 3; expected whole numbers, 0 to 2"),
        (BOXES, OBJECTS, 3, None),
        (BOXES, OBJECTS, 1, None),
        (BOXES[:, :0], OBJECTS, 1, None),
    ],
)
def test_what_does_not_fit_is_told(outputs: Any, labels: Any, classes: int | None, words: str | None) -> None:
    """Each with what to do; what fits has no problem."""
    problem = MAP.problem(outputs, labels, classes)
    if words is None:
        assert problem is None
    else:
        assert re.search(words, str(problem)), problem


@pytest.mark.parametrize("seed", range(6))
def test_boxes_smaller_than_a_pixel_score_as_large_ones(seed: int) -> None:
    """Corners may be shares of an image."""
    outputs, labels = scenes(seed)
    small = [np.concatenate([rows[..., :4] * 2.0**-10, rows[..., 4:]], axis=2) for rows in (outputs, labels)]
    assert MAP.value(*small) == MAP.value(outputs, labels)


@pytest.mark.parametrize(("before", "score"), [(99, 0.01), (100, 0.0)])
def test_of_an_image_and_class_the_best_hundred_boxes_count(before: int, score: float) -> None:
    """A right one behind so many wrong ones is the hundredth, or none."""
    outputs = np.zeros((1, before + 1, 6), np.float32)
    outputs[0, :, :4], outputs[0, -1, :4] = (50, 50, 60, 60), (0, 0, 10, 10)
    outputs[0, :, 4] = np.linspace(0.9, 0.5, before + 1)
    labels = np.array([[[0, 0, 10, 10, 0, 0]]], np.float32)
    assert AP50.value(outputs, labels) == pytest.approx(score)


def test_limits_are_told_by_twenty_parts() -> None:
    """Of which it was measured that they hold the change; those by images are erratic."""
    assert (MAP.fact_score.groups, AP50.fact_score.groups) == (20, 20)
