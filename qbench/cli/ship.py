"""``qbench ship``: the answer of a run as a folder that is deployed without qbench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Run
from qbench.cli.output import find_folder, terminal_width
from qbench.errors import UsageError

if TYPE_CHECKING:
    from qbench.record.stored_run import StoredRun
    from qbench.ship.folder import Chosen

SHIPPED = Path("shipped")


def ship(
    run: Run,
    case: Annotated[
        str | None,
        typer.Argument(metavar="[CASE]", help="The id of a case; default: what the run says to ship."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="A new folder; default: shipped/<suite>."),
    ] = None,
) -> None:
    """Write what a run says to ship as a folder that a colleague can deploy without qbench.

    It holds the model's file under a plain name, predict.py, which needs the runtime alone, requirements.txt, README.md
    (what was measured where, what it must not run on) and provenance.json. Where a run answers for several settings,
    each has a folder of its own within DIR; all are written, or none.
    """
    from qbench.record.stored_run import read_run
    from qbench.report import terminal
    from qbench.ship.folder import write_folder

    stored = read_run(find_folder(run, full=True), lenient=True)
    for shipped in write_folder(stored, _choose(stored, case), output or SHIPPED / stored.info.suite.name):
        print(
            terminal.wrap(
                f"{shipped.case}: {shipped.folder / shipped.file}, and README.md beside it says how to run it",
                terminal_width(),
            )
        )


def _choose(stored: StoredRun, case: str | None) -> dict[str, Chosen]:
    """What to ship, by the name of its folder among several; raises ``UsageError``."""
    from qbench.decide.decision import decide
    from qbench.decide.json_text import find_shipped
    from qbench.report import build
    from qbench.ship.folder import Chosen, plain_name

    decisions = decide(build.judge(stored))
    answers = {shipped: each.sentence for each in decisions if (shipped := find_shipped(each)) is not None}
    if case is not None and case not in stored.by_id:
        raise UsageError(f"{case}: no such case in {stored.folder}; its cases: {', '.join(sorted(stored.by_id))}")
    if case is None and not answers:
        said = "; ".join(decision.sentence for decision in decisions)
        raise UsageError(f"{stored.folder}: the run names nothing to ship ({said}); name a case: qbench ship RUN CASE")
    case_ids = list(answers) if case is None else [case]
    folders: dict[str, Chosen] = {}
    for each in case_ids:
        name = plain_name(each)
        name = name if name not in folders else f"{name}-{len(folders) + 1}"
        folders[name] = Chosen(record=stored.by_id[each], answer=answers.get(each))
    return folders
