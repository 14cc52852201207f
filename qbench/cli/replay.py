"""``qbench replay``: a run is made again from its own record, and what differs first is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from qbench.cli.options import Json, Quiet, Run
from qbench.cli.output import find_folder


def replay(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the new run lands, as DIR/<suite>/<time>-<id>/.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a run again: its suite, data, seeds and versions, nothing from the cache; say what differs first.

    The suite and what it names come from this disk, never from the run's folder. Times are not compared: `qbench
    compare` does. Exit code: 0 the same, 1 something differs, 2 usage, 3 the run did not end.
    """
    from qbench.progress.live import live
    from qbench.record.locate import REPORTS
    from qbench.replay import text
    from qbench.replay.replay import replay as story

    with live(sys.stderr, quiet=quiet) as progress:
        replayed = story(find_folder(run, full=True), progress.note, out=out or REPORTS, quiet=quiet)
    print(text.as_json(replayed).rstrip() if as_json else text.text(replayed))
    raise typer.Exit(replayed.exit_code)
