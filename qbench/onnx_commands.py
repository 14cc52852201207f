"""``qbench onnx``: the four steps of uniform quantization, all in one, and the search for what has to stay float."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qbench.errors import UsageError
from qbench.live import Silent, live

if TYPE_CHECKING:
    from qbench.onnx_data import Source
    from qbench.quant.uniform.files.rules import Rules
    from qbench.quant.uniform.graph.graph import Graph

app = typer.Typer(
    name="onnx",
    help="Quantize an ONNX file to int8 step by step: config, quantize, calibrate, save; or all in one go.",
    epilog="Example: qbench onnx all model.onnx --data images/ -o int8/model",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An fp32 (or fp16) ONNX file.", show_default=False)]
Calibration = Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What quantize wrote.", show_default=False)]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip-layers", metavar="NAMES", help="Layers that stay float; names or patterns, comma-separated."),
]
SkipTypes = Annotated[
    list[str] | None, typer.Option("--skip-types", metavar="TYPES", help="Operators that stay float, e.g. Gemm.")
]
BatchNum = Annotated[
    int | None, typer.Option("--batch-num", min=1, help="Batches to calibrate with; default: 128 examples.")
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME|FILE", help="amct (default), fast, accurate, or AMCT's simplified configuration file."),
]
Calibrator = Annotated[
    str | None, typer.Option(metavar="NAME", help="How activation ranges are chosen; see qbench list.")
]
Weights = Annotated[str | None, typer.Option(metavar="NAME", help="arq_quantize or ada_quantize (AdaRound).")]
Symmetric = Annotated[bool, typer.Option("--symmetric", help="Activations without an offset.")]
Balance = Annotated[
    float | None, typer.Option(min=0, max=1, help="Exponent of the balance of activations and weights (DMQ).")
]
Bias = Annotated[bool, typer.Option("--bias-correction", help="Biases give back the mean error of their layer.")]
NoFusion = Annotated[bool, typer.Option("--no-fusion", help="Keep BatchNorms apart from their layers.")]
Record = Annotated[Path, typer.Option("--record", "-r", metavar="FILE", help="The scales, as protobuf text.")]
Data = Annotated[
    str,
    typer.Option(
        metavar="DATA",
        help="Calibration data: image folder, .npz, file.py:function, or a data set of qbench's.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data, e.g. mean=[0.5,0.5,0.5]; repeatable."),
]
Split = Annotated[str | None, typer.Option(metavar="NAME", help="Split of the data; default: train.")]
Size = Annotated[int | None, typer.Option("--batch-size", min=1, help="Examples in a batch; default: 32.")]
Seed = Annotated[int, typer.Option(help="Which examples are drawn.")]
Threads = Annotated[int, typer.Option(min=0, help="Of inference and of calibrators; 0: all cores.")]
Targets = Annotated[
    list[str] | None, typer.Option("--target", metavar="NAME", help="onnxruntime (default) or ascend; repeatable.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


@app.command(epilog="Example: qbench onnx config model.onnx -o config.json --skip-layers 'head.*'")
def config(
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where it is written.")] = Path(
        "config.json"
    ),
    skip_layers: Skip = None,
    skip_types: SkipTypes = None,
    batch_num: BatchNum = None,
    preset: Preset = None,
    calibrator: Calibrator = None,
    weights: Weights = None,
    symmetric: Symmetric = False,
    balance: Balance = None,
    bias_correction: Bias = False,
    no_fusion: NoFusion = False,
) -> None:
    """Write config.json: every layer that can be quantized, and how; lists what stays float and why."""
    from qbench import onnx, onnx_words

    rules = _rules(preset, skip_layers, skip_types, batch_num, calibrator, weights, symmetric, balance)
    rules = _switched(rules, bias_correction=bias_correction, no_fusion=no_fusion)
    _print(onnx_words.quantized(onnx.configured(model, rules, out)))
    print(f"wrote {out}; next: qbench onnx quantize {model} -c {out}")


@app.command(epilog="Example: qbench onnx quantize model.onnx -c config.json -o calibration.onnx -r record.txt")
def quantize(
    model: Model,
    settings: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE", help="qbench's or AMCT's config.json.")
    ] = Path("config.json"),
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The calibration model.")] = Path(
        "calibration.onnx"
    ),
    record: Record = Path("record.txt"),
) -> None:
    """Write the calibration model, and the scales of the weights."""
    from qbench import onnx, onnx_words

    _print(onnx_words.quantized(onnx.quantize(model, settings, out, record)))
    print(f"wrote {out} and {record}; next: qbench onnx calibrate {out} -r {record} --data DATA")


@app.command(epilog="Example: qbench onnx calibrate calibration.onnx --data images/ --set mean=[0.485,0.456,0.406]")
def calibrate(
    calibration: Calibration,
    data: Data,
    record: Record = Path("record.txt"),
    options: Options = None,
    split: Split = None,
    batch_size: Size = None,
    seed: Seed = 0,
    threads: Threads = 0,
    quiet: Quiet = False,
) -> None:
    """Run the calibration model on data, and complete the record."""
    from qbench import onnx, onnx_words
    from qbench.onnx_data import shaped
    from qbench.quant.uniform.calibration.calibration_model import CalibrationModel

    model = CalibrationModel.read(calibration)
    source, fixed = _source(model.graph(), data, options, split)
    number, size = shaped(source, model.config.batch_num, batch_size, fixed)
    with live(sys.stderr, quiet=quiet) as progress:
        found = onnx.calibrate(
            calibration, source.batches(number, size, seed=seed), record, threads=threads, progress=_told(progress)
        )
    _print(onnx_words.calibrated(found))
    print(f"wrote {record}; next: qbench onnx save {calibration} -r {record} -o PREFIX")


@app.command(epilog="Example: qbench onnx save calibration.onnx -r record.txt -o int8/model --target onnxruntime")
def save(
    calibration: Calibration,
    prefix: Annotated[Path, typer.Option("--out", "-o", metavar="PREFIX", help="How the files begin.")],
    record: Record = Path("record.txt"),
    target: Targets = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="As in calibrate: the models are compared on it.")
    ] = None,
    options: Options = None,
    split: Split = None,
    batch_size: Size = None,
) -> None:
    """Write the fake-quant model, a deploy model for each target, and .quant.json; compares them."""
    from qbench import onnx, onnx_words
    from qbench.onnx_data import shaped
    from qbench.quant.uniform.calibration.calibration_model import CalibrationModel

    targets, example = _targets(target), None
    if data is not None:
        source, fixed = _source(CalibrationModel.read(calibration).graph(), data, options, split)
        _, size = shaped(source, 1, batch_size, fixed)
        example = next(iter(source.batches(1, size)()))
    _print(onnx_words.saved(onnx.save(calibration, record, prefix, targets=targets, example=example)))


@app.command("all", epilog="Example: qbench onnx all model.onnx --data images/ -o int8/model")
def all_(
    model: Model,
    data: Data,
    prefix: Annotated[Path, typer.Option("--out", "-o", metavar="PREFIX", help="How the files begin.")],
    skip_layers: Skip = None,
    skip_types: SkipTypes = None,
    batch_num: BatchNum = None,
    preset: Preset = None,
    calibrator: Calibrator = None,
    weights: Weights = None,
    symmetric: Symmetric = False,
    balance: Balance = None,
    bias_correction: Bias = False,
    no_fusion: NoFusion = False,
    options: Options = None,
    split: Split = None,
    batch_size: Size = None,
    seed: Seed = 0,
    threads: Threads = 0,
    target: Targets = None,
    quiet: Quiet = False,
) -> None:
    """The four steps in one go."""
    from qbench import onnx, onnx_words
    from qbench.onnx_data import shaped
    from qbench.quant.uniform.graph.graph import Graph

    rules = _rules(preset, skip_layers, skip_types, batch_num, calibrator, weights, symmetric, balance)
    rules = _switched(rules, bias_correction=bias_correction, no_fusion=no_fusion)
    targets = _targets(target)
    source, fixed = _source(Graph.load(model), data, options, split)
    number, size = shaped(source, rules.batch_num, batch_size, fixed)
    with live(sys.stderr, quiet=quiet) as progress:
        made = onnx.all(
            model,
            source.batches(number, size, seed=seed),
            prefix,
            rules=replace(rules, batch_num=number),
            targets=targets,
            threads=threads,
            progress=_told(progress),
        )
    _print(onnx_words.saved(made))


@app.command(
    epilog="Example: qbench onnx accuracy calibration.onnx --data images/ --evaluate mine.py:score --loss 0.01 -o tuned"
)
def accuracy(
    calibration: Calibration,
    data: Data,
    evaluate: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:FN",
            help="A function that takes the path of an ONNX file and returns its score, higher is better.",
            show_default=False,
        ),
    ],
    loss: Annotated[float, typer.Option(min=0, help="How far below the float model's score is allowed.")],
    folder: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="config.json, record.txt, the ledger.")],
    record: Record = Path("record.txt"),
    options: Options = None,
    split: Split = None,
    batch_size: Size = None,
    seed: Seed = 0,
    max_trials: Annotated[int | None, typer.Option(min=1, help="At most so many models are scored.")] = None,
    quiet: Quiet = False,
) -> None:
    """Find the fewest layers that must stay float to keep your own score; goes on where a killed search ended."""
    from qbench import onnx, onnx_words
    from qbench.onnx_data import shaped
    from qbench.quant.uniform.calibration.calibration_model import CalibrationModel

    source, fixed = _source(CalibrationModel.read(calibration).graph(), data, options, split)
    _, size = shaped(source, onnx.RANKING_BATCHES, batch_size, fixed)
    batches = source.batches(onnx.RANKING_BATCHES, size, seed=seed)
    with live(sys.stderr, quiet=quiet) as progress:
        progress.stage("accuracy", None)
        scored = _evaluator(evaluate, lambda text: progress.advance(text))
        found = onnx.accuracy(calibration, record, scored, batches, folder, loss=loss, max_trials=max_trials)
    _print(onnx_words.searched(found, folder))


def _evaluator(reference: str, tell: Callable[[str], None]) -> Callable[[Path], float]:
    """The person's function, with what it raises as one message and each score as progress."""
    from qbench import python_file
    from qbench.errors import EvaluateError

    file, name = python_file.parse(reference, base=Path.cwd(), error=EvaluateError)
    function = python_file.attribute(file, name, error=EvaluateError)
    if not callable(function):
        raise EvaluateError(f"--evaluate {reference}: {name} is {type(function).__name__}, not a function")

    def scored(path: Path) -> float:
        found = python_file.call(function, str(path), path=file, error=EvaluateError)
        try:
            score = float(found)
        except (TypeError, ValueError) as error:
            raise EvaluateError(f"--evaluate {reference}: {name} returned {found!r}, not a score") from error
        tell(f"score {score:g}")
        return score

    return scored


