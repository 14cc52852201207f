"""Rules of decide/sentence: the answer of a setting in one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import accuracy, failed, fp32, int8, latency, speedup

from qbench.decide import sentence
from qbench.decide.decision import decide
from qbench.decide.judged import Source, SuiteRules, judge
from qbench.record.schema import Accuracy, Memory, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

SLOW = int8(latency=latency(0.005), speedup=speedup(0.5))
SQNR = MetricInfo(name="sqnr", percent=False, own_unit="dB", against="fp32", perfect=100.0)
ONEDNN = "on oneDNN (PyTorch)"


def sentences(
    *records: Record, metric: MetricInfo | None = None, gate: dict[str, Any] | None = None, **spec: Any
) -> list[str]:
    """The sentence of each setting."""
    rules = SuiteRules(gate=GateSpec.model_validate(gate or {}), decide=DecideSpec.model_validate(spec))
    return [each.sentence for each in decide(judge(records, metric or MetricInfo(name="top1"), rules))]


def scored_in_decibels(value: float, record: Record) -> Record:
    """The record with a score in dB; fp32 has 100."""
    delta = Interval(value=value - 100, low=value - 101, high=value - 99)
    scores = Accuracy(metric="sqnr", value=value, low=value - 1, high=value + 1, n=1000, delta=delta)
    return replace(record, accuracy=scores)


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        (
            [fp32(), int8()],
            f"net: ship static int8 {ONEDNN}: 2.5 times as fast as the best fp32, no accuracy lost, 26 % of its "
            "size; repeated, chosen about 19 times in 20",
        ),
        (
            [fp32(), int8(accuracy=accuracy(harmful=3))],
            f"net: ship static int8 {ONEDNN}: 2.5 times as fast as the best fp32, top1 0.3 points worse, 26 % "
            "of its size; repeated, chosen about 19 times in 20",
        ),
        (
            [fp32(), int8(accuracy=accuracy(beneficial=30))],
            f"net: ship static int8 {ONEDNN}: 2.5 times as fast as the best fp32, top1 3.0 points better, 26 % "
            "of its size; repeated, chosen about 19 times in 20",
        ),
        (
            [fp32(), SLOW],
            "net: keep fp32 on PyTorch (2.50 ms a call) unless size decides: the fastest int8 that holds its accuracy, "
            "static int8 on oneDNN (PyTorch), takes 5.00 ms; repeated, kept about 19 times in 20",
        ),
        (
            [fp32(), int8(accuracy=accuracy(harmful=60))],
            f"net: none qualifies: static int8 {ONEDNN} loses more accuracy than the margin of 1 point; keep "
            "fp32 on PyTorch (2.50 ms a call)",
        ),
        (
            [fp32(), int8(accuracy=accuracy(harmful=9, beneficial=2))],
            f"net: undecided: static int8 {ONEDNN}, the fastest candidate, may or may not lose more accuracy "
            "than the margin: top1 -0.7 [-1.4, -0.1] points, margin 1: about 17,000 examples would decide, there are "
            "1,000",
        ),
        ([fp32(), failed()], "net: no answer: no int8 case was measured (1 failed)"),
    ],
)
def test_the_sentence_of_each_verdict(records: list[Record], sentence: str) -> None:
    """What to do, how fast, what accuracy, what size, how often it would be chosen; else why there is none."""
    assert sentences(*records) == [sentence]


def test_either_of_two_names_both_and_the_figures_of_the_first() -> None:
    """With what would decide between them."""
    likely = int8("net/static/x86/t1/b1", latency=latency(0.000625), speedup=speedup(4.0), accuracy=accuracy(harmful=6))
    (sentence,) = sentences(fp32(), int8(), likely)
    assert sentence.startswith(
        "net: either static int8 on oneDNN (PyTorch) or static int8 on x86 (PyTorch): the latter "
    )
    assert "; the former is 2.5 times as fast as the best fp32, no accuracy lost, 26 % of its size; " in sentence
    assert "; repeated, it would be chosen " in sentence


def test_a_score_against_fp32_is_given_as_it_is() -> None:
    """A least score has no change to tell: the score says how near fp32 it is."""
    gate = {"accuracy": {"metric": "sqnr", "at_least": 10}}
    records = (scored_in_decibels(100, fp32()), scored_in_decibels(38, int8()))
    (sentence,) = sentences(*records, metric=SQNR, gate=gate)
    assert "2.5 times as fast as the best fp32, sqnr 38.0 dB, 26 % of its size" in sentence


def test_what_is_minimized_comes_first() -> None:
    """Where that is neither time nor bytes; the fp32 that the time is held against is then the fastest."""
    light, heavy = (Memory(loaded_rss_bytes=size, peak_rss_bytes=None) for size in (50_000_000, 100_000_000))
    (sentence,) = sentences(replace(fp32(), memory=heavy), int8(memory=light), minimize="memory")
    assert "(PyTorch): 50.0 MB resident (fp32: 100 MB), 2.5 times as fast as the fastest fp32, " in sentence


def test_settings_of_one_model_are_told_apart_and_those_of_several_are_not_longer_for_it() -> None:
    """Threads and batch size stand where a model has several settings, nowhere else."""
    base = "b/fp32/torch/t2/b4"
    others = (fp32(base), int8("b/static/onednn/t2/b4", speedup=speedup(baseline=base)))
    assert [each.partition(":")[0] for each in sentences(fp32(), int8(), *others)] == ["net", "b"]
    base = "net/fp32/torch/t2/b4"
    others = (fp32(base), int8("net/static/onednn/t2/b4", speedup=speedup(baseline=base)))
    names = [each.partition(":")[0] for each in sentences(fp32(), int8(), *others)]
    assert names == ["net, 1 thread, batch 1", "net, 2 threads, batch 4"]


def test_a_quick_look_and_a_run_that_is_cut_say_so() -> None:
    """A first look begins with that; what is missing comes before what leads so far, which is not called sure."""
    top1 = MetricInfo(name="top1")
    (quick,) = decide(judge([fp32(), int8()], top1, SuiteRules(), source=Source(quick=True)))
    assert quick.sentence.startswith("quick look at net: ship ")
    (cut,) = decide(judge([fp32(), int8()], top1, SuiteRules(), planned=("net/qat/x86/t1/b1",)))
    assert cut.sentence.startswith("net: incomplete: 1 of 3 planned cases is missing")
    assert "QAT int8 on x86 (PyTorch)" in cut.sentence
    assert "repeated" not in cut.sentence


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(0.5, "0.50"), (1.094, "1.09"), (1.095, "1.1"), (2.54, "2.5"), (9.94, "9.9"), (10.0, "10"), (12.4, "12")],
)
def test_a_ratio_has_two_digits_and_three_near_1(ratio: float, told: str) -> None:
    """Where the second digit after the point is half of the news."""
    assert sentence._round_ratio(ratio) == told
