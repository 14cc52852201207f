"""``qbench run``: every case of a suite is built, evaluated and measured, and a report is written."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.answer import print_answer, print_files, read_answer
from qbench.cli.completion import ENDINGS as SUITES
from qbench.cli.completion import complete_suite
from qbench.cli.options import Filter, Hosts, Json, Quiet, Set, with_hosts
from qbench.cli.signals import ending_signals
from qbench.errors import QbenchError, UsageError
from qbench.record.locate import find_run

if TYPE_CHECKING:
    from qbench.progress.live import Silent
    from qbench.running.run import RunResult
    from qbench.running.stopped import Asked
    from qbench.suite import Suite


def run(
    suite: Annotated[
        Path | None,
        typer.Argument(
            metavar="SUITE|MODEL",
            help="A suite file (--resume finds its own), or a model, of which a first suite is written as init does.",
            autocompletion=complete_suite,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where runs land, as DIR/<suite>/<time>-<id>/; default: reports.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="Of a MODEL: its data, as init takes them.")] = None,
    only: Filter = None,
    overrides: Set = None,
    hosts: Hosts = None,
    resume: Annotated[str | None, typer.Option(metavar="DIR", help="Go on with an interrupted run.")] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Builds at once; default: the usable cores.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER", help="On a Ray cluster: ray://HOST:PORT, ray (RAY_ADDRESS), local-cluster."),
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Build nothing: take the artifacts of this run, from the cache."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first look: coarse timing, few examples, nothing trained.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Print every column of the report.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Build, evaluate and measure every case of a suite, and write a report.

    Exit code: 0 every case is ok or skipped with a reason, 1 a case failed, 2 usage or suite error, 130 interrupted
    (143 by SIGTERM, 129 by SIGHUP).
    """
    from qbench.process.start import start_server

    interrupted = None if resume is None else find_run(resume, to_resume=True)
    asked = _read_asked(_find_suite(suite, data), interrupted, with_hosts(overrides, hosts), only=only, quick=quick)
    earlier = None if artifacts is None else find_run(artifacts)
    start_server()  # it imports what children need while this process imports the stages

    from qbench.progress.live import live
    from qbench.running import run as story
    from qbench.running import text as run_text

    read, only = asked.suite, asked.only
    with live(sys.stderr, quiet=quiet) as progress:
        result = story.run(
            read, out=out, only=only, resume=interrupted, jobs=jobs, progress=progress, on=on, artifacts=earlier
        )
    if result.resume is not None:  # also with --quiet, and on a line that no terminal's width cuts
        print(f"interrupted; what is known is kept. Go on with:\n{result.resume}", file=sys.stderr)
        ending_signals.raise_again()
    with live(sys.stderr, quiet=quiet) as progress:
        page, seconds, why = _write_report(result, progress)
    if why is not None:  # also with --quiet: the answer below refers to it
        print(f"error: {why}", file=sys.stderr)
    elapsed = {**result.elapsed_seconds, "report": seconds}
    if as_json:
        print(run_text.as_json(result, page, elapsed, read_answer(result.folder)), end="")
    else:
        _show_run(result, read, page, elapsed, wide=wide)
    raise typer.Exit(result.exit_code or int(page is None and bool(result.records)))


def _find_suite(named: Path | None, data: str | None) -> Path | None:
    """The suite that is named, or a first one that is written of a model."""
    if data is None and (named is None or named.suffix in SUITES):
        return named
    from qbench.first_suite.model_facts import is_model
    from qbench.first_suite.write_suite import write_first_suite

    if named is None or not is_model(str(named)):
        if data is not None:
            raise UsageError(
                f"--data is that of a model, and {named or 'none'} is no model: a suite names its own data"
            )
        return named
    written = write_first_suite(str(named), data, None)
    for line in (f"wrote {written.names}", *(f"assumed: {note}" for note in written.notes)):
        print(line, file=sys.stderr)
    return written.file


def _read_asked(
    suite: Path | None, interrupted: Path | None, overrides: Sequence[str], *, only: str | None, quick: bool
) -> Asked:
    """The suite that is named, or that of the interrupted run."""
    from qbench import suite as suites
    from qbench.running.stopped import Asked, read_stopped

    if suite is not None:
        return Asked(suite=suites.read(suite, overrides, quick=quick), only=only)
    if interrupted is None:
        raise UsageError("no suite is named: `qbench run SUITE`, or `qbench run --resume DIR` to go on with a run")
    asked = read_stopped(interrupted, overrides)
    return Asked(suite=asked.suite, only=only or asked.only)


def _write_report(result: RunResult, progress: Silent) -> tuple[Path | None, float, QbenchError | None]:
    """The report of a run that recorded anything, the seconds that it took, and why there is none."""
    if not result.records:
        return None, 0.0, None
    from qbench.report.build import build_report

    progress.stage("report", 1)
    started = time.monotonic()
    try:
        page = build_report(result.folder)
    except QbenchError as error:  # the table below is worth as much: show it
        return None, time.monotonic() - started, error
    progress.advance(page.name)
    return page, time.monotonic() - started, None


def _show_run(
    result: RunResult, suite: Suite, page: Path | None, elapsed_seconds: dict[str, float], *, wide: bool
) -> None:
    """The answer, the table, what failed or was skipped, warnings, the report's path, where the time went, and last the
    file to ship."""
    from qbench.running import text as run_text

    print_answer(result.folder, wide=wide)
    for line in run_text.suggest_checks(result.records, suite.models, suite.base):
        print(line)
    print(f"report: {page or ('none, see above' if result.records else 'none, since nothing was recorded')}")
    print(run_text.times(elapsed_seconds))
    print_files(result.folder)
