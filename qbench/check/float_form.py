"""An int8 ONNX file without its rounding: the fp32 network that it stands for, to be held against it.

Values are reals from end to end: a pair of Q and DQ goes, an integer weight becomes the floats that it stands for, and
an operator on bytes becomes the one on floats. Weights keep the rounding that they have. Where a range ends at zero, a
ReLU or ReLU6 may have become part of it, so that a Clip takes its place, which runtimes make part of the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.quant.onnx.graph.layers import subgraphs

Array = NDArray[Any]
_LARGE_BYTES = 4096  # of a weight that lies beside the file
_MOVES = ("Gather", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Flatten")
# Operators on bytes -> the same on floats, and where their tensors stand; each is followed by its scale and zero point.
PLAIN = {
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearMul": ("Mul", (0, 3)),
    "QLinearSigmoid": ("Sigmoid", (0,)),
    "QLinearLeakyRelu": ("LeakyRelu", (0,)),
    "QLinearMatMul": ("MatMul", (0, 3)),
    "QLinearConv": ("Conv", (0, 3)),
    "QGemm": ("Gemm", (0, 3)),
}
_BIAS = {"QLinearConv": 8, "QGemm": 6}  # where an int32 bias stands, whose scale is the product of the two others
OUTPUT_SCALES = {"QLinearConv": (6, 7), "QLinearMatMul": (6, 7), "QLinearAdd": (6, 7)}  # its scale and zero point
_LAYERS = ("Conv", "Gemm", "MatMul", "Add", "ConvTranspose")  # into which runtimes fuse a Clip
_OWN_ATTRIBUTES = {
    "QLinearSoftmax": ("opset",),
    "QLinearAveragePool": ("channels_last",),
    "QLinearGlobalAveragePool": ("channels_last",),
}
_SINGLE = {
    "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}


def write_float(model: Any, file: Path) -> None:
    """Writes a ``ModelProto`` (weights taken in) in which nothing is quantized, as ``write_all`` does. Raises
    ``BuildError`` with the operator that has no float form here."""
    write_all(FloatWriter(model), model, file)


def write_all(writer: FloatWriter, model: Any, file: Path) -> None:
    """Writes what a writer makes of a model; large weights lie beside the file, in one that ends in ``.bin``, which
    halves the time to load them."""
    import onnx

    for node in model.graph.node:
        writer.take(node)
    with file.with_suffix(".bin").open("wb") as weights:
        onnx.save(writer.finish(weights, file.with_suffix(".bin").name), str(file))


def name_clipped(quantized: str) -> str:
    """How the tensor is called in the float form that stands for these bytes, where a Clip is put before it."""
    return f"{quantized}_clipped"


class FloatWriter:
    """Goes through a graph in order and writes its float form: ``now`` has the tensors that go by another name."""

    is_whole = True

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self._model, self._graph = model, model.graph
        self._to_array: Callable[[Any], Array] = numpy_helper.to_array
        self.constants: dict[str, Array] = {tensor.name: self._to_array(tensor) for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant":
                values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
                self.constants |= {node.output[0]: self._to_array(values[0])} if values else {}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.now: dict[str, str] = {}
        self._floats: dict[str, Array] = {}
        self._sums: set[str] = set()  # tensors of integers in the file, with a bias or not, which are floats here
        self.nodes: list[Any] = []

    def take(self, node: Any) -> None:
        """Writes what a node becomes."""
        kind = node.op_type
        if kind == "QuantizeLinear":
            source = self._name(node.input[0])
            zero = node.input[2] if len(node.input) > 2 else ""
            self.now[node.output[0]] = self._clip(source, name_clipped(node.output[0]), node.input[1], zero) or source
        elif kind == "DequantizeLinear":
            self._dequantize(node)
        elif kind == "DynamicQuantizeLinear":
            self.now[node.output[0]] = self._name(node.input[0])
            self.store(node.output[1], np.float32(1))
            self.store(node.output[2], np.float32(0))
        elif kind in ("MatMulInteger", "ConvInteger"):
            self._sums.add(node.output[0])
            maker = self.makers.get(node.input[0])
            if maker is None or maker.op_type != "DynamicQuantizeLinear":
                raise BuildError(f"{kind} of what was not quantized while it runs has no float form here")
            factors = [self._integer_factor(node, place) for place in (0, 1)]
            self._write(node, kind.removesuffix("Integer"), factors)
        elif kind == "Add" and not self._sums.isdisjoint(node.input):
            self._sums.add(node.output[0])
            self._write(
                node, kind, [self._name(name) if name in self._sums else self._real(name) for name in node.input]
            )
        elif kind == "DynamicQuantizeLSTM":
            self._write_lstm(node)
        elif kind == "MatMulIntegerToFloat":
            self._products_with_bias(node, [0, 1], [2, 3], [4, 5], 6)
        elif kind == "DynamicQuantizeMatMul":
            self._products_with_bias(node, [0, 1], [None, 2], [None, 3], 4)
        elif kind in PLAIN:
            self.write_plain(node)
        elif kind in _SINGLE:
            if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
                raise BuildError(f"{kind} with channels last has no float form here")
            self._write(node, _SINGLE[kind], [self._name(node.input[0])], drop=_OWN_ATTRIBUTES.get(kind, ()))
        elif kind == "QLinearConcat":
            self._write(node, "Concat", [self._name(name) for name in node.input[2::3]])
        elif kind == "Cast" and node.input[0] in self._sums:
            self.now[node.output[0]] = self._name(node.input[0])
        elif kind.startswith("Q") or "Integer" in kind or "NBits" in kind:
            raise BuildError(f"{kind} has no float form here")
        else:
            self.keep(node)

    def finish(self, weights: BinaryIO, name: str) -> Any:
        """The model of all that was written, its large weights in a file; tensors that a graph gives keep their
        names."""
        import onnx
        from onnx import helper

        integers = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
        for value in (*self._graph.input, *self._graph.output):
            if self.is_whole and value.type.tensor_type.elem_type in integers:
                raise BuildError(f"{value.name} is given as bytes, whose scale the file does not hold")
        given = {value.name for value in self._graph.output}
        nodes = [*self.nodes]
        nodes += [helper.make_node("Identity", [self._name(name)], [name]) for name in given if name in self.now]
        read = {name for node in nodes for name in _list_read(node)} | given
        written = onnx.ModelProto(ir_version=self._model.ir_version)
        written.opset_import.extend(self._model.opset_import)
        written.functions.extend(self._model.functions)
        graph = written.graph
        graph.name = self._graph.name
        graph.node.extend(_name_nodes(nodes))
        graph.input.extend(self._graph.input)
        graph.output.extend(self._graph.output)
        kept = (tensor for tensor in self._graph.initializer if tensor.name not in self._floats)
        graph.initializer.extend(tensor for tensor in kept if tensor.name in read)
        for key, value in self._floats.items():
            if key in read:
                graph.initializer.append(_store_tensor(key, value, weights, name))
        return written

    def _name(self, tensor: str) -> str:
        while tensor in self.now:
            tensor = self.now[tensor]
        return tensor

    def store(self, name: str, value: Any) -> str:
        """The name of a constant, whose value it keeps."""
        self._floats[name] = np.asarray(value, np.float32)
        return name

    def _clip(self, source: str, target: str, scale: str, zero: str) -> str | None:
        """The tensor in the range that bytes of it have, where that begins at zero and a layer gives it; None
        elsewhere."""
        from onnx import helper

        maker = next((node for node in reversed(self.nodes) if source in node.output), None)
        scales, zeros = self.constants.get(scale), self.constants.get(zero, np.zeros(1, np.uint8))
        if maker is None or maker.op_type not in _LAYERS or scales is None or scales.size > 1 or zeros.size > 1:
            return None
        limits = np.iinfo(zeros.dtype)
        if zeros.dtype not in (np.uint8, np.int8) or int(zeros.reshape(-1)[0]) != limits.min:
            return None
        top = float(scales.reshape(-1)[0]) * (limits.max - limits.min)
        ends = [self.store(f"{target}_from", 0.0), self.store(f"{target}_to", top)]
        self.nodes.append(helper.make_node("Clip", [source, *ends], [target]))
        return target

    def _dequantize(self, node: Any) -> None:
        zero = node.input[2] if len(node.input) > 2 else ""
        source = node.input[0]
        if source in self.constants and self.constants[source].dtype != np.float32:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
            self.store(node.output[0], self.floats_of(source, node.input[1], zero, axis))
            return
        self.now[node.output[0]] = self._name(source)
        table = self._find_table(source)
        if table is not None:  # bytes that are looked up, and become floats behind that
            self.store(table, self.floats_of(table, node.input[1], zero, 0))

    def _find_table(self, tensor: str) -> str | None:
        """The constant of bytes that a tensor is a part of."""
        while tensor not in self.constants:
            maker = self.makers.get(tensor)
            if maker is None or maker.op_type not in _MOVES or not maker.input:
                return None
            tensor = maker.input[0]
        return tensor if self.constants[tensor].dtype in (np.int8, np.uint8) else None

    def floats_of(self, name: str, scale: str, zero: str, axis: int) -> Array:
        """The floats that a constant of integers stands for."""
        # A product of a byte and a scale is rounded once in float32, too, in half of the memory.
        kind = np.float32 if self.constants[name].dtype.itemsize == 1 else np.float64
        values: Any = self.constants[name].astype(kind)
        scales = np.asarray(self._constant(scale), kind)
        zeros = np.asarray(self.constants[zero], kind) if zero in self.constants else np.zeros(1, kind)
        if scales.size > 1:
            axis %= values.ndim
            if scales.ndim > 1 or scales.size != values.shape[axis]:
                raise BuildError(f"the scales of {name} are those of blocks, which have no float form here")
            shape = [-1 if i == axis else 1 for i in range(values.ndim)]
            scales, zeros = scales.reshape(shape), zeros.reshape(shape) if zeros.size > 1 else zeros
        if zeros.any():
            values -= zeros
        values *= scales
        return np.asarray(values, np.float32)

    def _constant(self, name: str) -> Array:
        if name not in self.constants:
            raise BuildError(f"the scale {name} is computed, and not a constant")
        return self.constants[name]

    def _factor(self, node: Any, place: int, scale: int | None, zero: int | None, axis: int) -> str:
        """A factor as floats: a constant of bytes is made one, under a name of its own."""
        name = node.input[place]
        if name not in self.constants or self.constants[name].dtype == np.float32:
            return self._name(name)
        zero_name = node.input[zero] if zero is not None and len(node.input) > zero else ""
        if scale is None:
            raise BuildError(f"{node.op_type} multiplies a constant of bytes without a scale")
        return self.store(f"{name}_as_floats_{place}", self.floats_of(name, node.input[scale], zero_name, axis))

    def _integer_factor(self, node: Any, place: int) -> str:
        """The same of an operator whose scales are multiplied in later: the integers themselves."""
        name = node.input[place]
        if name not in self.constants:
            return self._name(name)
        zero_name = node.input[2 + place] if len(node.input) > 2 + place else ""
        zero = self.constants.get(zero_name, np.zeros(1)).astype(np.float64)
        values = self.constants[name].astype(np.float64)
        if zero.size > 1 and node.op_type == "ConvInteger":
            zero = zero.reshape(-1, *[1] * (values.ndim - 1))
        return self.store(f"{name}_as_floats_{place}", values - zero)

    def _products_with_bias(
        self, node: Any, factors: Sequence[int], scales: Sequence[int | None], zeros: Sequence[int | None], bias: int
    ) -> None:
        from onnx import helper

        names = [
            self._factor(node, place, scale, zero, -1)
            for place, scale, zero in zip(factors, scales, zeros, strict=True)
        ]
        if len(node.input) <= bias or not node.input[bias]:
            self._write(node, "MatMul", names)
            return
        product = f"{node.output[0]}_without_bias"
        self.nodes.append(helper.make_node("MatMul", names, [product], name=node.name))
        self.nodes.append(helper.make_node("Add", [product, self._name(node.input[bias])], list(node.output)))

    def write_plain(self, node: Any) -> None:
        """Writes an operator on bytes as the one on floats."""
        kind, places = PLAIN[node.op_type]
        axis = {"QLinearConv": 0, "QGemm": 0 if _has(node, "transB") else 1, "QLinearMatMul": -1}.get(node.op_type, 0)
        names = [self._factor(node, place, place + 1, place + 2, axis if place else 0) for place in places]
        place = _BIAS.get(node.op_type, len(node.input))
        if len(node.input) > place and node.input[place]:
            bias = node.input[place]
            scale = np.asarray(self._constant(node.input[1]), np.float64) * self._constant(node.input[4])
            names.append(self.store(f"{bias}_as_floats", self.constants[bias] * scale.reshape(-1)))
        self._write(node, kind, names)
        if node.op_type in OUTPUT_SCALES:
            scale, zero = (node.input[place] for place in OUTPUT_SCALES[node.op_type])
            clipped = self._clip(node.output[0], name_clipped(node.output[0]), scale, zero)
            self.now |= {} if clipped is None else {node.output[0]: clipped}

    def _real(self, tensor: str) -> str:
        """An integer bias of such sums as floats; where the file rounds it as it runs, as it is before that."""
        from onnx import TensorProto, helper

        moves: list[Any] = []
        while (maker := self.makers.get(tensor)) is not None and maker.op_type in _MOVES:
            moves.append(maker)
            tensor = maker.input[0]
        rounding = self.makers.get(maker.input[0]) if maker is not None and maker.op_type == "Cast" else None
        if tensor in self.constants:
            real = self.store(f"{tensor}_as_floats", self.constants[tensor])
        elif rounding is not None and rounding.op_type in ("Floor", "Round"):
            real = self._name(rounding.input[0])
        else:
            real = self._write_once("Cast", [self._name(tensor)], f"{tensor}_as_floats", to=TensorProto.FLOAT)
        for move in reversed(moves):
            attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in move.attribute}
            real = self._write_once(move.op_type, [real, *move.input[1:]], f"{move.output[0]}_as_floats", **attributes)
        return real

    def _write_once(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """The output of a node that is written where it is not there yet."""
        from onnx import helper

        if not any(output in node.output for node in self.nodes):
            self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _write_lstm(self, node: Any) -> None:
        """As LSTM, whose weights have the gates first, by ONNX Runtime's list of its own operators."""
        weights = []
        for place, scale, zero in ((1, 8, 9), (2, 10, 11)):
            values, scales, zeros = (self._constant(node.input[at]).astype(np.float64) for at in (place, scale, zero))
            shape = (len(values), 1, -1)  # of a direction, or of each of its gates' rows
            floats = (values - zeros.reshape(shape)) * scales.reshape(shape)
            weights.append(self.store(f"{node.input[place]}_as_floats", floats.transpose(0, 2, 1)))
        self._write(node, "LSTM", [self._name(node.input[0]), *weights, *map(self._name, node.input[3:8])])

    def _write(self, node: Any, kind: str, inputs: Sequence[str], drop: Sequence[str] = ()) -> None:
        from onnx import helper

        written = helper.make_node(kind, list(inputs), list(node.output), name=node.name)
        written.attribute.extend(attribute for attribute in node.attribute if attribute.name not in drop)
        self.nodes.append(written)

    def keep(self, node: Any) -> None:
        """Writes a node as it is."""
        kept = type(node)()
        kept.CopyFrom(node)
        for place, name in enumerate(node.input):
            kept.input[place] = self._name(name)
        self.nodes.append(kept)


