"""Top-k accuracy: the share of examples whose label is among the k highest outputs."""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array, MeanMetric
from qbench.metrics.validation import classes_problem, read_scores


class TopK(MeanMetric):
    """Ties go to the lower class, as by ``argmax``. A single output is a logit: ``validation.read_scores``."""

    def __init__(self, k: int) -> None:
        self.name = f"top{k}"
        self.k = k

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not class scores, or are of fewer classes than k."""
        problem = classes_problem(outputs, labels, classes)
        if problem:
            return problem
        columns = read_scores(outputs).shape[1]
        if self.k >= columns:
            return f"{self.name} of {columns} classes is always 100 %; choose top1"
        return None

    def per_example(self, outputs: Array, labels: Array) -> Array:
        """1.0 where the label is among the k highest outputs, else 0.0."""
        table = read_scores(outputs)
        labelled = np.take_along_axis(table, labels[:, None], axis=1)
        earlier = np.arange(table.shape[1]) < labels[:, None]
        ahead = (table > labelled) | ((table == labelled) & earlier)
        hits: Array = (ahead.sum(axis=1) < self.k).astype(np.float64)
        return hits


TOP1 = TopK(1)
TOP5 = TopK(5)


def find_top(k: str) -> TopK:
    """The metric of a name such as ``top3``."""
    return TopK(int(k))
