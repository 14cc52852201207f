"""Stage 3: variant -> Artifact, through the content-addressed cache; each build runs in a process of its own."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from qbench import backends, quant, registry
from qbench.backends import fp32_twin
from qbench.backends.base import Backend, BuildJob, Built
from qbench.backends.int8_coverage import require_int8, require_named, summarize_coverage
from qbench.cache import manifest, store
from qbench.cache.root import UNFINISHED
from qbench.data import Data
from qbench.errors import BuildError, CaseSkipped
from qbench.machine import fingerprint
from qbench.modes import is_int8
from qbench.network import Model, load_network
from qbench.plan.planner import Variant
from qbench.process.child_process import Limits, call
from qbench.process.threads import set_torch
from qbench.progress.callback import Progress
from qbench.quant import training_code
from qbench.quant.recipe import Recipe, key_parts
from qbench.record.schema import ArtifactFacts, Record

SHARED_FILE = "ranges.pt"
ONE_THREAD = 1  # builds run beside each other, and one thread gives the same bytes every time


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """The file of a variant in the cache and, in ``built``, all that is known of how it came about. ``recipe`` has no
    open choices; ``repair`` says that a damaged copy had to be made again."""

    mode: str
    backend: str
    recipe: Recipe
    file: Path
    key: str
    sha256: str
    size_bytes: int
    fresh: bool
    built: Built
    repair: str | None = None

    def facts(self) -> ArtifactFacts:
        """What a record says of it."""
        values: dict[str, Any] = {
            **vars(self),
            **vars(self.built),
            **vars(self.built.conversion),
            "coverage": None if self.mode == "fp32" else summarize_coverage(self.built, self.mode),
            "cached": not self.fresh,
            "note": "; ".join(note for note in (self.built.note, self.repair) if note) or None,
        }
        return ArtifactFacts(**{field.name: values[field.name] for field in fields(ArtifactFacts)})


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
    kept: Path | None = None,
    run_child: Callable[..., Any] = call,
) -> Artifact:
    """The artifact of a variant, from the cache or built now in a child process, which ``run_child`` starts here
    (``child_process.call``) or on another machine of this kind. ``watched``: one that only tells where its time goes.
    ``kept``: the file in the cache that an earlier run built of it, which is then taken as it is.

    Raises ``BuildError`` (also when nothing of an int8 variant runs in int8), ``CaseSkipped`` (also when nothing of a
    bf16 or fp16 one runs in that), ``WorkerError``.
    """
    backend: Backend = registry.load("backend", variant.backend)
    variant = replace(variant, recipe=backend.resolve(variant.mode, variant.recipe))
    watched = watched and backend.watched_builds
    key = _make_key(variant, backend, model, data, watched, kept)

    def fill(folder: Path) -> Mapping[str, Any]:
        trained = variant.mode in ("qat", "fp32") and variant.recipe.trains  # the fp32 that trains is a twin
        if trained and variant.recipe.file is None and not train_qat and kept is None:
            raise CaseSkipped(_NOT_TRAINED)
        facts: Mapping[str, Any] = run_child(
            build_here, variant, model, data, folder, (root, key), watched, kept, limits=limits, progress=progress
        )
        return facts

    entry = store.fetch(root, "artifacts", key, fill, _read_built)
    shutil.rmtree(root / UNFINISHED / key, ignore_errors=True)
    return _make_artifact(variant.mode, variant.backend, variant.recipe, entry)


def read_kept(file: Path, record: Record) -> Artifact:
    """The artifact of a record whose file lies in an entry of the cache, or in a copy of one that another machine made;
    raises ``BuildError`` where the entry is not whole."""
    try:
        listed = manifest.read(file.parent)
        entry = store.Entry(folder=file.parent, files=frozenset(listed.files), facts=listed.facts, fresh=False)
        return _make_artifact(record.case.mode, record.case.backend, Recipe(), entry)
    except (manifest.Damaged, ValueError) as error:
        raise BuildError(f"{file.parent}: not an artifact that qbench kept: {error}") from error


_NOT_TRAINED = (
    "it would have to be trained, which a quick look leaves out (limits.train_qat: false); run the suite without "
    "--quick once: from then on quick looks take it from the cache"
)


def _make_key(
    variant: Variant, backend: Backend, model: Model, data: Data, watched: bool = False, kept: Path | None = None
) -> str:
    """Everything that decides the bytes of an artifact; what a mode does not look at is left out."""
    data_digest = {
        "fp32": data.training_digest + data.calibration_digest if variant.recipe.trains else None,
        "static": data.calibration_digest,
        "qat": data.training_digest + data.calibration_digest,
    }.get(variant.mode)
    if variant.recipe.file is not None:  # it was calibrated elsewhere; the examples only try it
        data_digest = model.int8_digests[variant.recipe.name]
    int8_file = variant.model.own_int8(variant.recipe.name)
    code = training_code.digests(variant.recipe, _base(data)) if variant.mode in ("qat", "fp32") else {}
    ingredients: dict[str, Any] = {
        "model": _list_model_digests(model),
        "shapes": [[str(array.dtype), list(array.shape[1:])] for array in data.evaluation(0, 1)],
        "data": data_digest,
        "recipe": {**key_parts(variant.recipe), "name": None, "min_coverage": _failing_coverage(variant)},
        "mode": variant.mode,
        "backend": variant.backend,
        "versions": fingerprint.versions(backend.libraries()),
        "toolchain": backend.toolchain(),
        "isa": [fingerprint.isa(), fingerprint.switches()],
        "pipeline": _pipeline_digest(),
        "engine": int8_file and int8_file.engine,  # its note says who named it
        "training code": code,
        "watched": watched,
        "kept": None if kept is None else store.file_digest(kept),
    }
    return store.key_of({**ingredients, **_digest_calibrator(variant)})


def _base(data: Data) -> Path | None:
    """The suite's folder, at which the paths of the user's files start."""
    return None if data.request is None else data.request.base


def _failing_coverage(variant: Variant) -> float | None:
    """The share of int8 below which a build fails; None for a dynamic variant, which is then only labelled so."""
    return None if variant.mode == "dynamic" else variant.recipe.min_coverage


def _list_model_digests(model: Model) -> list[str]:
    return [model.weights_digest, model.code_digest]


def _digest_calibrator(variant: Variant) -> dict[str, str]:
    """The digest of the code of the variant's calibrator where a package other than qbench brings it; empty for
    qbench's own, whose code is part of the pipeline."""
    name = variant.recipe.calibrator
    if name is None or name in registry.BUILT_IN["calibrator"]:
        return {}
    return {"calibrator": store.source_digest(sys.modules[registry.load("calibrator", name).__module__])}


