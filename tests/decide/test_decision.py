"""Rules of decide/decision: one answer per setting, and what is said beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_records import FP32, accuracy, failed, fp32, int8, latency, list_outputs, skipped, speedup

from qbench.decide import text
from qbench.decide.cases import Setting, setting_name
from qbench.decide.decision import Decision, decide
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.decide.sureness import say_chance
from qbench.errors import UsageError
from qbench.record.schema import ColdStart, Fastest, HostFacts, Interference, Memory, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

TOP1 = MetricInfo(name="top1")
LOSSY = accuracy(harmful=60)
OPEN = accuracy(harmful=9, beneficial=2)
KEPT = "keep fp32 on PyTorch (2.50 ms a call)."
ONEDNN, ON_X86 = "on oneDNN (PyTorch)", "on x86 (PyTorch)"
STATIC, QAT, X86 = "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1", "net/static/x86/t1/b1"
BF16, WEIGHTS = "net/bf16/onednn/t1/b1", "net/weight_only/onednn/t1/b1"


def rules(gate: dict[str, Any] | None = None, **spec: Any) -> SuiteRules:
    """What a suite asks for."""
    return SuiteRules(gate=GateSpec.model_validate(gate or {}), decide=DecideSpec.model_validate(spec))


def only(records: list[Record], asked: SuiteRules | None = None, **readers: Any) -> Decision:
    """The single decision on some records."""
    (decision,) = decide(judge(records, TOP1, asked or rules(), **readers))
    return decision


def measured(case: str, value: float, **changes: Any) -> Record:
    """An int8 case that is ``value`` times as fast as fp32, known to 1 %."""
    return int8(case, latency=latency(0.0025 / value), speedup=speedup(value), **changes)


PREDICTED = replace(int8(), latency=None, speedup=None, host=HostFacts(kind="predicted"))


@pytest.mark.parametrize(
    ("records", "verdict", "headline"),
    [
        ([fp32(), int8()], "ship", "Ship static int8 on oneDNN (PyTorch)."),
        ([fp32(), measured(STATIC, 2.5, accuracy=LOSSY), measured(QAT, 1.5)], "ship", f"Ship QAT int8 {ONEDNN}."),
        ([fp32(), measured(STATIC, 2.5, coverage=0.0), measured(QAT, 1.5)], "ship", f"Ship QAT int8 {ONEDNN}."),
        (
            [fp32(), int8(accuracy=OPEN)],
            "undecided",
            f"Undecided: static int8 {ONEDNN}, the fastest candidate, may or may not lose more accuracy than the "
            "margin: top1 -0.7 [-1.4, -0.1] points, margin 1: about 17,000 examples would decide, there are 1,000.",
        ),
        (
            [fp32(), int8(accuracy=None)],
            "undecided",
            f"Undecided: static int8 {ONEDNN}, the fastest candidate, has no accuracy to compare with its fp32's.",
        ),
        (
            [fp32(), int8(accuracy=LOSSY)],
            "none qualifies",
            f"None qualifies: static int8 on oneDNN (PyTorch) loses more accuracy than the margin of 1 point; {KEPT}",
        ),
        (
            [fp32(), int8(accuracy=LOSSY), int8(QAT, coverage=0.0)],
            "none qualifies",
            "None qualifies: 1 of 2 loses more accuracy than the margin of 1 point, "
            "1 of 2 runs nothing in int8; keep fp32 on PyTorch (2.50 ms a call).",
        ),
        (
            [fp32(), int8(coverage=0.0)],
            "none qualifies",
            f"None qualifies: no candidate runs in int8; {KEPT}",
        ),
        ([fp32(), failed()], "no answer", "No answer: no int8 case was measured (1 failed)."),
        ([skipped()], "no answer", "No answer: no int8 case was measured (1 skipped)."),
        ([fp32(), replace(int8(), latency=None)], "no answer", "No answer: latency was measured of no int8 case."),
        (
            [PREDICTED],
            "no answer",
            "No answer: the int8 cases are predicted here, not measured; their accuracy counts.",
        ),
        ([fp32(), PREDICTED, measured(QAT, 1.5)], "ship", "Ship QAT int8 on oneDNN (PyTorch)."),
        (
            [fp32(), measured(STATIC, 0.8)],
            "keep fp32",
            "Keep fp32 on PyTorch (2.50 ms a call) unless size decides: the fastest int8 that holds its accuracy, "
            "static int8 on oneDNN (PyTorch), takes 3.12 ms.",
        ),
        ([int8()], "ship", "Ship static int8 on oneDNN (PyTorch)."),
    ],
)
def test_the_answer(records: list[Record], verdict: str, headline: str) -> None:
    """The best of what holds every limit and is shown to be better than fp32; else plainly why there is none."""
    decision = only(records)
    assert (decision.verdict, decision.headline) == (verdict, headline)


@pytest.mark.parametrize(
    ("value", "half", "verdict"), [(1.3, 0.02, "ship"), (1.3, 0.4, "keep fp32"), (0.9, 0.4, "keep fp32")]
)
def test_what_is_not_shown_to_be_faster_ships_nothing(value: float, half: float, verdict: str) -> None:
    """Where the limits on the speed-up over the fastest fp32 hold 1, fp32 stays."""
    decision = only([fp32(), int8(speedup=speedup(value, half))])
    assert decision.verdict == verdict
    if verdict == "keep fp32":
        assert "no int8 variant is shown to be faster" in decision.headline


@pytest.mark.parametrize(
    ("value", "half", "said"),
    [
        (1.02, 0.03, "To show its gain of 2.0 %, about"),
        (1.0, 0.03, ""),
        (0.97, 0.4, ""),
        (1.0001, 0.03, ""),
    ],
)
def test_a_small_gain_is_worth_more_processes_only_where_there_is_one(value: float, half: float, said: str) -> None:
    """What is estimated to be slower, or ahead by less than any number of processes tells, needs no more measuring."""
    decision = only([fp32(), int8(latency=latency(0.0025 / value), speedup=speedup(value, half))])
    assert decision.verdict == "keep fp32"
    assert [note for note in decision.notes if "gain" in note and note.startswith(said)] != [] if said else True
    assert said or not any("processes" in note for note in decision.notes)


def test_the_fastest_fp32_of_any_backend_is_what_counts() -> None:
    """A variant that beats its own fp32 and not the fastest one is not shipped."""
    rival = replace(fp32("net/fp32/openvino/t1/b1"), latency=latency(0.0008))
    slower = int8(speedup_fastest=Fastest(baseline=rival.case.id, value=0.8, low=0.79, high=0.81))
    decision = only([fp32(), rival, slower])
    assert decision.verdict == "keep fp32"
    assert decision.headline.startswith("Keep fp32 on OpenVINO (800 µs a call)")


@pytest.mark.parametrize(("value", "verdict"), [(0.3, "keep fp32"), (1.2, "undecided")])
def test_what_is_slower_than_fp32_needs_no_more_examples(value: float, verdict: str) -> None:
    """Where accuracy is open but the case is slower than fp32 for certain, fp32 stays."""
    assert only([fp32(), measured(STATIC, value, accuracy=OPEN)]).verdict == verdict


def test_without_an_interval_two_typical_calls_decide_with_their_doubt() -> None:
    """Protocol sequential has no interval and no control: far apart is still told, and so is the doubt."""
    alone = speedup(2.5, low=None, high=None, protocol="sequential", control=None)
    decision = only([fp32(), int8(speedup=alone)])
    assert decision.verdict == "ship"
    assert "Protocol sequential has no control" in " ".join(decision.notes)
    near = speedup(1.1, low=None, high=None, protocol="sequential", control=None)
    assert only([fp32(), int8(speedup=near, latency=latency(0.0025 / 1.1))]).verdict == "keep fp32"


# --- the tie, and what decides it --------------------------------------------------------------------------------


def test_within_the_tie_no_training_decides() -> None:
    """qat 1 % faster than static, equal in accuracy: static is shipped, and the card says why."""
    decision = only([fp32(), measured(STATIC, 2.5), measured(QAT, 2.525)])
    assert decision.headline == "Ship static int8 on oneDNN (PyTorch)."
    assert decision.tied == (QAT, STATIC)
    assert decision.tie is not None
    assert decision.tie == (
        f"Tied with the best by its estimate, QAT int8 {ONEDNN}, in latency, as the difference may be 3 % or less: "
        f"static int8 {ONEDNN} (1.0 % slower [-0.4, +2.4])."
    )
    assert decision.deciding_step is not None
    assert decision.deciding_step.startswith(f"training: static int8 {ONEDNN} needs none, QAT int8 {ONEDNN} does (in ")
    assert (
        "(in accuracy they tie: static int8 on oneDNN (PyTorch) against QAT int8 on oneDNN (PyTorch) 0.0 points"
        in decision.deciding_step
    )
    assert "by latency alone, without a tie of 3 %: QAT int8 on oneDNN (PyTorch)" in decision.would_change


def test_within_the_tie_no_calibration_decides() -> None:
    """bf16 2 % slower than static int8 and twice its bytes: bf16 is shipped, which nothing was calibrated for."""
    bf16 = measured(BF16, 2.45, size_bytes=520_000)
    decision = only([fp32(), measured(STATIC, 2.5), bf16])
    assert decision.headline == f"Ship bf16 {ONEDNN}."
    assert decision.deciding_step is not None
    assert decision.deciding_step.startswith(f"calibration: bf16 {ONEDNN} needs none, static int8 {ONEDNN} does")
    sized = rules(prefer=["size", "no_calibration"])
    assert only([fp32(), measured(STATIC, 2.5), bf16], sized).headline == f"Ship static int8 {ONEDNN}."
    slower = measured(BF16, 2.2, size_bytes=520_000)
    assert only([fp32(), measured(STATIC, 2.5), slower]).headline == f"Ship static int8 {ONEDNN}."


def test_bf16_that_runs_in_fp32_is_none() -> None:
    """Its share of bf16 says that it is one, not that of int8, which is 0."""
    assert only([fp32(), measured(BF16, 2.5, coverage=0.98)]).headline == f"Ship bf16 {ONEDNN}."
    assert only([fp32(), measured(BF16, 2.5, coverage=0.0)]).verdict == "none qualifies"


@pytest.mark.parametrize(
    ("times", "headline"),
    [
        ((2.5, 2.5, 2.5), "Ship weight-only on oneDNN (PyTorch)."),  # all within 3 %: no calibration, then size
        ((2.5, 2.45, 2.0), "Ship bf16 on oneDNN (PyTorch)."),
        ((2.5, 2.0, 1.9), "Ship static int8 on oneDNN (PyTorch)."),
        ((1.5, 2.5, 2.0), "Ship bf16 on oneDNN (PyTorch)."),
        ((1.5, 2.0, 2.5), "Ship weight-only on oneDNN (PyTorch)."),
    ],
)
def test_the_card_where_int8_bf16_and_weights_alone_tie_or_differ(times: tuple[float, ...], headline: str) -> None:
    """The fastest beyond the tie; within it what needs no data, then the smallest."""
    sizes = {STATIC: 260_000, BF16: 520_000, WEIGHTS: 150_000}
    records = [measured(case, value, size_bytes=sizes[case]) for case, value in zip(sizes, times, strict=True)]
    assert only([fp32(), *records]).headline == headline


def test_outside_the_tie_the_faster_one_is_shipped() -> None:
    """10 % faster and shown: qat, whatever else speaks for static."""
    decision = only(
        [fp32(), measured(STATIC, 2.5), measured(QAT, 2.75, speedup_fastest=None)],
    )
    assert decision.headline == "Ship QAT int8 on oneDNN (PyTorch)."


def predicted(right: dict[str, list[int]], n: int = 10_000) -> Any:
    """A reader of values: of each case the ranges of examples that it has wrong, as (start, end)."""

    def read(record: Record, base: Record | None) -> Any:
        values = np.ones(n)
        start, end = right.get(record.case.id, [0, 0])
        values[start:end] = 0
        return values

    return read


def test_within_the_tie_accuracy_comes_first() -> None:
    """131 and 132.7 us, and 5 points between them: the more accurate one, though it needed training, and the card
    says whose gain that is."""
    gain = accuracy(harmful=100, beneficial=620, n=10_000, right=8220)
    even = accuracy(harmful=20, beneficial=20, n=10_000, right=8220)
    records = [fp32(), measured(STATIC, 2.5, accuracy=even), measured(QAT, 2.47, accuracy=gain)]
    decision = only(records, values=predicted({STATIC: [0, 1780], QAT: [0, 1260]}))
    assert decision.headline == "Ship QAT int8 on oneDNN (PyTorch)."
    assert decision.deciding_step is not None
    assert decision.deciding_step.startswith(
        "accuracy: QAT int8 on oneDNN (PyTorch) against static int8 on oneDNN (PyTorch) +5.2 points"
    )
    assert "QAT int8 on oneDNN (PyTorch) (+5.2 points): the gain over fp32 is the training's, not int8's" in " ".join(
        decision.notes
    )
    assert "fp32_twin" in " ".join(decision.notes)


def test_all_arms_tied_and_nothing_to_tell_them_apart() -> None:
    """Copies of one artifact: one is shipped, the card says that the estimate alone decided."""
    copies = [measured(f"net/static/{backend}/t1/b1", 2.5) for backend in ("fbgemm", "onednn", "x86")]
    decision = only([fp32(), *copies])
    assert decision.verdict == "ship"
    assert len(decision.tied) == 3
    assert decision.deciding_step is not None
    assert "nothing that decide.prefer names tells it from" in decision.deciding_step


def test_size_decides_where_it_is_preferred() -> None:
    """`prefer` is the user's order."""
    records = [fp32(), measured(STATIC, 2.5, size_bytes=400_000), measured(QAT, 2.5)]
    assert only(records).headline == "Ship static int8 on oneDNN (PyTorch)."
    decision = only(records, rules(prefer=["size", "no_training"]))
    assert decision.headline == "Ship QAT int8 on oneDNN (PyTorch)."
    assert decision.deciding_step is not None
    assert decision.deciding_step.startswith(
        "size: QAT int8 on oneDNN (PyTorch) 260 kB in all, static int8 on oneDNN (PyTorch) 400 kB in all"
    )


