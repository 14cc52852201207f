"""Inside an evaluating process: one loaded artifact, asked for the outputs of evaluation examples, part by part."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Backend, Inputs, Runner
from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import EvaluateError
from qbench.evaluate import batch_size
from qbench.evaluate.older_cpu import OlderCpuRunner, Sums
from qbench.models.postprocess import Postprocess, join_answers
from qbench.process.free_memory import count_free_bytes
from qbench.quant.analysis import input_drift

Array = NDArray[Any]
# Outputs of a detector for 500 images are gigabytes, its answers are not; to compare outputs, so many are enough.
MOST_BYTES = 2**26
MEMORY_SHARE = 4  # the activations of one batch may take one part in so many of the memory that is there
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # mallopt(3)


@dataclass(frozen=True, kw_only=True)
class PartOutputs:
    """The first outputs (float32) of the examples from ``start`` up to ``stop``, and of each model input how many of
    their values lie outside what the artifact can represent there; ``others``: the outputs behind the first that have a
    row of floats for each example, by position; ``sums``: of predicted ones those of each layer. ``answers``: what the
    network's ``postprocess`` makes of them, None where it has none; with it, outputs are those of ``MOST_BYTES``."""

    start: int
    stop: int
    outputs: Array
    outside: tuple[int, ...]
    answers: Array | None = None
    others: Mapping[int, Array] = field(default_factory=dict)
    sums: Sums = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What to evaluate: an artifact on the examples of ``data``.

    ``size``: the only batch size to use, that of a dynamic variant's case or the one that the artifact takes; None
    where the outputs do not depend on it. ``same_answers``: it must give what it gave where it was built;
    ``predicted``: what it gives on an older CPU is computed. ``postprocess`` makes answers of the outputs.
    """

    artifact: Artifact
    data: Data
    size: int | None = None
    same_answers: bool = True
    predicted: bool = False
    postprocess: Postprocess | None = None


class EvaluationSession:
    """An artifact on one thread, proven to give here what it gave where it was built, where it must."""

    def __init__(self, evaluation: Evaluation) -> None:
        artifact, data = evaluation.artifact, evaluation.data
        self._artifact, self._data, self._size = artifact, data, evaluation.size
        self._make_answers = None if evaluation.postprocess is None else evaluation.postprocess.load()
        self._several = False
        examples = data.evaluation_examples()  # mapped once: opening a file again takes half a millisecond
        self._examples, self._labels = examples.inputs, examples.labels
        backend: Backend = registry.load("backend", artifact.backend)
        self._predicted = OlderCpuRunner(artifact.file) if evaluation.predicted else None
        self._runner: Runner = self._predicted or backend.load(artifact.file, threads=1)
        self._context = self._runner.context()  # held, and left with this process: one that is collected ends
        self._context.__enter__()
        expected = artifact.built.expected if evaluation.same_answers else None
        if expected is not None and self._runner.digest(data.probe(artifact.built.fixed_batch or 1)) != expected:
            raise EvaluateError(
                "reloaded in a fresh process, the artifact gives other outputs than where it was built; "
                "`qbench clean` and run again, and report it if it stays"
            )

    def predict_first(self) -> tuple[int, PartOutputs]:
        """How many examples to take at once, and the first of them."""
        count = self._data.evaluation_count
        if self._size is not None:
            return self._size, self.predict(0, min(self._size, count), self._size)
        width, rows = batch_size.choose_batch_size(
            lambda start, stop: self._outputs(self._inputs(start, stop)), count, _memory()
        )
        if self._several or self._make_answers is not None:  # what else belongs to the first examples
            return width, self.predict(0, len(rows), width)
        outside = self._outside(self._inputs(0, len(rows)))
        return width, PartOutputs(start=0, stop=len(rows), outputs=rows, outside=outside)

    def predict(self, start: int, stop: int, width: int) -> PartOutputs:
        """The examples from ``start`` up to ``stop``, in batches of ``width``.

        The last batch is filled from its own end, so that each has as many examples and no output depends on where
        a part ends; but for a dynamic variant, whose scales are those of the batch, and for predicted outputs, whose
        sums are counted.
        """
        as_they_are = self._predicted is not None or self._artifact.mode == "dynamic"
        as_they_are = as_they_are and not self._artifact.built.fixed_batch
        rows, outside = list[Mapping[int, Array]](), np.zeros(self._data.inputs, dtype=np.int64)
        answers = list[Array]()
        for begin in range(start, stop, width):
            end = min(begin + width, stop)
            first = begin if as_they_are else max(0, end - width)
            inputs = self._inputs(first, end)
            every = self._all_outputs(inputs)
            outputs = {place: output[begin - first :] for place, output in take_usable(every, end - first).items()}
            if self._make_answers is not None:
                copies = [output.copy() for output in every]  # the user's function may write into them
                labels = None if self._labels is None else self._labels[first:end]
                answers.append(self._make_answers(copies, labels)[begin - first :])
                outputs = {place: output[: count_kept(begin, output)] for place, output in outputs.items()}
            rows.append(outputs)
            outside += self._outside(tuple(array[begin - first :] for array in inputs))
        sums = {} if self._predicted is None else self._predicted.take_sums()
        others = join_rows(rows)
        first_rows = others.pop(0)
        return PartOutputs(
            start=start,
            stop=stop,
            outputs=first_rows,
            outside=tuple(map(int, outside)),
            answers=join_answers(answers) if answers else None,
            others=others,
            sums=sums,
        )

    def _inputs(self, start: int, stop: int) -> Inputs:
        return self._data.preprocessing(tuple(array[start:stop] for array in self._examples))

    def _outputs(self, inputs: Inputs) -> Array:
        """The first outputs; and whether there are others."""
        outputs = take_usable(self._all_outputs(inputs), len(inputs[0]))
        self._several = len(outputs) > 1
        return outputs[0]

    def _all_outputs(self, inputs: Inputs) -> list[Array]:
        """All outputs, floats as float32; those with a row for each example without those of a filled batch."""
        batch, count = fill_batch(inputs, self._artifact.built.fixed_batch or 0), len(inputs[0])
        outputs = []
        for output in self._runner.all_outputs(self._runner(self._runner.prepare(batch))):
            rows = output[:count] if output.shape[:1] == (len(batch[0]),) else output
            outputs.append(np.array(rows, dtype=np.float32 if rows.dtype.kind == "f" else None))
        return outputs

    def _outside(self, inputs: Inputs) -> tuple[int, ...]:
        ranges = [*self._artifact.built.conversion.input_ranges, *[None] * len(inputs)]
        return tuple(
            0 if input_range is None or array.dtype.kind != "f" else input_drift.count_outside(array, input_range)
            for array, input_range in zip(inputs, ranges, strict=False)
        )


def take_usable(outputs: Sequence[Array], count: int) -> dict[int, Array]:
    """The first of a batch's outputs, and by position the others that have a row of floats for each example."""
    usable = {
        place: output
        for place, output in enumerate(outputs)
        if place and output.dtype.kind == "f" and output.shape[:1] == (count,) and output.size
    }
    return {0: outputs[0].astype(np.float32, copy=False), **usable}


