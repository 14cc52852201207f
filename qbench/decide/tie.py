"""What ties with the pick, and what told it from them, in words; pure."""

from __future__ import annotations

from qbench import formatting
from qbench.decide import notes
from qbench.decide.cases import variant
from qbench.decide.choose import Choice
from qbench.decide.rank import Bench
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval


def describe_tie(choice: Choice, bench: Bench) -> str | None:
    """``Tied with qat · onnxruntime (0.3 % slower [-1.5, +2.1])``; None where nothing ties with the pick."""
    if choice.ranking is None or choice.pick is None or len(choice.ranking.tied) < 2:
        return None
    others = [record for record in choice.ranking.tied if record is not choice.pick]
    parts = [f"{variant(record)} ({describe_distance(record, choice.pick, bench)})" for record in others]
    share = f"{bench.spec.tie * 100:g} %"
    if choice.pick not in choice.ranking.tied:
        return None
    return f"Tied in {bench.spec.minimize}: {', '.join(parts)}; none is shown to be more than {share} off."


def describe_distance(record: Record, pick: Record, bench: Bench) -> str:
    """``0.3 % slower [-1.5, +2.1]``."""
    comparison = bench.scale.compare(record, pick)
    if comparison is None:
        return "not compared"
    ratio = comparison.ratio()
    word = bench.scale.worse if ratio.value >= 1 else bench.scale.better
    if comparison.evidence == "recorded" and bench.spec.minimize in ("size", "memory"):
        if f"{abs(ratio.value - 1) * 100:.1f}" == "0.0":
            return f"the same {bench.spec.minimize}" if ratio.value == 1 else f"less than 0.1 % {word}"
        return f"{abs(ratio.value - 1) * 100:.1f} % {word}"
    assert ratio.low is not None
    assert ratio.high is not None
    flip = ratio.value < 1  # the limits of what the word says
    ends = (1 - ratio.high, 1 - ratio.low) if flip else (ratio.low - 1, ratio.high - 1)
    shown = Interval(value=abs(ratio.value - 1), low=ends[0], high=ends[1])
    number, limits = formatting.number(shown, scale=100), formatting.limits(shown, scale=100, signed=True)
    return f"{number} % {word} {limits}".rstrip()


def describe_step(choice: Choice, bench: Bench) -> str | None:
    """What told the pick from those that tie with it; None where nothing does."""
    ranking = choice.ranking
    if ranking is None or len(ranking.tied) < 2:
        return None
    deciding = "; then ".join(step.text for step in ranking.steps)
    if len(ranking.equals) > 1:
        names = ", ".join(variant(record) for record in ranking.equals if record is not ranking.pick)
        equal = f"nothing that decide.prefer names tells it from {names}, so that its estimate decides"
        return f"{deciding}; {equal}" if deciding else equal
    if not deciding:
        return f"{bench.spec.minimize}: the others' estimates are off by more than the tie"
    if ranking.steps[0].name != "accuracy" and "accuracy" in bench.spec.prefer:
        difference = bench.differences.compare(ranking.pick, ranking.steps[0].dropped[0])
        if difference is not None:
            both = f"{variant(ranking.pick)} against {variant(ranking.steps[0].dropped[0])}"
            deciding += f" (in accuracy they tie: {both} {notes.describe_accuracy(difference, bench)})"
    return deciding
