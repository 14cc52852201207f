"""What each question makes of the looks: every candidate that was looked at, judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from qbench import formatting
from qbench.bisect import judge_answers, judge_time
from qbench.bisect.judge_answers import Scored
from qbench.bisect.question import Observation, Question
from qbench.bisect.search import Judged

Known = dict[int, Judged]
_OTHER_EXAMPLES = Judged(side="skipped", p_bad=None, reason="it was evaluated on other examples than the good end")


class Judge(Protocol):
    """Judges all candidates from all looks; pure but for files of answers that it reads."""

    def __call__(self, question: Question, observations: Sequence[Observation]) -> Known:
        """What is known of each candidate that was looked at, by number."""


def judge_all(judge: Judge, question: Question, observations: Sequence[Observation]) -> Known:
    """What a judge says of all candidates, those that run the same as an end like that one."""
    known = judge(question, observations)
    for each in observations:
        if each.same is not None and each.same in known:
            end = known[each.same]
            if end.side in ("good", "bad"):
                known[each.candidate] = replace(end, more=False, reason=f"runs the same as {question.name(each.same)}")
    return known


def judge_times(question: Question, observations: Sequence[Observation]) -> Known:
    """By process pairs beside the good end."""
    known = _list_stopped(observations)
    pairs = {
        place: [each.pair for each in observations if each.candidate == place and each.pair is not None]
        for place in {each.candidate for each in observations} - known.keys()
    }
    known |= {each.candidate: Judged(side="good", p_bad=0.0) for each in observations if each.runs}
    last = question.last
    if pairs.get(last):
        end = judge_time.judge_end(pairs[last])
        known[last] = replace(end, more=end.more and end.side == "open")
    if last in known and known[last].side == "bad":
        change = judge_time.measure_change(pairs[last])
        between = [place for place in pairs if pairs[place] and place not in (0, last)]
        known |= {place: judge_time.judge_candidate(pairs[place], change) for place in between}
    return known


def judge_failures(question: Question, observations: Sequence[Observation]) -> Known:
    """By whether the artifact loads and runs."""
    known = _list_stopped(observations, failing="bad")
    return known | {each.candidate: Judged(side="good", p_bad=0.0) for each in observations if each.runs}


@dataclass(kw_only=True)
class AnswersJudge:
    """By the answers in ``folder``. ``score`` reads a file of answers as the metric sees it (None: bits are compared,
    and ``load`` reads one)."""

    folder: Path
    load: Callable[[Path], Mapping[str, Any]]
    score: Callable[[Path], Scored] | None = None
    _read: dict[str, Any] = field(default_factory=dict)

    def __call__(self, question: Question, observations: Sequence[Observation]) -> Known:
        """As ``Judge``. Answers of the good end that differ from its own first ones are none to compare with."""
        known = _list_stopped(observations)
        files: dict[int, list[str]] = {}
        for each in observations:
            if each.answers is not None and each.candidate not in known:
                files.setdefault(each.candidate, []).append(each.answers)
        if 0 not in files:
            return known
        if self.score is None and (restless := self._find_restless(files[0])) is not None:
            return known | {0: restless}
        for place in files:
            same = self._read_contents(files[place][0]) == self._read_contents(files[0][0])
            known[place] = self._judge(question, place, files) if same else _OTHER_EXAMPLES
        return known

    def _judge(self, question: Question, place: int, files: Mapping[int, Sequence[str]]) -> Judged:
        mine, good = files[place][0], files[0][0]
        if place == 0:
            return Judged(side="good", p_bad=0.0)
        if self.score is None:
            return judge_answers.judge_bits(self._open(mine), self._open(good))
        if place == question.last:
            return judge_answers.judge_score_end(self._open(good), self._open(mine))
        if question.last not in files:
            return Judged(side="open", p_bad=None, more=True)
        return judge_answers.judge_scores(self._open(mine), self._open(good), self._open(files[question.last][0]))

    def _find_restless(self, files: Sequence[str]) -> Judged | None:
        """That the good end gives other bits each time; None where it gave the same twice, or was asked once."""
        if len(files) < 2:
            return Judged(side="open", p_bad=None, more=True)
        share = judge_answers.share_changed(self._open(files[1]), self._open(files[0]))
        differing = formatting.share(share)
        reason = f"it gives other bits from one process to the next ({differing} of the examples): bits cannot tell"
        return Judged(side="skipped", p_bad=None, reason=reason) if share else None

    def _read_contents(self, name: str) -> bytes:
        """What the examples of a file are, where it says so, else how many."""
        answers = self.load(self.folder / name)
        contents = answers.get("contents")
        return str(len(answers["outputs"])).encode() if contents is None else contents.tobytes()

    def _open(self, name: str) -> Any:
        if name not in self._read:
            file = self.folder / name
            self._read[name] = self.load(file) if self.score is None else self.score(file)
        return self._read[name]


def _list_stopped(observations: Sequence[Observation], failing: str = "skipped") -> Known:
    """The candidates that cannot be looked at, those that fail as ``failing``."""
    known: Known = {}
    for each in observations:
        if each.stopped is None:
            continue
        if failing == "bad" and each.stopped.kind == "fails":
            known[each.candidate] = Judged(side="bad", p_bad=1.0, reason=each.stopped.reason)
        else:
            known[each.candidate] = Judged(side="skipped", p_bad=None, reason=each.stopped.reason)
    return known
