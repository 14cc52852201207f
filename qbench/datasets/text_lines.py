"""Images of lines with their texts: ``{text-lines: lines.csv}``, a CSV of the columns ``image`` and ``text``.

An image is a path below the file's folder, a text what stands there, as it is; it may be empty. A column ``split`` says
which split a row belongs to, else the rows are split into train and test by ``seed`` and ``test_share``, an image never
on both sides. A folder has one file a split, ``train.csv``, ``test.csv``.

Lines are of different lengths and a network's input is not: each is scaled to the height of ``size`` ([48, 320]). With
``fit: pad`` (the default) a shorter one lies at the left and behind it is what the network is given as 0, a longer one
is squeezed, as PaddleOCR does it; ``fit: stretch`` makes each as wide. ``mean`` and ``std`` are 0.5, PaddleOCR's.
Other options are those of ``image-folder`` and, of the file, of ``csv``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Dataset, Examples, positions
from qbench.datasets.csv_source import Source, list_files, open_source
from qbench.datasets.image import is_below, read_lines, read_preprocessing, shape_of
from qbench.datasets.option_values import LINE_FITS
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.text_labels import join_texts
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError, first_names

NAME = "text-lines"
KEYS = ("image", "text", "split")
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class TextLine:
    """An image file, what stands on it, and the line of the CSV that says so."""

    file: Path
    text: str
    id: str


class TextLines(Dataset):
    """The files are listed when it is opened, and read when asked for; labels are texts (``datasets.text_labels``)."""

    def __init__(self, files: Mapping[str, Path], name: str, options: opt.TextLinesOptions) -> None:
        self.name = name
        self.shape, self._stretch = shape_of(options), options.fit == LINE_FITS[1]
        self.preprocessing = read_preprocessing(options)
        self._padding = _find_padding(self.preprocessing, self.shape.channels)
        sources = {split: open_source(file, options, KEYS, label_needed=True) for split, file in files.items()}
        lone = sources.get("")
        self.lines = (
            {split: _list_lines(source) for split, source in sources.items()}
            if lone is None
            else _split_lines(lone, options)
        )
        self.splits = tuple(self.lines)

    def load(self, split: str) -> Examples:
        """All lines of a split; ids are ``<image>`` as the file names it."""
        return self.sample(split, None, 0)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` lines drawn by ``seed``; the others are not read."""
        require_split(self, split)
        where = f"{self.name}: split '{split}'"
        try:
            count = self.count(split)
            chosen = range(count) if samples is None else positions(count, samples, seed)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        lines = [self.lines[split][int(place)] for place in chosen]
        files = [line.file for line in lines]
        images = read_lines(files, self.shape, stretch=self._stretch, padding=self._padding, where=where)
        longest = max(1, *(len(line.text) for line in self.lines[split]))  # the same for any draw of them
        labels = join_texts([line.text for line in lines], longest)
        examples = Examples(inputs=(images,), labels=labels, ids=tuple(line.id for line in lines))
        check_dataset(self, split, examples)
        return examples

    def count(self, split: str) -> int:
        """The lines of a split."""
        require_split(self, split)
        return len(self.lines[split])


def _find_padding(preprocessing: Preprocessing, channels: int) -> tuple[int, ...]:
    """Of each channel the byte that becomes 0, as nearly as one can."""
    means = np.broadcast_to(np.asarray(preprocessing.mean) / preprocessing.scale, channels)
    padding = [int(np.clip(round(float(mean)), 0, 255)) for mean in means]
    return tuple(padding[::-1] if preprocessing.reverse_channels else padding)


def _split_lines(source: Source, options: opt.TextLinesOptions) -> dict[str, list[TextLine]]:
    """The lines of each split, as its column names it, or by ``seed`` and ``test_share``."""
    lines = _list_lines(source)
    if source.split is not None:
        index = source.index_splits(source.rows())
        return {split: [lines[int(place)] for place in places] for split, places in index.items()}
    files = list(dict.fromkeys(line.file for line in lines))
    if len(files) < 2:
        raise DataError(f"{NAME}: {source.file}: one image cannot be split into train and test")
    index = split_by_share(np.zeros(len(files)), test_share=options.test_share, seed=options.seed)
    chosen = {split: {files[int(place)] for place in index[split]} for split in SPLITS}
    return {split: [line for line in lines if line.file in chosen[split]] for split in SPLITS}


def _list_lines(source: Source) -> list[TextLine]:
    """The rows of a file; raises ``DataError`` that lists the images that are not there."""
    folder, rows = source.file.parent, source.rows()
    missing = [f"line {row.line}: {row.text}" for row in rows if not is_below(folder, row.text)]
    if missing:
        raise DataError(
            f"{source.file}: {len(missing)} of {len(rows)} images are not below {folder}: "
            f"{first_names(missing, SHOWN)}; write each path as it is from there"
        )
    return [TextLine(file=folder / row.text, text=row.label or "", id=row.text) for row in rows]


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The file's or folder's splits; reads the lists, no image."""
    keys = opt.read(opt.TextLinesOptions, options)
    source = opt.read_path(NAME, value, base)
    return TextLines(list_files(NAME, source), f"{NAME}:{value}", keys)
