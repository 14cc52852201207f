"""What a TorchScript artifact of fbgemm, x86 or onednn answers on this CPU, limited to AVX2: its int8 operators are
watched and put right.

In a process that is limited to AVX2 nothing is left to put right, and what is counted is what its kernels lose.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qbench.quant.artifacts import torchscript
from qbench.quant.operator_mode import OperatorMode
from qbench.quant.pytorch.packed_layers import Packed, scales, zero_points
from qbench.quant.pytorch.torch_ao import known_warnings
from qbench.quant.saturation import torch_products
from qbench.quant.saturation.layer_counter import LayerCounter, LayerSaturation
from qbench.torch_private import make_per_tensor_quantized_tensor

Array = NDArray[Any]
_LAYERS = {f"{kind}{relu}" for kind in ("conv1d", "conv2d", "conv3d", "linear") for relu in ("", "_relu")}


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer that adds in 16 bits in the kernels of ``engine``; ``clips``: a ReLU is part of it."""

    counter: LayerCounter
    engine: str
    scales: Array
    bias: Array | None
    clips: bool


class TorchPredictor:
    """Answers of one artifact on ``engine`` (``fbgemm``, ``x86`` or ``onednn``), batch by batch; the process's engine
    must be that one. ``names``: of its int8 layers in the order in which they run, used where there are as many as run.
    ``layers``, ``unknown`` and ``saturated`` are as those of ``onnxruntime_prediction.OnnxRuntimePredictor``."""

    def __init__(self, file: Path, engine: str, names: Sequence[str] = ()) -> None:
        self._module, self._engine = torchscript.load(file), engine
        self._names, self._calls = tuple(names), 0
        self._layers: dict[str, _Layer | None] = {}
        self.unknown: dict[str, str] = {}
        self._examples, self.saturated = 0, set[int]()

    @property
    def layers(self) -> tuple[LayerSaturation, ...]:
        """What is known of each layer that adds in 16 bits, in the order in which they run."""
        reports = {key: layer.counter.report() for key, layer in self._layers.items() if layer is not None}
        return tuple(replace(report, name=self._name(key)) for key, report in reports.items())

    def _name(self, key: str) -> str:
        """The module's name of the layer with an operator and a position."""
        if len(self._names) != self._calls:
            return key
        return self._names[int(key.rpartition("#")[2]) - 1]

    def __call__(self, inputs: tuple[Array, ...]) -> Array:
        """The first output for a batch."""
        tensors = tuple(torch.from_numpy(array) for array in inputs)
        with torch.inference_mode(), known_warnings(), _Watching(self, len(inputs[0])) as watching:
            result = self._module(*tensors)
        self._calls = watching.position
        self._examples += len(inputs[0])
        output: Array = (result[0] if isinstance(result, tuple | list) else result).numpy()
        return output

    def correct(self, position: int, operator: str, args: Any, result: Any, examples: int) -> Any:
        """What the operator at a position of a call gives with sums of 16 bits, for what it gives here."""
        name, packed = f"quantized::{operator}#{position}", args[1]
        if operator not in _LAYERS:
            self.unknown[name] = "the operator is not modelled"
            return result
        if name not in self._layers:
            self._layers[name] = self._read(name, operator, args[0], packed)
        layer = self._layers[name]
        if layer is None or not len(layer.counter.pairs):
            return result
        return self._corrected(layer, args[0], result, examples)

    def _read(self, name: str, operator: str, x: Any, packed: Any) -> _Layer | None:
        """A layer that adds in 16 bits; None where it does not, or is not modelled."""
        own = Packed(name=name, holder=SimpleNamespace(packed=packed), attribute="packed")
        weight, bias = packed.unpack()
        integers = weight.int_repr().numpy()
        engine = torch_products.choose_engine(self._engine, own.kernel)
        product = torch_products.read_product(engine, own.kernel, integers, x.q_zero_point(), switched=True)
        if zero_points(weight).any():
            product = "its weights have zero points"
        if isinstance(product, str):
            self.unknown[name] = product
        if product is None or isinstance(product, str):
            return None
        return _Layer(
            counter=LayerCounter(
                name=name, operator=f"quantized::{operator}", product=product, weight=integers.astype(np.int32)
            ),
            engine=engine,
            scales=scales(weight)[1].numpy(),
            bias=None if bias is None else bias.detach().numpy(),
            clips=operator.endswith("_relu"),
        )

    def _corrected(self, layer: _Layer, x: Any, result: Any, examples: int) -> Any:
        levels, zero = result.int_repr(), result.q_zero_point()
        steps, low = (x.q_scale(), layer.scales, result.q_scale()), zero if layer.clips else 0
        finish = functools.partial(torch_products.finish, layer.engine, steps, zero, layer.bias, low)
        bytes_in, bytes_out = (_as_read(layer.counter, tensor.numpy()) for tensor in (x.int_repr(), levels))
        rows = len(bytes_out) // examples
        hit = layer.counter.correct(bytes_in, x.q_zero_point(), bytes_out, finish, rows=rows)
        self.saturated.update((hit + self._examples).tolist())
        return make_per_tensor_quantized_tensor(levels, result.q_scale(), zero) if len(hit) else result


def _as_read(counter: LayerCounter, levels: Array) -> Array:
    """A view of a layer's bytes as its sums read them: rows of a matrix product, a convolution of one dimension as one
    of two."""
    kernel = counter.product.kernel
    if not kernel:
        return levels.reshape(-1, levels.shape[-1])
    return np.expand_dims(levels, 2) if levels.ndim == len(kernel) + 1 else levels


class _Watching(OperatorMode):
    """Hands what each int8 layer of one call gives to a predictor."""

    def __init__(self, predictor: TorchPredictor, examples: int) -> None:
        super().__init__()
        self._predictor, self._examples, self.position = predictor, examples, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        operator = str(function.overloadpacket).partition(".")[2]
        if function.namespace != "quantized" or not operator.startswith(("conv", "linear")) or "pack" in operator:
            return result
        self.position += 1
        return self._predictor.correct(self.position, operator, args, result, self._examples)
