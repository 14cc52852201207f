"""Stage 3: variant -> Artifact, through the content-addressed cache; each build runs in a process of its own."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qbench import backends, quant, registry
from qbench.backends import fp32_twin
from qbench.backends.base import Backend, BuildJob, Built
from qbench.backends.int8_coverage import require_int8, summarize_coverage
from qbench.cache import manifest, store
from qbench.cache.root import UNFINISHED
from qbench.data import Data
from qbench.errors import BuildError, CaseSkipped
from qbench.machine import fingerprint
from qbench.network import Model, load_network
from qbench.plan.planner import Variant
from qbench.process.parent import Limits, call
from qbench.progress.callback import Progress
from qbench.quant import training_code
from qbench.quant.analysis.quantized_range import Ranges
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.recipe import Recipe, key_parts
from qbench.record.schema import ArtifactFacts, Record, TargetFacts

SHARED_FILE = "ranges.pt"
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
    float_reasons: Mapping[str, str] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()
    rewrite_difference: float | None = None
    layer_numbers: tuple[Mapping[str, Any], ...] = ()
    input_ranges: Ranges = ()
    uncounted: str | None = None
    target: TargetFacts | None = None

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of one example; None where not all of them can be counted."""
        counted = [layer.macs for layer in self.layers if layer.macs is not None]
        return None if self.uncounted or len(counted) < len(self.layers) else sum(counted)

    def facts(self) -> ArtifactFacts:
        """What a record says of it."""
        int8 = None if self.mode == "fp32" else summarize_coverage(self.layers, self.float_reasons, self.uncounted)
        return ArtifactFacts(
            format=self.format,
            sha256=self.sha256,
            size_bytes=self.size_bytes,
            coverage=int8,
            key=self.key,
            cached=not self.fresh,
            note="; ".join(self.notes) or None,
            rewrites=self.rewrites,
            rewrite_difference=self.rewrite_difference,
            target=self.target,
        )


def build(
    variant: Variant,
    *,
    model: Model,
    data: Data,
    root: Path,
    limits: Limits,
    progress: Progress,
    train_qat: bool = True,
    watched: bool = False,
    run_child: Callable[..., Any] = call,
) -> Artifact:
    """The artifact of a variant, from the cache or built now in a child process, which ``run_child`` starts here
    (``parent.call``) or on another machine of this kind. ``watched``: one that is only to tell where its time goes.

    Raises ``BuildError`` (also when nothing of an int8 variant runs in int8), ``CaseSkipped``, ``WorkerError``.
    """
    backend: Backend = registry.load("backend", variant.backend)
    variant = replace(variant, recipe=backend.resolve(variant.mode, variant.recipe))
    watched = watched and backend.watched_builds
    key = _make_key(variant, backend, model, data, watched)

    def fill(folder: Path) -> Mapping[str, Any]:
        trained = variant.mode in ("qat", "fp32") and variant.recipe.trains  # the fp32 that trains is a twin
        if trained and variant.recipe.file is None and not train_qat:
            raise CaseSkipped(_NOT_TRAINED)
        facts: Mapping[str, Any] = run_child(
            build_here, variant, model, data, folder, (root, key), watched, limits=limits, progress=progress
        )
        return facts

    entry = store.fetch(root, "artifacts", key, fill, lambda entry: _read_artifact(variant, key, entry))
    shutil.rmtree(root / UNFINISHED / key, ignore_errors=True)
    return _read_artifact(variant, key, entry)


def read_kept(file: Path, record: Record) -> Artifact:
    """The artifact of a record whose file lies in an entry of the cache, or in a copy of one that another machine made;
    raises ``BuildError`` where the entry is not whole."""
    try:
        listed = manifest.read(file.parent)
        entry = store.Entry(folder=file.parent, files=frozenset(listed.files), facts=listed.facts, fresh=False)
        facts = _FACTS.validate_python(entry.facts)
    except (manifest.Damaged, ValidationError) as error:
        raise BuildError(f"{file.parent}: not an artifact that qbench kept: {error}") from error
    return _make_artifact(record.case.mode, record.case.backend, Recipe(), file.parent.name, entry, facts)


_NOT_TRAINED = (
    "it would have to be trained, which a quick look leaves out (limits.train_qat: false); run the suite without "
    "--quick once: from then on quick looks take it from the cache"
)


def _make_key(variant: Variant, backend: Backend, model: Model, data: Data, watched: bool = False) -> str:
    """Everything that decides the bytes of an artifact; what a mode does not look at is left out."""
    data_digest = {
        "fp32": data.training_digest + data.calibration_digest if variant.recipe.trains else None,
        "static": data.calibration_digest,
        "qat": data.training_digest + data.calibration_digest,
    }.get(variant.mode)
    if variant.recipe.file is not None:  # it was calibrated elsewhere; the examples only try it
        data_digest = model.int8_digests[variant.recipe.name]
    parts: dict[str, Any] = {
        "model": _model_parts(model),
        "shapes": [[str(array.dtype), list(array.shape[1:])] for array in data.evaluation(0, 1)],
        "data": data_digest,
        "recipe": {**key_parts(variant.recipe), "name": None, "min_coverage": _failing_coverage(variant)},
        "mode": variant.mode,
        "backend": variant.backend,
        "versions": fingerprint.versions(backend.libraries()),
        "toolchain": backend.toolchain(),
        "isa": [fingerprint.isa(), fingerprint.switches()],
        "pipeline": _pipeline_digest(),
    }
    own = variant.model.own_int8(variant.recipe.name)
    parts |= {"engine": own.engine} if own is not None and own.engine is not None else {}  # its note says who named it
    code = training_code.digests(variant.recipe, _base(data)) if variant.mode in ("qat", "fp32") else {}
    parts |= {"training code": code} if code else {}
    return store.key_of({**parts, **_calibrator_parts(variant), **({"watched": True} if watched else {})})


