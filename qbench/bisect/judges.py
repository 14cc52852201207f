"""What each question makes of the looks: every candidate that was looked at, judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from qbench import formatting
from qbench.bisect import judge_answers, judge_time
from qbench.bisect.judge_answers import Answered, Scored
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
    """By the files of answers in ``folder``. ``read`` digests one, ``score`` reads it as the metric sees it (None: bits
    are compared), by output. Each is read once."""

    folder: Path
    read: Callable[[Path], Answered]
    score: Callable[[Path], Mapping[str, Scored]] | None = None
    _answered: dict[str, Answered] = field(default_factory=dict)
    _scored: dict[str, Mapping[str, Scored]] = field(default_factory=dict)

    def __call__(self, question: Question, observations: Sequence[Observation]) -> Known:
        """As ``Judge``. Bits of the good end that differ from its own first ones are none to compare with."""
        known = _list_stopped(observations)
        files: dict[int, list[str]] = {}
        for each in observations:
            if each.answers is not None and each.candidate not in known:
                files.setdefault(each.candidate, []).append(each.answers)
        if 0 not in files:
            return known
        if self.score is None and (restless := self._find_restless(files[0])) is not None:
            return known | {0: restless}
        good = self._digest(files[0][0])
        for place, (file, *_) in files.items():
            same = self._digest(file).examples == good.examples
            known[place] = self._judge(question, place, files) if same else _OTHER_EXAMPLES
        return known

    def _judge(self, question: Question, place: int, files: Mapping[int, Sequence[str]]) -> Judged:
        mine, good, bad = (files[at][0] if at in files else None for at in (place, 0, question.last))
        assert mine is not None
        assert good is not None
        if place == 0:
            return Judged(side="good", p_bad=0.0)
        if self.score is None:
            return judge_answers.judge_bits(self._digest(mine), self._digest(good))
        if bad is None:
            return Judged(side="open", p_bad=None, more=True)
        return _judge_output(self._score(mine), self._score(good), self._score(bad), is_end=place == question.last)

    def _find_restless(self, files: Sequence[str]) -> Judged | None:
        """That the good end gives other bits each time; None where it gave the same twice."""
        if len(files) < 2:
            return Judged(side="open", p_bad=None, more=True)
        share = judge_answers.share_changed(self._digest(files[1]), self._digest(files[0]))
        differing = formatting.share(share)
        reason = f"it gives other bits from one process to the next ({differing} of the examples): bits cannot tell"
        return Judged(side="skipped", p_bad=None, reason=reason) if share else None

    def _digest(self, name: str) -> Answered:
        if name not in self._answered:
            self._answered[name] = self.read(self.folder / name)
        return self._answered[name]

    def _score(self, name: str) -> Mapping[str, Scored]:
        assert self.score is not None
        if name not in self._scored:
            self._scored[name] = self.score(self.folder / name)
        return self._scored[name]


def _judge_output(
    mine: Mapping[str, Scored], good: Mapping[str, Scored], bad: Mapping[str, Scored], *, is_end: bool
) -> Judged:
    """By the output that tells the ends apart best."""
    name = judge_answers.choose_output(good, bad)
    if name is None or name not in mine:
        which = f"output {name}" if name else "output"
        return Judged(side="skipped", p_bad=None, reason=f"it has no {which} to compare")
    if is_end:
        judged = judge_answers.judge_score_end(good[name], mine[name], len(good))
    else:
        judged = judge_answers.judge_scores(mine[name], good[name], bad[name])
    return replace(judged, output=name or None)


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
