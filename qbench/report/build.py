"""A run's folder -> report.html, summary.md and the tables beside them, from what is stored alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from qbench import formatting
from qbench.decide import decision, json_text
from qbench.decide import judged as judging
from qbench.decide.judged import Judged, Source, SuiteRules
from qbench.errors import QbenchError, SuiteError
from qbench.files import atomic
from qbench.record.stored_run import StoredRun, read_run
from qbench.report import comparison as comparing
from qbench.report import flips, frame, html
from qbench.report.page import page
from qbench.report.ruling import rule
from qbench.report.run_warnings import warnings
from qbench.report.summary import summary

if TYPE_CHECKING:
    import pandas as pd

REPORT, SUMMARY, RESULTS, PARQUET = "report.html", "summary.md", "results.csv", "results.parquet"
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
    decisions = decision.decide(judged)
    changes = flips.of_run(run)
    comparison = _compare_with(other, run, decisions)
    rulings = rule(judged, decisions)
    content_of_page = page(run, judged, decisions, rulings, changes)
    results = frame.cases_frame(run, judged, decisions)
    files = {
        RESULTS: csv_text(results),
        FLIPS: csv_text(flips.flips_frame(changes)),
        CLASSES: csv_text(flips.classes_frame(changes)),
        SUMMARY: summary(run, judged, decisions, rulings, changes, comparing.as_parts(comparison)),
        DECISION: json_text.as_json(run.info.suite.name, decisions, warnings(run, judged, changes)),
        REPORT: html.render(content_of_page, comparison),
    }
    for name, content in files.items():
        _write(folder / name, content)
    if find_spec("pyarrow") is not None:
        _write(folder / PARQUET, parquet_bytes(results))
    return folder / REPORT


def _compare_with(
    folder: Path | None, run: StoredRun, decisions: Sequence[decision.Decision]
) -> comparing.RunComparison | None:
    if folder is None:
        return None
    other = read_run(folder, lenient=True)
    return comparing.compare_runs(other, run, decision.decide(judge(other)), decisions)


def read_cases(run: StoredRun) -> pd.DataFrame:
    """One row per case with the columns of ``columns.COLUMNS``, those of the decision among them."""
    judged = judge(run)
    return frame.cases_frame(run, judged, decision.decide(judged))


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """The frame with its types as parquet, whose content depends on the frame alone; needs pyarrow."""
    named = frame.rename(columns=formatting.clean)
    text = named.select_dtypes("object").columns
    content: bytes = named.astype(dict.fromkeys(text, "string")).to_parquet(None, engine="pyarrow", index=False)
    return content


def judge(run: StoredRun) -> Judged:
    """The run's records, held against the rules of its own suite."""
    return judging.judge(
        run.records,
        run.info.metric,
        rules_of(run),
        run.pairs,
        planned=run.info.plan.cases,
        source=Source(
            suite=shlex.quote(run.info.suite.file),
            run=shlex.quote(run.info.suite.name),
            quick=run.info.quick is not None,
        ),
        samples=run.samples,
        values=run.values,
    )


def rules_of(run: StoredRun) -> SuiteRules | None:
    """What the run's suite asks for; None where this qbench cannot read that suite."""
    from qbench import suite as suites

    stored = run.info.suite
    try:
        suite = suites.parse(stored.text, file=stored.file, overrides=stored.overrides, stored=True)
    except SuiteError:
        return None
    gate = suite.gate.settle_metric(None if run.info.metric is None else run.info.metric.name)
    return SuiteRules(gate=gate, decide=suite.decide, precision=suite.measure.precision, place=suite.place)


def csv_text(frame: pd.DataFrame) -> str:
    """The frame as CSV in which no cell is run as a formula by a spreadsheet."""
    safe = frame.map(lambda value: formatting.cell(value) if isinstance(value, str) else value)
    safe.columns = [formatting.cell(str(name)) for name in frame.columns]
    content: str = safe.to_csv(index=False, lineterminator="\n")
    return content


def _write(file: Path, content: str | bytes) -> None:
    try:
        if isinstance(content, str):
            atomic.write_text(file, content)
        else:
            with atomic.replace_file(file) as part:
                part.write_bytes(content)
    except OSError as error:
        raise QbenchError(
            f"{file}: cannot be written: {error.strerror or error}; the records are kept: make room, then "
            f"`qbench report {file.parent}`"
        ) from error
