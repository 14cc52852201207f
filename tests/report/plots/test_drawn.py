"""What every picture draws: each mark, line, bar and word with its place and its look, in golden files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from large_run import Shape, write_large_run
from made_records import same_as_golden

import qbench
from qbench.report import plots
from qbench.report.plots import canvas
from qbench.report.plots.cases import read_cases

NAMES = canvas.variables()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight cases at one number of threads and at two, one of them far off in time and accuracy."""
    shape = Shape(threads=(1, 2), backends=("x86", "onnxruntime"), calls=1920, processes=2, outlier=True)
    return write_large_run(tmp_path_factory.mktemp("drawn") / "run", shape)


@pytest.fixture(scope="module")
def frame(folder: Path) -> pd.DataFrame:
    """The cases of that run."""
    return qbench.load(folder)


def number_layers(case: str) -> pd.DataFrame:
    """Layers of a case: one in int8, one that clips, one that lies below 0 dB, one in float with a figure and one
    without."""
    rows = [("conv", 31.5, 0.0, False), ("clips", 22.0, 0.25, False), ("below", -3.0, None, False),
            ("near", 45.0, 0.0, True), ("float", None, None, True)]  # fmt: skip
    columns = ["layer", "sqnr_db", "clipped", "is_float"]
    return pd.DataFrame(rows, columns=columns).assign(**{"case.id": case, "n": 90, "cosine": 1.0, "reason": None})


def name_color(color: Any) -> str:
    """The role or backend that a colour stands for."""
    import matplotlib as mpl

    if mpl.colors.to_rgba(color)[3] == 0:
        return "none"
    drawn = mpl.colors.to_hex(color)
    return NAMES.get(drawn, drawn).partition(",")[0].removeprefix("var(--").rstrip(")")


def write(numbers: Iterable[Any]) -> str:
    """Numbers with four digits."""
    return " ".join(f"{float(number) + 0.0:.4g}" for number in numbers)


def write_depth(artist: Any) -> str:
    """How far in front it lies, how strong it is, and that it is cut at no edge."""
    alpha = "" if artist.get_alpha() is None else f" alpha {artist.get_alpha():g}"
    return f"z{artist.get_zorder():g}{alpha}{'' if artist.get_clip_on() else ' whole'}"


