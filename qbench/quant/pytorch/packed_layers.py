"""The int8 layers of a converted module whose weights an engine has packed: read, called and packed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from qbench.quant.pytorch.torch_ao import known_warnings
from qbench.torch_private import make_per_channel_quantized_tensor, make_per_tensor_quantized_tensor

# On a convolution whose kernel got a rim of zeros: the new side of the kernel, and where in it the old one starts.
RIM = "qbench_rim"


@dataclass(frozen=True, kw_only=True)
class LayerKernel:
    """What an engine is asked to compute: a matrix product (``kind`` is ``linear``), a convolution (``conv``) or a
    transposed one (``conv_transpose``) of ``dimensions``, with one entry for each of them."""

    kind: str
    dimensions: int = 0
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1

    def pack(self, weight: Any, bias: Any) -> Any:
        """A quantized weight and a float bias, packed for the process's engine."""
        ops = torch.ops.quantized
        with known_warnings():
            if self.kind == "linear":
                return ops.linear_prepack(weight, bias)
            prepack = getattr(ops, f"{self.kind}{self.dimensions}d_prepack")
            if self.kind == "conv":
                return prepack(weight, bias, self.stride, self.padding, self.dilation, self.groups)
            more = (self.stride, self.padding, self.output_padding, self.dilation, self.groups)
            return prepack(weight, bias, *more)

    def call(self, packed: Any, x: Any, scale: float, zero_point: int) -> Any:
        """The quantized output of the engine's kernel for what ``pack`` gave."""
        name = self.kind if self.kind == "linear" else f"{self.kind}{self.dimensions}d"
        with torch.inference_mode(), known_warnings():
            return getattr(torch.ops.quantized, name)(x, packed, scale, zero_point)

    def exact(self, x: Any, weight: Any) -> Any:
        """The same in the float type of the operands, without bias: exact sums where these are integers."""
        if self.kind == "linear":
            return torch.nn.functional.linear(x, weight)
        function = getattr(torch.nn.functional, f"{self.kind}{self.dimensions}d")
        shared = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        if self.kind == "conv_transpose":
            shared["output_padding"] = self.output_padding
        return function(x, weight, None, **shared)

    def channels_out(self, weight: Any) -> int:
        """The channels that its output has."""
        return int(weight.shape[1]) * self.groups if self.kind == "conv_transpose" else int(weight.shape[0])

    def channels_in(self, weight: Any) -> int:
        """The channels that its input has."""
        if self.kind == "conv_transpose":
            return int(weight.shape[0])
        return int(weight.shape[1]) * self.groups


@dataclass(frozen=True, kw_only=True)
class Packed:
    """One layer: the name of its module (for a call of a function that of its packed parameters), and which attribute
    of which module holds them."""

    name: str
    holder: Any
    attribute: str

    @property
    def parameters(self) -> Any:
        """The packed parameters."""
        return getattr(self.holder, self.attribute)

    @property
    def weight(self) -> Any:
        """The quantized weight; a convolution of one dimension has it as one of two."""
        with known_warnings():
            return self.parameters.unpack()[0]

    @property
    def kernel(self) -> LayerKernel:
        """What the engine computes."""
        parameters = self.parameters
        if "Conv" not in str(parameters._type()):
            return LayerKernel(kind="linear")
        return LayerKernel(
            kind="conv_transpose" if parameters.transpose() else "conv",
            dimensions=self.weight.dim() - 2,
            stride=tuple(parameters.stride()),
            padding=tuple(parameters.padding()),
            dilation=tuple(parameters.dilation()),
            output_padding=tuple(parameters.output_padding()),
            groups=int(parameters.groups()),
        )

    @property
    def bias(self) -> Any:
        """The float bias; None where it has none."""
        with known_warnings():
            return self.parameters.unpack()[1]

    def exchange(self, weight: Any, bias: Any) -> None:
        """Puts another quantized weight of the same shape, and another bias, in the place of its own."""
        setattr(self.holder, self.attribute, self.kernel.pack(weight, bias))

    def find_float(self, floats: Mapping[str, Any]) -> Any:
        """The layer's float weight among those of the network before it was converted (by name), with the rim of zeros
        that its kernel may have; None where it is not there."""
        weight = floats.get(self.name)
        if weight is None or not hasattr(self.holder, RIM):
            return weight
        return among_zeros(weight, *getattr(self.holder, RIM))


