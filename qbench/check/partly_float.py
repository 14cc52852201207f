"""An int8 ONNX file with some of its layers in float, to see what they cost in int8."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from qbench.check.float_form import OUTPUT_SCALES, PLAIN, FloatWriter, write_all
from qbench.errors import BuildError, first_names
from qbench.quant.onnx import node_names

_QUANTIZED_AGAIN = ("Conv", "ConvTranspose", "Gemm")
_FOLLOWING = ("Relu", "Clip")


def write_partly_float(model: Any, file: Path, layers: Collection[str]) -> None:
    """Writes a ``ModelProto`` (weights taken in) of which these layers are floats, by the names that a runtime knows
    them by. Raises ``BuildError`` with the operator that cannot be one alone, or where no layer goes by these names."""
    write_all(PartWriter(model, layers), model, file)


class PartWriter(FloatWriter):
    """The same for some layers; what lies around them stays as it is. Of Q and DQ around a tensor that both read, a
    layer in float reads what stands before them."""

    is_whole = False

    def __init__(self, model: Any, layers: Collection[str]) -> None:
        super().__init__(model)
        self._layers, self._is_done = frozenset(layers), False
        labels = [*_label_nodes(model.graph)]
        self._labels = iter(labels)
        pairs = zip(model.graph.node, labels, strict=True)
        self._in_float = {node.output[0] for node, names in pairs if self._layers & names and node.output}

    def take(self, node: Any) -> None:
        """Writes a node as it is, or what it becomes."""
        if not self._layers & next(self._labels):
            self.keep(node)
        elif node.op_type in PLAIN:
            self._dequantize_around(node)
        elif "Integer" in node.op_type or "Quantize" in node.op_type:
            raise BuildError(f"{node.op_type} has no float form of its own here")
        else:
            self._skip_quantization(node)

    def finish(self, weights: BinaryIO, name: str) -> Any:
        """As ever."""
        if not self._is_done:
            raise BuildError(f"no node goes by {first_names(sorted(self._layers), 3)}")
        return super().finish(weights, name)

    def _skip_quantization(self, node: Any) -> None:
        """A layer that reads what DequantizeLinear gives."""
        kept = type(node)()
        kept.CopyFrom(node)
        for place, name in enumerate(node.input):
            maker = self.makers.get(name)
            if maker is None or maker.op_type != "DequantizeLinear":
                continue
            source, zero = maker.input[0], maker.input[2] if len(maker.input) > 2 else ""
            before = self.makers.get(source)
            if source in self.constants:
                axis = next((attribute.i for attribute in maker.attribute if attribute.name == "axis"), 1)
                kept.input[place] = self.store(f"{name}_as_floats", self.floats_of(source, maker.input[1], zero, axis))
            elif before is not None and before.op_type == "QuantizeLinear" and self._is_float(before.input[0]):
                kept.input[place] = before.input[0]
            elif place == 0 and node.op_type in _QUANTIZED_AGAIN:
                kept.input[place] = self._set_apart(name, node.output[0])
        self._is_done = True
        self.nodes.append(kept)

    def _is_float(self, tensor: str) -> bool:
        """Whether no layer in int8 gives a tensor, for which the Q behind it is needed."""
        maker = self.makers.get(tensor)
        while maker is not None and maker.op_type in _FOLLOWING:
            maker = self.makers.get(maker.input[0])
        return maker is None or maker.output[0] in self._in_float

    def _set_apart(self, tensor: str, output: str) -> str:
        """The tensor behind a Sum of one, which ONNX Runtime keeps: between Q and DQ it quantizes float weights by
        itself (``quant.onnx.export.keep_float``)."""
        from onnx import helper

        self.nodes.append(helper.make_node("Sum", [tensor], [f"{output}_reads"]))
        return f"{output}_reads"

    def _dequantize_around(self, node: Any) -> None:
        """An operator on bytes between a DequantizeLinear and a QuantizeLinear."""
        from onnx import helper

        if node.op_type not in OUTPUT_SCALES:
            raise BuildError(f"{node.op_type} has no float form of its own here")
        floats, output = type(node)(), node.output[0]
        floats.CopyFrom(node)
        floats.output[0] = f"{output}_as_floats"
        for place in PLAIN[node.op_type][1]:
            if node.input[place] not in self.constants:
                name = f"{output}_dequantized_{place}"
                self.nodes.append(helper.make_node("DequantizeLinear", node.input[place : place + 3], [name]))
                floats.input[place] = self._set_apart(name, output) if place == 0 else name
        self.write_plain(floats)
        ends = [node.input[place] for place in OUTPUT_SCALES[node.op_type]]
        source = self.now.pop(floats.output[0], floats.output[0])
        self.nodes.append(helper.make_node("QuantizeLinear", [source, *ends], [output]))
        self._is_done = True


def _label_nodes(graph: Any) -> Iterator[frozenset[str]]:
    """What each node goes by: its name (a runtime numbers those that have none), its torch module, its outputs."""
    for place, node in enumerate(graph.node):
        yield frozenset([node.name or f"{node.op_type}_{place}", node_names.module_of(node) or "", *node.output])
