"""The page of `qbench check`: the causes first, everything escaped, no script."""

from __future__ import annotations

from pathlib import Path

from made_checks import CHECK, hostile_check
from made_runs import HOSTILE, Page

from qbench.check.finding import FileCheck
from qbench.foreign_text import CONTROL
from qbench.report.check_page import _list_layers, render, write_check_page


def test_what_was_found_comes_first(tmp_path: Path) -> None:
    """With what to do, in the order of the check; then what runs it, how it compares, and every layer."""
    page = tmp_path / "new" / "page.html"
    write_check_page(CHECK, page)
    source = page.read_text(encoding="utf-8")
    texts = (
        *("2 faults (ONNX, 4.05 kB).", "folded", "an int8 kernel needs", "slower", "ONNX Runtime 1.32.0: 7.08 ms"),
        *("speed: 1.22 [1.20, 1.23] times as long", "data: 64 examples: 5 dB", "head.conv"),
    )
    places = [source.index(text) for text in texts]
    assert places == sorted(places)
    assert "1,179,648" in source
    assert "unknown" in source


def test_it_needs_no_script_and_asks_for_nothing() -> None:
    """Its policy allows inline styles alone."""
    page = Page(render(CHECK))
    assert page.all("script") == []
    policies = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ]


def test_names_of_the_file_are_text() -> None:
    """Markup and control characters of layers, inputs and messages."""
    source = render(hostile_check())
    page = Page(source)
    assert page.all("script") == []
    assert HOSTILE not in source
    assert not CONTROL.search(source.replace("\n", ""))


def test_a_sound_file_has_a_page() -> None:
    """Nothing was found, nothing was compared."""
    source = render(FileCheck(file="m.onnx", format="ONNX", bytes=100))
    assert "sound: no fault was found (ONNX, 100 B)." in source
    assert "What was found" not in source


def test_words_stand_to_the_left_and_counts_to_the_right() -> None:
    """Of the layers of each runtime."""
    (runtime, *_) = [each for each in CHECK.runtimes if each.layers]
    listed = _list_layers(runtime)
    assert [listed.columns[place] for place in listed.words] == ["Layer", "Operator", "Runs in"]
    assert [row[0] for row in listed.rows] == [layer.name for layer in runtime.layers]
