"""How often the gate errs: real A/A gates and gates with injected slowdowns on this machine, and simulated ones.

The real ones take an int8 artifact of digits-cnn and gate it against itself, or against itself with every call recorded
as so much longer than it took, while nothing or one of the noises runs. The simulated ones draw process pairs from
noise traces that were recorded once (tests/benchmarks/record_noise.py tells how), thousands of gates in seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.build import build
from qbench.cache import store
from qbench.data import request_of
from qbench.data_preparation import prepare_data
from qbench.gating.rerun import Rerunner
from qbench.gating.sequential_test import ProcessPair, analyze, is_analysis_due, process_pair
from qbench.machine import fingerprint
from qbench.measure.worker import INPUTS, WorkerSpec
from qbench.network import prepare_model
from qbench.plan.planner import make_plan
from qbench.process.child_process import Limits, call
from qbench.stats import intervals
from qbench.stats.interval_type import Interval
from qbench.suite import Suite, parse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qbench.progress.live import Silent

OUTCOMES = ("FAIL", "PASS", "INCONCLUSIVE", "INVALID")
CHANGES = (0.0, 0.05, 0.075, 0.10)
BACKEND = "onednn"
SUITE = f"""
suite: control
models: [digits-cnn]
data: {{dataset: digits}}
matrix: {{modes: [fp32, static], backends: [torch, {BACKEND}]}}
"""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How many of the gates under one condition and true change ended how; ``change`` 0.05 is 5 % slower."""

    condition: str
    change: float
    outcomes: Mapping[str, int]

    @property
    def gates(self) -> int:
        """All gates of this row."""
        return sum(self.outcomes.values())

    def share(self, outcome: str) -> Interval:
        """The share of an outcome with its Clopper-Pearson interval."""
        return intervals.clopper_pearson(self.outcomes.get(outcome, 0), self.gates)


# --- simulated ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoiseTrace:
    """Block log ratios of A/A process pairs: ``ratios`` and ``controls``, each (processes, blocks)."""

    name: str
    ratios: NDArray[Any]
    controls: NDArray[Any]


def traces() -> list[NoiseTrace]:
    """The traces that qbench brings."""
    return [_read(path) for path in sorted((Path(__file__).parent / "traces").glob("*.npz"))]


def _read(path: Path) -> NoiseTrace:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return NoiseTrace(name=path.stem, ratios=archive["log_ratios"], controls=archive["control_log_ratios"])


def simulated(trace: NoiseTrace, change: float, *, gates: int, tolerance: float = 0.05, seed: int = 0) -> Rate:
    """Gates over process pairs drawn from a trace with replacement; the true change is added to each.

    The trace's own median is taken out first, since the truth of an A/A trace is 0; the spread from process to
    process and from block to block is the machine's.
    """
    generator = random.Random(seed)
    pairs = _pairs(trace, change)
    outcomes = Counter(_gate(lambda: generator.choice(pairs), tolerance) for _ in range(gates))
    return Rate(condition=f"simulated, {trace.name}", change=change, outcomes=outcomes)


def _pairs(trace: NoiseTrace, change: float) -> list[ProcessPair]:
    import numpy as np

    pairs = []
    offsets = [float(np.median(np.median(part, axis=1))) for part in (trace.ratios, trace.controls)]
    for ratios, controls in zip(trace.ratios - offsets[0], trace.controls - offsets[1], strict=True):
        pair = process_pair(ratios + math.log1p(change), controls)
        if pair is not None:
            pairs.append(pair)
    return pairs


def _gate(draw: Callable[[], ProcessPair], tolerance: float) -> str:
    pairs: list[ProcessPair] = []
    while True:
        pairs.append(draw())
        if is_analysis_due(len(pairs)) and (analysis := analyze(pairs, tolerance)).decided:
            return analysis.outcome


def simulations(*, gates: int = 2000) -> list[Rate]:
    """Simulated rates of every trace that qbench brings, for every change."""
    return [simulated(trace, change, gates=gates) for trace in traces() for change in CHANGES]


# --- real --------------------------------------------------------------------------------------------------------

# Each runs beside the gate, pinned as its comment says; plain Python and numpy, so that it needs nothing else.
NOISES: dict[str, str | None] = {
    "quiet": None,
    "busy neighbour": "while True: pass",  # another core
    "memory hog": "import numpy as n; a = n.ones(32 * 2**20)\nwhile True: a += 1",  # another core, shared memory bus
    "bursts": (  # the measured core: 20 ms of work in every 100 ms
        "import time\nwhile True:\n    end = time.perf_counter() + 0.02\n"
        "    while time.perf_counter() < end: pass\n    time.sleep(0.08)"
    ),
}


def real(seconds: float, *, progress: Silent, changes: Sequence[float] = CHANGES) -> list[Rate]:
    """Gates on this machine, one condition and change after the other in turn, for about that many seconds.

    Each combination is gated at least once; a gate takes some 20 to 50 s. The rates are as wide as few gates make
    them: their intervals say so.
    """
    with store.in_use(store.open_cache()):
        return _real(seconds, progress, changes)