# --- other objectives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minimize", ["size", "cold_start", "memory"])
def test_other_objectives_have_their_own_measure(minimize: str) -> None:
    """The smallest artifact, the quickest start, or the least memory, with the same rule."""
    from qbench.record.schema import ColdStart

    def cost(times: float) -> dict[str, Any]:
        return {
            "memory": Memory(loaded_rss_bytes=int(1e8 * times), peak_rss_bytes=None),
            "cold_start": ColdStart(load_seconds=0.01 * times, first_call_seconds=0.01 * times, processes=6),
        }

    full = replace(fp32(), **cost(4.0))
    large = measured(STATIC, 2.5, size_bytes=500_000, **cost(2.0))
    small = measured(QAT, 1.5, size_bytes=200_000, **cost(1.0))
    assert only([full, large, small]).headline == "Ship static int8 on oneDNN (PyTorch)."
    decision = only([full, large, small], rules(minimize=minimize))
    assert (decision.verdict, decision.headline) == ("ship", "Ship QAT int8 on oneDNN (PyTorch).")


@pytest.mark.parametrize("minimize", ["size", "memory", "cold_start"])
def test_what_is_shipped_for_its_bytes_or_its_start_though_slower_says_so(minimize: str) -> None:
    """A pick that takes longer than the fastest fp32 has a note, and no figure stands twice in the answer."""
    start, memory = (
        ColdStart(load_seconds=0.01, first_call_seconds=0.01),
        Memory(loaded_rss_bytes=4 * 10**8, peak_rss_bytes=None),
    )
    full = replace(fp32(), cold_start=start, memory=memory)
    own = {
        "cold_start": ColdStart(load_seconds=0.001, first_call_seconds=0.001),
        "memory": Memory(loaded_rss_bytes=100_000_000, peak_rss_bytes=None),
    }
    judged = judge([full, measured(STATIC, 0.5, **own)], TOP1, rules(minimize=minimize))
    (decision,) = decide(judged)
    assert decision.headline == "Ship static int8 on oneDNN (PyTorch)."
    assert "It is slower than fp32: 0.500 [0.495, 0.505] times as fast as fp32 on PyTorch." in decision.notes
    line = text.lines(decision, judged)[1]
    assert line.count("5.00 ms a call") == 1
    figure = {"size": "26 % of its size", "memory": "100 MB resident", "cold_start": "2.00 ms to load and call once"}
    assert line.count(figure[minimize]) == 1


