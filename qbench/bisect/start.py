"""What a command asks for -> the way to search, the folder of its looks, and the bisection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from qbench.bisect.answer import Answer
from qbench.bisect.bisection import bisect
from qbench.bisect.candidates import Candidates
from qbench.bisect.commits import Commits, list_commits
from qbench.bisect.journal import Journal
from qbench.bisect.layers import FLOAT, INT8, find_layers
from qbench.bisect.looks import Looks
from qbench.bisect.open_suite import OpenSuite, find_case, open_suite
from qbench.bisect.question import On, Question
from qbench.bisect.releases import Releases, list_candidates, require_runtime
from qbench.bisect.score_answers import describe_metric
from qbench.cache import store
from qbench.environments.pins import parse_pin
from qbench.errors import UsageError
from qbench.progress.live import Silent
from qbench.record.locate import REPORTS
from qbench.record.stored_run import MetricInfo
from qbench.suite import Suite

BISECTIONS = REPORTS / "bisections"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked: the ends as they were written, ``on`` what, where the looks are kept (None: below the reports),
    and how long it may take."""

    suite: Suite
    suite_file: Path
    case: str
    good: str
    bad: str
    on: On
    pre_releases: bool
    out: Path | None
    most_seconds: float
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class Started:
    """What came of it; ``metric`` says how changes of the score are shown."""

    journal: Journal
    answer: Answer
    metric: MetricInfo
    folder: Path

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.journal.question


def start(request: Request, progress: Silent) -> Started:
    """The bisection, begun or taken up again, to its answer. Raises ``UsageError``, ``CaseError``."""
    planned = find_case(request.suite, request.case)
    ends = _read_ends(request, planned.case.variant.backend)
    folder, cache = request.out or BISECTIONS / _name_folder(request), store.open_cache()
    with store.in_use(cache), store.hold_folder(cache, folder):
        opened = open_suite(request.suite, planned, progress)
        candidates = _open_candidates(request, opened, ends, folder)
        progress.stage("bisect", None)

        def make_looks(journal: Journal) -> Looks:
            return Looks(
                journal=journal,
                candidates=candidates,
                limits=opened.limits,
                progress=progress,
                metric=describe_metric(opened.metric),
                seed=request.suite.measure.seed,
                most_seconds=request.most_seconds,
            )

        bisected = bisect(opened, candidates, request.on, folder, make_looks)
    metric = describe_metric(opened.metric)
    return Started(journal=bisected.journal, answer=bisected.answer, metric=metric, folder=folder)


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """Releases from the good end to the bad one, and whether the good one is the newer."""

    package: str
    names: tuple[str, ...]
    mended: bool


def _read_ends(request: Request, backend: str) -> _Ends | None:
    """The releases between the ends; None where the ends are of another kind. Raises ``UsageError``."""
    if "==" not in request.good and "==" not in request.bad:
        return None
    good, bad = (parse_pin(end, option) for option, end in (("--good", request.good), ("--bad", request.bad)))
    require_runtime(good.name, backend, request.case)
    names, mended = list_candidates(good, bad, pre_releases=request.pre_releases)
    return _Ends(package=good.name, names=names, mended=mended)


def _open_candidates(request: Request, opened: OpenSuite, ends: _Ends | None, folder: Path) -> Candidates:
    if ends is not None:
        return Releases(opened=opened, of=ends.package, names=ends.names, mended=ends.mended)
    if {request.good, request.bad} & {FLOAT, INT8}:
        return _open_layers(request, opened)
    repository, names, mended = list_commits(request.suite_file, request.good, request.bad)
    return Commits(
        opened=opened,
        repository=repository,
        suite=request.suite_file,
        names=names,
        mended=mended,
        home=folder / "runs",
        quiet=request.quiet,
    )


def _open_layers(request: Request, opened: OpenSuite) -> Candidates:
    if (request.good, request.bad) != (FLOAT, INT8):
        raise UsageError(f"--good {request.good} --bad {request.bad}: over layers it is --good {FLOAT} --bad {INT8}")
    if request.on == "bits":
        raise UsageError("--on bits: int8 gives other bits than float by design, from the first layer on")
    return find_layers(opened)


def _name_folder(request: Request) -> str:
    """``quickstart-digits-cnn-static-onnxruntime-t1-b1-latency-onnxruntime-1.20.0-1.32.0``."""
    words = (request.suite.suite, request.case, request.on, request.good, request.bad.partition("==")[2] or request.bad)
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-.") for word in words)[:200]
