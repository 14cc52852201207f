"""The command line: argv -> the module of a subcommand -> text on stdout and an exit code.

Nothing else in qbench ends the process, and nothing outside this room prints. Each command has a module of its own,
which imports what it needs inside the function, so that `qbench --help` and `qbench list` start no heavy library.
Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from qbench.cli import (
    baseline,
    bisect,
    check,
    clean,
    compare,
    doctor,
    explain,
    export,
    gate,
    init,
    onnx,
    plan,
    plugins,
    portability,
    replay,
    report,
    run,
    schema,
    ship,
    train,
    upgrade,
)
from qbench.cli.signals import ending_signals
from qbench.cli.streams import guarded_streams, open_closed_streams
from qbench.errors import QbenchError, UsageError
from qbench.foreign_text import join_lines
from qbench.progress.terminal import plain_output

INTERRUPTED = 130  # by Ctrl-C, as a shell says it
# What the system says of a name that a person gave, where no command says more.
_OF_A_NAME = (
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EROFS),
    errno.EEXIST,  # where a folder is to be: a file, or a link that leads nowhere
    *(errno.ENOSPC, errno.EDQUOT),  # of ``atomic``: a disk that is full
    *(errno.EINVAL, errno.ENXIO, errno.EFBIG),  # of ``regular_file``: a pipe, a device, a file without end
)

app = typer.Typer(
    name="qbench",
    help="Decide which int8 neural network to ship on CPUs, and let CI keep it that way.",
    # After \b lines stay as they are: a path with a hyphen was broken there.
    epilog=f"\b\nStart with: qbench run suites/quickstart.yaml. The guide:\n{Path(__file__).parents[1] / 'guide'}",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help costs 0.1 s
    pretty_exceptions_enable=False,  # a bug shows Python's own traceback
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from qbench import __version__

        print(f"qbench {__version__}")
        raise typer.Exit


# What the list of commands says of each, in a line of 80 columns.
_SHORT = {
    "run": "Build, evaluate and measure every case; write a report.",
    "plan": "Show what would run, and what is skipped and why.",
    "init": "Write a first suite for a model and its data.",
    "check": "Show what a model file is, and what is wrong in it.",
    "train": "Train a built-in model on the suite's data set.",
    "report": "Write the report of a run again, from its records.",
    "compare": "Show what changed from one run to another.",
    "portability": "Show what int8 files answer on every host of a run.",
    "explain": "Show why an int8 case is slow, or wrong.",
    "ship": "Write the answer as a folder to deploy without qbench.",
    "baseline": "Keep a run as the baseline of the gate.",
    "gate": "Judge a run by its suite's gate, against the baseline.",
    "bisect": "Find the release, commit or layer that made it worse.",
    "upgrade": "Say whether a newer runtime is safe, before it is installed.",
    "replay": "Make a run again, and say what differs first.",
    "export": "Write a run for other tools: csv, parquet, benchmark JSON.",
    "doctor": "Examine this machine: int8, noise, what is missing.",
    "list": "List every plug-in, and what is missing to use it.",
    "schema": "Print the JSON Schema of a suite file, for editors.",
    "clean": "Empty the cache of built variants and trained weights.",
}
app.command(
    "run",
    short_help=_SHORT["run"],
    epilog="Example: qbench run suites/quickstart.yaml --filter '*/static/*' --set measure.precision=1%",
)(run.run)
app.command(
    "plan", short_help=_SHORT["plan"], epilog="Example: qbench plan suites/quickstart.yaml --filter '*/onednn/*'"
)(plan.plan)
app.command("init", short_help=_SHORT["init"], epilog="Example: qbench init model.onnx --data photos/")(init.init)
app.command("check", short_help=_SHORT["check"], epilog="Example: qbench check model-int8.onnx --shape ids=1x128")(
    check.check
)
app.command(
    "train",
    short_help=_SHORT["train"],
    epilog="Example: qbench train suites/fashion-mnist.yaml resnet20 --epochs 10 --seed 1",
)(train.train)
app.command(
    "report",
    short_help=_SHORT["report"],
    epilog="Example: qbench report quickstart --compare reports/quickstart/20260101T000000Z-ab12",
)(report.report)
app.command(
    "compare",
    short_help=_SHORT["compare"],
    epilog="Example: qbench compare reports/baselines/quickstart.jsonl quickstart",
)(compare.compare)
app.command("portability", short_help=_SHORT["portability"], epilog="Example: qbench portability quickstart --json")(
    portability.portability
)
app.command(
    "explain",
    short_help=_SHORT["explain"],
    epilog="Example: qbench explain quickstart digits-cnn/dynamic/onnxruntime/t1/b1",
)(explain.explain)
app.command("ship", short_help=_SHORT["ship"], epilog="Example: qbench ship quickstart --output deploy")(ship.ship)
app.command("baseline", short_help=_SHORT["baseline"], epilog="Example: qbench baseline quickstart")(baseline.baseline)
app.command("gate", short_help=_SHORT["gate"], epilog="Example: qbench gate quickstart --markdown gate.md")(gate.gate)
app.command(
    "bisect",
    short_help=_SHORT["bisect"],
    epilog="Example: qbench bisect suites/quickstart.yaml --case digits-cnn/static/onnxruntime/t1/b1 "
    "--good onnxruntime==1.20.0 --bad onnxruntime==1.32.0",
)(bisect.bisect)
app.command(
    "upgrade",
    short_help=_SHORT["upgrade"],
    epilog="Example: qbench upgrade suites/quickstart.yaml --from onnxruntime==1.30.0 --to onnxruntime==1.32.0",
)(upgrade.upgrade)
app.command("replay", short_help=_SHORT["replay"], epilog="Example: qbench replay quickstart")(replay.replay)
app.command(
    "export",
    short_help=_SHORT["export"],
    epilog="Example: qbench export quickstart --format pytest-benchmark -o times.json",
)(export.export)
app.command(
    "doctor",
    short_help=_SHORT["doctor"],
    epilog="Example: qbench doctor --json, or qbench doctor --control --seconds 600",
)(doctor.doctor)
app.command("list", short_help=_SHORT["list"], epilog="Example: qbench list --json")(plugins.list_)
app.command("schema", short_help=_SHORT["schema"], epilog="Example: qbench schema > suites/schema.json")(schema.schema)
app.command("clean", short_help=_SHORT["clean"], epilog="Example: qbench clean --older-than 30 --dry-run")(clean.clean)
app.add_typer(onnx.app, short_help="Make an ONNX file int8, step by step or all in one go.")


def main() -> NoReturn:
    """Runs the command line and ends the process with its exit code; what a user can cause shows no traceback."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end a run
    code: int | str | None = INTERRUPTED
    # One that comes while a message is printed, or as a command ends, interrupts outside of what takes it in there.
    with guarded_streams(), plain_output(), contextlib.suppress(KeyboardInterrupt), ending_signals.interrupting():
        code = _run_command()
    sys.exit(ending_signals.exit_code if code == INTERRUPTED else code)