def test_the_headline_of_an_fp32_that_stays_is_not_said_again() -> None:
    """The figure of what is minimized stands in the headline; the numbers behind it go on from there."""
    full = replace(fp32(), memory=Memory(loaded_rss_bytes=100_000_000, peak_rss_bytes=None))
    judged = judge(
        [full, int8(memory=Memory(loaded_rss_bytes=100_000_000, peak_rss_bytes=None))], TOP1, rules(minimize="memory")
    )
    (decision,) = decide(judged)
    assert decision.verdict == "keep fp32"
    assert decision.sentence.count("100 MB resident") == 2  # of fp32, and of the variant
    assert [reason for reason, _ in decision.not_it] == ["not shown smaller in memory"]  # its time is another question
    assert "resident" not in text.facts(decision, judged)


def test_no_fp32_is_kept_that_breaks_a_ceiling_either() -> None:
    """Where neither int8 nor fp32 holds a limit, the answer says both."""
    decision = only([fp32(), int8()], rules(max_latency="1 us"))
    assert decision.headline == (
        f"None qualifies: static int8 {ONEDNN} takes longer than decide.max_latency; no fp32 holds "
        "decide.max_latency either."
    )


def test_no_smaller_variant_keeps_fp32() -> None:
    """An objective that no int8 variant serves keeps fp32."""
    decision = only([fp32(), int8(size_bytes=2_000_000)], rules(minimize="size"))
    assert decision.verdict == "keep fp32"
    assert "no int8 variant" in decision.headline or "has 2.00 MB" in decision.headline


