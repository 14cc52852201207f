"""The options of ``qbench onnx`` that several commands take, and what is made of them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qbench.errors import DataError, ModelError, UsageError
from qbench.foreign_text import join_lines

if TYPE_CHECKING:
    from qbench.onnx.calibration_data import Source, Wanted
    from qbench.quant.onnx.calibration.batches import Batch
    from qbench.quant.onnx.formats.rules import Rules

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An fp32 (or fp16) ONNX file.")]
Calibration = Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What quantize wrote.")]
Record = Annotated[Path, typer.Option("--record", "-r", metavar="FILE", help="The scales, as protobuf text.")]
Prefix = Annotated[Path, typer.Option("--out", "-o", metavar="PREFIX", help="How the files begin.")]
Targets = Annotated[
    list[str] | None, typer.Option("--target", metavar="NAME", help="onnxruntime (default) or ascend; repeatable.")
]
Form = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Bytes for onnxruntime: U8S8 (CPUs with VNNI), U8S8-narrow, U8U8 (slower), S8S8 (ARM); default: "
        "fast and exact on this CPU.",
    ),
]
Seed = Annotated[int, typer.Option(help="Which examples are drawn.")]
Threads = Annotated[int, typer.Option(min=0, max=4096, help="Of inference and of calibrators; 0: all cores.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
_WHERE = "image folder, .npz, file.py:function, or a data set of qbench's."


def takes(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of functions: each named parameter becomes the options of its function, and the
    command gets what that makes of them."""

    def given(command: Callable[..., None]) -> Callable[..., None]:
        shown: list[inspect.Parameter] = []
        parts = {name: _parameters(maker) for name, maker in makers.items()}
        own = _parameters(command, but=makers)
        for name in inspect.signature(command).parameters:
            shown += parts.get(name, {}).values() or [own[name]]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            built = {}
            for name, maker in makers.items():
                built[name] = maker(**{option: values.pop(option) for option in parts[name]})
            with _usage_errors():
                command(**values, **built)

        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # which typer reads
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return run

    return given


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    """A model or data that cannot be used is a wrong argument here: no case of a run fails by it, as elsewhere."""
    try:
        yield
    except (ModelError, DataError) as error:
        raise UsageError(str(error)) from error


def _parameters(function: Callable[..., Any], but: Iterable[str] = ()) -> dict[str, inspect.Parameter]:
    """Those of a function but some, by name, with the types that their annotations stand for."""
    written = {name: kind for name, kind in function.__annotations__.items() if name not in {"return", *but}}
    kinds = typing.get_type_hints(
        types.SimpleNamespace(__annotations__=written), function.__globals__, include_extras=True
    )
    declared = inspect.signature(function).parameters
    return {
        name: declared[name].replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
        for name, kind in kinds.items()
    }


def rules(
    skip_layers: Annotated[
        list[str] | None,
        typer.Option(
            "--skip-layers", metavar="NAMES", help="Layers that stay float; names or patterns, comma-separated."
        ),
    ] = None,
    skip_types: Annotated[
        list[str] | None, typer.Option("--skip-types", metavar="TYPES", help="Operators that stay float, e.g. Gemm.")
    ] = None,
    batch_num: Annotated[
        int | None, typer.Option("--batch-num", min=1, help="Batches to calibrate with; default: 128 examples.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="amct (default), fast, accurate, or AMCT's simplified configuration file."
        ),
    ] = None,
    calibrator: Annotated[
        str | None, typer.Option(metavar="NAME", help="How activation ranges are chosen; see qbench list.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="NAME", help="arq_quantize or ada_quantize (AdaRound).")
    ] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Activations without an offset.")] = False,
    balance: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exponent of the balance of activations and weights (DMQ).")
    ] = None,
    bias_correction: Annotated[
        bool, typer.Option("--bias-correction", help="Biases give back the mean error of their layer.")
    ] = False,
    no_fusion: Annotated[bool, typer.Option("--no-fusion", help="Keep BatchNorms apart from their layers.")] = False,
) -> Rules:
    """The preset's rules with what the command line says over them."""
    from qbench import registry
    from qbench.quant.onnx.formats import algorithms
    from qbench.quant.onnx.formats.rules import ActivationRule, WeightRule

    chosen = _preset(preset)
    common = chosen.common
    if calibrator is not None:
        common = replace(common, activation=ActivationRule(algorithm=registry.entry("calibrator", calibrator).name))
    if weights is not None:
        if weights not in algorithms.WEIGHT_ALGORITHMS:
            raise UsageError(f"--weights {weights}: available: {', '.join(algorithms.WEIGHT_ALGORITHMS)}")
        common = replace(common, weight=WeightRule(algorithm=weights))
    return replace(
        chosen,
        common=common,
        skip_layers=chosen.skip_layers + _names(skip_layers),
        skip_layer_types=chosen.skip_layer_types + _names(skip_types),
        batch_num=chosen.batch_num if batch_num is None else batch_num,
        activation_offset=chosen.activation_offset and not symmetric,
        balance=chosen.balance if balance is None else balance,
        bias_correction=chosen.bias_correction or bias_correction,
        do_fusion=chosen.do_fusion and not no_fusion,
    )


