"""Rules of decide/text: the whole of what is said of a decision, by situation, as tests/golden/decisions.txt has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from made_records import accuracy, failed, fp32, int8, latency, list_outputs, same_as_golden, skipped, speedup

from qbench.decide import text
from qbench.decide.decision import decide
from qbench.decide.judged import Source, SuiteRules, judge
from qbench.errors import UsageError
from qbench.record.schema import CalibrationSeeds, ColdStart, Fastest, HostFacts, Interference, Memory, Record, Roofline
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

STATIC, QAT, X86 = "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1", "net/static/x86/t1/b1"
DYNAMIC, BF16 = "net/dynamic/x86/t1/b1", "net/bf16/onednn/t1/b1"
LOSSY, OPEN = accuracy(harmful=60), accuracy(harmful=9, beneficial=2)
MAE = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
SQNR = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB", perfect=100.0)
FLOOR = {"accuracy": {"metric": "sqnr", "at_least": 10}}
AGREEMENT = MetricInfo(name="top1_agreement", against="fp32", perfect=1.0)


def timed(case: str, value: float, half: float = 0.01, **changes: Any) -> Record:
    """A case so many times as fast as fp32, known to ``half``, whose three processes took 4 s each."""
    ratio = replace(speedup(value, half), measured_seconds=12.0)
    return int8(case, **{"latency": latency(0.0025 / value), "speedup": ratio, **changes})


def scored(record: Record, metric: MetricInfo, value: float, change: float, half: float) -> Record:
    """With a score of the metric that is so much above fp32's, known to ``half``."""
    delta = Interval(value=change, low=change - half, high=change + half)
    return replace(record, accuracy=replace(accuracy(), metric=metric.name, value=value, flips=None, delta=delta))


def costing(record: Record, times: float) -> Record:
    """With so many times 100 MB, and as many times 20 ms to start."""
    start = ColdStart(load_seconds=0.01 * times, first_call_seconds=0.01 * times, processes=6)
    return replace(record, memory=Memory(loaded_rss_bytes=int(1e8 * times), peak_rss_bytes=None), cold_start=start)


def stored(**factors: float) -> Any:
    """Rounds of a case by its backend: 7 in each of so many processes, each of which is slower by the factor's own
    share than the one before."""

    def read(record: Record) -> dict[str, Any]:
        processes, drift = int(factors["processes"]), factors.get(record.case.backend, 0.0)
        assert record.latency is not None
        seconds = (record.latency.p50_seconds or 0.0) * (1 + drift * np.repeat(np.arange(processes), 7))
        return {
            "calls_ns": np.rint(seconds * 1e9).astype(np.int64),
            "block": np.arange(7 * processes),
            "process": np.repeat(np.arange(processes), 7),
            "round": np.tile(np.arange(7), processes),
        }

    return read


def with_samples(*records: Record) -> list[Record]:
    """With a file of samples each."""
    return [replace(record, samples=f"samples/{record.case.backend}.npz") for record in records]


def broken(record: Record, *_: Any) -> Any:
    """A reader that finds a damaged file."""
    raise UsageError(f"{record.case.id}: not a zip")


def rules(gate: dict[str, Any] | None = None, **spec: Any) -> SuiteRules:
    """What a suite asks for."""
    return SuiteRules(gate=GateSpec.model_validate(gate or {}), decide=DecideSpec.model_validate(spec))


def right(**wrong: tuple[int, int]) -> Any:
    """A reader of answers: of 10,000 examples, the range that a mode has wrong."""

    def read(record: Record, base: Record | None) -> Any:
        values = np.ones(10_000)
        start, end = wrong.get(record.case.mode, (0, 0))
        values[start:end] = 0
        return values

    return read


def elsewhere(record: Record, **changes: Any) -> Record:
    """The same case limited to AVX2."""
    case = replace(record.case, id=f"{record.case.id}/avx2", host="avx2")
    ratio = record.speedup and replace(record.speedup, baseline=f"{record.speedup.baseline}/avx2")
    return replace(record, case=case, speedup=ratio, **{"host": HostFacts(kind="limited"), **changes})


def untimed_leaders(count: int) -> list[Record]:
    """So many fp32 that lead on this machine and have only answers on another host, beside what was timed there."""
    leaders = [replace(fp32(f"net/fp32/{name}/t1/b1"), latency=latency(0.0005)) for name in "abcde"[:count]]
    there = [elsewhere(each, host=HostFacts(kind="predicted"), latency=None) for each in leaders]
    return [fp32(), timed(STATIC, 2.5), *leaders, elsewhere(fp32()), elsewhere(timed(STATIC, 2.5)), *there]


