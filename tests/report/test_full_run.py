"""All that a report says of a run in which each kind of thing is there once: its cells, page and summary are golden."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path

import pytest
from made_full_run import TORCH, list_records, write_full_run, write_older_run
from made_records import same_as_golden
from made_runs import Page

from qbench.decide.decision import decide
from qbench.record.schema import Record
from qbench.record.stored_run import read_run
from qbench.report.build import build_report, judge
from qbench.report.cells import Cell, latency_unit, list_rows
from qbench.report.columns import draw_cells


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run with its report, compared with an older one."""
    home = tmp_path_factory.mktemp("full")
    folder = write_full_run(home / "run")
    build_report(folder, other=write_older_run(home / "older"))
    return folder


def tell(key: str, cell: Cell) -> str:
    """A cell as a line: what is shown, what orders it, its tone and hint."""
    sort = "" if cell.sort is None else f" {cell.sort:.6g}"
    ends = "" if cell.low is None or cell.high is None else f" {cell.low:.6g}..{cell.high:.6g}"
    return f"  {key}: {cell}  |{sort}{ends} {cell.tone} {cell.hint}".rstrip(" |")


def test_every_cell_of_every_case_is_golden(folder: Path) -> None:
    """Text, limits, what orders the column, tone and hint; a dash alone is left out."""
    run = read_run(folder)
    judged = judge(run)
    settings = {decision.setting: decision for decision in decide(judged)}
    lines = []
    for setting, decision in settings.items():
        records = [record for record in run.records if record.case.threads == setting.threads]
        for row in list_rows(judged, records, latency_unit(records)[0]):
            cells = draw_cells(row)
            lines += [row.record.case.id, *(tell(key, cell) for key, cell in cells.items() if cell != Cell())]
        lines.append(f"{setting}: {decision.sentence}")
    assert same_as_golden("full_run_cells.txt", "\n".join(lines) + "\n")


def list_lesser(record: Record) -> Iterator[tuple[str, Record]]:
    """The record without one thing that it knows, each by its name: a part, or a field of one that may be absent."""
    for part in fields(Record):
        value = getattr(record, part.name)
        if value is None or part.default is MISSING or part.name in ("schema", "reference"):
            continue
        if part.default is None:
            yield part.name, replace(record, **{part.name: None})
        for inner in fields(value) if is_dataclass(value) else ():
            if inner.default is None and getattr(value, inner.name) is not None:
                yield f"{part.name}.{inner.name}", replace(record, **{part.name: replace(value, **{inner.name: None})})


def test_what_a_case_does_not_know_is_in_no_cell(folder: Path) -> None:
    """What changes in which cell without each part of a record is golden, of the cases that know most."""
    run = read_run(folder)
    judged = judge(run)
    decision, *_ = decide(judged)
    records = [record for record in run.records if record.case.threads == decision.setting.threads]
    listed = list_rows(judged, records, latency_unit(records)[0])
    lines = []
    for case in records[:4]:
        row = next(row for row in listed if row.record is case)
        stranger = replace(case, elapsed_seconds={"build": 1.0})  # as the others, it equals no record of the run
        cells = draw_cells(replace(row, record=stranger, decision=decision))
        lines.append(case.case.id)
        for name, lesser in list_lesser(stranger):
            drawn = draw_cells(replace(row, record=lesser, decision=decision))
            told = {key: tell(key, cell).strip() for key, cell in drawn.items()}
            changed = [text for key, text in told.items() if text != tell(key, cells[key]).strip()]
            lines += [f"  without {name}: {'; '.join(changed)}"] if changed else []
    assert same_as_golden("full_run_without.txt", "\n".join(lines) + "\n")


def test_the_summary_is_golden(folder: Path) -> None:
    """Sentences, warnings, tables, folds, and what changed since the older run."""
    assert same_as_golden("full_run_summary.md", (folder / "summary.md").read_text(encoding="utf-8"))


def test_the_words_of_the_page_are_golden(folder: Path) -> None:
    """In their order, pictures apart, of which other tests tell."""
    source = (folder / "report.html").read_text(encoding="utf-8")
    plain = re.sub(r"<(svg|script|style)\b.*?</\1>", "", source, flags=re.DOTALL)
    words = [" ".join(text.split()) for text in Page(plain).words]
    assert same_as_golden("full_run_page.txt", "\n".join(filter(None, words)) + "\n")


def test_the_case_of_every_kind_is_there(folder: Path) -> None:
    """As it was written."""
    assert [record.case for record in read_run(folder).records] == [record.case for record in list_records()]


def shorten(value: str) -> str:
    """A value of a file; a number with six digits."""
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return value


def test_the_values_of_a_case_are_golden(folder: Path) -> None:
    """What results.csv holds of the cases that know most."""
    lines = []
    with (folder / "results.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["case.id"] in (TORCH, "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1", "net/bf16/openvino/t1/b1"):
                lines += [row["case.id"], *(f"  {name}: {shorten(value)}" for name, value in row.items() if value)]
    assert same_as_golden("full_run_values.txt", "\n".join(lines) + "\n")
