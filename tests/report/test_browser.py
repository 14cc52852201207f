"""The report in a real browser: nothing in the console, nothing out of sight, tables that sort."""

from __future__ import annotations

import base64
import csv
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import needs_chromium, show
from large_run import BACKENDS, Shape, write_large_run
from made_checks import hostile_check
from made_explanations import ACCURACY
from made_history import write_history
from made_records import RUN_V1, accuracy, fp32, info, int8, latency, speedup
from made_runs import Raw, flipped_run, hostile_run, quiet, run_folder

from qbench.evaluate import thumbnails
from qbench.record.explained import keep_explained
from qbench.record.schema import Record
from qbench.report.build import build_report
from qbench.report.check_page import write_check_page
from qbench.report.history_page import build_history

pytestmark = needs_chromium
TINY_SUITE = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run of schema 1 (12 cases), one whose every text is hostile, one with images of flipped examples, one of 3
    cases, one of 24, one of names of 200 characters, one of 300 cases in 12 settings, one that loses accuracy and is
    explained, the history of a suite, and a check whose every text is hostile."""
    folder = tmp_path_factory.mktemp("reports")
    shutil.copytree(RUN_V1, folder / "plain")
    hostile_run(folder / "hostile")
    flipped, pairs = flipped_run(folder / "flips")
    photos = np.random.default_rng(1).integers(0, 256, (200, 128, 96, 3), dtype=np.uint8)
    thumbnails.keep_here([*pairs, *pairs], Raw((photos,)), flipped, progress=quiet)
    run_folder(folder / "many", many_records(), MANY_INFO)
    run_folder(folder / "few", [fp32(), int8(), int8("net/qat/onednn/t1/b1")], MANY_INFO)
    shape = Shape(modes=("static", "qat"), backends=BACKENDS[:5], models=("cnn", "lstm"), calls=2000)
    write_large_run(folder / "day", shape)
    write_large_run(folder / "long", replace(shape, models=("m" * 200, "\u05d0" * 200)))
    pages = {name: build_report(folder / name, other=RUN_V1) for name in ("hostile", "flips")}
    pages["history"] = build_history(write_history(folder / "runs", runs=9, changed=5))
    pages["check"] = folder / "check.html"
    write_check_page(hostile_check(), pages["check"])
    run_folder(folder / "wrong", [fp32(), int8(accuracy=accuracy(harmful=200))], MANY_INFO)
    layer = ACCURACY.figures.layers[0]
    layers = tuple(replace(layer, name=f"stage{number}.conv.{'x' * number}") for number in range(12))
    keep_explained(folder / "wrong", replace(ACCURACY, figures=replace(ACCURACY.figures, layers=layers)))
    names = ("plain", "many", "few", "day", "long", "wrong")
    return pages | {name: build_report(folder / name) for name in names}


MANY_INFO = replace(info(), suite=replace(info().suite, text=TINY_SUITE))


def many_records() -> list[Record]:
    """300 cases: 12 settings, one of a name of 200 characters; 24 int8 variants each, from half to twice as fast."""
    records = []
    for model in range(12):
        name = f"net{model}" if model else "long-" * 40
        base = f"{name}/fp32/torch/t1/b1"
        records.append(fp32(base))
        for number in range(24):
            ratio = 0.5 + number / 16
            own = speedup(ratio, baseline=base)
            case = f"{name}/static/b{number}/t1/b1"
            records.append(int8(case, latency=latency(0.0025 / ratio), speedup=own))
    return records


OPEN = "document.querySelectorAll('details.part').forEach(part => { part.open = true; })"  # what a phone folds


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("name", ["plain", "hostile", "flips", "many", "few", "long", "wrong", "history", "check"])
def test_the_page_is_whole(browser: Any, reports: dict[str, Path], name: str, width: int, scheme: str) -> None:
    """The console stays empty, every table and drawing has a size, and the page never scrolls sideways."""
    show(browser, reports[name], width=width, scheme=scheme)
    assert browser.get_log("browser") == []
    browser.execute_script(OPEN)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('table, figure svg')].filter(e => e.checkVisibility())"
        ".map(e => e.getBoundingClientRect())"
        ".map(r => [r.width, r.height])"
    )
    assert len(sizes) > 3 or name == "check"
    assert sizes
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


@pytest.mark.parametrize("width", [1280, 380])
def test_what_costs_accuracy_is_seen(browser: Any, reports: dict[str, Path], width: int) -> None:
    """The causes at once, the layers and what to write when they are opened, none of them cut off at the side."""
    show(browser, reports["wrong"], width=width, scheme="light")
    browser.execute_script(OPEN)
    section = "document.getElementById('wrong')"
    assert "calibrated by mse" in browser.execute_script(f"return {section}.innerText")
    browser.execute_script(f"{section}.querySelectorAll('details').forEach(part => {{ part.open = true; }})")
    text = browser.execute_script(f"return {section}.innerText")
    assert "stage11.conv." in text
    assert "skip_layers: [conv]" in text
    hidden = browser.execute_script(
        f"return [...{section}.querySelectorAll('td, li, pre')].filter(e => !e.checkVisibility()).length"
    )
    assert hidden == 0


@pytest.mark.parametrize("name", ["plain", "hostile", "long"])
def test_words_stay_inside_their_plot(browser: Any, reports: dict[str, Path], name: str) -> None:
    """No label of a drawing, however long the name in it, leaves the frame of its figure."""
    show(browser, reports[name], width=1280, scheme="light")
    spilled = browser.execute_script(
        "return [...document.querySelectorAll('figure svg text')].filter(text => {"
        " if (!text.checkVisibility()) return false;"
        " const inner = text.getBoundingClientRect(), outer = text.closest('figure').getBoundingClientRect();"
        " return inner.left < outer.left || inner.right > outer.right }).map(text => text.textContent)"
    )
    assert spilled == []
    left = browser.execute_script(
        "return [...document.querySelectorAll('figcaption *, .card > *, .card header > *')].filter(part => {"
        " const inner = part.getBoundingClientRect(), outer = part.closest('figure, .card').getBoundingClientRect();"
        " return inner.left < outer.left || inner.right > outer.right }).map(part => part.textContent)"
    )
    assert left == []


def test_a_shortened_name_is_told_whole(browser: Any, reports: dict[str, Path]) -> None:
    """Under the pointer, and in the data of the picture or its heading."""
    show(browser, reports["long"], width=1280, scheme="light")
    cut = browser.execute_script(
        "return [...document.querySelectorAll('figure svg text')].filter(text => text.textContent.includes('…'))"
        ".map(text => [text.querySelector('title')?.textContent ?? '', text.closest('figure').textContent])"
    )
    assert cut
    assert all(len(whole) > 200 and "m" * 200 in around.replace("\u05d0", "m") for whole, around in cut)


def test_points_without_a_name_are_counted(browser: Any, reports: dict[str, Path]) -> None:
    """As many as the picture has points and no labels; the note leads to the table, which has them all."""
    show(browser, reports["many"], width=1280, scheme="light")
    told, labels = browser.execute_script(
        "const figure = document.querySelector('#figure-pareto');"
        "return [figure.querySelector('.desk .note').textContent,"
        " [...figure.querySelectorAll('.desk svg text')].filter(text => text.textContent.includes(' · b')).length]"
    )
    assert told.startswith(f"{25 - labels - 1} points without a name, for want of room: rest the pointer on one")


def test_a_phone_begins_with_the_answer(browser: Any, reports: dict[str, Path]) -> None:
    """What is further down is folded and a link opens it; of a case all figures are seen once it is opened. No warning
    and no failure is hidden."""
    show(browser, reports["plain"], width=380, scheme="light")
    assert browser.execute_script("return document.documentElement.scrollHeight") < 9_000
    folded = "return [...document.querySelectorAll('details.part:not([open])')].map(part => part.parentElement.id)"
    assert browser.execute_script(folded) == ["pictures", "flips", "method"]
    browser.execute_script("document.querySelector('nav a[href=\"#pictures\"]').click()")
    browser.execute_async_script("setTimeout(arguments[0], 0)")
    assert browser.execute_script(folded) == ["flips", "method"]
    hidden = "return [...arguments[0].rows[0].cells].filter(cell => !cell.checkVisibility()).length"
    row = browser.find_element("css selector", "table.cases tbody")
    closed = browser.execute_script(hidden, row)
    row.find_element("css selector", "summary").send_keys("\n")
    assert browser.execute_script(hidden, row) < closed
    told = "[...document.querySelectorAll('.warnings li, .notes li, .failures li')]"
    assert browser.execute_script(f"return {told}.every(part => part.checkVisibility())")


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
        cells = "[...document.querySelectorAll('table.cases tbody')].map(body => body.rows[0].cells[arguments[0]])"
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
    find, rows = tools.find_element("css selector", "input"), "table.cases tbody:not([hidden])"
    find.send_keys("static onn")
    searched = [row.get_attribute("data-find") for row in browser.find_elements("css selector", rows)]
    assert searched
    assert all("static" in words and "onn" in words for words in searched)
    tools.find_element("css selector", "select[name=backend]").send_keys("onnxruntime")
    left = browser.find_elements("css selector", rows)
    assert {row.get_attribute("data-backend") for row in left} == {"onnxruntime"}
    assert tools.find_element("css selector", ".count").text.startswith(f"{len(left)} of ")
    assert browser.get_log("browser") == []


SMALLEST = """
const sizes = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walk.nextNode(); node; node = walk.nextNode()) {
  const parent = node.parentElement;
  if (!node.data.trim() || !parent.checkVisibility() || parent.closest("script, desc, title, option")) continue;
  const svg = parent.closest("svg"), scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
  sizes.push([parseFloat(getComputedStyle(parent).fontSize) * scale, node.data.trim()]);
}
return sizes.sort((a, b) => a[0] - b[0])[0];
"""


@pytest.mark.parametrize("name", ["plain", "many"])
def test_no_word_is_smaller_than_12_px_on_a_phone(browser: Any, reports: dict[str, Path], name: str) -> None:
    """Also in pictures, which are scaled."""
    show(browser, reports[name], width=380, scheme="light")
    browser.execute_script(OPEN)
    size, text = browser.execute_script(SMALLEST)
    assert size >= 11.99, text


def print_page(browser: Any) -> bytes:
    """The page as PDF, with an outline of its headings."""
    options = {"preferCSSPageSize": True, "printBackground": True, "generateDocumentOutline": True}
    printed = browser.execute_cdp_cmd("Page.printToPDF", options | {"generateTaggedPDF": True})
    return base64.b64decode(printed["data"])


def test_on_paper_nothing_is_split_or_alone(browser: Any, reports: dict[str, Path]) -> None:
    """24 cases take at most 8 pages; no row, card or picture may be cut and none is higher than a page; below each
    heading there is room for what it is about."""
    show(browser, reports["day"], width=1280, scheme="light")
    printed = print_page(browser)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 8
    places = re.findall(rb"/Title \(((?:[^()\\]|\\.)*)\)\n/Dest \[\d+ 0 R /XYZ [\d.]+ ([\d.]+)", printed)
    assert {b"All cases", b"Pictures", b"How it was measured"} <= {title for title, _ in places}
    margin, room = 13 / 25.4 * 72, 40.0  # points: page.css; a few lines
    high = {b"All cases": 100.0}  # the table's caption, its head and a row
    assert [title for title, y in places if float(y) < margin + high.get(title, room)] == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 703, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    cut = browser.execute_script(
        "return [...document.querySelectorAll('figure, .card, .cases tr, .facts')].filter(part =>"
        " getComputedStyle(part).breakInside !== 'avoid' || part.getBoundingClientRect().height > 1020)"
        ".map(part => part.textContent.slice(0, 80))"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    assert cut == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_light(browser: Any, reports: dict[str, Path], scheme: str) -> None:
    """A dark screen prints dark on white."""
    show(browser, reports["plain"], width=1280, scheme=scheme)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    style = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
    assert browser.execute_script(style) == ["rgb(255, 255, 255)", "rgb(26, 31, 36)"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})


def test_without_javascript_everything_is_there(browser: Any, reports: dict[str, Path]) -> None:
    """Every case has its row, what is folded opens, and no control is shown that would do nothing."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    show(browser, reports["plain"], width=1280, scheme="light")
    rows = browser.find_elements("css selector", "table.cases tbody")
    tools = browser.find_element("css selector", ".tools").is_displayed()
    others = browser.find_element("css selector", ".others")
    others.find_element("css selector", "summary").click()
    listed = others.find_element("css selector", "dl").is_displayed()
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert (len(rows), tools, listed) == (12, False, True)


