"""What ``qbench run`` and ``qbench report`` print of a run: the answers, the table, what failed, warnings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from qbench import formatting
from qbench.cli.output import terminal_width


def print_answer(folder: Path, *, wide: bool) -> None:
    """The answers first, then the table, then what failed or was skipped, then warnings. ``wide``: every column."""
    from qbench.decide import decision, hosts_differ
    from qbench.decide import text as decide_text
    from qbench.record.stored_run import read_run
    from qbench.report import build, flips, ruling, terminal
    from qbench.report.run_warnings import warnings
    from qbench.running import text as run_text

    run, width = read_run(folder, lenient=True), terminal_width()
    judged = build.judge(run)
    decisions = decision.decide(judged)
    answers = [line for answer in decisions for line in decide_text.lines(answer, judged)]
    answers += [each.text for each in hosts_differ.list_differences(decisions)]
    quick = () if run.info.quick is None else (run.info.quick.text,)
    for line in (*answers, *quick):
        print(terminal.wrap(line, width))
    if table := terminal.draw(judged, ruling.rule(judged, decisions), width=width, wide=wide):
        print(f"\n{table}\n")
    rest = [warning for warning in warnings(run, judged, flips.of_run(run)) if warning not in quick]
    for line in (*run_text.problems(run.records), *(f"warning: {formatting.clean(warning)}" for warning in rest)):
        print(terminal.wrap(line, width))


def print_files(folder: Path) -> None:
    """The file of each case that the run says to ship, and how it becomes a folder to deploy."""
    from qbench.decide.decision import decide
    from qbench.decide.json_text import find_shipped_record
    from qbench.record.artifact_file import find_in_cache
    from qbench.record.stored_run import read_run
    from qbench.report import build

    decisions = decide(build.judge(read_run(folder, lenient=True)))
    shipped = [record for each in decisions if (record := find_shipped_record(each)) is not None]
    files = [file for record in shipped if (file := find_in_cache(record)) is not None]
    for file in files:
        print(f"file: {file}")
    if files:
        print(f"to deploy it without qbench: qbench ship {shlex.quote(str(folder))}")


def read_answer(folder: Path) -> dict[str, Any]:
    """The ``decisions`` of a run and its ``warnings``, ready for JSON."""
    from qbench.decide import decision, json_text
    from qbench.record.stored_run import read_run
    from qbench.report import build, flips
    from qbench.report.run_warnings import warnings

    run = read_run(folder, lenient=True)
    judged = build.judge(run)
    decisions = decision.decide(judged)
    return {
        "decisions": json_text.list_data(decisions),
        "by_host": json_text.list_hosts(decisions),
        "warnings": list(warnings(run, judged, flips.of_run(run))),
    }
