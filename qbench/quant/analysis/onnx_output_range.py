"""What the int8 layers of an ONNX file can represent at their outputs, and how much of fp32's values that clips.

A layer is looked at where ``layer_error`` compares it: behind what follows it as its only reader and clamps or shifts
its output, up to the QuantizeLinear. Files in which the clamp has become part of the QuantizeLinear lack its node: fp32
is then read behind that node, so that what a ReLU6 cuts off is not counted as clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.quant.analysis import input_drift
from qbench.quant.analysis.quantized_range import InputRange, range_of_quantize
from qbench.quant.onnx import node_names, onnxruntime_session

Array = onnxruntime_session.Array
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_CLAMPS = ("Relu", "Clip")
_FOLLOWED = (*_CLAMPS, "BatchNormalization", "LeakyRelu", "Identity", "Add")


@dataclass(frozen=True, kw_only=True)
class Output:
    """A layer by its name, the fp32 file's tensor with its values, and what int8 can represent of them."""

    name: str
    tensor: str
    fitting: InputRange


def find_layer_ranges(int8: Path, fp32: Path) -> tuple[Output, ...]:
    """The layers whose outputs the int8 file quantizes by fixed scales; nodes are the same where they have the same
    name, or their output has where they have none."""
    import onnx

    quantized, plain = (_Graph(onnx.load(str(file), load_external_data=False).graph) for file in (int8, fp32))
    ranges = []
    for key, node in plain.nodes.items():
        if node.op_type not in LAYERS or key not in quantized.nodes:
            continue
        walked, fitting = quantized.range_behind(quantized.nodes[key])
        if fitting is not None:
            tensor = plain.behind(node, walked, quantized)
            ranges.append(Output(name=node_names.module_of(node) or key, tensor=tensor, fitting=fitting))
    return tuple(ranges)


def measure_clipping(
    fp32: Path, batches: Iterable[Sequence[Array]], variants: Sequence[Sequence[Output]]
) -> list[dict[str, float]]:
    """Of each variant's layers the share of the fp32 file's values that int8 cannot represent."""
    import tempfile

    import onnx

    tensors = sorted({output_range.tensor for outputs in variants for output_range in outputs})
    model = onnx.load(str(fp32))
    has = {value_info.name for value_info in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in has)
    counts: list[dict[str, int]] = [{output_range.name: 0 for output_range in outputs} for outputs in variants]
    totals = dict.fromkeys(tensors, 0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "watched.onnx"
        onnx.save(model, str(file), save_as_external_data=model.ByteSize() > 2**30)
        session = onnxruntime_session.open_session(file, threads=1)
        names = [value.name for value in session.get_inputs()]
        for batch in batches:
            arrays = dict(zip(tensors, session.run(tensors, dict(zip(names, batch, strict=True))), strict=True))
            for name, array in arrays.items():
                totals[name] += array.size
            for count, outputs in zip(counts, variants, strict=True):
                for output_range in outputs:
                    count[output_range.name] += input_drift.count_outside(
                        arrays[output_range.tensor], output_range.fitting
                    )
    return [
        {output_range.name: count[output_range.name] / max(1, totals[output_range.tensor]) for output_range in outputs}
        for count, outputs in zip(counts, variants, strict=True)
    ]


class _Graph:
    """The nodes of a file by name, and who reads which tensor."""

    def __init__(self, graph: Any) -> None:
        self.nodes: dict[str, Any] = {node.name or node.output[0]: node for node in graph.node}
        self._outputs = {value_info.name for value_info in graph.output}
        self._constants: dict[str, Any] = {constant.name: constant for constant in graph.initializer}
        for node in graph.node:
            values = [attr.t for attr in node.attribute if attr.name == "value"] if node.op_type == "Constant" else []
            self._constants |= dict(zip(node.output, values, strict=False))
        self._readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._fixed = set(self._constants) | {
            node.output[0]
            for node in graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] in self._constants
        }

    def range_behind(self, node: Any) -> tuple[list[str], InputRange | None]:
        """The nodes between a layer and the QuantizeLinear of its output, by name, and that one's range."""
        walked: list[str] = []
        while True:
            readers = self._readers.get(node.output[0], [])
            quantizes = [reader for reader in readers if reader.op_type == "QuantizeLinear"]
            if quantizes:
                return walked, range_of_quantize(quantizes[0], self._constants)
            if (behind := self._only(node)) is None:
                return walked, None
            node = behind
            walked.append(node.name or node.output[0])

    def behind(self, node: Any, walked: Sequence[str], int8: _Graph) -> str:
        """The tensor that is quantized, in fp32's file: behind ``walked`` and the clamps that int8 has no node of."""
        for name in walked:
            following = self._only(node)
            if following is None or (following.name or following.output[0]) != name:
                return str(node.output[0])
            node = following
        following = self._only(node)
        while following is not None and following.op_type in _CLAMPS:
            if (following.name or following.output[0]) in int8.nodes:
                break
            node, following = following, self._only(following)
        return str(node.output[0])

    def _only(self, node: Any) -> Any | None:
        """The node that alone reads another's output and changes it value by value; None where there is none."""
        name = node.output[0]
        readers = self._readers.get(name, [])
        if len(readers) != 1 or name in self._outputs or readers[0].op_type not in _FOLLOWED:
            return None
        reader = readers[0]
        if reader.op_type == "Add" and self._fixed.isdisjoint(reader.input):
            return None
        return reader


def as_rows(outputs: Sequence[Output], shares: Mapping[str, float]) -> list[dict[str, Any]]:
    """As ``layer_error.ComparedLayer`` has it, but for what is not compared in files of this kind."""
    return [
        {
            "name": output_range.name,
            "sqnr_db": None,
            "cosine": None,
            "n": 0,
            "reason": "ONNX files are not compared layer by layer; `qbench onnx accuracy` does",
            "ranges": [
                {"low": output_range.fitting.low, "high": output_range.fitting.high, "step": output_range.fitting.step}
            ],
            "clipped": shares.get(output_range.name),
        }
        for output_range in outputs
    ]
