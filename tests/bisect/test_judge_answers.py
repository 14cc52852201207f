"""Rules of qbench/bisect/judge_answers.py: the side of answers, by the same examples at both ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.bisect.judge_answers import (
    Scored,
    choose_output,
    compare_scores,
    digest_answers,
    judge_bits,
    judge_score_end,
    judge_scores,
    share_changed,
)
from qbench.metrics.classes import F1
from qbench.stats.interval_type import Interval

RIGHT = np.ones(450)


def flip(*places: int, values: np.ndarray = RIGHT) -> Scored:
    """Scores of which those at these places are wrong."""
    changed = values.copy()
    changed[list(places)] = 0.0
    return Scored(values=changed)


GOOD, BAD = flip(), flip(*range(9))


def test_the_ends_differ_where_a_paired_test_shows_a_loss() -> None:
    """Nine of 450 do, one does not, and a gain is none."""
    assert judge_score_end(GOOD, BAD).side == "bad"
    assert judge_score_end(GOOD, flip(0)).side == "good"
    assert judge_score_end(BAD, GOOD).side == "good"
    assert judge_score_end(GOOD, GOOD).value == compare_scores(GOOD, GOOD) == Interval(value=0.0)
    assert (judge_score_end(GOOD, BAD).p_bad, judge_score_end(GOOD, GOOD).p_bad) == (1.0, 0.0)


def test_the_output_that_lost_most_is_chosen_and_all_share_the_error() -> None:
    """Five wrong of 450 show a loss of the only output and not of one of four; one that both ends have not is none."""
    five = flip(*range(5))
    good = dict.fromkeys("abcd", GOOD)
    assert choose_output(good, {**good, "b": five, "c": flip(0)}) == "b"
    assert choose_output(good, {"e": BAD}) is None
    assert judge_score_end(GOOD, five).side == "bad"
    assert judge_score_end(GOOD, five, outputs=4).side == "good"
    assert judge_score_end(GOOD, BAD, outputs=4).side == "bad"


def test_who_answers_as_an_end_is_on_its_side() -> None:
    """For sure: which answers changed is no matter of samples."""
    assert (judge_scores(GOOD, GOOD, BAD).side, judge_scores(GOOD, GOOD, BAD).p_bad) == ("good", 0.0)
    assert (judge_scores(BAD, GOOD, BAD).side, judge_scores(BAD, GOOD, BAD).p_bad) == ("bad", 1.0)


def test_who_answers_otherwise_is_held_against_the_middle() -> None:
    """A few more wrong than one end is on its side, half of them is open."""
    bad = flip(*range(40))
    assert judge_scores(flip(*range(38)), GOOD, bad).side == "bad"
    assert judge_scores(flip(0, 1), GOOD, bad).side == "good"
    middle = judge_scores(flip(*range(20)), GOOD, bad)
    assert middle.side == "open"
    assert middle.p_bad == pytest.approx(0.5, abs=0.05)
    assert not middle.more
    assert middle.value is not None
    assert middle.value.value == pytest.approx(-20 / 450)


def test_a_score_of_all_examples_is_judged_by_its_facts() -> None:
    """F1 has no value of one example."""
    labels = np.tile([0, 1], 200)

    def facts(wrong: int) -> Scored:
        answers = labels.copy()
        answers[:wrong] = 1 - answers[:wrong]
        return Scored(values=np.stack([answers, labels], axis=1), score=F1.fact_score)

    good, bad = facts(0), facts(60)
    assert judge_score_end(good, bad).side == "bad"
    assert [judge_scores(facts(wrong), good, bad).side for wrong in (1, 30, 59)] == ["good", "open", "bad"]
    chances = [judge_scores(facts(wrong), good, bad).p_bad for wrong in (1, 30, 59)]
    assert chances == [pytest.approx(0, abs=0.01), pytest.approx(0.5, abs=0.15), pytest.approx(1, abs=0.01)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 2**31 - 1))
def test_bits_differ_where_a_byte_does(rows: list[int], seed: int) -> None:
    """The share of examples of which any output has another bit; -0.0 is another than 0.0."""
    rng = np.random.default_rng(seed)
    outputs = rng.random((len(rows), 3)).astype(np.float32)
    good = {"outputs": outputs, "outputs.1": np.zeros((len(rows), 2, 2), np.float32)}
    changed = good["outputs.1"].copy()
    changed[np.array(rows) == 0] = -0.0
    other = {**good, "outputs.1": changed}
    share = sum(row == 0 for row in rows) / len(rows)
    new, old = digest_answers(other), digest_answers(good)
    assert share_changed(new, old) == pytest.approx(share)
    judged = judge_bits(new, old)
    assert (judged.side, judged.p_bad) == (("bad", 1.0) if share else ("good", 0.0))
    assert judge_bits(old, old).p_bad == 0.0
    assert new.rows.shape == (len(rows), 16)


def test_outputs_of_another_form_are_all_changed() -> None:
    """Another shape, type or number of outputs."""
    good = {"outputs": np.zeros((4, 2), np.float32)}
    others = [{"outputs": outputs} for outputs in (np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float64))]
    for other in [*others, {**good, "outputs.1": good["outputs"]}]:
        assert share_changed(digest_answers(other), digest_answers(good)) == 1.0
    assert share_changed(digest_answers({"outputs": good["outputs"][:3]}), digest_answers(good)) == 1.0


def test_answers_count_where_outputs_are_kept_of_a_few() -> None:
    """What a postprocess made of every example, beside the outputs of the first ones."""
    good = {"outputs": np.zeros((2, 3), np.float32), "answers": np.zeros((5, 4), np.float32)}
    changed = {**good, "answers": good["answers"] + np.eye(5, 4, dtype=np.float32)}
    assert share_changed(digest_answers(changed), digest_answers(good)) == pytest.approx(0.8)
    assert len(digest_answers(good).rows) == 5


def test_examples_are_known_by_what_they_hold() -> None:
    """By their number where nobody noted that."""
    bare, fewer = ({"outputs": np.zeros((count, 2), np.float32)} for count in (4, 3))
    assert digest_answers(bare).examples == digest_answers({**bare}).examples != digest_answers(fewer).examples
    noted, others = ({**bare, "contents": np.arange(4) + start} for start in (0, 1))
    assert digest_answers(noted).examples != digest_answers(others).examples
    assert len({digest_answers(each).examples for each in (bare, noted, others)}) == 3


def test_a_loss_that_limits_do_not_show_is_none() -> None:
    """Its probability is then that of no loss; a loss that they show is one for sure."""
    assert [judge_score_end(GOOD, end).p_bad for end in (flip(0), GOOD, BAD)] == [0.0, 0.0, 1.0]
    assert [judge_score_end(GOOD, end).size for end in (flip(0), BAD)] == [450, 450]


def test_where_nothing_limits_a_change_either_side_is_as_likely() -> None:
    """A single example has no spread."""
    judged = judge_scores(*(Scored(values=np.array([value])) for value in (0.4, 1.0, 0.0)))
    assert (judged.side, judged.p_bad) == ("open", 0.5)