@functools.cache
def _make_parser() -> Callable[[], object]:
    """What parses ``sys.argv`` and runs the command that it names; made once, since tests run many commands in one
    process."""
    return typer.main.get_command(app)


def _run_command() -> int | str | None:
    """The exit code of the command that ``sys.argv`` names."""
    try:
        _require_names(sys.argv[1:])
        try:
            _make_parser()()
        finally:
            sys.stdout.flush()
    except QbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno not in _OF_A_NAME or error.filename is None:
            raise
        print(f"error: {join_lines(str(error.filename))}: {error.strerror}", file=sys.stderr)
        return UsageError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        return end.code
    return 0


def _require_names(words: Sequence[str]) -> None:
    """Raises ``UsageError`` where the working folder is gone, or a name is empty, no text, or more than one line: the
    empty path is the working folder, where somebody else's run may lie; reports and records are UTF-8; a name that ends
    the line of a message could say anything in the next."""
    for before, word in pairwise(("qbench", *words)):
        if not word or (word.startswith("--") and word.endswith("=") and word.count("=") == 1):
            where = f"of {word[:-1]} " if word else f"behind {join_lines(before)} "
            raise UsageError(
                f"the argument {where}is empty, as of a variable of the shell that is not set; leave it out, or name "
                "what is meant"
            )
    try:
        here = str(Path.cwd())
    except OSError as error:
        raise UsageError(
            f"the folder that this runs in cannot be used ({error.strerror}); go to another one"
        ) from error
    folder, argument = "the folder that this runs in", "an argument"
    for named, text in ((folder, here), *((argument, word) for word in words)):
        if not text.isascii() and any("\udc80" <= letter <= "\udcff" for letter in text):
            raise UsageError(f"{named}, {os.fsencode(text)!r}, is not UTF-8; give the file or the folder another name")
    for named, text in ((folder, here), *((argument, word) for word in _list_names(words))):
        if "\n" in text:
            raise UsageError(f"{named}, {text!r}, has a line break; give the file or the folder another name")


def _list_names(words: Sequence[str]) -> list[str]:
    """The words that are no text for a suite, which may have lines."""
    return [word for before, word in pairwise(("", *words)) if "--set" not in (before, word.partition("=")[0])]
