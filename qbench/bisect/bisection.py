"""A bisection from its first look to its answer; taken up again where it was killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qbench.bisect import judges
from qbench.bisect.answer import Answer, choose_step, cut_short
from qbench.bisect.candidates import Candidates
from qbench.bisect.journal import Journal, open_journal
from qbench.bisect.judge_answers import Answered, digest_answers
from qbench.bisect.judges import AnswersJudge, Judge, Known
from qbench.bisect.looks import Looks
from qbench.bisect.open_suite import OpenSuite
from qbench.bisect.question import On, Question
from qbench.bisect.score_answers import Scorer
from qbench.bisect.search import Bracket, Look, find_bracket
from qbench.bisect.text import announce, describe_look
from qbench.cache import store
from qbench.evaluate.predictions import load_predictions


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """What was asked, the looks, and the answer."""

    journal: Journal
    answer: Answer

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.journal.question


def bisect(
    opened: OpenSuite, candidates: Candidates, on: On, folder: Path, looks: Callable[[Journal], Looks]
) -> Bisected:
    """The answer; every look is kept in the folder, and what is kept there already is not looked at again."""
    question = Question(
        suite=opened.suite.suite,
        case=opened.case.id,
        on=on,
        way=candidates.way,
        of=candidates.of,
        candidates=candidates.names,
        mended=candidates.mended,
        digest=store.key_of(opened.list_causes()),
    )
    opened.progress.note(announce(question))
    journal = open_journal(folder, question)
    return Bisected(journal=journal, answer=find_answer(journal, choose_judge(opened, on, folder), looks(journal)))


def find_answer(journal: Journal, judge: Judge, looks: Looks) -> Answer:
    """Looks at one candidate after the other until there is an answer, or no more time may be spent."""
    question = journal.question
    while True:
        known = judges.judge_all(judge, question, journal.observations)
        step = choose_step(question, known)
        if not isinstance(step, Look):
            return step
        if looks.is_over():
            return cut_short(question, known)
        before = len(journal.observations)
        looks.look(step.candidate)
        if len(journal.observations) > before:
            _tell(question, step.candidate, judges.judge_all(judge, question, journal.observations), looks)


def choose_judge(opened: OpenSuite, on: On, folder: Path) -> Judge:
    """What judges a question of that kind."""
    if on == "latency":
        return judges.judge_times
    if on == "failure":
        return judges.judge_failures
    if on == "bits":
        return AnswersJudge(folder=folder, read=read_answers)
    return AnswersJudge(folder=folder, read=read_answers, score=Scorer(opened=opened, fp32=_find_fp32(opened, folder)))


def read_answers(file: Path) -> Answered:
    """The digests of a file of answers."""
    return digest_answers(load_predictions(file))


def _find_fp32(opened: OpenSuite, folder: Path) -> Path | None:
    """The answers of the fp32, where the metric holds answers against them."""
    if opened.metric.load().against != "fp32":
        return None
    file = folder / "answers-fp32.npz"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        opened.predict(opened.build(opened.fp32.variant), file)
    return file


def _tell(question: Question, place: int, known: Known, looks: Looks) -> None:
    looks.progress.note(describe_look(question, place, known, _count_left(question, known), looks.metric))


def _count_left(question: Question, known: Known) -> int | None:
    """Of how many candidates one is the first bad one, as far as is known; None where the ends are not known."""
    try:
        bracket: Bracket = find_bracket(known, question.last)
    except ValueError:
        return None
    return len(bracket.candidates)
