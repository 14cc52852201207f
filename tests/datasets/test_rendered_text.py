"""Rendered lines and pages: the same everywhere but for the drawing of letters, with the texts and boxes of what stands
there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench import registry
from qbench.datasets import rendered_text
from qbench.datasets.base import Dataset
from qbench.errors import DataError
from qbench.metrics.texts import read_text


def opened(value: str | None = None) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "rendered-text")(value, base=Path(), options={})
    return dataset


def test_texts_are_the_same_everywhere() -> None:
    """The words stand in the file; only letters are drawn by Pillow."""
    labels = np.asarray(opened().sample("test", 500, 0).labels)
    assert [read_text(row) for row in labels[:4]] == ["#680188 day", "for mill", "building", "station cash"]
    assert labels.shape == (500, 24)
    assert 8 < (labels >= 0).sum() / len(labels) < 14
    assert len({read_text(row) for row in labels}) > 480


def test_a_line_lies_at_the_left_on_what_becomes_0() -> None:
    """Of the height of the image; behind it is grey, which preprocessing makes 0."""
    dataset = opened()
    images = dataset.sample("test", 20, 0).inputs[0]
    assert images.shape[1:] == (3, 48, 320)
    behind = (images == rendered_text.GREY).all(axis=(1, 2))
    widths = [int(np.flatnonzero(~columns).max()) + 1 for columns in behind]
    assert 60 < min(widths) < max(widths) <= 320
    assert all(columns[width:].all() for columns, width in zip(behind, widths, strict=True))
    (values,) = dataset.preprocessing((images,))
    assert abs(values[:, :, :, -1]).min() == pytest.approx(0, abs=1 / 200)
    assert (values.min(), values.max()) == pytest.approx((-1, 1), abs=0.05)


def test_boxes_of_a_page_hold_its_letters() -> None:
    """Letters differ from the paper inside of the boxes; where there is no box is paper, but for noise and shade,
    behind which faint letters may drown."""
    dataset = opened("pages")
    examples = dataset.sample("test", 12, 0)
    assert dataset.classes == 1
    spread = []
    for image, rows in zip(examples.inputs[0], np.asarray(examples.labels), strict=True):
        inside = np.zeros(image.shape[1:], dtype=bool)
        for left, top, right, bottom, kind, _ in rows[rows[:, 4] >= 0]:
            assert 0 <= left < right <= rendered_text.PAGE
            assert 0 <= top < bottom <= rendered_text.PAGE
            assert kind == 0
            inside[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
        grey = image.astype(float).mean(axis=0)
        assert 0 < inside.mean() < 0.6
        spread.append(grey[inside].std() / grey[~inside].std())
    assert np.mean(np.array(spread) > 1) > 0.8
    assert np.median(spread) > 2


def test_splits_share_no_example_and_a_few_are_drawn_alone() -> None:
    """An example is drawn from its own seed."""
    train, test = (opened().load(split) for split in ("train", "test"))
    assert not {image.tobytes() for image in train.inputs[0]} & {image.tobytes() for image in test.inputs[0]}
    chosen = opened().sample("test", 3, 1)
    places = [test.ids.index(name) for name in chosen.ids]
    assert np.array_equal(chosen.inputs[0], test.inputs[0][places])


def test_only_two_kinds_are_there() -> None:
    """Lines where nothing is said."""
    assert (opened().name, opened("pages").name) == ("rendered-text:lines", "rendered-text:pages")
    with pytest.raises(DataError, match=r"expected lines or pages, got 'words'; write \{rendered-text: lines\}"):
        opened("words")


def test_letters_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where matplotlib came without them."""
    monkeypatch.setattr(rendered_text.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"letters \(DejaVuSans.ttf and others\) are not there; reinstall matplotlib"):
        opened()
