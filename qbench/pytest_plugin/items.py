"""A suite's file and its cases as pytest collects them.

Each planned case is an item, skips included, and ``gate`` is one more, for what concerns no single case. Items are
pytest functions, so that fixtures, markers, ``-k`` and every report work as for any test. Where pytest-benchmark is
there, its own fixture gets the timed calls of the run, replayed by the timer that its marker takes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import QbenchError
from qbench.progress.live import Silent
from qbench.pytest_plugin.judged import ItemVerdict, JudgedRun, RunRequest, judge_run
from qbench.record.schema import Record
from qbench.record.stored_run import read_run
from qbench.report import pytest_benchmark

if TYPE_CHECKING:
    from qbench.plan.planner import Plan
    from qbench.suite import Suite

GATE = "gate"
BENCHMARK = "benchmark"


class Replay:
    """A timer that gives durations back: read twice around what it times, the difference is the next one."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._running = False

    def __call__(self) -> float:
        """The time now: 0 at a start, the duration at its end."""
        self._running = not self._running
        return 0.0 if self._running else self.seconds.pop(0)

    def __str__(self) -> str:
        return "qbench"


class StageLines(Silent):
    """A line on pytest's terminal for each stage of a run, since a run takes longer than a person waits in silence."""

    def __init__(self, terminal: pytest.TerminalReporter, suite: str) -> None:
        self._terminal, self._suite, self._stage = terminal, suite, ""
        self._capture: Any = terminal.config.pluginmanager.get_plugin("capturemanager")

    def stage(self, name: str, total: int | None) -> None:
        """Says which stage begins, and of how many steps, once."""
        if name != self._stage:
            self._stage = name
            uncaptured = (
                contextlib.nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled()
            )
            with uncaptured:
                self._terminal.ensure_newline()
                self._terminal.write_line(f"qbench {self._suite}: {name}{'' if total is None else f' ({total})'} ...")


def show_stages(config: pytest.Config, suite: str) -> Silent:
    """What shows a run's stages; nothing with ``-q``, and in a worker of xdist, which has no terminal."""
    terminal: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    quiet = terminal is None or config.get_verbosity() < 0 or hasattr(config, "workerinput")
    return Silent() if terminal is None or quiet else StageLines(terminal, suite)


class CaseItem(pytest.Function):
    """A case, or the gate as a whole; ``line`` of the suite counts from 1."""

    line: int

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        """Where it stands: the suite's file, at its matrix."""
        return self.path, self.line - 1, self.name


