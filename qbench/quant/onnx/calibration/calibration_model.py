"""The calibration model: a prepared fp32 graph that also gives its quantized activations, in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import Config
from qbench.quant.onnx.sites import Record, Sites, find

# The steps of calibration that change weights.
BALANCE, ADAROUND, BIAS = "balance", "adaround", "bias_correction"


@dataclass(frozen=True, kw_only=True)
class CalibrationModel:
    """What is known of a calibration model: the names of its ``inputs`` and of its own ``outputs``, its sites, and
    the steps ``done`` that have changed its weights, with their scales in ``record``. The weights stay in the file:
    ``graph`` reads them. ``describe``: what the file itself is to say of it, as metadata (None: nothing)."""

    file: Path
    config: Config
    sites: Sites
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...] = ()
    record: Record = field(default_factory=dict)
    describe: Callable[[CalibrationModel], Mapping[str, str]] | None = None

    @classmethod
    def write(
        cls,
        graph: Graph,
        config: Config,
        file: Path,
        *,
        done: tuple[str, ...] = (),
        record: Record | None = None,
        describe: Callable[[CalibrationModel], Mapping[str, str]] | None = None,
    ) -> CalibrationModel:
        """The calibration model of a prepared graph, written whole to ``file``."""
        model = cls(
            file=file,
            config=config,
            sites=find(graph, config),
            inputs=graph.inputs,
            outputs=graph.outputs,
            done=done,
            record=record or {},
            describe=describe,
        )
        calibrating = with_activations(graph, model.sites)
        _replace_metadata(calibrating, describe(model) if describe else {})
        calibrating.save(file)
        return model

    @property
    def tensors(self) -> tuple[str, ...]:
        """The quantized activations, in the order of the graph, each once."""
        return tuple(dict.fromkeys(site.tensor for site in self.sites.activations))

    def graph(self) -> Graph:
        """The prepared graph, with its own outputs only."""
        graph = Graph.load(self.file)
        keep_outputs(graph, len(self.outputs))
        return graph

    def rewrite(self, graph: Graph, step: str, record: Record) -> CalibrationModel:
        """The model with another graph (of the same layers), written whole over its file; ``step`` is then done.
        ``record`` holds the scales of the graph's weights."""
        weights = {site.layer: replace(record[site.layer], scale_d=None, offset_d=None) for site in self.sites.weights}
        done = (*self.done, step)
        return self.write(graph, self.config, self.file, done=done, record=weights, describe=self.describe)


def with_activations(graph: Graph, sites: Sites) -> Graph:
    """A copy of a prepared graph that also gives every quantized activation, behind its own outputs."""
    calibrating = graph.copy()
    types = {value.name: value for value in (*calibrating.model.graph.value_info, *calibrating.model.graph.input)}
    for tensor in dict.fromkeys(site.tensor for site in sites.activations):
        if tensor not in calibrating.outputs:
            calibrating.model.graph.output.append(types.get(tensor) or _float_value(tensor))
    return calibrating


def keep_outputs(graph: Graph, count: int) -> None:
    """Drops all outputs but the first ``count``, in place."""
    del graph.model.graph.output[count:]


def _replace_metadata(graph: Graph, properties: Mapping[str, str]) -> None:
    """The entries, behind those of others."""
    kept = {entry.key: entry.value for entry in graph.model.metadata_props if not entry.key.startswith("qbench.")}
    del graph.model.metadata_props[:]
    for key, text in {**kept, **properties}.items():
        graph.model.metadata_props.add(key=key, value=text)


def _float_value(name: str) -> Any:
    """A float tensor of unknown rank."""
    import onnx

    value = onnx.ValueInfoProto()
    value.name = name
    value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return value