# --- limits ------------------------------------------------------------------------------------------------------


def test_limits_that_flip_the_choice() -> None:
    """A size limit, a promised speed-up and a margin each make another variant the answer, and the card of the one
    without them says so."""
    fast = measured(X86, 4.0, size_bytes=400_000, accuracy=accuracy(harmful=6, beneficial=4))
    slow = measured(STATIC, 2.5)
    assert only([fp32(), fast, slow]).headline == "Ship static int8 on x86 (PyTorch)."
    limited = only([fp32(), fast, slow], rules({"size": {"max_ratio": 0.3}}))
    assert limited.headline == "Ship static int8 on oneDNN (PyTorch)."
    assert "without gate.size.max_ratio: static int8 on x86 (PyTorch)" in limited.would_change
    assert ("are larger than gate.size.max_ratio allows", (X86,)) in limited.not_it
    tight = only([fp32(), fast, slow], rules({"accuracy": {"margin": 0.5}}))
    assert tight.pick is not None
    assert tight.pick.case.id == STATIC
    assert "at a margin of 0.9 points: static int8 on x86 (PyTorch)" in tight.would_change
    promised = only([fp32(), fast, slow], rules({"latency": {"min_speedup": 5.0}}))
    assert promised.headline.startswith("None qualifies: 2 of 2 do not keep gate.latency.min_speedup")


@pytest.mark.parametrize(("harmful", "told"), [(49, True), (51, False)])
def test_no_margin_is_named_that_would_let_a_broken_network_pass(harmful: int, told: bool) -> None:
    """Of 100 examples that fp32 has right: less than half of them is no choice that a wider margin makes."""
    broken = measured(X86, 4.0, accuracy=accuracy(harmful=harmful, n=100, right=100))
    decision = only([fp32(), broken, measured(STATIC, 2.5)])
    assert any("static int8 on x86" in change for change in decision.would_change) is told


def test_a_least_score_is_varied_as_the_suite_gives_it() -> None:
    """Beside `at_least`, a margin would be read as a score: an agreement of 99.2 %, not 0.8 points, is named."""
    fast = measured(X86, 4.0, accuracy=accuracy(harmful=6, beneficial=4))
    asked = rules({"accuracy": {"metric": "top1_agreement", "at_least": 99.5}})
    assert (
        "if top1 must be at least 99.1 %: static int8 on x86 (PyTorch)"
        in only([fp32(), fast, measured(STATIC, 2.5)], asked).would_change
    )


def test_what_is_below_the_least_score_does_not_lose_more_than_a_margin() -> None:
    """The answer names the key of the suite and its score."""
    slow = measured(STATIC, 2.5, accuracy=accuracy(harmful=60))
    asked = rules({"accuracy": {"metric": "top1_agreement", "at_least": 99.5}})
    assert "is below gate.accuracy.at_least of 99.5 %" in only([fp32(), slow], asked).headline


def test_an_fp32_that_breaks_a_ceiling_is_not_kept() -> None:
    """fp32 starts a little faster, but takes longer than `max_latency`: the int8 variant that holds it is shipped, and
    nothing says that fp32 would be in its place."""
    start = {"load_seconds": 0.01, "first_call_seconds": 0.01}
    slow = replace(fp32(), cold_start=ColdStart(**start))
    quick = replace(measured(STATIC, 2.5), cold_start=ColdStart(load_seconds=0.012, first_call_seconds=0.012))
    free = only([slow, quick], rules(minimize="cold_start"))
    assert free.verdict == "keep fp32"
    bound = only([slow, quick], rules(minimize="cold_start", max_latency="1.5 ms"))
    assert bound.headline == "Ship static int8 on oneDNN (PyTorch)."
    assert not any("fp32" in change for change in bound.would_change if "max_latency" not in change)


def test_limits_that_no_variant_can_hold_leave_none() -> None:
    """Contradictory limits are no error: the card counts what each of them rules out, and names the one to drop."""
    records = [fp32(), measured(STATIC, 2.5), measured(X86, 2.0, size_bytes=900_000)]
    decision = only(records, rules({"size": {"max_ratio": 0.5}}, max_latency="1 us"))
    assert decision.verdict == "none qualifies"
    assert decision.pick is None
    assert "1 of 2 takes longer than decide.max_latency" in decision.headline
    assert "1 of 2 is larger than gate.size.max_ratio allows" in decision.headline
    assert decision.would_change == ("without decide.max_latency: static int8 on oneDNN (PyTorch)",)


