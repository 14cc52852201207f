"""Graph + record -> what ONNX Runtime executes in int8: quantize and dequantize nodes (QDQ) around every layer.

x86 adds products of two bytes in pairs. Without VNNI, an unsigned times a signed byte is added in 16 bits, which
saturates (255 * 127 + 255 * 127 > 32767); unsigned times unsigned is widened first. The form is chosen by that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qbench import machine
from qbench.quant.uniform.files.record import Record
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs import integers
from qbench.quant.uniform.outputs.fake_quant import without_notes
from qbench.quant.uniform.outputs.integers import Activation
from qbench.quant.uniform.qparams import HIGH, LOW, QParams
from qbench.quant.uniform.sites import Sites

Array = NDArray[Any]
# Types of activations and weights: unsigned or signed bytes.
Form = Literal["U8S8", "U8U8", "S8S8"]
FORMS: tuple[Form, ...] = ("U8S8", "U8U8", "S8S8")
UNSIGNED = 128  # what a uint8 is above the int8 of the same value
_ARM = "asimd"
# Give the values that they read, elsewhere or fewer of them: what is quantized before is quantized behind.
_SHAPES = ("Shape", "Size")  # read the shape of a tensor, which is that of its bytes
KEEP_VALUES = ("MaxPool", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose")


def form_for(isa: Collection[str] | None = None) -> Form:
    """The form that is exact and fastest on instruction sets (``qbench.machine`` names them; None: this machine's, as
    ONNX Runtime sees it: no switch hides any from it)."""
    isa = machine.isa() if isa is None else isa
    if _ARM in isa:
        return "S8S8"
    return "U8S8" if any(one in isa for one in machine.ADD_IN_32_BITS) else "U8U8"


def deploy(graph: Graph, sites: Sites, record: Record, *, form: Form | None = None, signed: bool = False) -> Graph:
    """A copy of a prepared graph in QDQ form with the values of the fake-quant model: bytes for activations (one scale)
    and weights (one for each channel), int32 biases; ReLU and Clip become the range of what is quantized behind them.

    ``form``: None takes the one for this machine. ``signed``: activations with an offset of 0 are signed bytes in every
    form, which OpenVINO wants and ONNX Runtime computes in float. Raises ``BuildError`` for a bias out of int32,
    ``UsageError`` for an incomplete record.
    """
    writer = _Writer(graph.copy(), form or form_for(), signed)
    without_notes(writer.graph)
    layers = integers.layers(graph, sites, record)
    for one in integers.activations(sites, record):
        writer.activation(one)
    for layer in layers:
        values, zero = writer.weight(layer.weight)
        writer.constant(layer.name, 1, layer.tensor, values, layer.scale, zero, layer.axis)
        if layer.bias is not None and layer.step is not None:
            along = 0 if layer.step.ndim else None
            writer.constant(layer.name, 2, layer.bias_tensor, layer.bias, layer.step, np.int32(0), along)
    made = writer.finish()
    _keep_integers(made, {site.layer for site in sites.weights})
    return made


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A scale, the names of its constants, and the tensor that it is of."""

    tensor: str
    params: QParams
    scale: str
    zero: str


