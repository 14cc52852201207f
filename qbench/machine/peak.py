"""The arithmetic peak of one core, fp32, int8 and, where it multiplies it, bf16: the physical limit of every latency.

Measured, since no data sheet knows this guest's clock, its instruction sets as a hypervisor grants them, or the
kernels that are installed: large matrix products on one thread, the best over libraries, sizes and layouts. All of
it runs in a child process; importing this module is light. Source of the method: the roofline model (Williams,
Waterman, Patterson, CACM 52 (2009), 65-76), with the arithmetic roof alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from qbench.cache import store
from qbench.errors import CaseError, MeasureError
from qbench.machine import fingerprint
from qbench.machine.gemm import Call, Kernel, kernels
from qbench.modes import is_int8
from qbench.process import child_process
from qbench.process.threads import set_torch
from qbench.progress.callback import Progress

LIBRARIES = ("torch", "onnxruntime")
METHOD = 3  # part of the cache's key: raise it when what is measured changes

_WARMUP_CALLS = 2
_TURNS = 3  # the finalists take turns, since noise comes in spells of tens of milliseconds
_HOPELESS = 3.0  # a kernel that many times slower than the best of its precision is not tried on larger sizes


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What a measurement tries: square products of each size, ``screen_seconds`` each, then the best
    ``finalists`` of a precision for ``final_seconds`` each. No new size is begun after ``deadline_seconds``."""

    sizes: tuple[int, ...] = (256, 384, 512, 640, 768, 1024)
    screen_seconds: float = 0.02
    finalists: int = 3
    final_seconds: float = 0.15
    deadline_seconds: float = 3.5