def test_several_that_are_all_undecided_name_the_one_that_leads() -> None:
    """Where no accuracy is decided, the fastest is what examples should be spent on, and all are counted."""
    decision = only([fp32(), measured(STATIC, 2.5, accuracy=OPEN), measured(X86, 3.0, accuracy=OPEN)])
    assert decision.verdict == "undecided"
    assert decision.headline.startswith(
        "Undecided: static int8 on x86 (PyTorch), the fastest candidate, may or may not"
    )
    assert decision.not_it == (("undecided on accuracy", (STATIC,)),)
    assert "examples would decide, there are 1,000" in decision.headline
    assert not any("would decide" in note for note in decision.notes)  # said once


def test_a_promise_that_another_variant_keeps_would_change_the_choice() -> None:
    """A promise is over a variant's own fp32: the int8 of a slow runtime may keep one that the fastest does not."""
    slow = "net/fp32/torch/t1/b1"
    fast = replace(fp32("net/fp32/openvino/t1/b1"), latency=latency(0.0015))
    own = int8("net/static/openvino/t1/b1", latency=latency(0.0008), speedup=speedup(1.9, baseline=fast.case.id))
    best = Fastest(baseline=fast.case.id, value=1.5, low=1.49, high=1.51)
    other = int8(speedup=speedup(2.5, baseline=slow), speedup_fastest=best)
    records = [fp32(), fast, own, other]
    decision = only(records, rules({"latency": {"min_speedup": 1.2}}))
    assert decision.headline == "Ship static int8 on OpenVINO."
    said = f"at a promised speed-up of 1.9 over its own fp32 (gate.latency.min_speedup): static int8 {ONEDNN}"
    assert said in decision.would_change
    assert not any("promised" in change for change in only(records).would_change)  # no suite promises anything here


def test_without_the_runtime_another_one_wins() -> None:
    """What is shipped where a runtime is not there; once, where that is also what is next without the pick."""
    other = measured("net/static/onnxruntime/t1/b1", 1.5)
    told = "without oneDNN (PyTorch): static int8 on ONNX Runtime"
    assert told in only([fp32(), int8(), measured("net/qat/onednn/t1/b1", 1.8), other]).would_change
    next_best = only([fp32(), int8(), other])
    assert next_best.runner_up is other
    assert not any("without" in change for change in next_best.would_change)


def test_a_runtime_without_which_int8_is_no_gain_leaves_fp32() -> None:
    """What is left holds its accuracy and is slower than fp32: fp32 would be taken, and nothing is left open."""
    slower = measured("net/static/onnxruntime/t1/b1", 0.5)
    decision = only([fp32(), int8(), slower])
    assert "without oneDNN (PyTorch): fp32 on PyTorch" in decision.would_change


def test_of_the_margins_that_change_the_choice_the_nearest_is_said() -> None:
    """Each side by itself: where only a tighter one would change it, no wider one is named."""
    lossy, lossier = accuracy(harmful=4, beneficial=2), accuracy(harmful=6, beneficial=4)
    cases = [measured(X86, 4.0, accuracy=lossier), measured(QAT, 3.0, accuracy=lossy), measured(STATIC, 2.5)]
    margins = [change for change in only([fp32(), *cases]).would_change if "margin" in change]
    assert margins == [f"at a margin of 0.8 points: QAT int8 {ONEDNN}"]


def test_one_runtime_only_has_no_alternative() -> None:
    """Without the only runtime there is nothing to say but fp32."""
    records = [fp32("net/fp32/onednn/t1/b1"), int8(speedup=speedup(baseline="net/fp32/onednn/t1/b1"))]
    assert not [line for line in only(records).would_change if line.startswith("without")]


def test_every_other_case_has_a_counted_reason() -> None:
    """Slower than fp32, no gain shown, ruled out, failed: each int8 case but the pick is counted once."""
    records = [
        fp32(),
        measured(STATIC, 2.5),
        measured(QAT, 0.5),
        measured(X86, 0.4),
        measured("net/dynamic/x86/t1/b1", 1.001),
        measured("net/qat/x86/t1/b1", 3.0, accuracy=LOSSY),
        failed("net/qat/qnnpack/t1/b1"),
    ]
    decision = only(records)
    reasons = {reason: len(cases) for reason, cases in decision.not_it}
    assert reasons == {
        "slower than fp32": 2, "no gain shown": 1, "lose more accuracy than the margin": 1, "failed": 1,
    }  # fmt: skip
    assert (
        "Not shipped: 2 slower than fp32 (QAT int8 on oneDNN (PyTorch), static int8 on x86 (PyTorch)); "
        in text.points(decision)[-2]
    )
    assert "1 loses more accuracy than the margin (QAT int8 on x86 (PyTorch))" in text.points(decision)[-2]
    assert text.points(decision)[-1] == f"Next step: {decision.next_step}"
    assert "Faster, but wrong: QAT int8 on x86 (PyTorch)" in " ".join(decision.notes)
    assert "Failed while being measured, and not part of the decision: QAT int8 on QNNPACK (PyTorch)." in decision.notes


# --- how sure ----------------------------------------------------------------------------------------------------


def test_what_may_be_the_best_makes_it_either_one() -> None:
    """A faster variant whose accuracy is open: below four in five the headline names both, and what would decide."""
    likely = measured(X86, 4.0, accuracy=accuracy(harmful=6, beneficial=1))
    decision = only([fp32(), int8(), likely])
    assert decision.verdict == "either"
    assert decision.headline.startswith(
        "Either static int8 on oneDNN (PyTorch) or static int8 on x86 (PyTorch): the latter may or may not lose"
    )
    assert "examples would decide" in decision.headline
    assert decision.probability is not None
    assert decision.probability < 0.8
    assert decision.not_it == ()  # both are named above


