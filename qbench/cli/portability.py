"""``qbench portability``: what the artifacts of a run answer on each of its hosts, and on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Json, Quiet, Run
from qbench.cli.output import find_folder, terminal_width

if TYPE_CHECKING:
    from qbench.data import Data
    from qbench.portability.here import AnsweredRun
    from qbench.process.child_process import Limits
    from qbench.progress.live import Silent
    from qbench.record.stored_run import StoredRun
    from qbench.suite import Suite


def portability(
    run: Run,
    here: Annotated[
        bool, typer.Option("--here", help="Evaluate its artifacts on this machine, beside the answers that it holds.")
    ] = False,
    artifacts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --here: the baseline beside which `qbench baseline --keep-artifacts` put them. They are native "
            "code, which this runs: name only what comes from someone you trust. Default: this machine's cache alone.",
        ),
    ] = None,
    suite: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --here: the suite whose data are evaluated.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show whether each int8 artifact answers the same on every host of a run, and what it loses.

    Exit code: 0, with --here 1 where an artifact does not run on this machine, 2 usage error.
    """
    from qbench.portability import text
    from qbench.portability.compare_hosts import compare_hosts
    from qbench.progress.table import format_table
    from qbench.record.stored_run import read_run
    from qbench.report import build, terminal

    stored, width = read_run(find_folder(run)), terminal_width()
    if here or artifacts is not None:
        stored = _answer_here(stored, artifacts, suite, quiet=quiet)
    answers, metric = compare_hosts(stored, build.judge(stored)), stored.info.metric
    if as_json:
        print(text.as_json(stored.info.suite.name, answers, metric), end="")
    elif not answers:
        print(terminal.wrap(text.explain_nothing(stored.info.plan.cases), width))
    else:
        for line in text.list_sentences(answers, metric):
            print(terminal.wrap(line, width))
        print(f"\n{format_table(text.make_table(answers, metric), width)}\n")
        for line in (*text.list_other_classes(answers), *text.list_speed_orders(answers)):
            print(terminal.wrap(line, width))
    raise typer.Exit(int((here or artifacts is not None) and _fails_here(stored)))


def _answer_here(run: StoredRun, artifacts: Path | None, suite: Path | None, *, quiet: bool) -> AnsweredRun:
    """The run with what its artifacts answer on this machine; raises ``UsageError`` where its data are not here."""
    from qbench.cache import store
    from qbench.errors import UsageError
    from qbench.gating.baseline import artifact_file
    from qbench.portability.here import answer_here
    from qbench.process.child_process import Limits
    from qbench.progress.live import live

    if artifacts is not None and not artifacts.is_file():
        raise UsageError(
            f"{artifacts}: no such file; name the .jsonl that `qbench baseline RUN --keep-artifacts` wrote, beside its "
            "artifacts"
        )
    with live(sys.stderr, quiet=quiet) as progress:
        suite_here = _find_suite(run, suite)
        limits = Limits(seconds=suite_here.limits.stage_seconds, memory_bytes=suite_here.limits.memory_bytes)
        root = store.open_cache()
        progress.stage("here", None)
        with store.in_use(root):
            return answer_here(
                run,
                _prepare_data(suite_here, root, limits, progress),
                lambda record: artifact_file(record, beside=artifacts),
                root=root,
                limits=limits,
                progress=progress.advance,
            )


def _find_suite(run: StoredRun, explicit: Path | None) -> Suite:
    """The suite whose data may be opened here."""
    from qbench.errors import UsageError
    from qbench.gating.sequential_test import NotRun
    from qbench.gating.trusted_suite import suite_to_open
    from qbench.suite import parse

    info = run.info.suite
    suite = suite_to_open(run, parse(info.text, file=info.file, overrides=info.overrides, stored=True), explicit)
    if isinstance(suite, NotRun):
        raise UsageError(f"{run.folder}: {suite.reason}")
    return suite


def _prepare_data(suite: Suite, root: Path, limits: Limits, progress: Silent) -> Data:
    """The suite's data in this machine's cache."""
    from qbench.data import request_of
    from qbench.data_preparation import prepare_data
    from qbench.process.child_process import call

    request = request_of(suite.data, suite.base, train="qat" in suite.matrix.modes)
    data: Data = call(prepare_data, request, root, limits=limits, progress=progress.advance)
    return data


def _fails_here(run: StoredRun) -> bool:
    from qbench.portability.here import HERE

    return any(record.case.host == HERE and record.status == "failed" for record in run.records)
