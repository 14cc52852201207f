"""The int8 ONNX file that a runtime executes on this CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qbench import machine
from qbench.quant.uniform.files.record import Record
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs import deploy_onnxruntime, deploy_openvino, executed, narrow
from qbench.quant.uniform.sites import Sites


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a reader must know of the form of a file, and why layers that were to be int8 run in float: node -> why."""

    notes: tuple[str, ...] = ()
    floats: Mapping[str, str] = field(default_factory=dict)


def write(
    graph: Graph,
    sites: Sites,
    record: Record,
    file: Path,
    *,
    runtime: str,
    learned: bool = False,
    narrow_weights: bool = True,
) -> Written:
    """Writes the QDQ file that ``runtime`` ("onnxruntime" or "openvino") executes.

    Where its kernels add products in 16 bits, weights get wider steps, unless ``narrow_weights`` is off.

    For ONNX Runtime what it runs in int8 is read from it. OpenVINO has its own places and types (``deploy_openvino``).
    ``learned``: scales that were trained stay as they are.
    """
    # oneDNN's switch hides instructions from OpenVINO; ONNX Runtime reads what the CPU has.
    form = deploy_onnxruntime.form_for(machine.onednn_isa() if runtime == "openvino" else machine.isa())
    in_16_bits = form == "U8U8"
    narrowed: narrow.Choice = narrow.NARROW if narrow_weights else "U8S8"
    fitted = narrow.fitted(graph, sites, record, narrowed if in_16_bits else form)
    notes = []
    if in_16_bits and not narrow_weights:
        notes.append("no VNNI: products are added in 16 bits, which may overflow; narrow_weights: true avoids it")
    if fitted.narrowed is not None:
        share = f"{fitted.narrowed:.0%} of the channels of weights"
        notes.append(f"no VNNI: {share} use fewer than 8 bits, so that 16-bit sums hold")
    if runtime == "openvino":
        deploy_openvino.deploy(graph, sites, fitted, learned=learned).save(file)
        return Written(notes=tuple(notes))
    settled = executed.settled(graph, sites, fitted)
    settled.graph.save(file)
    if given := executed.outputs_quantized(graph, settled.sites):
        notes.append(
            f"{given}: quantized to 8 bits for ONNX Runtime, whose convolutions give bytes only; last_layer_float or "
            "skip_layers keeps the layer before it float"
        )
    return Written(notes=tuple(notes), floats=settled.floats)
