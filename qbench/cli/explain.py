"""``qbench explain``: why a case is not faster, or not right."""

from __future__ import annotations

import enum
import itertools
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from qbench.cli.options import Json, Quiet, Run
from qbench.cli.output import find_folder, terminal_width
from qbench.errors import CaseError, CaseSkipped, UsageError, first_names

if TYPE_CHECKING:
    from qbench.explain.causes.base import Cause, Concern
    from qbench.explain.error_trials import Evaluated
    from qbench.explain.explanation import Explanation
    from qbench.explain.story import Explained, TimeExplained
    from qbench.record.stored_run import StoredRun


class Concerns(enum.Enum):
    """What a user asks for."""

    time = "time"
    accuracy = "accuracy"
    both = "both"


_TIME: tuple[Concern, ...] = ("time",)
_ACCURACY: tuple[Concern, ...] = ("accuracy",)
_Question: TypeAlias = "tuple[str, tuple[Concern, ...]]"  # a case, and what is asked of it
_CONCERNS: Mapping[Concerns, tuple[Concern, ...]] = {
    Concerns.time: _TIME,
    Concerns.accuracy: _ACCURACY,
    Concerns.both: ("time", "accuracy"),
}


_Case = Annotated[str, typer.Argument(metavar="[CASE]", help="An int8 case's id.")]
_Every = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Instead of a CASE: every int8 case that is slow, and every one whose accuracy fails or is open, in "
        "turns, the worst first; without those explained already.",
    ),
]
_Below = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.01,
        help="With --all: slow is less than X times as fast as fp32 (else the gate's min_speedup, or 2).",
    ),
]
_MaxMinutes = Annotated[
    float | None,
    typer.Option(metavar="M", min=0.0, help="With --all: begin no further case after M minutes."),
]
_SuiteFile = Annotated[
    Path | None, typer.Option("--suite", metavar="FILE", help="The run's suite, if it is not where the run says.")
]
_Of = Annotated[
    Concerns | None,
    typer.Option(
        "--of",
        help="What to explain (time, with --all both); accuracy takes a build and an evaluation for each layer tried.",
    ),
]
_MaxSeconds = Annotated[
    float, typer.Option(metavar="S", min=0.1, help="Most seconds of measuring for each change that is tried.")
]


