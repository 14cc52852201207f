"""AdaRound: which weights are rounded up and which down, so that the outputs of their layer change least.

Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization": a soft choice h(V) in 0 .. 1 for
each weight is trained on the layer's inputs and pushed towards 0 or 1. The layer's own output in fp32 is the target,
its input is quantized where the record knows how. In rows of up to POLISHED inputs, what single weights are left to
gain is taken afterwards. Every channel whose outputs came no closer, on inputs of
its own for this, keeps nearest rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from qbench.progress.callback import Progress
from qbench.quant.affine import HIGH, LOW, fake_quantize
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ADA
from qbench.quant.onnx.sites import Record, Sites, WeightSite
from qbench.quant.onnx.weights.input_samples import InputSamples, arrange, restore
from qbench.quant.onnx.weights.weight_scales import spread

Array = NDArray[Any]
# h(V) = clip(sigmoid(V) * (ZETA - GAMMA) + GAMMA, 0, 1), as in the paper.
ZETA, GAMMA = 1.1, -0.1
RATE, MOMENTUM = 0.01, (0.9, 0.999)  # Adam's
BATCH = 64  # rows of one step
# Times reg_param, for a loss in steps and inputs of mean square 1. On layers with 9 to 576 correlated inputs the error
# left is the same within 0.05 of nearest rounding's from 1 to 1000 in all, and much larger below.
PUSH = 1000.0
FEWEST_JUDGED = 32  # rows
POLISHED = 1024  # inputs of a row at most: 4 MB of products
BLOCK = 1 << 16  # weights that are trained together


@dataclass(frozen=True, kw_only=True)
class Options:
    """AMCT's keys. ``reg_param``: weight of the push towards 0 and 1, which starts after the share ``warm_start`` of
    the ``num_iteration`` steps, with an exponent that falls over ``beta_range``. The paper takes 10,000 steps."""

    num_iteration: int = 1000
    reg_param: float = 0.01
    beta_range: tuple[float, float] = (20.0, 2.0)
    warm_start: float = 0.2

    def __post_init__(self) -> None:
        high, low = self.beta_range
        conditions = {
            "num_iteration": (self.num_iteration >= 1, "a number of steps above 0"),
            "reg_param": (0 < self.reg_param < np.inf, "a number above 0"),
            "beta_range": (np.inf > high >= low > 1, "two numbers that fall and stay above 1"),
            "warm_start": (0 <= self.warm_start < 1, "a share from 0 to below 1"),
        }
        for name, (right, what) in conditions.items():
            if not right:
                raise ValueError(f"{name}: expected {what}, got {getattr(self, name)}")


def sites(every: Sites) -> tuple[WeightSite, ...]:
    """The weights that are to be rounded adaptively."""
    return tuple(site for site in every.weights if site.params.algorithm == ADA)


def rounded(
    graph: Graph,
    sites_of_graph: Sites,
    record: Record,
    samples: InputSamples,
    *,
    progress: Progress = lambda *_: None,
) -> Graph:
    """A copy of the graph in which those weights are multiples of their scale (``scale_w`` in the record): quantizing
    them gives the integers that were chosen. ``samples``: of ``sites``, over the calibration data.

    The same inputs give the same weights on one machine. ``progress`` is told each layer when it is done, with the
    error of its outputs as a share of that after nearest rounding. Raises ``ValueError`` for wrong options.
    """
    changed = graph.copy()
    keys = {place: key for site in sites_of_graph.activations for key, place in site.keys.items()}
    for number, site in enumerate(sites(sites_of_graph)):
        node, weight = graph.node(site.layer), graph.constant(site.tensor)
        assert weight is not None, site.tensor
        scales = np.broadcast_to(spread(record[site.layer].scale_w, site.axis, weight.ndim), weight.shape)
        exact = samples.rows(site.layer)
        scales_in = record.get(keys.get((site.layer, 0), ""))
        inputs = exact
        if scales_in is not None and scales_in.scale_d is not None:
            inputs = fake_quantize(exact, scales_in.scale_d, scales_in.offset_d or 0)
        q, share = choose(
            arrange(node, weight), arrange(node, scales), exact, inputs, options(site.params.options), seed=number
        )
        weights = restore(node, q, weight.shape).astype(np.float32) * scales
        changed.set_constant(site.tensor, weights.astype(weight.dtype))
        progress(site.layer, share)
    return changed


def options(settings: Mapping[str, Any]) -> Options:
    """The options of a weight; raises ``ValueError`` for a value that makes no sense, ``TypeError`` for a key."""
    return Options(**settings)


def choose(
    weight: Array, scales: Array, exact: Array, inputs: Array, options: Options, *, seed: int
) -> tuple[Array, float]:
    """The integers (float32, shape of ``weight``) with which ``inputs`` gives most nearly what the weight gives for
    ``exact``, and the squared error that is left as a share of that after nearest rounding (1 where nothing is left
    to gain), judged on rows that were not learned from.

    ``weight`` and ``scales``: (groups, outputs, inputs); ``exact`` and ``inputs``: (groups, rows, inputs).
    """
    # With inputs of mean square 1 and the weight in steps, the two parts of the loss weigh the same in every layer.
    size = np.sqrt(np.mean(np.square(exact, dtype=np.float64))) or 1.0
    x, target = (inputs / size).astype(np.float32), (exact / size).astype(np.float32)
    steps = (weight / scales).astype(np.float32)
    integers = np.clip(np.rint(steps), LOW, HIGH)
    judge, learn = _halves(x.shape[1])
    error = total = 0.0
    # More threads on products this small wait for each other longer than they compute.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for group, outputs in _blocks(steps.shape):
            part = (group, outputs)
            expected, nearest = target[group] @ steps[part].swapaxes(1, 2), integers[part]
            rows, goal = x[group][:, learn], expected[:, learn]
            trained = _train(steps[part], rows, goal, options, np.random.default_rng(seed))
            if steps.shape[2] <= POLISHED:
                trained = _polish(trained, steps[part], rows, goal)
            before, after = (_errors(x[group][:, judge], q, expected[:, judge]) for q in (nearest, trained))
            integers[part] = np.where((after < before)[..., None], trained, nearest)
            error, total = error + float(np.minimum(before, after).sum()), total + float(before.sum())
    return integers, error / total if total else 1.0


def _halves(rows: int) -> tuple[Array, Array]:
    """The rows that judge, every fourth, and those that are learned from, the others; of very few, all do both: with
    fewer rows than inputs, a rounding can fit the rows that it saw and nothing else."""
    numbers = np.arange(rows)
    return (numbers, numbers) if rows < FEWEST_JUDGED else (numbers[::4], numbers[numbers % 4 > 0])


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Groups and outputs that are trained together: about BLOCK weights, so that what is kept of each stays in the
    cache from one step to the next."""
    groups, outputs, inputs = shape
    together = max(BLOCK // (outputs * inputs), 1)
    rows = max(BLOCK // inputs, 1)
    for group in range(0, groups, together):
        for output in range(0, outputs, rows):
            yield slice(group, group + together), slice(output, output + rows)


def _train(steps: Array, x: Array, expected: Array, options: Options, random: np.random.Generator) -> Array:
    """The integers after ``num_iteration`` steps of Adam."""
    lower = np.floor(steps)
    free = (lower >= LOW) & (lower < HIGH)  # elsewhere both neighbours are clipped to the same integer
    v = -np.log((ZETA - GAMMA) / (steps - lower - GAMMA) - 1)  # h(v) is what floor leaves
    mean, square = np.zeros_like(v), np.zeros_like(v)
    for step in range(options.num_iteration):
        batch = random.integers(0, x.shape[1], min(BATCH, x.shape[1]))
        rows = x[:, batch]
        h, slope = _soft(v)
        apart = rows @ np.clip(lower + h, LOW, HIGH).swapaxes(1, 2) - expected[:, batch]
        gradient = (2 / batch.size) * (apart.swapaxes(1, 2) @ rows)
        if (beta := _beta(step, options)) is not None:
            gradient += PUSH * options.reg_param * _push(h, beta)
        gradient *= slope * free
        mean += (1 - MOMENTUM[0]) * (gradient - mean)
        square += (1 - MOMENTUM[1]) * (gradient * gradient - square)
        speed = RATE * np.sqrt(1 - MOMENTUM[1] ** (step + 1)) / (1 - MOMENTUM[0] ** (step + 1))
        v -= np.float32(speed) * mean / (np.sqrt(square) + np.float32(1e-8))
    trained: Array = np.clip(lower + (_soft(v)[0] >= 0.5), LOW, HIGH).astype(np.float32)
    return trained


def _polish(q: Array, steps: Array, x: Array, expected: Array) -> Array:
    """The integers after moving, one by one, the weight of each output whose other neighbour lowers its error most,
    until none does."""
    lower = np.clip(np.floor(steps), LOW, HIGH)
    upper = np.clip(lower + 1, LOW, HIGH)
    gram = x.swapaxes(1, 2) @ x
    own = np.diagonal(gram, axis1=1, axis2=2)[:, None]
    slope = 2 * ((x @ q.swapaxes(1, 2) - expected).swapaxes(1, 2) @ x)
    q = q.copy()
    groups, outputs = np.indices(q.shape[:2])
    for _ in range(q.shape[2]):
        move = lower + upper - 2 * q
        gain = move * slope + move * move * own
        best = gain.argmin(axis=2)
        at = (groups, outputs, best)
        # Not what rounding of the sums makes look like a gain.
        step = np.where(gain[at] < -1e-6 * own[groups, 0, best], move[at], 0)
        if not step.any():
            break
        q[at] += step
        slope += 2 * step[..., None] * gram[groups, best]
    return q


def _soft(v: Array) -> tuple[Array, Array]:
    """h(v) and its derivative."""
    sigmoid = 1 / (1 + np.exp(-v))
    h = (ZETA - GAMMA) * sigmoid + GAMMA
    slope = (ZETA - GAMMA) * sigmoid * (1 - sigmoid)
    slope *= (h > 0) & (h < 1)
    return np.clip(h, 0, 1, out=h), slope


def _push(h: Array, beta: float) -> Array:
    """The derivative of 1 - |2 h - 1| ** beta, which is least at 0 and 1."""
    apart = 2 * h - 1
    size = np.maximum(np.abs(apart), np.float32(0.05))  # no power of it is a denormal, which is slow
    pushed: Array = np.copysign(np.float32(2 * beta) * np.exp(np.float32(beta - 1) * np.log(size)), -apart)
    return pushed


def _beta(step: int, options: Options) -> float | None:
    """The exponent of the push at a step; None while it has not started."""
    start = options.warm_start * options.num_iteration
    if step < start:
        return None
    high, low = options.beta_range
    # Along a cosine: large at first, when only what is near 0 or 1 is pushed.
    share = (step - start) / (options.num_iteration - start)
    return float(low + 0.5 * (high - low) * (1 + np.cos(share * np.pi)))


def _errors(x: Array, q: Array, expected: Array) -> Array:
    """The sum of squared errors of each output channel: (groups, outputs)."""
    errors: Array = np.square(x @ q.swapaxes(1, 2) - expected).sum(axis=1, dtype=np.float64)
    return errors
