"""What ``qbench run`` and ``qbench report`` print of a run: the answers, the table, what failed, warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbench.cli.output import terminal_width


def print_answer(folder: Path, *, wide: bool) -> None:
    """The answers first, then the table, then what failed or was skipped, then warnings. ``wide``: every column."""
    from qbench.decide import decision
    from qbench.decide import text as decide_text
    from qbench.record.stored_run import read_run
    from qbench.report import build, ruling, terminal, text
    from qbench.run import text as run_text

    run, width = read_run(folder), terminal_width()
    judged = build.judge(run)
    decisions = decision.decide(judged)
    answers = [
        line
        for answer in decisions
        for line in decide_text.lines(answer, judged, text.answer_name(answer.setting, run.info))
    ]
    for line in (*answers, *([] if run.info.quick is None else [run.info.quick.text])):
        print(terminal.wrap(line, width))
    if table := terminal.draw(judged, ruling.rule(judged, decisions), width=width, wide=wide):
        print(f"\n{table}\n")
    warnings = (*run_text.warnings(run.records), *(f"warning: {warning}" for warning in judged.warnings()))
    for line in (*run_text.problems(run.records), *warnings):
        print(terminal.wrap(line, width))


def read_decisions(folder: Path) -> list[dict[str, Any]]:
    """The decisions of a run, ready for JSON."""
    from qbench.decide import decision, json_text
    from qbench.record.stored_run import read_run
    from qbench.report import build

    return json_text.list_data(decision.decide(build.judge(read_run(folder))))
