"""Rules of qbench/bisect/text.py: the answer first, its figures beside it, and what to do where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_bisections import ANSWERS, GOOD, METRIC, ask, lost, make_question, slow
from made_records import same_as_golden

from qbench import formatting
from qbench.bisect import text
from qbench.bisect.answer import Answer, Kind
from qbench.bisect.search import Bracket, Judged
from qbench.progress.table import align
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval


def test_every_answer_in_words() -> None:
    """As they are printed. ``QBENCH_WRITE_GOLDEN=1`` writes them anew."""
    lines = []
    for name, (asked, answer) in ANSWERS.items():
        question = ask(asked)
        lines += [f"# {name} (exit code {answer.exit_code})", text.sum_up(question, answer, METRIC), ""]
    lines += [align(text.tabulate(ask("latency"), ANSWERS["several"][1], METRIC)), ""]
    assert same_as_golden("bisect.txt", "\n".join(lines))


def test_every_kind_of_answer_has_words_and_an_exit_code() -> None:
    """None is forgotten."""
    from typing import get_args

    assert {answer.kind for _, answer in ANSWERS.values()} == set(get_args(Kind))


def test_of_several_the_likeliest_is_told() -> None:
    """Where one is likelier than all others together; not where the others could not be looked at."""
    bracket = Bracket(last_good=2, first_bad=4, chance=0.99)
    judged = {**ANSWERS["several"][1].judged, 3: slow(1.02, side="open", p_bad=0.1)}
    told = text.sum_up(ask("latency"), Answer(kind="several", judged=judged, bracket=bracket), METRIC)
    assert "which one cannot be told, most likely 1.24.0 (90.0 %)." in told
    told = text.sum_up(ask("latency mended"), Answer(kind="several", judged=judged, bracket=bracket), METRIC)
    assert "most likely 1.25.0 (90.0 %)" in told
    assert "most likely" not in text.sum_up(ask("latency"), ANSWERS["several"][1], METRIC)


def test_what_is_taken_back_later_is_told() -> None:
    """A layer may cost more than all of them together."""
    judged = {**ANSWERS["named"][1].judged, 4: slow(1.1), 8: slow(1.05)}
    told = text.sum_up(ask("latency"), Answer(kind="named", judged=judged, bracket=ANSWERS["named"][1].bracket), METRIC)
    assert "takes a part back" in told
    assert "comes in several" not in told


def test_the_search_is_announced_with_its_size() -> None:
    """So that a reader knows how many environments, builds or commits to expect."""
    assert text.announce(ask("latency")) == "9 releases from 1.20.0 to 1.28.0, of which about 5 are looked at"
    assert text.announce(make_question(candidates=("1", "2"))).endswith("of which about 2 are looked at")


def test_layers_are_told_as_layers() -> None:
    """The ends are float and int8, a candidate is a layer in int8."""
    question = make_question("accuracy", way="layers", candidates=("all in float", "conv1", "conv2"))
    bracket = Bracket(last_good=0, first_bad=1, chance=1.0)
    named = Answer(kind="named", judged={0: GOOD, 1: lost(2), 2: lost(2)}, bracket=bracket)
    assert text.sum_up(question, named, METRIC).startswith("conv1 in int8 lowered top1: ")
    same = Answer(kind="same", judged={0: GOOD, 2: lost(0.2, side="good")})
    assert text.sum_up(question, same, METRIC).startswith("float and int8 are not shown to differ")


def test_a_worse_score_is_shown_in_the_metrics_own_direction() -> None:
    """An error rate that grows is a plus."""
    metric = MetricInfo(name="wer", higher_is_better=False)
    assert text.show_value(ask("accuracy"), lost(2), metric) == "+2.0 [+1.0, +3.0] points"
    assert text.show_value(ask("accuracy"), lost(2), METRIC) == "-2.0 [-3.0, -1.0] points"


SLOW = replace(slow(1.05), size=6)


@pytest.mark.parametrize(
    ("judged", "left", "words"),
    [
        (None, None, "looked at"),
        (GOOD, None, "good"),
        (GOOD, 1, "good"),
        (GOOD, 2, "good; one of 2 releases"),
        (replace(GOOD, reason="as the good end"), None, "good"),
        (SLOW, 8, f"bad ({text.show_value(ask('latency'), SLOW, None)} 6 process pairs); one of 8 releases"),
        (replace(SLOW, size=0), None, f"bad ({text.show_value(ask('latency'), SLOW, None)})"),
        (Judged(side="bad", p_bad=1.0, reason="it\nfails"), None, "bad (it fails)"),
        (Judged(side="skipped", p_bad=None, reason="no wheel"), None, "passed by (no wheel)"),
        (Judged(side="open", p_bad=0.5, size=1200, reason="noise"), None, "open (1,200 process pairs; noise)"),
    ],
)
def test_a_look_is_told_with_what_it_showed_and_what_is_left(
    judged: Judged | None, left: int | None, words: str
) -> None:
    """Why, but where it is a good one."""
    known = {} if judged is None else {4: judged}
    assert text.describe_look(ask("latency"), 4, known, left, None) == f"onnxruntime 1.24.0: {words}"


def test_a_score_without_limits_is_shown_without() -> None:
    """The change alone, in the metric's own direction."""
    for metric, change in ((METRIC, -0.02), (MetricInfo(name="wer", higher_is_better=False), 0.02)):
        shown = text.show_value(ask("accuracy"), replace(lost(2), value=Interval(value=-0.02)), metric)
        assert shown == metric.show_change(Interval(value=change))


