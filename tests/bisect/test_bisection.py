"""Rules of qbench/bisect/bisection.py: from the first look to the answer, by looks that are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kept_notes import Notes
from made_bisections import MadeCandidates, make_looks, make_question

from qbench.bisect import bisection, judges, text
from qbench.bisect.answer import Answer
from qbench.bisect.bisection import find_answer, read_answers
from qbench.bisect.journal import Journal
from qbench.bisect.judge_answers import Scored
from qbench.bisect.judges import AnswersJudge, Judge
from qbench.bisect.looks import Looks
from qbench.bisect.question import On
from qbench.cache import store
from qbench.evaluate.predictions import load_predictions

RIGHT = np.ones((450, 1))


def score(file: Path) -> Mapping[str, Scored]:
    """Each column of the first output is the score of an output."""
    values = load_predictions(file)["outputs"]
    if values.shape[1] == 1:
        return {"": Scored(values=values[:, 0], bounds=(0.0, None))}
    return {name: Scored(values=values[:, place], bounds=(0.0, None)) for place, name in enumerate(("scores", "boxes"))}


def choose_judge(on: On, folder: Path) -> Judge:
    """As ``bisection.choose_judge``, without a suite."""
    makers: dict[str, Callable[[], Judge]] = {
        "latency": lambda: judges.judge_times,
        "failure": lambda: judges.judge_failures,
        "bits": lambda: AnswersJudge(folder=folder, read=read_answers),
        "accuracy": lambda: AnswersJudge(folder=folder, read=read_answers, score=score),
    }
    return makers[on]()


def answer_of(candidates: MadeCandidates, folder: Path, **changes: object) -> Answer:
    """The answer of a bisection over them."""
    looks = make_looks(candidates, folder, **changes)
    return find_answer(looks.journal, choose_judge(candidates.question.on, folder), looks)


def flip(count: int) -> np.ndarray:
    """Answers of which so many are wrong."""
    values = RIGHT.copy()
    values[:count] = 0
    return values


@pytest.mark.parametrize("first", [1, 4, 8])
@pytest.mark.parametrize("slower", [0.02, 0.05, 0.2])
def test_the_slow_release_is_named(first: int, slower: float, tmp_path: Path) -> None:
    """By real rounds of pretended workers."""
    candidates = MadeCandidates(question=make_question(), first=first, slower=slower, spread=0.002)
    answer = answer_of(candidates, tmp_path)
    assert answer.kind == "named"
    assert answer.bracket is not None
    assert (answer.bracket.last_good, answer.bracket.first_bad) == (first - 1, first)
    assert answer.bracket.chance >= 0.95
    assert answer.exit_code == 0


def test_each_step_is_told(tmp_path: Path) -> None:
    """With what it showed, and what is left."""
    candidates = MadeCandidates(question=make_question(), first=4, slower=0.05)
    looks = make_looks(candidates, tmp_path)
    find_answer(looks.journal, judges.judge_times, looks)
    assert looks.progress.notes[0] == "onnxruntime 1.20.0: good"
    assert looks.progress.notes[1].startswith("onnxruntime 1.28.0: bad (+")
    assert looks.progress.notes[1].endswith("3 process pairs); one of 8 releases")


def test_a_search_is_announced_before_its_first_look(tmp_path: Path) -> None:
    """With the question that its looks are kept by."""
    candidates = MadeCandidates(question=make_question("failure"), first=5, failing=frozenset(range(5, 9)))
    progress = Notes()
    suite: Any = SimpleNamespace(
        suite=SimpleNamespace(suite="demo"),
        case=SimpleNamespace(id=candidates.question.case),
        list_causes=lambda: {"data": "d"},
        progress=progress,
    )

    def make(journal: Journal) -> Looks:
        assert progress.notes == [text.announce(candidates.question)]
        return replace(make_looks(candidates, tmp_path / "other"), journal=journal)

    bisected = bisection.bisect(suite, candidates, "failure", tmp_path / "looks", make)
    assert (bisected.answer.kind, bisected.answer.exit_code) == ("named", 0)
    assert bisected.question == replace(candidates.question, digest=store.key_of({"data": "d"}))
    assert bisected.journal.folder == tmp_path / "looks"


@pytest.mark.parametrize("first", [1, 5, 8])
def test_the_release_that_flips_answers_is_named(first: int, tmp_path: Path) -> None:
    """Two of a hundred."""
    answers = {"answers": lambda place: flip(9 if place >= first else 0)}
    for on in ("accuracy", "bits"):
        candidates = MadeCandidates(question=make_question(on), first=first, **answers)  # type: ignore[arg-type]
        answer = answer_of(candidates, tmp_path / on)
        assert answer.kind == "named", on
        assert answer.bracket is not None
        assert answer.bracket.first_bad == first


@pytest.mark.parametrize("changed", [0, 1])
def test_the_release_that_lowers_any_output_is_named(changed: int, tmp_path: Path) -> None:
    """By the output that lost, whichever it is: the other is the same at both ends."""

    def answer(place: int) -> np.ndarray:
        columns = [RIGHT, RIGHT]
        columns[changed] = flip(9 if place >= 5 else 0)
        return np.concatenate(columns, axis=1)

    outcome = answer_of(MadeCandidates(question=make_question("accuracy"), first=5, answers=answer), tmp_path)
    assert outcome.kind == "named"
    assert outcome.bracket is not None
    assert outcome.bracket.first_bad == 5
    assert outcome.judged[8].output == ("scores", "boxes")[changed]
    named = text.sum_up(make_question("accuracy"), outcome)
    assert f"lowered the score of the output {outcome.judged[8].output}: " in named


@pytest.mark.parametrize("first", [1, 5, 8])
def test_the_release_that_fails_is_named(first: int, tmp_path: Path) -> None:
    """It is the answer where failure is asked for, and passed by where time is."""
    failing = frozenset(range(first, 9))
    candidates = MadeCandidates(question=make_question("failure"), first=first, failing=failing)
    answer = answer_of(candidates, tmp_path)
    assert answer.kind == "named"
    assert answer.bracket is not None
    assert answer.bracket.first_bad == first
    slow = MadeCandidates(question=make_question(), first=first, slower=0.05, failing=failing)
    assert answer_of(slow, tmp_path / "slow").kind == "bad unusable"


def test_releases_that_cannot_be_looked_at_leave_several(tmp_path: Path) -> None:
    """As with git's skip: one of these is the first bad one."""
    candidates = MadeCandidates(
        question=make_question(), first=5, slower=0.05, absent=frozenset({4}), failing=frozenset({5})
    )
    answer = answer_of(candidates, tmp_path)
    assert answer.kind == "several"
    assert answer.bracket is not None
    assert list(answer.bracket.candidates) == [4, 5, 6]
    assert answer.exit_code == 4


