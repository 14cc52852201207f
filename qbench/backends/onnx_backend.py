"""What the backends that run ONNX files share: the files are made, proven and read alike for each of them."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench import installation
from qbench.backends import own_int8_file
from qbench.backends.base import Array, Backend, BuildJob, Built, Inputs
from qbench.backends.onnx_build import EXPORTS, FILE, fp32_file, quantize_network
from qbench.backends.open_choices import choose_ranges, choose_target, choose_weights, find_without_ranges
from qbench.models.base import NetworkKind
from qbench.modes import WEIGHT_ONLY, is_int8, needs_calibration
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.flow import Conversion
from qbench.quant.recipe import Recipe

if TYPE_CHECKING:
    from qbench.quant.onnx.onnxruntime_layers import Executed

# Chosen on EfficientNet-Lite0 (ImageNet weights; calibrated on 128 crops of ten photos, judged on 100 of ten others,
# and the other way round): SQNR of the logits in dB minmax 18.3 and 18.7, percentile (99.999) 18.6 and 18.7, ifmr 18.6
# and 18.7, hfmg 18.6 and 18.3, mse 18.6 and 18.2, moving_average 18.1, entropy 14.1; 98 to 100 % agree with fp32, ONNX
# Runtime's own quantizer has 7.3 dB and 93 %. All but entropy are alike, minmax is the quickest. digits-cnn loses
# nothing with any. Weights per channel, matrix products too. Balance, AdaRound and bias correction only where a
# recipe asks for them.
_CALIBRATOR = "minmax"


class OnnxBackend(Backend):
    """A runtime of ONNX files. It needs ``packages``, which an ``extra`` of qbench brings, or qbench itself."""

    flows = ("onnx",)
    int8_formats: tuple[str, ...] = ("onnx",)
    packages: tuple[str, ...]
    extra: str | None = None

    def missing(self) -> str | None:
        """Whether the packages are there."""
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if not absent:
            return None
        return f"{' and '.join(absent)} not installed; {installation.install(absent, self.extra)}"

    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """An ONNX file cannot be trained; TorchScript has no path to ONNX that torch still keeps."""
        if kind == "torchscript":
            return "torch no longer exports TorchScript files to ONNX; give the Python source, or an ONNX file"
        if mode == "qat" and kind == "onnx":
            return "an ONNX file cannot be trained; give the model's Python source"
        return None

    def resolve(self, mode: str, recipe: Recipe) -> Recipe:
        """Every choice that was left open; the framework's default has none, QAT rewrites and clips as torch's FX flow,
        which trains it."""
        has_tables = mode == "dynamic" and recipe.file is None
        recipe = replace(recipe, flow="onnx", embeddings=recipe.embeddings is not False if has_tables else None)
        if recipe.file is not None:  # the user's own: there is nothing to choose
            return recipe
        if mode == WEIGHT_ONLY:
            return choose_weights(recipe)
        if mode == "dynamic" or recipe.framework_default:
            per_channel = None if recipe.framework_default else recipe.per_channel is not False
            return choose_target(
                find_without_ranges(replace(recipe, per_channel=per_channel, canonicalize=False)), mode
            )
        # Where products are added in 16 bits, weights get wider steps.
        room = replace(recipe, reduce_range=False, narrow_weights=recipe.narrow_weights is not False)
        chosen = choose_target(choose_ranges(room, mode, _CALIBRATOR), mode)
        return chosen if mode == "qat" else replace(chosen, clip_ranges=False, canonicalize=False)

    def libraries(self) -> tuple[str, ...]:
        """What exports, quantizes and runs."""
        return tuple(dict.fromkeys((*EXPORTS, "onnxruntime", *self.packages)))

    def build(self, job: BuildJob) -> Built:
        """Exports (fp32), or makes another file of that, checks that it gives the same from call to call, reads the
        layers from what the runtime made of it."""
        from qbench.quant.analysis import quantized_range
        from qbench.quant.artifacts import onnx_file
        from qbench.quant.onnx import export_torch
        from qbench.quant.onnx.export import fast_forms

        file, conversion = job.folder / FILE, Conversion()
        with fp32_file(job) as source:
            self.take_operators(source)
            exported = None if job.network.path is not None else export_torch.read_note(source)
            reference = source
            if job.int8_file is not None:
                conversion = own_int8_file.take_own_file(job, source, file)
                own_int8_file.require_outputs(job, source, file, self.open_file)
                source = file
            else:
                # Files with ranges get their form as they are written.
                arranged = source if needs_calibration(job.mode) else fast_forms.arrange(source, self.runtime)
                if job.mode == "fp32":
                    onnx_file.copy(arranged, file)
                else:
                    job.progress("quantize", 0.2)
                    file, conversion = self.quantize(job, arranged, file)
            suspect = self.check_file(file, reference, job.probes)
            inputs = onnx_file.tile_batch(source, job.example)
            onnx_file.require_repeatable(self.open_file, file, inputs, self.name)
            layers, fixed_batch = self._match_layers(job, source, file), onnx_file.fixed_batch(source)
            conversion = conversion.with_notes(exported, *conversion.notes, suspect)
        return Built(
            format="onnx" if file.name == FILE else self.name,
            file=file.name,
            layers=layers,
            fixed_batch=fixed_batch,
            conversion=replace(
                conversion,
                flow=job.recipe.flow if is_int8(job.mode) else None,
                input_ranges=quantized_range.range_of_onnx(file) if file.name == FILE else (),
            ),
        )

    def read_layers(self, job: BuildJob, file: Path) -> tuple[Layer, ...]:
        """By what the runtime executes of the file, held against the network's fp32 file."""
        with fp32_file(job) as source:
            return self._match_layers(job, source, file)

    def _match_layers(self, job: BuildJob, source: Path, file: Path) -> tuple[Layer, ...]:
        """The layers of the fp32 file ``source``, each with what the runtime executes for it in ``file``."""
        from qbench.quant.artifacts import onnx_file
        from qbench.quant.onnx import onnxruntime_layers

        inputs = onnx_file.tile_batch(source, job.example)
        executed = onnxruntime_layers.executed(source, job.example, optimized=False)
        reference = onnxruntime_layers.as_float(executed)
        return onnxruntime_layers.match(reference, reference if job.mode == "fp32" else self.execute(file, inputs))

    def quantize(self, job: BuildJob, source: Path, file: Path) -> tuple[Path, Conversion]:
        """The file of a job that is not fp32, ``file`` where it is ONNX, and what there is to tell of it."""
        return file, quantize_network(job, source, file, runtime=self.name)

    def take_operators(self, source: Path) -> None:  # most know all operators
        """Writes a file again such that the runtime computes all of its operators rightly; raises ``ModeImpossible``
        where it cannot."""

    def check_file(self, file: Path, source: Path, probes: Inputs) -> str | None:
        """What there is to tell of how the runtime answers for a file, which may change how it opens it from then on;
        ``source``: the float network's file."""
        return None

    @abstractmethod
    def open_file(self, file: Path) -> Callable[[Inputs], Array]:
        """A model on one thread: inputs -> its first output."""

    @abstractmethod
    def execute(self, file: Path, inputs: Inputs) -> Sequence[Executed]:
        """The layers that the runtime runs of a file; ``inputs`` are a batch of the size that it takes."""
