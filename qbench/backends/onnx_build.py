"""From a job to an ONNX file, fp32 or int8; shared by the backends that run ONNX files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench.backends.base import BuildJob
from qbench.backends.torch_quantize import find_without_ranges
from qbench.machine import fingerprint
from qbench.models.base import NetworkKind
from qbench.quant.recipe import Recipe

FILE = "model.onnx"
EXPORTS = ("torch", "onnx", "onnxscript")  # the distributions that decide an exported file
# Chosen on EfficientNet-Lite0 (ImageNet weights; calibrated on 128 crops of ten photos, judged on 100 of ten others,
# and the other way round): SQNR of the logits in dB minmax 18.3 and 18.7, percentile (99.999) 18.6 and 18.7, ifmr 18.6
# and 18.7, hfmg 18.6 and 18.3, mse 18.6 and 18.2, moving_average 18.1, entropy 14.1; 98 to 100 % agree with fp32, ONNX
# Runtime's own quantizer has 7.3 dB and 93 %. All but entropy are alike, minmax is the quickest. digits-cnn loses
# nothing with any. Weights per channel, matrix products too. Balance and bias correction are left to `qbench onnx`.
_CALIBRATOR = "minmax"
_MADE = "qbench.training"  # where a trained file tells how it was trained


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is known of an int8 file beside its bytes; the fields are those of ``Built``."""

    notes: tuple[str, ...] = ()
    float_reasons: Mapping[str, str] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()
    rewrite_difference: float | None = None


def find_obstacle(mode: str, kind: NetworkKind) -> str | None:
    """Why a network of that kind has no ONNX file of that mode; None if it has one."""
    if kind == "torchscript":
        return "torch no longer exports TorchScript files to ONNX; give the Python source, or an ONNX file"
    if mode == "qat" and kind == "onnx":
        return "an ONNX file cannot be trained; give the model's Python source"
    return None


def resolve_recipe(mode: str, recipe: Recipe) -> Recipe:
    """The recipe with every choice that was left open; QAT rewrites and clips as torch's FX flow, which trains it."""
    recipe = replace(recipe, flow="onnx", embeddings=False)  # no int8 tables in this flow
    if recipe.file is not None:  # the user's own: there is nothing to choose
        return recipe
    if mode == "dynamic" or recipe.framework_default:
        per_channel = None if recipe.framework_default else recipe.per_channel is not False
        return find_without_ranges(replace(recipe, per_channel=per_channel, canonicalize=False))
    calibrator = "moving_average" if mode == "qat" else recipe.calibrator or _CALIBRATOR
    recipe = replace(
        recipe,
        calibrator=calibrator,
        percentile=recipe.percentile if calibrator == "percentile" else None,
        per_channel=recipe.per_channel is not False,
        symmetric=bool(recipe.symmetric),
        reduce_range=False,  # where products are added in 16 bits, weights get wider steps
        narrow_weights=recipe.narrow_weights is not False,
    )
    return recipe if mode == "qat" else replace(recipe, clip_ranges=False, canonicalize=False)


@contextlib.contextmanager
def fp32_file(job: BuildJob) -> Iterator[Path]:
    """The network as one fp32 ONNX file, external data taken in: the user's own, or exported, once for all builds of
    one network. It is gone afterwards. Raises ``BuildError`` where torch cannot export."""
    from qbench.quant.artifacts import onnx_file

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        if job.network.path is not None:
            onnx_file.copy(job.network.path, file)
        else:
            parts = {"what": "fp32 ONNX file", "versions": fingerprint.versions(EXPORTS)}
            fetch_shared(job, parts, lambda path: _export(job, path), file)
        yield file


def fetch_shared(job: BuildJob, parts: Mapping[str, Any], make: Any, file: Path) -> None:
    """Writes ``file``: a copy of what some build of this network made for the same ``parts``, or made now."""
    if job.shared is None:
        make(file)
    else:
        shutil.copyfile(job.shared(parts, make), file)


