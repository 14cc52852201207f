"""``bisect.html``: the answer, the picture and the table of the looks, in one file without a script."""

from __future__ import annotations

from pathlib import Path

from qbench import formatting
from qbench.bisect import picture, text
from qbench.bisect.answer import Answer
from qbench.bisect.judge_time import LOOKS
from qbench.bisect.question import Question
from qbench.bisect.search import ENOUGH
from qbench.files import atomic
from qbench.record.stored_run import MetricInfo
from qbench.report import html
from qbench.report.history_page import POLICY
from qbench.report.plots import svg
from qbench.report.plots.svg import Words

PAGE = "bisect.html"
_TONES = {"good": "good", "bad": "bad", "open": "unsure", "skipped": ""}
_HEADINGS = {
    "latency": "Time of a call",
    "accuracy": "Score",
    "failure": "Does it run",
    "bits": "Examples that differ",
}
_LOOKS = f"{', '.join(map(str, LOOKS.analyses[:-1]))} and {LOOKS.analyses[-1]}"
_METHODS = {
    "latency": (
        "Each candidate was run beside the good end, in pairs of fresh processes, by the gate's sequential test, "
        f"against half of the whole change; looks after {_LOOKS} pairs share an error of 5 %. The chance is that of "
        "the answer given all looks, each candidate being as likely as every other before; below "
        f"{formatting.share(ENOUGH, 0)}, the looks beside the answer were repeated for longer."
    ),
    "accuracy": (
        "Each candidate answered all evaluation examples, and was held against the mean of what both ends score on "
        "each, by the paired test of the accuracy gate; one that answers as an end does on every example is on its "
        "side."
    ),
    "failure": "Each candidate loaded the artifact in a fresh process and was called.",
    "bits": "Each candidate answered all evaluation examples; its outputs were held bit by bit against the good end's.",
}


def write_page(question: Question, answer: Answer, folder: Path, metric: MetricInfo | None) -> Path:
    """Writes the page into a folder and returns its path."""
    atomic.write_text(folder / PAGE, render(question, answer, metric))
    return folder / PAGE


def render(question: Question, answer: Answer, metric: MetricInfo | None = None) -> str:
    """The HTML text; the policy allows no source at all but inline styles. Names are escaped."""
    looks = text.tabulate(question, answer, metric)
    caption = _caption(question, answer)
    figure = picture.draw(question, answer, metric)
    drawn = svg.inline(
        figure,
        Words(
            key="bisect",
            title=_HEADINGS[question.on],
            description=caption,
            names=frozenset(question.candidates),
        ),
    )
    sentence = text.sum_up(question, answer, metric)
    return html.fill(
        "bisect.jinja",
        policy=POLICY,
        case=question.case,
        sentence=sentence,
        heading=_HEADINGS[question.on],
        picture=drawn,
        caption=caption,
        looks=looks,
        tones=tuple(_TONES[answer.judged[place].side] for place in sorted(answer.judged)),
        method=_METHODS[question.on],
    )


def _caption(question: Question, answer: Answer) -> str:
    between = len(question.candidates)
    looked = len(answer.judged)
    limits = {
        "latency": f" Bars: {formatting.share(LOOKS.level, 0)} limits; dashed: half of the whole change.",
        "accuracy": " Bars: 90 % limits; dashed: half of the whole change.",
    }.get(question.on, "")
    return f"{looked} of {between} {question.way} were looked at.{limits}"
