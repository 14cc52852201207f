"""``qbench portability``: what the artifacts of a run answer on each of its hosts."""

from __future__ import annotations

from qbench.cli.options import Json, Run
from qbench.cli.output import find_folder, terminal_width


def portability(run: Run, as_json: Json = False) -> None:
    """Show whether each int8 artifact answers the same on every host of a run, and what it loses."""
    from qbench.portability import text
    from qbench.portability.compare_hosts import compare_hosts
    from qbench.progress.table import format_table
    from qbench.record.stored_run import read_run
    from qbench.report import build, terminal

    stored, width = read_run(find_folder(run)), terminal_width()
    answers, metric = compare_hosts(stored, build.judge(stored)), stored.info.metric
    if as_json:
        print(text.as_json(stored.info.suite.name, answers, metric), end="")
    elif not answers:
        print(terminal.wrap(text.ONE_HOST, width))
    else:
        for line in text.list_sentences(answers, metric):
            print(terminal.wrap(line, width))
        print(f"\n{format_table(text.make_table(answers, metric), width)}\n")
        for line in (*text.list_other_classes(answers), *text.list_speed_orders(answers)):
            print(terminal.wrap(line, width))
