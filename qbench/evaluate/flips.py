"""Which examples change their answer between fp32 and int8, and which classes lose by it; pure.

An answer is the class that an example's outputs choose. Where there are labels, a flip is an answer whose correctness
changed; where there are none, any other answer than fp32's is one, and nobody knows which of the two is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qbench.metrics.validation import choose_classes, read_scores
from qbench.stats import mcnemar, multiple_testing

Array = NDArray[Any]
Kind = Literal["harmful", "beneficial", "changed"]
KINDS: tuple[Kind, ...] = ("harmful", "beneficial", "changed")
# A class has changed where Holm's adjusted p-value over all classes of its case is at most this.
CLASS_ERROR = 0.05


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What one file of predictions answers: ``classes`` the chosen class of each example (n), ``rank`` the share of the
    examples on which it was less sure (its highest output less far ahead of the next one), ``ids`` a name for each,
    ``labels`` whole numbers, or None where there are none."""

    classes: Array
    rank: Array
    ids: tuple[str, ...]
    labels: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Flip:
    """One example whose answer flipped: its ``position`` among the evaluation examples, its ``id`` and ``label``, both
    answers, and ``sure``: the share of the examples on which fp32 was less sure than here (near 0: a close call)."""

    position: int
    id: str
    kind: Kind
    label: int | None
    fp32: int
    int8: int
    sure: float


@dataclass(frozen=True, kw_only=True)
class ClassChange:
    """One class of the labels: ``n`` examples, how many of them fp32 had right, the flips among them, the mid-p value
    of McNemar's test of "no change", and that value adjusted by Holm over all classes of the case."""

    label: int
    n: int
    fp32_right: int
    harmful: int
    beneficial: int
    p_value: float
    p_adjusted: float

    @property
    def int8_right(self) -> int:
        """How many of them int8 has right."""
        return self.fp32_right - self.harmful + self.beneficial

    @property
    def changed(self) -> Literal["lost", "gained"] | None:
        """Which way the class moved, where that is more than chance."""
        if self.p_adjusted > CLASS_ERROR:
            return None
        return "lost" if self.harmful > self.beneficial else "gained"


def answers(predictions: Mapping[str, Array]) -> Answers | None:
    """The answers of stored predictions (``outputs``, perhaps ``labels`` and ``ids``); None where the outputs are no
    scores of classes, or not all finite."""
    outputs, labels = predictions.get("outputs"), predictions.get("labels")
    if outputs is None or outputs.size == 0 or not np.isfinite(outputs).all():
        return None
    whole = labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu" and len(labels) == len(outputs)
    if outputs.ndim != 2 or (outputs.shape[1] < 2 and not whole) or (labels is not None and not whole):
        return None
    table = read_scores(outputs)
    top = np.partition(table, -2, axis=1)[:, -2:].astype(np.float64)
    lead = top[:, 1] - top[:, 0]
    ids = predictions.get("ids")
    has_ids = ids is not None and len(ids) == len(outputs)
    return Answers(
        classes=choose_classes(outputs),
        rank=np.searchsorted(np.sort(lead), lead) / len(lead),
        ids=tuple(map(str, ids if has_ids else range(len(outputs)))),  # type: ignore[arg-type]
        labels=labels,
    )


def flips(int8: Answers, fp32: Answers) -> tuple[Flip, ...]:
    """The flips of a contender, harmful ones first, of each kind the one first on which fp32 was surest.

    Empty where the two answer other examples.
    """
    if int8.ids != fp32.ids:
        return ()
    kinds: tuple[tuple[Kind, Array], ...]
    if int8.labels is None:
        kinds = (("changed", int8.classes != fp32.classes),)
    else:
        right, was = int8.classes == int8.labels, fp32.classes == int8.labels
        kinds = (("harmful", was & ~right), ("beneficial", right & ~was))
    flipped: list[Flip] = []
    for kind, mask in kinds:
        positions = np.flatnonzero(mask)
        surest_first = positions[np.argsort(-fp32.rank[positions], kind="stable")]
        flipped += [_flip(int(position), kind, int8, fp32) for position in surest_first]
    return tuple(flipped)


def _flip(position: int, kind: Kind, int8: Answers, fp32: Answers) -> Flip:
    return Flip(
        position=position,
        id=int8.ids[position],
        kind=kind,
        label=None if int8.labels is None else int(int8.labels[position]),
        fp32=int(fp32.classes[position]),
        int8=int(int8.classes[position]),
        sure=float(fp32.rank[position]),
    )


def by_class(int8: Answers, fp32: Answers) -> tuple[ClassChange, ...]:
    """Every class of the labels, in its order; empty without labels."""
    if int8.labels is None or int8.ids != fp32.ids:
        return ()
    right, was = int8.classes == int8.labels, fp32.classes == int8.labels
    labels, index = np.unique(int8.labels, return_inverse=True)

    def count(mask: Array) -> Array:
        return np.bincount(index, weights=mask, minlength=len(labels)).astype(int)

    harmful, beneficial = count(was & ~right), count(right & ~was)
    p_values = mcnemar.midps(harmful, beneficial)
    columns = zip(
        labels.tolist(), count(np.ones(len(index))).tolist(), count(was).tolist(), harmful.tolist(),
        beneficial.tolist(), p_values.tolist(), multiple_testing.adjust_by_holm(p_values.tolist()), strict=True,
    )  # fmt: skip
    return tuple(
        ClassChange(label=label, n=n, fp32_right=old, harmful=down, beneficial=up, p_value=p, p_adjusted=adjusted)
        for label, n, old, down, up, p, adjusted in columns
    )


def first(flips_of_case: Sequence[Flip], kind: Kind, most: int) -> tuple[Flip, ...]:
    """The first ``most`` flips of a kind, in the order of ``flips``."""
    return tuple(flip for flip in flips_of_case if flip.kind == kind)[:most]
