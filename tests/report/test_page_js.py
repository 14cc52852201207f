"""Rules of qbench/report/page.js in a real browser: the table of all cases is found, sorted, taken away, linked to."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from chromium import needs_chromium, show
from large_run import Shape, write_large_run
from made_records import RUN_V1

from qbench.report.build import build_report

pytestmark = needs_chromium
SHIPPED = "digits-cnn/static/onnxruntime/t1/b1"
LEFT = "return [...document.querySelectorAll('table.cases tbody:not([hidden])')].map((body) => body.id)"
SAVED = """
const done = arguments[0], make = URL.createObjectURL;
URL.createObjectURL = (blob) => { blob.text().then(done); return make.call(URL, blob); };
document.querySelector('.save').click();
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the run of schema 1, 12 cases of two models."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    shutil.copytree(RUN_V1, folder)
    return build_report(folder)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a model whose name has 100 letters."""
    shape = Shape(modes=("static",), backends=("x86", "onednn"), models=("m" * 90 + "resnet-18x",), calls=200)
    folder = tmp_path_factory.mktemp("long") / "run"
    write_large_run(folder, shape)
    return build_report(folder)


def click(browser: Any, selector: str) -> None:
    """As a finger or a mouse does, wherever it stands; what the page does next is done."""
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)
    browser.execute_async_script("setTimeout(arguments[0])")


def find(browser: Any, words: str) -> list[str]:
    """Types into the filter; the cases that are left."""
    box = browser.find_element("css selector", ".tools input")
    box.clear()
    box.send_keys(words)
    left: list[str] = browser.execute_script(LEFT)
    return left


@pytest.mark.parametrize(
    ("words", "mode", "backends"),
    [
        ("int8 ONNX Runtime", {"static", "dynamic"}, {"onnxruntime"}),
        ("QAT int8", {"qat"}, {"onednn"}),
        ("fp32 pytorch", {"fp32"}, {"torch"}),
        ("static oneDNN", {"static"}, {"onednn"}),
    ],
)
def test_the_words_of_the_cards_find_a_case(
    browser: Any, plain: Path, words: str, mode: set[str], backends: set[str]
) -> None:
    """What a card calls a variant, whole or in pieces, in any case."""
    show(browser, plain, width=1280)
    cases = [name.split("/") for name in find(browser, words)]
    assert {case[2] for case in cases} == mode
    assert {case[3] for case in cases} == backends


def test_nothing_left_is_said_and_brought_back(browser: Any, plain: Path) -> None:
    """By one button, which also gives the first order, and is there only where it would do something."""
    show(browser, plain, width=1280)
    whole = browser.execute_script(LEFT)
    script = "return document.querySelector(arguments[0]).checkVisibility()"
    assert [browser.execute_script(script, name) for name in (".nothing", ".reset")] == [False, False]
    click(browser, "th[data-key=p50] button")
    assert find(browser, "no such case") == []
    assert [browser.execute_script(script, name) for name in (".nothing", ".reset")] == [True, True]
    assert browser.find_element("css selector", ".count").text == "0 of 12 cases"
    click(browser, ".reset")
    assert browser.execute_script(LEFT) == whole
    assert [browser.execute_script(script, name) for name in (".nothing", ".reset")] == [False, False]
    assert browser.get_log("browser") == []


def test_the_third_click_gives_the_first_order(browser: Any, plain: Path) -> None:
    """Up, down, as it was; also on the column by which it was not sorted before."""
    show(browser, plain, width=1280)
    first = browser.execute_script(LEFT)
    orders = []
    for key in ("p50", "p50", "p50", "size"):
        click(browser, f"th[data-key={key}] button")
        sorts = browser.execute_script("return [...document.querySelectorAll('th[aria-sort]')].map(h => h.dataset.key)")
        orders.append((browser.execute_script(LEFT), sorts))
    assert orders[0][0] != first
    assert orders[1][0] not in (first, orders[0][0])
    assert orders[2] == (first, [])
    assert orders[3][1] == ["size"]


def test_a_phone_sorts_and_names_each_figure(browser: Any, plain: Path) -> None:
    """By a list of all columns in both directions; each figure stands under the title of its column."""
    show(browser, plain, width=380)
    options = browser.execute_script("return [...document.querySelector('[name=order]').options].map(o => o.text)")
    assert options[0] == "first order"
    assert {"time, µs ↑", "time, µs ↓", "verdict ↑"} <= set(options)
    order = browser.find_element("css selector", "select[name=order]")
    assert order.is_displayed()
    order.send_keys("time, µs ↓")
    times = browser.execute_script(
        "const at = document.querySelector('th[data-key=p50]').cellIndex;"
        "return [...document.querySelectorAll('table.cases tbody')].map(b => Number(b.rows[0].cells[at].dataset.sort))"
    )
    assert times == sorted(times, reverse=True)
    titles = browser.execute_script(
        "return [...document.querySelectorAll('table.cases tbody tr:first-child td[data-title]:not(.verdict)')]"
        ".filter(cell => cell.checkVisibility())"
        ".map(cell => getComputedStyle(cell, '::before').content.includes(cell.dataset.title))"
    )
    assert titles
    assert all(titles)


@pytest.mark.parametrize("width", [1280, 900, 380])
def test_an_open_case_spans_the_table(browser: Any, plain: Path, width: int) -> None:
    """What is known of it is as wide as what is seen of the table, and inside the screen; closed, it takes no room."""
    show(browser, plain, width=width)
    row = browser.find_element("css selector", "table.cases tbody")
    facts = row.find_element("css selector", ".facts-row dl")
    assert not facts.is_displayed()
    row.find_element("css selector", "summary").send_keys("\n")
    left, right = browser.execute_script(
        "const box = arguments[0].getBoundingClientRect(); return [box.left, box.right]", facts
    )
    sheet = browser.execute_script("return document.querySelector('#cases .sheet').clientWidth")
    assert right - left == pytest.approx(sheet, abs=2)
    assert 0 <= left < right <= width
    row.find_element("css selector", "summary").send_keys("\n")
    assert not facts.is_displayed()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_link_to_a_case_opens_it(browser: Any, plain: Path, scripts: bool) -> None:
    """In sight, below the bar, with and without a script; the link that an open case offers is the same."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    show(browser, plain, width=1280, fragment=f"#case/{SHIPPED}")
    case = browser.find_element("id", f"case/{SHIPPED}")
    facts = case.find_element("css selector", ".facts-row")
    shown = facts.is_displayed(), facts.find_element("css selector", "code").text
    link = facts.find_element("css selector", "a").get_attribute("href")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert shown == (True, SHIPPED)
    assert link == f"{plain.as_uri()}#case/{SHIPPED}"
    browser.execute_async_script("setTimeout(arguments[0])")
    top, below = browser.execute_script(
        "return [arguments[0].getBoundingClientRect().top,"
        " document.querySelector('.jump').getBoundingClientRect().bottom]",
        case,
    )
    assert below <= top < 900


