"""Rules of qbench/report/history_charts.py: lines of ratios as a drawing."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_history import CASE, write_history
from made_records import same_as_golden

from qbench.report.history import Panel, read_history
from qbench.report.history_charts import WIDTH, draw, find_span, list_lines, name_lines


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Panel:
    """Sixteen runs with one change."""
    return read_history(write_history(tmp_path_factory.mktemp("history"))).panels[0]


def test_a_drawing_is_whole_and_inside_its_frame(panel: Panel) -> None:
    """Well-formed, every point and word inside, letters of 12 px and more on a phone."""
    for quantity in panel.quantities:
        root = ElementTree.fromstring(draw(panel, quantity))
        height = float(root.attrib["viewBox"].split()[3])
        for element in root.iter():
            for name, most in (
                ("x", WIDTH),
                ("x1", WIDTH),
                ("cx", WIDTH),
                ("y", height),
                ("y1", height),
                ("cy", height),
            ):
                assert 0 <= float(element.get(name, 0)) <= most
            if element.tag == "text":
                assert float(element.attrib["font-size"]) >= 12


def test_a_chart_is_golden(tmp_path: Path) -> None:
    """Levels, values, points and rings, days, and the marks of what changed beside the cases, of which the numbers
    that would lie on each other are left out."""

    def edit(number: int, changes: dict[str, Any]) -> dict[str, Any]:
        versions = {"torch": f"2.{(number >= 3) + (number >= 4) + (number >= 9)}"}
        return changes | {"versions": versions}

    (panel,) = read_history(write_history(tmp_path, edit=edit)).panels
    chart = draw(panel, panel.quantities[1]).replace("><", ">\n<")
    assert same_as_golden("history_chart.txt", f"{chart}\n")


def test_of_many_runs_only_those_that_changed_have_a_point(panel: Panel) -> None:
    """And no run has a tick: they would touch each other."""
    line = next(line for line in panel.series if line.changes)
    times = 60 // len(panel.runs) + 1
    many = replace(panel, runs=panel.runs * times, series=(replace(line, values=line.values * times),))
    few = replace(many, runs=many.runs[:60], series=(replace(line, values=many.series[0].values[:60]),))
    assert draw(few, line.quantity).count('r="2"') == 60
    assert draw(many, line.quantity).count('r="2"') == draw(many, line.quantity).count('r="5"') == 1
    ticks = [draw(each, line.quantity).count("<line ") - len(panel.marks) for each in (few, many)]
    assert ticks == [60 + 1, 1]


def test_what_changed_stands_out(panel: Panel) -> None:
    """A ring at the change and a thick line; nothing is drawn pale."""
    source = draw(panel, panel.quantities[0])
    assert source.count('r="5"') == 1
    assert source.count('stroke-width="2.4"') == 1
    assert "opacity" not in source


def test_every_line_has_its_name_and_its_values(panel: Panel) -> None:
    """The first level and the latest value in their own unit, and that of each run where the pointer rests."""
    words = {quantity.key: draw(panel, quantity) for quantity in panel.quantities}
    for source in words.values():
        assert ">net static · onednn</text>" in source
        assert ">net static · x86</text>" in source
    assert ">1.01 ms</text>" in words["p50"]
    assert ">1.26 ms</text>" in words["p50"]
    assert "<title>2026-01-01: " in words["p50"]
    assert re.search(r">2\.\d\d\N{MULTIPLICATION SIGN}</text>", words["speedup"])
    assert ">96.90 %</text>" in words["accuracy"]
    assert ">260 kB</text>" in words["size"]


def test_equal_names_are_told_apart(panel: Panel) -> None:
    """By threads and batch size; of a long model's name both ends stay."""
    line = panel.series[0]
    long = replace(line, record=replace(line.record, case=replace(line.record.case, model="m" * 90 + "7", threads=4)))
    names = name_lines(
        [line, replace(long), replace(long, record=replace(long.record, case=replace(long.record.case, threads=2)))]
    )
    assert len(set(names)) == 3
    assert "7 " in names[1]
    assert names[1].endswith(f"t4/b{line.record.case.batch_size}")


def test_gaps_are_not_bridged(panel: Panel) -> None:
    """A run without the case breaks its line in two."""
    line = next(line for line in panel.series if line.record.case.id == CASE)
    broken = replace(line, values=(*line.values[:4], None, *line.values[5:]), changes=())
    source = draw(replace(panel, series=(broken,)), line.quantity)
    assert len(re.findall("<polyline", source)) == 2


def test_changed_lines_come_first_of_many(panel: Panel) -> None:
    """At most 15 lines, the changed one always among them."""
    lines = [line for line in panel.series if line.quantity.key == "speedup"]
    changed = next(line for line in lines if line.changes)
    still = next(line for line in lines if not line.changes)
    chosen = list_lines(replace(panel, series=(*[still] * 40, changed)), changed.quantity)
    assert len(chosen) == 15
    assert chosen[0] is changed


def test_one_run_is_no_line(panel: Panel) -> None:
    """Nothing is drawn."""
    assert draw(replace(panel, runs=panel.runs[:1]), panel.quantities[0]) == ""


def test_a_row_is_no_higher_than_two_hundredths_of_its_level(panel: Panel) -> None:
    """Where nothing moves, noise does not fill it; what moves more fills it."""
    line = panel.series[0]
    still = replace(line, values=(2.0, 2.0), first=2.0, changes=())
    assert find_span([still]) == math.log(1.02)
    moved = replace(still, values=(1.0, 4.0))
    assert find_span([still, moved]) == pytest.approx(math.log(4))


def test_names_have_44_letters_at_most(panel: Panel) -> None:
    """The variant has two thirds of them."""
    line = panel.series[0]
    case = replace(line.record.case, model="m" * 90, backend="b" * 90)
    long = replace(line, record=replace(line.record, case=case))
    (name,) = name_lines([long])
    model, _, variant = name.partition(" ")
    assert (len(name), len(variant)) == (44, 29)
    assert "\u2026" in model
