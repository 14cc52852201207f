"""Rules of qbench/report/notebook.py and of pictures in a notebook, executed by nbconvert."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import RUN_V1, case_key, fp32, info, int8, speedup
from made_runs import run_folder

from qbench.api import Run
from qbench.record.schema import Record
from qbench.record.stored_run import SuiteInfo, read_run
from qbench.report.notebook import draw_answer

RUN = f"Path({str(RUN_V1)!r})"
CELLS = [
    "import warnings; warnings.simplefilter('error')",
    f"import qbench; from qbench.report import plots; from pathlib import Path; frame = qbench.load({RUN})",
    f"from qbench.api import Run; Run(folder={RUN}, report=None, exit_code=0)",
    "plots.pareto(frame)",
    f"plots.latency(frame, qbench.load({RUN}, 'calls'))",
    "figure = plots.speedup(frame)",
    "warnings.simplefilter('ignore')",  # what the kernel itself does when it ends
]


@pytest.fixture(scope="module")
def outputs() -> list[list[dict[str, Any]]]:
    """What each cell of a notebook shows that says nothing of matplotlib."""
    nbformat = pytest.importorskip("nbformat", reason="the extra `test` brings it")
    preprocessors = pytest.importorskip("nbconvert.preprocessors", reason="the extra `test` brings it")
    pytest.importorskip("ipykernel", reason="the extra `test` brings it")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    preprocessors.ExecutePreprocessor(timeout=300, kernel_name="python3").preprocess(book)
    return [list(cell.outputs) for cell in book.cells]


def test_a_picture_shows_itself(outputs: list[list[dict[str, Any]]]) -> None:
    """As a PNG, without ``%matplotlib inline``; one that is only bound shows nothing."""
    assert [len(shown) for shown in outputs] == [0, 0, 1, 1, 1, 0, 0]
    for (shown,) in outputs[3:5]:
        picture = base64.b64decode(shown["data"]["image/png"])
        assert picture.startswith(b"\x89PNG")
        width = int.from_bytes(picture[16:20])
        assert abs(width - 2 * shown["metadata"]["image/png"]["width"]) <= 1  # sharp on a screen of fine pixels


def test_a_run_shows_its_card(outputs: list[list[dict[str, Any]]]) -> None:
    """The same HTML as outside a notebook."""
    (shown,) = outputs[2]
    assert shown["data"]["text/html"] == Run(folder=RUN_V1, report=None, exit_code=0)._repr_html_()
    assert "headline" in shown["data"]["text/html"]


SUITE = """
suite: demo
models: [{name: net, source: {python: "net.py:make"}}]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [torch, onednn]}
gate: {accuracy: {metric: top1, margin: 2.0}}
"""


def draw(folder: Path, *records: Record, name: str = "demo") -> str:
    """The answer of some records, by a suite with a margin."""
    suite = SuiteInfo(name=name, file="suites/demo.yaml", text=SUITE)
    return draw_answer(read_run(run_folder(folder, list(records), info(suite=suite))), folder / "report.html")


def test_the_card_says_what_to_ship_with_its_figures(tmp_path: Path) -> None:
    """Headline, tiles, how sure, and where the page lies; it loads nothing."""
    text = draw(tmp_path / "run", fp32(), int8())
    for said in ("ship static int8 on oneDNN (PyTorch)", "time of a call", "1.00 ms", "How sure", "report.html"):
        assert said in text
    for loading in ("http:", "https:", "<script", "src=", "@import", "url("):
        assert loading not in text


def test_what_a_run_calls_itself_is_text(tmp_path: Path) -> None:
    """A run may be somebody else's: no name of it is HTML."""
    hostile = "<img src=x onerror=alert(1)>"
    case = case_key(f"{hostile}/static/onednn/t1/b1")
    record = replace(int8(speedup=speedup(baseline=f"{hostile}/fp32/torch/t1/b1")), case=case)
    reference = replace(fp32(), case=case_key(f"{hostile}/fp32/torch/t1/b1"))
    text = draw(tmp_path / "run", reference, record, name=hostile)
    assert "<img" not in text
    assert "&lt;img" in text


def test_of_many_settings_the_first_are_shown(tmp_path: Path) -> None:
    """The rest is counted."""
    records: list[Record] = []
    for batch in range(1, 9):
        reference = f"net/fp32/torch/t1/b{batch}"
        records.append(replace(fp32(), case=case_key(reference)))
        records.append(int8(f"net/static/onednn/t1/b{batch}", speedup=speedup(baseline=reference)))
    text = draw(tmp_path / "run", *records)
    assert text.count("<article") == 6
    assert "2 more settings: see the report." in text


def test_a_run_without_a_record_says_so(tmp_path: Path) -> None:
    """No card, no error."""
    assert "No answer: the run has no record yet." in draw(tmp_path / "run")
