"""qbench from Python: ``qbench.run``, ``qbench.load`` and ``qbench.gate``, as the command line does it.

Nothing is printed; what a user can cause is a ``qbench.errors.QbenchError`` with the command line's message.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

    from qbench.decide.decision import Decision
    from qbench.gating.gate import Gated
    from qbench.record.stored_run import StoredRun
    from qbench.suite import Suite

__all__ = ["Run", "gate", "load", "run"]

What = Literal["cases", "calls", "layers"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: its ``folder``, ``report`` (the path of report.html, None where nothing was recorded) and
    ``exit_code`` (0: every case is ok or skipped with a reason, 1: a case failed, 130: interrupted)."""

    folder: Path
    report: Path | None
    exit_code: int

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """What to ship, for each model, number of threads and batch size."""
        from qbench.decide import decision
        from qbench.record.stored_run import read_run
        from qbench.report.build import judge

        return decision.decide(judge(read_run(self.folder, lenient=True)))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per case, as ``qbench.load`` gives it."""
        return load(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it: the answer."""
        from qbench.record.stored_run import read_run
        from qbench.report.notebook import draw_answer

        return draw_answer(read_run(self.folder, lenient=True), self.report)


RunName = str | os.PathLike[str] | Run
_RUN = "a run's folder, a suite's name or what qbench.run gives"


def run(
    suite: str | os.PathLike[str] | Suite,
    *,
    out: str | os.PathLike[str] | None = None,
    only: str | None = None,
    overrides: Sequence[str] = (),
    quick: bool = False,
    resume: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    quiet: bool = True,
) -> Run:
    """Builds, evaluates and measures every case of a suite, and writes its report; returns the run.

    ``suite``: the path of a YAML file, or a ``qbench.suite.Suite``. ``out``: where runs land, ``reports`` by default.
    ``only``: a glob of case ids. ``overrides``: ``KEY=VALUE`` each, as ``--set`` takes them. ``quick``: a first look.
    ``resume``: the run to go on with. ``jobs``: builds at once. ``quiet=False`` shows the progress on stderr.
    Raises ``SuiteError`` with every problem of the suite, ``UsageError`` where nothing is left to run.
    """
    from qbench import suite as suites
    from qbench.progress.live import live
    from qbench.record.locate import find_run
    from qbench.report.build import build_report
    from qbench.running import run as story

    _require(isinstance(suite, str | os.PathLike | suites.Suite), "suite", suite, "a path or a qbench.suite.Suite")
    _require(not isinstance(overrides, str), "overrides", overrides, "a list of texts KEY=VALUE")
    _require(jobs is None or (isinstance(jobs, int) and jobs > 0), "jobs", jobs, "a number of builds, 1 or more")
    read = suite if isinstance(suite, suites.Suite) else suites.read(Path(suite), tuple(overrides), quick=quick)
    interrupted = None if resume is None else find_run(os.fspath(resume), to_resume=True)
    with live(sys.stderr, quiet=quiet) as progress:
        result = story.run(
            read, out=None if out is None else Path(out), only=only, resume=interrupted, jobs=jobs, progress=progress
        )
        report = build_report(result.folder) if result.records else None
    return Run(folder=result.folder, report=report, exit_code=result.exit_code)


def load(runs: RunName | Iterable[RunName], what: What = "cases") -> pd.DataFrame:
    """A run as a pandas DataFrame; several runs are stacked, and the column ``run`` names each row's.

    ``runs``: what ``run`` returned, a run's folder, or a suite's name for its latest run; or several of these.
    ``what``: ``cases``, one row each, with the columns of the guide's page on Python; ``calls``, one row per timed call
    (``run``, ``case.id``, ``process``, ``seconds``); ``layers``, one row per layer of each variant whose layers were
    compared (``run``, ``case.id``, ``layer``, ``sqnr_db``, ``cosine``, ``n``, ``clipped``, ``is_float``, ``reason``).
    What was not measured is missing. Raises ``UsageError`` where there is no such run.
    """
    import pandas as pd

    read = {"cases": _read_cases, "calls": _read_calls, "layers": _read_layers}
    _require(what in list(read), "what", what, f"one of {', '.join(read)}")
    single = isinstance(runs, str | os.PathLike | Run)
    _require(single or isinstance(runs, Iterable), "runs", runs, f"{_RUN}, or several of these")
    names: list[RunName] = [runs] if single else list(runs)  # type: ignore[list-item, arg-type]  # told apart above
    _require(bool(names), "runs", names, f"{_RUN}, or several of these")
    frames = [_read_frame(name, read[what]) for name in names]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def gate(
    run: RunName,
    baseline: str | os.PathLike[str] | None = None,
    *,
    stored: bool = False,
    only: str | None = None,
    suite: str | os.PathLike[str] | None = None,
    max_minutes: float | None = None,
    quiet: bool = True,
) -> Gated:
    """The verdicts on a run by its suite's gate, with ``exit_code`` (0 pass, 1 fail, 3 invalid, 4 inconclusive).

    ``baseline``: a ``.jsonl`` file; by default ``reports/baselines/<suite>.jsonl``, if it is there. Its artifacts are
    run again beside the run's; ``stored``: nothing is run, the stored figures are compared. ``only``: a glob of case
    ids. ``suite``: the run's suite, if it is not where the run says: its rules hold as the file stands now.
    ``max_minutes``: most minutes of measuring.
    Raises ``NotComparable`` where run and baseline cannot be held against each other.
    """
    from qbench.gating import gate as gates
    from qbench.gating.rerun import Rerunner
    from qbench.progress.live import live
    from qbench.record import locate
    from qbench.record.stored_run import read_run

    _require(max_minutes is None or max_minutes > 0, "max_minutes", max_minutes, "a number of minutes above 0")
    folder = _find(run)
    file = Path(baseline) if baseline is not None else locate.committed_baseline(read_run(folder).info.suite.name)
    newest = None if isinstance(run, Run) else locate.passed_over(os.fspath(run), folder)
    suite_file = None if suite is None else Path(suite)
    with live(sys.stderr, quiet=quiet) as progress:
        rerunner = Rerunner(
            progress=progress,
            trust_beside=False,
            suite_file=suite_file,
            most_seconds=math.inf if max_minutes is None else 60 * max_minutes,
        )
        rerun = None if stored else rerunner
        return gates.gate_run(folder, file, rerun=rerun, newest=newest, only=only, suite_file=suite_file)


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    from qbench.errors import UsageError

    if not holds:
        raise UsageError(f"{name}: {value!r} is not {wanted}")


def _find(run: RunName) -> Path:
    from qbench.record import locate

    _require(isinstance(run, str | os.PathLike | Run), "run", run, _RUN)
    return run.folder if isinstance(run, Run) else locate.find_run(os.fspath(run))


def _read_frame(name: RunName, read: Callable[[StoredRun], pd.DataFrame]) -> pd.DataFrame:
    from qbench.record.stored_run import read_run

    stored = read_run(_find(name), lenient=True)
    frame = read(stored)
    if "run" not in frame.columns:
        frame.insert(0, "run", stored.folder.name)
    return frame


def _read_cases(run: StoredRun) -> pd.DataFrame:
    from qbench.report import build

    return build.read_cases(run)


def _read_calls(run: StoredRun) -> pd.DataFrame:
    from qbench.report import frame

    return frame.calls_frame(run, run.records)


def _read_layers(run: StoredRun) -> pd.DataFrame:
    from qbench.report import frame

    return frame.layers_frame(run)
