"""The hooks. pytest loads this module in every project that has qbench installed: it imports pytest alone, and does
nothing where no ``qbench_*.yaml`` is collected and ``--qbench`` is not given. ``-p no:qbench`` switches it off.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from qbench.pytest_plugin.checked import ModelFile
    from qbench.pytest_plugin.items import SuiteFile

PATTERNS = ("qbench_*.yaml", "qbench_*.yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all of which have a default that does nothing."""
    group = parser.getgroup("qbench", "qbench: suites of int8 networks as tests")
    group.addoption(
        "--qbench",
        action="append",
        default=[],
        metavar="SUITE",
        help="Run this suite's cases as tests, whatever its file is called; repeatable. Where no other file or folder "
        "is named, nothing else is collected. Files called qbench_*.yaml are collected anyway.",
    )
    group.addoption("--qbench-out", metavar="DIR", help="Where qbench's runs land; default: reports.")
    group.addoption(
        "--qbench-baseline", metavar="FILE", help="Default: reports/baselines/<suite>.jsonl if it is there."
    )
    group.addoption(
        "--qbench-check",
        action="append",
        default=[],
        metavar="FILE",
        help="Check this model file as a test, as `qbench check` does; repeatable. It fails on a fault.",
    )
    group.addoption(
        "--qbench-shape",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="Of the files of --qbench-check: the sizes of an input that a file leaves free, e.g. ids=1x128.",
    )
    group.addoption("--qbench-check-data", metavar="PATH", help="Of the files of --qbench-check: examples to answer.")
    group.addoption("--qbench-stored", action="store_true", help="Run no artifact again: compare the stored speed-ups.")


def pytest_configure(config: pytest.Config) -> None:
    """The marker of all items, and the files of ``--qbench`` and ``--qbench-check`` as files to collect."""
    config.addinivalue_line("markers", "qbench: a case of a qbench suite.")
    named_files = [*config.getoption("qbench"), *config.getoption("qbench_check")]
    files = dict.fromkeys(str(Path(file).absolute()) for file in named_files)
    if not files or hasattr(config, "workerinput"):  # a worker of xdist is told the files
        return
    named = list(config.args) if config.args_source is pytest.Config.ArgsSource.ARGS else []
    config.args[:] = [*named, *(file for file in files if file not in named)]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | ModelFile | None:
    """The suite in a file, where it is one by its name or by ``--qbench``; the check of one of ``--qbench-check``."""
    if file_path in {Path(file).absolute() for file in parent.config.getoption("qbench_check")}:
        from qbench.pytest_plugin.checked import ModelFile

        return ModelFile.from_parent(parent, path=file_path)
    named = {Path(suite).absolute() for suite in parent.config.getoption("qbench")}
    if file_path not in named and not any(fnmatch.fnmatchcase(file_path.name, pattern) for pattern in PATTERNS):
        return None
    from qbench.pytest_plugin.items import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where the runs lie that the items rest on."""
    folders = {
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "qbench_run"
    }
    for folder in sorted(folders):
        terminalreporter.write_line(f"qbench: `qbench report {folder}` shows this run")
