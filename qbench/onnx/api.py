"""The steps of ``qbench.onnx``, each one function; the package's docstring has them in order."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.errors import DataError, ModelError, UsageError
from qbench.files.atomic import make_workplace
from qbench.onnx import save_models
from qbench.onnx.save_models import TARGETS, Saved
from qbench.quant.artifacts import onnx_check
from qbench.quant.onnx import graph_process
from qbench.quant.onnx.calibration.batches import keep, plain
from qbench.quant.onnx.export.narrow_weights import CHOICES as FORMS
from qbench.quant.onnx.export.parity import EXAMPLES
from qbench.quant.onnx.formats import config as config_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.formats.rules import PRESETS, Rules
from qbench.quant.onnx.settings import Config
from qbench.quant.onnx.sites import require_documented

if TYPE_CHECKING:
    from qbench.onnx.accuracy_search import Evaluator, Outcome
    from qbench.quant.onnx.calibration.batches import Batch, Batches
    from qbench.quant.onnx.calibration.calibrate import Calibrated
    from qbench.quant.onnx.graph.graph import Graph
    from qbench.quant.onnx.graph.layers import FoundLayer
    from qbench.quant.onnx.sites import Sites
    from qbench.quant.onnx.weights.weight_steps import StepProgress

__all__ = [
    "FORMS",
    "PRESETS",
    "TARGETS",
    "Config",
    "Quantized",
    "Rules",
    "Saved",
    "accuracy",
    "all",
    "calibrate",
    "config",
    "quantize",
    "save",
]

_ENDINGS = {"config": ".config.json", "record": ".record.txt"}  # of what ``all`` writes beside the models
RANKING_BATCHES = 4  # on which layers are ranked: more cost time and hardly change the order


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """What will be int8. ``layers``: every node of the prepared model, with the reason where it stays float."""

    config: Config
    sites: Sites
    layers: tuple[FoundLayer, ...]


def config(model: str | Path, file: str | Path | None = None, *, rules: Rules | None = None) -> Config:
    """The configuration of a model, written to ``file`` where one is given.

    ``rules``: one of ``PRESETS``, changed by ``dataclasses.replace``, or rules of your own. Raises ``ModelError`` for a
    file that is not whole, quantized already or that cannot run, and ``UsageError`` for rules that do not fit it.
    """
    return configured(model, rules, file).config


def configured(model: str | Path, rules: Rules | None = None, file: str | Path | None = None) -> Quantized:
    """``config``, with what it makes of each layer."""
    quantized: Quantized = graph_process.run(Path(model), _configured, Path(model), rules or Rules())
    if file is not None:
        with onnx_check.name_file_in_errors(Path(model)):
            config_file.write(quantized.config, Path(file))
    return quantized


def _configured(model: Path, rules: Rules) -> Quantized:
    with onnx_check.name_file_in_errors(model):
        graph = _prepare_graph(model, fuse=rules.do_fusion, skip_fusion=rules.skip_fusion_layers)
        return _describe(graph, config_file.default(graph, rules))


def quantize(
    model: str | Path,
    config: Config | str | Path,
    calibration: str | Path,
    record: str | Path,
    *,
    example: Batch | None = None,
) -> Quantized:
    """Writes the calibration model and a record with the scales of the weights; what will be int8.

    ``config``: a ``Config`` or its file, AMCT's included. ``example``: a batch as in ``calibrate``, to judge with that
    what is fused computes the same; without it random inputs are tried. An existing record is replaced.
    """
    held, where = (config, "configuration") if isinstance(config, Config) else _read_config(Path(config))
    _apart(model, calibration)
    strict = not isinstance(config, Config)
    files = Path(calibration), Path(record)
    example = None if example is None else plain(example)
    quantized: Quantized = graph_process.run(
        Path(model), _quantize, Path(model), held, where, strict, files, example, written=files
    )
    return quantized


def _quantize(
    model: Path, held: Config, where: str, strict: bool, files: tuple[Path, Path], example: Batch | None
) -> Quantized:
    with onnx_check.name_file_in_errors(model, Path(where)):
        with onnx_check.name_file_in_errors(Path(where), model, kind=UsageError):
            graph = _prepare_graph(model, fuse=held.do_fusion, skip_fusion=held.skip_fusion_layers, example=example)
        described = _describe(graph, held, where)
        if strict:
            require_documented(graph, held, where)
        _write_calibration(graph, held, *files)
    return described


def _read_config(file: Path) -> tuple[Config, str]:
    """A configuration, and what stands before problems with it."""
    return config_file.read(file), str(file)


def _write_calibration(graph: Graph, held: Config, calibration: Path, record: Path) -> None:
    from qbench.quant.onnx.calibration import complete_scales
    from qbench.quant.onnx.formats import calibration_file

    model = calibration_file.write(graph, held, calibration)
    record_file.write(complete_scales.with_weights({}, model), record)


def calibrate(
    calibration: str | Path,
    data: Batches,
    record: str | Path,
    *,
    threads: int = 0,
    progress: StepProgress = lambda *_: None,
) -> Calibrated:
    """Feeds the first ``batch_num`` batches to the calibration model and writes every scale to ``record``.

    ``data``: an iterable of batches, or a function that makes one. A batch is an array, a sequence of arrays in the
    order of the inputs, or arrays by input name; float32 where the model takes it, first axis the examples.
    """
    from qbench.quant.onnx.formats import calibration_file

    with onnx_check.name_file_in_errors(Path(calibration), Path(record)):
        return calibration_file.run(Path(calibration), data, Path(record), threads=threads, progress=progress)


def save(
    calibration: str | Path,
    record: str | Path,
    prefix: str | Path,
    *,
    targets: Iterable[str] = ("onnxruntime",),
    data: Batches | None = None,
    form: str | None = None,
) -> Saved:
    """Writes ``<prefix>_fake_quant_model.onnx``, a deploy model for each target, and ``<prefix>.quant.json``.

    ``data``: as in ``calibrate``; the models are compared on its first examples, without it on random ones. ``form``
    (one of ``FORMS``): the bytes of the model for ONNX Runtime; None: what is fast and exact on this machine. Raises
    ``UsageError`` for a record that is not complete or not this model's, and ``BuildError`` where a layer cannot be
    expressed.
    """
    files = Path(calibration), Path(record), Path(prefix)
    if not graph_process.is_apart(files[0]):
        return _save(files, tuple(targets), data, form)
    written = [save_models.name_file(files[2], ending) for ending in save_models.ENDINGS.values()]
    with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
        kept = None if data is None else keep(data, Path(folder), EXAMPLES)
        saved: Saved = graph_process.run(files[0], _save, files, tuple(targets), kept, form, written=written)
    return saved


def _save(files: tuple[Path, Path, Path], targets: tuple[str, ...], data: Batches | None, form: str | None) -> Saved:
    with onnx_check.name_file_in_errors(*files):
        return save_models.save(*files, targets, data=data, form=form)


def all(  # noqa: A001  # the name of the command; reached as qbench.onnx.all
    model: str | Path,
    data: Batches,
    prefix: str | Path,
    *,
    rules: Rules | None = None,
    targets: Iterable[str] = ("onnxruntime",),
    form: str | None = None,
    threads: int = 0,
    progress: StepProgress = lambda *_: None,
) -> Saved:
    """The four steps: deploy models beside ``<prefix>.config.json`` and ``<prefix>.record.txt``.

    ``rules.batch_num`` batches of ``data`` are used; the first one judges, too, that what is fused computes the same.
    Nothing is written under the prefix before calibration is done.
    """
    prefix, rules = Path(prefix), rules or Rules()
    files = {what: save_models.name_file(prefix, ending) for what, ending in _ENDINGS.items()}
    data, first = _peeked(data)
    with make_workplace(prefix) as folder:
        calibration, record = folder / "calibration.onnx", folder / "record.txt"
        example = None if first is None else plain(first)
        config: Config = graph_process.run(Path(model), _first_steps, Path(model), rules, example, calibration, record)
        calibrate(calibration, data, record, threads=threads, progress=progress)
        again = [first] if isinstance(data, Iterator) and first is not None else data
        saved = save(calibration, record, prefix, targets=targets, data=again, form=form)
        held = record_file.read(record)
    config_file.write(config, files["config"])
    record_file.write(held, files["record"])
    return replace(saved, files=files | dict(saved.files))


def _first_steps(model: Path, rules: Rules, first: Batch | None, calibration: Path, record: Path) -> Config:
    """config and quantize in one go, judged on the first batch."""
    with onnx_check.name_file_in_errors(model):
        graph = _prepare_graph(model, fuse=rules.do_fusion, skip_fusion=rules.skip_fusion_layers, example=first)
        config = config_file.default(graph, rules)
        _write_calibration(graph, config, calibration, record)
    return config


def accuracy(
    calibration: str | Path,
    record: str | Path,
    evaluate: Evaluator,
    data: Batches,
    folder: str | Path,
    *,
    loss: float,
    max_trials: int | None = None,
) -> Outcome:
    """Finds the fewest layers whose return to float keeps the score within ``loss`` of the float model's.

    ``evaluate``: the path of an ONNX file (``save``'s fake-quant model) -> its score, higher is better. ``data``: as in
    ``calibrate``; the first few batches rank the layers. ``folder`` gets ``calibration.onnx``, ``config.json`` and
    ``record.txt`` of the best model, ready for ``save`` unless every layer has to be float, and the ledger with which a
    killed search goes on; another evaluator needs another folder.
    """
    from qbench.onnx import accuracy_search as search
    from qbench.quant.onnx.calibration.batches import by_name
    from qbench.quant.onnx.formats import calibration_file

    model, held = calibration_file.read(Path(calibration)), record_file.read(Path(record))
    graph = model.graph()
    record_file.require_complete(held, graph, model.sites, file=Path(record), batch_num=model.config.batch_num)
    wanted = [value for value in graph.model.graph.input if value.name in graph.inputs]
    batches = itertools.islice(data() if callable(data) else data, RANKING_BATCHES)
    try:
        feeds = [by_name(wanted, batch) for batch in batches]
    except ValueError as error:
        raise DataError(f"calibration data: {error}") from error
    outcome = search.search(
        graph,
        model.config,
        held,
        evaluate,
        feeds,
        loss=loss,
        folder=Path(folder),
        build=save_models.simulated,
        max_trials=max_trials,
    )
    if any(layer.quant_enable for layer in outcome.config.layers.values()):
        calibration_file.write(graph, outcome.config, Path(folder) / "calibration.onnx", done=model.done)
    return outcome


def _peeked(data: Batches) -> tuple[Batches, Batch | None]:
    """The data, and its first batch (None: there is none); data that can be had only once loses nothing."""
    source = iter(data() if callable(data) else data)
    first = next(source, None)
    if source is not data or first is None:
        return data, first
    return itertools.chain([first], source), first


def _prepare_graph(model: str | Path, *, fuse: bool, skip_fusion: Iterable[str], example: Batch | None = None) -> Graph:
    """The prepared graph; judged on the first example of a batch, or on all of it where the model does not take one."""
    from qbench.quant.onnx.calibration.batches import checked, declared, one_example
    from qbench.quant.onnx.graph.graph import Graph
    from qbench.quant.onnx.graph.prepare import prepare

    prepared = functools.partial(prepare, Path(model), fuse=fuse, skip_fusion=tuple(skip_fusion))
    if example is None:
        return prepared()
    inputs = declared(Graph.load(Path(model)))
    feed = checked(inputs, example, 1)
    few = one_example(inputs, feed)
    try:
        return prepared(example=tuple(few.values()))
    except ModelError:
        return prepared(example=tuple(feed.values()))


def _describe(graph: Graph, held: Config, where: str = "configuration") -> Quantized:
    from qbench.quant.onnx.graph.layers import layers
    from qbench.quant.onnx.sites import find

    return Quantized(config=held, sites=find(graph, held, where), layers=layers(graph))


def _apart(model: str | Path, written: str | Path) -> None:
    """The person's model is never overwritten."""
    if os.path.realpath(model) == os.path.realpath(written):  # of a link to itself, too
        raise UsageError(f"{written}: is the model itself; write the calibration model to another file")
