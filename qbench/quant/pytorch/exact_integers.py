"""Whether each int8 layer of a converted module gives, on real examples, what exact integer arithmetic gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from qbench.errors import BuildError, first_names, reraise
from qbench.machine import fingerprint
from qbench.quant import model_call
from qbench.quant.pytorch import mean_errors, narrow_weights, padded_depthwise
from qbench.quant.pytorch.packed_layers import LayerKernel, Packed, float_weights, layers, scales
from qbench.quant.pytorch.torch_ao import known_warnings, nniq, nnq
from qbench.quant.recipe import Recipe
from qbench.record.schema import TargetFacts

_SHOWN = 3  # names in a note
EXAMPLES = 4  # calibration examples on which layers are held against exact integers
_ROUNDING = 1  # levels: a kernel may round a tie, or the product of scales, to the other side
_PLAIN = {
    nnq.Conv1d, nnq.Conv2d, nnq.Conv3d, nnq.ConvTranspose1d, nnq.ConvTranspose2d, nnq.ConvTranspose3d, nnq.Linear,
}  # fmt: skip
_WITH_RELU = {nniq.ConvReLU1d, nniq.ConvReLU2d, nniq.ConvReLU3d, nniq.LinearReLU}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """``layers`` were compared on so many ``examples``; ``off``: layer -> the share of its outputs that differ by more
    than rounding."""

    layers: int
    examples: int
    off: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What is known of the kernels of a network on an engine: ``sums`` asked at their worst, ``compared`` on
    examples."""

    sums: narrow_weights.Sums
    compared: Compared
    engine: str
    recipe: Recipe

    @property
    def target(self) -> TargetFacts | None:
        """What was done for other CPUs than this one."""
        return narrow_weights.facts(self.sums, self.recipe.cpus)

    def wrong(self) -> dict[str, str]:
        """Layer -> why its kernel cannot be used. Sums that overflow are no reason where the recipe leaves weights as
        they are, and the framework's default is left as it is."""
        if self.recipe.framework_default:
            return {}
        reasons = {
            name: f"its int8 kernel differs from exact integers in {_share(share)} of its outputs on this CPU"
            for name, share in self.compared.off.items()
            if name not in self.sums.left
        }
        if self.recipe.narrow_weights:
            reasons |= dict.fromkeys(
                self.sums.left, "its int8 kernel adds up wrongly here or on a CPU of its target, whatever its weights"
            )
        return reasons


def prove(
    int8: Any,
    prepared: dict[str, Any],
    engine: str,
    recipe: Recipe,
    examples: tuple[Any, ...],
    calibration: Iterable[tuple[Any, ...]] = (),
) -> Proof:
    """Widens the kernels that pad one-sidedly (``padded_depthwise``; not of the framework's default) and narrows the
    weights of a converted module where the recipe asks for it (``narrow_weights.hold``), has its biases give back what
    rounded weights do on average over ``calibration`` (``mean_errors``; nothing without), then compares its layers on
    examples; ``prepared``: layer -> its float weight."""
    if not recipe.framework_default:
        padded_depthwise.widen(int8, engine, tuple(tensor[:1] for tensor in examples))
    kernels = narrow_weights.Kernels(engine=engine, target=recipe.cpus, top=largest_level(engine, recipe))
    sums = narrow_weights.hold(int8, prepared, narrow=bool(recipe.narrow_weights), kernels=kernels)
    if calibration and recipe.gives_back_means:
        mean_errors.give_back(int8, prepared, calibration)
    return Proof(sums=sums, compared=compare(int8, examples), engine=engine, recipe=recipe)


def weights(prepared: Any, recipe: Recipe) -> dict[str, Any]:
    """Layer -> its float weight, where they are needed later."""
    return dict(float_weights(prepared)) if recipe.narrow_weights or recipe.gives_back_means else {}


def refuse_conversion(converter: str) -> reraise:
    """Around a conversion by torch: what it refuses becomes ``BuildError``."""
    return reraise(
        BuildError,
        lambda error: (
            f"{converter} cannot convert this network: {model_call.reason(error)}; name the layer in "
            "quantize.*.skip_layers"
        ),
        (AssertionError, ValueError, RuntimeError, NotImplementedError),
    )


def largest_level(engine: str, recipe: Recipe) -> int:
    """The largest level of activations: a reduced range has 7 bits, as torch's own defaults of fbgemm and x86 have."""
    reduced = engine in ("fbgemm", "x86") if recipe.framework_default else recipe.reduce_range
    return 127 if reduced else narrow_weights.TOP


def compare(int8: Any, examples: tuple[Any, ...]) -> Compared:
    """Runs a converted module on a few examples, one alone and all together, with every layer computed twice."""
    packed = {layer.name: layer for layer in layers(int8) if layer.attribute == "_packed_params"}
    count, compared = min(EXAMPLES, len(examples[0])), _Outputs()
    with ExitStack() as hooks:
        for name, part in int8.named_modules():
            if name in packed and type(part) in (_PLAIN | _WITH_RELU):
                compare_layer = compared.of(packed[name], clips=type(part) in _WITH_RELU)
                hooks.callback(part.register_forward_hook(compare_layer).remove)
        with torch.inference_mode(), known_warnings():
            for several in {1, count}:
                int8(*(tensor[:several] for tensor in examples))
    off = {name: differ / compared.values[name] for name, differ in compared.differ.items() if differ}
    return Compared(layers=len(compared.values), examples=count, off=off)


