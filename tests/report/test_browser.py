"""The report in a real browser: nothing in the console, nothing out of sight, tables that sort."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import RUN_V1
from made_runs import Raw, flipped_run, hostile_run, quiet

from qbench.datasets.base import Preprocessing
from qbench.evaluate import thumbnails
from qbench.report.build import build_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs a browser: apt-get install chromium chromium-driver",
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium that keeps its console's log."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run of schema 1, one whose every text is hostile, and one with images of flipped examples."""
    folder = tmp_path_factory.mktemp("reports")
    shutil.copytree(RUN_V1, folder / "plain")
    hostile_run(folder / "hostile")
    flipped, pairs = flipped_run(folder / "flips")
    photos = np.random.default_rng(1).integers(0, 256, (200, 128, 96, 3), dtype=np.uint8)
    thumbnails.keep_here([*pairs, *pairs], Raw((photos,), Preprocessing(channel_axis=-1)), flipped, progress=quiet)
    return {name: build_report(folder / name, other=RUN_V1) for name in ("plain", "hostile", "flips")}


def show(browser: Any, file: Path, *, width: int, scheme: str) -> None:
    """Opens a page at a width, in a colour scheme."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(file.as_uri())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["plain", "hostile", "flips"])
def test_the_page_is_whole(browser: Any, reports: dict[str, Path], name: str, width: int, scheme: str) -> None:
    """The console stays empty, every table and drawing has a size, and the page never scrolls sideways."""
    show(browser, reports[name], width=width, scheme=scheme)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('table, figure svg')].map(e => e.getBoundingClientRect())"
        ".map(r => [r.width, r.height])"
    )
    assert len(sizes) > 4
    assert all(wide > 100 and high > 30 for wide, high in sizes)


def test_flipped_examples_are_seen(browser: Any, reports: dict[str, Path]) -> None:
    """Every image of the gallery is decoded and drawn, under the page's own policy and without a request."""
    show(browser, reports["flips"], width=1280, scheme="light")
    images = browser.execute_script(
        "return [...document.querySelectorAll('.gallery img')].map(i => [i.complete, i.naturalWidth, i.naturalHeight,"
        " i.getBoundingClientRect().width, i.getBoundingClientRect().height])"
    )
    assert images == [[True, 72, 96, 96, 96]] * 40
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_words_stay_inside_their_plot(browser: Any, reports: dict[str, Path], name: str) -> None:
    """No label of a drawing, however long the name in it, leaves the frame of its figure."""
    show(browser, reports[name], width=1280, scheme="light")
    spilled = browser.execute_script(
        "return [...document.querySelectorAll('figure svg text')].filter(text => {"
        " const inner = text.getBoundingClientRect(), outer = text.closest('figure').getBoundingClientRect();"
        " return inner.left < outer.left || inner.right > outer.right }).map(text => text.textContent)"
    )
    assert spilled == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(browser: Any, reports: dict[str, Path], scheme: str) -> None:
    """Every colour of text has at least 4.5 : 1 on what it stands on (WCAG 2.2, AA)."""
    show(browser, reports["plain"], width=1280, scheme=scheme)
    pairs = [("ink", "page"), ("ink", "card"), ("muted", "page"), ("muted", "card"), ("link", "page"), ("link", "card")]
    pairs += [(tone, ground) for tone in ("good", "bad", "unsure") for ground in ("card", f"{tone}-wash")]
    pairs += [("muted", "good-wash"), ("ink", "good-wash"), ("muted", "sunk"), ("ink", "unsure-wash")]
    low = {pair: ratio for pair in pairs if (ratio := _contrast(browser, *pair)) < 4.5}
    assert low == {}


def _contrast(browser: Any, front: str, back: str) -> float:
    lights = []
    for name in (front, back):
        value = browser.execute_script(
            "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])", f"--{name}"
        ).strip()
        parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_column_sorts_both_ways_with_dashes_last(browser: Any, reports: dict[str, Path]) -> None:
    """Enter on a column's title sorts by number, again turns it around; cells without a value stay last."""
    show(browser, reports["plain"], width=1280, scheme="light")
    head = browser.find_element("css selector", "table.cases th[data-key=speedup]")
    index = browser.execute_script("return arguments[0].cellIndex", head)
    for falling in (False, True):
        head.find_element("css selector", "button").send_keys("\n")
        cells = "[...document.querySelectorAll('table.cases tbody tr')].map(row => row.cells[arguments[0]])"
        shown = browser.execute_script(f"return {cells}.map(cell => cell.dataset.sort)", index)
        numbers = [float(value) for value in shown if value]
        assert numbers == sorted(numbers, reverse=falling)
        assert shown[-2:] == ["", ""]
        assert head.get_attribute("aria-sort") == ("descending" if falling else "ascending")
    assert browser.get_log("browser") == []


def test_the_table_is_narrowed_from_the_keyboard(browser: Any, reports: dict[str, Path]) -> None:
    """Words must all be found, a choice narrows further, and how many are left is said."""
    show(browser, reports["plain"], width=1280, scheme="light")
    tools = browser.find_element("css selector", ".tools")
    find, rows = tools.find_element("css selector", "input"), "table.cases tbody tr:not([hidden])"
    find.send_keys("static onn")
    found = [row.get_attribute("data-find") for row in browser.find_elements("css selector", rows)]
    assert found
    assert all("static" in words and "onn" in words for words in found)
    tools.find_element("css selector", "select[name=backend]").send_keys("onnxruntime")
    left = browser.find_elements("css selector", rows)
    assert {row.get_attribute("data-backend") for row in left} == {"onnxruntime"}
    assert tools.find_element("css selector", ".count").text.startswith(f"{len(left)} of ")
    assert browser.get_log("browser") == []
