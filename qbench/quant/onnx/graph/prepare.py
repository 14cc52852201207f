"""An ONNX graph as exporters write it -> an equal one that can be quantized.

Names, operator set, constants and Gemms are brought into one form, scaling is fused into the layers before it, shapes
are inferred, and ONNX Runtime judges whether the result still computes the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench import registry
from qbench.errors import ModelError, UsageError, reraise
from qbench.quant import model_call
from qbench.quant.artifacts import onnx_check
from qbench.quant.onnx.graph import (
    branches,
    constants,
    equivalence,
    fp16,
    fusion,
    gemm,
    names,
    output_ends,
    pads,
)
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD, layers
from qbench.quant.onnx.graph.quantized import why_not_float
from qbench.quant.onnx.graph.without_weights import put_back, skeleton

Array = NDArray[Any]
_LEAST_OPSET = 13  # scales per channel need it
_TYPES_IR = 10  # int4 and the float8 types, whatever the opset
_LEAST_IR = 7  # the file format that belongs to it; initializers need not be inputs from 4 on


def prepare(
    file: Path, *, example: Sequence[Array] | None = None, fuse: bool = True, skip_fusion: Collection[str] = ()
) -> Graph:
    """The graph of an ONNX file, ready to be quantized; same inputs and outputs, equal up to rounding.

    ``example``: an array an input, in order, to judge that with; without it random inputs are tried. Where none can be
    run, only each fusion is judged by itself. ``skip_fusion``: names of layers, or of nodes behind them, that stay
    apart. Raises ``ModelError`` for a file that is not whole, is quantized already or does not run, or that cannot be
    prepared without changing what it computes, and ``UsageError`` for an unknown name.
    """
    graph = Graph.load(file, valid=False)
    _refuse_quantized(graph, file)  # first: of their operators the checker knows but a few
    onnx_check.require_valid(graph.model, file)
    graph = _inlined(graph)
    _refuse_quantized(graph, file)
    _fit_format(graph)
    names.give(graph)
    try:
        reference = equivalence.reference(graph, example)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error
    branches.take(graph)
    _known(graph, skip_fusion)
    if fp16.is_half(graph):
        fp16.widen(graph)
        infer_shapes(graph)
    _raise_opset(graph, file)
    constants.fold(graph)
    gemm.normalise(graph)
    names.give(graph)
    fused = (*pads.take_in(graph, skip_fusion), *fusion.fuse(graph, skip_fusion)) if fuse else ()
    output_ends.give_readers(graph)
    infer_shapes(graph)
    wrong = reference.difference(graph) if reference is not None else None
    if wrong and fused:
        return prepare(file, example=example, fuse=False)
    if wrong:
        raise ModelError(f"{file}: brought into the form that quantization needs, the model differs ({wrong})")
    return graph


def infer_shapes(graph: Graph) -> None:
    """Notes the types and shapes that onnx infers for the tensors of a graph, beside those that the file tells."""
    import onnx

    outputs = {name for node in graph.nodes for name in node.output}
    outputs_only = [value for value in graph.model.graph.value_info if value.name in outputs]
    for declarations in (outputs_only, []):  # what a file tells of its tensors may contradict its nodes
        del graph.model.graph.value_info[:]
        graph.model.graph.value_info.extend(declarations)
        try:
            inferred = onnx.shape_inference.infer_shapes(skeleton(graph), data_prop=True)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
            continue  # what is not known stays float
        del graph.model.graph.value_info[:]
        graph.model.graph.value_info.extend(inferred.graph.value_info)
        break
    graph.reindex()


def _inlined(graph: Graph) -> Graph:
    """Functions of the model's own, replaced by their nodes."""
    import onnx.inliner

    return Graph(onnx.inliner.inline_local_functions(graph.model)) if graph.model.functions else graph


def _refuse_quantized(graph: Graph, file: Path) -> None:
    """Raises ``ModelError`` where nodes of a quantized model are found, also in subgraphs."""
    reason = why_not_float(graph.model)
    if reason is not None:
        raise ModelError(f"{file}: {reason}; give the float model it was made from")


def _known(graph: Graph, names: Collection[str]) -> None:
    """Raises ``UsageError`` for names that no node has."""
    existing = [layer.name for layer in layers(graph)]
    for name in names:
        if name not in existing:
            hint = registry.suggest(name, existing) or f"; there are: {', '.join(existing)[:200]}"
            raise UsageError(f"skip_fusion_layers: no layer named {name!r}{hint}")


def _fit_format(graph: Graph) -> None:
    """Writes down the oldest file format that has the graph's opsets, at least ``_LEAST_IR``: onnx's builders stamp
    their newest, which a runtime of the same age may not take."""
    import onnx

    version = onnx.helper.find_min_ir_version_for(list(graph.model.opset_import), ignore_unknown=True)
    graph.model.ir_version = max(min(graph.model.ir_version, max(version, _TYPES_IR)), _LEAST_IR)


def _raise_opset(graph: Graph, where: object) -> None:
    """Brings a graph to opset 13, where it is older, by onnx's converter; raises ``ModelError`` where that cannot."""
    import onnx

    if not any(imported.domain in STANDARD for imported in graph.model.opset_import):  # operators of other domains only
        graph.model.opset_import.append(onnx.helper.make_opsetid("", _LEAST_OPSET))
    if graph.opset >= _LEAST_OPSET:
        return
    # The converter's own exceptions share no base.
    with reraise(
        ModelError,
        lambda error: (
            f"{where}: quantization needs opset {_LEAST_OPSET}, this model has {graph.opset} and onnx cannot convert "
            f"it ({model_call.reason(error)}); export it with opset {_LEAST_OPSET} or newer"
        ),
    ):
        converted = onnx.version_converter.convert_version(skeleton(graph), _LEAST_OPSET)
    put_back(graph, converted)
