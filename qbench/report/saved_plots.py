"""The pictures of a run as files: each of one model, and headed by it, the machine and the day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbench import formatting
from qbench.errors import QbenchError
from qbench.files import atomic
from qbench.record.stored_run import RunInfo, StoredRun, read_run
from qbench.report.build import judge
from qbench.report.figures import list_drawings
from qbench.report.plots import canvas, svg
from qbench.report.plots.picture import Drawing

PLOTS = "plots"
_LETTERS = 60  # of a model's name in that of a file


def save_plots(folder: Path) -> tuple[Path, ...]:
    """Saves each picture of each model of a run as ``plots/<model>-<key>.svg`` and ``.png`` in its folder; gives the
    files. They depend on the run alone."""
    run = read_run(folder, lenient=True)
    files: list[Path] = []
    for name, model in _name_models(run).items():
        for drawing in list_drawings(run, judge(run), model=model):
            figure = drawing.draw()
            add_heading(figure, f"{model}: {drawing.heading}", say_origin(run.info))
            files += _save(figure, folder / PLOTS / f"{name}-{drawing.key}", drawing)
    return tuple(files)


def _save(figure: Any, file: Path, drawing: Drawing) -> Iterator[Path]:
    for ending in (".svg", ".png"):
        target = file.with_name(f"{file.name}{ending}")
        try:
            atomic.make_folder(file.parent)
            with canvas.settings(), atomic.replace_file(target) as part:
                if ending == ".svg":
                    part.write_text(svg.draw(figure, facecolor="white"), encoding="utf-8")
                else:
                    figure.savefig(part, format="png", dpi=200, facecolor="white", metadata={"Software": None})
        except OSError as error:
            raise QbenchError(f"{target}: cannot be written: {error.strerror or error}") from error
        yield target


def _name_models(run: StoredRun) -> dict[str, str]:
    """The run's models by what their files are called: letters, digits, dots and dashes; a number tells two apart."""
    models: dict[str, str] = {}
    for model in dict.fromkeys(record.case.model for record in run.records):
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[:_LETTERS] or "model"
        number, name = 1, plain
        while name.lower() in (taken.lower() for taken in models):
            number += 1
            name = f"{plain}-{number}"
        models[name] = model
    return models


def say_origin(info: RunInfo) -> str:
    """``Intel Xeon, 2 cores, 2026-01-31, qbench 0.2.0``, as far as it is known."""
    cores = info.environment.get("cores_allowed")
    words = (
        str(info.environment.get("cpu") or ""),
        f"{cores} cores" if isinstance(cores, int) else "",
        (info.started or "")[:10],
        f"qbench {version}" if (version := info.versions.get("qbench")) else "",
    )
    return ", ".join(word for word in words if word)


def add_heading(figure: Any, title: str, origin: str) -> None:
    """Puts a title and where the figures come from above a figure, which grows by as much."""
    width, height = (side * 72 for side in figure.get_size_inches())
    lines = [(line, "bold", canvas.ROLES["ink"]) for line in _wrap(title, width, bold=True)]
    lines += [(line, "normal", canvas.ROLES["muted"]) for line in _wrap(origin, width, bold=False)]
    strip = canvas.LINE * len(lines) + 8
    with canvas.settings():
        figure.set_size_inches(width / 72, (height + strip) / 72)
        for axes in figure.axes:
            left, bottom, wide, high = axes.get_position().bounds
            share = height / (height + strip)
            axes.set_position((left, bottom * share, wide, high * share))
        for number, (line, weight, color) in enumerate(lines):
            y = 1 - (canvas.LINE * number + 12) / (height + strip)
            style = {"fontsize": canvas.SIZE, "weight": weight, "color": color}
            figure.text(4 / width, y, line, va="baseline", parse_math=False, **style)


def _wrap(text: str, width: float, *, bold: bool) -> Iterator[str]:
    """The words on as many lines as they need, at most three; the middle of a longer word is left out."""
    lines = [""]
    for word in formatting.one_line(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(lines) < 3 and canvas.text_width(longer, bold=bold) > width - 8:
            lines.append(word)
        else:
            lines[-1] = longer
    yield from (canvas.fit_text(line, width - 8, bold=bold) for line in lines if line)
