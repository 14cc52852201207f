"""The examples of a run are read, checked, kept apart, and put into the cache.

``prepare_data`` runs in a child process (user code); later stages read the examples memory-mapped (``data``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.cache import store
from qbench.data import CONTENTS, CalibrationSubset, Data, DataRequest
from qbench.datasets import overlap, validation
from qbench.datasets.base import Dataset, Examples
from qbench.errors import DataError, first_names
from qbench.progress.callback import Progress

Array = NDArray[Any]
WAY_OUT = (
    "take them out of one of the two, evaluate on another split, or set `data: {overlap: allow}` where that is meant"
)
SHOWN = 5  # classes in a note


@dataclass(frozen=True, kw_only=True)
class _ReadExamples:
    """What was read of a data set: ``calibrate`` by seed, the one that is shipped first; ``labels`` of the whole
    calibration split where they are known."""

    calibrate: Mapping[int, Examples]
    train: Examples
    evaluate: Examples
    labels: Array | None = None
    evaluate_of: int | None = None

    @property
    def first(self) -> Examples:
        return next(iter(self.calibrate.values()))


def prepare_data(request: DataRequest, root: Path, *, progress: Progress) -> Data:
    """Reads, checks and caches the examples; raises ``DataError`` with what to do, also where the evaluation has
    examples that calibration or training has, too, unless the request allows it."""
    progress("read data", 0.1)
    dataset: Dataset = registry.load("dataset", request.loader)(
        request.value, base=request.base, options=request.options
    )
    for split in (request.calibrate_split, request.evaluate_split):
        validation.require_split(dataset, split)
    read = _read_examples(dataset, request)
    progress("compare calibration, training and evaluation examples", 0.6)
    shared = _require_no_overlap(dataset, request, read)
    notes = (*dataset.notes, *_list_notes(request, read))
    progress("keep the examples", 0.8)
    data = _store_examples(dataset, request, read, root)
    return replace(data, notes=(*notes, *data.notes), shared_examples=shared)


def _read_examples(dataset: Dataset, request: DataRequest) -> _ReadExamples:
    seeds = range(request.calibrate_seed, request.calibrate_seed + request.calibrate_seeds)
    train = dataset.sample(request.calibrate_split, None, 0) if request.train else None
    calibrate = request.calibrate_samples
    if request.calibrate_by_default:
        calibrate = max(1, min(calibrate, dataset.count(request.calibrate_split)))
    drawn = {seed: dataset.sample(request.calibrate_split, calibrate, seed) for seed in seeds}
    labels = dataset.known_labels(request.calibrate_split)
    most, samples, of = request.evaluate_at_most, request.evaluate_samples, None
    if most is not None:
        of = dataset.count(request.evaluate_split) if samples is None else samples
        samples = min(most, of)
    evaluate = dataset.sample(request.evaluate_split, samples, request.evaluate_seed)
    for examples in (*drawn.values(), *([] if train is None else [train])):
        validation.check_dataset(dataset, request.calibrate_split, examples)
    validation.check_dataset(dataset, request.evaluate_split, evaluate)
    first = drawn[request.calibrate_seed]
    validation.require_alike(dataset, {request.calibrate_split: first, request.evaluate_split: evaluate})
    return _ReadExamples(
        calibrate=_drop_repeated_subsets(drawn),
        train=first if train is None else train,
        evaluate=evaluate,
        labels=labels,
        evaluate_of=of,
    )


def _drop_repeated_subsets(drawn: Mapping[int, Examples]) -> dict[int, Examples]:
    """Each subset once, with the first seed that drew it: a split may hold too few examples for several."""
    seeds: dict[str, int] = {}
    for seed, examples in drawn.items():
        seeds.setdefault(examples.digest(), seed)
    return {seed: drawn[seed] for seed in seeds.values()}


def _require_no_overlap(dataset: Dataset, request: DataRequest, read: _ReadExamples) -> int:
    """How many evaluation examples calibration or training has, too; ``DataError`` unless that is allowed."""
    learned_from = [read.train] if request.train else list(read.calibrate.values())
    shared = overlap.find_shared(learned_from, read.evaluate)
    if shared and not request.allow_overlap:
        raise DataError(
            f"{dataset.name}: {len(shared)} of {len(read.evaluate)} examples of the split '{request.evaluate_split}' "
            f"{'is' if len(shared) == 1 else 'are'} also among the {'training' if request.train else 'calibration'} "
            f"examples of '{request.calibrate_split}': {overlap.describe_pairs(read.evaluate, shared, learned_from)}; "
            f"a score on examples that were seen before proves nothing: {WAY_OUT}"
        )
    return len(shared)


def require_not_trained_on(data: Data, trained_on: Examples, *, name: str) -> str | None:
    """Raises ``DataError`` where a network was trained on evaluation examples; where the suite allows it, a note."""
    evaluate = data.evaluation_examples()
    shared = overlap.find_shared([trained_on], evaluate)
    if not shared:
        return None
    if data.allow_overlap:
        return f"{name} was trained on {len(shared)} of the {len(evaluate)} evaluation examples"
    raise DataError(
        f"{name} was trained on {len(shared)} of the {len(evaluate)} evaluation examples: "
        f"{overlap.describe_pairs(evaluate, shared, [trained_on])}; {WAY_OUT}"
    )


def _list_notes(request: DataRequest, read: _ReadExamples) -> tuple[str, ...]:
    notes = []
    if repeated := overlap.find_repeated(read.evaluate):
        notes.append(
            f"{repeated} of {len(read.evaluate)} evaluation examples repeat an earlier one; intervals count them as "
            "independent, so they are too narrow"
        )
    if len(read.first) < request.calibrate_samples:
        notes.append(
            f"calibration takes all {len(read.first)} examples of '{request.calibrate_split}': by default it takes "
            f"{request.calibrate_samples}; `data: {{calibrate: {{samples: {len(read.first)}}}}}` says that it is meant"
        )
    notes += _list_class_notes(request, read)
    if (drawn := len(read.calibrate)) < request.calibrate_seeds:
        notes.append(
            f"calibrate.seeds: {request.calibrate_seeds} seeds draw {drawn} different "
            f"{'subset' if drawn == 1 else 'subsets'} of {len(read.first)} examples from split "
            f"'{request.calibrate_split}'; take fewer samples to see what the draw matters"
        )
    return tuple(notes)


def _list_class_notes(request: DataRequest, read: _ReadExamples) -> list[str]:
    """Classes that nothing but the evaluation has, and labels that are all the same."""
    labels = read.evaluate.labels
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return []
    present = np.unique(labels)
    notes = []
    if len(present) == 1 and len(labels) > 1:
        notes.append(
            f"all {len(labels)} evaluation examples are of class {present[0]}: a network that always answers it is "
            "right on every one; is the split sorted by class, or are the labels all the same?"
        )
    if read.labels is not None and read.labels.ndim == 1 and read.labels.dtype.kind in "iu":
        unseen = [int(label) for label in np.setdiff1d(present, read.labels)]
        if unseen:
            count = int(np.isin(labels, unseen).sum())
            notes.append(
                f"{len(unseen)} of {len(present)} classes of '{request.evaluate_split}' are not in "
                f"'{request.calibrate_split}': {first_names(unseen, SHOWN)} ({count} of {len(labels)} evaluation "
                "examples); do both splits number the classes alike?"
            )
    return notes


def _store_examples(dataset: Dataset, request: DataRequest, read: _ReadExamples, root: Path) -> Data:
    arrays = {
        f"calibrate{number or ''}": examples_of_seed for number, examples_of_seed in enumerate(read.calibrate.values())
    }
    later_subsets = list(zip(read.calibrate, arrays, strict=True))[1:]
    arrays |= {"train": read.train, "evaluate": read.evaluate}
    digests = {part: examples.digest() for part, examples in arrays.items()}
    preprocessing = dataset.preprocessing.digest()
    ids = list(read.evaluate.ids) or [str(i) for i in range(len(read.evaluate))]

    def fill(folder: Path) -> Mapping[str, Any]:
        for part, examples in arrays.items():
            _save_examples(folder, part, examples)
        (folder / "ids.json").write_text(json.dumps(ids))
        np.save(folder / CONTENTS, overlap.digest_examples(read.evaluate), allow_pickle=False)
        return {}

    def digest(name: str, part: str) -> str:
        return store.key_of({"preprocessing": preprocessing, name: digests[part]})

    named = {**digests, "preprocessing": preprocessing, "ids": ids, "holds": CONTENTS}
    entry = store.fetch(root, "data", store.key_of(named), fill)
    return Data(
        folder=entry.folder,
        preprocessing=dataset.preprocessing,
        classes=dataset.classes,
        inputs=len(read.evaluate.inputs),
        calibration_digest=digest("calibration", "calibrate"),
        training_digest=digest("training", "train"),
        evaluation_digest=digest("evaluation", "evaluate"),
        evaluation_count=len(read.evaluate),
        calibration_seed=request.calibrate_seed,
        allow_overlap=request.allow_overlap,
        request=request,
        evaluation_of=read.evaluate_of,
        notes=(entry.note,) if entry.note else (),
        other_subsets=tuple(
            CalibrationSubset(seed=seed, part=part, digest=digest("calibration", part)) for seed, part in later_subsets
        ),
    )


def _save_examples(folder: Path, part: str, examples: Examples) -> None:
    for i, array in enumerate(examples.inputs):
        np.save(folder / f"{part}_{i}.npy", array, allow_pickle=False)
    if examples.labels is not None:
        np.save(folder / f"{part}_labels.npy", examples.labels, allow_pickle=False)
