"""The torch.ao engines fbgemm, x86, onednn and qnnpack: static, dynamic and QAT, by the FX flow, else the eager one."""

from __future__ import annotations

import platform
from dataclasses import replace

from qbench.backends import own_torchscript
from qbench.backends.base import BuildJob, Built
from qbench.backends.open_choices import choose_ranges, choose_target, find_without_ranges, make_room_for_sums
from qbench.backends.torch_quantize import quantize_network
from qbench.backends.torch_runner import TorchScriptBackend, one_example, save
from qbench.errors import BuildError
from qbench.models.base import NetworkKind
from qbench.quant.pytorch import torch_ao
from qbench.quant.recipe import AUTO, Recipe

FILE = "model.pt"
_X86 = ("x86_64", "AMD64")
# Chosen on EfficientNet-Lite0 (ImageNet weights, 200 crops of 20 photos): SQNR of the logits in dB and the share with
# fp32's argmax. 8-bit activations: histogram 17.7 (98.5 %), minmax 17.7 (97.5 %), mse 17.7 (98 %); 7 bits: 16.5 (98 %),
# 16.0 (97 %), 16.6 (98.5 %): all alike. What matters: ranges not clipped by ReLU6 5.9 dB, weights per tensor 6.6 dB,
# 8-bit activations where kernels add in 16 bits 7.7 dB. Per channel therefore on every engine, qnnpack included.
_CALIBRATOR = "histogram"


class TorchAO(TorchScriptBackend):
    """One quantized engine of torch."""

    modes = ("dynamic", "static", "qat")
    flows = ("fx", "eager")
    own_qconfig = True
    int8_formats = ("torchscript",)

    def __init__(self, name: str, *, machines: tuple[str, ...] | None) -> None:
        self.name = self.engine = name
        self._machines = machines

    def missing(self) -> str | None:
        """Whether torch is there and the engine exists for this kind of CPU."""
        if self._machines is not None and platform.machine() not in self._machines:
            return f"the engine {self.name} exists only on {self._machines[0]}; use qnnpack or onednn here"
        return super().missing()

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """FX and quantize_dynamic need the Python module."""
        if kind == "onnx":
            return "torch cannot quantize an ONNX file; use the onnxruntime backend"
        if kind == "torchscript":
            return (
                "torch cannot quantize a TorchScript file; give the model's Python source as {python: file.py:factory}"
            )
        return None

    def why_not_for(self, cpu: str) -> str | None:
        """fbgemm and x86 are for x86 alone."""
        if cpu != "arm" or self._machines is None:
            return None
        return f"the engine {self.name} exists only on {self._machines[0]}, so nothing it builds runs on ARM"

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Every choice that was left open; the choices by measurement stand at ``_CALIBRATOR``."""
        if recipe.file is not None:  # the user's own: there is nothing to choose
            return replace(recipe, embeddings=None)
        if mode == "dynamic":
            # quantize_dynamic's own default is per tensor; recurrent layers have nothing else.
            flow, per_channel = recipe.flow or "eager", bool(recipe.per_channel) and recipe.qconfig is None
            own = replace(recipe, flow=flow, per_channel=per_channel, embeddings=bool(recipe.embeddings))
            return choose_target(find_without_ranges(own), mode)
        if recipe.framework_default:
            own = replace(find_without_ranges(recipe), flow=recipe.flow or "fx", per_channel=None)
            return choose_target(own, mode)
        flow = recipe.flow or AUTO
        if recipe.qconfig is not None:
            return replace(find_without_ranges(recipe), flow=flow, per_channel=None, target=())
        return choose_target(replace(choose_ranges(make_room_for_sums(recipe), mode, _CALIBRATOR), flow=flow), mode)

    def build(self, job: BuildJob) -> Built:
        """Quantizes on this engine, saves, reloads, checks bit-equality, reads the layers from the file."""
        from qbench.quant.analysis import quantized_range
        from qbench.quant.artifacts import coverage, torchscript
        from qbench.quant.pytorch import padded_depthwise

        torch_ao.set_engine(self.name)
        example = one_example(job)
        if job.int8_file is not None:
            return own_torchscript.build(job, self.name, example, self._note())
        if (reason := self.why_not(mode=job.mode, kind=job.network.kind)) is not None:  # beside a file of the user's
            raise BuildError(reason)
        reference, unseen = torchscript.count_layers(job.network.module, example)
        converted = quantize_network(job, self.name, example)
        traced = save(converted.module, job, job.folder / FILE)
        loaded = torchscript.load(job.folder / FILE)
        layers, uncounted = torchscript.count_layers(loaded, example)
        layers = padded_depthwise.without_rims(layers, converted.module, example)
        conversion = converted.conversion.with_notes(self._note(), *converted.conversion.notes, traced)
        if job.mode != "dynamic":
            conversion = replace(conversion, input_ranges=quantized_range.range_of_module(loaded, example))
        return Built(
            format="torchscript",
            file=FILE,
            layers=coverage.align_layers(reference, layers),
            uncounted=unseen or uncounted,
            conversion=conversion,
        )

    def _note(self) -> str | None:
        if self.name == "qnnpack" and platform.machine() in _X86:
            return "qnnpack is made for ARM: on x86 it works, for most networks more slowly than the other engines"
        return None


FBGEMM = TorchAO("fbgemm", machines=_X86)
X86 = TorchAO("x86", machines=_X86)
ONEDNN = TorchAO("onednn", machines=None)
QNNPACK = TorchAO("qnnpack", machines=None)
