"""Rules of qbench/bisect/text.py: the answer first, its figures beside it, and what to do where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_bisections import ANSWERS, GOOD, METRIC, ask, lost, make_question, slow
from made_records import same_as_golden

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


def test_the_output_that_lost_is_named() -> None:
    """Where a network has several."""
    asked, answer = ANSWERS["named by accuracy"]
    assert "of the output" not in text.sum_up(ask(asked), answer, METRIC)
    last = ask(asked).last
    named = replace(answer, judged={**answer.judged, last: replace(answer.judged[last], output="boxes")})
    assert "lowered top1 of the output boxes: " in text.sum_up(ask(asked), named, METRIC)