class SuiteFile(pytest.File):
    """A suite's file; its run is made once, by the first item that is due."""

    _judged: JudgedRun | None = None

    def collect(self) -> Iterator[CaseItem]:
        """One item a case, in the order in which the cases run, and ``gate``; a wrong suite is an error that lists all
        its problems."""
        from qbench import suite as suites

        try:
            self.suite = suites.read(_beside(self.path))
            plan = _plan(self.suite)
        except QbenchError as error:
            raise self.CollectError(str(error)) from error
        self.cases = tuple(planned.case.id for planned in plan.cases)
        for planned in plan.cases:
            group = pytest_benchmark.group_of(planned.case.key)
            yield self._make_item(planned.case.id, self._case_function(planned.case.id), group)
        for skip in plan.skipped:
            item = self._make_item(skip.key.id, lambda: None)
            item.add_marker(pytest.mark.skip(reason=skip.reason))
            yield item
        yield self._make_item(GATE, self._gate_function())

    def _make_item(self, name: str, function: Callable[..., None], group: str | None = None) -> CaseItem:
        item: CaseItem = CaseItem.from_parent(self, name=name, callobj=function)
        item.line = int(self.suite.place("matrix").rpartition(":")[2])
        item.add_marker("qbench")
        if self.config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(f"qbench:{self.path}"))
        if group is not None and BENCHMARK in item.fixturenames:
            item.add_marker(pytest.mark.benchmark(group=group, timer=Replay()))
        return item

    def _case_function(self, case: str) -> Callable[..., None]:
        if not self.config.pluginmanager.hasplugin(BENCHMARK):
            return lambda request: self._check_case(case, request, None)
        return lambda request, benchmark: self._check_case(case, request, benchmark)

    def _gate_function(self) -> Callable[..., None]:
        def check_gate(request: pytest.FixtureRequest) -> None:
            judged = self._judge(request)
            settle(judged.about_others(self.cases), request.node)

        return check_gate

    def _check_case(self, case: str, request: pytest.FixtureRequest, benchmark: Any) -> None:
        judged = self._judge(request)
        assert judged.folder is not None
        run = read_run(judged.folder)
        record = run.by_id.get(case)
        seconds = [] if record is None else pytest_benchmark.call_seconds(run, record)
        if benchmark is not None:
            _replay(benchmark, request.node, seconds, record)
        verdicts = judged.about(case)
        if not self._has_gate(request.session):  # deselected, as by -k: what it would say is not to be lost
            verdicts = (*verdicts, *judged.about_others(self.cases))
        settle(verdicts, request.node)
        if record is None or record.status != "ok":
            _end(record)

    def _judge(self, request: pytest.FixtureRequest) -> JudgedRun:
        """The run that all items share; an error of it, or of its gate, fails each of them."""
        if self._judged is None:
            self._judged = judge_run(self._request(request.session))
        judged = self._judged
        if judged.folder is not None:
            request.node.user_properties.append(("qbench_run", str(judged.folder)))
        if judged.error is not None:
            pytest.fail(judged.error, pytrace=False)
        return judged

    def _has_gate(self, session: pytest.Session) -> bool:
        return any(item.name == GATE for item in session.items if item.parent is self)

    def _request(self, session: pytest.Session) -> RunRequest:
        selected = {item.name for item in session.items if item.parent is self}
        cases = tuple(case for case in self.cases if case in selected)
        whole = len(cases) in (0, len(self.cases))  # the gate alone needs all
        option = self.config.getoption
        return RunRequest(
            suite=self.suite,
            cases=None if whole else cases,
            out=_path(option("qbench_out")),
            baseline=_path(option("qbench_baseline")),
            stored=option("qbench_stored"),
            session=getattr(self.config, "workerinput", {}).get("testrunuid"),
            progress=show_stages(self.config, self.suite.suite),
        )


def settle(verdicts: Sequence[ItemVerdict], item: pytest.Item) -> None:
    """Fails or skips the test where a verdict says so; what passed is a section of its report."""
    lines = [verdict.text for verdict in verdicts]
    wrong = [verdict.text for verdict in verdicts if verdict.effect in ("fail", "invalid", "hold")]
    skipped = [verdict.text for verdict in verdicts if verdict.effect == "skip"]
    for line in lines:
        item.user_properties.append(("qbench", line))
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
    if skipped:
        pytest.skip("; ".join(" ".join(text.split()) for text in skipped))


def _replay(benchmark: Any, item: pytest.Item, seconds: Sequence[float], record: Record | None) -> None:
    """Hands pytest-benchmark's fixture the calls of the run, as rounds of one call each."""
    marker = item.get_closest_marker(BENCHMARK)
    if not seconds or record is None or marker is None:
        benchmark.disabled = True  # nothing was timed; unused, the fixture would warn
        benchmark.pedantic(lambda: None)
        return
    marker.kwargs["timer"].seconds = list(seconds)
    benchmark.extra_info.update(pytest_benchmark.extra_info(record))
    benchmark.pedantic(lambda: None, rounds=len(seconds), iterations=1)


def _end(record: Record | None) -> None:
    """Ends the test of a case that has no result and of which the gate says nothing."""
    if record is not None and record.status == "skipped":
        pytest.skip(str(record.reason))
    pytest.fail("the run did not reach it" if record is None else f"{record.stage}: {record.reason}", pytrace=False)


def _plan(suite: Suite) -> Plan:
    from qbench.machine import fingerprint
    from qbench.plan.planner import make_plan, measuring_cores

    cores = measuring_cores(suite, fingerprint.allowed_cores())
    return make_plan(suite, cores=len(cores))


def _beside(file: Path) -> Path:
    """The file as one would name it from here, so that messages and a stored run name no machine's folders."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _path(value: str | None) -> Path | None:
    return None if value is None else Path(value)
