"""Static quantization of an ONNX file: a recipe -> what is quantized, with which scales."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.errors import BuildError, UsageError
from qbench.progress.callback import Progress
from qbench.quant import layer_selection
from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx import attention, needed_inputs, node_names
from qbench.quant.onnx.calibration import calibrate, complete_scales
from qbench.quant.onnx.calibration.calibration_model import CalibrationModel
from qbench.quant.onnx.export import executed_layers
from qbench.quant.onnx.graph import prepare
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import inner_layers, inner_nodes, layers
from qbench.quant.onnx.node_names import match_nodes
from qbench.quant.onnx.settings import ADA, ARQ, ActivationParams, Config, LayerConfig, TensorConfig, WeightParams
from qbench.quant.onnx.sites import SKIPPED, Record, Scales, Sites, why_nothing
from qbench.quant.recipe import Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pydantic import TypeAdapter

    Array = NDArray[Any]

_BATCH = 16  # calibration examples of one inference, where the file takes any number
_SCALED = "qbench.scaled"  # where the file of ``Scaled`` keeps what is no graph
_MEAN_INPUT = "qbench.mean_input/"  # how the constants of that file begin that hold mean inputs
# A suite has no configuration; its sites tell no more of which key of the recipe it was.
_BY_RECIPE = "skipped by the recipe (skip_layers, first_layer_float or last_layer_float)"
_ROUNDED = "; what it reads is rounded to int8 all the same, for layers beside or before it"


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A prepared graph, where it is quantized, and with which scales; ``float_reasons``: layer, as a person knows it,
    -> why it stays float; ``notes``: what a reader must know of the scales; ``original``: the scales of weights before
    room was made for sums of 16 bits, empty where none was; ``mean_inputs``: what layers are given on average
    (``MeanInputs.means``), empty where biases stay as they are."""

    graph: Graph
    sites: Sites
    record: Record
    float_reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    original: Record = field(default_factory=dict)
    mean_inputs: Mapping[str, Array] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Writes the graph, which says the rest as metadata; the mean inputs are constants that nothing reads."""
        records = dict(self.record), dict(self.original)
        facts = _facts().dump_json((self.sites, records, dict(self.float_reasons), self.notes)).decode()
        described = self.graph.copy()
        described.model.metadata_props.add(key=_SCALED, value=facts)
        for layer, means in self.mean_inputs.items():
            described.add_constant(f"{_MEAN_INPUT}{layer}", means)
        described.save(file)

    @classmethod
    def load(cls, file: Path) -> Scaled:
        """What ``save`` wrote."""
        graph = Graph.load(file)
        facts = next(entry.value for entry in graph.model.metadata_props if entry.key == _SCALED)
        sites, (record, original), float_reasons, notes = _facts().validate_json(facts)
        mean_inputs = graph.take_constants(_MEAN_INPUT)
        return cls(
            graph=graph,
            sites=sites,
            record=record,
            float_reasons=float_reasons,
            notes=notes,
            original=original,
            mean_inputs=mean_inputs,
        )


def _facts() -> TypeAdapter[tuple[Sites, tuple[dict[str, Scales], dict[str, Scales]], dict[str, str], tuple[str, ...]]]:
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[Sites, tuple[dict[str, Scales], dict[str, Scales]], dict[str, str], tuple[str, ...]])


def fits_weights(recipe: Recipe) -> bool:
    """Whether a recipe changes weights for the scales that they get, which therefore cannot grow afterwards."""
    return bool(recipe.adaround or recipe.bias_correction)


def choose_scales(
    fp32: Path, recipe: Recipe, calibration: tuple[Any, ...], progress: Progress, *, narrow: bool = False
) -> Scaled:
    """Prepares an fp32 file, a network whose examples do not depend on each other, and finds the scales of a recipe.
    ``calibration``: one array for each input, all of whose examples are seen; ``narrow``: weights leave room for sums
    of 16 bits.

    Raises ``ModelError`` for a file that cannot be prepared, ``UsageError`` for layers to skip that are not there,
    ``DataError`` and ``BuildError`` where calibration meets no numbers.
    """
    batches = onnx_file.Batches(fp32, calibration, _BATCH)
    with tempfile.TemporaryDirectory() as folder:
        model = _prepare(fp32, Path(folder) / "calibration.onnx", recipe, calibration, len(batches))
        progress("calibrate", 0.3)
        steps = calibrate.list_steps(model)
        model, calibrated = calibrate.calibrate(
            model,
            batches,
            narrow=narrow,
            mean_inputs=recipe.gives_back_means,
            separate=True,
            threads=1,
            progress=lambda step, count, of: progress(step, 0.3 + 0.5 * (steps.index(step) + count / of) / len(steps)),
        )
        graph = model.graph()
    return Scaled(
        graph=graph,
        sites=_leave_small_float(graph, model.sites, calibrated.small),
        record=complete_scales.as_written(calibrated.record),
        float_reasons={
            **_explain_sites(graph, model.sites),
            **labelled(graph, _list_small(model.sites, calibrated.small)),
        },
        notes=calibrated.warnings,
        original=complete_scales.as_written(calibrated.original),
        mean_inputs=calibrated.mean_inputs,
    )


def _prepare(fp32: Path, file: Path, recipe: Recipe, calibration: tuple[Any, ...], batch_num: int) -> CalibrationModel:
    """Writes the calibration model; its graph is gone before calibration begins, which needs the memory."""
    example = onnx_file.tile_batch(fp32, tuple(array[:1] for array in calibration))
    graph = prepare.prepare(fp32, example=example)
    return CalibrationModel.write(graph, _configure(graph, recipe, batch_num), file)


def _leave_small_float(graph: Graph, sites: Sites, small: Mapping[str, float]) -> Sites:
    """Sites without the tensors that would be rounded to zeros, and without the layers that take these in."""
    layers = {site.layer for site in sites.weights} & _list_small(sites, small).keys()
    left = executed_layers.without(graph, sites, layers) if layers else sites
    return replace(left, activations=tuple(site for site in left.activations if site.tensor not in small))


def _list_small(sites: Sites, small: Mapping[str, float]) -> dict[str, str]:
    """The layers that take in a tensor that would be rounded to zeros -> why they stay float."""
    return {
        name: f"what it takes in reaches {small[site.tensor]:.2g} at most, which int8 would round to zeros"
        for site in sites.activations
        if site.tensor in small
        for key, (name, _) in site.keys.items()
        if key == name
    }


def _explain_sites(graph: Graph, sites: Sites) -> dict[str, str]:
    """Why layers stay float, by the layers as a person knows them."""
    rounded = {layer for site in sites.activations for layer, _ in site.keys.values()}
    by_recipe = {name: _BY_RECIPE + _ROUNDED * (name in rounded) for name in sites.floats}
    return labelled(graph, {name: by_recipe[name] if why == SKIPPED else why for name, why in sites.floats.items()})


def labelled(graph: Graph, floats: Mapping[str, str]) -> dict[str, str]:
    """Why nodes stay float, by the layers as a person knows them."""
    labels = _labels(graph)
    return {labels[name]: reason for name, reason in floats.items() if name in labels}


def explain_floats(file: Path, skip_layers: Sequence[str] = ()) -> dict[str, str]:
    """Why layers stay float in what ONNX Runtime's own quantizer makes of a file, by the layers as a person knows them:
    they lie inside an If, Loop or Scan, or the recipe skips them."""
    graph = Graph.load(file, valid=False)
    inner = [layer for node in graph.nodes for layer in inner_layers(graph, node)]
    floats = {layer.name: layer.reason for layer in inner if layer.reason is not None}
    for pattern in skip_layers:
        with contextlib.suppress(BuildError):  # a name of what is fused before the file is quantized
            floats |= dict.fromkeys(match_nodes(pattern, _labels(graph)), layer_selection.SKIPPED)
    return labelled(graph, floats)


def _configure(graph: Graph, recipe: Recipe, batch_num: int) -> Config:
    """What a recipe quantizes of a graph, and how. Raises ``UsageError`` for layers to skip that are not there, and
    where nothing is left."""
    found_layers = tuple(layers(graph))
    able = {layer.name: layer.operator for layer in found_layers if layer.kind == "layer" and layer.reason is None}
    skipped = set(_find_skipped(graph, recipe, able))
    enabled = able.keys() - skipped
    if not enabled:
        raise UsageError(why_nothing(found_layers, skipped))
    calibrator = recipe.calibrator or "minmax"
    options = {"percentile": recipe.percentile} if calibrator == "percentile" and recipe.percentile else {}
    activation = ActivationParams(algorithm=calibrator, asymmetric=not recipe.symmetric, options=options)
    weight = WeightParams(algorithm=ADA if recipe.adaround else ARQ, channel_wise=recipe.per_channel is not False)
    weights = {name: None if operator == "AveragePool" else weight for name, operator in able.items()}
    needed = needed_inputs.find(graph, {layer.name: layer.kind for layer in found_layers}, enabled, skipped)
    places = dict.fromkeys([*needed, *attention.find_inputs(graph)])
    return Config(
        batch_num=batch_num,
        layers={
            name: LayerConfig(quant_enable=name in enabled, activation=activation, weight=weights[name])
            for name in able
        },
        tensor_quantize=tuple(
            TensorConfig(layer_name=name, input_index=index, activation=activation) for name, index in places
        ),
        balance=recipe.balance,
        bias_correction=bool(recipe.bias_correction),
    )


def _find_skipped(graph: Graph, recipe: Recipe, can: Mapping[str, str]) -> Iterator[str]:
    """The nodes that the recipe keeps float, each once, of those that ``can`` be quantized (with their operators)."""
    labels = {name: label for name, label in _labels(graph).items() if name in can}
    names = (match_nodes(pattern, labels, " that would be quantized") for pattern in recipe.skip_layers)
    skipped = dict.fromkeys(itertools.chain.from_iterable(names))
    multiplying = [name for name in labels if can[name] != "AveragePool"]
    if recipe.first_layer_float:
        skipped |= dict.fromkeys(multiplying[:1])
    if recipe.last_layer_float:
        skipped |= dict.fromkeys(multiplying[-1:])
    yield from skipped


def _labels(graph: Graph) -> dict[str, str]:
    """Node -> the torch module that it came from, or itself, in the order of the graph; those of subgraphs at the end,
    as ``layers`` lists them."""
    top = {node.name: node_names.module_of(node) or node.name for node in graph.nodes}
    inner = [(place, part) for node in graph.nodes for place, part, _ in inner_nodes(node, node.name)]
    return top | {place: node_names.module_of(layer) or layer.name for place, layer in inner}
