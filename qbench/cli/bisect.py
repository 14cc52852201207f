"""``qbench bisect``: which release, commit or layer made a case slower, or wrong."""

from __future__ import annotations

import enum
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Json, Quiet, Set, Suite
from qbench.cli.output import terminal_width

if TYPE_CHECKING:
    from qbench.bisect.question import On


class Concern(enum.Enum):
    """What the ends differ in."""

    latency = "latency"
    accuracy = "accuracy"
    failure = "failure"
    bits = "bits"


_Case = Annotated[str, typer.Option("--case", metavar="ID", help="The case's id, as `qbench plan` lists it.")]
_Good = Annotated[
    str, typer.Option(metavar="END", help="onnxruntime==1.20.0, a git commit, or `float`, with --bad `int8`.")
]
_Bad = Annotated[str, typer.Option(metavar="END", help="The end at which it is slower or wrong, of the same kind.")]
_On = Annotated[Concern, typer.Option(help="What to search by.")]
_PreReleases = Annotated[bool, typer.Option("--pre-releases", help="Also those before a release: 1.32.0rc1.")]
_Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where looks are kept and the page lands; default: below reports/bisections."),
]
_MaxMinutes = Annotated[
    float | None, typer.Option(metavar="M", min=0, help="Most minutes; the same command goes on from there.")
]


def bisect(
    suite: Suite,
    case: _Case,
    good: _Good,
    bad: _Bad,
    on: _On = Concern.latency,
    pre_releases: _PreReleases = False,
    out: _Out = None,
    overrides: Set = None,
    max_minutes: _MaxMinutes = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Search for the release, commit or layer that made a case slower or wrong, by the gate's own test.

    Every look is kept: the same command goes on where it was stopped.
    Exit code: 0 one is named, 1 the good end or the data failed, 2 usage, 3 nothing to search for (the ends do not
    differ, or one cannot be used), 4 not decided (one of several, or no more time).
    """
    from qbench import suite as suites
    from qbench.bisect import json_text, page, text
    from qbench.bisect.start import Request, start
    from qbench.progress.live import live
    from qbench.progress.table import format_table

    chosen: On = on.value
    read = suites.read(suite, tuple(overrides or ()))
    with live(sys.stderr, quiet=quiet) as progress:
        request = Request(
            suite=read,
            suite_file=suite,
            case=case,
            good=good,
            bad=bad,
            on=chosen,
            pre_releases=pre_releases,
            out=out,
            most_seconds=math.inf if max_minutes is None else 60 * max_minutes,
            quiet=quiet,
        )
        started = start(request, progress)
    question, answer, metric = started.question, started.answer, started.metric
    written = page.write_page(question, answer, started.folder, metric)
    files = {"page": str(written), "journal": str(started.journal.file)}
    if as_json:
        print(json_text.as_json(question, answer, files, metric))
    else:
        print(f"{text.sum_up(question, answer, metric)}\n")
        print(format_table(text.tabulate(question, answer, metric), terminal_width()))
        print(f"\npage: {written}")
    raise typer.Exit(answer.exit_code)
