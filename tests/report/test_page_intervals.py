"""Every interval of a page is a figure of the records, by tests/benchmarks/page_intervals.py."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

from made_records import RUN_V1

from qbench.report.build import build_report
from qbench.stats.interval_type import Interval


def page_intervals() -> Any:
    """The script as a module."""
    file = Path(__file__).parent.parent / "benchmarks" / "page_intervals.py"
    spec = importlib.util.spec_from_file_location("page_intervals", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_figure_has_one_interval_wherever_it_stands(tmp_path: Path) -> None:
    """Table, cards, captions, pictures' tables and summary.md print what the records hold, of the accuracy change what
    was tested: no second interval of the same figure."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    build_report(folder)
    count, unknown = page_intervals().check_run(folder)
    assert count > 50
    assert [each.around for each in unknown] == []


def test_another_interval_of_a_figure_is_found() -> None:
    """-62 [-65, -56] in a table and -61.75 [-61.87, -61.59] in a caption: the second is none of the run's."""
    script = page_intervals()
    page = "<td>-62 [-65, -56] dB</td><figcaption>\N{MINUS SIGN}61.75 [\N{MINUS SIGN}61.87, \N{MINUS SIGN}61.59]"
    count, unknown = script.find_unknown([page], [Interval(value=-61.75, low=-64.6, high=-56.3)])
    assert count == 2
    assert [each.numbers for each in unknown] == [("-61.75", "-61.87", "-61.59")]
