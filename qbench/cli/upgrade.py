"""``qbench upgrade``: what other versions of libraries do to the cases of a suite, before they are installed."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli import gate_output
from qbench.cli.completion import complete_suite
from qbench.cli.options import Filter, Json, Quiet, Set
from qbench.cli.output import find_folder
from qbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qbench.environments.pins import Pin
    from qbench.upgrade.asked import Request


def upgrade(
    named: Annotated[
        str,
        typer.Argument(
            metavar="SUITE|RUN",
            help="A suite file, or a run (its folder, or its suite's name), which is then the old side.",
            autocompletion=complete_suite,
        ),
    ],
    to: Annotated[list[str], typer.Option("--to", metavar="NAME==VERSION", help="What to upgrade to; repeatable.")],
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="NAME==VERSION", help="What to upgrade from; default: what is here; repeatable."
        ),
    ] = None,
    only: Filter = None,
    overrides: Set = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where its runs land, as DIR/<suite>/<time>-<id>/.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write Markdown for an issue or a pull request.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the same as an HTML page, too.")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(metavar="M", min=0, help="Most minutes of timing; what is open then stays open.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Say whether it is safe to upgrade a runtime: time, answers, layers, size, cold start and memory of each case.

    Nothing is installed here: both sides get environments of their own in the cache, made by pip. Three arms run in
    one session: the old files under the old libraries, the same files under the new ones, and files built anew.
    Exit code, of the better of the two ways: as the gate's.
    """
    from qbench.gating.rerun import Rerunner
    from qbench.progress.live import live
    from qbench.upgrade import text
    from qbench.upgrade.upgrade import upgrade as story

    gate_output.require_writable(junit, markdown, output)
    request = _read_request(named, to, since or (), overrides or (), only=only, out=out, quiet=quiet)
    with live(sys.stderr, quiet=quiet) as progress:
        most = math.inf if max_minutes is None else 60 * max_minutes
        upgraded = story(request, Rerunner(progress=progress, most_seconds=most))
    gate_output.write_files(upgraded.joined, junit=junit, markdown=markdown, comment=text.markdown(upgraded))
    if output is not None:
        from qbench.upgrade import page

        gate_output.write_file(output, page.render(upgraded))
    print(text.as_json(upgraded).rstrip() if as_json else text.text(upgraded))
    raise typer.Exit(upgraded.exit_code)


def _read_request(
    named: str,
    to: Sequence[str],
    since: Sequence[str],
    overrides: Sequence[str],
    *,
    only: str | None,
    out: Path | None,
    quiet: bool,
) -> Request:
    from qbench import suite as suites
    from qbench.environments.pins import parse_pins
    from qbench.record.locate import REPORTS
    from qbench.upgrade.asked import Request, read_run_request

    pins, before = parse_pins(to, "--to"), parse_pins(since, "--from")
    _require_others(pins)
    folder = (out or REPORTS).absolute()
    if Path(named).is_file():
        suite = suites.read(Path(named), overrides)
        return Request(suite=suite, to=pins, since=before, only=only, out=folder, quiet=quiet)
    if overrides:
        raise UsageError("--set changes a suite: name the suite's file in place of a run")
    return read_run_request(find_folder(named, full=True), pins, before, only=only, out=folder, quiet=quiet)


def _require_others(pins: Sequence[Pin]) -> None:
    """Raises ``UsageError`` for qbench itself: what measures stays the same on both sides."""
    from qbench import installation

    if any(pin.name in (installation.NAME, "qbench") for pin in pins):
        raise UsageError("--to: qbench measures both sides, so it cannot be what differs; `qbench gate --against` can")