def test_300_cases_stay_a_page(browser: Any, reports: dict[str, Path]) -> None:
    """A matrix leads to folded answers, the table scrolls within itself, and the file stays small."""
    assert reports["many"].stat().st_size < 4_000_000
    show(browser, reports["many"], width=1280, scheme="light")
    assert browser.execute_script("return document.documentElement.scrollHeight") < 16_000
    assert len(browser.find_elements("css selector", "table.cases tbody")) == 300
    browser.find_element("css selector", ".matrix a[href='#answer-7']").send_keys("\n")
    # The page opens it once the browser tells of the new address, which is after the key.
    opened = "const look = () => document.getElementById('answer-7').open ? done(true) : requestAnimationFrame(look)"
    assert browser.execute_async_script(f"const done = arguments[0]; {opened}; look()")


def test_300_cases_are_narrowed_and_sorted(browser: Any, reports: dict[str, Path]) -> None:
    """By words and by size, from the keyboard; all are back once the words are gone."""
    show(browser, reports["many"], width=1280, scheme="light")
    find, rows = browser.find_element("css selector", ".tools input"), "table.cases tbody:not([hidden])"
    find.send_keys("net7 static")
    assert browser.find_element("css selector", ".count").text == "24 of 300 cases"
    head = browser.find_element("css selector", "table.cases th[data-key=best]")
    head.find_element("css selector", "button").send_keys("\n")
    place = browser.execute_script("return arguments[0].cellIndex", head)
    shown = (
        f"return [...document.querySelectorAll('{rows}')].map(body => body.rows[0].cells[arguments[0]].dataset.sort)"
    )
    ratios = [float(value) for value in browser.execute_script(shown, place) if value]
    assert len(ratios) == 24
    assert ratios == sorted(ratios)
    find.send_keys("\b" * len("net7 static"))
    assert len(browser.execute_script(shown, place)) == 300
    assert browser.get_log("browser") == []