def test_what_is_slower_than_the_fp32_that_stays_is_not_called_faster() -> None:
    """Though it is faster than the best int8 that may be shipped; what is faster than fp32 is."""
    slower, faster = (measured(X86, value, accuracy=LOSSY) for value in (0.95, 1.5))
    best = measured(STATIC, 0.8)
    assert not any("but wrong" in note for note in only([fp32(), best, slower]).notes)
    assert any(
        note.startswith("Faster, but wrong: static int8 on x86 (PyTorch)")
        for note in only([fp32(), best, faster]).notes
    )


def test_one_clear_winner_is_as_sure_as_can_be_said() -> None:
    """Far ahead of fp32 and of all others."""
    decision = only([fp32(), measured(STATIC, 2.5), measured(X86, 1.5)])
    assert decision.probability is not None
    assert say_chance(decision.probability) == "about 19 times in 20"
    assert decision.runner_up is not None
    assert decision.runner_up.case.id == X86


def test_the_same_run_is_decided_alike_each_time() -> None:
    """Draws are seeded."""
    records = [fp32(), measured(STATIC, 2.5), measured(QAT, 2.45)]
    assert only(records) == only(records)


# --- doubts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"control": None}, "control (A/A) was not measured"),
        ({"value": 1.1, "control": Interval(value=1.03, low=1.01, high=1.06)}, "half the distance to fp32"),
        ({"steady": False}, "series was not steady"),
        ({"half": 0.05, "stopped": "max_seconds"}, "ended at measure.max_seconds with a speed-up known to 5"),
        ({"half": 0.05, "stopped": "processes"}, "ended after the most generations of processes with a speed-up"),
        ({"half": 0.05, "stopped": "screened"}, "ended with the screening with a speed-up"),
    ],
)
def test_the_answer_doubts_what_does_not_vouch_for_itself(changes: dict[str, Any], said: str) -> None:
    """A pick whose control or series is off, or that never reached the precision, is named with the doubt beside it,
    by the gate's own rule."""
    assert said in " ".join(only([fp32(), int8(speedup=speedup(**changes))]).notes)


def test_what_is_shown_to_be_slower_is_known_well_enough() -> None:
    """Where fp32 stays since the best int8 left after the screening, no finer limits are asked for."""
    left = measured(STATIC, 0.5)
    assert left.speedup is not None
    left = replace(left, speedup=replace(left.speedup, low=0.45, high=0.55, processes=1, stopped="screened"))
    decision = only([fp32(), left])
    assert decision.verdict == "keep fp32"
    assert decision.notes == ()


def test_an_fp32_that_stays_for_want_of_proof_says_what_ended_the_measuring() -> None:
    """Where int8 is not shown to be slower, finer limits could still ship it."""
    open_ = int8(speedup=speedup(1.05, 0.2, stopped="max_seconds"))
    decision = only([fp32(), open_])
    assert decision.verdict == "keep fp32"
    assert any("ended at measure.max_seconds" in note for note in decision.notes)


def test_the_terminal_names_the_outputs_that_nobody_judged() -> None:
    """Beside the figure, and in how sure it is."""
    judged = judge([fp32(), int8(accuracy=replace(accuracy(), outputs=list_outputs("1")))], TOP1, rules())
    first, *rest = text.lines(decide(judged)[0], judged)
    assert "no accuracy lost in the first of 2 outputs" in first
    assert first.endswith("repeated, chosen about every other time")
    assert any("No surer, since 1 of its 2 outputs was judged." in line for line in rest)
    assert "points (of the first of 2 outputs)" in rest[0]
    assert any("No label judges its output 1 (sqnr 31.2 dB), counted from 0:" in line for line in rest)


@pytest.mark.parametrize(
    ("changes", "named"), [({}, True), ({"stage": "build"}, False), ({"status": "skipped"}, False)]
)
def test_only_what_broke_while_it_was_measured_is_named_as_that(changes: dict[str, Any], named: bool) -> None:
    """It may have been the best; what could not be built, or was skipped, never ran."""
    notes = only([fp32(), int8(), replace(failed(X86), **changes)]).notes
    said = "Failed while being measured, and not part of the decision: static int8 on x86 (PyTorch)."
    assert notes == ((said,) if named else ())


def test_a_quiet_measurement_is_not_doubted() -> None:
    """A control that could not have carried the estimate half the way is no doubt."""
    wide = speedup(control=Interval(value=1.03, low=1.01, high=1.05))
    assert only([fp32(), int8(speedup=wide)]).notes == ()


def test_without_a_readable_suite_the_answer_is_undecided() -> None:
    """The margin is in the suite; without it no variant is called good or bad."""
    (decision,) = decide(judge([fp32(), int8()], TOP1, None))
    assert decision.verdict == "undecided"
    assert "cannot be read" in decision.headline


def test_variants_of_two_groups_were_not_measured_against_each_other() -> None:
    """Old runs: each over its own fp32; close ones are named with that."""
    openvino = "net/fp32/openvino/t1/b1"
    other = replace(fp32(openvino), latency=latency(0.0026))
    case = "net/static/openvino/t1/b1"
    rival = int8(case, latency=latency(0.00102), speedup=speedup(2.55, baseline=openvino))
    decision = only([fp32(), int8(), other, rival])
    assert "not measured against each other" in " ".join((decision.headline, *decision.notes))


def broken(record: Record) -> Any:
    """A reader that finds a damaged file."""
    raise UsageError(f"{record.samples}: cannot be read as stored arrays: not a zip; delete it to go on without")