FIRST_BAD = Judged(side="bad", p_bad=1.0, reason="opset 20")


def test_what_runs_again_is_told_with_what_the_one_before_said() -> None:
    """It is the newer of the two."""
    judged = {**ANSWERS["named by failure"][1].judged, 4: FIRST_BAD}
    answer = replace(ANSWERS["named by failure"][1], judged=judged)
    told = text.sum_up(ask("failure mended"), answer)
    assert told == "onnxruntime 1.25.0 is the first that runs again: onnxruntime 1.24.0 says opset 20."


@pytest.mark.parametrize(
    "unmeasured", [{3: replace(GOOD, reason="runs the same as onnxruntime 1.20.0")}, {8: Judged(side="bad", p_bad=1.0)}]
)
def test_a_step_that_was_not_measured_is_told_by_its_place(unmeasured: dict[int, Judged]) -> None:
    """As from a candidate that runs the very same as an end."""
    answer = ANSWERS["named"][1]
    told = text.sum_up(ask("latency"), replace(answer, judged={**answer.judged, **unmeasured}), METRIC)
    assert told == (
        "onnxruntime 1.24.0 made it slower: 1.23.0 is the last before it. The chance that it is this one is 98.7 %."
    )


@pytest.mark.parametrize(
    ("chance", "words"), [(0.999, "99.9 %"), (0.9991, "above 99.9 %"), (1.0, "above 99.9 %"), (0.5, "50.0 %")]
)
def test_no_chance_is_told_as_sure(chance: float, words: str) -> None:
    """Looks can be wrong."""
    bracket = Bracket(last_good=3, first_bad=4, chance=chance)
    told = text.sum_up(ask("latency"), replace(ANSWERS["named"][1], bracket=bracket), METRIC)
    assert told.endswith(f"The chance that it is this one is {words}.")