def layers(int8: Any) -> list[Packed]:
    """The convolutions and matrix products of a converted module, whether it calls them as modules or functions."""
    return list(_layers(int8))


def _layers(int8: Any) -> Iterator[Packed]:
    for name, part in int8.named_modules():
        for attribute, value in vars(part).items():
            kind = str(value._type()) if isinstance(value, torch.ScriptObject) else ""
            if ("Conv" in kind or "Linear" in kind) and "PackedParamsBase" in kind:
                # A Linear layer holds them in a module of its own, which is called like the attribute.
                owner = name.removesuffix("_packed_params").rstrip(".")
                layer = owner if attribute == "_packed_params" else f"{name}.{attribute}".strip(".")
                yield Packed(name=layer, holder=part, attribute=attribute)


def float_weights(prepared: Any) -> Mapping[str, Any]:
    """Name of a layer -> the float weight that converting will round, of a module with observers or fake quantization;
    a BatchNorm that a fused layer still holds is multiplied in."""
    weights = {}
    for name, part in prepared.named_modules():
        # Fused layers are torch.nn.Sequential; those with fake quantization hold their weight themselves.
        inner = part[0] if isinstance(part, torch.nn.Sequential) and len(part) and not hasattr(part, "weight") else part
        weight, norm = getattr(inner, "weight", None), getattr(inner, "bn", None)
        if not isinstance(weight, torch.Tensor) or weight.dim() < 2:
            continue
        weight = weight.detach()
        if norm is not None and type(inner).__module__.startswith("torch.ao."):
            factor = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
            weight = weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
        weights[name] = weight
    return weights


def find_rounded(weight: Any, float_weight: Any) -> Any:
    """``float_weight``, in the shape of a quantized one, where rounding it gives that; None otherwise, and of None."""
    if float_weight is None or float_weight.numel() != weight.numel():
        return None
    float_weight = float_weight.float().reshape(weight.shape)
    axis, scale = scales(weight)
    shape = [-1 if i == axis else 1 for i in range(weight.dim())]
    near = (float_weight - weight.dequantize()).abs() <= 0.51 * scale.float().reshape(shape)
    return float_weight if bool(near.all()) else None


def scales(weight: Any) -> tuple[int, Any]:
    """The axis of a quantized weight's scales and the scales themselves, in float64; one for all has the axis 0."""
    if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return 0, torch.tensor([weight.q_scale()], dtype=torch.double)
    return int(weight.q_per_channel_axis()), weight.q_per_channel_scales().double()


def zero_points(weight: Any) -> Any:
    """The zero points of a quantized weight, one for each of its ``scales``."""
    if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch.tensor([weight.q_zero_point()])
    return weight.q_per_channel_zero_points()


def with_levels(levels: Any, like: Any, scale: Any = None) -> Any:
    """A quantized weight of other integers, with the scales of ``like`` unless others are given."""
    scale = scales(like)[1] if scale is None else scale
    if like.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return make_per_tensor_quantized_tensor(levels, float(scale), like.q_zero_point())
    zeros, axis = like.q_per_channel_zero_points(), like.q_per_channel_axis()
    return make_per_channel_quantized_tensor(levels, scale, zeros, axis)


def among_zeros(weight: Any, side: int, top: int, left: int) -> Any:
    """A weight of two dimensions in the midst of zeros."""
    rim = torch.zeros(*weight.shape[:2], side, side, dtype=weight.dtype)
    rim[:, :, top : top + weight.shape[2], left : left + weight.shape[3]] = weight
    return rim