def _fetch_shared(
    root: Path, common: Mapping[str, Any], ingredients: Mapping[str, Any], make: Callable[[Path], None]
) -> Path:
    """The file that ``make`` writes of these ingredients, made once: whoever comes second waits for it and reads it."""

    def fill(folder: Path) -> Mapping[str, Any]:
        make(folder / SHARED_FILE)
        return {}

    code = {"versions": fingerprint.versions(["torch"]), "pipeline": _pipeline_digest()}
    return store.fetch(root, "shared", store.key_of({**common, **ingredients, **code}), fill).folder / SHARED_FILE


def _pipeline_digest() -> str:
    """The digest of qbench's own code that makes artifacts: a changed pipeline never answers from the cache."""
    return store.source_digest(quant, backends, sys.modules[__name__])


def build_here(
    variant: Variant,
    model: Model,
    data: Data,
    folder: Path,
    cache_entry: tuple[Path, str],
    watched: bool = False,
    kept: Path | None = None,
    *,
    progress: Progress,
) -> Mapping[str, Any]:
    """Builds into a folder in this process and proves the result; the facts of the cache's entry. What was ``kept`` is
    copied, and proven to run.

    ``cache_entry`` is the open cache and the entry's key: there a build that is killed keeps what the next one goes on
    from, and builds of one network on the same calibration data share what they have in common.
    """
    set_torch(ONE_THREAD)
    backend: Backend = registry.load("backend", variant.backend)
    (root, key), int8_file = cache_entry, model.reference.own_int8(variant.recipe.name)
    job = BuildJob(
        network=load_network(model.reference, model.weights),
        mode=variant.mode,
        recipe=variant.recipe,
        calibration=data.calibration(),
        training=data.training() if kept is None and (variant.mode == "qat" or variant.recipe.trains) else None,
        folder=folder,
        int8_file=None if int8_file is None else int8_file.path,
        int8_engine=None if int8_file is None else int8_file.engine,
        checkpoints=root / UNFINISHED / key,
        base=_base(data),
        shared=functools.partial(
            _fetch_shared,
            root,
            {"model": _list_model_digests(model), "data": data.calibration_digest, **_digest_calibrator(variant)},
        ),
        watched=watched,
        progress=progress,
    )
    training_note = None
    if variant.mode == "fp32" and variant.recipe.trains and kept is None:
        job, training_note = fp32_twin.trained(job)
    built = backend.build(job) if kept is None else _take_kept(backend, job, kept)
    if kept is not None:
        pass  # whatever share of it runs in int8 here is what one wants to know
    elif is_int8(variant.mode):
        require_int8(built, _failing_coverage(variant))
    elif variant.mode != "fp32":
        require_named(built, variant.mode)
    conversion = built.conversion.with_notes(training_note, *built.conversion.notes)
    expected = outputs_digest(backend, folder / built.file, data, built.fixed_batch or 1)
    facts = asdict(replace(built, conversion=conversion, expected=expected))
    return {**facts.pop("conversion"), **facts}