@dataclass
class _Writer:
    """Collects the nodes of the new graph, and what is read instead of what."""

    graph: Graph
    form: Form
    signed: bool = False
    nodes: list[Any] = field(default_factory=list)
    instead: dict[tuple[str, int], str] = field(default_factory=dict)
    steps: dict[tuple[str, int], _Step] = field(default_factory=dict)  # with which scale a reader reads

    def activation(self, one: Activation) -> None:
        """Quantizes a tensor for its readers, in front of the ReLU or Clip that it comes from where that can be. Who
        reads its shape gets it behind, too: a convolution on bytes has no float output left."""
        asking = ((node.name, position) for node, position in self.graph.readers(one.tensor) if node.op_type in _SHAPES)
        one = replace(one, readers=(*one.readers, *(place for place in asking if place not in self.instead)))
        step = self._step(one.tensor, one.params)
        source, ends = self._before_clip(one)
        read = self._pair(self._kept(one, step) if ends is None else source, step, ends)
        self.instead |= dict.fromkeys(one.readers, read)
        self.steps |= dict.fromkeys(one.readers, step)

    def _step(self, tensor: str, params: QParams) -> _Step:
        """The constants of a scale."""
        kind, shift = self._kind(params)
        scale = self.graph.add_constant(f"{tensor}_scale", np.array(params.scale, np.float32))
        zero = self.graph.add_constant(f"{tensor}_zero_point", np.array(params.offset + shift, kind))
        return _Step(tensor=tensor, params=params, scale=scale, zero=zero)

    def _kind(self, params: QParams) -> tuple[Any, int]:
        """The type of an activation's bytes, and what lies between them and int8."""
        signed = self.form == "S8S8" or (self.signed and params.offset == 0)
        return (np.int8, 0) if signed else (np.uint8, UNSIGNED)

    def _pair(self, source: str, step: _Step, ends: tuple[int, int] | None = None) -> str:
        """Quantizes a tensor, clips it to integers that are not all there are, and gives it back."""
        read = self._add("QuantizeLinear", [source, step.scale, step.zero], f"{step.tensor}_quantized")
        if ends is not None and ends != (LOW, HIGH):
            kind, shift = self._kind(step.params)
            low, high = (
                self.graph.add_constant(f"{step.tensor}_{name}", np.array(end + shift, kind))
                for name, end in zip(("low", "high"), ends, strict=True)
            )
            read = self._add("Clip", [read, low, high], f"{step.tensor}_clipped")
        return self._add("DequantizeLinear", [read, step.scale, step.zero], f"{step.tensor}_dequantized")

    def _before_clip(self, one: Activation) -> tuple[str, tuple[int, int] | None]:
        """Where to quantize, and to which integers to clip then (None: nothing was left out)."""
        maker = self.graph.maker(one.tensor)
        ends = None if maker is None else _ends(self.graph, maker)
        if maker is None or ends is None or not self._alone(one):
            return one.tensor, None
        return str(maker.input[0]), integers.saturated(one.params, *ends)

    def _kept(self, one: Activation, step: _Step) -> str:
        """What to quantize: the tensor. Where it comes from a node that gives the values that it reads, that node gets
        bytes too: those that it reads already, or the same quantization in front of it, which changes no value."""
        maker = self.graph.maker(one.tensor)
        if maker is None or maker.op_type not in KEEP_VALUES or not self._alone(one):
            return one.tensor
        place = (maker.name, 0)
        pool, before = maker.op_type == "MaxPool", self.steps.get(place)
        if before is not None:
            return self._pooled(maker, before) if pool and before.params != one.params else one.tensor
        if not pool:
            inner = Activation(tensor=maker.input[0], params=one.params, readers=(place,))
            self.instead[place] = self._pair(self._kept(inner, step), step)
            self.steps[place] = step
        return one.tensor

    def _pooled(self, node: Any, before: _Step) -> str:
        """The output of a MaxPool, computed on the bytes that it would read (ONNX Runtime merges two quantizations that
        follow each other, and then pools floats)."""
        (made,) = (one for one in self.nodes if one.output[0] == self.instead[node.name, 0])
        pool = type(node)()
        pool.CopyFrom(node)
        pool.name, pool.input[0] = self.graph.fresh(f"{node.name}_bytes"), made.input[0]
        pool.output[:] = [self.graph.fresh(f"{node.output[0]}_bytes")]
        self.nodes.append(pool)
        return self._add("DequantizeLinear", [pool.output[0], before.scale, before.zero], f"{node.output[0]}_kept")

    def _alone(self, one: Activation) -> bool:
        """Whether nothing reads the tensor otherwise."""
        readers = {(node.name, position) for node, position in self.graph.readers(one.tensor)}
        return readers == set(one.readers) and not self.graph.is_output(one.tensor)

    def weight(self, values: Array) -> tuple[Array, Any]:
        """The integers of a weight in the type of the form, and their zero point."""
        if self.form == "U8U8":
            return (values.astype(np.int16) + UNSIGNED).astype(np.uint8), np.uint8(UNSIGNED)
        return values, np.int8(0)

    def constant(
        self, layer: str, position: int, tensor: str, values: Array, scale: Array, zero: Any, axis: int | None
    ) -> None:
        """One input of a layer becomes integers and a dequantize node."""
        names = [
            self.graph.add_constant(f"{tensor}_quantized", values),
            self.graph.add_constant(f"{tensor}_scale", scale),
            self.graph.add_constant(f"{tensor}_zero_point", np.full(scale.shape, zero)),
        ]
        along = {} if axis is None else {"axis": axis}
        self.instead[layer, position] = self._add("DequantizeLinear", names, f"{tensor}_dequantized", **along)

    def finish(self) -> Graph:
        """The graph with everything in its place."""
        integers.replaced(self.graph, iter(self.instead.items()), self.nodes)
        self.graph.drop_unused()
        return self.graph

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        import onnx

        output = self.graph.fresh(output)
        name = self.graph.fresh(f"{output}_node")
        self.nodes.append(onnx.helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output


def _keep_integers(graph: Graph, layers: Collection[str]) -> None:
    """Writes the bias behind a matrix product as a subtraction, which gives the same: ONNX Runtime makes a product of
    two dimensions and its Add one Gemm, which it computes in float where the result is not quantized (1.31)."""
    found: dict[str, tuple[int, Array]] = {}
    for node in graph.nodes:
        read = graph.readers(node.output[0])
        if node.name not in layers or node.op_type != "MatMul" or len(graph.shape(node.output[0]) or ()) != 2:
            continue
        if len(read) == 1 and read[0][0].op_type == "Add" and not graph.is_output(node.output[0]):
            add, place = read[0]
            bias = graph.constant(add.input[1 - place])
            if bias is not None and not _quantized_next(graph, add):
                found[add.name] = (place, bias)
    names = {name: graph.add_constant(f"{name}_less", -bias) for name, (_, bias) in found.items()}
    with graph.editing() as nodes:
        for node in nodes:
            if node.name in found:
                product = node.input[found[node.name][0]]
                node.op_type = "Sub"
                node.input[:] = [product, names[node.name]]
    graph.drop_unused()


def _quantized_next(graph: Graph, node: Any) -> bool:
    """Whether what a node gives is quantized, behind a Relu or not, and read by nothing else."""
    readers = [one for one, _ in graph.readers(node.output[0])]
    if len(readers) == 1 and readers[0].op_type == "Relu":
        return _quantized_next(graph, readers[0])
    return bool(readers) and all(one.op_type == "QuantizeLinear" for one in readers)


def _ends(graph: Graph, node: Any) -> tuple[float, float] | None:
    """What a node clips its input to; None where it is no ReLU or Clip with constant ends."""
    if node.op_type == "Relu":
        return 0.0, float("inf")
    if node.op_type != "Clip":
        return None
    ends = [float("-inf"), float("inf")]
    for position, name in enumerate(node.input[1:3]):
        if name:
            value = graph.constant(name)
            if value is None or value.size != 1 or np.isnan(value).any():
                return None
            ends[position] = float(value.item())
    return ends[0], ends[1]