def _real(seconds: float, progress: Silent, changes: Sequence[float]) -> list[Rate]:
    progress.stage("build", None)
    suite, baseline = _artifact(progress)
    rerun = Rerunner(progress=progress)
    combinations = list(itertools.product(NOISES, changes))
    outcomes: dict[tuple[str, float], Counter[str]] = {key: Counter() for key in combinations}
    progress.stage("control", None)
    end = time.monotonic() + seconds
    for number, (noise, change) in enumerate(itertools.cycle(combinations)):
        if number >= len(combinations) and time.monotonic() >= end:
            break
        contender = replace(baseline, case="contender", slowdown=change)
        with _noise(noise, baseline.cores):
            result = rerun.rerun_case(f"{noise}, {change:+.1%}", baseline, contender, suite=suite)
        outcomes[noise, change][result.analysis.outcome if result.analysis else "INVALID"] += 1
        progress.advance(f"{noise}, {change:+.1%}: gate {outcomes[noise, change].total()}")
    return [Rate(condition=noise, change=change, outcomes=counts) for (noise, change), counts in outcomes.items()]


def _artifact(progress: Silent) -> tuple[Suite, WorkerSpec]:
    """An int8 artifact, from the cache or built now, ready to be loaded."""
    suite, root = parse(SUITE, file="<control>"), store.open_cache()
    limits, cores = Limits(), fingerprint.allowed_cores()
    request = request_of(suite.data, suite.base, train=False)
    data = call(prepare_data, request, root, limits=limits, progress=progress.advance)
    plan = make_plan(suite, cores=len(cores))
    variant = next(planned.case.variant for planned in plan.cases if planned.case.variant.mode == "static")
    metric = suite.gate.accuracy.choose_metric(base=suite.base, labelled=True)
    model = call(prepare_model, variant.model, data, metric, root, limits=limits, progress=progress.advance)
    artifact = build(variant, model=model, data=data, root=root, limits=limits, progress=progress.advance)
    spec = WorkerSpec(
        case="baseline",
        backend=BACKEND,
        file=artifact.file,
        threads=1,
        batch_size=1,
        cores=cores[-1:],
        inputs=data.evaluation(0, INPUTS),
    )
    return suite, spec


# A noise that outlives a killed gate would disturb every later measurement on this machine.
# 1: PR_SET_PDEATHSIG, which has no effect where the parent has ended before it is set.
END_WITH_PARENT = """import ctypes, os, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != {parent}: os._exit(0)
"""


@contextlib.contextmanager
def _noise(name: str, measured: tuple[int, ...]) -> Iterator[None]:
    """The noise as a process of its own, on the measured core (bursts) or on the others where there are any."""
    code = NOISES[name]
    if code is None:
        yield
        return
    other_cores = tuple(core for core in fingerprint.allowed_cores() if core not in measured)
    cores = measured if name == "bursts" or not other_cores else other_cores
    pin = f"import os\nif hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, {cores})\n"
    start = END_WITH_PARENT.format(parent=os.getpid()) if sys.platform == "linux" else ""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen([sys.executable, "-c", start + pin + code], env=environment)
    try:
        yield
    finally:
        running.kill()
        running.wait()


# --- words -------------------------------------------------------------------------------------------------------


def rows(rates: Sequence[Rate], tolerance: float = 0.05) -> list[tuple[str, ...]]:
    """One row a rate: condition, true change, gates, what went wrong and INCONCLUSIVE, in per cent with limits.

    Wrong is FAIL where the true change is within the tolerance, and PASS where it is beyond; exactly at the
    tolerance both are errors of the same kind, and the worse is shown.
    """
    return [
        (
            rate.condition,
            f"{rate.change * 100:+.1f} %" if rate.change else "none (A/A)",
            str(rate.gates),
            _percent(rate.share(wrong(rate, tolerance))),
            wrong_means(rate, tolerance),
            _percent(rate.share("INCONCLUSIVE")),
        )
        for rate in rates
    ]


def as_json(rates: Sequence[Rate]) -> str:
    """The rates as JSON: counts and Clopper-Pearson limits by outcome."""
    counts = [
        {
            "condition": rate.condition,
            "change": rate.change,
            "gates": rate.gates,
            **{name: asdict(rate.share(name)) | {"count": rate.outcomes.get(name, 0)} for name in OUTCOMES},
        }
        for rate in rates
    ]
    return json.dumps(counts, indent=1)


TITLES = ("condition", "true change", "gates", "wrong, %", "wrong means", "INCONCLUSIVE, %")


def wrong(rate: Rate, tolerance: float) -> str:
    """The outcome that is an error for this true change."""
    if math.isclose(rate.change, tolerance):
        return max(("FAIL", "PASS"), key=lambda outcome: rate.outcomes.get(outcome, 0))
    return "FAIL" if rate.change < tolerance else "PASS"


def wrong_means(rate: Rate, tolerance: float) -> str:
    """The error in words."""
    return {"FAIL": "false alarm", "PASS": "missed"}[wrong(rate, tolerance)]


def _percent(share: Interval) -> str:
    low, high = share.low, share.high
    assert low is not None
    assert high is not None
    return f"{share.value * 100:.2f} [{low * 100:.2f}, {high * 100:.2f}]"
