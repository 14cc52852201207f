"""Examples of the user's own, as a suite would give them to the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.backends.base import Inputs
from qbench.errors import UsageError
from qbench.first_suite.data_facts import describe_data
from qbench.first_suite.model_facts import ModelFacts, read_ends
from qbench.quant.artifacts.onnx_file import DeclaredInput

Array = NDArray[Any]
COUNT = 64


@dataclass(frozen=True, kw_only=True)
class Examples:
    """``inputs``: an array for each input, the examples along its first axis; ``labels``: the classes, where there are
    some; ``notes``: what was assumed of how the data becomes inputs."""

    inputs: Inputs
    labels: Array | None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs[0])

    def take(self, start: int, count: int) -> Inputs:
        """Some of them, as a batch."""
        return tuple(array[start : start + count] for array in self.inputs)


def read_examples(text: str, name: str, model: Any | None) -> Examples:
    """At most ``COUNT`` examples to evaluate, of data as ``qbench init`` takes them. ``model``: the ``ModelProto``
    whose inputs they are for, None where a file does not tell them. Raises ``UsageError`` and ``DataError``."""
    inputs, outputs = ((), None) if model is None else read_ends(model)
    facts = describe_data(
        text, ModelFacts(name=name, source="", backends=(), int8_modes=(), inputs=inputs, outputs=outputs), Path()
    )
    dataset = facts.open(Path())
    stored = dataset.sample(facts.test, min(COUNT, dataset.count(facts.test)), 0)
    known = facts.against_fp32 is None  # which output a label stands for
    classes = known and stored.labels is not None and stored.labels.dtype.kind in "iu" and stored.labels.ndim == 1
    return Examples(
        inputs=dataset.preprocessing(stored.inputs), labels=stored.labels if classes else None, notes=facts.notes
    )


def require_fit(examples: Examples, declared: tuple[DeclaredInput, ...], batch: int) -> None:
    """Raises ``UsageError`` where the data has other inputs than the file declares, in number, type or size, or fewer
    examples than a call takes (``batch``)."""
    if len(examples) < batch:
        raise UsageError(f"--data gives {len(examples)} examples to evaluate, and a call of the file takes {batch}")
    if len(examples.inputs) != len(declared):
        names = ", ".join(entry.name for entry in declared)
        raise UsageError(f"--data gives {len(examples.inputs)} arrays, and the file takes {len(declared)}: {names}")
    for array, entry in zip(examples.inputs, declared, strict=True):
        sizes = zip(array.shape[1:], entry.sizes[1:], strict=False)
        fits = len(array.shape) == len(entry.sizes) and all(
            not isinstance(size, int) or own == size for own, size in sizes
        )
        if array.dtype != np.dtype(entry.dtype or "O") or not fits:
            wanted = " x ".join(str(size or "?") for size in entry.sizes)
            raise UsageError(
                f"--data gives {array.dtype} of {' x '.join(map(str, array.shape[1:]))} an example, and {entry.name} "
                f"takes {entry.dtype} of {wanted}"
            )
