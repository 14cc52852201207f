"""The report on paper: everything that the screen has folded, heads on each page, no page half empty."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest
from chromium import needs_chromium, show
from made_records import RUN_V1

from qbench.report.build import build_report

pytestmark = needs_chromium
HEAD = "variantmodelverdict"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the run of schema 1, 12 cases."""
    folder = tmp_path_factory.mktemp("paper") / "run"
    shutil.copytree(RUN_V1, folder)
    return build_report(folder)


@pytest.fixture(scope="module")
def paper(browser: Any, report: Path) -> Any:
    """That report on A4."""
    return print_page(browser, report)


def print_page(browser: Any, report: Path, script: str = "") -> Any:
    """A page as PDF, after a script has changed it."""
    import pypdfium2

    show(browser, report, width=1280)
    browser.execute_script(script)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
    return pypdfium2.PdfDocument(base64.b64decode(printed["data"]))


def texts(paper: Any) -> list[str]:
    """The letters of each page."""
    return ["".join(page.get_textpage().get_text_range().split()) for page in paper]


@pytest.mark.parametrize(
    "words",
    [
        "the share of multiply-accumulates that really run in int8",
        "Read from the artifact itself",
        "Cold start is the median over processes",
        "Written by qbench from the run's records alone",
        "matrix:",
    ],
)
def test_paper_has_what_the_screen_folds(paper: Any, words: str) -> None:
    """The legend, the layers, what else was measured, the suite, and the footer."""
    assert "".join(words.split()) in "".join(texts(paper))


def test_heads_stand_on_each_page_of_their_table(browser: Any, report: Path) -> None:
    """The rows of four times as many cases are on several pages, each below the titles."""
    more = "table.append(...[1, 2, 3].flatMap(() => [...table.tBodies].map((body) => body.cloneNode(true))))"
    sheets = texts(print_page(browser, report, more))
    rows = [text for text in sheets if "%offp32" in text and "gained" in text and "digits-cnn" in text]
    assert len(rows) > 1
    assert [HEAD in text for text in rows] == [True] * len(rows)


def test_no_page_is_half_empty(paper: Any) -> None:
    """All but the last are written on over more than half of their height."""
    filled = []
    for page in paper:
        drawn = page.render(scale=0.5, grayscale=True).to_numpy()
        dark = drawn.reshape(*drawn.shape[:2]) < 200
        rows = dark.any(axis=1).nonzero()[0]
        filled.append(rows.max() / len(dark))
    assert min(filled[:-1]) > 0.5, filled
