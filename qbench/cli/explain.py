"""``qbench explain``: why a case is not faster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Json, Quiet, Run
from qbench.cli.output import find_folder, terminal_width

if TYPE_CHECKING:
    from qbench.explain.story import Explained


def explain(
    run: Run,
    case: Annotated[str, typer.Argument(metavar="CASE", help="An int8 case's id.", show_default=False)],
    suite: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's suite, if it is not where the run says.")
    ] = None,
    max_seconds: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="Most seconds of measuring for each change that is tried.")
    ] = 5.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show where the time of an int8 case goes, and which causes make it slow: each taken away and measured.

    Variants are built from the suite's file as it stands on this disk, and measured beside the case, as `qbench run`
    measures. A cause is named where the case is shown to be slower with it than without.
    """
    from qbench.explain.story import explain_case
    from qbench.progress.live import live
    from qbench.record.stored_run import read_run

    stored = read_run(find_folder(run))
    with live(sys.stderr, quiet=quiet) as progress:
        explained = explain_case(stored, case, suite_file=suite, progress=progress, max_seconds=max_seconds)
    if as_json:
        from qbench.explain import text

        print(text.as_json(explained), end="")
    else:
        _show(explained, terminal_width())


def _show(explained: Explained, width: int | None) -> None:
    from qbench import registry
    from qbench.explain import text
    from qbench.progress.table import format_table
    from qbench.report import terminal

    for line in text.list_head(explained):
        print(terminal.wrap(line, width))
    if explained.times is None:
        print(terminal.wrap(f"\nWhere its time goes is not known: {explained.no_times}.", width))
    else:
        print(f"\n{format_table(text.make_kind_table(explained.times), width)}")
        print(f"\n{format_table(text.make_layer_table(explained.times), width)}")
    print()
    titles = {name: registry.load("cause", name) for name in registry.names("cause")}
    for line in text.list_causes(explained.explanation, titles):
        print(terminal.wrap(line, width))
    keys, variables = text.write_suite_keys(explained), text.list_environment(explained)
    if keys is not None:
        print(f"\nIn the suite:\n\n{keys}\n")
    if (accuracy := text.describe_accuracy(explained)) is not None:
        print(terminal.wrap(accuracy, width))
    for line in variables:
        print(line)
