"""Rules of qbench/report/ruling.py: what the terminal's last column says of each case."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import accuracy, fp32, int8, latency, speedup

from qbench.decide import reasons
from qbench.decide.cases import Setting
from qbench.decide.decision import Decision, decide
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.report.ruling import Ruling, rank, rule
from qbench.stats.interval_type import Interval

QAT = "net/qat/onednn/t1/b1"
X86 = "net/static/x86/t1/b1"
SETTING = Setting(model="net", threads=1, batch_size=1)


def judged(*records: Record) -> Judged:
    """Records with their accuracy tests."""
    return judge(records, MetricInfo(name="top1"), SuiteRules())


def ruled(*records: Record) -> dict[str, Ruling]:
    """The rulings by case id, after today's decisions."""
    run = judged(*records)
    return rule(run, decide(run))


def word(reason: str) -> str:
    """What is said of a case that a decision gives this reason for."""
    run = judged(fp32(), int8())
    decision = Decision(setting=SETTING, verdict="ship", headline="", not_it=((reason, (int8().case.id,)),))
    return rule(run, [decision])[int8().case.id].word


def test_the_pick_is_shipped_and_compared_with_the_fastest_fp32() -> None:
    """By the interval that the decision rests on."""
    rulings = ruled(fp32(), int8())
    pick = rulings[int8().case.id]
    assert (pick.word, pick.candidate, pick.picked) == ("ship", True, True)
    assert pick.over_fp32 is not None
    assert pick.over_fp32.value == pytest.approx(2.5)
    assert pick.over_fp32.low is not None
    own = rulings[fp32().case.id]
    assert own.word == "fastest fp32"
    assert own.over_fp32 is not None
    assert (own.over_fp32.value, own.over_fp32.low) == (1.0, None)


def test_what_breaks_a_limit_is_no_candidate() -> None:
    """Nor what is slower than fp32; what is only slower than the pick is one."""
    rulings = ruled(
        fp32(), int8(), int8(QAT, accuracy=accuracy(harmful=60)), int8(X86, speedup=speedup(0.5)),
        int8("net/static/fbgemm/t1/b1", speedup=speedup(1.5)),
    )  # fmt: skip
    words = {case.split("/", 1)[1]: (ruling.word, ruling.candidate) for case, ruling in rulings.items()}
    assert words["qat/onednn/t1/b1"] == ("loses too much", False)
    assert words["static/x86/t1/b1"] == ("slower than fp32", False)
    assert words["static/fbgemm/t1/b1"] == ("slower", True)


def test_where_fp32_stays_it_is_named() -> None:
    """The fp32 that is kept says so, with the sign of what is shipped; another fp32 has the sign of a reference."""
    rulings = ruled(fp32(), int8(speedup=speedup(0.5), latency=latency(0.005)))
    kept = rulings[fp32().case.id]
    assert (kept.word, kept.symbol) == ("keep", "✓")
    assert ruled(fp32(), int8())[fp32().case.id].symbol == "●"


@pytest.mark.parametrize(
    ("ruling", "symbol"),
    [
        (Ruling(word="ship", candidate=True, picked=True), "✓"),
        (Ruling(word="either", candidate=True, picked=True), "≈"),
        (Ruling(word="tied with the fastest", candidate=True), "≈"),
        (Ruling(word="slower", candidate=True), "↓"),
        (Ruling(word="accuracy open", candidate=True), "?"),
        (Ruling(word="slower than fp32"), "✗"),
    ],
)
def test_a_sign_says_the_same_as_the_word(ruling: Ruling, symbol: str) -> None:
    """What to ship, as good, not as good, open, ruled out."""
    assert ruling.symbol == symbol


def test_what_a_decision_is_about_without_shipping_it() -> None:
    """The best int8 beside an fp32 that stays, and a pick whose accuracy is open."""
    slow = int8(speedup=speedup(0.5), latency=latency(0.005))
    assert ruled(fp32(), slow)[slow.case.id].word == "slower than fp32"
    open_ = int8(accuracy=accuracy(harmful=9, beneficial=2))
    ruling = ruled(fp32(), open_)[open_.case.id]
    assert (ruling.word, ruling.candidate) == ("accuracy open", True)


def test_either_of_two_is_named_twice() -> None:
    """The pick and the runner-up stand first, both."""
    run = judged(fp32(), int8(), int8(QAT))
    first, second = run.records[1:]
    decision = Decision(setting=SETTING, verdict="either", headline="", pick=first, runner_up=second)
    rulings = rule(run, [decision])
    assert [rulings[record.case.id].word for record in (first, second)] == ["either", "either"]
    assert all(rulings[record.case.id].picked for record in (first, second))


@pytest.mark.parametrize("reason", [several for _, several in reasons.BROKEN.values()] + list(reasons.OPEN.values()))
def test_every_limit_has_a_short_word(reason: str) -> None:
    """16 characters and a plain variant's name leave room for limits in 80 columns."""
    assert len(word(reason)) <= 16


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("tied, needs training", "tied, training"),
        ("no gain shown", "no gain shown"),
        ("larger than fp32", "larger than fp32"),
        ("latency not measured", "latency not measured"),
    ],
)
def test_other_reasons(reason: str, told: str) -> None:
    """What is short enough, or rare, is said as it is."""
    assert word(reason) == told


@pytest.mark.parametrize(
    ("minimize", "told"), [("latency", "slower than fp32"), ("memory", "not shown smaller in memory")]
)
def test_beside_an_fp32_that_stays_the_best_int8_is_told_by_what_is_minimized(minimize: str, told: str) -> None:
    """A slower one is not ruled out by its time where memory is what is asked for."""
    run = judged(fp32(), int8(speedup=speedup(0.5), speedup_fastest=speedup(0.5), latency=latency(0.005)))
    decision = Decision(
        setting=SETTING,
        verdict="keep fp32",
        headline="",
        fp32=run.records[0],
        objective=minimize,  # type: ignore[arg-type]
    )
    assert rule(run, [decision])[int8().case.id].word == told


