"""What a suite must say of lines of text, and of a recognizer's outputs, read from what lies there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench.datasets.csv_file import read_header
from qbench.errors import DataError
from qbench.first_suite.model_facts import ModelFacts

COLUMNS = ("image", "text")
WIDTH, HEIGHT = 320, 48  # where a file leaves them free, as PaddleOCR has them
_READ = '''"""Texts of the outputs of {name}: of each step the best letter, by CTC.

Written by `qbench init`. The letters are the file's own list, behind a blank and before a space, as PaddleOCR has them.
"""

from pathlib import Path

from qbench.models.ctc import BestPath, read_alphabet

read = BestPath(read_alphabet(Path(__file__).parent / {file}))
'''


def has_lines(path: Path) -> bool:
    """Whether a CSV file names images and their texts; another data set says what is wrong with it."""
    try:
        return set(COLUMNS) <= set(read_header(path))
    except DataError:
        return False


def choose_line_options(model: ModelFacts) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The options with which lines become what the model takes, and what was assumed."""
    image = next((entry.image for entry in model.inputs if entry.image), None)
    channels, height, width, last = image or (3, None, None, False)
    options: dict[str, Any] = {"size": [height or HEIGHT, width or WIDTH]}
    options |= {"channels": channels} if channels != 3 else {}
    options |= {"layout": "nhwc"} if last else {}
    notes = ["pixels are -1 to 1, a line is padded: write size, mean, std and fit as in training"]
    if not height or not width:
        notes.append(f"the model leaves its size free: {options['size']} was assumed; longer lines are squeezed")
    if model.letters is not None and channels == 3:
        options["order"] = "bgr"
        notes.append("colours are blue first, as PaddleOCR reads images")
    return options, tuple(notes)


def write_reading(model: ModelFacts) -> tuple[str, str] | None:
    """Name and text of the Python file that makes texts of the outputs: of (n, steps, letters) where the model's file
    lists its letters; None elsewhere."""
    sizes = model.output_sizes
    if model.letters is None or model.file is None or len(sizes) != 3 or sizes[2] not in (None, model.letters + 1):
        return None
    name = f"{model.name.replace('-', '_').replace('.', '_')}_texts.py"
    return name, _READ.format(name=model.name, file=json.dumps(model.file))
