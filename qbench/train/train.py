"""The fp32 weights of a built-in model: trained on a suite's data, kept in the cache; a killed training goes on.

`qbench train` and `qbench run` come here with the same key: what one has trained the other finds.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from qbench import registry
from qbench.cache import store
from qbench.cache.root import UNFINISHED
from qbench.data import Data, DataRequest, request_of
from qbench.data_preparation import prepare_data, require_not_trained_on
from qbench.errors import ModelError, UnknownName, UsageError
from qbench.files import atomic
from qbench.machine import fingerprint
from qbench.models import dry_run, sharded_gradients
from qbench.models import trainer as training
from qbench.models import weights as weights_file
from qbench.models.base import BuiltIn, ModelReference, Network, Training
from qbench.models.trainer import TrainingOutcome
from qbench.process.child_process import Limits, call
from qbench.process.threads import set_torch
from qbench.progress.callback import Progress
from qbench.progress.live import Silent
from qbench.stats import intervals
from qbench.stats.interval_type import Interval
from qbench.suite import Suite
from qbench.train.training_set import TrainingSet, choose_training_set, open_dataset

KIND = "trained"
# A training tells how far it is and keeps its state, so no stage's limit ends it.
TRAINING_SECONDS = 14 * 86_400.0
_OUTCOME: TypeAdapter[TrainingOutcome] = TypeAdapter(TrainingOutcome)
_TRIED = 2  # examples on which a network is tried before it is trained
_BATCH = 256  # held-out examples predicted at once on one core


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A built-in's weights in the cache. ``reference`` has the arguments that follow from the data; ``examples`` of
    ``split`` of ``dataset`` were learned from; ``outcome`` is that of the training, ``fresh`` whether it was now."""

    reference: ModelReference
    file: Path
    training: Training
    dataset: str
    split: str
    examples: int
    outcome: TrainingOutcome
    fresh: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a training led to: ``accuracy`` (top1, null where there are no labels) on ``evaluated`` held-out examples of
    ``held_out``."""

    trained: Trained
    accuracy: Interval | None
    evaluated: int
    held_out: str
    notes: tuple[str, ...] = field(default=())


def train(
    suite: Suite,
    name: str,
    *,
    changes: Mapping[str, Any],
    cores: int | None,
    progress: Silent,
) -> Report:
    """Trains a built-in on the suite's data set in a process of its own, or finds its weights in the cache.

    ``changes`` replace fields of its ``Training``; the weights are the same on any number of ``cores``. Raises
    ``UsageError`` for a model that is not trained here, ``DataError`` and ``ModelError`` as ``train_builtin`` does.
    """
    rate = changes.get("learning_rate")
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"--learning-rate: expected a number above 0, got {rate:g}")
    reference = reference_of(suite, name)
    reference = replace(reference, training={**reference.training, **changes})
    request = request_of(suite.data, suite.base, train=False)
    limits = Limits(seconds=TRAINING_SECONDS, memory_bytes=suite.limits.memory_bytes)
    progress.stage("train", 1)
    root = store.open_cache()
    with store.in_use(root):
        report: Report = call(_report, reference, request, root, cores, limits=limits, progress=progress.advance)
    progress.advance(name)
    return report


def reference_of(suite: Suite, name: str) -> ModelReference:
    """The model as the suite has it, or any built-in that can be trained; raises ``UsageError`` for others."""
    reference = next(
        (candidate for candidate in suite.references() if candidate.name == name), ModelReference(name=name)
    )
    trainable = [candidate for candidate in registry.names("model") if is_trained(ModelReference(name=candidate))]
    if reference.source is not None:
        reason = "is a model of your own, with its own weights"
    elif reference.weights is not None:
        reason = f"has weights there already, {reference.weights}; remove `weights` to train it"
    elif name not in registry.names("model"):
        raise UnknownName(f"{registry.unknown('model', name, trainable)} (those that qbench trains)")
    elif name not in trainable:
        reason = "comes with its weights"
    else:
        return reference
    raise UsageError(f"{suite.file}: {name} {reason}; qbench trains {', '.join(trainable)}")


def is_trained(reference: ModelReference) -> bool:
    """Are its weights made here?"""
    if reference.source is not None or reference.weights is not None:
        return False
    builtin: BuiltIn = registry.load("model", reference.name)
    return builtin.training is not None


def train_builtin(
    reference: ModelReference,
    data: Data,
    request: DataRequest,
    root: Path,
    *,
    cores: int | None = None,
    progress: Progress,
) -> Trained:
    """The weights of a built-in for the data that was asked for: from the cache, or trained now.

    It learns from the data set's training split, or from its own data set where that has no labels. Raises
    ``DataError`` where it would learn from evaluation examples, ``ModelError`` where it does not take the data or its
    loss is no longer finite.
    """
    builtin: BuiltIn = registry.load("model", reference.name)
    if builtin.training is None:
        raise ModelError(f"{builtin.name} is not trained here: its weights come with a package")
    progress("read the training examples", 0.0)
    training_set = choose_training_set(builtin, request)
    overlap_note = require_not_trained_on(data, training_set.examples, name=builtin.name)
    plan = replace(builtin.training, **reference.training)
    args = builtin.arguments(training_set.examples.inputs[0].shape[1:], training_set.classes)
    key = _key(replace(reference, args=args), plan, training_set)

    def fill(folder: Path) -> Mapping[str, Any]:
        module = training.fresh(replace(builtin, training=plan), **args)
        _require_fit(module, training_set, builtin.name)
        outcome = training.train(
            module,
            training_set.examples.inputs,
            training_set.labels,
            plan,
            progress,
            preprocess=training_set.dataset.preprocessing,
            cores=cores or len(fingerprint.allowed_cores()),
            checkpoints=training.Checkpoints(
                folder=root / UNFINISHED / key, key=key, seconds=training.CHECKPOINT_SECONDS
            ),
            loss=builtin.loss,
        )
        weights_file.save_weights(module, folder / "model.safetensors")
        return asdict(outcome)

    entry = store.fetch(root, KIND, key, fill, lambda entry: _OUTCOME.validate_python(entry.facts))
    shutil.rmtree(root / UNFINISHED / key, ignore_errors=True)
    damaged = f"{builtin.name}: {entry.note}" if entry.note else None
    return Trained(
        reference=replace(reference, args=args),
        file=entry.folder / "model.safetensors",
        training=plan,
        dataset=training_set.dataset.name,
        split=training_set.split,
        examples=len(training_set.examples),
        outcome=_OUTCOME.validate_python(entry.facts),
        fresh=entry.fresh,
        notes=tuple(note for note in (training_set.note, damaged, overlap_note) if note),
    )


def _require_fit(module: Any, training_set: TrainingSet, name: str) -> None:
    """A network that does not take the data is found before an epoch is."""
    inputs = training_set.dataset.preprocessing(tuple(array[:_TRIED] for array in training_set.examples.inputs))
    try:
        dry_run.try_outputs(Network(kind="torch", module=module.eval()), inputs)
    except dry_run.Misfit as error:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        raise ModelError(f"{name} does not take this data ({shapes}): {error}") from error


def _key(reference: ModelReference, plan: Training, training_set: TrainingSet) -> str:
    """Everything that decides the weights; the number of cores does not."""
    return store.key_of(
        {
            "model": reference.name,
            "args": dict(reference.args),
            "code": [weights_file.code_digest(reference), store.source_digest(sharded_gradients)],
            "training": repr(plan),
            "data": [training_set.examples.digest(), training_set.dataset.preprocessing.digest()],
            "versions": fingerprint.versions(("torch",)),
        }
    )


def _report(
    reference: ModelReference, request: DataRequest, root: Path, cores: int | None, *, progress: Progress
) -> Report:
    """Runs in a child process."""
    data = prepare_data(request, root, progress=lambda text, share: progress(text, 0.0))
    done = train_builtin(reference, data, request, root, cores=cores, progress=progress)
    labels = data.evaluation_labels()
    accuracy = None
    if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iub":
        progress("predict the held-out examples", 1.0)
        right = _right(done, data, labels, root, cores or len(fingerprint.allowed_cores()))
        accuracy = intervals.proportion(right, data.evaluation_count)
    return Report(
        trained=done,
        accuracy=accuracy,
        evaluated=data.evaluation_count,
        held_out=f"{open_dataset(request).name}/{request.evaluate_split}",
        notes=(*data.notes, *done.notes),
    )


def _right(done: Trained, data: Data, labels: Any, root: Path, cores: int) -> int:
    """How many held-out examples the trained network predicts rightly; kept in the cache, too."""

    def fill(folder: Path) -> Mapping[str, Any]:
        import torch

        module = training.fresh(registry.load("model", done.reference.name), **done.reference.args).eval()
        weights_file.load_weights(module, done.file)

        def count(start: int) -> int:
            inputs = data.evaluation(start, start + _BATCH)
            with torch.inference_mode():
                outputs = module(*map(torch.from_numpy, inputs)).numpy()
            return int((outputs.argmax(axis=1) == labels[start : start + _BATCH]).sum())

        with ThreadPoolExecutor(cores, initializer=set_torch, initargs=(1,)) as pool:
            return {"right": sum(pool.map(count, range(0, data.evaluation_count, _BATCH)))}

    key = store.key_of({"weights": store.file_digest(done.file), "evaluation": data.evaluation_digest})
    entry = store.fetch(root, "held-out", key, fill, lambda entry: int(entry.facts["right"]))
    return int(entry.facts["right"])


def require_writable(file: Path | None) -> None:
    """Raises ``UsageError`` before the training where the weights could not be written after it."""
    if file is None:
        return
    if file.suffix != ".safetensors":
        raise UsageError(f"{file}: weights are written as safetensors; give a name that ends in .safetensors")
    if file.is_dir():
        raise UsageError(f"{file}: a folder has this name; name a file")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}; make it first")


def write(report: Report, file: Path) -> None:
    """Copies the weights to a file of the user's, in one move; raises ``UsageError`` where it cannot be written."""
    try:
        with atomic.replace_file(file) as part:
            shutil.copyfile(report.trained.file, part)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from error
