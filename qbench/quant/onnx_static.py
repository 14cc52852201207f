"""Static quantization of an ONNX file by the room ``uniform``: a recipe -> what is quantized, with which scales."""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbench.errors import BuildError
from qbench.quant import apart, onnx_file, onnx_model
from qbench.quant.recipe import Recipe
from qbench.quant.uniform.calibration import calibrate
from qbench.quant.uniform.calibration.calibration_model import CalibrationModel, calibration_model, metadata
from qbench.quant.uniform.files import config, record
from qbench.quant.uniform.files.record import Record
from qbench.quant.uniform.files.rules import ActivationRule, Rule, Rules, WeightRule
from qbench.quant.uniform.graph import prepare
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.graph.layers import layers
from qbench.quant.uniform.sites import Sites

Progress = Callable[[str, float], None]
# What qbench's recipes call a histogram that is cut for the least squared error is AMCT's hfmg here.
_ALGORITHMS = {"histogram": "hfmg"}
_BATCH = 16  # calibration examples of one inference, where the file takes any number
# Where a calibrated model keeps its record, and what looked wrong on the way to it, one line each.
_RECORD, _NOTES = "qbench.record", "qbench.notes"


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A prepared graph, where it is quantized, and with which scales; ``float_reasons``: layer, as a person knows it,
    -> why it stays float; ``notes``: what a reader must know of the scales."""

    graph: Graph
    sites: Sites
    record: Record
    float_reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def scaled(fp32: Path, file: Path, recipe: Recipe, calibration: tuple[Any, ...], progress: Progress) -> None:
    """Writes the calibrated model of an fp32 file, which ``read`` takes apart: the prepared graph, its configuration
    and its record. ``calibration``: one array for each input, all of whose examples are seen.

    Raises ``ModelError`` for a file that cannot be prepared, ``UsageError`` for layers to skip that are not there,
    ``DataError`` and ``BuildError`` where calibration meets no numbers.
    """
    apart.return_arrays_at_once()  # this is a worker
    batches = onnx_file.Batches(fp32, calibration, _BATCH)
    with tempfile.TemporaryDirectory() as folder:
        model, scales = Path(folder) / "calibration.onnx", Path(folder) / "record.txt"
        _prepare(fp32, model, recipe, calibration, len(batches))
        progress("calibrate", 0.3)
        seen = calibrate.run(
            model, batches, scales, threads=1, progress=lambda what, done, of: progress(what, 0.3 + 0.5 * done / of)
        )
        made = Graph.load(model)
        made.model.metadata_props.add(key=_RECORD, value=scales.read_text(encoding="utf-8"))
        made.model.metadata_props.add(key=_NOTES, value="\n".join(seen.warnings))
        made.save(file)


def _prepare(fp32: Path, model: Path, recipe: Recipe, calibration: tuple[Any, ...], batch_num: int) -> None:
    """Writes the calibration model; its graph is gone before calibration begins, which needs the memory."""
    example = onnx_file.tiled(fp32, tuple(array[:1] for array in calibration))
    graph = prepare.prepare(fp32, example=example)
    calibration_model(graph, config.default(graph, _rules(graph, recipe, batch_num))).save(model)


def read(file: Path) -> Scaled:
    """What ``scaled`` wrote."""
    model = CalibrationModel.read(file)
    graph = model.graph()
    reasons = labelled(graph, model.sites.floats)
    held = metadata(graph)
    return Scaled(
        graph=graph,
        sites=model.sites,
        record=record.loads(held[_RECORD]),
        float_reasons=reasons,
        notes=tuple(held[_NOTES].splitlines()),
    )


def labelled(graph: Graph, floats: Mapping[str, str]) -> dict[str, str]:
    """Why nodes stay float, by the layers as a person knows them."""
    labels = _labels(graph)
    return {labels[name]: reason for name, reason in floats.items() if name in labels}


def _rules(graph: Graph, recipe: Recipe, batch_num: int) -> Rules:
    """The recipe as rules for the configuration of a graph."""
    calibrator = recipe.calibrator or "minmax"
    options = {"percentile": recipe.percentile} if calibrator == "percentile" and recipe.percentile else {}
    common = Rule(
        activation=ActivationRule(algorithm=_ALGORITHMS.get(calibrator, calibrator), options=options),
        weight=WeightRule(channel_wise=recipe.per_channel is not False),
    )
    return Rules(
        batch_num=batch_num,
        activation_offset=not recipe.symmetric,
        skip_layers=tuple(_skipped(graph, recipe)),
        common=common,
    )


def _skipped(graph: Graph, recipe: Recipe) -> Iterator[str]:
    """The nodes that the recipe keeps float, each once."""
    can = {one.name: one.operator for one in layers(graph) if one.kind == "layer" and one.reason is None}
    labels = {name: label for name, label in _labels(graph).items() if name in can}
    found = dict.fromkeys(name for pattern in recipe.skip_layers for name in _named(pattern, labels))
    multiplying = [name for name in labels if can[name] != "AveragePool"]
    if recipe.first_layer_float:
        found |= dict.fromkeys(multiplying[:1])
    if recipe.last_layer_float:
        found |= dict.fromkeys(multiplying[-1:])
    yield from found


def _named(pattern: str, labels: Mapping[str, str]) -> list[str]:
    """The nodes that a name or a pattern means: a node, a torch module, or everything in a module."""
    exact = [name for name, label in labels.items() if pattern in (name, label) or label.startswith(f"{pattern}.")]
    found = exact or [
        name for name, label in labels.items() if fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(label, pattern)
    ]
    if not found:
        known = ", ".join(sorted(set(labels.values())))
        raise BuildError(f"skip_layers: no layer named {pattern} that would be quantized; there are {known}")
    return found


def _labels(graph: Graph) -> dict[str, str]:
    """Node -> the torch module that it came from, or itself, in the order of the graph."""
    return {node.name: onnx_model.module_of(node) or node.name for node in graph.nodes}
