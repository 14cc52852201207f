"""``qbench check``: what one model file is, how fast, and what is wrong in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbench.cli.options import Json


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model: .onnx, .xml, .pt, .pt2 or .pte.")],
    against: Annotated[
        Path | None,
        typer.Option(metavar="FP32", help="Its float model. Default: made from an ONNX file by removing Q and DQ."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SIZES", help="The sizes of an input that the file leaves free, e.g. ids=1x128."),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="What an input holds, e.g. rate=16000; of others random values."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Examples to answer, as init takes them: images, .npz, .csv, a function."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a runtime.")] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the same as an HTML page, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show whether a model file loads, what of it runs in int8, how fast it is beside its own fp32, and what is wrong.

    The file is loaded by the runtimes that are installed, each in a process of its own; .pt2 is machine code, which
    loading runs. Exit code: 0 sound, 1 a fault, 2 usage error.
    """
    from qbench.check import text
    from qbench.check.check_file import check_file

    checked = check_file(
        file,
        against=against,
        shapes=tuple(shape or ()),
        constants=tuple(constant or ()),
        data=data,
        threads=threads,
    )
    if output is not None:
        from qbench.report.check_page import write_check_page

        write_check_page(checked, output)
    if as_json:
        print(text.as_json(checked), end="")
    else:
        for line in text.list_lines(checked):
            print(line)
    if not checked.sound:
        raise typer.Exit(1)
