"""``qbench init``: a first suite for a model, and the data function where one is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="model.onnx, a TorchScript file, file.py:function, or a built-in model.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="An image folder, images with masks, COCO's instances, an .npz or .csv file, a saved Hugging Face "
            "data set, file.py:function, or a built-in data set. Default: random inputs of the shapes that an ONNX "
            "file declares.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The suite. Default: MODEL's name.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing on a terminal either.")] = False,
) -> None:
    """Write a first suite for a model, with a comment at whatever was assumed. Nothing of the model or the data runs.

    On a terminal it asks what it cannot read in model and data, three questions at most.

    Exit code: 0, 2 usage error.
    """
    from qbench.first_suite.write_suite import write_first_suite

    asks = sys.stdin.isatty() and sys.stdout.isatty() and not yes
    written = write_first_suite(model, data, output, force=force, ask=_ask if asks else None)
    print(f"wrote {written.names}")
    for note in written.notes:
        print(f"assumed: {note}")
    print(f"next: qbench run {written.file}")


def _ask(question: str, default: str) -> str:
    return str(typer.prompt(question, default=default))