@dataclass(kw_only=True)
class _Outputs:
    """Layer -> how many outputs it gave, and how many of them differ from exact ones."""

    values: dict[str, int] = field(default_factory=dict)
    differ: dict[str, int] = field(default_factory=dict)

    def of(self, layer: Packed, *, clips: bool) -> Callable[[Any, Any, Any], None]:
        """A hook for the module of a layer."""

        def hook(part: Any, inputs: Any, output: Any) -> None:
            expected = _exact(layer.kernel, layer.weight, part.bias(), inputs[0], output, clips=clips)
            differ = (output.int_repr().float() - expected).abs() > _ROUNDING
            self.values[layer.name] = self.values.get(layer.name, 0) + differ.numel()
            self.differ[layer.name] = self.differ.get(layer.name, 0) + int(differ.sum())

        return hook


def _exact(kernel: LayerKernel, weight: Any, bias: Any, x: Any, output: Any, *, clips: bool) -> Any:
    """The levels that a layer's output must have for its input, from integers; sums in float32 are off by less than
    rounding. ``clips``: a ReLU is part of it."""
    levels = x.int_repr().float() - x.q_zero_point()
    flat = kernel.kind != "linear" and levels.dim() == kernel.dimensions + 1
    total = kernel.exact(levels.unsqueeze(2) if flat else levels, weight.int_repr().float())
    total = total.squeeze(2) if flat else total
    across = [-1 if i == (total.dim() - 1 if kernel.kind == "linear" else 1) else 1 for i in range(total.dim())]
    factor = (scales(weight)[1] * x.q_scale() / output.q_scale()).float()
    total = total * (factor.reshape(across) if len(factor) > 1 else factor)
    if bias is not None:
        total = total + (bias / output.q_scale()).reshape(across)
    low = output.q_zero_point() if clips else 0
    return (total.round() + output.q_zero_point()).clamp(low, narrow_weights.TOP)


def notes(proof: Proof, int8: Any) -> tuple[str, ...]:
    """What a reader must know: which layers' sums could overflow, what was done, what differs all the same, and which
    kernels are slow."""
    texts = (
        narrow_weights.note(
            proof.sums, proof.engine, narrow=bool(proof.recipe.narrow_weights), target=proof.recipe.cpus
        ),
        _of_differences(proof.compared),
        slow_note(int8, proof.engine),
    )
    return tuple(note for note in texts if note)


def _of_differences(compared: Compared) -> str | None:
    if not compared.off:
        return None
    worst = max(compared.off, key=lambda name: compared.off[name])
    return (
        f"on {compared.examples} calibration examples {len(compared.off)} of {compared.layers} int8 layers differ from "
        f"exact integers by more than rounding, {worst} in {_share(compared.off[worst])} of its outputs"
    )


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else f"{share:.1g}"


def slow_note(int8: Any, engine: str) -> str | None:
    """Which convolutions of a converted module fall off fbgemm's fast path, with their shape; None without one."""
    slow = [f"{name} ({shape})" for name, shape in slow_convolutions(int8, engine)]
    if not slow:
        return None
    convolutions = "convolution takes" if len(slow) == 1 else "convolutions take"
    return (
        f"{len(slow)} grouped {convolutions} fbgemm's slow path, many times slower than fp32: "
        f"{first_names(slow, _SHOWN)}; the engine onednn has fast kernels for them"
    )


def slow_convolutions(int8: Any, engine: str) -> list[tuple[str, str]]:
    """(name, shape in words) of the grouped convolutions in a converted module that fbgemm computes group by group."""
    if engine not in ("fbgemm", "x86"):
        return []
    names = []
    for layer in layers(int8):
        name, packed, weight = layer.name, layer.parameters, layer.weight
        if layer.kernel.kind != "conv":
            continue
        groups = packed.groups()
        if groups == 1 or _runs_on_onednn(engine, groups):
            continue
        if not _fast(packed, weight):
            kernel, stride, padding = (
                "x".join(map(str, sizes)) for sizes in (weight.shape[2:], packed.stride(), packed.padding())
            )
            names.append((name, f"{groups} groups, kernel {kernel}, stride {stride}, padding {padding}"))
    return names


def _runs_on_onednn(engine: str, groups: int) -> bool:
    """The engine x86 gives a convolution to oneDNN where VNNI is there and it has at most 100 groups
    (aten/src/ATen/native/quantized/cpu/qconv.cpp, ``should_use_onednn_quant``); no switch hides VNNI from it."""
    return engine == "x86" and "avx512_vnni" in fingerprint.isa() and groups <= 100


def _fast(packed: Any, weight: Any) -> bool:
    """Whether fbgemm has a kernel for a grouped convolution (FBGEMM, src/FbgemmConv.cc ``takeDepthWiseFastPath`` and
    src/GroupwiseConv.cc ``fbgemmOptimizedGConv``)."""
    kernel, groups = list(weight.shape[2:]), packed.groups()
    each_in, each_out = int(weight.shape[1]), int(weight.shape[0]) // groups
    strides, padding, dilation = packed.stride(), packed.padding(), packed.dilation()
    plain = all(step == 1 for step in dilation) and all(step in (1, 2) for step in strides) and len(set(kernel)) == 1
    same = all(zeros == (kernel[0] - 1) // 2 for zeros in padding)
    if each_in == each_out == 1:
        sizes = (3, 5, 7) if len(kernel) == 2 else (3,)
        return plain and same and groups % 8 == 0 and kernel[0] in sizes
    return plain and same and each_in == each_out and each_in in (4, 8, 16) and kernel[0] == 3
