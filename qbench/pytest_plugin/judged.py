"""The one run behind all items of a suite: made when the first of them is due, of the cases that are selected, judged
by the suite's gate, and read by every item.

Below pytest-xdist each worker asks for it: the first to come runs, the others wait for its lock and read what it left.
"""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from qbench.errors import QbenchError
from qbench.files import atomic, regular_file
from qbench.progress.live import Silent
from qbench.record.locate import REPORTS, committed_baseline

if TYPE_CHECKING:
    from qbench.suite import Suite


@dataclass(frozen=True, kw_only=True)
class ItemVerdict:
    """What a verdict of the gate does to an item: ``effect`` as in ``gate.verdict``, ``text`` in words."""

    case: str
    effect: str
    text: str


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """A run's folder (None: none was made), the verdicts on it, and the error that ended it or its gate."""

    folder: Path | None
    verdicts: tuple[ItemVerdict, ...] = ()
    error: str | None = None

    def about(self, case: str) -> tuple[ItemVerdict, ...]:
        """The verdicts on one case."""
        return tuple(verdict for verdict in self.verdicts if verdict.case == case)

    def about_others(self, cases: Iterable[str]) -> tuple[ItemVerdict, ...]:
        """The verdicts on what is none of these cases: the run as a whole, cases that only the baseline has."""
        asked = set(cases)
        return tuple(verdict for verdict in self.verdicts if verdict.case not in asked)


_JUDGED = TypeAdapter(JudgedRun)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to run: a suite, some of its cases (None: all), where to, and what it is held against. ``session`` is the
    name of the xdist session that several workers share, None without. ``progress`` is told how far the run is."""

    suite: Suite
    cases: tuple[str, ...] | None
    out: Path | None = None
    baseline: Path | None = None
    stored: bool = False
    session: str | None = None
    progress: Silent = field(default_factory=Silent)


def judge_run(request: RunRequest) -> JudgedRun:
    """The run and its verdicts, made here or by another worker of the session."""
    if request.session is None:
        return _make_run(request)
    with _shared(request) as file:
        if file.is_file():
            return _JUDGED.validate_json(regular_file.read_bytes(file))
        judged = _make_run(request)
        atomic.write_text(file, json.dumps(asdict(judged), default=str))
        return judged


@contextlib.contextmanager
def _shared(request: RunRequest) -> Iterator[Path]:
    """Where the workers of one session leave the judged run of a suite; held by one at a time."""
    import filelock

    folder = request.out or REPORTS
    file = folder / f".pytest-{request.session}-{request.suite.suite}.json"
    with filelock.FileLock(file.with_suffix(".lock")):
        yield file


def _make_run(request: RunRequest) -> JudgedRun:
    from qbench.running import run as story

    only = None if request.cases is None else match_exactly(request.cases)
    try:
        result = story.run(request.suite, out=request.out, only=only, resume=None, jobs=None, progress=request.progress)
    except QbenchError as error:
        return JudgedRun(folder=None, error=str(error))
    if result.interrupted:
        raise KeyboardInterrupt
    try:
        return JudgedRun(folder=result.folder, verdicts=_judge(request, result.folder))
    except QbenchError as error:
        return JudgedRun(folder=result.folder, error=str(error))


def match_exactly(cases: Sequence[str]) -> str:
    """The filter that keeps these cases and no other."""
    return ",".join(glob.escape(case) for case in cases)


def _judge(request: RunRequest, folder: Path) -> tuple[ItemVerdict, ...]:
    from qbench.gating import gate as gates
    from qbench.gating import text
    from qbench.gating.rerun import Rerunner

    rerun: Any = None if request.stored else Rerunner(progress=request.progress, suite_file=Path(request.suite.file))
    only = None if request.cases is None else match_exactly(request.cases)
    baseline = request.baseline or committed_baseline(request.suite.suite)
    gated = gates.gate_run(folder, baseline, rerun=rerun, only=only, as_run=True)
    return tuple(
        ItemVerdict(case=verdict.case, effect=verdict.effect, text=text.describe(verdict)) for verdict in gated.verdicts
    )
