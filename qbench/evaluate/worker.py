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
from qbench.process.free_memory import count_free_bytes
from qbench.quant.analysis import input_drift

Array = NDArray[Any]
MEMORY_SHARE = 4  # the activations of one batch may take one part in so many of the memory that is there
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # mallopt(3)


@dataclass(frozen=True, kw_only=True)
class PartOutputs:
    """The first outputs (float32) of the examples from ``start`` on, and of each model input how many of their values
    lie outside what the artifact can represent there; ``others``: the outputs behind the first that have a row of
    floats for each example, by position; ``sums``: of predicted ones those of each layer."""

    start: int
    outputs: Array
    outside: tuple[int, ...]
    others: Mapping[int, Array] = field(default_factory=dict)
    sums: Sums = field(default_factory=dict)

    @property
    def stop(self) -> int:
        """The position behind the last example."""
        return self.start + len(self.outputs)


class EvaluationSession:
    """An artifact on one thread, proven to give here what it gave where it was built, where it must (``same_answers``);
    or, ``predicted``, what it gives on an older CPU.

    ``size``: the only batch size to use, that of a dynamic variant's case or the one that the artifact takes; None
    where the outputs do not depend on it.
    """

    def __init__(
        self, artifact: Artifact, data: Data, size: int | None, same_answers: bool = True, predicted: bool = False
    ) -> None:
        self._artifact, self._data, self._size = artifact, data, size
        self._several = False
        self._examples = data.evaluation_examples().inputs  # mapped once: opening a file again takes half a millisecond
        backend: Backend = registry.load("backend", artifact.backend)
        self._predicted = OlderCpuRunner(artifact.file) if predicted else None
        self._runner: Runner = self._predicted or backend.load(artifact.file, threads=1)
        self._context = self._runner.context()  # held, and left with this process: one that is collected ends
        self._context.__enter__()
        if same_answers and self._runner.digest(data.probe(artifact.built.fixed_batch or 1)) != artifact.built.expected:
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
        if self._several:  # the others of the first examples
            return width, self.predict(0, len(rows), width)
        return width, PartOutputs(start=0, outputs=rows, outside=self._outside(self._inputs(0, len(rows))))

    def predict(self, start: int, stop: int, width: int) -> PartOutputs:
        """The examples from ``start`` up to ``stop``, in batches of ``width``.

        The last batch is filled from its own end, so that each has as many examples and no output depends on where
        a part ends; but for a dynamic variant, whose scales are those of the batch, and for predicted outputs, whose
        sums are counted.
        """
        as_they_are = self._predicted is not None or self._artifact.mode == "dynamic"
        as_they_are = as_they_are and not self._artifact.built.fixed_batch
        rows, outside = list[Mapping[int, Array]](), np.zeros(self._data.inputs, dtype=np.int64)
        for begin in range(start, stop, width):
            end = min(begin + width, stop)
            first = begin if as_they_are else max(0, end - width)
            inputs = self._inputs(first, end)
            answers = self._answers(inputs)
            rows.append({place: answer[begin - first :] for place, answer in answers.items()})
            outside += self._outside(tuple(array[begin - first :] for array in inputs))
        sums = {} if self._predicted is None else self._predicted.take_sums()
        outputs = join_rows(rows)
        first_rows = outputs.pop(0)
        return PartOutputs(start=start, outputs=first_rows, outside=tuple(map(int, outside)), others=outputs, sums=sums)

    def _inputs(self, start: int, stop: int) -> Inputs:
        return self._data.preprocessing(tuple(array[start:stop] for array in self._examples))

    def _outputs(self, inputs: Inputs) -> Array:
        """The first outputs; and whether there are others."""
        answers = self._answers(inputs)
        self._several = len(answers) > 1
        return answers[0]

    def _answers(self, inputs: Inputs) -> Mapping[int, Array]:
        """The first outputs, and by position the others that have a row of floats for each example."""
        batch, count = fill_batch(inputs, self._artifact.built.fixed_batch or 0), len(inputs[0])
        first, *others = self._runner.all_outputs(self._runner(self._runner.prepare(batch)))
        usable = {
            place: np.array(output[:count], dtype=np.float32)
            for place, output in enumerate(others, 1)
            if output.dtype.kind == "f" and output.shape[:1] == (len(batch[0]),) and output.size
        }
        return {0: np.array(first[:count], dtype=np.float32), **usable}

    def _outside(self, inputs: Inputs) -> tuple[int, ...]:
        ranges = [*self._artifact.built.conversion.input_ranges, *[None] * len(inputs)]
        return tuple(
            0 if input_range is None or array.dtype.kind != "f" else input_drift.count_outside(array, input_range)
            for array, input_range in zip(inputs, ranges, strict=False)
        )


def join_rows(parts: Sequence[Mapping[int, Array]]) -> dict[int, Array]:
    """The outputs of several batches, one after the other; of those that each batch has, with rows of one shape."""
    places = [
        place for place in parts[0] if len({part[place].shape[1:] if place in part else None for part in parts}) == 1
    ]
    return {place: np.concatenate([part[place] for part in parts]) for place in {0: None, **dict.fromkeys(places)}}


def open_predictor(
    artifact: Artifact, data: Data, size: int | None, same_answers: bool = True, predicted: bool = False
) -> EvaluationSession:
    """The predictor, in a process that does nothing else."""
    _keep_memory()
    return EvaluationSession(artifact, data, size, same_answers, predicted)


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
