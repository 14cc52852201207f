"""The calibration model: a prepared fp32 graph that also gives its quantized activations, with its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench.errors import ModelError
from qbench.quant.onnx.formats import config as config_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.formats.config import Config
from qbench.quant.onnx.formats.scale_record import Record
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Sites, find

# The steps of calibration that change weights.
BALANCE, ADAROUND, BIAS = "balance", "adaround", "bias_correction"
# Entries of metadata_props. OUTPUTS: how many outputs are the model's own; they come first. DONE: the steps that have
# changed its weights, separated by commas. SCALES: the scales of those weights, which a record file may not have yet
# when a calibration is killed.
CONFIG, OUTPUTS, DONE, SCALES = "qbench.config", "qbench.outputs", "qbench.done", "qbench.weight_scales"


@dataclass(frozen=True, kw_only=True)
class CalibrationModel:
    """What a calibration model says of itself: the names of its ``inputs`` and of its own ``outputs``, its sites, and
    the steps ``done`` that have changed its weights, with their scales in ``record``. The weights stay in the file:
    ``graph`` reads them."""

    file: Path
    config: Config
    sites: Sites
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...] = ()
    record: Record = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> CalibrationModel:
        """Raises ``ModelError`` for a file that is not whole, or that ``quantize`` did not write."""
        return cls._of(file, Graph.load(file))

    @classmethod
    def _of(cls, file: Path, graph: Graph) -> CalibrationModel:
        properties = metadata(graph)
        if CONFIG not in properties or not properties.get(OUTPUTS, "").isdecimal():
            raise ModelError(f"{file}: not a calibration model (no {CONFIG} in it); make one with qbench onnx quantize")
        config = config_file.loads(properties[CONFIG], name=f"{file}: its configuration")
        _keep_own_outputs(graph, int(properties[OUTPUTS]))
        steps = tuple(filter(None, properties.get(DONE, "").split(",")))
        return cls(
            file=file,
            config=config,
            sites=find(graph, config, f"{file}: its configuration"),
            inputs=graph.inputs,
            outputs=graph.outputs,
            done=steps,
            record=record_file.loads(properties[SCALES], name=str(file)) if properties.get(SCALES) else {},
        )

    @property
    def tensors(self) -> tuple[str, ...]:
        """The quantized activations, in the order of the graph, each once."""
        return tuple(dict.fromkeys(site.tensor for site in self.sites.activations))

    def graph(self) -> Graph:
        """The prepared graph, with its own outputs only."""
        graph = Graph.load(self.file)
        _keep_own_outputs(graph, len(self.outputs))
        return graph

    def rewrite(self, graph: Graph, step: str, record: Record) -> CalibrationModel:
        """The model with another graph (of the same layers), written whole over its file; ``step`` is then done.
        ``record`` holds the scales of the graph's weights."""
        weights = {site.layer: replace(record[site.layer], scale_d=None, offset_d=None) for site in self.sites.weights}
        rewritten = calibration_model(graph, self.config, done=(*self.done, step), record=weights)
        rewritten.save(self.file)
        return self._of(self.file, rewritten)


def calibration_model(graph: Graph, config: Config, *, done: Iterable[str] = (), record: Record | None = None) -> Graph:
    """A copy of a prepared graph that also gives every quantized activation, behind its own outputs, and that holds
    its configuration; ``done`` names steps that have changed its weights, ``record`` has their scales."""
    calibrating = graph.copy()
    own = len(calibrating.outputs)
    types = {value.name: value for value in (*calibrating.model.graph.value_info, *calibrating.model.graph.input)}
    for tensor in dict.fromkeys(site.tensor for site in find(graph, config).activations):
        if tensor not in calibrating.outputs:
            calibrating.model.graph.output.append(types.get(tensor) or _float_value(tensor))
    properties = {CONFIG: config_file.dumps(config), OUTPUTS: str(own), DONE: ",".join(done)}
    if record:
        properties[SCALES] = record_file.dumps(record)
    others = {key: value for key, value in metadata(calibrating).items() if key not in (CONFIG, OUTPUTS, DONE, SCALES)}
    del calibrating.model.metadata_props[:]
    for key, value in (others | properties).items():
        calibrating.model.metadata_props.add(key=key, value=value)
    return calibrating


def metadata(graph: Graph) -> dict[str, str]:
    """What the model says of itself."""
    return {prop.key: prop.value for prop in graph.model.metadata_props}


def _float_value(name: str) -> Any:
    """A float tensor of unknown rank."""
    import onnx

    value = onnx.ValueInfoProto()
    value.name = name
    value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return value


def _keep_own_outputs(graph: Graph, count: int) -> None:
    del graph.model.graph.output[count:]