FULL = Effort()


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What one core can do at most: floating-point operations and 8-bit integer operations per second (a
    multiply-accumulate is two), the kernel and the size of the product that did it, and the best of each kernel tried
    (None: it does not run here); of bf16 where the CPU multiplies it. ``core`` is None where the system pins no
    process. ``seconds`` is what it took, ``canary_seconds`` the least that the canary took meanwhile."""

    fp32_flops_per_second: float
    fp32_kernel: str
    fp32_size: int
    int8_ops_per_second: float
    int8_kernel: str
    int8_size: int
    core: int | None
    seconds: float
    versions: Mapping[str, str | None]
    kernels: Mapping[str, float | None] = field(default_factory=dict)
    canary_seconds: float | None = None
    bf16_flops_per_second: float | None = None
    bf16_kernel: str | None = None
    bf16_size: int | None = None

    @property
    def ratio(self) -> float:
        """How many times more int8 than fp32 operations the core does: the most that int8 arithmetic can gain."""
        return self.int8_ops_per_second / self.fp32_flops_per_second

    def is_shared(self, calm_seconds: float | None) -> bool | None:
        """Whether something else used the core all the while when this was measured, so that the peak is higher;
        ``calm_seconds`` is what the canary takes on this core alone. None where either was not read."""
        from qbench.machine.canary import DISTURBED  # numpy

        if self.canary_seconds is None or calm_seconds is None:
            return None
        return self.canary_seconds >= DISTURBED * calm_seconds

    def of(self, mode: str) -> float | None:
        """The peak that a mode's latency is held against, operations per second; None for a format that was not
        measured."""
        peaks = {"fp32": self.fp32_flops_per_second, "bf16": self.bf16_flops_per_second}
        return self.int8_ops_per_second if is_int8(mode) else peaks.get(mode)


def fraction(macs: int, latency_seconds: float, peak_ops: float) -> float:
    """The share of the peak that a call reaches: 2 x ``macs`` / (``latency_seconds`` x ``peak_ops``).

    ``macs`` of the whole call (all its examples), ``peak_ops`` per second of all its threads together. May exceed 1:
    Winograd convolutions do fewer multiplications than the ones counted. Raises ``ValueError`` where the latency or
    the peak is not positive. After Williams et al., CACM 52 (2009), 65-76.
    """
    if macs < 0 or not latency_seconds > 0 or not peak_ops > 0:
        raise ValueError(f"{macs} MACs in {latency_seconds} s at {peak_ops} operations per second is no share")
    return 2 * macs / (latency_seconds * peak_ops)


_PEAK: TypeAdapter[Peak] = TypeAdapter(Peak)


def measure_peak(
    root: Path,
    *,
    limits: child_process.Limits,
    cores: tuple[int, ...] | None = None,
    calm_seconds: float | None = None,
    progress: Progress | None = None,
    effort: Effort = FULL,
    call: Callable[..., Any] = child_process.call,
) -> Peak:
    """The peak of the last of ``cores`` (None: of the allowed ones), measured once per machine and kept in the cache.

    Takes less than 5 s, later only a read. ``calm_seconds`` is what the canary is known to take on this core alone: a
    peak that was measured while something shared the core is measured again if the canary is calm now. ``root`` is an
    open cache; the key is the fingerprint, the libraries' versions, and the variables that hide instruction sets.
    Raises ``CaseError`` where no kernel runs.
    """
    core = (cores or fingerprint.allowed_cores())[-1]

    def measure_now(known_seconds: float | None = None) -> Peak:
        peak: Peak = call(in_this_process, effort, known_seconds, limits=limits, cores=(core,), progress=progress)
        return peak

    def renew(entry: store.Entry) -> Mapping[str, Any] | None:
        stored = _PEAK.validate_python(entry.facts)
        if not stored.is_shared(calm_seconds):
            return None
        try:
            return asdict(choose_calmer(stored, measure_now(calm_seconds)))
        except CaseError:  # it is shared now as well, or no child starts: a peak that is too low stays
            return None

    entry = store.fetch(
        root,
        "peak",
        store.key_of(_key(core, effort)),
        lambda folder: asdict(measure_now()),
        lambda entry: _PEAK.validate_python(entry.facts),
        renew,
    )
    return _PEAK.validate_python(entry.facts)


def choose_calmer(stored: Peak, again: Peak) -> Peak:
    """The one of two peaks of a core whose canary was faster; the first where that tells nothing."""
    if stored.canary_seconds is None or again.canary_seconds is None:
        return stored
    return again if again.canary_seconds < stored.canary_seconds else stored


def _key(core: int, effort: Effort) -> dict[str, Any]:
    return {
        "method": METHOD,
        "machine": fingerprint.fingerprint(),
        "versions": fingerprint.versions((*LIBRARIES, "numpy")),  # the canary is numpy's
        "core": core,  # the cores of a hybrid processor differ
        "variables": {name: os.environ.get(name) for name in fingerprint.HIDING_VARIABLES},
        "effort": asdict(effort),
    }


def in_this_process(effort: Effort, calm_seconds: float | None = None, *, progress: Progress) -> Peak:
    """The peak of the core that this process is pinned to; sets torch to one thread, so only for a child. Where it is
    known what the canary takes on this core alone, raises ``MeasureError`` if something shares the core now."""
    import torch

    from qbench.machine.canary import Canary, wait_for_calm  # numpy

    canary, readings = Canary(), list[int]()
    if calm_seconds is not None and not wait_for_calm(canary.read, calm_seconds * 1e9):
        raise MeasureError("the core is shared with something else: its peak cannot be measured now")
    started = time.perf_counter()
    set_torch(1)
    torch.manual_seed(0)
    with torch.inference_mode():
        tried = _screen_kernels(kernels(), effort, progress, started)
        fp32, int8 = (
            _choose_best(tried, precision, effort, lambda: readings.append(canary.read()))
            for precision in ("fp32", "int8")
        )
        bf16 = None
        if _fastest(tried, "bf16"):
            bf16 = _choose_best(tried, "bf16", effort, lambda: readings.append(canary.read()))
    return Peak(
        fp32_flops_per_second=fp32.rate,
        fp32_kernel=fp32.kernel.name,
        fp32_size=fp32.size,
        int8_ops_per_second=int8.rate,
        int8_kernel=int8.kernel.name,
        int8_size=int8.size,
        core=fingerprint.pinned_core(),
        seconds=time.perf_counter() - started,
        versions=fingerprint.versions(LIBRARIES),
        kernels=_best_of_each(tried),
        canary_seconds=min(readings) / 1e9,
        bf16_flops_per_second=None if bf16 is None else bf16.rate,
        bf16_kernel=None if bf16 is None else bf16.kernel.name,
        bf16_size=None if bf16 is None else bf16.size,
    )


@dataclass(kw_only=True)
class _Try:
    """One kernel at one size, its call kept ready; ``rate`` is the best so far, operations per second."""

    kernel: Kernel
    size: int
    call: Call | None
    rate: float = 0.0

    def go_on(self, seconds: float) -> None:
        if self.call is not None:
            self.rate = max(self.rate, 2 * self.size**3 / least_seconds(self.call, seconds))


def least_seconds(call: Call, seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """The least time of one call, over calls for about ``seconds`` after a warm-up: what noise cannot shorten."""
    for _ in range(_WARMUP_CALLS):
        call()
    least, began = float("inf"), clock()
    while True:
        before = clock()
        call()
        after = clock()
        least = min(least, after - before)
        if after - began >= seconds:
            return max(least, 1e-9)  # below the clock's resolution


def _screen_kernels(trying: list[Kernel], effort: Effort, progress: Progress, started: float) -> list[_Try]:
    """Every kernel at every size, shortly; from small to large, without those that have shown to be hopeless."""
    tried: list[_Try] = []
    for number, size in enumerate(effort.sizes):
        if number and time.perf_counter() - started > effort.deadline_seconds:
            break
        progress(f"products of {size} x {size}", number / len(effort.sizes))
        now = [_try_kernel(kernel, size, effort.screen_seconds) for kernel in trying]
        tried += now
        best = {attempt.kernel.precision: _fastest(now, attempt.kernel.precision) for attempt in now}
        trying = [
            attempt.kernel
            for attempt in now
            if attempt.rate * _HOPELESS >= best[attempt.kernel.precision] and attempt.rate
        ]
    return tried


def _try_kernel(kernel: Kernel, size: int, seconds: float) -> _Try:
    try:
        attempt = _Try(kernel=kernel, size=size, call=kernel.make(size))
        attempt.go_on(seconds)
    except RuntimeError:  # how torch says that this build or this CPU has no such kernel; the null shows in the Peak
        return _Try(kernel=kernel, size=size, call=None)
    return attempt


def _fastest(tried: list[_Try], precision: str) -> float:
    return max((attempt.rate for attempt in tried if attempt.kernel.precision == precision), default=0.0)


def _choose_best(tried: list[_Try], precision: str, effort: Effort, read_canary: Callable[[], None]) -> _Try:
    """The best of the best, each looked at again in turns, the canary between them."""
    ran = sorted(
        (attempt for attempt in tried if attempt.kernel.precision == precision and attempt.rate),
        key=lambda attempt: -attempt.rate,
    )
    if not ran:
        raise MeasureError(f"no {precision} matrix product of {' or '.join(LIBRARIES)} runs on this machine")
    finalists = ran[: effort.finalists]
    for _ in range(_TURNS):
        for attempt in finalists:
            read_canary()
            attempt.go_on(effort.final_seconds / _TURNS)
    return max(finalists, key=lambda attempt: attempt.rate)


def _best_of_each(tried: list[_Try]) -> dict[str, float | None]:
    best: dict[str, float | None] = {}
    for attempt in tried:
        best[attempt.kernel.name] = max(best.get(attempt.kernel.name) or 0.0, attempt.rate) or None
    return best
