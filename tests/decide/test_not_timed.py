"""Rules of decide/not_timed: on a host without a time of what leads on this machine the answer is open, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import FP32, accuracy, case_key, failed, fp32, int8, latency, skipped, speedup

from qbench.decide import text
from qbench.decide.decision import Decision, decide
from qbench.decide.json_text import find_shipped
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.record.schema import HostFacts, Record
from qbench.record.stored_run import MetricInfo

FBGEMM, ORT = "net/static/fbgemm/t1/b1", "net/static/onnxruntime/t1/b1"
FP32_ORT = "net/fp32/onnxruntime/t1/b1"
WHY = "not limited: it has no switch"


def timed(record: Record, seconds: float) -> Record:
    """The record with a typical call of so many seconds, and that speed-up over fp32 on PyTorch."""
    over = None if record.case.mode == "fp32" else speedup(0.0025 / seconds)
    return replace(record, latency=latency(seconds), speedup=over)


def other_fp32(seconds: float) -> Record:
    """fp32 on ONNX Runtime."""
    return timed(replace(fp32(), case=case_key(FP32_ORT)), seconds)


def on_avx2(record: Record) -> Record:
    """The same case limited to AVX2."""
    case, speed = replace(record.case, id=f"{record.case.id}/avx2", host="avx2"), record.speedup
    speed = None if speed is None else replace(speed, baseline=f"{speed.baseline}/avx2")
    return replace(record, case=case, host=HostFacts(kind="limited"), speedup=speed)


def predicted(record: Record) -> Record:
    """Its answers there are known, and no time."""
    return replace(on_avx2(record), host=HostFacts(kind="predicted"), latency=None, speedup=None)


def not_tried(record: Record) -> Record:
    """Skipped there."""
    return on_avx2(skipped(record.case.id, WHY))


def judge_all(records: list[Record]) -> Judged:
    """With the default rules."""
    return judge(records, MetricInfo(name="top1"), SuiteRules())


def there(records: list[Record]) -> Decision:
    """The decision on avx2."""
    return decide(judge_all(records))[-1]


TORCH, LOSES = fp32(), accuracy(harmful=60)
STATIC = timed(int8(FBGEMM), 0.001)


@pytest.mark.parametrize(
    ("here", "why"),
    [(predicted, "its answers there are predicted, not measured"), (not_tried, WHY)],
)
def test_an_fp32_that_leads_here_and_has_no_time_there_leaves_the_answer_open(here, why) -> None:
    """Nothing is shipped for certain; the order of those that were timed is said."""
    leader = other_fp32(0.0005)
    decision = there([TORCH, leader, STATIC, on_avx2(TORCH), on_avx2(STATIC), here(leader)])
    assert decision.verdict == "undecided"
    assert decision.headline == (
        f"Undecided: fp32 on ONNX Runtime leads on native and has no time on avx2 ({why}). "
        "Of those timed there: ship static int8 on FBGEMM (PyTorch)."
    )
    assert (decision.probability, decision.would_change, find_shipped(decision)) == (None, (), None)
    assert decision.pick is not None
    assert decision.pick.case.backend == "fbgemm"


def test_an_int8_that_leads_here_and_may_be_shipped_does_so_too() -> None:
    """With the fp32 of its runtime; the accuracy that is predicted there counts."""
    records = [TORCH, STATIC, timed(int8(ORT), 0.0008), on_avx2(TORCH), on_avx2(STATIC)]
    assert there([*records, predicted(int8(ORT))]).headline.startswith("Undecided: static int8 on ONNX Runtime leads")
    lossy = there([*records, predicted(int8(ORT, accuracy=LOSES))])
    assert (lossy.verdict, lossy.headline) == ("ship", "Ship static int8 on FBGEMM (PyTorch).")


@pytest.mark.parametrize("fate", [predicted, lambda record: on_avx2(failed(record.case.id))])
def test_what_does_not_lead_here_changes_nothing_there(fate) -> None:
    """Nor what does not run there; an fp32 without a time is said to be no part of the decision."""
    slow = timed(int8(ORT), 0.002)
    decision = there([TORCH, STATIC, slow, other_fp32(0.004), on_avx2(TORCH), on_avx2(STATIC), fate(slow),
                      fate(other_fp32(0.004))])  # fmt: skip
    assert decision.headline == "Ship static int8 on FBGEMM (PyTorch)."
    said = "Without a time here, and not part of the decision: fp32 on ONNX Runtime."
    assert (said in decision.notes) == (fate is predicted)


def test_what_was_not_timed_here_leads_nothing_and_is_led_by_nothing() -> None:
    """What is meant there has no time here to be held against; a twin is never kept, however fast."""
    there_only = [TORCH, timed(int8(ORT), 0.0008), on_avx2(TORCH), on_avx2(STATIC), predicted(int8(ORT))]
    assert there(there_only).headline == "Ship static int8 on FBGEMM (PyTorch)."
    twin = other_fp32(0.0005)
    twin = replace(twin, case=replace(twin.case, recipe="twin"))
    records = [TORCH, twin, STATIC, on_avx2(TORCH), on_avx2(STATIC), predicted(twin)]
    assert there(records).headline == "Ship static int8 on FBGEMM (PyTorch)."


@pytest.mark.parametrize(
    ("int8_there", "said"),
    [
        (timed(int8(FBGEMM), 0.004), "keep fp32 on PyTorch"),
        (timed(int8(FBGEMM, accuracy=LOSES), 0.001), "none qualifies"),
        (
            timed(int8(FBGEMM, accuracy=accuracy(harmful=9, beneficial=2)), 0.001),
            "undecided: static int8",
        ),
    ],
)
def test_which_fp32_stays_is_open_too(int8_there: Record, said: str) -> None:
    """Also where no int8 is shipped."""
    leader = other_fp32(0.0005)
    decision = there([TORCH, leader, STATIC, on_avx2(TORCH), on_avx2(int8_there), predicted(leader)])
    assert decision.verdict == "undecided"
    assert f"Of those timed there: {said}" in decision.headline


def test_the_answer_here_is_what_it_was() -> None:
    """And a host where nothing was timed has no answer at all."""
    leader = other_fp32(0.0005)
    records = [TORCH, leader, STATIC, predicted(leader), predicted(STATIC)]
    assert [each.verdict for each in decide(judge_all(records))] == ["keep fp32", "no answer"]


def test_the_terminal_says_it_first() -> None:
    """With the figures of the one that was timed."""
    leader = other_fp32(0.0005)
    judged = judge_all([TORCH, leader, STATIC, on_avx2(TORCH), on_avx2(STATIC), predicted(leader)])
    first, *rest = text.lines(decide(judged)[-1], judged)
    assert "undecided: fp32 on ONNX Runtime leads on native" in first
    assert "1.00 ms a call" in rest[0]
    assert "repeated" not in first
    assert FP32.split("/")[0] in first


def test_what_may_not_be_shipped_hides_no_leader_behind_it() -> None:
    """Whatever the order of the records."""
    leader, lossy = other_fp32(0.0005), timed(int8(ORT, accuracy=LOSES), 0.0008)
    records = [TORCH, leader, STATIC, lossy, on_avx2(TORCH), on_avx2(STATIC)]
    for rest in ([predicted(lossy), predicted(leader)], [predicted(leader), predicted(lossy)]):
        assert there([*records, *rest]).headline.startswith("Undecided: fp32 on ONNX Runtime leads on native")