PREDICTED = replace(int8(), latency=None, speedup=None, host=HostFacts(kind="predicted"))
FAST = timed(X86, 4.0, accuracy=accuracy(harmful=6, beneficial=4), size_bytes=400_000)
ALONE = speedup(2.66, low=None, high=None, protocol="sequential", control=None)
BACKENDS = ("x86", "fbgemm", "qnnpack", "onnxruntime", "openvino")

SITUATIONS: dict[str, tuple[list[Record], dict[str, Any]]] = {
    "one is far ahead": ([fp32(), timed(STATIC, 2.5), timed(X86, 1.5)], {}),
    "no fp32 was measured": ([timed(STATIC, 2.5)], {}),
    "two tie and nothing tells them apart": ([fp32(), timed(STATIC, 2.5), timed(X86, 2.49)], {}),
    "three tie and nothing tells them apart": (
        [fp32(), timed(STATIC, 2.5, 0.001), timed(X86, 2.5, 0.001), timed("net/static/fbgemm/t1/b1", 2.5, 0.001)],
        {},
    ),
    "training tells the tied apart": ([fp32(), timed(STATIC, 2.5), timed(QAT, 2.525)], {}),
    "accuracy tells the tied apart": (
        [
            fp32(),
            timed(STATIC, 2.5, accuracy=accuracy(harmful=20, beneficial=20, n=10_000, right=8220)),
            timed(QAT, 2.47, accuracy=accuracy(harmful=100, beneficial=620, n=10_000, right=8220)),
        ],
        {"values": right(static=(0, 1780), qat=(0, 1260))},
    ),
    "accuracy, then size": (
        [fp32(), timed(STATIC, 2.5), timed(X86, 2.5, size_bytes=400_000), timed(QAT, 2.5, accuracy=OPEN)],
        {"rules": rules({"accuracy": {"margin": 3}}), "values": right(qat=(0, 300))},
    ),
    "size is preferred": (
        [fp32(), timed(STATIC, 2.5, size_bytes=400_000), timed(QAT, 2.5)],
        {"rules": rules(prefer=["size", "no_training"])},
    ),
    "a quicker start is preferred": (
        [fp32(), costing(timed(STATIC, 2.5), 1.0), costing(timed(X86, 2.5), 2.0)],
        {"rules": rules(prefer=["cold_start"])},
    ),
    "the others tie by their limits and not by their estimates": (
        [fp32(), timed(STATIC, 2.5, 0.002), timed(X86, 2.35, 0.1)],
        {},
    ),
    "two may be the best, by time": ([fp32(), timed(STATIC, 2.5, 0.4), timed(X86, 2.6, 0.4)], {}),
    "two may be the best, and the accuracy of one is open": (
        [fp32(), timed(STATIC, 2.5), timed(X86, 4.0, accuracy=accuracy(harmful=6, beneficial=1))],
        {},
    ),
    "a promise, and one call after the other": (
        [fp32(), timed(STATIC, 2.66, speedup=ALONE)],
        {"rules": rules({"latency": {"min_speedup": 2.0}})},
    ),
    "the time of the fastest is open": (
        [fp32(), timed(STATIC, 2.02, 0.2)],
        {"rules": rules({"latency": {"min_speedup": 2.0}})},
    ),
    "the accuracy of all is open": ([fp32(), timed(STATIC, 2.5, accuracy=OPEN), timed(X86, 3.0, accuracy=OPEN)], {}),
    "the accuracy of the smallest is open": (
        [fp32(), timed(STATIC, 2.5, accuracy=OPEN)],
        {"rules": rules(minimize="size")},
    ),
    "no accuracy and no size": (
        [fp32(), replace(timed(STATIC, 2.5), accuracy=None)],
        {"rules": rules({"size": {"max_ratio": 0.3}}, max_memory="1 MB")},
    ),
    "a score that is held to a least one is open": (
        [scored(fp32(), SQNR, 100, 0, 0), scored(timed(STATIC, 2.5), SQNR, 10.2, -89.8, 0.5)],
        {"metric": SQNR, "rules": rules(FLOOR)},
    ),
    "a score that is held to a least one is below it": (
        [
            scored(fp32(), SQNR, 100, 0, 0),
            scored(timed(STATIC, 2.5), SQNR, 8.2, -91.8, 0.5),
            scored(timed(X86, 2.0), SQNR, 31, -69, 0.5),
        ],
        {"metric": SQNR, "rules": rules(FLOOR)},
    ),
    "scores of agreement": (
        [scored(fp32(), AGREEMENT, 1.0, 0, 0), scored(timed(STATIC, 2.5), AGREEMENT, 0.991, -0.009, 0.004)],
        {"metric": AGREEMENT, "rules": rules({"accuracy": {"metric": "top1_agreement", "at_least": 98.0}})},
    ),
    "an error that is better lower": (
        [
            scored(fp32(), MAE, 1.0, 0, 0),
            scored(timed(STATIC, 2.5), MAE, 1.21, 0.21, 0.02),
            scored(timed(X86, 4.0), MAE, 1.4, 0.4, 0.02),
            scored(timed(QAT, 5.0), MAE, 1.1, 0.1, 0.3),
        ],
        {"metric": MAE, "rules": rules({"accuracy": {"margin": 0.25}})},
    ),
    "an error, by a wide margin": (
        [
            scored(fp32(), MAE, 90, 0, 0),
            scored(timed(STATIC, 2.5), MAE, 130, 40, 1),
            scored(timed(X86, 2), MAE, 95, 5, 1),
        ],
        {"metric": MAE, "rules": rules({"accuracy": {"margin": 30}})},
    ),
    "an error, by no margin": (
        [scored(fp32(), MAE, 1, 0, 0), scored(timed(STATIC, 2.5), MAE, 1.13, 0.13, 0.02), timed(X86, 2)],
        {"metric": MAE, "rules": rules({"accuracy": {"margin": 0}})},
    ),
    "none qualifies": (
        [
            fp32(),
            timed(STATIC, 2.5, accuracy=LOSSY),
            timed(QAT, 3, coverage=0.0),
            timed(X86, 3, roofline=Roofline(macs=1000, peak_fraction=1.3)),
            timed(DYNAMIC, 3, coverage=0.001),
        ],
        {},
    ),
    "none qualifies, by a margin of 2": (
        [fp32(), timed(STATIC, 2.5, accuracy=LOSSY), timed(QAT, 2.5, accuracy=LOSSY)],
        {"rules": rules({"accuracy": {"margin": 2}})},
    ),
    "neither int8 nor fp32 holds the ceilings": (
        [costing(fp32(), 4.0), costing(timed(STATIC, 2.5), 1.0)],
        {"rules": rules(max_latency="0.5 ms", max_memory="90 MB")},
    ),
    "limits without which another is shipped": (
        [
            costing(fp32(), 1.0),
            costing(timed(X86, 4.0, size_bytes=400_000), 1.0),
            costing(timed(QAT, 3.0), 3.0),
            costing(timed(STATIC, 2.5), 1.0),
        ],
        {"rules": rules({"size": {"max_ratio": 0.3}}, max_memory="200 MB")},
    ),
    "a promise and margins that would change it": (
        [fp32(), FAST, timed(STATIC, 2.5), timed(QAT, 3.0, accuracy=accuracy(harmful=8, beneficial=4))],
        {"rules": rules({"latency": {"min_speedup": 1.2}})},
    ),
    "a promise that only another keeps": (
        [
            fp32(),
            replace(fp32("net/fp32/openvino/t1/b1"), latency=latency(0.0015)),
            int8(
                "net/static/openvino/t1/b1",
                latency=latency(0.0008),
                speedup=speedup(1.9, baseline="net/fp32/openvino/t1/b1"),
            ),
            timed(
                STATIC, 2.5, speedup_fastest=Fastest(baseline="net/fp32/openvino/t1/b1", value=1.5, low=1.49, high=1.51)
            ),
        ],
        {"rules": rules({"latency": {"min_speedup": 1.2}})},
    ),
    "fp32 is faster": ([fp32(), timed(STATIC, 0.8), timed(X86, 0.5, accuracy=OPEN)], {}),
    "fp32 is faster than what may hold its accuracy": ([fp32(), timed(STATIC, 0.5, accuracy=OPEN)], {}),
    "a small gain": ([fp32(), timed(STATIC, 1.02, 0.03), timed(BF16, 1.01, 0.03)], {}),
    "gain and accuracy are open": ([fp32(), timed(STATIC, 1.02, 0.03, accuracy=OPEN)], {}),
    "a gain is open, and both gain and accuracy of another": (
        [fp32(), timed(STATIC, 1.01, 0.03), timed(X86, 1.02, 0.03, accuracy=OPEN)],
        {},
    ),
    "twelve times as fast": ([fp32(), timed(STATIC, 12.4), timed(X86, 1.004, 0.001)], {}),
    "a gain that cannot be told": ([fp32(), timed(STATIC, 1.0001, 0.03)], {}),
    "fp32 is smaller": ([fp32(), timed(STATIC, 2.5, size_bytes=2_000_000)], {"rules": rules(minimize="size")}),
    "the smallest fp32 is not the fastest": (
        [
            fp32(),
            replace(fp32("net/fp32/openvino/t1/b1", size_bytes=3_000_000), latency=latency(0.001)),
            timed(STATIC, 5, size_bytes=2_000_000),
        ],
        {"rules": rules(minimize="size")},
    ),
    "the fastest fp32 is what the run found out side by side": (
        [
            fp32(),
            replace(
                fp32("net/fp32/openvino/t1/b1"),
                latency=latency(0.0024),
                speedup_fastest=Fastest(baseline="net/fp32/torch/t1/b1", value=0.97, low=0.95, high=0.99),
            ),
            timed(STATIC, 0.8),
        ],
        {},
    ),
    "fp32 starts sooner": (
        [costing(fp32(), 1.0), costing(timed(STATIC, 2.5), 4.0)],
        {"rules": rules(minimize="cold_start")},
    ),
    "as much memory as fp32": (
        [costing(fp32(), 1.0), costing(timed(STATIC, 2.5), 1.0)],
        {"rules": rules(minimize="memory")},
    ),
    "the smallest is slower than fp32": (
        [
            fp32(),
            timed(STATIC, 0.5),
            timed(X86, 0.99, 0.03, size_bytes=261_000),
            timed(QAT, 0.5, size_bytes=260_010),
            timed("net/static/fbgemm/t1/b1", 0.5),
        ],
        {"rules": rules(minimize="size", prefer=["accuracy"])},
    ),
    "less memory": (
        [costing(fp32(), 4.0), costing(timed(STATIC, 2.5), 1.0), costing(timed(QAT, 0.99, 0.03), 1.5)],
        {"rules": rules(minimize="memory")},
    ),
    "the lightest fp32 is not the fastest": (
        [
            costing(fp32(), 4.0),
            costing(replace(fp32("net/fp32/openvino/t1/b1"), latency=latency(0.001)), 5.0),
            costing(timed(STATIC, 2.0), 1.0),
        ],
        {"rules": rules(minimize="memory")},
    ),
    "what is faster is wrong or too large": (
        [
            fp32(),
            timed(STATIC, 2.0),
            *(timed(f"net/static/{name}/t1/b1", 4.0, accuracy=LOSSY) for name in BACKENDS[:4]),
            *(timed(f"net/qat/{name}/t1/b1", 4.0, size_bytes=700_000) for name in BACKENDS[:3]),
            timed("net/qat/openvino/t1/b1", 1.5, size_bytes=700_000),
        ],
        {"rules": rules({"size": {"max_ratio": 0.5}})},
    ),
    "a series that moved, and a precision not reached": (
        [fp32(), int8(speedup=speedup(2.5, 0.05, stopped="max_seconds", steady=False))],
        {},
    ),
    "a precision that was nearly reached": ([fp32(), int8(speedup=speedup(2.5, 0.0199, stopped="processes"))], {}),
    "a precision that was just reached": ([fp32(), int8(speedup=speedup(2.5, 0.0197, stopped="processes"))], {}),
    "a noisy control": ([fp32(), int8(speedup=speedup(control=Interval(value=1.0, low=0.6, high=1.2)))], {}),
    "a noisy control where size is minimized": (
        [fp32(), int8(speedup=speedup(control=Interval(value=1.0, low=0.6, high=1.2)))],
        {"rules": rules(minimize="size")},
    ),
    "no control of two processes, which need none": (
        [fp32(), int8(speedup=speedup(control=None, processes=2, stopped="screened"))],
        {},
    ),
    "no control": ([fp32(), int8(speedup=speedup(control=None))], {}),
    "one call after the other": ([fp32(), int8(speedup=ALONE, latency=latency(0.0025 / 2.66))], {}),
    "a host that shared the core": (
        [
            fp32(),
            int8(
                latency=replace(latency(0.001), p50_from="undisturbed", p50_all_seconds=0.0014),
                interference=Interference(blocks=90, involuntary_switches=0, page_faults=0, shared=0.25),
            ),
        ],
        {},
    ),
    "two outputs that nobody judged": (
        [fp32(), int8(accuracy=replace(accuracy(), outputs=list_outputs("boxes", "masks")))],
        {},
    ),
    "an output without a name that nobody judged": (
        [fp32(), int8(accuracy=replace(accuracy(), outputs=list_outputs("1")))],
        {},
    ),
    "the choice of calibration examples decides": (
        [fp32(), int8(accuracy=replace(accuracy(), calibration=CalibrationSeeds(seeds=(0, 1), values=(0.97, 0.9))))],
        {},
    ),
    "measured in one process": (with_samples(fp32(), timed(STATIC, 2.5)), {"samples": stored(processes=1)}),
    "measured in two processes": (with_samples(fp32(), timed(STATIC, 2.5)), {"samples": stored(processes=2)}),
    "measured in three processes": (with_samples(fp32(), timed(STATIC, 2.5)), {"samples": stored(processes=3)}),
    "its processes differ": (
        with_samples(fp32(), timed(STATIC, 2.5)),
        {"samples": stored(processes=3, onednn=0.2, torch=0.2)},
    ),
    "its processes differ by as much as it gains": (
        with_samples(fp32(), timed(STATIC, 2.5)),
        {"samples": stored(processes=3, onednn=0.8, torch=0.8)},
    ),
    "slower for certain, in one process": (
        with_samples(fp32(), timed(STATIC, 0.5)),
        {"samples": stored(processes=1)},
    ),
    "damaged files": (
        with_samples(fp32(), timed(STATIC, 2.5), timed(X86, 2.49)),
        {"samples": broken, "values": broken},
    ),
    "two runs in one": (
        [
            fp32(),
            timed(STATIC, 2.5),
            replace(fp32("net/fp32/openvino/t1/b1"), latency=latency(0.0026)),
            int8(
                "net/static/openvino/t1/b1",
                latency=latency(0.00102),
                speedup=speedup(2.55, baseline="net/fp32/openvino/t1/b1"),
            ),
        ],
        {},
    ),
    "some failed and one was skipped": (
        [fp32(), int8(), failed(X86), failed(QAT), skipped("net/static/fbgemm/t1/b1")],
        {},
    ),
    "all failed": ([fp32(), failed(), failed(QAT), skipped(X86)], {}),
    "nothing but fp32": ([fp32()], {}),
    "no time of any": (
        [fp32(), replace(timed(STATIC, 2.5), latency=None), replace(timed(BF16, 2.5), latency=None)],
        {},
    ),
    "predicted alone": ([fp32(), PREDICTED], {}),
    "emulated alone": ([fp32(), replace(PREDICTED, accuracy=None, host=HostFacts(kind="emulated"))], {}),
    "predicted beside what is measured": ([fp32(), PREDICTED, timed(QAT, 1.5)], {}),
    "one planned case is missing": ([fp32(), int8()], {"planned": [QAT]}),
    "many planned cases are missing": (
        [fp32(), timed(STATIC, 0.8)],
        {"planned": [f"net/qat/{name}/t1/b1" for name in BACKENDS]},
    ),
    "no case has a record": ([], {"planned": [f"net/qat/{name}/t1/b1" for name in BACKENDS[:4]]}),
    "no readable suite": ([fp32(), int8()], {"rules": None}),
    "one leads here and has no time there": (untimed_leaders(1), {}),
    "four lead here and have no time there": (untimed_leaders(4), {}),
}


def test_each_situation_is_told() -> None:
    """Answer, figures, tie, doubts, what would change it, what else was tried, and the next step; nothing besides.
    ``QBENCH_WRITE_GOLDEN=1`` writes the list anew."""
    told = []
    for name, (records, given) in SITUATIONS.items():
        readers = {"metric": MetricInfo(name="top1"), "rules": rules(), "source": Source(suite="s.yaml", run="s")}
        judged = judge(records, **readers | given)
        told += [name, *(f"    {line}" for line in text.lines(decide(judged)[-1], judged)), ""]
    assert same_as_golden("decisions.txt", "\n".join(told))
