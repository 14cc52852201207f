"""Rules of qbench/report/figures.py and plots: which pictures a report has, and what they say."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from large_run import Shape, write_large_run
from made_records import fp32, info, int8, same_as_golden
from made_runs import run_folder

from qbench.progress.table import TextTable
from qbench.record import jsonl
from qbench.record.stored_run import StoredRun, read_run
from qbench.report.build import judge
from qbench.report.figures import Figure, _describe, figures
from qbench.report.plots import canvas


def drawn(run: StoredRun) -> dict[str, Figure]:
    """The pictures of a run by key."""
    return {figure.key: figure for figure in figures(run, judge(run))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models at two numbers of threads, three modes on seven backends, and the layers of one variant."""
    large_run = write_large_run(
        tmp_path_factory.mktemp("large") / "run", Shape(threads=(1, 2), calls=6000, processes=3, outlier=True)
    )
    records = [
        replace(record, layers="a.json") if record.case.mode == "qat" else record for record in jsonl.read(large_run)
    ]
    jsonl.write(large_run / "records.jsonl", records)
    layers = [{"name": f"conv{i}", "sqnr_db": 40.0 - i, "n": 9, "clipped": 0.0} for i in range(20)]
    (large_run / "a.json").write_text(
        json.dumps([*layers, {"name": "stem", "reason": "stays in float"}]), encoding="utf-8"
    )
    return large_run


@pytest.fixture(scope="module")
def pictures(folder: Path) -> dict[str, Figure]:
    """All pictures of it."""
    return drawn(read_run(folder))


def test_a_run_with_everything_has_every_picture(pictures: dict[str, Figure]) -> None:
    """In reading order, the trade-off first, one for each setting."""
    assert list(pictures) == [
        "pareto",
        "pareto-2",
        "speedup",
        "accuracy",
        "latency",
        "scaling-threads",
        "roofline",
        "layers",
        "size",
        "memory",
        "cold-start",
    ]


def test_what_has_no_data_is_not_drawn(tmp_path: Path) -> None:
    """A run without records has no picture; one without times and scores has those of what is known."""
    assert drawn(read_run(run_folder(tmp_path / "empty", []))) == {}
    bare = int8(latency=None, speedup=None, accuracy=None)
    assert list(drawn(read_run(run_folder(tmp_path / "bare", [bare])))) == ["size"]
    known = drawn(read_run(run_folder(tmp_path / "known", [fp32(), int8()], info(metric=None))))
    assert list(known) == ["pareto", "speedup", "accuracy", "size"] or list(known) == ["speedup", "accuracy", "size"]


def test_a_picture_has_at_most_fifteen_rows_and_says_how_many_more(pictures: dict[str, Figure]) -> None:
    """What is shipped is always among them; the data holds what is drawn."""
    for figure in pictures.values():
        assert figure.data is not None
        assert 1 <= len(figure.data.rows) <= (30 if figure.narrow else 15)
        assert all(len(row) == len(figure.data.columns) for row in figure.data.rows)
    assert pictures["speedup"].more == 42 - 15
    data = pictures["pareto"].data
    assert data is not None
    shipped = [row[0] for row in data.rows if row[-1] in ("ship", "either")]
    assert shipped
    assert re.search(r"(?:To ship|Either will do): \w+ int8 on \w+", pictures["pareto"].caption)
    for key in ("pareto", "speedup", "accuracy", "latency", "roofline", "size"):
        data = pictures[key].data
        assert data is not None
        assert shipped[0] in {row[0] for row in data.rows}


def test_of_a_long_table_forty_rows_are_read_out() -> None:
    """To who cannot see the picture; the table holds them all."""
    rows = tuple((f"case {number}", "1") for number in range(41))
    assert _describe(TextTable(columns=("case", "ms"), rows=rows)).split("; ")[-1] == "case 39: ms 1"


def test_a_caption_is_a_conclusion_with_n_and_the_level(pictures: dict[str, Figure]) -> None:
    """It names numbers of this run, how many were measured, and what the bars are."""
    for key, figure in pictures.items():
        assert re.search(r"\d", figure.caption.partition(".")[0]), key
        assert "n = " in figure.caption, key
        assert any(word in figure.caption for word in ("95 %", "90 %", "without intervals", "calls", "peak")), key
    assert "keep the accuracy (limit \N{MINUS SIGN}1.0 points), 1 loses more" in pictures["accuracy"].caption
    assert "fp32 peak 115 G/s and int8 peak 428 G/s" in pictures["roofline"].caption
    assert "Farthest from fp32 is conv19, with an SQNR of 21.0 dB" in pictures["layers"].caption


def test_a_backend_is_never_drawn_pale(pictures: dict[str, Figure]) -> None:
    """A colour that is mixed with the ground has no longer the contrast that the palette gives it."""
    for key, figure in pictures.items():
        styles = [node.attrib.get("style", "") for node in ElementTree.fromstring(figure.svg).iter()]
        of_backends = [style for style in styles if "var(--backend-" in style]
        assert of_backends, key
        assert [style for style in of_backends if "opacity" in style] == [], key


