"""``qbench report``: the report of a stored run, built again."""

from __future__ import annotations

from typing import Annotated

import typer

from qbench.cli.answer import print_answer
from qbench.cli.options import Run
from qbench.cli.output import find_folder


def report(
    run: Run,
    compare: Annotated[str | None, typer.Option(metavar="RUN", help="An older run to show the change from.")] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Also print the answers, and the table with every column.")
    ] = False,
) -> None:
    """Rebuild report.html, summary.md and results.csv of a run from its records alone."""
    from qbench.report.build import build_report

    folder = find_folder(run)
    page = build_report(folder, other=None if compare is None else find_folder(compare))
    if wide:
        print_answer(folder, wide=True)
    print(page)
