"""How often the decision errs, by simulation over recorded noise (gating/traces) and normal noise.

    python tests/benchmarks/decision_error.py [RUNS]

Prints a row a rate and a noise: the share with its Clopper-Pearson limits at 95 %, and the most that is wanted. Known
true times, noise as recorded, the whole rule; seeded. Every arm, fp32 included, gets a recorded process for each
generation and one of its blocks for each round, scaled so that the ratio of two arms has the recorded spread. Nothing
is known of the arms but these blocks; none loses accuracy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from qbench.decide.cases import settings
from qbench.decide.decision import Decision, decide_setting
from qbench.decide.judged import SuiteRules, judge
from qbench.gating.error_rates import traces
from qbench.record.schema import Accuracy, ArtifactFacts, CaseKey, Coverage, Flips, Latency, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals
from qbench.stats.interval_type import Interval

CALL_SECONDS = 1e-3
EXAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How many of ``runs`` went ``wrong`` in the way that ``name`` says, and at most how many should (a share)."""

    name: str
    wrong: int
    runs: int
    most: float

    @property
    def share(self) -> Interval:
        """The share with its Clopper-Pearson interval."""
        return intervals.clopper_pearson(self.wrong, self.runs)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Log ratios of blocks of two copies of one artifact: (processes, blocks), the median of all taken out."""

    name: str
    log_ratios: NDArray[Any]
    generations: int = 3
    rounds: int = 7


def normal_noise(between: float, within: float, *, generations: int = 3, seed: int = 0) -> Noise:
    """Processes that differ by ``between`` and blocks by ``within`` (standard deviations of ln)."""
    random = np.random.default_rng(seed)
    rows = between * random.standard_normal((2000, 1)) + within * random.standard_normal((2000, 20))
    return Noise(name=f"normal {between:.1%} / {within:.1%}", log_ratios=rows, generations=generations)


def simulate_decision(logs: Mapping[str, float], noise: Noise, random: Generator) -> Decision:
    """The decision on one simulated run: ``logs`` are the true ln(time / fp32) of int8 cases by id."""
    fp32 = "net/fp32/torch/t1/b1"
    samples = {case: _draw_samples(log, noise, random) for case, log in {fp32: 0.0, **logs}.items()}
    records = [_make_record(case, samples[case]) for case in samples]
    judged = judge(records, MetricInfo(name="top1"), SuiteRules(), samples=lambda record: samples[record.case.id])
    return decide_setting(judged, settings(records)[0])


def _draw_samples(log: float, noise: Noise, random: Generator) -> dict[str, NDArray[Any]]:
    """The arrays of a case, one call a block."""
    processes, blocks = noise.log_ratios.shape
    rows = noise.log_ratios[random.choice(processes, noise.generations, replace=False)]  # no process comes twice
    drawn = np.stack([row[random.integers(0, blocks, noise.rounds)] for row in rows]).ravel() / math.sqrt(2)
    count = noise.generations * noise.rounds
    return {
        "calls_ns": np.rint(CALL_SECONDS * 1e9 * np.exp(log + drawn)).astype(np.int64),
        "block": np.arange(count),
        "process": np.repeat(np.arange(noise.generations), noise.rounds),
        "round": np.tile(np.arange(noise.rounds), noise.generations),
    }


def _make_record(case: str, samples: Mapping[str, NDArray[Any]]) -> Record:
    """A case that loses no accuracy, with what was drawn of it."""
    model, mode, backend, _, _ = case.split("/")
    seconds = float(np.median(samples["calls_ns"])) / 1e9
    latency = Latency(p50_seconds=seconds, p50_low=None, p50_high=None, p90_seconds=None, p99_seconds=None,
                      mean_seconds=seconds, n=len(samples["calls_ns"]))  # fmt: skip
    layers = Coverage(macs_int8=1.0, layers_int8=1, layers_total=1)
    change = intervals.paired_proportions(0, 0, EXAMPLES)
    return Record(
        case=CaseKey(id=case, model=model, mode=mode, backend=backend, threads=1, batch_size=1),
        status="ok",
        artifact=ArtifactFacts(format="made", sha256="0" * 64, size_bytes=1000, coverage=layers),
        latency=latency,
        accuracy=Accuracy(metric="top1", value=0.9, low=0.88, high=0.92, n=EXAMPLES, delta=change,
                          flips=Flips(harmful=0, beneficial=0)),
        samples=case,
    )  # fmt: skip


def name_cases(count: int) -> list[str]:
    """The ids of so many int8 cases, every third one of mode qat, so that a preference has something to say."""
    return [f"net/{'qat' if place % 3 == 2 else 'static'}/backend{place}/t1/b1" for place in range(count)]


def rate_wrong_choices(noise: Noise, *, runs: int, arms: int = 9, seed: int = 0) -> tuple[Rate, Rate]:
    """The best is 2.5 times as fast as fp32, the others 0 to 25 % slower than it. Wrong: what is shipped is more than
    the tie slower than the best; and, of all, runs in which the headline names two."""
    random = np.random.default_rng(seed)
    wrong = unsure = 0
    for _ in range(runs):
        logs = -math.log(2.5) + np.concatenate([[0.0], random.uniform(0, 0.25, arms - 1)])
        names = [name_cases(arms)[place] for place in random.permutation(arms)]
        truth = dict(zip(names, logs.tolist(), strict=True))
        decision = simulate_decision(truth, noise, random)
        unsure += decision.verdict == "either"
        if decision.verdict == "ship" and decision.pick is not None:
            wrong += truth[decision.pick.case.id] - min(truth.values()) > math.log1p(SuiteRules().decide.tie)
    return (
        Rate(name="shipped is more than the tie slower than the best", wrong=wrong, runs=runs, most=0.05),
        Rate(name="headline names two", wrong=unsure, runs=runs, most=1.0),
    )


def rate_split_copies(noise: Noise, *, runs: int, seed: int = 0) -> Rate:
    """Two copies of one artifact, and others that are slower: wrong where the two are not called tied."""
    random = np.random.default_rng(seed)
    names = name_cases(4)
    truth = dict(zip(names, (-0.9, -0.9, -0.5, -0.2), strict=True))
    decisions = (simulate_decision(truth, noise, random) for _ in range(runs))
    split = sum(not {names[0], names[1]} <= set(decision.tied) for decision in decisions)
    return Rate(name="two copies are not called tied", wrong=split, runs=runs, most=0.05)


def rate_false_gains(noise: Noise, *, runs: int, arms: int = 9, seed: int = 0) -> Rate:
    """All are as fast as fp32: wrong where one of them is shipped."""
    random = np.random.default_rng(seed)
    truth = dict.fromkeys(name_cases(arms), 0.0)
    decisions = (simulate_decision(truth, noise, random) for _ in range(runs))
    shipped = sum(decision.verdict in ("ship", "either") for decision in decisions)
    return Rate(name=f"of {arms} as fast as fp32 one is shipped", wrong=shipped, runs=runs, most=0.025)


def rate_missed_truths(noise: Noise, *, runs: int, arms: int = 9, seed: int = 0) -> Rate:
    """The arms lie within 10 % of each other, all faster than fp32: wrong where the limits printed beside what is meant
    do not hold its true time over fp32. That it was picked for its estimate is part of it."""
    random = np.random.default_rng(seed)
    wrong = 0
    for _ in range(runs):
        logs = -math.log(2.5) + np.linspace(0, 0.1, arms)
        truth = dict(zip(name_cases(arms), random.permutation(logs).tolist(), strict=True))
        decision = simulate_decision(truth, noise, random)
        if decision.pick is not None and (over := decision.over_fp32) is not None:
            wrong += not over.low <= truth[decision.pick.case.id] <= over.high
    return Rate(name="limits of the pick over fp32 miss the truth", wrong=wrong, runs=runs, most=0.07)


def rate_all(noise: Noise, *, runs: int, seed: int = 0) -> Sequence[Rate]:
    """Every rate under one noise."""
    return (
        *rate_wrong_choices(noise, runs=runs, seed=seed),
        rate_split_copies(noise, runs=runs, seed=seed),
        rate_false_gains(noise, runs=runs, seed=seed),
        rate_missed_truths(noise, runs=runs, seed=seed),
    )


def list_noises() -> list[Noise]:
    """The recorded noises, and two that are known exactly."""
    recorded = [
        Noise(name=trace.name, log_ratios=trace.ratios - np.median(np.median(trace.ratios, axis=1)))
        for trace in traces()
    ]
    long = [replace(noise, name=f"{noise.name}, 6 generations", generations=6) for noise in recorded]
    return [*recorded, *long, normal_noise(0.015, 0.01), normal_noise(0.02, 0.02)]


def main(runs: int) -> None:
    """Prints the table."""
    for noise in list_noises():
        for rate in rate_all(noise, runs=runs):
            share = rate.share
            assert share.low is not None
            assert share.high is not None
            limits = f"[{share.low:.1%}, {share.high:.1%}]"
            print(
                f"{noise.name:28} {rate.name:50} {share.value:6.1%} {limits:16} wanted <= {rate.most:.1%}", flush=True
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
