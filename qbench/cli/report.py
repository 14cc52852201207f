"""``qbench report``: the report of a stored run, built again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbench.cli.answer import print_answer
from qbench.cli.options import OptionalRun
from qbench.cli.output import find_folder
from qbench.errors import UsageError


def report(
    run: OptionalRun = "",
    compare: Annotated[str | None, typer.Option(metavar="RUN", help="An older run to show the change from.")] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Also print the answers, and the table with every column.")
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Instead: write history.html over all runs of a suite, reports/<suite>."),
    ] = None,
    plots: Annotated[bool, typer.Option("--plots", help="Also save the pictures as SVG and PNG, in plots/.")] = False,
) -> None:
    """Rebuild report.html, summary.md and results.csv of a run from its records alone."""
    if history is not None:
        _write_history(run, history)
        return
    if not run:
        raise UsageError("qbench report: name a run, or --history reports/<suite>")
    from qbench.report.build import build_report

    folder = find_folder(run)
    page = build_report(folder, other=None if compare is None else find_folder(compare))
    if wide:
        print_answer(folder, wide=True)
    if plots:
        from qbench.report.saved_plots import save_plots

        save_plots(folder)
    print(page)


def _write_history(run: str, folder: str) -> None:
    from qbench.report.history_page import build_history

    if run:
        raise UsageError(f"--history {folder}: is about all runs of a suite; leave out {run}")
    print(build_history(Path(folder)))