def list_axes(axes: Any, size: tuple[float, float]) -> Iterator[str]:
    """A line for each thing on these axes, in the order in which they were drawn."""
    box = axes.get_position()
    yield "axes " + write((box.x0 * size[0], box.y0 * size[1], box.width * size[0], box.height * size[1]))
    if axes.axison:
        sides = [
            f"{side} {name_color(each.get_edgecolor())}" for side, each in axes.spines.items() if each.get_visible()
        ]
        yield f" frame {', '.join(sides)}"
        for axis in (axes.xaxis, axes.yaxis):
            for tick in axis.get_major_ticks()[:1]:
                look = f"{write([tick.tick1line.get_markersize(), tick.label1.get_fontsize()])}"
                colors = f"{name_color(tick.tick1line.get_color())} {name_color(tick.label1.get_color())}"
                yield f" {axis.axis_name} ticks {look} {colors} {len(axis.get_minorticklocs())} minor"
        title = axes.xaxis.label
        yield f" title {write([title.get_fontsize(), axes.xaxis.labelpad])} {name_color(title.get_color())}"
    for name, axis, limits in (("x", axes.xaxis, axes.get_xlim()), ("y", axes.yaxis, axes.get_ylim())):
        ticks = [
            f"{write([at])}={label.get_text()}"
            for at, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        ]
        yield f" {name} {axis.get_scale()} {write(limits)} '{axis.get_label_text()}' {' '.join(ticks)}"
    for line in axes.lines:
        places = f"{write(line.get_xdata())} | {write(line.get_ydata())}"
        drawn = line.get_linestyle() != "None"
        look = f"{line.get_linestyle()} {write([line.get_linewidth()])} {name_color(line.get_color())}" if drawn else ""
        mark = ""
        if line.get_marker() != "None":
            filled = f"{name_color(line.get_markerfacecolor())}/{name_color(line.get_markeredgecolor())}"
            mark = f"{line.get_marker()} {write([line.get_markersize(), line.get_markeredgewidth()])} {filled}"
        dashes = f" dashes {write(line._dash_pattern[1])}" if line.is_dashed() else ""
        ends = f" {line.get_solid_capstyle()}" if drawn else ""
        told = "" if line.get_label()[:1] in "_" else f"  told '{line.get_label()}'"
        yield f" line {places}  {look}{dashes}{ends}  {mark}  {write_depth(line)}{told}"
    for bar in axes.patches:
        path = bar.get_patch_transform().transform_path(bar.get_path())
        points = (*path.get_extents().bounds, *path.vertices.mean(axis=0))
        edge = f"{name_color(bar.get_facecolor())}/{name_color(bar.get_edgecolor())} {write([bar.get_linewidth()])}"
        yield f" patch {write(points)}  {edge} {bar.get_hatch() or ''}".rstrip() + f"  {write_depth(bar)}"
    for group in axes.collections:
        paths = [write(path.vertices.ravel()) for path in group.get_paths()]
        colors = [name_color(color) for color in (*group.get_facecolor(), *group.get_edgecolor())]
        shown = [path if len(path) < 100 else f"{path[:60]} … {path[-30:]}" for path in paths]
        dashes = [write(pattern or ()) for _, pattern in group.get_linestyle()]
        look = f"{write(group.get_linewidth())} {'/'.join(dashes)}".rstrip()
        yield f" group {' ; '.join(shown)}  {'/'.join(colors)} {look}  {write_depth(group)}"
    for text in axes.texts:
        where = f"{write(text.get_position())} {text.get_ha()} {text.get_va()}"
        look = f"{text.get_weight()} {write([text.get_fontsize()])} {name_color(text.get_color())}"
        rim = text.get_bbox_patch()
        ground = "" if rim is None else f"  on {name_color(rim.get_facecolor())} {write([rim.get_alpha()])}"
        told = "" if text.get_label()[:1] in "_" else f"  told '{text.get_label()}'"
        yield f" text '{text.get_text()}' {where} {look}  {write_depth(text)}{ground}{told}"


def list_figure(figure: Any) -> str:
    """All of a figure."""
    size = tuple(side * 72 for side in figure.get_size_inches())
    lines = [f"figure {write(size)}"]
    for axes in figure.axes:
        lines += list_axes(axes, size)
    return "\n".join(lines) + "\n"


Draw = Callable[[pd.DataFrame], Any]
PICTURES: dict[str, Draw] = {
    "pareto": plots.pareto,
    "pareto_narrow": partial(plots.pareto, narrow=True),
    "speedup": partial(plots.speedup, most=10),
    "accuracy": partial(plots.accuracy, most=6),
    "size": partial(plots.footprint, what="size", most=3),
    "memory": partial(plots.footprint, what="memory", most=3),
    "cold_start": partial(plots.footprint, what="cold_start", most=3),
    "threads": plots.scaling,
    "roofline": partial(plots.roofline, most=3),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_cases_is_golden(frame: pd.DataFrame, name: str) -> None:
    """What is shipped is ringed, fp32 hollow, what lies off the scale an arrow at its edge; a change shows as lines of
    text."""
    assert same_as_golden(f"drawn_{name}.txt", list_figure(PICTURES[name](frame)))


def test_a_picture_of_layers_is_golden(frame: pd.DataFrame) -> None:
    """Bars from zero, in float hatched, the clipped share in red."""
    case = next(case.key for case in read_cases(frame) if case.role == "ship")
    assert same_as_golden("drawn_layers.txt", list_figure(plots.layers(frame, number_layers(case))))


def test_a_picture_of_calls_is_golden(folder: Path, frame: pd.DataFrame) -> None:
    """A hill for each case and a tick for each process."""
    figure = plots.latency(frame, qbench.load(folder, "calls"), most=2)
    assert same_as_golden("drawn_latency.txt", list_figure(figure))