@pytest.mark.parametrize("read", [broken, lambda record: {}])
def test_samples_that_are_gone_or_damaged_are_one_note(read: Any) -> None:
    """A run's folder is data: the decision rests on the records then, and says of which cases, in the same words."""
    records = [fp32(), int8(samples="samples/a.npz"), measured(QAT, 2.4, samples="samples/b.npz")]
    decision = only(records, samples=read)
    assert decision.verdict == "ship"
    assert (
        f"Without samples, which are gone or damaged: QAT int8 {ONEDNN}, static int8 {ONEDNN}; compared by their "
        "records, whose limits nothing that is stored bears out."
    ) in decision.notes


@pytest.mark.parametrize("verdict", ["ship", "keep fp32", "no answer"])
def test_planned_cases_without_a_record_are_missing_from_the_comparison(verdict: str) -> None:
    """A file of records that was cut, or a killed run: the answer says what it was compared without, and claims no
    probability."""
    records = {"ship": [fp32(), int8()], "keep fp32": [fp32(), measured(STATIC, 0.8)], "no answer": []}[verdict]
    decision = only(records, planned=[FP32, STATIC, QAT] if records else [QAT])
    assert decision.verdict == verdict
    assert decision.probability is None
    assert decision.missing == (QAT,)
    count = "1 of 3 planned cases is" if records else "1 of 1 planned cases is"
    assert decision.headline.startswith(
        f"Incomplete: {count} missing from the comparison (QAT int8 on oneDNN (PyTorch)); so far: "
    )
    said = " ".join(text.points(decision))
    assert "almost certain" not in said
    assert "What has no record was not compared, and it may be better" in said


def test_a_planned_case_of_another_setting_is_not_missed_here() -> None:
    """Settings are decided apart; one without any record has its own answer."""
    judged = judge([fp32(), int8()], TOP1, rules(), planned=[FP32, STATIC, "net/static/onednn/t2/b1", "no case"])
    first, second = decide(judged)
    assert (first.missing, first.headline) == ((), "Ship static int8 on oneDNN (PyTorch).")
    assert second.verdict == "no answer"
    assert second.missing == ("net/static/onednn/t2/b1",)


def test_each_setting_has_its_own_answer() -> None:
    """Threads and batch sizes are decided apart."""
    records = [int8(), int8("net/static/onednn/t2/b1"), int8("other/static/onednn/t1/b8")]
    judged: Judged = judge(records, TOP1, rules())
    assert [setting_name(decision.setting) for decision in decide(judged)] == [
        "net, 1 thread, batch 1",
        "net, 2 threads, batch 1",
        "other, 1 thread, batch 8",
    ]


def test_a_setting_names_the_host_that_is_not_this_machine() -> None:
    """With its title; by its name alone where its plug-in is not installed here, as in somebody else's run."""
    here = Setting(model="net", threads=2, batch_size=1, host="native")
    assert setting_name(here) == "net, 2 threads, batch 1"
    assert setting_name(replace(here, host="avx2")).startswith("net, 2 threads, batch 1, on avx2 (")
    assert setting_name(replace(here, host="theirs")) == "net, 2 threads, batch 1, on theirs"


def test_the_terminal_says_the_answer_first() -> None:
    """The sentence on a line of its own, its figures with their limits and what is behind it below."""
    judged = judge([fp32(), int8()], TOP1, rules())
    lines = text.lines(decide(judged)[0], judged)
    assert lines[0].startswith("net: ship static int8 on oneDNN (PyTorch): 2.5 times as fast as the best fp32")
    assert lines[1].startswith("  1.00 ms a call, 2.50 [2.48, 2.5")
    assert "times as fast as fp32 on PyTorch" in lines[1]
    assert all(line.startswith("  ") for line in lines[1:])
    assert FP32 not in lines[0]


@pytest.mark.parametrize(
    ("shared", "notes"),
    [(0.6, ("Its p50: 1.00 ms undisturbed; the host shared the core 60 % of the time.",)), (0.1, ())],
)
def test_a_host_that_shared_the_core_for_long_is_said(shared: float, notes: tuple[str, ...]) -> None:
    """Beside the pick: how its p50 was built and how much of the time something else used the core."""
    host = Interference(blocks=90, involuntary_switches=0, page_faults=0, shared=shared)
    watched = replace(latency(0.001), p50_from="undisturbed", p50_all_seconds=0.0014)
    assert only([fp32(), int8(latency=watched, interference=host)]).notes == notes


def test_a_dynamic_case_that_is_fp32_in_effect_is_never_shipped() -> None:
    """However fast it is; the reason says what it is."""
    nearly = measured("net/dynamic/x86/t1/b1", 5.0, coverage=0.001)
    decision = only([fp32(), int8(), nearly])
    assert decision.headline == "Ship static int8 on oneDNN (PyTorch)."
    assert decision.not_it == (("practically fp32", (nearly.case.id,)),)


def test_a_twin_is_not_the_fp32_to_keep() -> None:
    """A twin of fewer bytes or a faster run is there for the accuracy of qat only, not to be compared with."""
    twin = replace(fp32("net/fp32@twin/torch/t1/b1", size_bytes=900), latency=latency(0.0001))
    twin = replace(twin, case=replace(twin.case, mode="fp32", recipe="twin"))
    assert only([fp32(), twin, int8()]).headline == "Ship static int8 on oneDNN (PyTorch)."
    assert only([fp32(), twin, int8()], rules(minimize="size")).headline == "Ship static int8 on oneDNN (PyTorch)."
    slow = only([fp32(), twin, measured(STATIC, 0.8)])
    assert slow.headline.startswith("Keep fp32 on PyTorch (2.50 ms a call)")


