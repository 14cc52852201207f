"""``qbench compare``: what changed from one run to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.completion import complete_run
from qbench.cli.options import Json
from qbench.cli.output import find_folder, terminal_width
from qbench.errors import NotComparable, UsageError

if TYPE_CHECKING:
    from qbench.compare.paired_accuracy import Examples
    from qbench.gating.baseline import Baseline
    from qbench.record.stored_run import StoredRun


def compare(
    base: Annotated[
        str,
        typer.Argument(metavar="BASE", help="A run, or a baseline's .jsonl.", autocompletion=complete_run),
    ],
    contender: Annotated[
        str,
        typer.Argument(metavar="CONTENDER", help="The run to judge.", autocompletion=complete_run),
    ],
    as_json: Json = False,
) -> None:
    """Show what changed from one run to another, with intervals."""
    from qbench.compare import compare as comparing
    from qbench.compare import environment
    from qbench.compare import text as compare_text
    from qbench.compare.changes import find_changes
    from qbench.compare.paired_accuracy import pair_accuracy
    from qbench.gating import baseline as baselines
    from qbench.machine import fingerprint
    from qbench.progress.table import format_table
    from qbench.record.stored_run import StoredRun
    from qbench.report.comparison import change_table

    old, new = _read_stored(base), _read_stored(contender)
    if old.info.suite.name != new.info.suite.name:
        raise NotComparable(
            f"{base} is of the suite '{old.info.suite.name}', {contender} of '{new.info.suite.name}': what differs "
            "between suites is no change; compare two runs of one suite"
        )
    field = fingerprint.comparable(old.info.environment, new.info.environment)
    deltas = pair_accuracy(
        comparing.compare(old.records, new.records, incomparable=field),
        _examples_of(old),
        _examples_of(new),
        new.score_of_facts if isinstance(new, StoredRun) else None,
    )
    same_run = environment.is_same_run(old.info, new.info, old.records, new.records)
    if as_json:
        print(compare_text.as_json(base, contender, deltas, incomparable=field, same_run=same_run), end="")
    else:
        if same_run:
            print(f"note: {environment.SAME_RUN}\n")
        print(format_table(change_table(find_changes(deltas, new.info.metric), new.info.metric), terminal_width()))
        keeps_examples = bool(old.examples) if isinstance(old, baselines.Baseline) else None
        if (note := compare_text.unpaired(deltas, keeps_examples)) is not None:
            print(f"\n{note}")
        for which, info in ((base, old.info), (contender, new.info)):
            if info.quick is not None:
                print(f"\nnote: {which} is a {info.quick.text}")


def _examples_of(side: StoredRun | Baseline) -> Examples:
    """What a record's score rests on: a run's predictions, or what a baseline keeps of them."""
    from qbench.gating.baseline import Baseline
    from qbench.report.comparison import examples_of

    if isinstance(side, Baseline):
        return lambda record: side.examples.get(record.case.id)
    return examples_of(side)


def _read_stored(name: str) -> StoredRun | Baseline:
    """A run, or a baseline where the name is that of a ``.jsonl`` file, which must not contradict itself."""
    from qbench.gating.baseline import SUFFIX, examples_file, read_baseline
    from qbench.gating.baseline_examples import AGAIN
    from qbench.record.stored_run import read_run

    if not name.endswith(SUFFIX):
        return read_run(find_folder(name))
    baseline = read_baseline(Path(name))
    if baseline.contradictions:
        wrong = "; ".join(f"{case}: {contradiction}" for case, contradiction in baseline.contradictions.items())
        raise UsageError(f"{examples_file(Path(name))}: {wrong}: they are of two runs; {AGAIN}")
    return baseline
