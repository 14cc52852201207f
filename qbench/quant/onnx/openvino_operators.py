"""Operators of ONNX that OpenVINO computes wrongly, whatever the mode: computed before, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from qbench.errors import ModeImpossible
from qbench.quant.onnx.graph import constants
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD

_AXIS_IS_INPUT = 20  # the opset from which on DFT reads its axis


def take_operators(file: Path) -> None:
    """Writes an ONNX file again with what GatherElements picks among constants, where it has an Einsum; raises
    ``ModeImpossible`` for a Fourier transform that OpenVINO 2026.4 computes wrongly.

    It does not compute what is picked before it compiles, and takes the axes of the second of two Einsums that read it
    in another order than its equation says (relative positions, as in Funnel).
    """
    graph = Graph.load(file, valid=False)
    _require_transforms(graph)
    if {"Einsum", "GatherElements"} <= {node.op_type for node in graph.nodes}:
        constants.compute(graph)
        graph.drop_unused()
        graph.save(file)


def _require_transforms(graph: Graph) -> None:
    """OpenVINO 2026.4 does not read an axis that is an input (opset 20 and later), and gives a real signal's spectrum
    one dimension too many."""
    wrong = [node.name for node in graph.nodes if _is_misread(graph, node)]
    if wrong:
        raise ModeImpossible(
            f"OpenVINO computes the Fourier transform {wrong[0]} wrongly (DFT of real values, or along an axis other "
            "than 1 from opset 20 on): use the onnxruntime backend or a torch engine for this network"
        )


def _is_misread(graph: Graph, node: Any) -> bool:
    """Whether OpenVINO takes another axis or shape for a node than ONNX says."""
    if node.op_type != "DFT" or node.domain not in STANDARD:
        return False
    shape = graph.shape(node.input[0])
    return bool(shape and shape[-1] == 1) or (graph.opset >= _AXIS_IS_INPUT and _axis(graph, node, shape) != 1)


def _axis(graph: Graph, node: Any, shape: tuple[int | str | None, ...] | None) -> int | None:
    """The axis that the third input names, from the front; None where it is not known."""
    axis_name = len(node.input) > 2 and node.input[2]
    axis = graph.constant(node.input[2]) if axis_name else np.array(-2)
    if axis is None or (axis < 0 and shape is None):
        return None
    return int(axis.item()) % len(shape) if shape else int(axis.item())