def _name_nodes(nodes: Sequence[Any]) -> Sequence[Any]:
    """The nodes, each with a name of its own, by which a runtime tells of it."""
    names = {node.name for node in nodes}
    taken: set[str] = set()
    for place, node in enumerate(nodes):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{place}"
            while node.name in names:
                node.name += "_"
        taken.add(node.name)
    return nodes


def _list_read(node: Any) -> Iterator[str]:
    """The tensors that a node reads, and those that graphs within it read."""
    yield from node.input
    for _, inner in subgraphs(node):
        for each in inner.node:
            yield from _list_read(each)


def _store_tensor(name: str, value: Array, weights: BinaryIO, location: str) -> Any:
    """A tensor that is a part of the model where it is small, else one whose values are written beside it."""
    import onnx
    from onnx import numpy_helper

    if value.nbytes < _LARGE_BYTES:
        return numpy_helper.from_array(np.asarray(value), name)
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=value.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, told in (("location", location), ("offset", weights.tell()), ("length", value.nbytes)):
        tensor.external_data.add(key=key, value=str(told))
    value.tofile(weights)
    return tensor


def _has(node: Any, name: str) -> bool:
    values: Mapping[str, int] = {attribute.name: attribute.i for attribute in node.attribute}
    return bool(values.get(name))
