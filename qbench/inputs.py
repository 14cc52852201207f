"""What a run starts from: the data set's examples and the fp32 networks, checked once and put into the cache.

Runs in child processes (user code, torch). Later stages read the examples memory-mapped and load the network with
the very same weights, so a factory that draws random weights still gives one network to every variant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import cache, machine, registry
from qbench.backends.base import Inputs
from qbench.datasets import check
from qbench.datasets.base import Dataset, Examples, Preprocessing, overlap
from qbench.errors import CaseError, DataError, ModelError
from qbench.metrics.base import Metric
from qbench.models import training, trial
from qbench.models import weights as weights_file
from qbench.models.base import BuiltIn, ModelReference, Network
from qbench.quant.forward import out_of_memory
from qbench.suite import DataSpec

Array = NDArray[Any]
Progress = Callable[[str, float], None]
PROBES = 4  # examples on which a network is tried before anything is built


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """Which examples a suite wants: ``base`` is the suite's folder; ``train``: the calibration split whole, for QAT."""

    loader: str
    value: Any
    options: Mapping[str, Any]
    base: Path
    calibrate_split: str
    calibrate_samples: int
    calibrate_seed: int
    evaluate_split: str
    evaluate_samples: int | None
    evaluate_seed: int
    train: bool


def request_of(spec: DataSpec, base: Path, *, train: bool) -> DataRequest:
    """The examples that a suite's ``data`` section asks for; ``train``: the calibration split whole, for QAT."""
    return DataRequest(
        loader=spec.loader,
        value=spec.value,
        options=spec.options,
        base=base,
        calibrate_split=spec.calibrate.split,
        calibrate_samples=spec.calibrate.samples,
        calibrate_seed=spec.calibrate.seed,
        evaluate_split=spec.evaluate.split,
        evaluate_samples=spec.evaluate.samples,
        evaluate_seed=spec.evaluate.seed,
        train=train,
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """The examples of a run in the cache: raw, with the one preprocessing object that every stage uses."""

    folder: Path
    preprocessing: Preprocessing
    classes: int | None
    inputs: int
    calibration_digest: str
    training_digest: str
    evaluation_digest: str
    evaluation_count: int
    notes: tuple[str, ...] = ()

    def calibration(self) -> Inputs:
        """The preprocessed calibration examples, one array per model input."""
        return self.preprocessing(self._raw("calibrate"))

    def training(self) -> tuple[Inputs, Array] | None:
        """The preprocessed calibration split with its labels, whole if QAT was planned; None where it has none."""
        labels = self._labels("train")
        return None if labels is None else (self.preprocessing(self._raw("train")), labels)

    def evaluation(self, start: int, stop: int) -> Inputs:
        """Preprocessed evaluation examples from ``start`` up to ``stop``."""
        return self.preprocessing(tuple(array[start:stop] for array in self._raw("evaluate")))

    def probe(self, batch: int) -> Inputs:
        """Made-up inputs of the examples' shapes and types, the same for every data set that has these: seeded noise,
        or zeros and ones where the model takes whole numbers. What a network gives for them tells it from others."""
        random = np.random.RandomState(0)
        made = []
        for array in self.evaluation(0, 1):
            shape = (batch, *array.shape[1:])
            noise = random.standard_normal(shape) if array.dtype.kind == "f" else random.randint(0, 2, shape)
            made.append(np.ascontiguousarray(noise.astype(array.dtype)))
        return tuple(made)

    def evaluation_labels(self) -> Array | None:
        """The labels of the evaluation examples; None where there are none."""
        return self._labels("evaluate")

    def evaluation_ids(self) -> list[str]:
        """A name for each evaluation example."""
        ids: list[str] = json.loads((self.folder / "ids.json").read_text())
        return ids

    def _raw(self, part: str) -> Inputs:
        files = [self.folder / f"{part}_{i}.npy" for i in range(self.inputs)]
        return tuple(np.load(file, mmap_mode="r", allow_pickle=False) for file in files)

    def _labels(self, part: str) -> Array | None:
        file = self.folder / f"{part}_labels.npy"
        return np.load(file, allow_pickle=False) if file.exists() else None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A checked network: how to load it again, and the digests that name it."""

    reference: ModelReference
    weights: Path | None
    weights_digest: str
    code_digest: str
    notes: tuple[str, ...] = field(default=())


def prepare_data(request: DataRequest, root: Path, *, progress: Progress) -> Data:
    """Reads, checks and caches the examples; raises ``DataError`` with what to do."""
    progress("read data", 0.1)
    dataset: Dataset = registry.load("dataset", request.loader)(
        request.value, base=request.base, options=request.options
    )
    for split in (request.calibrate_split, request.evaluate_split):
        check.require_split(dataset, split)
    calibrate = dataset.sample(request.calibrate_split, request.calibrate_samples, request.calibrate_seed)
    train = dataset.load(request.calibrate_split) if request.train else calibrate
    evaluate = dataset.sample(request.evaluate_split, request.evaluate_samples, request.evaluate_seed)
    for split, examples in (
        (request.calibrate_split, train),
        (request.calibrate_split, calibrate),
        (request.evaluate_split, evaluate),
    ):
        check.check(dataset, split, examples)
    return _store(dataset, train, calibrate, evaluate, root)


def _store(dataset: Dataset, train: Examples, calibrate: Examples, evaluate: Examples, root: Path) -> Data:
    shared = overlap(calibrate, evaluate)
    notes = (f"{shared} of {len(calibrate)} calibration examples are evaluation examples too",) if shared else ()
    digests = {
        "preprocessing": dataset.preprocessing.digest(),
        "calibration": calibrate.digest(),
        "training": train.digest(),
        "evaluation": evaluate.digest(),
    }

    def fill(folder: Path) -> Mapping[str, Any]:
        for part, examples in (("train", train), ("calibrate", calibrate), ("evaluate", evaluate)):
            for i, array in enumerate(examples.inputs):
                np.save(folder / f"{part}_{i}.npy", array, allow_pickle=False)
            if examples.labels is not None:
                np.save(folder / f"{part}_labels.npy", examples.labels, allow_pickle=False)
        ids = list(evaluate.ids) or [str(i) for i in range(len(evaluate))]
        (folder / "ids.json").write_text(json.dumps(ids))
        return {}

    entry = cache.fetch(root, "data", cache.key_of(digests), fill)
    return Data(
        folder=entry.folder,
        preprocessing=dataset.preprocessing,
        classes=dataset.classes,
        inputs=len(evaluate.inputs),
        calibration_digest=cache.key_of({k: digests[k] for k in ("preprocessing", "calibration")}),
        training_digest=cache.key_of({k: digests[k] for k in ("preprocessing", "training")}),
        evaluation_digest=cache.key_of({k: digests[k] for k in ("preprocessing", "evaluation")}),
        evaluation_count=len(evaluate),
        notes=notes + ((entry.note,) if entry.note else ()),
    )


def prepare_model(reference: ModelReference, data: Data, metric: str, root: Path, *, progress: Progress) -> Model:
    """Loads (and for a built-in trains, once) a network, tries it on real examples, caches its weights.

    Raises ``ModelError`` where the network does not take the data, or gives what the metric cannot judge.
    """
    notes: tuple[str, ...] = ()
    trained = None
    if reference.source is None and reference.weights is None and _is_trained(reference.name):
        trained, notes = _trained(reference, root, progress)
    network = load_network(reference, trained)
    progress("try the network on real examples", 0.9)
    _require_fit(network, data, metric, reference.name)
    digest = weights_file.weights_digest(network)
    file = None
    if network.kind == "torch":
        entry = cache.fetch(root, "weights", digest, lambda folder: _save(network.module, folder))
        file = entry.folder / "model.safetensors"
        notes += (f"{reference.name}: {entry.note}",) if entry.note else ()
    code = cache.key_of(
        {
            "code": weights_file.code_digest(reference),
            "behaviour": _behaviour(network, data),
            "factory": reference.attribute,
            "args": dict(reference.args),
        }
    )
    return Model(reference=reference, weights=file, weights_digest=digest, code_digest=code, notes=notes)


def _behaviour(network: Network, data: Data) -> str | None:
    """The digest of what the network gives for made-up inputs: a factory may read a configuration that is neither
    code nor weight. None where it does not take them (its file, code and weights then name it alone)."""
    try:
        outputs = _try(network, data.probe(1))
    except (CaseError, RuntimeError, TypeError, ValueError, IndexError) as error:
        if out_of_memory(error):
            raise
        return None
    return hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest()


def load_network(reference: ModelReference, weights: Path | None) -> Network:
    """The fp32 network in eval mode, with the given weights if any; on one thread."""
    source = "python" if reference.source is None else reference.source
    if reference.source is None:
        builtin: BuiltIn = registry.load("model", reference.name)
        carried = builtin.weights() if builtin.weights else None
        if builtin.kind == "onnx":
            return Network(kind="onnx", path=carried)
        network = Network(kind="torch", module=training.fresh(builtin).eval())
        weights = weights or reference.weights or carried
    else:
        network = registry.load("source", source)(reference)
    if weights is not None and network.module is not None:
        weights_file.load_weights(network.module, weights)
    return network


def _is_trained(name: str) -> bool:
    builtin: BuiltIn = registry.load("model", name)
    return builtin.training is not None


def _trained(reference: ModelReference, root: Path, progress: Progress) -> tuple[Path, tuple[str, ...]]:
    """The cached weights of a built-in, trained now if there are none: seeded, on one thread."""
    builtin: BuiltIn = registry.load("model", reference.name)
    if builtin.dataset is None:
        raise ModelError(f"{builtin.name} has no data set to be trained on")
    dataset: Dataset = registry.load("dataset", builtin.dataset)(None, base=Path(), options={})
    examples = dataset.load("train")
    key = cache.key_of(
        {
            "model": reference.name,
            "code": weights_file.code_digest(reference),
            "training": repr(builtin.training),
            "data": [examples.digest(), dataset.preprocessing.digest()],
            "versions": machine.versions(("torch",)),
        }
    )

    def fill(folder: Path) -> Mapping[str, Any]:
        if examples.labels is None:
            raise DataError(f"{builtin.dataset}: no labels to train {builtin.name} on")
        inputs = dataset.preprocessing(examples.inputs)
        return _save(training.trained(builtin, inputs, examples.labels, progress), folder)

    entry = cache.fetch(root, "trained", key, fill)
    notes = (f"{reference.name}: {entry.note}",) if entry.note else ()
    return entry.folder / "model.safetensors", notes


def _save(module: Any, folder: Path) -> Mapping[str, Any]:
    weights_file.save_weights(module, folder / "model.safetensors")
    return {}


def _require_fit(network: Network, data: Data, metric_name: str, name: str) -> None:
    probes = min(PROBES, data.evaluation_count)
    inputs = data.evaluation(0, probes)
    try:
        outputs = _try(network, inputs)
    except trial.Misfit as error:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        raw = tuple(array[:probes] for array in data._raw("evaluate"))
        hint = trial.hint(network, raw) if data.preprocessing.to_float else ""
        raise ModelError(f"{name} does not take this data ({shapes}): {error}{hint}") from error
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    metric: Metric = registry.load("metric", metric_name)
    labels = data.evaluation_labels()
    if labels is not None:
        # The extremes of all labels stand for them: a class that the network lacks is found now, not after an hour.
        ends = [labels.min(axis=0), labels.max(axis=0), *labels[: max(0, probes - 2)]]
        labels = np.stack(ends[:probes]).astype(labels.dtype)
    problem = metric.problem(outputs, labels, data.classes)
    if problem:
        raise ModelError(f"{name}: {problem}")


def _try(network: Network, inputs: Inputs) -> Array:
    """The first output for a few examples; raises ``ModelError`` where the network does not take them."""
    return trial.outputs(network, inputs)