def _base(data: Data) -> Path | None:
    """The suite's folder, at which the paths of the user's files start."""
    return None if data.request is None else data.request.base


def _failing_coverage(variant: Variant) -> float | None:
    """The share of int8 below which a build fails; None for a dynamic variant, which is then only labelled so."""
    return None if variant.mode == "dynamic" else variant.recipe.min_coverage


def _model_parts(model: Model) -> list[str]:
    return [model.weights_digest, model.code_digest]


def _calibrator_parts(variant: Variant) -> dict[str, str]:
    """The digest of the code of the variant's calibrator where a package other than qbench brings it; empty for
    qbench's own, whose code is part of the pipeline."""
    name = variant.recipe.calibrator
    if name is None or name in registry.BUILT_IN["calibrator"]:
        return {}
    return {"calibrator": store.source_digest(sys.modules[registry.load("calibrator", name).__module__])}


def _fetch_shared(
    root: Path, common: Mapping[str, Any], parts: Mapping[str, Any], make: Callable[[Path], None]
) -> Path:
    """The file that ``make`` writes for these parts, made once: whoever comes second waits for it and reads it."""

    def fill(folder: Path) -> Mapping[str, Any]:
        make(folder / SHARED_FILE)
        return {}

    key = store.key_of({**common, **parts, "versions": fingerprint.versions(["torch"]), "pipeline": _pipeline_digest()})
    return store.fetch(root, "shared", key, fill).folder / SHARED_FILE


def _pipeline_digest() -> str:
    """The digest of qbench's own code that makes artifacts: a changed pipeline never answers from the cache."""
    return store.source_digest(quant, backends, sys.modules[__name__])


def build_here(
    variant: Variant,
    model: Model,
    data: Data,
    folder: Path,
    place: tuple[Path, str],
    watched: bool = False,
    *,
    progress: Progress,
) -> Mapping[str, Any]:
    """Builds into a folder in this process and proves the result; the facts of the cache's entry.

    ``place`` is the open cache and the entry's key: there a build that is killed keeps what the next one goes on from,
    and builds of one network on the same calibration data share what they have in common.
    """
    import torch

    torch.set_num_threads(ONE_THREAD)
    backend: Backend = registry.load("backend", variant.backend)
    own = model.reference.own_int8(variant.recipe.name)
    job = BuildJob(
        network=load_network(model.reference, model.weights),
        mode=variant.mode,
        recipe=variant.recipe,
        calibration=data.calibration(),
        training=data.training() if variant.mode == "qat" or variant.recipe.trains else None,
        folder=folder,
        int8_file=None if own is None else own.path,
        int8_engine=None if own is None else own.engine,
        checkpoints=place[0] / UNFINISHED / place[1],
        base=_base(data),
        shared=functools.partial(
            _fetch_shared,
            place[0],
            {"model": _model_parts(model), "data": data.calibration_digest, **_calibrator_parts(variant)},
        ),
        watched=watched,
        progress=progress,
    )
    training_note = None
    if variant.mode == "fp32" and variant.recipe.trains:
        job, training_note = fp32_twin.trained(job)
    built = backend.build(job)
    if variant.mode != "fp32":
        require_int8(built, _failing_coverage(variant))
    note = "; ".join(note for note in (training_note, built.note) if note) or None
    expected = outputs_digest(backend, folder / built.file, data, built.fixed_batch or 1)
    return {**asdict(built), "note": note, "expected": expected}


def outputs_digest(backend: Backend, file: Path, data: Data, batch: int) -> str:
    """The sha256 of an artifact's outputs on made-up inputs, on one thread: the same whatever the data set."""
    runner = backend.load(file, threads=ONE_THREAD)
    with runner.context():
        return runner.digest(data.probe(batch))


@dataclass(frozen=True, kw_only=True)
class _Facts(Built):
    """What ``build_here`` said of an entry, read back."""

    expected: str


_FACTS: TypeAdapter[_Facts] = TypeAdapter(_Facts)


def _read_artifact(variant: Variant, key: str, entry: store.Entry) -> Artifact:
    """The artifact in an entry; raises ``ValueError`` for facts that are none of an artifact in this folder."""
    facts = _FACTS.validate_python(entry.facts)
    if facts.file not in entry.files:
        raise ValueError(f"it names {facts.file[:80]!r}, which is no file of it")
    return _make_artifact(variant.mode, variant.backend, variant.recipe, key, entry, facts)


def _make_artifact(mode: str, backend: str, recipe: Recipe, key: str, entry: store.Entry, facts: _Facts) -> Artifact:
    file = entry.folder / facts.file
    return Artifact(
        mode=mode,
        backend=backend,
        file=file,
        format=facts.format,
        key=key,
        sha256=store.file_digest(file),
        size_bytes=file.stat().st_size,
        layers=facts.layers,
        recipe=recipe,
        fixed_batch=facts.fixed_batch,
        expected=facts.expected,
        fresh=entry.fresh,
        notes=tuple(note for note in (facts.note, entry.note) if note),
        float_reasons=facts.float_reasons,
        rewrites=facts.rewrites,
        rewrite_difference=facts.rewrite_difference,
        layer_numbers=facts.layer_numbers,
        input_ranges=facts.input_ranges,
        uncounted=facts.uncounted,
        target=facts.target,
    )
