"""The answer of a run as a piece of HTML for a notebook: self-contained, everything escaped."""

from __future__ import annotations

from pathlib import Path

from qbench.decide.decision import decide
from qbench.record.stored_run import StoredRun
from qbench.report import flips, html
from qbench.report.build import judge
from qbench.report.cards import cards
from qbench.report.ruling import rule
from qbench.report.run_warnings import warnings

MOST = 6  # settings whose cards are shown; the page has the others


def draw_answer(run: StoredRun, report: Path | None) -> str:
    """A card for each of the first settings, warnings, and where the page lies.

    Its style holds for its own element alone, takes the notebook's letters and background, and is not needed to read
    it, since a notebook that nobody trusts is shown without.
    """
    judged = judge(run)
    decisions = decide(judged)
    answers = cards(decisions, judged, rule(judged, decisions), run.info)
    return html.fill(
        "notebook.jinja",
        cards=answers[:MOST],
        more=len(answers) - len(answers[:MOST]),
        warnings=warnings(run, judged, flips.of_run(run)),
        report=report,
    )