def count_kept(begin: int, outputs: Array) -> int:
    """Of how many of these examples, of which the first stands at ``begin``, outputs are kept beside answers: of the
    first ``MOST_BYTES`` of all."""
    return max(0, MOST_BYTES // max(1, outputs[:1].nbytes) - begin)


def join_rows(parts: Sequence[Mapping[int, Array]]) -> dict[int, Array]:
    """The outputs of several batches, one after the other; of those that each batch has, with rows of one shape."""
    places = [
        place for place in parts[0] if len({part[place].shape[1:] if place in part else None for part in parts}) == 1
    ]
    return {place: np.concatenate([part[place] for part in parts]) for place in {0: None, **dict.fromkeys(places)}}


def open_predictor(evaluation: Evaluation) -> EvaluationSession:
    """The predictor, in a process that does nothing else."""
    _keep_memory()
    return EvaluationSession(evaluation)


def fill_batch(inputs: Inputs, size: int) -> Inputs:
    """The examples, the last repeated where there are fewer than an artifact of one batch size takes."""
    missing = size - len(inputs[0])
    if missing <= 0:
        return inputs
    return tuple(np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) for array in inputs)


def _memory() -> batch_size.MemoryRoom:
    """What this process may take for one batch: a share of its limit, and of what is free."""
    import psutil

    bounds = [count_free_bytes()]
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
        bounds += [] if soft == resource.RLIM_INFINITY else [soft]
    process = psutil.Process()
    return batch_size.MemoryRoom(used=lambda: int(process.memory_info().rss), most=min(bounds) // MEMORY_SHARE)


def _keep_memory() -> None:
    """Has the C library keep what was freed for the next batch. It would return every large activation to the system,
    and the kernel would clear the same pages again for the next one: that took 950 of 1,610 microseconds an example
    of mobilenet-small in batches of 64 (fp32 on torch, one thread)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**30)