@pytest.mark.parametrize(("on", "chance"), [("latency", " (chance 99.0 %)"), ("failure", ""), ("bits", "")])
@pytest.mark.parametrize(("first_bad", "more"), [(4, ""), (5, "; and 1 more"), (6, "; and 2 more")])
def test_of_several_three_say_why_they_could_not_be_judged(on: str, chance: str, first_bad: int, more: str) -> None:
    """A chance is of figures; of failures and bits there is none, and none is the likeliest."""
    judged = {0: GOOD, 1: Judged(side="open", p_bad=0.5)}
    judged |= {place: Judged(side="skipped", p_bad=None, reason=f"no {place}") for place in range(2, first_bad)}
    judged |= {first_bad: FIRST_BAD, 8: FIRST_BAD}
    bracket = Bracket(last_good=0, first_bad=first_bad, chance=0.99)
    told = text.sum_up(ask(on), Answer(kind="several", judged=judged, bracket=bracket))
    done = {
        "latency": "made it slower",
        "failure": "is the first that fails",
        "bits": "is the first that gives other bits",
    }
    assert told.endswith(
        f" {done[on]}{chance}; which one cannot be told. 1.21.0: it stays undecided; 1.22.0: no 2; 1.23.0: no 3{more}"
    )
    likely = {**judged, 1: Judged(side="open", p_bad=0.9)}
    told = text.sum_up(ask(on), Answer(kind="several", judged=likely, bracket=bracket))
    assert ("most likely 1.21.0" in told) == (on == "latency")


def test_ends_that_run_the_same_are_told_so() -> None:
    """Whatever a change of time would have to be."""
    answer = Answer(kind="same", judged={0: GOOD, 8: replace(GOOD, reason="runs the same as onnxruntime 1.20.0")})
    assert text.sum_up(ask("latency"), answer) == (
        "onnxruntime 1.20.0 and onnxruntime 1.28.0 do not differ (runs the same as onnxruntime 1.20.0): there is "
        "nothing to search for, so none is named."
    )


def test_int8_that_is_better_needs_no_search() -> None:
    """Its layers cannot be named as --good."""
    question = make_question("latency", way="layers", candidates=("all in float", "conv1", "conv2"))
    told = text.sum_up(question, Answer(kind="better", judged={0: GOOD, 2: slow(0.5)}), METRIC)
    assert told.startswith("int8 is the better one (-50.0 % [")
    assert told.endswith("none is named; `qbench explain` shows what it could gain yet.")


def test_ends_that_cannot_be_told_apart_need_no_reason() -> None:
    """The figure shows it."""
    told = text.sum_up(ask("latency"), Answer(kind="open", judged={0: GOOD, 8: replace(slow(1.01), size=48)}), METRIC)
    assert told == (
        "onnxruntime 1.20.0 and onnxruntime 1.28.0 cannot be told apart here (+1.0 % [+0.4, +1.6], 48 process pairs); "
        "none is named. On a quieter machine less noise hides the change."
    )


def test_a_bad_end_that_cannot_be_had_is_no_failure_to_search_for() -> None:
    """Where failures are searched for already."""
    answer = Answer(kind="bad unusable", judged={0: GOOD, 8: Judged(side="skipped", p_bad=None, reason="no wheel")})
    told = text.sum_up(ask("failure"), answer)
    assert told == "onnxruntime 1.28.0 cannot be looked at: no wheel; --bad must be one that can."


def test_the_table_has_a_hundred_letters_of_a_reason() -> None:
    """The rest stands in the journal."""
    reason = "no wheel for " + "x" * 150
    answer = Answer(kind="cut", judged={0: GOOD, 8: Judged(side="skipped", p_bad=None, reason=reason)})
    rows = text.tabulate(ask("latency"), answer).rows
    assert rows[1][4] == formatting.shorten(reason, 100)
    assert len(rows[1][4]) == 100


def test_the_output_that_lost_is_named() -> None:
    """Where a network has several."""
    asked, answer = ANSWERS["named by accuracy"]
    assert "of the output" not in text.sum_up(ask(asked), answer, METRIC)
    last = ask(asked).last
    named = replace(answer, judged={**answer.judged, last: replace(answer.judged[last], output="boxes")})
    assert "lowered top1 of the output boxes: " in text.sum_up(ask(asked), named, METRIC)