def test_a_ratio_of_means_says_so_beside_a_median() -> None:
    """Protocol sequential compares means, which a few long calls move away from the medians."""
    alone = speedup(2.66, low=None, high=None, protocol="sequential", control=None)
    judged = judge([fp32(), int8(speedup=alone)], TOP1, rules())
    said = text.facts(decide(judged)[0], judged)
    assert "2.66 times as fast as fp32 on PyTorch by the mean call" in said
    paired = judge([fp32(), int8()], TOP1, rules())
    assert "by the mean call" not in text.facts(decide(paired)[0], paired)


def test_an_override_of_the_gate_decides_what_may_be_shipped() -> None:
    """A wider margin for one backend lets it ship, a stricter one rules it out; what would change it names the key."""
    lossy, other = measured(STATIC, 2.5, accuracy=accuracy(harmful=15)), measured(QAT, 1.5)
    assert only([fp32(), lossy, other]).headline == "Ship QAT int8 on oneDNN (PyTorch)."
    wide = rules({"overrides": [{"mode": "static", "accuracy": {"margin": 3.0}}]})
    decision = only([fp32(), lossy, other], wide)
    assert decision.headline == "Ship static int8 on oneDNN (PyTorch)."
    small = rules({"overrides": [{"mode": "static", "size": {"max_ratio": 0.1}}]})
    decision = only([fp32(), measured(STATIC, 2.5), other], small)
    assert decision.headline == "Ship QAT int8 on oneDNN (PyTorch)."
    assert "without gate.overrides[0].size.max_ratio: static int8 on oneDNN (PyTorch)" in decision.would_change


def test_margins_that_differ_are_not_named_as_one() -> None:
    """The headline says the margin where all that break it have the same."""
    gate = {"overrides": [{"mode": "static", "accuracy": {"margin": 2.0}}]}
    decision = only([fp32(), int8(accuracy=LOSSY), int8(QAT, accuracy=LOSSY)], rules(gate))
    assert "2 of 2 lose more accuracy than the margin; keep fp32" in decision.headline


@pytest.mark.parametrize("minimize", ["latency", "size"])
def test_what_is_predicted_is_never_shipped(minimize):
    """Also where size decides, which it has; the reason says why."""
    decision = only([fp32(), PREDICTED, measured(QAT, 1.5)], rules(minimize=minimize))
    assert decision.headline.startswith(("Ship QAT", "Keep fp32"))
    assert ("predicted, not measured", (STATIC,)) in decision.not_it


@pytest.mark.parametrize(
    ("judged", "place", "words"),
    [
        (True, 1, "in boxes, the worst of 2 outputs"),
        (True, 0, "in scores, the worst of 2 outputs"),
        (None, 0, "no accuracy lost, "),
        (False, 0, "in the first of 2 outputs"),
    ],
)
def test_the_sentence_says_which_of_several_outputs_was_judged(judged: bool | None, place: int, words: str) -> None:
    """Where all were, the worst by its name; where the suite names the one that counts, nothing."""
    outputs = list_outputs("boxes", judged=judged)
    entries = judge([fp32(), int8(accuracy=replace(accuracy(), outputs=outputs, judged=place))], TOP1, rules())
    first, *_ = text.lines(decide(entries)[0], entries)
    assert words in f"{first}, "
    assert ("outputs" in first) == (judged is not None)


def test_a_margin_that_flips_the_choice_is_told_on_the_side_where_it_lies() -> None:
    """What holds the margin already is no reason for a wider one: each margin is told once."""
    fast, slow = measured(X86, 4.0, accuracy=accuracy(harmful=6, beneficial=4)), measured(STATIC, 2.5)
    told = only([fp32(), fast, slow])
    assert told.headline == "Ship static int8 on x86 (PyTorch)."
    margins = [text for text in told.would_change if "at a margin of" in text]
    assert margins == ["at a margin of 0.8 points: static int8 on oneDNN (PyTorch)"]


def test_how_often_the_same_is_decided_again_is_of_what_is_shipped_or_kept() -> None:
    """Of a ship by its draws, of an fp32 that stays by what another measurement may show; of nothing else."""
    kept, shipped = only([fp32(), measured(STATIC, 0.8)]), only([fp32(), measured(STATIC, 2.5)])
    assert (kept.verdict, shipped.verdict) == ("keep fp32", "ship")
    assert kept.probability == pytest.approx(1.0, abs=1e-3)
    assert shipped.probability == 1.0
    near = only([fp32(), measured(STATIC, 1.0)])
    assert near.verdict == "keep fp32"
    assert near.probability is not None
    assert 0.8 < near.probability < 0.99
    assert only([fp32(), int8(accuracy=LOSSY)]).probability is None


def test_what_is_shipped_for_its_size_and_as_fast_as_fp32_is_not_called_slower() -> None:
    """Where both times are alike."""
    notes = only([fp32(), measured(STATIC, 1.0)], rules(minimize="size")).notes
    assert not any("slower" in note for note in notes)
    notes = only([fp32(), measured(STATIC, 0.999)], rules(minimize="size")).notes
    assert any(note.startswith("It may be slower than fp32") for note in notes)


def test_what_is_ahead_and_ruled_out_is_named_behind_what_is_ahead_and_was_not_preferred() -> None:
    """A training that ties is passed over; what is wrong and ahead of the pick is said all the same."""
    tied = int8(QAT, latency=latency(0.0025 / 4.0), speedup=speedup(4.0, 0.0005))
    wrong = int8(X86, latency=latency(0.0025 / 3.98), speedup=speedup(3.98, 0.0005), accuracy=LOSSY)
    picked = int8(STATIC, latency=latency(0.0025 / 3.95), speedup=speedup(3.95, 0.0005))
    decision = only([fp32(), tied, wrong, picked])
    assert decision.headline == f"Ship static int8 {ONEDNN}."
    assert any(note.startswith(f"Faster, but wrong: static int8 {ON_X86}") for note in decision.notes)
