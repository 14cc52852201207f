"""A bisection in words: what a look gave, the answer, and the table of all looks; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qbench import formatting
from qbench.bisect import judge_time
from qbench.bisect.answer import Answer
from qbench.bisect.judges import Known
from qbench.bisect.question import Question
from qbench.bisect.search import ENOUGH, Bracket, Judged, weigh_answers
from qbench.bisect.step_size import find_share, limit_step, limit_whole
from qbench.errors import first_names
from qbench.gating.latency import format_change
from qbench.progress.table import TextTable
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

_SIDES: Mapping[str, str] = {"good": "good", "bad": "bad", "open": "open", "skipped": "passed by"}
_DONE: Mapping[str, str] = {
    "latency": "made it slower",
    "accuracy": "lowered the score",
    "failure": "is the first that fails",
    "bits": "is the first that gives other bits",
}
_MENDED: Mapping[str, str] = {
    "latency": "made it faster again",
    "accuracy": "mended the score",
    "failure": "is the first that runs again",
    "bits": "is the first that gives these bits again",
}


def announce(question: Question) -> str:
    """``13 releases from 1.20.0 to 1.32.0, of which about 6 are looked at``: before the first look."""
    count = len(question.candidates)
    looks = min(count, 2 + math.ceil(math.log2(question.last)))
    ends = f"from {question.candidates[0]} to {question.candidates[question.last]}"
    return f"{count} {question.way} {ends}, of which about {looks} are looked at"


def describe_look(question: Question, place: int, known: Known, left: int | None, metric: MetricInfo | None) -> str:
    """``onnxruntime 1.26.0: +4.9 % [4.1, 5.7] by 6 process pairs: bad; 4 releases left``: a look, as it is made."""
    judged = known.get(place)
    if judged is None:
        return f"{question.name(place)}: looked at"
    remaining = "" if left is None or left == 1 else f"; one of {left} {question.way}"
    value = show_value(question, judged, metric)
    reason = formatting.one_line(judged.reason) if judged.reason and judged.side in ("skipped", "bad", "open") else ""
    words = "; ".join(filter(None, [" ".join(filter(None, [value, _count(question, judged)])), reason]))
    return f"{question.name(place)}: {_SIDES[judged.side]}{f' ({words})' if words else ''}{remaining}"


def show_value(question: Question, judged: Judged, metric: MetricInfo | None) -> str:
    """``+4.9 % [4.1, 5.7]``, ``-2.0 [-3.1, -0.9] points``, ``12 % of the examples differ``: a candidate beside the good
    end; empty where nothing was measured."""
    value = judged.value
    if value is None:
        return ""
    if question.on == "latency":
        return format_change(value)
    if question.on == "bits":
        return f"{formatting.share(value.value)} of the examples differ" if value.value else "the same bits"
    return _show_score_change(value, metric)


def _show_score_change(value: Interval, metric: MetricInfo | None) -> str:
    info = metric or MetricInfo(name="score")
    sign = info.sign
    low, high = (None if end is None else sign * end for end in (value.low, value.high))
    low, high = (low, high) if sign > 0 else (high, low)
    return info.show_change(Interval(value=sign * value.value, low=low, high=high))


def _count(question: Question, judged: Judged) -> str:
    unit = "process pairs" if question.on == "latency" else "examples"
    return f"{judged.size:,} {unit}" if judged.size else ""


def sum_up(question: Question, answer: Answer, metric: MetricInfo | None = None) -> str:
    """The answer in one or two sentences, the answer first."""
    sentences = {
        "named": _name_one,
        "doubtful": _name_one,
        "several": _name_several,
        "same": _say_same,
        "better": _say_better,
        "open": _say_open,
        "good unusable": _say_unusable,
        "bad unusable": _say_unusable,
        "cut": _say_cut,
    }
    return sentences[answer.kind](question, answer, metric)


def find_named(question: Question, bracket: Bracket) -> int:
    """The candidate that is the answer: the first bad one or, where the good end is the newer, the one before it, which
    mended."""
    return bracket.last_good if question.mended else bracket.first_bad


def _name_one(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    bracket = answer.bracket
    assert bracket is not None
    named = question.name(find_named(question, bracket))
    sentences = [f"{named} {_say_done(question, answer, metric)}: {_describe_step(question, answer, metric)}."]
    if question.on in ("latency", "accuracy"):
        doubt = f", and {formatting.share(ENOUGH, 0)} are asked for" if answer.kind == "doubtful" else ""
        sentences.append(f"The chance that it is this one is {_say_chance(bracket.chance)}{doubt}.")
    return " ".join(filter(None, [*sentences, _describe_rest(question, answer)]))


def _say_done(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    done = (_MENDED if question.mended else _DONE)[question.on]
    of = _say_output(answer.judged[question.last])
    return (done.replace("the score", metric.name) if metric is not None else done) + of


def _say_output(judged: Judged) -> str:
    return "" if judged.output is None else f" of the output {formatting.one_line(judged.output)}"


def _describe_step(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    """By how much it differs from the one before, and what part of the whole that is."""
    bracket, judged = answer.bracket, answer.judged
    assert bracket is not None
    bad, end = judged[bracket.first_bad], judged[question.last]
    before = _name_short(question, bracket.first_bad if question.mended else bracket.last_good)
    last = f"{before} is the last before it"
    if question.on == "failure":
        said = f"{question.name(bracket.first_bad)} says {formatting.one_line(bad.reason or '')}"
        return said if question.mended else f"{formatting.one_line(bad.reason or '')}; {last}"
    if question.on != "latency":
        value = show_value(question, bad, metric)
        of = f"{bad.size:,} examples"
        return f"{value.replace('the examples', of) if question.on == 'bits' else f'{value} on {of}'}; {last}"
    good = judged[bracket.last_good].value if bracket.last_good else Interval(value=1.0, low=1.0, high=1.0)
    step = judge_time.compare_neighbours(good, bad.value)
    if step is None or end.value is None:
        return last
    whole = f"{format_change(end.value)} from {_name_short(question, 0)} to {_name_short(question, question.last)}"
    against = _name_short(question, bracket.last_good)
    return f"{format_change(step)} against {against}, of {whole}" if not question.mended else f"{last}; {whole}"


def _describe_rest(question: Question, answer: Answer) -> str:
    """That the change comes in several steps, where this one is shown to be less than the whole, or more."""
    share, step, whole = find_share(question, answer), limit_step(question, answer), limit_whole(question, answer)
    if share is None or step is None or whole is None:
        return ""
    if step[1] < whole[0]:
        return (
            f"This step is {formatting.share(share, 0)} of the whole change, which comes in several: search again on "
            "either side, with this one as --bad or --good, for the rest."
        )
    return (
        "It brought more than the whole change: what comes behind it takes a part back." if step[0] > whole[1] else ""
    )


def _say_chance(chance: float) -> str:
    return "above 99.9 %" if chance > 0.999 else formatting.share(chance)


def _name_several(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    bracket = answer.bracket
    assert bracket is not None
    places = list(bracket.candidates)
    if question.mended:
        places = [place - 1 for place in reversed(places)]
    reasons = {
        question.candidates[place]: formatting.one_line(answer.judged[place].reason or "it stays undecided")
        for place in range(bracket.last_good + 1, bracket.first_bad)
    }
    told = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:3])
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    names = first_names(question.candidates[place] for place in places)
    chance = f" (chance {_say_chance(bracket.chance)})" if question.on in ("latency", "accuracy") else ""
    done, likely = _say_done(question, answer, metric), _name_likeliest(question, answer)
    return f"One of {names} {done}{chance}; which one cannot be told{likely}. {told}{more}"


def _name_likeliest(question: Question, answer: Answer) -> str:
    """``, most likely 1.30.0 (92.3 %)``: of several the one that is the answer more likely than not; else empty."""
    bracket = answer.bracket
    assert bracket is not None
    chances = weigh_answers(answer.judged, question.last)
    best = max(bracket.candidates, key=lambda place: chances[place - 1])
    if chances[best - 1] <= 0.5 or question.on not in ("latency", "accuracy"):
        return ""
    name = question.candidates[best - 1 if question.mended else best]
    return f", most likely {name} ({_say_chance(chances[best - 1])})"


def _ends(question: Question) -> str:
    return f"{_end(question, 0)} and {_end(question, question.last)}"


def _end(question: Question, place: int) -> str:
    """An end by what it is as a whole."""
    return _name_short(question, place) if question.way == "layers" else question.name(place)


def _name_short(question: Question, place: int) -> str:
    """A candidate beside another of its kind."""
    ends = {0: "float", question.last: "int8"} if question.way == "layers" else {}
    return ends.get(place, question.candidates[place])


def _say_same(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    end = answer.judged[question.last]
    if question.on == "failure":
        return f"{_ends(question)} both run: there is no failure to search for."
    value = f"{show_value(question, end, metric)}{_say_output(end)}"
    by = ", ".join(filter(None, [end.reason or "", value, _count(question, end)]))
    shown = "are not shown to differ" if question.on == "accuracy" else "do not differ"
    is_timed = question.on == "latency" and not end.reason
    least = f" by more than {formatting.share(judge_time.LEAST, 0)}" if is_timed else ""
    return f"{_ends(question)} {shown}{least} ({by}): there is nothing to search for, so none is named."


def _say_better(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    end = answer.judged[question.last]
    advice = "exchange --good and --bad to find what made it better"
    if question.way == "layers":
        advice = "`qbench explain` shows what it could gain yet"
    return (
        f"{_end(question, question.last)} is the better one ({show_value(question, end, metric)}): none is named; "
        f"{advice}."
    )


def _say_open(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    end = answer.judged[question.last]
    doubt = f": {end.reason}" if end.reason else ""
    return (
        f"{_ends(question)} cannot be told apart here ({show_value(question, end, metric)}, {_count(question, end)})"
        f"{doubt}; none is named. On a quieter machine less noise hides the change."
    )


def _say_unusable(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    place = 0 if answer.kind == "good unusable" else question.last
    end = answer.judged[place]
    reason = formatting.one_line(end.reason or "")
    option = "--good" if place == 0 else "--bad"
    if end.side == "bad":  # only a good end is refused for that
        return f"{question.name(0)} fails, too: {reason}; --good must be one that runs, so none is named."
    advice = " (`--on failure` searches for the first that fails)" if place and question.on != "failure" else ""
    return f"{question.name(place)} cannot be looked at: {reason}; {option} must be one that can{advice}."


def _say_cut(question: Question, answer: Answer, metric: MetricInfo | None) -> str:
    bracket = answer.bracket
    more = "the same command goes on from here"
    if bracket is None:
        return f"The time is over before the ends were told apart; {more}."
    return f"The time is over: it is one of {len(bracket.candidates)} {question.way}; {more}."


def tabulate(question: Question, answer: Answer, metric: MetricInfo | None = None) -> TextTable:
    """The candidates that were looked at, in order."""
    rows = []
    for place in sorted(answer.judged):
        judged = answer.judged[place]
        value = "the good end" if place == 0 and judged.value is None else show_value(question, judged, metric)
        size = f"{judged.size:,}" if judged.size else formatting.DASH
        note = formatting.shorten(judged.reason or "", 100)
        rows.append((question.candidates[place], _SIDES[judged.side], value or formatting.DASH, size, note))
    unit = "process pairs" if question.on == "latency" else "examples"
    return TextTable(
        columns=(question.of, "side", "beside the good end", unit, "why"), rows=tuple(rows), words=(0, 1, 2, 4)
    )