def explain(
    run: Run,
    case: _Case = "",
    every: _Every = False,
    below: _Below = None,
    max_minutes: _MaxMinutes = None,
    suite: _SuiteFile = None,
    of: _Of = None,
    max_seconds: _MaxSeconds = 5.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show where the time of an int8 case goes, and what makes it slow, or wrong.

    Each cause is taken out and the gain measured.

    Variants are built from the suite's file as it stands on this disk, measured beside the case as `qbench run`
    measures, and evaluated on its examples. A cause is named where the case is shown to be better without it.
    """
    from qbench.explain.story import explain_case
    from qbench.progress.live import live
    from qbench.record.stored_run import read_run

    if bool(case) == every:
        raise UsageError("qbench explain: name one CASE, or --all for every slow or wrong one")
    folder = find_folder(run)
    stored = read_run(folder)
    concerns = _CONCERNS[of or (Concerns.both if every else Concerns.time)]
    asked = _list_questions(stored, suite, below, concerns) if every else [(case, concerns)]
    answers, started = _Answers(folder=folder, as_json=as_json), time.monotonic()
    for number, (name, about) in enumerate(asked, start=1):
        if max_minutes is not None and every and time.monotonic() - started >= 60 * max_minutes:
            break
        with live(sys.stderr, quiet=quiet) as progress:
            if every:
                progress.note(f"{number} of {len(asked)}: {name}, {' and '.join(about)}")
            try:
                explained = explain_case(
                    stored, name, concerns=about, suite_file=suite, progress=progress, max_seconds=max_seconds
                )
            except (CaseError, CaseSkipped) as error:
                if not every:
                    raise
                answers.failures[name, about] = str(error)
                continue
        answers.show(explained)
        answers.done.append((name, about))
    if every:
        answers.finish(asked)


def _list_questions(
    stored: StoredRun, suite: Path | None, below: float | None, concerns: tuple[Concern, ...]
) -> list[_Question]:
    """What is asked of which case: the slow ones and those that are not right, in turns."""
    slow = _list_slow(stored, suite, below) if "time" in concerns else []
    wrong = _list_inaccurate(stored) if "accuracy" in concerns else []
    turns = itertools.zip_longest([(case, _TIME) for case in slow], [(case, _ACCURACY) for case in wrong])
    return [question for turn in turns for question in turn if question is not None]


def _list_inaccurate(stored: StoredRun) -> list[str]:
    """The ids of the cases whose accuracy fails or is open and that are not explained yet, the worst first."""
    from qbench.explain.to_explain import list_inaccurate_cases
    from qbench.record.explained import ErrorFigures, read_explained
    from qbench.report.build import judge

    explained = [case.case for case in read_explained(stored.folder, ErrorFigures)]
    return list_inaccurate_cases(judge(stored), explained)


def _list_slow(stored: StoredRun, suite: Path | None, below: float | None) -> list[str]:
    """The ids of the slow cases that are not explained yet, those that lose most first."""
    from qbench.explain.open_case import read_suite
    from qbench.explain.to_explain import LEAST_SPEEDUP, list_slow_cases
    from qbench.record.explained import TimeFigures, read_explained

    least = below or read_suite(stored, suite).gate.latency.min_speedup or LEAST_SPEEDUP
    explained = [case.case for case in read_explained(stored.folder, TimeFigures)]
    return list_slow_cases(stored.records, least, explained)


@dataclass(kw_only=True)
class _Answers:
    """Prints explanations as they come and keeps them in the run; ``failures``: cases that could not be explained."""

    folder: Path
    as_json: bool
    failures: dict[_Question, str] = field(default_factory=dict)
    done: list[_Question] = field(default_factory=list)

    def show(self, explained: Explained) -> None:
        """Prints one, and keeps what it says."""
        from qbench import registry
        from qbench.explain import json_text
        from qbench.record.explained import keep_explained

        titles = {name: registry.load("cause", name) for name in registry.names("cause")}
        if self.as_json:
            print(json_text.as_json(explained), end="")
        else:
            if self.done:
                print()
            _show(explained, titles, terminal_width())
        if explained.time is not None:
            keep_explained(self.folder, json_text.store_time(explained.opened, explained.time, titles))
        if explained.losses is not None:
            keep_explained(self.folder, json_text.store_error(explained.opened, explained.losses, titles))

    def finish(self, asked: Sequence[_Question]) -> None:
        """The report built again, and to stderr what was and what was not explained."""
        from qbench.report.build import build_report

        left = [case for case, about in asked if (case, about) not in self.done and (case, about) not in self.failures]
        if not asked:
            print("no int8 case that is slow or not right is left to explain", file=sys.stderr)
            return
        print(f"answered {len(self.done)} of {len(asked)} questions", file=sys.stderr)
        for (case, about), reason in self.failures.items():
            print(f"{case}, {' and '.join(about)}: not explained: {reason}", file=sys.stderr)
        if left:
            print(f"time is up; the same command goes on with {first_names(left, 3)}", file=sys.stderr)
        if self.done:
            print(f"report: {build_report(self.folder)}", file=sys.stderr)


def _show(explained: Explained, titles: Mapping[str, Cause], width: int | None) -> None:
    _print_lines(explained.opened.notes, width)
    if explained.time is not None:
        _show_time(explained, explained.time, titles, width)
    if explained.losses is not None:
        _show_losses(explained, explained.losses, titles, width)


def _show_time(explained: Explained, result: TimeExplained, titles: Mapping[str, Cause], width: int | None) -> None:
    from qbench.explain import tables, text
    from qbench.explain.suite_text import list_environment, write_suite_keys
    from qbench.progress.table import format_table

    explanation, opened = result.explanation, explained.opened
    _print_lines(text.list_time_head(opened, explanation), width)
    _print_lines(text.list_other_formats(opened.record, opened.run.records), width)
    if result.times is None:
        _print_lines(["", f"Where its time goes is not known: {result.no_times}."], width)
    else:
        print(f"\n{format_table(tables.make_kind_table(result.times), width)}")
        _print_lines([text.describe_watching(result.times)], width)
        print(f"\n{format_table(tables.make_time_table(result.times), width)}")
    print()
    _print_lines(text.list_causes(explanation, titles, text.TIME, opened.metric_info), width)
    _print_lines(text.list_other_times(explanation), width)
    if (uncovered := text.describe_not_covered(result.not_covered)) is not None:
        _print_lines([uncovered], width)
    keys = write_suite_keys(explanation.single, opened, explanation.change)
    _show_keys(keys, list_environment(explanation.single, opened.case))
    _print_lines(text.list_costs(opened, result), width)
    if result.alternative is not None:
        change = result.alternative.trial.counterfactual.change
        _show_keys(write_suite_keys(change, opened), list_environment(change, opened.case))


def _show_losses(
    explained: Explained, explanation: Explanation[Evaluated], titles: Mapping[str, Cause], width: int | None
) -> None:
    from qbench.explain import tables, text
    from qbench.explain.suite_text import write_suite_keys
    from qbench.progress.table import format_table

    opened, metric = explained.opened, explained.opened.metric_info
    if explained.time is not None:
        print()
    print(f"{opened.case.id}, accuracy")
    _print_lines([text.describe_error_head(explanation.tried, metric)], width)
    _print_lines(text.list_causes(explanation, titles, text.ERROR, metric), width)
    _print_lines(text.list_other_errors(explanation), width)
    if explanation.layers:
        print(f"\n{format_table(tables.make_error_table(explanation, metric), width)}")
    if explained.loses_little:
        limit = opened.suite.gate.accuracy
        held = f"lose no more than the margin of {limit.margin:g}"
        held = held if limit.floor is None else f"reach the least score of {limit.floor:g}"
        _print_lines([f"It is shown to {held}: nothing needs to be done."], width)
    else:
        _show_keys(write_suite_keys(explanation.change, opened), [])


def _show_keys(keys: str | None, variables: Sequence[str]) -> None:
    """What to write into the suite, and what to set for the process."""
    if keys is not None:
        print(f"\nIn the suite (into the sections that it has; a list in place of the list there):\n\n{keys}\n")
    for line in variables:
        print(line)


def _print_lines(lines: Iterable[str], width: int | None) -> None:
    from qbench.report import terminal

    for line in lines:
        print(terminal.wrap(line, width))
