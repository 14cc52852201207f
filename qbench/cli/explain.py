"""``qbench explain``: why a case is not faster."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Json, Quiet, Run
from qbench.cli.output import find_folder, terminal_width

if TYPE_CHECKING:
    from qbench.explain.accuracy_explanation import AccuracyExplanation
    from qbench.explain.causes.base import Cause, Concern
    from qbench.explain.story import Explained, TimeExplained


class Concerns(enum.Enum):
    """What a user asks for."""

    time = "time"
    accuracy = "accuracy"
    both = "both"


_CONCERNS: Mapping[Concerns, tuple[Concern, ...]] = {
    Concerns.time: ("time",),
    Concerns.accuracy: ("accuracy",),
    Concerns.both: ("time", "accuracy"),
}


def explain(
    run: Run,
    case: Annotated[str, typer.Argument(metavar="CASE", help="An int8 case's id.", show_default=False)],
    suite: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's suite, if it is not where the run says.")
    ] = None,
    of: Annotated[
        Concerns,
        typer.Option("--of", help="What to explain; accuracy takes a build and an evaluation for each layer tried."),
    ] = Concerns.time,
    max_seconds: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="Most seconds of measuring for each change that is tried.")
    ] = 5.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show where the time of an int8 case goes, and what makes it slow, or wrong: each cause taken away and measured.

    Variants are built from the suite's file as it stands on this disk, measured beside the case as `qbench run`
    measures, and evaluated on its examples. A cause is named where the case is shown to be better without it.
    """
    from qbench import registry
    from qbench.explain import json_text, text
    from qbench.explain.story import explain_case
    from qbench.progress.live import live
    from qbench.record.explained import keep_explained
    from qbench.record.stored_run import read_run

    folder = find_folder(run)
    stored = read_run(folder)
    with live(sys.stderr, quiet=quiet) as progress:
        explained = explain_case(
            stored,
            case,
            concerns=_CONCERNS[of],
            suite_file=suite,
            progress=progress,
            max_seconds=max_seconds,
        )
    titles = {name: registry.load("cause", name) for name in registry.names("cause")}
    if as_json:
        print(json_text.as_json(explained), end="")
    else:
        _show(explained, titles, terminal_width())
    if explained.time is not None:
        keep_explained(folder, text.to_stored(explained, explained.time, titles))


def _show(explained: Explained, titles: Mapping[str, Cause], width: int | None) -> None:
    _print_lines(explained.opened.notes, width)
    if explained.time is not None:
        _show_time(explained, explained.time, titles, width)
    if explained.losses is not None:
        _show_losses(explained, explained.losses, titles, width)


def _show_time(explained: Explained, result: TimeExplained, titles: Mapping[str, Cause], width: int | None) -> None:
    from qbench.explain import text
    from qbench.progress.table import format_table

    change = result.explanation.change
    _print_lines(text.list_head(explained.opened, result.explanation), width)
    if result.times is None:
        _print_lines(["", f"Where its time goes is not known: {result.no_times}."], width)
    else:
        print(f"\n{format_table(text.make_kind_table(result.times), width)}")
        _print_lines([text.describe_watching(result.times)], width)
        print(f"\n{format_table(text.make_layer_table(result.times), width)}")
    print()
    _print_lines(text.list_causes(result.explanation, titles), width)
    _show_keys(text.write_suite_keys(change, explained.opened), text.list_environment(change, explained.opened.case))
    if (accuracy := text.describe_accuracy(result.accuracy, explained.metric)) is not None:
        _print_lines([accuracy], width)


def _show_losses(
    explained: Explained, result: AccuracyExplanation, titles: Mapping[str, Cause], width: int | None
) -> None:
    from qbench.explain import text

    if explained.time is not None:
        print()
    print(f"{explained.opened.case.id}, accuracy")
    _print_lines(text.list_losses(result, titles, explained.metric), width)
    if explained.loses_little:
        margin = explained.opened.suite.gate.accuracy.margin
        _print_lines([f"It is shown to lose no more than the margin of {margin:g}: nothing needs to be done."], width)
    else:
        _show_keys(text.write_suite_keys(result.change, explained.opened), [])


def _show_keys(keys: str | None, variables: Sequence[str]) -> None:
    """What to write into the suite, and what to set for the process."""
    if keys is not None:
        print(f"\nIn the suite:\n\n{keys}\n")
    for line in variables:
        print(line)


def _print_lines(lines: Iterable[str], width: int | None) -> None:
    from qbench.report import terminal

    for line in lines:
        print(terminal.wrap(line, width))
