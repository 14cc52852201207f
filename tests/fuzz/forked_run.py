"""A test run in a forked process: of chosen tests, or of all with the lines that each of them executes."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

PYTEST = ("-n0", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "--hypothesis-seed=0")


def run_forked(function: Callable[[], int], seconds: float, tree: Path, temporary: Path) -> int | None:
    """The exit code of the function in a forked process, with its children ended; None: it took too long."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        code = 70
        try:
            _become_a_run(tree, temporary)
            code = function()
        except BaseException:  # whatever it is, it must not run on in the parent's code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    waiting = os.pidfd_open(pid)
    ended = bool(select.select([waiting], [], [], seconds)[0])
    below = psutil.Process(pid).children(recursive=True)
    for process in (*below, psutil.Process(pid)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.close(waiting)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status) if ended else None


def _become_a_run(tree: Path, temporary: Path) -> None:
    """The forked process is one that was started in the copy, with its output in a file."""
    os.setsid()
    log = os.open(temporary / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.chdir(tree)
    paths = [str(tree / part) for part in ("", "tests/fixtures", "tests/fuzz")]
    sys.path[:] = paths + [path for path in sys.path if Path(path) != Path(__file__).parent]
    for name in ("mutant_sites", "noticing_tests", "forked_run"):
        sys.modules.pop(name, None)
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True


class _Chosen:
    """Leaves the chosen tests (None: all), in their order, and writes down which one failed."""

    def __init__(self, chosen: list[str] | None, report: Path | None) -> None:
        self._rank = None if chosen is None else {test: number for number, test in enumerate(chosen)}
        self._report = report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if (rank := self._rank) is not None:
            items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._report is not None:
            self._report.write_text(report.nodeid)


def run_chosen(path: str, chosen: list[str] | None, report: Path) -> int:
    """pytest's exit code."""
    return int(pytest.main([*PYTEST, path], plugins=[_Chosen(chosen, report)]))


class _Recorder:
    """Notes each test's seconds and outcome, and gives the lines executed from then on to it."""

    def __init__(self, switch: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._switch = switch

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._switch is not None:
            self._switch(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def run_all(path: str, tree: Path, data: Path | None, report: Path, only: list[str] | None = None) -> int:
    """Writes the seconds of the tests that pass and the names of those that fail, and traces the lines where asked."""
    traced = None
    if data is not None:
        import coverage

        settings = data.with_name("coveragerc")
        settings.write_text(
            f"[run]\nsource = {tree / 'qbench'}\ndata_file = {data}\nparallel = true\n"
            "disable_warnings = no-data-collected, module-not-imported, couldnt-parse\n"
            "patch = subprocess, fork, _exit\n"
        )
        traced = coverage.Coverage(config_file=str(settings))
        traced.start()
    recorder = _Recorder(None if traced is None else traced.switch_context)
    plugins = [recorder, *([] if only is None else [_Chosen(only, None)])]
    code = pytest.main([*(option for option in PYTEST if option != "-x"), path], plugins=plugins)
    if traced is not None:
        traced.stop()
        traced.save()
    passed = {test: seconds for test, seconds in recorder.seconds.items() if test not in recorder.failed}
    report.write_text(json.dumps([passed, recorder.failed]))
    return int(code)


def executed_lines(data: Path, tree: Path, path: str) -> dict[str, dict[int, list[str]]]:
    """By module and line the tests that execute it; the test file's own path stands for a child of any of them."""
    import coverage.exceptions

    executed: dict[str, dict[int, set[str]]] = {}
    for file in data.parent.glob(f"{data.name}.*"):
        read = coverage.CoverageData(basename=str(file))
        try:
            read.read()
        except coverage.exceptions.DataError:  # a child was ended while it wrote
            continue
        of_child = not any(read.measured_contexts())  # no test is named in it
        for measured in read.measured_files():
            by_line = executed.setdefault(str(Path(measured).relative_to(tree)), {})
            for line in read.lines(measured) or () if of_child else ():
                by_line.setdefault(line, set()).add(path)
            for line, contexts in {} if of_child else read.contexts_by_lineno(measured).items():
                by_line.setdefault(line, set()).update(name for name in contexts if name)
    return {
        module: {line: sorted(tests) for line, tests in lines.items() if tests}
        for module, lines in executed.items()
        if any(lines.values())
    }
