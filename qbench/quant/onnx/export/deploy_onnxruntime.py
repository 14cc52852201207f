"""Graph + record -> what ONNX Runtime executes in int8: quantize and dequantize nodes (QDQ) around every layer.

x86 adds products of two bytes in pairs. Without VNNI, an unsigned times a signed byte is added in 16 bits, which
saturates (255 * 127 + 255 * 127 > 32767); unsigned times unsigned is widened first. The form is chosen by that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qbench.machine import fingerprint
from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx.export import integer_weights
from qbench.quant.onnx.export.fake_quant import without_notes
from qbench.quant.onnx.export.integer_weights import Activation
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.scale_rules import QParams

Array = NDArray[Any]
# Types of activations and weights: unsigned or signed bytes.
Form = Literal["U8S8", "U8U8", "S8S8"]
FORMS: tuple[Form, ...] = ("U8S8", "U8U8", "S8S8")
UNSIGNED = 128  # what a uint8 is above the int8 of the same value
_ARM = "asimd"
_CONVOLUTIONS = ("Conv", "ConvTranspose")
# Give the values that they read, elsewhere or fewer of them: what is quantized before is quantized behind.
_SHAPES = ("Shape", "Size")  # read the shape of a tensor, which is that of its bytes
KEEP_VALUES = ("MaxPool", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose")


def form_for(isa: Collection[str] | None = None) -> Form:
    """The form that is exact and fastest on instruction sets (``qbench.machine.fingerprint`` names them; None: this
    machine's, as ONNX Runtime sees it: no switch hides any from it)."""
    isa = fingerprint.isa() if isa is None else isa
    if _ARM in isa:
        return "S8S8"
    return "U8S8" if any(feature in isa for feature in fingerprint.ADD_IN_32_BITS) else "U8U8"


def deploy(
    graph: Graph,
    sites: Sites,
    record: Record,
    *,
    form: Form | None = None,
    signed: bool = False,
    rewrite: Callable[[Graph], None] | None = None,
) -> Graph:
    """A copy of a prepared graph in QDQ form with the values of the fake-quant model: bytes for activations (one scale)
    and weights (one for each channel), int32 biases; ReLU and Clip become the range of what is quantized behind them.

    ``form``: None takes the one for this machine. ``signed``: activations with an offset of 0 are signed bytes in every
    form, which OpenVINO wants and ONNX Runtime computes in float. ``rewrite``: changes the copy first, nodes alone, of
    which those with sites keep their names. Raises ``BuildError`` for a bias out of int32, ``UsageError`` for an
    incomplete record.
    """
    writer = _Writer(graph.copy(without={site.tensor for site in sites.weights}), form or form_for(), signed)
    without_notes(writer.graph)
    if rewrite is not None:
        rewrite(writer.graph)
    for activation in integer_weights.activations(sites, record):
        writer.activation(activation)
    for layer in integer_weights.layers(graph, sites, record):
        values, zero = writer.weight(layer.weight)
        writer.constant(layer.name, 1, layer.tensor, values, layer.scale, zero, layer.axis)
        if layer.bias is not None and layer.step is not None:
            along = 0 if layer.step.ndim else None
            writer.constant(layer.name, 2, layer.bias_tensor, layer.bias, layer.step, np.int32(0), along)
    deployed = writer.finish()
    _keep_integers(deployed, {site.layer for site in sites.weights})
    return deployed


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
    constants: dict[tuple[Any, ...], str] = field(default_factory=dict)  # what they hold -> their floats
    multiplied: set[tuple[str, str]] = field(default_factory=set)  # these floats, and what a layer multiplies them with

    def activation(self, activation: Activation) -> None:
        """Quantizes a tensor for its readers, in front of the ReLU or Clip that it comes from where that can be. Who
        reads its shape gets it behind, too: a convolution on bytes has no float output left."""
        asking = (
            (node.name, position) for node, position in self.graph.readers(activation.tensor) if node.op_type in _SHAPES
        )
        activation = replace(
            activation, readers=(*activation.readers, *(place for place in asking if place not in self.instead))
        )
        step = self._step(activation.tensor, activation.params)
        if not (self.signed and self._from_bytes(activation)):
            source, ends = self._before_clip(activation)
            dequantized = self._pair(self._kept(activation, step) if ends is None else source, step, ends)
            self.instead |= dict.fromkeys(activation.readers, dequantized)
        self.steps |= dict.fromkeys(activation.readers, step)

    def _step(self, tensor: str, params: QParams) -> _Step:
        """The constants of a scale."""
        kind, shift = self._kind(tensor, params)
        scale = self.graph.add_constant(f"{tensor}_scale", np.array(params.scale, np.float32))
        zero = self.graph.add_constant(f"{tensor}_zero_point", np.array(params.zero_point + shift, kind))
        return _Step(tensor=tensor, params=params, scale=scale, zero=zero)

    def _kind(self, tensor: str, params: QParams) -> tuple[Any, int]:
        """The type of an activation's bytes, and what lies between them and int8."""
        signed = self.form == "S8S8" or (self.signed and params.zero_point == 0 and not self._beside_concat(tensor))
        return (np.int8, 0) if signed else (np.uint8, UNSIGNED)

    def _beside_concat(self, tensor: str) -> bool:
        """Whether a Concat that a convolution reads gives or reads a tensor: OpenVINO 2026.4 makes its signed bytes
        unsigned and forgets by how much (SQNR 8 to 19 dB where the same values as unsigned bytes have 130)."""
        nodes = [self.graph.maker(tensor), *(node for node, _ in self.graph.readers(tensor))]
        joins = [node for node in nodes if node is not None and node.op_type == "Concat"]
        return any(
            reader.op_type in _CONVOLUTIONS for join in joins for reader, _ in self.graph.readers(join.output[0])
        )

    def _pair(self, source: str, step: _Step, ends: tuple[int, int] | None = None) -> str:
        """Quantizes a tensor, clips it to integers that are not all there are, and gives it back."""
        tensor = self._add("QuantizeLinear", [source, step.scale, step.zero], f"{step.tensor}_quantized")
        if ends is not None and ends != (LOW, HIGH):
            kind, shift = self._kind(step.tensor, step.params)
            low, high = (
                self.graph.add_constant(f"{step.tensor}_{name}", np.array(end + shift, kind))
                for name, end in zip(("low", "high"), ends, strict=True)
            )
            tensor = self._add("Clip", [tensor, low, high], f"{step.tensor}_clipped")
        return self._add("DequantizeLinear", [tensor, step.scale, step.zero], f"{step.tensor}_dequantized")

    def _before_clip(self, activation: Activation) -> tuple[str, tuple[int, int] | None]:
        """Where to quantize, and to which integers to clip then (None: nothing was left out)."""
        maker = self.graph.maker(activation.tensor)
        ends = None if maker is None else _ends(self.graph, maker)
        if maker is None or ends is None or not self._alone(activation):
            return activation.tensor, None
        clipped = integer_weights.saturated(activation.params, *ends)
        if self.signed and clipped != (LOW, HIGH):  # OpenVINO clips as its kernel quantizes, not between bytes
            return activation.tensor, None
        return str(maker.input[0]), clipped

    def _from_bytes(self, activation: Activation) -> bool:
        """Whether a tensor holds what its maker reads as the same bytes: OpenVINO quantizes it again where it is told
        so, ONNX Runtime takes the maker for one of floats where it is not."""
        maker = self.graph.maker(activation.tensor)
        if maker is None or maker.op_type not in ("Concat", "MaxPool"):
            return False
        inputs = range(len(maker.input) if maker.op_type == "Concat" else 1)
        steps = [self.steps.get((maker.name, position)) for position in inputs]
        return all(step is not None and step.params == activation.params for step in steps)

    def _kept(self, activation: Activation, step: _Step) -> str:
        """What to quantize: the tensor. Where it comes from a node that gives the values that it reads, that node gets
        bytes too: those that it reads already, or the same quantization in front of it, which changes no value."""
        maker = self.graph.maker(activation.tensor)
        if maker is None or not self._alone(activation):
            return activation.tensor
        if maker.op_type == "Concat" and not self.signed:
            self._join_bytes(maker, activation, step)
        if maker.op_type not in KEEP_VALUES and not _repeats(maker):
            return activation.tensor
        place = (maker.name, 0)
        pool, before = maker.op_type == "MaxPool", self.steps.get(place)
        if before is not None:
            return self._pooled(maker, before) if pool and before.params != activation.params else activation.tensor
        if not pool:
            inner = Activation(tensor=maker.input[0], params=activation.params, readers=(place,))
            self.instead[place] = self._pair(self._kept(inner, step), step)
            self.steps[place] = step
        return activation.tensor

    def _join_bytes(self, node: Any, activation: Activation, step: _Step) -> None:
        """Quantizes what a Concat joins as its output is quantized, where all of that is floats: the same values, of
        which a quarter is copied."""
        places = [(node.name, position) for position in range(len(node.input))]
        if any(place in self.steps for place in places):
            return
        for place, tensor in zip(places, node.input, strict=True):
            inner = Activation(tensor=tensor, params=activation.params, readers=(place,))
            self.instead[place] = self._pair(self._kept(inner, step), step)
            self.steps[place] = step

    def _pooled(self, node: Any, before: _Step) -> str:
        """The output of a MaxPool, computed on the bytes that it would read (ONNX Runtime merges two quantizations that
        follow each other, and then pools floats)."""
        (maker,) = (candidate for candidate in self.nodes if candidate.output[0] == self.instead[node.name, 0])
        pool = type(node)()
        pool.CopyFrom(node)
        pool.name, pool.input[0] = self.graph.fresh(f"{node.name}_bytes"), maker.input[0]
        pool.output[:] = [self.graph.fresh(f"{node.output[0]}_bytes")]
        self.nodes.append(pool)
        return self._add("DequantizeLinear", [pool.output[0], before.scale, before.zero], f"{node.output[0]}_kept")

    def _alone(self, activation: Activation) -> bool:
        """Whether nothing reads the tensor otherwise."""
        readers = {(node.name, position) for node, position in self.graph.readers(activation.tensor)}
        return readers == set(activation.readers) and not self.graph.is_output(activation.tensor)

    def weight(self, values: Array) -> tuple[Array, Any]:
        """The integers of a weight in the type of the form, and their zero point."""
        if self.form == "U8U8":
            return (values.astype(np.int16) + UNSIGNED).astype(np.uint8), np.uint8(UNSIGNED)
        return values, np.int8(0)

    def constant(
        self, layer: str, position: int, tensor: str, values: Array, scale: Array, zero: Any, axis: int | None
    ) -> None:
        """One input of a layer becomes integers and a dequantize node, the same for all that hold the same: a module
        that is called for each level of a pyramid is in the file once. Of two layers that read the same, too, OpenVINO
        would make one; and it runs layers in float whose dequantize nodes share a constant (2026.4)."""
        parts = {"quantized": values, "scale": scale, "zero_point": np.full(scale.shape, zero)}
        digests = (hashlib.sha256(part.tobytes()).digest() for part in parts.values())
        content = (axis, values.dtype.str, values.shape, *digests)
        source = self.graph.node(layer).input[0]
        if content not in self.constants or (self.constants[content], source) in self.multiplied:
            names = [self.graph.add_constant(f"{tensor}_{name}", part) for name, part in parts.items()]
            along = {} if axis is None else {"axis": axis}
            self.constants[content] = self._add("DequantizeLinear", names, f"{tensor}_dequantized", **along)
        self.multiplied.add((self.constants[content], source))
        self.instead[layer, position] = self.constants[content]

    def finish(self) -> Graph:
        """The graph with everything in its place."""
        integer_weights.replaced(self.graph, iter(self.instead.items()), self.nodes)
        self.graph.drop_unused()
        return self.graph

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        import onnx

        output = self.graph.fresh(output)
        name = self.graph.fresh(f"{output}_node")
        self.nodes.append(onnx.helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output


def _repeats(node: Any) -> bool:
    """Whether a node gives a picture of another size by repeating values; with tf_crop_and_resize it adds others."""
    if node.op_type != "Resize" or attribute(node, "coordinate_transformation_mode") == b"tf_crop_and_resize":
        return False
    return bool(attribute(node, "mode", b"nearest") == b"nearest")


def _keep_integers(graph: Graph, layers: Collection[str]) -> None:
    """Writes the bias behind a matrix product as a subtraction, which gives the same: ONNX Runtime makes a product of
    two dimensions and its Add one Gemm, which it computes in float where the result is not quantized (1.31)."""
    integers: dict[str, tuple[int, Array]] = {}
    for node in graph.nodes:
        readers = graph.readers(node.output[0])
        if node.name not in layers or node.op_type != "MatMul" or len(graph.shape(node.output[0]) or ()) != 2:
            continue
        if len(readers) == 1 and readers[0][0].op_type == "Add" and not graph.is_output(node.output[0]):
            add, place = readers[0]
            bias = graph.constant(add.input[1 - place])
            if bias is not None and not _quantized_next(graph, add):
                integers[add.name] = (place, bias)
    names = {name: graph.add_constant(f"{name}_less", -bias) for name, (_, bias) in integers.items()}
    with graph.editing() as nodes:
        for node in nodes:
            if node.name in integers:
                product = node.input[integers[node.name][0]]
                node.op_type = "Sub"
                node.input[:] = [product, names[node.name]]
    graph.drop_unused()


def _quantized_next(graph: Graph, node: Any) -> bool:
    """Whether what a node gives is quantized, behind a Relu or not, and read by nothing else."""
    readers = [reader for reader, _ in graph.readers(node.output[0])]
    if len(readers) == 1 and readers[0].op_type == "Relu":
        return _quantized_next(graph, readers[0])
    return bool(readers) and all(reader.op_type == "QuantizeLinear" for reader in readers)


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