def test_a_history_is_read_without_a_script(browser: Any, reports: dict[str, Path]) -> None:
    """Its change point, its charts with letters of 12 px on a phone, and nothing is asked for."""
    show(browser, reports["history"], width=380, scheme="dark")
    assert "change point" in browser.find_element("css selector", "header").text
    assert len(browser.find_elements("css selector", "svg.history")) == 5
    size, text = browser.execute_script(SMALLEST)
    assert size >= 11.99, text
    assert browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []


def test_what_is_shown_is_saved_as_inert_csv(browser: Any, reports: dict[str, Path]) -> None:
    """A row for each case that is shown, a column for each limit, no formula, and no request."""
    show(browser, reports["hostile"], width=1280, scheme="light")
    saved = browser.execute_async_script(
        "const done = arguments[0], make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then(done); return make.call(URL, blob); };"
        "document.querySelector('.tools input').value = 'static';"
        "document.querySelector('.tools').dispatchEvent(new Event('input'));"
        "document.querySelector('.save').click();"
    )
    head, *lines = csv.reader(io.StringIO(saved.lstrip("\ufeff")))
    assert head[head.index("times its own fp32") + 1] == "times its own fp32 low"
    assert len(lines) == 1
    formulas = [cell for cell in lines[0] if cell[:1] in tuple("=+-@\t") and not re.fullmatch(r"[+-][0-9.]+", cell)]
    assert formulas == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith(("data:", "blob:"))] == []
    assert browser.get_log("browser") == []
