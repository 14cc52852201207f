"""From a job to an ONNX file, fp32 or int8; shared by the backends that run ONNX files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.backends.base import BuildJob
from qbench.machine import fingerprint
from qbench.quant.flow import Conversion, QuantizeJob
from qbench.quant.recipe import key_parts

if TYPE_CHECKING:
    from qbench.quant.onnx.static import Scaled

FILE = "model.onnx"
EXPORTS = ("torch", "onnx", "onnxscript")  # the distributions that decide an exported file
_TRAINING = "qbench.training"  # where a trained file tells how it was trained


@contextlib.contextmanager
def fp32_file(job: BuildJob) -> Iterator[Path]:
    """The network as one fp32 ONNX file, external data taken in: the user's own, or exported, once for all builds of
    one network. It is gone afterwards. From here on the process gives back large arrays at once, unless it trains.
    Raises ``BuildError`` where torch cannot export."""
    from qbench.quant.artifacts import onnx_file
    from qbench.quant.onnx import graph_process

    if job.mode != "qat":  # each step of a training takes and gives back the same arrays
        graph_process.return_arrays_at_once()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        if job.network.path is not None:
            onnx_file.copy(job.network.path, file)
        else:
            ingredients = {"what": "fp32 ONNX file", "versions": fingerprint.versions(EXPORTS)}
            fetch_shared(job, ingredients, lambda path: _export(job, path), file)
        yield file


def fetch_shared(job: BuildJob, ingredients: Mapping[str, Any], make: Any, file: Path) -> None:
    """Writes ``file``: a copy of what some build of this network made of the same ``ingredients``, or made now."""
    if job.shared is None:
        make(file)
    else:
        shutil.copyfile(job.shared(ingredients, make), file)


def _export(job: BuildJob, target: Path) -> None:
    from qbench.backends.torch_runner import list_examples, tensors
    from qbench.quant import canonical
    from qbench.quant.onnx import export_torch, graph_process

    job.progress("export to ONNX", 0.1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE  # a shared file has another ending, by which tools tell what it is
        module = canonical.plain_attention(job.network.module, tensors(job.probes))
        export_torch.export_any_way(module, tensors(job.example), file, lambda: list_examples(job))
        shutil.copyfile(file, target)
        graph_process.release_memory(file)  # the exporter leaves its copies of the weights in cycles


def quantize_network(job: BuildJob, source: Path, file: Path, *, runtime: str) -> Conversion:
    """Writes the int8 file of a job as ``runtime`` executes it: static from ``source`` (fp32), QAT from the job's
    network. Scales are found, or learned by torch's FX flow, once for every runtime that takes the same recipe."""
    from qbench.quant.onnx import static
    from qbench.quant.onnx.export import deploy_model

    learned = job.mode == "qat"
    scaled, conversion = _learn(job) if learned else (_calibrate(job, source, runtime), Conversion())
    job.progress("write the int8 file", 0.9)
    deployed = deploy_model.write(
        scaled.graph,
        scaled.sites,
        scaled.record,
        file,
        original=scaled.original or None,
        runtime=runtime,
        learned=learned,
        narrow_weights=job.recipe.narrow_weights is not False,
        target=job.recipe.cpus,
        leave_slow_float=job.recipe.first_layer_float is None,
        calibration=job.calibration,
        mean_inputs=scaled.mean_inputs,
    )
    return replace(
        conversion.with_notes(*scaled.notes, *conversion.notes, *deployed.notes),
        float_reasons={**scaled.float_reasons, **static.labelled(scaled.graph, deployed.floats)},
        target=deployed.target,
    )


def _calibrate(job: BuildJob, source: Path, runtime: str) -> Scaled:
    from qbench.quant.onnx import graph_process, static
    from qbench.quant.onnx.export import deploy_model

    recipe = job.recipe
    adds_in_16_bits = recipe.narrow_weights is not False and deploy_model.adds_in_16_bits(runtime, recipe.cpus)
    narrow = static.fits_weights(recipe) and adds_in_16_bits

    def write(target: Path) -> None:
        static.choose_scales(source, recipe, job.calibration, job.progress, narrow=narrow).save(target)
        graph_process.release_memory(target)  # that calibration took, before the file is read

    versions = fingerprint.versions((*EXPORTS, "onnxruntime"))
    ingredients = {"what": "scaled ONNX file", "versions": versions, "narrow": narrow}
    with _scaled_file(job, ingredients, write) as file:
        return static.Scaled.load(file)


def _learn(job: BuildJob) -> tuple[Scaled, Conversion]:
    from qbench.quant import training_code
    from qbench.quant.onnx import qat as onnx_qat
    from qbench.quant.onnx.graph.graph import Graph

    ingredients = {
        "what": "trained ONNX file",
        "versions": fingerprint.versions(EXPORTS),
        "training": _digest(*_list_training_arrays(job)),
    }
    ingredients |= training_code.digests(job.recipe, job.base)
    with _scaled_file(job, ingredients, functools.partial(_train, job)) as file:
        graph = Graph.load(file)
    facts = json.loads(next(prop.value for prop in graph.model.metadata_props if prop.key == _TRAINING))
    return onnx_qat.learned(graph), Conversion(
        notes=tuple(facts["notes"]), rewrites=tuple(facts["rewrites"]), rewrite_difference=facts["rewrite_difference"]
    )


@contextlib.contextmanager
def _scaled_file(job: BuildJob, ingredients: Mapping[str, Any], make: Callable[[Path], None]) -> Iterator[Path]:
    """A file that holds the scales of a recipe: made here, or as a build for another runtime or CPU made it."""
    of_one_build = {"name": None, "target": None, "narrow_weights": None}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        fetch_shared(job, {**ingredients, "recipe": {**key_parts(job.recipe), **of_one_build}}, make, file)
        yield file


def _train(job: BuildJob, target: Path) -> None:
    """Trains, and writes what was learned with what is told of it."""
    from qbench.backends.torch_runner import tensors, training_tensors
    from qbench.quant import canonical
    from qbench.quant.onnx import qat as onnx_qat
    from qbench.quant.onnx.graph.graph import Graph
    from qbench.quant.pytorch import fx, own_qconfig, qat, torch_ao

    inputs, labels = training_tensors(job)
    example = tensors(job.example)
    torch_ao.set_engine(onnx_qat.ENGINE)
    bare, _ = own_qconfig.take(job.network.module)
    form = canonical.canonicalize(bare, example, training=True) if job.recipe.canonicalize else None
    module, first = form.module if form else bare, tuple(tensor[:1] for tensor in inputs)
    quantize_job = QuantizeJob(module, onnx_qat.ENGINE, job.recipe, first, job.progress, job.shared, base=job.base)
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
        graph.model.metadata_props.add(key=_TRAINING, value=json.dumps(facts))
        graph.save(target)


def _list_training_arrays(job: BuildJob) -> list[Any]:
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
