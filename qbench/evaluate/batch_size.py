"""How many examples to evaluate at once: measured on the first of them, and wider only where no output changes by it.

On a CPU wider is not always faster. Microseconds of processor time an example, mobilenet-small on Fashion-MNIST, AMD
EPYC (AVX2), one thread: fp32 on torch 575 by 8, 612 by 32, 644 by 256; static on onednn 348 by 8, 228 by 64, 222 by
256; static on onnxruntime 248 by 8, 203 by 64.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import out_of_memory

Array = NDArray[Any]
Clock = Callable[[], float]
Evaluate = Callable[[int, int], Array]  # the outputs of the examples from one position up to another, as one batch
BASE, WIDEST = 8, 128
SHARE = 40  # a width is tried on one in so many examples at most
# A wider batch is taken where it needs at most this share of the time, and beyond this one no wider one is tried.
GAIN, LOSS = 0.97, 1.1
WARM = 3  # calls before the first that is timed: runtimes plan and compile in these


@dataclass(frozen=True, kw_only=True)
class MemoryRoom:
    """Bytes: what this process has ``used`` so far, and the ``most`` that one batch may add (None: not known)."""

    used: Callable[[], int]
    most: int | None


def choose_batch_size(
    evaluate: Evaluate, count: int, memory: MemoryRoom, clock: Clock = time.process_time
) -> tuple[int, Array]:
    """The width for ``count`` examples, and the outputs of the first ones, which need not be evaluated again.

    From batches of 8 on the width is doubled until that is slower, or its memory is not there, and the fastest is
    taken. The outputs of a wider batch must be those of the narrower one bit by bit, else it is not taken: what the
    clock says never shows in a result. Where memory runs out at 8 it is halved.
    """
    before = memory.used()
    width, rows = _first(evaluate, count)
    span = _span(count)
    if span < 2 * width or width < BASE:
        return width, rows
    for _ in range(WARM):
        evaluate(0, width)
    rows, seconds = _timed(evaluate, width, span, clock)
    candidate = best = width
    while 2 * candidate <= span and _fits(2 * (memory.used() - before), memory):
        try:
            evaluate(0, 2 * candidate)  # a runtime may compile for that size
            wider, took = _timed(evaluate, 2 * candidate, span, clock)
        except Exception as error:  # torch, ONNX Runtime and OpenVINO raise all kinds
            if out_of_memory(error):
                break
            raise
        if took > LOSS * seconds or wider.tobytes() != rows.tobytes():
            break
        candidate *= 2
        if took < GAIN * seconds:
            best, seconds = candidate, took
    return best, rows


def _first(evaluate: Evaluate, count: int) -> tuple[int, Array]:
    width = BASE
    while True:
        try:
            return width, evaluate(0, min(width, count))
        except Exception as error:  # as above
            if not out_of_memory(error) or width == 1:
                raise
            width //= 2


def _span(count: int) -> int:
    """How many examples each width is tried on: a power of two."""
    span = 1
    while 2 * span <= min(WIDEST, count // SHARE):
        span *= 2
    return span


def _timed(evaluate: Evaluate, width: int, span: int, clock: Clock) -> tuple[Array, float]:
    started = clock()
    rows = [evaluate(start, start + width) for start in range(0, span, width)]
    return np.concatenate(rows), clock() - started


def _fits(needed_bytes: int, memory: MemoryRoom) -> bool:
    return memory.most is None or needed_bytes <= memory.most
