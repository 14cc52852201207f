"""``qbench report``: the report of a stored run, built again."""

from __future__ import annotations

from typing import Annotated

import typer

from qbench.cli.options import Run
from qbench.cli.output import find_folder


def report(
    run: Run,
    compare: Annotated[str | None, typer.Option(metavar="RUN", help="An older run to show the change from.")] = None,
) -> None:
    """Rebuild report.html, summary.md and results.csv of a run from its records alone."""
    from qbench.report.build import build_report

    print(build_report(find_folder(run), other=None if compare is None else find_folder(compare)))
