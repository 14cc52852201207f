"""The int8 ONNX file that a runtime executes on this CPU."""

from __future__ import annotations

from pathlib import Path

from qbench.quant.uniform.files.record import Record
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs import deploy_onnxruntime, narrow
from qbench.quant.uniform.sites import Sites


def write(graph: Graph, sites: Sites, record: Record, file: Path) -> tuple[str, ...]:
    """Writes the QDQ file that ONNX Runtime and OpenVINO execute; what a reader must know of its form."""
    fitted = narrow.fitted(graph, sites, record)
    deploy_onnxruntime.deploy(graph, sites, fitted.record, form=fitted.form).save(file)
    if fitted.narrowed is None:
        return ()
    share = f"{fitted.narrowed:.0%} of the channels of weights"
    return (f"no VNNI: {share} use fewer than 8 bits, so that 16-bit sums hold",)