def _take_kept(backend: Backend, job: BuildJob, file: Path) -> Built:
    """What an earlier build left, copied into the job's folder, with the layers that run here."""
    listed = manifest.read(file.parent)
    for name in listed.files:
        (job.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.parent / name, job.folder / name)
    entry = store.Entry(folder=file.parent, files=frozenset(listed.files), facts=listed.facts, fresh=False)
    before = _read_built(entry)
    backend.load(job.folder / before.file, threads=ONE_THREAD)  # first: why it does not load is what one wants to know
    layers = backend.read_layers(job, job.folder / before.file)
    return before if layers is None else replace(before, layers=layers, uncounted=None)


def outputs_digest(backend: Backend, file: Path, data: Data, batch: int) -> str:
    """The sha256 of an artifact's outputs on made-up inputs, on one thread: the same whatever the data set."""
    runner = backend.load(file, threads=ONE_THREAD)
    with runner.context():
        return runner.digest(data.probe(batch))


_BUILT: TypeAdapter[Built] = TypeAdapter(Built)


def _read_built(entry: store.Entry) -> Built:
    """What ``build_here`` said of an entry; raises ``ValueError`` where it is nothing of an artifact in this folder."""
    built = _BUILT.validate_python({**entry.facts, "conversion": entry.facts})
    if built.file not in entry.files:
        raise ValueError(f"it names {built.file[:80]!r}, which is no file of it")
    if not built.expected:
        raise ValueError("it does not tell what its outputs are")
    return built


def _make_artifact(mode: str, backend: str, recipe: Recipe, entry: store.Entry) -> Artifact:
    built = _read_built(entry)
    file = entry.folder / built.file
    return Artifact(
        mode=mode,
        backend=backend,
        recipe=recipe,
        file=file,
        key=entry.folder.name,
        sha256=store.file_digest(file),
        size_bytes=file.stat().st_size,
        fresh=entry.fresh,
        built=built,
        repair=entry.note,
    )