def test_a_link_to_a_case_that_was_filtered_away_brings_it_back(browser: Any, plain: Path) -> None:
    """The filter is given up, since the link was followed after it was set."""
    show(browser, plain, width=1280)
    assert f"case/{SHIPPED}" not in find(browser, "qnnpack")
    browser.execute_script("location.hash = arguments[0]", f"#case/{SHIPPED}")
    browser.execute_async_script("setTimeout(() => setTimeout(arguments[0]))")
    assert len(browser.execute_script(LEFT)) == 12
    assert browser.find_element("id", f"case/{SHIPPED}").find_element("css selector", ".facts-row").is_displayed()


def test_the_same_case_has_the_same_link_in_every_report(plain: Path, long: Path) -> None:
    """It is made of the id alone."""
    for file in (plain, long):
        records = [json.loads(line) for line in (file.parent / "records.jsonl").read_text("utf-8").splitlines()]
        page = file.read_text(encoding="utf-8")
        ids = [record["case"]["id"] for record in records if record["status"] == "ok"]
        assert [page.count(f' id="case/{name}"') for name in ids] == [1] * len(ids)


def test_csv_has_raw_numbers_in_fixed_units(browser: Any, plain: Path) -> None:
    """Seconds, bytes and shares as the records have them, whatever the page scales them to; the head says which."""
    show(browser, plain, width=1280)
    head, *lines = csv.reader(io.StringIO(browser.execute_async_script(SAVED).lstrip("\ufeff")))
    rows = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    records = [json.loads(line) for line in (plain.parent / "records.jsonl").read_text("utf-8").splitlines()]
    record = next(each for each in records if each["case"]["id"] == SHIPPED)
    row = rows[SHIPPED]
    assert float(row["time, s"]) == record["latency"]["p50_seconds"]
    assert float(row["time low, s"]) == record["latency"]["p50_low"]
    assert int(row["size, bytes"]) == record["artifact"]["size_bytes"]
    assert float(row["top1, as a share"]) == record["accuracy"]["value"]
    assert float(row["accuracy change, as a share"]) == pytest.approx(record["accuracy"]["delta"]["value"])
    assert float(row["times its own fp32 high"]) == record["speedup"]["high"]
    assert (row["examples lost"], row["examples gained"]) == ("0", "1")
    assert row["verdict"] == "ship"
    assert len(rows) == 12


