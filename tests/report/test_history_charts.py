"""Rules of qbench/report/history_charts.py: lines of ratios as a drawing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from made_history import CASE, write_history

from qbench.report.history import Panel, read_history
from qbench.report.history_charts import HEIGHT, MOST_LINES, WIDTH, choose_lines, draw


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Panel:
    """Sixteen runs with one change."""
    return read_history(write_history(tmp_path_factory.mktemp("history"))).panels[0]


def test_a_drawing_is_whole_and_inside_its_frame(panel: Panel) -> None:
    """Well-formed, every point and word inside, letters of 12 px and more on a phone."""
    for quantity in panel.quantities:
        root = ElementTree.fromstring(draw(panel, quantity))
        for element in root.iter():
            for name, most in (
                ("x", WIDTH),
                ("x1", WIDTH),
                ("cx", WIDTH),
                ("y", HEIGHT),
                ("y1", HEIGHT),
                ("cy", HEIGHT),
            ):
                assert 0 <= float(element.get(name, 0)) <= most
            if element.tag == "text":
                assert float(element.attrib["font-size"]) >= 12


def test_what_changed_stands_out(panel: Panel) -> None:
    """A ring at the change, the name and the colour of its backend; the rest is pale and thin."""
    source = draw(panel, panel.quantities[0])
    assert source.count('r="5"') == 1
    assert "net static · onednn" in source
    assert "var(--backend-onednn)" in source
    assert source.count('stroke-opacity="0.55"') == 1


def test_gaps_are_not_bridged(panel: Panel) -> None:
    """A run without the case breaks its line in two."""
    line = next(line for line in panel.series if line.record.case.id == CASE)
    broken = replace(line, ratios=(*line.ratios[:4], None, *line.ratios[5:]), changes=())
    source = draw(replace(panel, series=(broken,)), line.quantity)
    assert len(re.findall("<polyline", source)) == 2


def test_changed_lines_come_first_of_many(panel: Panel) -> None:
    """At most 15 lines, the changed one always among them."""
    lines = [line for line in panel.series if line.quantity.key == "speedup"]
    changed = next(line for line in lines if line.changes)
    still = next(line for line in lines if not line.changes)
    chosen = choose_lines([*[still] * 40, changed])
    assert len(chosen) == MOST_LINES
    assert chosen[0] is changed


def test_one_run_is_no_line(panel: Panel) -> None:
    """Nothing is drawn."""
    assert draw(replace(panel, runs=panel.runs[:1]), panel.quantities[0]) == ""
