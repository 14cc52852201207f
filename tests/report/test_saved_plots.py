"""Rules of qbench/report/saved_plots.py: pictures as files."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from large_run import Shape, write_large_run
from made_records import info, int8
from made_runs import run_folder

from qbench.errors import QbenchError
from qbench.foreign_text import CONTROL
from qbench.report import saved_plots
from qbench.report.saved_plots import _wrap, add_heading, save_plots, say_origin

SMALL = Shape(modes=("static",), backends=("onnxruntime",), calls=500)


def texts_of(file: Path) -> list[str]:
    """The words of a picture, from the top down as they were drawn."""
    return [node.text or "" for node in ElementTree.parse(file).findall(".//{*}text")]


def test_each_model_has_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVG and PNG, named by the model and headed by it; names that are equal as files are numbered; no other model is
    on them, and the same run gives the same bytes."""
    shape = Shape(models=("a net", "a/net", "b"), modes=("static",), backends=("onnxruntime",), calls=500)
    folder = write_large_run(tmp_path / "run", shape)
    everything = saved_plots.list_drawings
    monkeypatch.setattr(saved_plots, "list_drawings", lambda *given, **named: everything(*given, **named)[:2])
    files = save_plots(folder)
    names = [f"{model}-{key}{end}" for model in ("a-net", "a-net-2", "b") for key in ("pareto", "speedup")
             for end in (".svg", ".png")]  # fmt: skip
    assert [file.name for file in files] == names
    assert "b: Time against accuracy" in texts_of(files[8])
    assert not any("net" in text for text in texts_of(files[10]))
    before = [file.read_bytes() for file in files]
    assert [file.read_bytes() for file in save_plots(folder)] == before


def test_a_picture_says_where_its_figures_come_from() -> None:
    """The machine and the day; what is not known is left out."""
    known = info(())
    origin = say_origin(known)
    assert str(known.environment["cpu"]) in origin
    assert (known.started or "?")[:10] in origin


def test_a_heading_of_any_length_is_above_the_picture() -> None:
    """What is drawn stays as it is; long words are cut in their middle, of many there are three lines."""
    from qbench.report.plots import canvas

    figure = canvas.new_figure(100)
    axes = canvas.add_axes(figure, 10, 20, 300, 60)
    add_heading(figure, " ".join(["word"] * 90), "m" * 300)
    height = figure.get_size_inches()[1] * 72
    assert height == pytest.approx(100 + 4 * canvas.LINE + 8)
    _, bottom, _, high = axes.get_position().bounds
    assert (bottom * height, high * height) == pytest.approx((20, 60))
    assert all(canvas.text_width(text.get_text()) < canvas.WIDTH for text in figure.texts)


def test_pictures_are_saved_in_no_other_folder(tmp_path: Path) -> None:
    """A run may be anybody's: a link in it leads what is written nowhere."""
    folder = write_large_run(tmp_path / "run", SMALL)
    (tmp_path / "elsewhere").mkdir()
    (folder / "plots").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(QbenchError, match="digits-cnn-pareto.svg: cannot be written: it is a link"):
        save_plots(folder)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_text_of_a_picture_turns_or_controls(tmp_path: Path) -> None:
    """Characters that turn the direction of writing are shown as what they are not, in names of files as well."""
    shape = Shape(models=("evil\u202egnp.\x1b",), modes=("static",), backends=("onnxruntime",), calls=500)
    files = save_plots(write_large_run(tmp_path / "run", shape))
    assert {file.name.partition("-")[0] for file in files} == {"evil"}
    saved = [file.read_text(encoding="utf-8") for file in files if file.suffix == ".svg"]
    assert saved
    assert not any(CONTROL.search(text) for text in saved)


def test_a_picture_says_how_many_cores_and_which_qbench() -> None:
    """As far as that is known."""
    known = replace(info(()), environment={"cpu": "CPU A", "cores_allowed": 2}, versions={"qbench": "0.2.0"})
    assert say_origin(known) == f"CPU A, 2 cores, {(known.started or '')[:10]}, qbench 0.2.0"
    unknown = replace(known, environment={"cores_allowed": "two"}, versions={"torch": "2.13.0"}, started=None)
    assert say_origin(unknown) == ""


def test_words_stand_on_three_lines_at_most() -> None:
    """What is left of a long text is cut in the third; a word that fits alone has a line."""
    from qbench.report.plots import canvas

    width = canvas.text_width("word word word", bold=False) + 8.5
    assert list(_wrap("word word word word", width, bold=False)) == ["word word word", "word"]
    lines = list(_wrap(" ".join(["word"] * 20), width, bold=False))
    assert len(lines) == 3
    assert lines[0] == "word word word"
    assert "…" in lines[2]
    assert list(_wrap("", width, bold=False)) == []


def test_a_run_with_a_file_that_is_cut_has_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read counts as absent, as in the report."""
    folder = run_folder(tmp_path / "run", [int8(samples="samples/cut.npz")])
    (folder / "samples").mkdir()
    (folder / "samples/cut.npz").write_bytes(b"PK\x03\x04")
    damage: list[str] = []
    monkeypatch.setattr(saved_plots, "list_drawings", lambda run, *_, **__: damage.extend(run.find_damage()) or [])
    assert save_plots(folder) == ()
    assert damage == ["samples/cut.npz"]


def test_a_heading_begins_at_the_left_and_a_line_below_the_edge() -> None:
    """The title in bold, then where the figures come from; a formula in a name is letters."""
    from qbench.report.plots import canvas

    figure = canvas.new_figure(100)
    add_heading(figure, "$x^2$ title", "origin")
    height = figure.get_size_inches()[1] * 72
    told = [
        (text.get_text(), text.get_weight(), text.get_color(), text.get_parse_math(), text.get_fontsize())
        for text in figure.texts
    ]
    assert told == [
        ("$x^2$ title", "bold", canvas.ROLES["ink"], False, 12.0),
        ("origin", "normal", canvas.ROLES["muted"], False, 12.0),
    ]
    places = [(x * canvas.WIDTH, (1 - y) * height) for x, y in (text.get_position() for text in figure.texts)]
    assert places == [pytest.approx((4.0, 12.0)), pytest.approx((4.0, 27.0))]


def test_a_png_is_sharp_and_white_and_names_of_files_are_short(tmp_path: Path) -> None:
    """200 pixels an inch, whatever the notebook's; 60 letters of a model's name, of one without any letter a word."""
    shape = Shape(models=("m" * 61, "\u65e5\u672c"), modes=("static",), backends=("onnxruntime",), calls=500)
    files = save_plots(write_large_run(tmp_path / "run", shape))
    assert {file.name.partition("-")[0] for file in files} == {"m" * 60, "model"}
    svg, png = files[:2]
    width = float(ElementTree.parse(svg).getroot().attrib["width"].removesuffix("pt"))
    content = png.read_bytes()
    assert int.from_bytes(content[16:20]) == pytest.approx(width / 72 * 200, abs=1)
    assert b"matplotlib" not in content.lower()
    assert "fill: #ffffff" in svg.read_text(encoding="utf-8")