def test_two_p50_give_no_limits() -> None:
    """An old record without a speed-up over the fastest fp32 shows the ratio alone."""
    bare = replace(int8(), speedup=None, speedup_fastest=None)
    over = ruled(fp32(), bare)[bare.case.id].over_fp32
    assert over is not None
    assert (over.low, over.high) == (None, None)


def test_a_twin_and_what_is_fp32_in_effect_are_called_so() -> None:
    """Neither is a candidate, and the twin is no rival to the fastest fp32."""
    twin = replace(fp32("net/fp32@twin/torch/t1/b1"), latency=latency(0.0001))
    twin = replace(twin, case=replace(twin.case, mode="fp32", recipe="twin"))
    nearly = int8("net/dynamic/x86/t1/b1", coverage=0.001)
    rulings = ruled(fp32(), twin, int8(), nearly)
    assert rulings[twin.case.id].word == "fp32 twin"
    assert rulings[fp32().case.id].word == "fastest fp32"
    assert (rulings[nearly.case.id].word, rulings[nearly.case.id].candidate) == ("practically fp32", False)


def test_what_the_answer_shows_no_gain_of_is_not_counted_as_faster() -> None:
    """Its own limits lie above 1, and the answer's test, which is corrected for the number tried, says otherwise."""
    run = judged(fp32(), int8(), int8(X86, latency=latency(0.0023), speedup=speedup(1.1)))
    decisions = decide(run)
    denied = replace(decisions[0], not_it=((reasons.NO_GAIN, (X86,)),))
    assert rule(run, decisions)[X86].faster
    assert not rule(run, [denied])[X86].faster


@pytest.mark.parametrize(
    ("low", "high", "slower", "faster"),
    [(0.9, 1.0, False, False), (1.0, 1.1, False, False), (0.8, 0.9, True, False), (1.1, 1.2, False, True)],
)
def test_faster_and_slower_are_shown_by_the_limits(low: float, high: float, slower: bool, faster: bool) -> None:
    """Limits that reach once as fast show neither; without limits the ratio tells, and 1 is neither."""
    ruling = Ruling(word="slower", over_fp32=Interval(value=(low + high) / 2, low=low, high=high))
    assert (ruling.slower, ruling.faster) == (slower, faster)
    for value in (0.9, 1.0, 1.1):
        plain = Ruling(word="slower", over_fp32=Interval(value=value))
        assert (plain.slower, plain.faster) == (value < 1, value > 1)


def test_the_pick_stands_before_what_may_be_shipped_too() -> None:
    """However fast that is; what is no candidate stands after fp32."""
    pick, other, lossy = int8(), int8(QAT), int8(X86)
    over = Interval(value=3.0, low=2.9, high=3.1)
    rulings = {
        fp32().case.id: Ruling(word="fastest fp32", over_fp32=Interval(value=1.0)),
        pick.case.id: Ruling(word="ship", candidate=True, picked=True, over_fp32=Interval(value=2.0)),
        other.case.id: Ruling(word="tied", candidate=True, over_fp32=over),
        lossy.case.id: Ruling(word="loses too much", over_fp32=over),
    }
    records = [fp32(), lossy, other, pick]
    assert rank(judged(*records), records, rulings) == [pick, other, fp32(), lossy]


def test_what_broke_a_limit_is_told_before_what_is_open() -> None:
    """In whatever order they were checked; where nothing is open, nothing is decided."""
    checks = [SimpleNamespace(limit="size", outcome="INCONCLUSIVE", bound=None),
              SimpleNamespace(limit="memory", outcome="FAIL", bound=None)]  # fmt: skip
    run = judged(fp32(), int8())
    for outcomes, told in ((checks, "needs too much"), (checks[:1], "size open"), ([], "undecided")):
        decision: Any = Decision(
            setting=SETTING, verdict="none qualifies", headline="", checks={int8().case.id: tuple(outcomes)}
        )
        assert rule(run, [decision])[int8().case.id].word == told


def test_where_memory_is_minimized_slower_than_fp32_is_no_reason() -> None:
    """The fastest fp32 is still what times are held against."""
    slow = int8(latency=latency(0.005), speedup=speedup(0.5))
    run = judged(fp32(), slow)
    kept: Any = Decision(setting=SETTING, verdict="keep fp32", headline="", objective="memory", fp32=None)
    rulings = rule(run, [kept])
    assert rulings[slow.case.id].word == reasons.name_no_gain("memory")
    assert rulings[fp32().case.id].word == "fastest fp32"
    told = replace(kept, objective="latency", fp32=run.records[0])
    assert rule(run, [told])[slow.case.id].word == "slower than fp32"


def test_times_are_held_against_the_fp32_that_the_answer_names() -> None:
    """Not against one that was faster by p50, but where something else is minimized."""
    other = fp32("net/fp32/onnxruntime/t1/b1")
    faster = replace(fp32(), latency=latency(0.002))
    untimed = replace(int8(), latency=None, speedup=None)
    run = judged(faster, other, untimed)
    for objective, named in (("latency", other), ("memory", faster)):
        decision: Any = Decision(setting=SETTING, verdict="ship", headline="", objective=objective, fp32=other)
        rulings = rule(run, [decision])
        assert [case for case, each in rulings.items() if each.over_fp32 == Interval(value=1.0)] == [named.case.id]
        assert [case for case, each in rulings.items() if each.word == "fastest fp32"] == [named.case.id]
        assert rulings[untimed.case.id].over_fp32 is None
