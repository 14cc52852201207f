"""The examples of a run as every stage reads them from the cache: what calibrates, trains and evaluates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.backends.base import Inputs
from qbench.datasets.base import Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import DataError
from qbench.suite import DataSpec

Array = NDArray[Any]
CONTENTS = "evaluate_contents.npy"


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """Which examples a suite wants: ``base`` is the suite's folder; ``train``: the calibration split whole, for QAT.
    ``calibrate_seeds`` subsets are drawn, of ``calibrate_seed`` and the seeds behind it, and where nobody wrote
    ``calibrate_samples`` (``calibrate_by_default``) of fewer examples if the split has no more. Of more than
    ``evaluate_at_most`` evaluation examples only so many are drawn."""

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
    calibrate_seeds: int = 1
    calibrate_by_default: bool = False
    allow_overlap: bool = False
    evaluate_at_most: int | None = None


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
        calibrate_seeds=spec.calibrate.seeds,
        calibrate_by_default="samples" not in spec.calibrate.model_fields_set,
        evaluate_split=spec.evaluate.split,
        evaluate_samples=spec.evaluate.samples,
        evaluate_seed=spec.evaluate.seed,
        train=train,
        allow_overlap=spec.overlap == "allow",
        evaluate_at_most=spec.evaluate.at_most,
    )


@dataclass(frozen=True, kw_only=True)
class CalibrationSubset:
    """One more calibration subset: the seed that drew it, the name of its files in the folder, and its digest."""

    seed: int
    part: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Data:
    """The examples of a run in the cache: raw, with the one preprocessing object that every stage uses.

    ``other_subsets`` are the calibration subsets of further seeds. ``shared_examples``: how many evaluation examples
    calibration or training has, too; only a suite that allows it has any. ``request`` is what was asked for.
    ``evaluation_of``: how many evaluation examples there are where ``at_most`` limits them, else None.
    """

    folder: Path
    preprocessing: Preprocessing
    classes: int | None
    inputs: int
    calibration_digest: str
    training_digest: str
    evaluation_digest: str
    evaluation_count: int
    calibration_seed: int
    allow_overlap: bool
    notes: tuple[str, ...] = ()
    calibration_part: str = "calibrate"
    other_subsets: tuple[CalibrationSubset, ...] = ()
    shared_examples: int | None = None
    request: DataRequest | None = None
    evaluation_of: int | None = None

    def with_calibration(self, subset: CalibrationSubset) -> Data:
        """The same data with the calibration subset of another seed."""
        return replace(
            self,
            calibration_seed=subset.seed,
            calibration_part=subset.part,
            calibration_digest=subset.digest,
            other_subsets=(),
        )

    def calibration(self) -> Inputs:
        """The preprocessed calibration examples, one array per model input."""
        return self.preprocessing(self.calibration_examples())

    def calibration_examples(self) -> Inputs:
        """The raw calibration examples, memory-mapped, one array per model input."""
        return self._raw(self.calibration_part)

    @property
    def one_shape(self) -> bool:
        """Whether calibration and evaluation examples are of the same shapes."""
        parts = [self._raw(self.calibration_part), self._raw("evaluate")]
        return len({tuple(array.shape[1:] for array in arrays) for arrays in parts}) == 1

    def training(self) -> tuple[Inputs, Array | None]:
        """The preprocessed calibration split, whole if QAT was planned, with its labels; None in place of these where
        it has none."""
        return self.preprocessing(self._raw("train")), self._labels("train")

    def evaluation(self, start: int, stop: int) -> Inputs:
        """Preprocessed evaluation examples from ``start`` up to ``stop``."""
        return self.preprocessing(tuple(array[start:stop] for array in self._raw("evaluate")))

    def evaluation_examples(self) -> Examples:
        """The raw evaluation examples, memory-mapped."""
        return Examples(inputs=self._raw("evaluate"), labels=self.evaluation_labels(), ids=tuple(self.evaluation_ids()))

    def probe(self, batch: int) -> Inputs:
        """Made-up inputs of the examples' shapes and types, the same for every data set that has these: seeded noise,
        or zeros and ones where the model takes whole numbers, ascending along the last axis: of a box's sides the
        second is then no less than the first, and a width is no negative index. What a network gives for them tells it
        from others."""
        random = np.random.RandomState(0)
        inputs = []
        for array in self.evaluation(0, 1):
            shape = (batch, *array.shape[1:])
            noise: Array = random.standard_normal(shape) if array.dtype.kind == "f" else random.randint(0, 2, shape)
            if array.dtype.kind != "f" and noise.ndim > 1:
                noise.sort(axis=-1)
            inputs.append(np.ascontiguousarray(noise.astype(array.dtype)))
        return tuple(inputs)

    def evaluation_labels(self) -> Array | None:
        """The labels of the evaluation examples; None where there are none."""
        return self._labels("evaluate")

    def evaluation_ids(self) -> list[str]:
        """A name for each evaluation example."""
        ids: list[str] = json.loads((self.folder / "ids.json").read_text())
        return ids

    def evaluation_contents(self) -> Array | None:
        """What ``overlap.digest_examples`` says of each evaluation example; None where the folder was made without."""
        file = self.folder / CONTENTS
        return np.load(file, allow_pickle=False) if file.exists() else None

    def _raw(self, part: str) -> Inputs:
        files = [self.folder / f"{part}_{i}.npy" for i in range(self.inputs)]
        try:
            return tuple(np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
        except FileNotFoundError as error:
            raise _is_gone(error.filename) from error

    def _labels(self, part: str) -> Array | None:
        file = self.folder / f"{part}_labels.npy"
        if not self.folder.is_dir():
            raise _is_gone(str(self.folder))
        return np.load(file, allow_pickle=False) if file.exists() else None


def _is_gone(path: str) -> DataError:
    return DataError(
        f"{path} is gone: something emptied the cache while it was in use, a model of this run or another program; "
        "run again"
    )