def test_ends_that_do_not_differ_name_none(tmp_path: Path) -> None:
    """Nothing between them is looked at."""
    for on, changes in (("latency", {}), ("failure", {}), ("bits", {"answers": lambda place: RIGHT})):
        candidates = MadeCandidates(question=make_question(on), first=9, **changes)  # type: ignore[arg-type]
        answer = answer_of(candidates, tmp_path / on)
        assert (answer.kind, answer.bracket, answer.exit_code) == ("same", None, 3), on
        assert set(candidates.opened) == {0, 8}


def test_both_ends_bad_name_none(tmp_path: Path) -> None:
    """A good end that fails, too, is none."""
    candidates = MadeCandidates(question=make_question("failure"), first=0, failing=frozenset(range(9)))
    answer = answer_of(candidates, tmp_path)
    assert (answer.kind, answer.exit_code) == ("good unusable", 3)


def test_a_bad_end_that_is_the_better_one_names_none(tmp_path: Path) -> None:
    """It is told, so that the ends can be exchanged."""
    candidates = MadeCandidates(question=make_question(), first=4, slower=-0.1)
    assert answer_of(candidates, tmp_path).kind == "better"
    gained = MadeCandidates(question=make_question("accuracy"), first=4, answers=lambda place: flip(9 * (place < 4)))
    assert answer_of(gained, tmp_path / "answers").kind == "better"