def _rules(
    preset: str | None,
    skip_layers: list[str] | None,
    skip_types: list[str] | None,
    batch_num: int | None,
    calibrator: str | None,
    weights: str | None,
    symmetric: bool,
    balance: float | None,
) -> Rules:
    """The preset's rules with what the command line says over them."""
    from qbench import registry
    from qbench.quant.uniform.files import algorithms
    from qbench.quant.uniform.files.rules import ActivationRule, WeightRule

    rules = _preset(preset)
    common = rules.common
    if calibrator is not None:
        common = replace(common, activation=ActivationRule(algorithm=registry.entry("calibrator", calibrator).name))
    if weights is not None:
        if weights not in algorithms.WEIGHT_ALGORITHMS:
            raise UsageError(f"--weights {weights}: available: {', '.join(algorithms.WEIGHT_ALGORITHMS)}")
        common = replace(common, weight=WeightRule(algorithm=weights))
    return replace(
        rules,
        common=common,
        skip_layers=rules.skip_layers + _names(skip_layers),
        skip_layer_types=rules.skip_layer_types + _names(skip_types),
        batch_num=rules.batch_num if batch_num is None else batch_num,
        activation_offset=rules.activation_offset and not symmetric,
        balance=rules.balance if balance is None else balance,
    )


def _switched(rules: Rules, *, bias_correction: bool, no_fusion: bool) -> Rules:
    return replace(
        rules,
        bias_correction=rules.bias_correction or bias_correction,
        do_fusion=rules.do_fusion and not no_fusion,
    )