def _preset(name: str | None) -> Rules:
    from qbench.quant.onnx.formats import amct_cfg
    from qbench.quant.onnx.formats.rules import PRESETS, Rules

    if name is None:
        return Rules()
    if name in PRESETS:
        return PRESETS[name]
    if Path(name).exists() or Path(name).suffix:
        return amct_cfg.read(Path(name))
    raise UsageError(f"--preset {name}: no such preset or file; presets: {', '.join(PRESETS)}")


def _names(texts: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(name for text in texts or () for name in text.split(",") if name)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The data that the command line names, not looked at yet."""

    where: str
    options: list[str] | None
    split: str | None
    batch_size: int | None

    def batches(
        self, wanted: Wanted, number: int | None, *, seed: int = 0
    ) -> tuple[Callable[[], Iterable[Batch]], int]:
        """What makes batches for the inputs of a model, and how many: ``number``, else as many as are needed."""
        source = self._source(wanted)
        number, size = self._shaped(source, number, wanted.batch_size)
        return source.batches(number, size, seed=seed, fixed=wanted.batch_size), number

    def first(self, wanted: Wanted, examples: int) -> Callable[[], Iterable[Batch]]:
        """What makes the batches that hold so many examples, or all where there are fewer."""
        source = self._source(wanted)
        _, size = self._shaped(source, 1, wanted.batch_size)
        number = max(1, min(-(-examples // size), (source.examples or size) // size))
        return source.batches(number, size, fixed=wanted.batch_size)

    def example(self, wanted: Wanted) -> Batch:
        """The batch with the first example; raises ``DataError`` where there is none."""
        batch = next(iter(self.first(wanted, 1)()), None)
        if batch is None:
            raise DataError(f"--data {self.where}: it gives no batch; give data that has examples")
        return batch

    def _source(self, wanted: Wanted) -> Source:
        from qbench.onnx import calibration_data

        return calibration_data.open_source(self.where, wanted.inputs, _options(self.options), self.split)

    def _shaped(self, source: Source, number: int | None, fixed: int | None) -> tuple[int, int]:
        from qbench.onnx.calibration_data import shaped

        return shaped(source, number, self.batch_size, fixed)


_Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data, e.g. mean=[0.5,0.5,0.5]; repeatable."),
]
_Split = Annotated[str | None, typer.Option(metavar="NAME", help="Split of the data; default: train.")]
_Size = Annotated[int | None, typer.Option("--batch-size", min=1, help="Examples in a batch; default: 32.")]


def chosen(
    data: Annotated[str, typer.Option(metavar="DATA", help=f"Calibration data: {_WHERE}")],
    options: _Options = None,
    split: _Split = None,
    batch_size: _Size = None,
) -> Chosen:
    """The calibration data."""
    return Chosen(where=data, options=options, split=split, batch_size=batch_size)


def perhaps(
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="As in calibrate: models are compared on it; default: random.")
    ] = None,
    options: _Options = None,
    split: _Split = None,
    batch_size: _Size = None,
) -> Chosen | None:
    """The data where it is given."""
    return None if data is None else Chosen(where=data, options=options, split=split, batch_size=batch_size)


def targets(names: list[str] | None) -> tuple[str, ...]:
    """The runtimes to write for; raises ``UsageError`` for one that there is not."""
    from qbench.onnx.api import TARGETS

    chosen_targets = tuple(dict.fromkeys(names or ("onnxruntime",)))
    for name in chosen_targets:
        if name not in TARGETS:
            raise UsageError(f"--target {name}: no such target; available: {', '.join(TARGETS)}")
    return chosen_targets


def form(name: str | None) -> str | None:
    """The form asked for; raises ``UsageError`` for one that there is not."""
    from qbench.onnx.api import FORMS

    if name is not None and name not in FORMS:
        raise UsageError(f"--form {name}: no such form; available: {', '.join(FORMS)}")
    return name


def _options(texts: list[str] | None) -> Mapping[str, Any]:
    """``key=value`` with the value in YAML: numbers, lists, words."""
    import yaml

    options = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {join_lines(text)}: expected KEY=VALUE, such as size=224")
        try:
            options[key] = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise UsageError(
                f"--set {join_lines(text)}: {value!r} is no value (a number, a word, or a list such as [1,2])"
            ) from error
    return options