def test_bits_that_change_from_process_to_process_tell_nothing(tmp_path: Path) -> None:
    """The good end is asked twice."""
    count = iter(range(100))
    candidates = MadeCandidates(question=make_question("bits"), first=4, answers=lambda place: RIGHT + next(count))
    answer = answer_of(candidates, tmp_path)
    assert answer.kind == "good unusable"
    assert "bits cannot tell" in (answer.judged[0].reason or "")


def test_other_examples_than_the_good_ends_are_not_compared(tmp_path: Path) -> None:
    """A commit may have changed the data."""
    candidates = MadeCandidates(
        question=make_question("bits"),
        first=4,
        answers=lambda place: RIGHT[:400] if 2 <= place <= 6 else RIGHT + (place >= 4),
    )
    answer = answer_of(candidates, tmp_path)
    assert answer.kind == "several"
    assert "other examples" in (answer.judged[4].reason or "")


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Looks that are kept are not made again, and the answer is the same."""
    first = MadeCandidates(question=make_question(), first=6, slower=0.05)
    cut = answer_of(first, tmp_path, most_seconds=8.0)
    assert cut.kind == "cut"
    assert cut.exit_code == 4
    looked_at = set(first.opened)
    again = MadeCandidates(question=make_question(), first=6, slower=0.05)
    answer = answer_of(again, tmp_path)
    assert answer.kind == "named"
    assert answer.bracket is not None
    assert answer.bracket.first_bad == 6
    assert 0 in looked_at
    assert len(again.loaded) < len(first.loaded) + len(again.loaded)
    done = MadeCandidates(question=make_question(), first=6, slower=0.05)
    assert answer_of(done, tmp_path) == answer
    assert done.opened == [], "an answered question needs no look"


def test_a_look_that_shows_nothing_is_not_told(tmp_path: Path) -> None:
    """As one that the end of the time came before."""
    looks = make_looks(MadeCandidates(question=make_question(), first=4), tmp_path, most_seconds=5.0)
    over = iter([False, True])
    looks.is_over = lambda: next(over)  # type: ignore[method-assign]
    looks.look = lambda place: None  # type: ignore[method-assign]
    assert find_answer(looks.journal, judges.judge_times, looks).kind == "cut"
    assert looks.progress.notes == []


def opened(against: str, predicted: list[Path]) -> Any:
    """A suite whose metric holds answers against these."""
    metric = SimpleNamespace(load=lambda: SimpleNamespace(against=against))
    return SimpleNamespace(
        metric=metric,
        fp32=SimpleNamespace(variant="fp32"),
        build=lambda variant: f"built {variant}",
        predict=lambda artifact, file: predicted.append(file) or file.write_text(artifact),
    )


def test_each_question_has_its_judge(tmp_path: Path) -> None:
    """Bits are compared without a metric; answers of the fp32 are made once, where a metric is held against them."""
    predicted: list[Path] = []
    suite = opened("fp32", predicted)
    assert bisection.choose_judge(suite, "latency", tmp_path) == judges.judge_times
    assert bisection.choose_judge(suite, "failure", tmp_path) == judges.judge_failures
    bits = bisection.choose_judge(suite, "bits", tmp_path)
    assert isinstance(bits, AnswersJudge)
    assert bits.score is None
    assert predicted == []
    bisection.choose_judge(suite, "accuracy", tmp_path)
    assert predicted == [tmp_path / "answers-fp32.npz"]
    predicted.clear()
    file = tmp_path / "new/folder/answers-fp32.npz"
    for _ in range(2):
        judge: Any = bisection.choose_judge(suite, "accuracy", file.parent)
        assert judge.score.fp32 == file
        assert predicted == [file]
    assert file.read_text() == "built fp32"
    judge = bisection.choose_judge(opened("labels", predicted), "accuracy", tmp_path)
    assert judge.score.fp32 is None
