"""``qbench onnx``: the four steps of uniform quantization, all in one, and the search for what has to stay float."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli import onnx_options as given
from qbench.cli.onnx_options import Calibration, Form, Model, Prefix, Quiet, Record, Seed, Targets, Threads, takes
from qbench.foreign_text import join_lines
from qbench.progress.live import Silent, live

if TYPE_CHECKING:
    from qbench.cli.onnx_options import Chosen
    from qbench.quant.onnx.formats.rules import Rules

app = typer.Typer(
    name="onnx",
    help="Quantize an ONNX file to int8 step by step: config, quantize, calibrate, save; or all in one go.",
    epilog="Example: qbench onnx all model.onnx --data images/ -o int8/model",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    short_help="Write config.json: which layers can be int8, and how.",
    epilog="Example: qbench onnx config model.onnx -o config.json --skip-layers 'head.*'",
)
@takes(rules=given.rules)
def config(
    model: Model,
    rules: Rules,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where it is written.")] = Path(
        "config.json"
    ),
) -> None:
    """Write config.json: every layer that can be quantized, and how; lists what stays float and why."""
    from qbench.onnx import api
    from qbench.onnx import text as onnx_text

    _print(onnx_text.quantized(api.configured(model, rules, out)))
    print(f"wrote {out}; next: qbench onnx quantize {model} -c {out}")


@app.command(
    short_help="Write the calibration model, and the scales of weights.",
    epilog="Example: qbench onnx quantize model.onnx -c config.json -o calibration.onnx -r record.txt",
)
@takes(data=given.perhaps)
def quantize(
    model: Model,
    data: Chosen | None,
    settings: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE", help="qbench's or AMCT's config.json.")
    ] = Path("config.json"),
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The calibration model.")] = Path(
        "calibration.onnx"
    ),
    record: Record = Path("record.txt"),
) -> None:
    """Write the calibration model, and the scales of the weights."""
    from qbench.onnx import api, calibration_data
    from qbench.onnx import text as onnx_text

    example = None if data is None else data.example(calibration_data.wanted_by_model(model))
    _print(onnx_text.quantized(api.quantize(model, settings, out, record, example=example)))
    print(f"wrote {out} and {record}; next: qbench onnx calibrate {out} -r {record} --data DATA")


@app.command(
    short_help="Run the calibration model on data; complete the record.",
    epilog="Example: qbench onnx calibrate calibration.onnx --data images/ --set mean=[0.485,0.456,0.406]",
)
@takes(data=given.chosen)
def calibrate(
    calibration: Calibration,
    data: Chosen,
    record: Record = Path("record.txt"),
    seed: Seed = 0,
    threads: Threads = 0,
    quiet: Quiet = False,
) -> None:
    """Run the calibration model on data, and complete the record."""
    from qbench.onnx import api, calibration_data
    from qbench.onnx import text as onnx_text
    from qbench.quant.onnx import graph_process

    graph_process.return_arrays_at_once()
    wanted, number = calibration_data.wanted_by_calibration(calibration)
    batches, _ = data.batches(wanted, number, seed=seed)
    with live(sys.stderr, quiet=quiet) as progress:
        result = api.calibrate(calibration, batches, record, threads=threads, progress=_adapt_progress(progress))
    _print(onnx_text.calibrated(result))
    print(f"wrote {record}; next: qbench onnx save {calibration} -r {record} -o PREFIX")


@app.command(
    short_help="Write the fake-quant model and the deploy models.",
    epilog="Example: qbench onnx save calibration.onnx -r record.txt -o int8/model --target onnxruntime",
)
@takes(data=given.perhaps)
def save(
    calibration: Calibration,
    prefix: Prefix,
    data: Chosen | None,
    record: Record = Path("record.txt"),
    target: Targets = None,
    form: Form = None,
) -> None:
    """Write the fake-quant model, a deploy model for each target, and .quant.json; compares them."""
    from qbench.onnx import api, calibration_data
    from qbench.onnx import text as onnx_text
    from qbench.quant.onnx.export.parity import EXAMPLES

    targets, form = given.targets(target), given.form(form)
    batches = None if data is None else data.first(calibration_data.wanted_by_calibration(calibration)[0], EXAMPLES)
    _print(onnx_text.saved(api.save(calibration, record, prefix, targets=targets, data=batches, form=form)))


@app.command("all", epilog="Example: qbench onnx all model.onnx --data images/ -o int8/model")
@takes(data=given.chosen, rules=given.rules)
def all_(
    model: Model,
    data: Chosen,
    prefix: Prefix,
    rules: Rules,
    seed: Seed = 0,
    threads: Threads = 0,
    target: Targets = None,
    form: Form = None,
    quiet: Quiet = False,
) -> None:
    """The four steps in one go."""
    from qbench.onnx import api, calibration_data
    from qbench.onnx import text as onnx_text
    from qbench.quant.onnx import graph_process

    targets, form = given.targets(target), given.form(form)
    graph_process.return_arrays_at_once()
    batches, number = data.batches(calibration_data.wanted_by_model(model), rules.batch_num, seed=seed)
    with live(sys.stderr, quiet=quiet) as progress:
        result = api.all(
            model,
            batches,
            prefix,
            rules=replace(rules, batch_num=number),
            targets=targets,
            form=form,
            threads=threads,
            progress=_adapt_progress(progress),
        )
    _print(onnx_text.saved(result))


@app.command(
    short_help="Find the fewest layers that must stay float.",
    epilog="Example: qbench onnx accuracy calibration.onnx --data images/ --evaluate mine.py:score "
    "--loss 0.01 -o tuned",
)
@takes(data=given.chosen)
def accuracy(
    calibration: Calibration,
    data: Chosen,
    evaluate: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:FN",
            help="A function that takes the path of an ONNX file and returns its score, higher is better.",
        ),
    ],
    loss: Annotated[float, typer.Option(min=0, help="How far below the float model's score is allowed.")],
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="config.json, record.txt, the ledger.")],
    record: Record = Path("record.txt"),
    seed: Seed = 0,
    max_trials: Annotated[int | None, typer.Option(min=1, help="At most so many models are scored.")] = None,
    quiet: Quiet = False,
) -> None:
    """Find the fewest layers that must stay float to keep your own score; goes on where a killed search ended."""
    from qbench.onnx import api, calibration_data
    from qbench.onnx import text as onnx_text

    batches, _ = data.batches(calibration_data.wanted_by_calibration(calibration)[0], api.RANKING_BATCHES, seed=seed)
    with live(sys.stderr, quiet=quiet) as progress:
        progress.stage("accuracy", None)
        scored = _evaluator(evaluate, lambda text: progress.advance(text))
        outcome = api.accuracy(calibration, record, scored, batches, folder, loss=loss, max_trials=max_trials)
    _print(onnx_text.searched(outcome, folder))


def _evaluator(reference: str, tell: Callable[[str], None]) -> Callable[[Path], float]:
    """The person's function, with what it raises as one message and each score as progress."""
    from qbench import user_code
    from qbench.errors import EvaluateError, UsageError

    file, name = user_code.parse(reference, base=Path.cwd(), error=UsageError)
    function = user_code.attribute(file, name, error=UsageError)
    if not callable(function):
        raise UsageError(f"--evaluate {reference}: {name} is {type(function).__name__}, not a function")

    def scored(path: Path) -> float:
        value = user_code.call(function, str(path), path=file, error=EvaluateError)
        try:
            score = float(value)
        except (TypeError, ValueError) as error:
            raise EvaluateError(f"--evaluate {reference}: {name} returned {value!r}, not a score") from error
        tell(f"score {score:g}")
        return score

    return scored


def _adapt_progress(progress: Silent) -> Callable[[str, int, int], None]:
    """Progress of the steps as that of the command line."""
    stages: list[str] = []

    def tell(step: str, done: int, total: int) -> None:
        if [step] != stages:
            stages[:] = [step]
            progress.stage(step, total)
        progress.advance(f"batch {done}")

    return tell


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(join_lines(line))  # a node of somebody's model may have any name
