"""A run's folder -> report.html, summary.md and the tables beside them, from what is stored alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench import formatting
from qbench.compare import compare
from qbench.compare import text as compare_text
from qbench.compare.compare import Delta
from qbench.decide import decision, json_text
from qbench.decide import judged as judging
from qbench.decide.judged import Judged, Rules
from qbench.errors import QbenchError, SuiteError
from qbench.files import atomic
from qbench.machine import fingerprint
from qbench.record.stored_run import StoredRun, read_run
from qbench.report import flips, html, table, text
from qbench.report.markdown import Part, table_part
from qbench.report.page import page
from qbench.report.run_warnings import warnings
from qbench.report.summary import summary

if TYPE_CHECKING:
    import pandas as pd

REPORT, SUMMARY, RESULTS = "report.html", "summary.md", "results.csv"
DECISION = "decision.json"
FLIPS, CLASSES = "flips.csv", "classes.csv"


def build_report(folder: Path, *, other: Path | None = None) -> Path:
    """Writes the files and returns the path of ``report.html``.

    ``other`` is the folder of an earlier run that this one is compared with. Works on a run without records, on one
    that is not finished, and on one with damaged files beside its records, which it names. Raises ``UsageError`` where
    the folder is no run, ``QbenchError`` where it cannot be written.
    """
    run = read_run(folder, lenient=True)
    judged = judge(run)
    found = decision.decide(judged)
    changes = flips.of_run(run)
    deltas = None if other is None else compared(read_run(other, lenient=True), run)
    shown = page(run, judged, found, changes, deltas, "" if other is None else other.name)
    shown = replace(shown, warnings=warnings(run, judged, changes))  # damaged files are known once all were read
    files = {
        RESULTS: csv_text(table.frame(run.records)),
        FLIPS: csv_text(flips.flips_frame(changes)),
        CLASSES: csv_text(flips.classes_frame(changes)),
        SUMMARY: summary(run, judged, found, changes, _compared_parts(deltas, judged)),
        DECISION: json_text.as_json(run.info.suite.name, found),
        REPORT: html.render(shown),
    }
    for name, content in files.items():
        _write(folder / name, content)
    return folder / REPORT


def _compared_parts(deltas: Sequence[Delta] | None, judged: Judged) -> list[Part]:
    if deltas is None:
        return []
    note = compare_text.unpaired(deltas) or ""
    return [table_part(text.comparison(deltas, judged.metric), folded="Compared", after=formatting.markdown(note))]


def judge(run: StoredRun) -> Judged:
    """The run's records, held against the rules of its own suite."""
    return judging.judge(
        run.records,
        run.info.metric,
        rules_of(run),
        run.pairs,
        planned=run.info.plan.cases,
        samples=run.samples,
        values=run.values,
    )


def rules_of(run: StoredRun) -> Rules | None:
    """What the run's suite asks for; None where this qbench cannot read that suite."""
    from qbench import suite as suites

    stored = run.info.suite
    try:
        suite = suites.parse(stored.text, file=stored.file, overrides=stored.overrides, stored=True)
    except SuiteError:
        return None
    return Rules(gate=suite.gate, decide=suite.decide, precision=suite.measure.precision)


def compared(base: StoredRun, contender: StoredRun) -> Sequence[Delta]:
    """The deltas of two runs, latency only where their machines are comparable."""
    field = fingerprint.comparable(base.info.environment, contender.info.environment)
    return compare.compare(base.records, contender.records, incomparable=field)


def csv_text(frame: pd.DataFrame) -> str:
    """The frame as CSV in which no cell is run as a formula by a spreadsheet."""
    safe = frame.map(lambda value: formatting.cell(value) if isinstance(value, str) else value)
    safe.columns = [formatting.cell(str(name)) for name in frame.columns]
    content: str = safe.to_csv(index=False, lineterminator="\n")
    return content


def _write(file: Path, content: str) -> None:
    try:
        atomic.write_text(file, content)
    except OSError as error:
        raise QbenchError(
            f"{file}: cannot be written: {error.strerror or error}; the records are kept: make room, then "
            f"`qbench report {file.parent}`"
        ) from error