def test_every_point_of_the_trade_off_is_told(pictures: dict[str, Figure]) -> None:
    """Where the pointer rests, on a phone's drawing as well: 21 int8 variants and two fp32, with or without a name."""
    for svg in (pictures["pareto"].svg, pictures["pareto"].narrow):
        titles = [node.text for node in ElementTree.fromstring(svg).findall(".//{*}title")]
        assert len({title for title in titles if "times the time" in title}) == 23


def test_a_desk_and_a_phone_have_a_trade_off_of_their_own(pictures: dict[str, Figure]) -> None:
    """One is as wide as the page, the other as a phone; ids in both are different."""
    figure = pictures["pareto"]
    widths = [float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1]) for svg in (figure.svg, figure.narrow)]
    assert widths == [canvas.WIDE, canvas.WIDTH]
    first, second = (set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (figure.svg, figure.narrow))
    assert not first & second
    assert figure.unnamed <= figure.unnamed_narrow


def boxes_of(svg: str) -> list[tuple[str, float, float, float, float]]:
    """Each text with the box that matplotlib's font needs, in points; a title is shown under the pointer alone."""
    boxes = []
    for node in ElementTree.fromstring(svg).iter("text"):
        place = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", node.attrib.get("transform", ""))
        x, y = (float(place[1]), float(place[2])) if place else (float(node.attrib["x"]), float(node.attrib["y"]))
        style = node.attrib.get("style", "")
        size = float(re.search(r"([\d.]+)px", style)[1])
        hover = "".join(title.text for title in node.iter("title"))
        text = "".join(node.itertext()).removeprefix(hover)
        width = canvas.text_width(text, size, bold="bold" in style)
        anchor = re.search(r"text-anchor: (\w+)", style)
        x -= {"end": width, "middle": width / 2}.get(anchor[1] if anchor else "", 0.0)
        boxes.append((text, x, y - 0.72 * size, x + width, y + 0.1 * size))
    return boxes


def assert_readable(pictures: dict[str, Figure]) -> None:
    """No text lies on another, and none leaves the picture."""
    drawings = [(key, svg) for key, figure in pictures.items() for svg in (figure.svg, figure.narrow) if svg]
    for key, svg in drawings:
        boxes = boxes_of(svg)
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
        assert [text for text, left, _, right, _ in boxes if left < -1 or right > width + 1] == [], key
        for box, other in combinations(boxes, 2):
            apart = box[3] <= other[1] + 1 or other[3] <= box[1] + 1 or box[4] <= other[2] + 1 or other[4] <= box[2] + 1
            assert apart, (key, box, other)


def test_no_text_lies_on_another(pictures: dict[str, Figure]) -> None:
    """Labels, numbers, ticks and titles, also with an outlier."""
    assert_readable(pictures)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(spread=0.0, calls=2000),
        Shape(modes=("static",), backends=("onnxruntime",), calls=500),
        Shape(
            models=("m" * 90 + " <b>&\u202e$x^2$",),
            recipes=("default", "long-" * 18),
            modes=("static",),
            calls=2000,
        ),
    ],
    ids=["all alike", "one case", "long names"],
)
def test_hard_runs_are_readable(tmp_path: Path, shape: Shape) -> None:
    """Many near-equal variants, one case only, long and hostile names."""
    drawing = drawn(read_run(write_large_run(tmp_path / "run", shape)))
    assert "pareto" in drawing
    assert_readable(drawing)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("large", None),
        ("one", Shape(modes=("static",), backends=("onnxruntime",), calls=500)),
        ("alike", Shape(modes=("static",), spread=0.0, calls=500)),
    ],
)
def test_the_words_below_every_picture_are_golden(tmp_path: Path, folder: Path, name: str, shape: Shape | None) -> None:
    """Each caption in full: numbers, singular and plural, the limits of the suite, and what the colours mean."""
    run = folder if shape is None else write_large_run(tmp_path / "run", shape)
    captions = [f"{key}: {figure.heading}\n  {figure.caption}" for key, figure in drawn(read_run(run)).items()]
    assert same_as_golden(f"captions_{name}.txt", "\n".join(captions) + "\n")


def test_what_pictures_say_and_the_figures_behind_them_are_golden(pictures: dict[str, Figure]) -> None:
    """Heading, caption, how many more there are, and each row of the data."""
    lines = []
    for figure in pictures.values():
        assert figure.data is not None
        lines += [f"{figure.key}: {figure.heading}", f"  {figure.caption}", f"  more: {figure.more}"]
        lines += [f"  {' | '.join(row)}" for row in (figure.data.columns, *figure.data.rows)]
    assert same_as_golden("figure_words.txt", "\n".join(lines) + "\n")
