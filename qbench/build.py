"""Stage 3: variant -> Artifact, through the content-addressed cache; each build runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qbench import cache, machine, registry
from qbench.backends.base import Backend, BuildJob
from qbench.errors import BuildError
from qbench.inputs import Data, Model, load_network
from qbench.models.base import Network
from qbench.plan import Variant
from qbench.process import Limits, call
from qbench.quant.coverage import Layer, share
from qbench.quant.recipe import Recipe
from qbench.record import ArtifactFacts, Coverage

Progress = Callable[[str, float], None]
ONE_THREAD = 1  # builds run beside each other, and one thread gives the same bytes every time


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built variant in the cache. ``layers`` tell what ran in int8; ``expected`` is the sha256 of its outputs on
    one example, so that another process can prove that it runs the same thing. ``recipe`` has no open choices."""

    mode: str
    backend: str
    file: Path
    format: str
    key: str
    sha256: str
    size_bytes: int
    layers: tuple[Layer, ...]
    recipe: Recipe
    fixed_batch: int | None
    expected: str
    fresh: bool
    notes: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one example."""
        return sum(layer.macs for layer in self.layers)

    def facts(self) -> ArtifactFacts:
        """What a record says of it."""
        return ArtifactFacts(
            format=self.format,
            sha256=self.sha256,
            size_bytes=self.size_bytes,
            coverage=None if self.mode == "fp32" else coverage(self.layers),
            key=self.key,
            cached=not self.fresh,
            note="; ".join(self.notes) or None,
        )


def coverage(layers: tuple[Layer, ...]) -> Coverage:
    """The share of multiply-accumulates in int8, the layers that are, and the names of those that are not."""
    return Coverage(
        macs_int8=share(layers),
        layers_int8=sum(layer.int8 for layer in layers),
        layers_total=len(layers),
        float_layers=tuple(layer.name for layer in layers if not layer.int8),
    )


def build(
    variant: Variant,
    *,
    model: Model,
    data: Data,
    baseline: Artifact | None,
    root: Path,
    limits: Limits,
    progress: Progress,
) -> Artifact:
    """The artifact of a variant, from the cache or built now in a child process.

    Raises ``BuildError`` (also when nothing of an int8 variant runs in int8), ``CaseSkipped``, ``WorkerError``.
    """
    backend: Backend = registry.load("backend", variant.backend)
    source = baseline if backend.builds_from_baseline and variant.mode != "fp32" else None
    variant = replace(variant, recipe=backend.resolve(variant.mode, variant.recipe))
    key = _key(variant, backend, model, data, source)

    def fill(folder: Path) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = call(
            build_here, variant, model, data, source, folder, limits=limits, progress=progress
        )
        return facts

    entry = cache.fetch(root, "artifacts", key, fill)
    return _artifact(variant, key, entry)


def _key(variant: Variant, backend: Backend, model: Model, data: Data, source: Artifact | None) -> str:
    """Everything that decides the bytes of an artifact; what a mode does not look at is left out."""
    data_digest = {
        "static": data.calibration_digest,
        "qat": data.training_digest + data.calibration_digest,
    }.get(variant.mode)
    parts = {
        "model": [model.weights_digest, model.code_digest],
        "shapes": [[str(array.dtype), list(array.shape[1:])] for array in data.evaluation(0, 1)],
        "data": data_digest,
        "recipe": asdict(variant.recipe),
        "mode": variant.mode,
        "backend": variant.backend,
        "baseline": source.sha256 if source else None,
        "versions": machine.versions(backend.libraries()),
        "isa": machine.isa(),
        "pipeline": _pipeline_digest(),
    }
    return cache.key_of(parts)


def _pipeline_digest() -> str:
    """The digest of qbench's own code that makes artifacts: a changed pipeline never answers from the cache."""
    here = Path(__file__).parent
    files = sorted([*here.glob("quant/*.py"), *here.glob("backends/*.py"), here / "build.py"])
    return cache.key_of({path.name: cache.file_digest(path) for path in files})


def build_here(
    variant: Variant, model: Model, data: Data, source: Artifact | None, folder: Path, *, progress: Progress
) -> Mapping[str, Any]:
    """Builds into a folder in this process and proves the result; the facts of the cache's entry."""
    import torch

    torch.set_num_threads(ONE_THREAD)
    backend: Backend = registry.load("backend", variant.backend)
    network = (
        Network(kind="onnx", path=source.file) if source is not None else load_network(model.reference, model.weights)
    )
    job = BuildJob(
        network=network,
        mode=variant.mode,
        recipe=variant.recipe,
        calibration=data.calibration(),
        training=data.training() if variant.mode == "qat" else None,
        folder=folder,
        progress=progress,
    )
    built = backend.build(job)
    if variant.mode != "fp32" and share(built.layers) == 0:
        raise BuildError(_nothing_in_int8(built.layers))
    return {
        "format": built.format,
        "file": built.file,
        "layers": [asdict(layer) for layer in built.layers],
        "fixed_batch": built.fixed_batch,
        "note": built.note,
        "expected": outputs_digest(backend, folder / built.file, data, built.fixed_batch or 1),
    }


def _nothing_in_int8(layers: tuple[Layer, ...]) -> str:
    names = ", ".join(f"{layer.name} ({layer.operator})" for layer in layers[:8])
    return (
        f"nothing runs in int8: all {len(layers)} layers stay float: {names or 'the model has no Conv, Linear or LSTM'}"
        "; quantize other layers, or leave this mode out"
    )


def outputs_digest(backend: Backend, file: Path, data: Data, batch: int) -> str:
    """The sha256 of an artifact's outputs on made-up inputs, on one thread: the same whatever the data set."""
    import hashlib

    import numpy as np

    runner = backend.load(file, threads=ONE_THREAD)
    with runner.context():
        outputs = runner.outputs(runner(runner.prepare(data.probe(batch))))
    return hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest()


def _artifact(variant: Variant, key: str, entry: cache.Entry) -> Artifact:
    facts = entry.facts
    file = entry.folder / facts["file"]
    return Artifact(
        mode=variant.mode,
        backend=variant.backend,
        file=file,
        format=facts["format"],
        key=key,
        sha256=cache.file_digest(file),
        size_bytes=file.stat().st_size,
        layers=tuple(Layer(**layer) for layer in facts["layers"]),
        recipe=variant.recipe,
        fixed_batch=facts["fixed_batch"],
        expected=facts["expected"],
        fresh=entry.fresh,
        notes=tuple(note for note in (facts["note"], entry.note) if note),
    )
