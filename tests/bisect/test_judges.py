"""Rules of qbench/bisect/judges.py: all candidates from all looks, by what was asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_bisections import make_question

from qbench.bisect.judge_answers import Answered, Scored
from qbench.bisect.judges import AnswersJudge, judge_all, judge_failures, judge_times
from qbench.bisect.question import Observation, Stopped
from qbench.bisect.search import Judged
from qbench.gating.sequential_test import ProcessPair

RUNS = Observation(candidate=0, runs=True)
FAILS = Stopped(kind="fails", reason="opset 21")
ABSENT = Stopped(kind="absent", reason="no wheel")


def timed(place: int, change: float, count: int) -> list[Observation]:
    """Process pairs of a candidate that is slower by that share, which spread by some thousandths."""
    noise = np.random.default_rng(place).normal(0, 0.003, (count, 2))
    return [
        Observation(candidate=place, pair=ProcessPair(ratio=np.log1p(change) + ratio, control=control, drift=0.0))
        for ratio, control in noise.tolist()
    ]


def test_candidates_between_are_held_against_the_whole_change() -> None:
    """Once the bad end is known; before, they are not judged. What is known of the bad end is looked at no longer."""
    question = make_question()
    alone = [RUNS, *timed(4, 0.05, 6)]
    assert judge_times(question, alone) == {0: Judged(side="good", p_bad=0.0)}
    known = judge_times(question, [*alone, *timed(8, 0.05, 6), *timed(3, 0.0, 6)])
    assert {place: judged.side for place, judged in known.items()} == {0: "good", 3: "good", 4: "bad", 8: "bad"}
    assert not known[8].more
    assert known[4].more
    waiting = judge_times(question, [RUNS, *timed(8, 0.05, 2)])
    assert (waiting[8].side, waiting[8].more) == ("open", True)


def test_each_candidate_between_is_judged_that_was_timed() -> None:
    """The one beside the good end, too; one that only runs the same as an end was not."""
    looks = [RUNS, *timed(8, 0.05, 6), *timed(1, 0.05, 6), Observation(candidate=2, same=0)]
    known = judge_times(make_question(), looks)
    assert {place: judged.side for place, judged in known.items()} == {0: "good", 1: "bad", 8: "bad"}
    assert known[0] == judge_failures(make_question("failure"), [RUNS])[0] == Judged(side="good", p_bad=0.0)


@pytest.mark.parametrize("judge", [judge_times, judge_failures])
def test_what_stopped_is_no_look(judge) -> None:  # type: ignore[no-untyped-def]
    """A candidate that cannot be had is passed by, whatever is asked; one that fails is bad where that is asked."""
    stopped = [Observation(candidate=2, stopped=FAILS), Observation(candidate=3, stopped=ABSENT)]
    known = judge(make_question("failure"), [RUNS, *stopped, *timed(2, 0.05, 3)])
    fails = "bad" if judge is judge_failures else "skipped"
    assert {place: judged.side for place, judged in known.items()} == {0: "good", 2: fails, 3: "skipped"}
    assert known[2].p_bad == (1.0 if judge is judge_failures else None)
    assert (known[2].reason, known[3].reason) == ("opset 21", "no wheel")


def test_what_runs_the_same_as_an_end_is_judged_as_that() -> None:
    """Where the end is on a side; then a longer look tells nothing more."""
    ends = {0: Judged(side="good", p_bad=0.0, more=True), 8: Judged(side="open", p_bad=0.5)}
    looks = [Observation(candidate=2, same=0), Observation(candidate=6, same=8)]
    known = judge_all(lambda question, looks: dict(ends), make_question(), looks)
    assert known == {
        **ends, 2: Judged(side="good", p_bad=0.0, more=False, reason="runs the same as onnxruntime 1.20.0"),
    }  # fmt: skip
    assert judge_all(lambda question, looks: {}, make_question(), looks) == {}


def answers(place: int, number: int = 0) -> Observation:
    """A file of answers."""
    return Observation(candidate=place, answers=f"answers-{place}{f'-{number}' if number else ''}.npz")


def test_each_file_of_answers_is_read_once(tmp_path: Path) -> None:
    """However often a search asks what is known."""
    read: list[str] = []
    scored: list[str] = []

    def digest(file: Path) -> Answered:
        read.append(file.name)
        return Answered(examples=b"x", form="f", rows=np.zeros((4, 16), np.uint8))

    def score(file: Path) -> dict[str, Scored]:
        scored.append(file.name)
        return {"": Scored(values=np.full(40, float("-8" not in file.name)))}

    looks = [answers(0), answers(8), answers(4)]
    judge = AnswersJudge(folder=tmp_path, read=digest, score=score)
    known = judge(make_question("accuracy"), looks)
    assert {place: judged.side for place, judged in known.items()} == {0: "good", 8: "bad", 4: "good"}
    assert judge(make_question("accuracy"), looks) == known
    assert sorted(read) == sorted(scored) == ["answers-0.npz", "answers-4.npz", "answers-8.npz"]


def test_only_answers_are_read(tmp_path: Path) -> None:
    """Not of what runs the same as an end, nor of what stopped in the meantime."""
    same = Answered(examples=b"x", form="f", rows=np.zeros((4, 16), np.uint8))
    looks = [answers(0), answers(0, 1), answers(3), Observation(candidate=3, stopped=FAILS)]
    looks += [Observation(candidate=2, same=0), answers(4)]
    known = AnswersJudge(folder=tmp_path, read=lambda file: same)(make_question("bits"), looks)
    assert {place: judged.side for place, judged in known.items()} == {0: "good", 3: "skipped", 4: "good"}
    assert known[0] == Judged(side="good", p_bad=0.0)


@pytest.mark.parametrize(
    ("mine", "good", "told"),
    [
        ({"boxes": 0.0}, {"scores": 1.0}, "it has no output scores to compare"),
        ({}, {}, "it has no output to compare"),
        ({"b": 1.0}, {"": 1.0}, "it has no output to compare"),
    ],
)
def test_an_output_that_is_not_there_is_not_compared(
    tmp_path: Path, mine: dict[str, float], good: dict[str, float], told: str
) -> None:
    """As of a commit that renamed it; the candidate is passed by."""
    scores = {0: good, 4: mine, 8: {name: value - 1 for name, value in good.items()}}

    def score(file: Path) -> dict[str, Scored]:
        place = int(file.stem.rpartition("-")[2])
        return {name: Scored(values=np.full(40, value)) for name, value in scores[place].items()}

    same = Answered(examples=b"x", form="f", rows=np.zeros((4, 16), np.uint8))
    judge = AnswersJudge(folder=tmp_path, read=lambda file: same, score=score)
    known = judge(make_question("accuracy"), [answers(0), answers(4), answers(8)])
    assert known[4] == Judged(side="skipped", p_bad=None, reason=told)


def test_answers_between_wait_for_both_ends(tmp_path: Path) -> None:
    """Without the good end nothing is known, without the bad one there is no middle; bits need the good end twice."""
    same = Answered(examples=b"x", form="f", rows=np.zeros((4, 16), np.uint8))
    judge = AnswersJudge(folder=tmp_path, read=lambda file: same, score=lambda file: Scored(values=np.ones(4)))
    assert judge(make_question("accuracy"), [answers(4)]) == {}
    known = judge(make_question("accuracy"), [answers(0), answers(4)])
    assert (known[4].side, known[4].more) == ("open", True)
    bits = AnswersJudge(folder=tmp_path, read=lambda file: same)
    assert bits(make_question("bits"), [answers(0)])[0] == Judged(side="open", p_bad=None, more=True)
    known = bits(make_question("bits"), [answers(0), answers(0, 1), answers(4)])
    assert {place: judged.side for place, judged in known.items()} == {0: "good", 4: "good"}
