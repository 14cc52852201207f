"""How near the outputs are to fp32's on the same examples: for models without labels, or beside a score.

All are means over examples. fp32 has ``perfect`` by definition, so a change against it is the whole distance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qbench.metrics.base import Array, MeanMetric
from qbench.metrics.validation import choose_classes, outputs_problem, read_scores, scores_problem

BLOCK = 2**18  # values at a time, in double precision
# Two runtimes that add up float32 products in another order differ by some 1e-6 of the signal (120 dB), so what lies
# beyond 1e-5 is rounding, not quantization; outputs that are equal have no finite ratio at all.
MOST_DECIBELS = 100.0
LEAST_SHARE = 2.0**-24  # half a unit in the last place of float32 at 1: what a probability of 0 may have been


def agree_by_blocks(each: Callable[[Array, Array], Array], outputs: Array, reference: Array) -> Array:
    """``each`` of two tables (n, values) in double precision, shape (n,), a block of rows at a time."""
    rows, fp32 = outputs.reshape(len(outputs), -1), reference.reshape(len(reference), -1)
    step = max(1, BLOCK // max(1, rows.shape[1]))
    values = np.empty(len(rows))
    for at in range(0, len(rows), step):
        block = slice(at, at + step)
        values[block] = each(rows[block].astype(np.float64), fp32[block].astype(np.float64))
    return values


class Agreement(MeanMetric):
    """A metric against fp32's outputs, of any shape."""

    against = "fp32"
    percent = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not finite numbers."""
        return outputs_problem(outputs)


class Top1Agreement(MeanMetric):
    """The share of examples for which the highest output is that of fp32; of a single output, the sign."""

    name = "top1_agreement"
    against = "fp32"
    perfect = 1.0

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not class scores."""
        problem = outputs_problem(outputs) or scores_problem(outputs, None)
        if problem and outputs.ndim > 2:
            return (
                f"{problem}; for outputs that are no classes choose cosine or sqnr, say "
                "`gate: {accuracy: {metric: sqnr, at_least: 20}}` (dB), which is taken where the suite says nothing"
            )
        return problem

    def per_example(self, outputs: Array, reference: Array) -> Array:
        """1.0 where both choose the same class, else 0.0."""
        same: Array = (choose_classes(outputs) == choose_classes(reference)).astype(np.float64)
        return same


class Cosine(Agreement):
    """The cosine between an example's outputs and fp32's: 1 where they differ by a factor only. Of two rows of zeros
    it is 1, of one it is 0."""

    name = "cosine"
    perfect = 1.0

    def per_example(self, outputs: Array, reference: Array) -> Array:
        """The cosine of each example, between -1 and 1."""
        return agree_by_blocks(_cosines, outputs, reference)


class SignalToNoise(Agreement):
    """The signal-to-quantization-noise ratio of an example's outputs, 10 log10(sum fp32^2 / sum (fp32 - outputs)^2),
    in dB, cut at 100 dB either way: fp32 has 100 dB."""

    name = "sqnr"
    unit = "dB"
    perfect = MOST_DECIBELS

    def per_example(self, outputs: Array, reference: Array) -> Array:
        """The ratio of each example in dB."""
        return agree_by_blocks(_decibels, outputs, reference)


class Divergence(Agreement):
    """The Kullback-Leibler divergence of an example's class probabilities from fp32's, in nats; 0 where they are equal.

    Probabilities are the softmax of the outputs; where fp32's outputs are probabilities already (none negative, each
    row adds up to 1), both are taken as they are.
    """

    name = "kl"
    unit = "nats"
    higher_is_better = False
    perfect = 0.0

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not class scores."""
        return outputs_problem(outputs) or scores_problem(outputs, None)

    def per_example(self, outputs: Array, reference: Array) -> Array:
        """The divergence of each example."""
        ours, theirs = read_scores(outputs), read_scores(reference)
        logs = _log_shares if _are_probabilities(theirs) else _log_softmax
        return agree_by_blocks(lambda q, p: _divergences(logs(q), logs(p)), ours, theirs)


def _cosines(outputs: Array, reference: Array) -> Array:
    lengths = np.sqrt(_dots(outputs, outputs)) * np.sqrt(_dots(reference, reference))
    cosine = np.divide(_dots(outputs, reference), lengths, out=np.zeros(len(outputs)), where=lengths > 0)
    equal = (outputs == reference).all(axis=1)  # exactly 1 then, whatever rounding says
    return np.where(equal, 1.0, cosine.clip(-1.0, 1.0))


def _decibels(outputs: Array, reference: Array) -> Array:
    noise = reference - outputs
    signal, wrong = _dots(reference, reference), _dots(noise, noise)
    most = 10.0 ** (MOST_DECIBELS / 10)
    share = np.divide(wrong, signal, out=np.full(len(signal), most), where=signal > 0)
    decibels: Array = -10 * np.log10(share.clip(1 / most, most))
    return np.where(wrong > 0, decibels, MOST_DECIBELS)


def _divergences(ours: Array, theirs: Array) -> Array:
    """Of rows of log probabilities; rounding leaves no value below 0."""
    divergence: Array = (np.exp(theirs) * (theirs - ours)).sum(axis=1)
    return divergence.clip(0.0)


def _dots(a: Array, b: Array) -> Array:
    products: Array = np.einsum("ij,ij->i", a, b)
    return products


def _are_probabilities(table: Array) -> bool:
    return bool(table.min() >= 0 and np.abs(table.sum(axis=1, dtype=np.float64) - 1).max() < 1e-3)


def _log_softmax(table: Array) -> Array:
    shifted = table - table.max(axis=1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def _log_shares(table: Array) -> Array:
    shares = table.clip(LEAST_SHARE)
    logs: Array = np.log(shares / shares.sum(axis=1, keepdims=True))
    return logs


TOP1_AGREEMENT = Top1Agreement()
COSINE = Cosine()
SQNR = SignalToNoise()
KL = Divergence()
