"""``qbench gate``: a run is judged by its suite's gate, against the baseline."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli import gate_output
from qbench.cli.options import Filter, Json, Quiet, Run
from qbench.cli.output import find_folder
from qbench.errors import UsageError
from qbench.record.locate import committed_baseline

if TYPE_CHECKING:
    from qbench.gating.gate import Gated
    from qbench.gating.rerun import Rerunner


_Against = Annotated[
    str | None,
    typer.Option(
        metavar="REF", help="RUN is a suite's file: build it as committed and at this git commit, and compare."
    ),
]
_SameEnvironment = Annotated[
    bool, typer.Option("--same-environment", help="With --against: build both here, whatever the requirements say.")
]
_Baseline = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Default: reports/baselines/<suite>.jsonl if it is there.")
]
_JUnit = Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")]
_Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Write Markdown for a pull request.")]
_GitHub = Annotated[
    bool, typer.Option("--github", help="Annotate the suite's lines in GitHub Actions, and add to the job's summary.")
]
_Suite = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The run's suite, if it is not where the run says: its rules hold, its data are opened."
    ),
]
_TrustArtifacts = Annotated[
    bool,
    typer.Option(
        "--trust-baseline-artifacts", help="Also run artifacts that lie beside the baseline: they are native code."
    ),
]
_MaxMinutes = Annotated[
    float | None,
    typer.Option(
        metavar="M", min=0, help="Most minutes of measuring, spent on the rules that are open; the rest is open."
    ),
]
_Stored = Annotated[bool, typer.Option("--stored", help="Run nothing: compare the stored speed-ups.")]


def gate(
    run: Run,
    against: _Against = None,
    same_environment: _SameEnvironment = False,
    baseline: _Baseline = None,
    junit: _JUnit = None,
    markdown: _Markdown = None,
    github: _GitHub = False,
    suite: _Suite = None,
    trust_baseline_artifacts: _TrustArtifacts = False,
    only: Filter = None,
    max_minutes: _MaxMinutes = None,
    stored: _Stored = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge a run by its suite's gate, against the baseline, whose artifacts are run again beside the run's.

    The rules are those of the suite's file as it stands now; what changed after the run is noted.
    What is run lies in the cache: it was built here. Nothing that a run's folder or a baseline brings along is run
    unless an option says so; what cannot be run again is judged by its stored figures. --against runs the code of
    both commits.
    Exit code: 0 pass, 1 fail, 2 usage, 3 invalid (not comparable, no baseline, no case of the latest run ok),
    4 inconclusive (where the samples point to a change for the worse, or gate.inconclusive says so).
    """
    from qbench.gating.rerun import Rerunner
    from qbench.progress.live import live

    if against is not None and (stored or baseline is not None or suite is not None):
        raise UsageError("--against builds its own baseline: leave out --stored, --baseline and --suite")
    gate_output.require_writable(junit, markdown)
    with gate_output.without_commands(github=github, as_json=as_json), live(sys.stderr, quiet=quiet) as progress:
        rerunner = Rerunner(
            progress=progress,
            trust_beside=trust_baseline_artifacts,
            suite_file=suite,
            most_seconds=math.inf if max_minutes is None else 60 * max_minutes,
        )
        if against is None:
            gated = _gate_run(run, baseline, None if stored else rerunner, only, suite)
        else:
            from qbench.gating.against import Request, gate_against

            request = Request(suite=Path(run), ref=against, only=only, same_environment=same_environment, quiet=quiet)
            gated = gate_against(request, rerunner)
    gate_output.show(gated, junit=junit, markdown=markdown, github=github, as_json=as_json)
    raise typer.Exit(gated.exit_code)


def _gate_run(
    run: str, baseline: Path | None, rerunner: Rerunner | None, only: str | None, suite: Path | None
) -> Gated:
    from qbench.gating import gate as gates
    from qbench.record import locate
    from qbench.record.stored_run import read_run

    try:
        folder = find_folder(run, full=True)
    except UsageError as error:
        if not Path(run).is_file():
            raise
        raise UsageError(f"{error}; or --against REF, which builds the suite at both commits") from error
    file = baseline or committed_baseline(read_run(folder).info.suite.name)
    newest = locate.passed_over(run, folder)
    return gates.gate_run(folder, file, rerun=rerunner, newest=newest, only=only, suite_file=suite)