def _export(job: BuildJob, target: Path) -> None:
    from qbench.backends.torch_runner import tensors
    from qbench.quant import canonical
    from qbench.quant.onnx import onnxruntime_session

    job.progress("export to ONNX", 0.1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE  # a shared file has another ending, by which tools tell what it is
        module = canonical.plain_attention(job.network.module, tensors(job.probes))
        onnxruntime_session.export(module, tensors(job.example), file)
        shutil.copyfile(file, target)


def quantize_network(job: BuildJob, source: Path, file: Path, *, runtime: str) -> Made:
    """Writes the int8 file of a job as ``runtime`` executes it: static from ``source`` (fp32), QAT from the job's
    network."""
    return _trained(job, file, runtime) if job.mode == "qat" else _static(job, source, file, runtime)


def _static(job: BuildJob, source: Path, file: Path, runtime: str) -> Made:
    """The scales are found once for every runtime that takes the same recipe."""
    from qbench.quant.onnx import static
    from qbench.quant.onnx.export import deploy_model

    parts = {"what": "calibrated ONNX file", "recipe": {**asdict(job.recipe), "name": None}}
    parts["versions"] = fingerprint.versions((*EXPORTS, "onnxruntime"))
    with tempfile.TemporaryDirectory() as folder:
        calibrated = Path(folder) / FILE
        make = functools.partial(_calibrate, job, source)
        fetch_shared(job, parts, make, calibrated)
        calibrated_model = static.read(calibrated)
    job.progress("write the int8 file", 0.85)
    narrow = job.recipe.narrow_weights is not False
    deployed = deploy_model.write(
        calibrated_model.graph,
        calibrated_model.sites,
        calibrated_model.record,
        file,
        runtime=runtime,
        narrow_weights=narrow,
        leave_slow_float=job.recipe.first_layer_float is None,
        calibration=job.calibration,
    )
    floats = static.labelled(calibrated_model.graph, deployed.floats)
    return Made(
        notes=(*calibrated_model.notes, *deployed.notes), float_reasons={**calibrated_model.float_reasons, **floats}
    )


def _calibrate(job: BuildJob, source: Path, target: Path) -> None:
    from qbench.quant.onnx import static

    static.scaled(source, target, job.recipe, job.calibration, job.progress)


def _trained(job: BuildJob, file: Path, runtime: str) -> Made:
    """Trained by torch's FX flow, once for every runtime, with the scales that it has learned."""
    from qbench.quant.onnx import qat as onnx_qat
    from qbench.quant.onnx import static
    from qbench.quant.onnx.export import deploy_model
    from qbench.quant.onnx.graph.graph import Graph

    parts = {"what": "trained ONNX file", "recipe": {**asdict(job.recipe), "name": None}}
    parts |= {"versions": fingerprint.versions(EXPORTS), "training": _digest(*_given(job))}
    with tempfile.TemporaryDirectory() as folder:
        trained = Path(folder) / FILE
        fetch_shared(job, parts, functools.partial(_train, job), trained)
        graph = Graph.load(trained)
    labels = json.loads(next(prop.value for prop in graph.model.metadata_props if prop.key == _MADE))
    job.progress("write the int8 file", 0.9)
    learned = onnx_qat.learned(graph)
    narrow = job.recipe.narrow_weights is not False
    deployed = deploy_model.write(
        learned.graph,
        learned.sites,
        learned.record,
        file,
        runtime=runtime,
        learned=True,
        narrow_weights=narrow,
        leave_slow_float=job.recipe.first_layer_float is None,
        calibration=job.calibration,
    )
    return Made(
        notes=(*labels["notes"], *deployed.notes),
        float_reasons=static.labelled(learned.graph, deployed.floats),
        rewrites=tuple(labels["rewrites"]),
        rewrite_difference=labels["rewrite_difference"],
    )


def _train(job: BuildJob, target: Path) -> None:
    """Trains, and writes what was learned with what is told of it."""
    from qbench.backends.torch_runner import tensors, training_tensors
    from qbench.quant import canonical
    from qbench.quant.flow import QuantizeJob
    from qbench.quant.onnx import qat as onnx_qat
    from qbench.quant.onnx.graph.graph import Graph
    from qbench.quant.pytorch import fx, qat, torch_ao

    inputs, labels = training_tensors(job)
    example = tensors(job.example)
    torch_ao.set_engine(onnx_qat.ENGINE)
    form = canonical.canonicalize(job.network.module, example, training=True) if job.recipe.canonicalize else None
    module, first = form.module if form else job.network.module, tuple(tensor[:1] for tensor in inputs)
    quantize_job = QuantizeJob(module, onnx_qat.ENGINE, job.recipe, first, job.progress, job.shared)
    fitted = qat.fit(fx, quantize_job, inputs, labels, checkpoints=job.checkpoints)
    job.progress("export what was learned", 0.85)
    facts = {
        "notes": [f"trained on {fitted.loss}", *(form.kept if form else ()), *fitted.notes],
        "rewrites": form.rewrites if form else (),
        "rewrite_difference": form.largest_difference if form else None,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        onnx_qat.write(fitted.prepared, example, file)
        graph = Graph.load(file)
        graph.model.metadata_props.add(key=_MADE, value=json.dumps(facts))
        graph.save(target)


def _given(job: BuildJob) -> list[Any]:
    """The arrays that a training is given."""
    assert job.training is not None  # a job for QAT has it
    inputs, labels = job.training
    return [*inputs, *([] if labels is None else [labels])]


def _digest(*arrays: Any) -> str:
    """The sha256 of arrays, their types and shapes."""
    import numpy as np

    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
