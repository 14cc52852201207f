"""The answer of one setting in one sentence, the same on the page, in the terminal, in ``summary.md`` and in
``decision.json``; pure."""

from __future__ import annotations

from collections.abc import Iterator

from qbench import formatting
from qbench.compare import compare
from qbench.decide.cases import is_sequential, name_judged, setting_name, settings
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.decide.objective import Objective
from qbench.decide.paired_times import PairedTimes, as_ratio
from qbench.decide.sureness import say_chance
from qbench.decide.tested_change import change_of, holds_against_fp32, write_shown
from qbench.record.schema import Record
from qbench.record.stored_run import QUICK


def write_sentence(decision: Decision, judged: Judged) -> str:
    """``digits-cnn: ship static int8 on ONNX Runtime: 1.8 times as fast as the best fp32, no accuracy lost, 26 % of its
    size; repeated, chosen about 19 times in 20``. ``decision`` has its headline in words already."""
    said = decision.headline.removesuffix(".")
    said = f"{said[0].lower()}{said[1:]}"
    names_pick = decision.verdict in ("ship", "either") and decision.pick is not None
    if names_pick and (figures := ", ".join(_list_figures(decision, judged))):
        said += f"; the former is {figures}" if decision.verdict == "either" else f": {figures}"
    if decision.probability is not None:
        said += f"; repeated, {_name_choice(decision)} {say_chance(decision.probability)}"
    return f"{name_subject(decision, judged)}: {said}"


def name_subject(decision: Decision, judged: Judged) -> str:
    """The model; with threads, batch size and host where the run has several settings of it."""
    model = decision.setting.model
    several = sum(setting.model == model for setting in settings(judged.records, judged.missing)) > 1
    subject = setting_name(decision.setting) if several else model
    return f"{QUICK} at {subject}" if judged.source.quick else subject


def _name_choice(decision: Decision) -> str:
    return {"ship": "chosen", "keep fp32": "kept"}.get(decision.verdict, "it would be chosen")


def _list_figures(decision: Decision, judged: Judged) -> Iterator[str]:
    """What is minimized if that is neither time nor bytes, the speed, the accuracy, the size."""
    assert decision.pick is not None
    if decision.objective in ("memory", "cold_start"):
        yield _say_minimized(decision, decision.pick)
    yield from _say_speed(decision, decision.pick)
    yield from _say_accuracy(decision.pick, judged)
    yield from _say_size(decision, decision.pick, judged)


def _say_minimized(decision: Decision, pick: Record) -> str:
    """``50.0 MB resident (fp32: 100 MB)``."""
    objective = Objective(name=decision.objective, times=PairedTimes(records={}, read=lambda record: {}))
    fp32 = "" if decision.fp32 is None else f" (fp32: {objective.show(decision.fp32).rpartition(' ')[0]})"
    return f"{objective.show(pick)}{fp32}"


def _say_speed(decision: Decision, pick: Record) -> Iterator[str]:
    """``1.8 times as fast as the best fp32``; ``about`` where nothing but two typical calls is compared."""
    over = decision.over_fastest
    if over is None:
        if pick.latency is not None and decision.objective == "latency":
            yield f"{formatting.duration(pick.latency.p50_seconds or pick.latency.mean_seconds)} a call"
        return
    about = "about " if over.evidence == "p50" and not is_sequential(pick) else ""
    which = "best" if decision.objective == "latency" else "fastest"
    yield f"{about}{_round_ratio(as_ratio(over).value)} times as fast as the {which} fp32"


def _round_ratio(ratio: float) -> str:
    """Two digits, three near 1, where the second after the point is half of the news."""
    return formatting.fixed(ratio, 0 if ratio >= 10 else 1 if ratio >= 1.095 else 2)


def _say_accuracy(pick: Record, judged: Judged) -> Iterator[str]:
    """``no accuracy lost``, ``top1 0.4 points worse``; of a metric that holds itself against fp32 the score."""
    metric, change = judged.metric, change_of(judged, pick)
    if metric is None or pick.accuracy is None:
        return
    outputs = f" in {judged_output}" if (judged_output := name_judged(pick)) else ""
    if holds_against_fp32(judged):
        unit = "%" if metric.percent else metric.own_unit
        yield f"{metric.name} {write_shown(judged, pick).partition(' ')[0]} {unit}".rstrip() + outputs
    elif change is not None:
        interval = compare.oriented(change.interval, metric.sign)
        amount = formatting.number(interval, scale=metric.scale, least=metric.least).removeprefix("-")
        nothing = float(amount) == 0 or (interval.value > 0 and (interval.low is None or interval.low <= 0))
        word = "better" if interval.value > 0 else "worse"
        said = "no accuracy lost" if nothing else " ".join(filter(None, (metric.name, amount, metric.unit, word)))
        yield f"{said}{outputs}"


def _say_size(decision: Decision, pick: Record, judged: Judged) -> Iterator[str]:
    fp32 = compare.like_for_like(pick, judged.records)
    if (ratio := compare.size_ratio(fp32, pick)) is not None:
        named = fp32 is decision.fastest and decision.over_fastest is not None
        yield f"{formatting.share(ratio, 0)} of {'its' if named else 'the'} size{'' if named else ' of fp32'}"