def test_copied_is_what_is_saved(browser: Any, plain: Path) -> None:
    """The same cells, between tabs, in the order and of the cases that are shown."""
    show(browser, plain, width=1280)
    find(browser, "qnnpack")
    click(browser, "th[data-key=p50] button")
    saved = list(csv.reader(io.StringIO(browser.execute_async_script(SAVED).lstrip("\ufeff"))))
    browser.execute_script(
        "const writeText = async (text) => { window.copied = text; };"
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText } })"
    )
    click(browser, ".copy")
    copied = [line.split("\t") for line in browser.execute_script("return window.copied").split("\n")]
    assert copied == saved
    assert [line[0] for line in saved[1:]] == [name.removeprefix("case/") for name in browser.execute_script(LEFT)]


@pytest.mark.parametrize("width", [1280, 380])
def test_a_long_name_is_cut_and_copied_whole(browser: Any, long: Path, width: int) -> None:
    """On the card and in the table: one line that ends like the name, whose text and title are the name."""
    name = "m" * 90 + "resnet-18x"
    show(browser, long, width=width)
    cuts = browser.find_elements("css selector", ".card .cut")
    assert cuts
    for cut in cuts:
        browser.execute_script("getSelection().selectAllChildren(arguments[0])", cut)
        whole, title, high = browser.execute_script(
            "return [getSelection().toString(), arguments[0].title, arguments[0].getBoundingClientRect().height]", cut
        )
        assert whole == title
        assert name in whole
        assert high < 60
    wide = browser.execute_script(
        "return [...document.querySelectorAll('.cut > span')].map(e => [e.scrollWidth, e.clientWidth])"
    )
    assert any(full > shown for full, shown in wide)


@pytest.mark.parametrize("width", [1280, 380])
def test_the_bar_leads_to_every_section(browser: Any, plain: Path, width: int) -> None:
    """It comes first on the page, stays in sight, and no head that a link leads to is behind it."""
    show(browser, plain, width=width)
    sections = browser.execute_script("return [...document.querySelectorAll('main > section')].map(part => part.id)")
    links = browser.execute_script("return [...document.querySelectorAll('.jump a')].map(link => link.hash.slice(1))")
    assert links == sections
    assert browser.execute_script("return document.body.firstElementChild.className") == "jump"
    for section in sections[1:]:
        click(browser, f".jump a[href='#{section}']")
        browser.execute_async_script("setTimeout(arguments[0])")
        bar, top = browser.execute_script(
            "return [document.querySelector('.jump').getBoundingClientRect(),"
            " document.querySelector(`#${arguments[0]} h2`).getBoundingClientRect().top]",
            section,
        )
        assert bar["top"] == 0
        assert top >= bar["bottom"]
