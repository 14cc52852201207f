"""``qbench train``: a built-in model is trained on a suite's data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from qbench.cli.options import Json, Quiet, Set, Suite


def train(
    suite: Suite,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A built-in that qbench trains.")],
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Passes over the training split.")] = None,
    learning_rate: Annotated[float | None, typer.Option(metavar="X", help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Another seed.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Copy the weights to a .safetensors file.")] = None,
    cores: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Default: the usable cores; the weights do not depend on it.")
    ] = None,
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a built-in model on the suite's data set; `qbench run` uses the same weights.

    They stay in the cache; the same command answers from there, or goes on where a training was interrupted or killed.
    Exit code: 0, 1 it cannot be trained on this data, 2 usage or suite error, 130 interrupted.
    """
    from qbench import suite as suites
    from qbench.progress.live import live
    from qbench.train import text as train_text
    from qbench.train import train as training

    options = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed}
    changes = {key: value for key, value in options.items() if value is not None}
    read = suites.read(suite, overrides or ())
    training.require_writable(out)
    with live(sys.stderr, quiet=quiet) as progress:
        try:
            report = training.train(read, model, changes=changes, cores=cores, progress=progress)
        except KeyboardInterrupt:
            progress.note("interrupted; the same command goes on from the last checkpoint")
            raise
        for note in report.notes:
            progress.note(note)
    if out is not None:
        training.write(report, out)
    print(train_text.as_json(report, out=out) if as_json else train_text.text(report, read, changes=changes, out=out))