def _preset(name: str | None) -> Rules:
    from qbench.quant.uniform.files import simplified
    from qbench.quant.uniform.files.rules import PRESETS, Rules

    if name is None:
        return Rules()
    if name in PRESETS:
        return PRESETS[name]
    if Path(name).exists() or Path(name).suffix:
        return simplified.read(Path(name))
    raise UsageError(f"--preset {name}: no such preset or file; presets: {', '.join(PRESETS)}")


def _names(given: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(name for one in given or () for name in one.split(",") if name)


def _targets(given: list[str] | None) -> tuple[str, ...]:
    from qbench.onnx import TARGETS

    wanted = tuple(dict.fromkeys(given or ("onnxruntime",)))
    for name in wanted:
        if name not in TARGETS:
            raise UsageError(f"--target {name}: no such target; available: {', '.join(TARGETS)}")
    return wanted


def _source(graph: Graph, data: str, options: list[str] | None, split: str | None) -> tuple[Source, int | None]:
    """The data, and the batch size that the model demands."""
    from qbench import onnx_data
    from qbench.quant.uniform.files.defaults import fixed_batch

    source = onnx_data.open_source(data, onnx_data.inputs(graph), _options(options), split)
    return source, fixed_batch(graph)


def _options(given: list[str] | None) -> Mapping[str, Any]:
    """``key=value`` with the value in YAML: numbers, lists, words."""
    import yaml

    made = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {one}: expected KEY=VALUE, such as size=224")
        try:
            made[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(
                f"--set {one}: {value!r} is no value (a number, a word, or a list such as [1,2])"
            ) from error
    return made


def _told(progress: Silent) -> Callable[[str, int, int], None]:
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
        print(line)
