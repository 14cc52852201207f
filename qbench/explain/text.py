"""An explanation as sentences for a terminal, of lost time or of lost accuracy; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench import formatting
from qbench.compare import host_share
from qbench.decide import cases
from qbench.decide.names import variant_name
from qbench.errors import first_names
from qbench.explain.advice import MendedAccuracy
from qbench.explain.causes.base import Cause
from qbench.explain.error_trials import OVER_DRAWS, Evaluated
from qbench.explain.explanation import Confirmed, Explanation
from qbench.explain.not_covered import NotCovered
from qbench.explain.open_case import OpenCase
from qbench.explain.story import TimeExplained
from qbench.explain.time_trials import Raced
from qbench.explain.trial import Trial
from qbench.explain.where_time_goes import TimeShares
from qbench.modes import HALVES, WEIGHT_ONLY
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

AS_FAST = 0.03  # a difference that nobody should ship for
NAMED_LAYERS, NAMED_CHANGES = 4, 12  # of a sentence
FLATTERS = (
    "To calibrate on what is evaluated proves the cause and flatters the score: bring calibration examples like those "
    "that the network will see."
)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What a case takes too much of, in words: ``gone`` stands behind what a change saves, times ``scale``; ``whole``
    is what shares are of, ``nothing`` what is said where no cause is confirmed."""

    whole: str
    scale: float
    gone: str
    nothing: str


MORE_EXAMPLES = "no cause can be confirmed until draws differ less, as larger ones do (data.calibrate.samples)"
TIME = Unit(whole="the gap", scale=1.0, gone="times as fast", nothing="No cause that was tried makes it slower.")
ERROR = Unit(
    whole="the error",
    scale=100.0,
    gone="% of the error gone",
    nothing="No change that was tried is confirmed as a cause.",
)


def list_time_head(opened: OpenCase, explanation: Explanation[Raced]) -> list[str]:
    """What is explained, and how far it is from what it could be."""
    raced, seconds = explanation.tried, explanation.tried.original_seconds
    beside = _beside_fp32(opened, raced)
    lines = [f"{opened.case.id}: {formatting.duration(seconds)} for one example{beside}."]
    if explanation.goal.left < 1:
        best = seconds * explanation.goal.left
        lines.append(
            f"It could take {formatting.duration(best)} ({explanation.goal.name}): a gap of "
            f"{formatting.duration(seconds - best)}."
        )
    if raced.off_core is not None and raced.off_core >= host_share.OFF_CORE:
        lines.append(f"Note: {host_share.describe_off_core([raced.off_core], 'meanwhile')}.")
    return lines


def list_other_formats(record: Record, records: Sequence[Record]) -> list[str]:
    """What of the same setting is as fast or faster and was calibrated by nobody: bf16, fp16 and weights of few bits,
    by the run's own times, the fastest first."""
    own = cases.p50(record)
    if own is None:
        return []
    others = [
        (seconds, other)
        for other in cases.of_setting(cases.setting_of(record.case), records)
        if (other.case.mode in HALVES or other.case.mode == WEIGHT_ONLY)
        and cases.runs_as_named(other)
        and (seconds := cases.p50(other)) is not None
        and seconds <= own * (1 + AS_FAST)
    ]
    return [
        f"In the run {variant_name(other)} took {formatting.duration(seconds)} where this case took "
        f"{formatting.duration(own)}, and nothing is calibrated for it."
        for seconds, other in sorted(others, key=lambda pair: pair[0])
    ]


def _beside_fp32(opened: OpenCase, raced: Raced) -> str:
    if raced.fp32_seconds is None:
        return ""
    backend, seconds = opened.fp32_case.variant.backend, formatting.duration(raced.fp32_seconds)
    if raced.over_fp32 is None:
        return f"; fp32 on {backend} takes {seconds}"
    return f", {formatting.with_limits(raced.over_fp32)} times what fp32 on {backend} takes ({seconds})"


def describe_error_head(evaluated: Evaluated, metric: MetricInfo) -> str:
    """What int8 loses against fp32."""
    noise = "the same outputs as fp32" if evaluated.sqnr_db is None else f"{evaluated.sqnr_db:.1f} dB signal to noise"
    change = evaluated.against_fp32
    told = "" if change is None else f", {metric.name} {metric.show_against_fp32(change)}"
    return f"Against fp32, on {evaluated.n:,} examples: {noise}{told}."


def describe_watching(times: TimeShares) -> str:
    """What watching costs, and whether the nodes were shortened by it."""
    cost = formatting.duration(times.case.watching_seconds)
    share = formatting.share(times.case.watching_seconds / times.case.call_seconds)
    if times.case.scale == 1.0:
        return f"Watching adds {cost} to a call ({share})."
    return f"Watching adds {cost} to a call ({share}); what it saw was shortened by one factor to what a call takes."


def list_causes(
    explanation: Explanation[Any], titles: Mapping[str, Cause], unit: Unit, metric: MetricInfo
) -> list[str]:
    """A sentence for each confirmed cause, and what they are together."""
    lines = [
        f"{number}. {_describe_cause(cause, titles, unit, metric)}{_describe_share(cause, unit, is_first=number == 1)}."
        for number, cause in enumerate(explanation.confirmed, start=1)
    ] or [unit.nothing if explanation.unconfirmed or unit is TIME else "No change could be tried."]
    if explanation.together is not None and len(explanation.confirmed) > 1:
        lines.append(f"Without all of these: {_describe_saving(explanation.together, unit, metric)}.")
    if explanation.unexplained is not None:
        lines.append(f"Not explained: {formatting.share(max(0.0, explanation.unexplained))} of {unit.whole}.")
    return lines


def list_other_times(explanation: Explanation[Raced]) -> Iterator[str]:
    """What was tried beside the confirmed causes: a line for each change."""
    if explanation.hidden:
        yield "Gains alone, but nothing beyond those above, or cannot be built with them; its share is in theirs:"
    for trial in explanation.hidden:
        share = explanation.share_alone(trial)
        closed = "" if share is None else f"; alone it closes {formatting.share(max(0.0, share))} of the gap"
        yield f"  {_describe_trial(trial)}{closed}"
    if explanation.unconfirmed:
        yield "No gain shown, all that was tried taken together:"
    yield from (f"  {_describe_trial(trial)}" for trial in explanation.unconfirmed)
    yield from (f"Not tried: {trial.counterfactual.text}: {trial.reason}." for trial in explanation.untried)


def list_other_errors(explanation: Explanation[Evaluated]) -> Iterator[str]:
    """What was tried beside the confirmed causes: a sentence for each outcome, and for each reason of what could not
    be."""
    evaluated = explanation.tried
    if flatters(explanation):
        yield FLATTERS
    if evaluated.draw_share > 0:
        yield (
            f"Another draw of the calibration examples changes the error by {formatting.share(evaluated.draw_share)} "
            f"({len(evaluated.draws)} draws); a cause removes {OVER_DRAWS:g} times as much and more"
            + (f", which is more than all of it: {MORE_EXAMPLES}." if evaluated.least > 1 else ".")
        )
    short = (
        "Not confirmed, whatever it takes away"
        if evaluated.least > 1
        else f"Not shown to take {100 * evaluated.least:.2g} % of the error away"
    )
    for title, trials in (
        ("Takes error away alone, but no more beside those above, or cannot be built with them", explanation.hidden),
        (short, explanation.unconfirmed),
    ):
        if trials:
            names = [f"{trial.counterfactual.text} ({show_removed(trial)})" for trial in trials]
            yield f"{title}: {first_names(names, NAMED_CHANGES)}."
    for reason in dict.fromkeys(trial.reason for trial in explanation.untried):
        names = [trial.counterfactual.text for trial in explanation.untried if trial.reason == reason]
        yield f"Not tried: {first_names(names, NAMED_CHANGES)}: {reason}."


def flatters(explanation: Explanation[Evaluated]) -> bool:
    """Whether a confirmed change calibrates on what is evaluated."""
    return any(cause.trial.counterfactual.change.calibrate is not None for cause in explanation.confirmed)


def describe_not_covered(not_covered: NotCovered | None) -> str | None:
    """What no recipe makes int8, and how much of the case that is; None for nothing."""
    if not_covered is None:
        return None
    names = [formatting.one_line(f"{name} ({reason})") for name, reason in not_covered.layers]
    shares = [
        f"{formatting.share(share)} of {whole}"
        for share, whole in (
            (not_covered.time_share, "the call"),
            (not_covered.macs_share, "the multiply-accumulates"),
        )
        if share is not None
    ]
    size = f": {', '.join(shares)}" if shares else ""
    return f"No recipe makes int8 here: {first_names(names, NAMED_LAYERS)}{size}."


def _describe_cause(cause: Confirmed, titles: Mapping[str, Cause], unit: Unit, metric: MetricInfo) -> str:
    counterfactual = cause.trial.counterfactual
    title = titles[counterfactual.cause].title
    return (
        f"{title[0].upper()}{title[1:]} ({counterfactual.cause}). Without it ({counterfactual.text}): "
        f"{_describe_saving(cause.trial, unit, metric)}"
    )


def _describe_share(cause: Confirmed, unit: Unit, *, is_first: bool) -> str:
    """What a cause closes beyond those before it."""
    if unit is ERROR:
        return "" if is_first else f"; {formatting.share(cause.saved)} beyond those before it"
    beyond = " once the first ones are gone" if cause.trial.beyond else ""
    return f"{beyond}{'' if cause.share is None else f'; {formatting.share(max(0.0, cause.share))} of {unit.whole}'}"


def _describe_saving(trial: Trial, unit: Unit, metric: MetricInfo) -> str:
    saved = formatting.with_limits(trial.interval, scale=unit.scale)
    return f"{saved} {unit.gone}{_describe_change(trial.metric_change, metric, ';')}"


def _describe_trial(trial: Trial) -> str:
    counterfactual = trial.counterfactual
    return f"{counterfactual.text} ({counterfactual.cause}): {formatting.with_limits(trial.interval)} {TIME.gone}"


def show_removed(trial: Trial) -> str:
    """The share of the error that a trial takes away, with limits."""
    return f"{formatting.with_limits(trial.interval, scale=ERROR.scale)} %"


def _describe_change(change: Interval | None, metric: MetricInfo, mark: str) -> str:
    return "" if change is None else f"{mark} {metric.name} {metric.show_change(change)}"


def describe_accuracy(accuracy: MendedAccuracy | None, metric: MetricInfo) -> str | None:
    """What the change costs in accuracy; None where the artifact stays the same, or nothing is known."""
    if accuracy is None or accuracy.against_case is None:
        return None
    changes = [f"{metric.show_change(accuracy.against_case)} against the case"]
    if accuracy.against_fp32 is not None:
        changes.append(f"{metric.show_against_fp32(accuracy.against_fp32)} against fp32")
    return f"Its {metric.name}, on {accuracy.n:,} examples: {', '.join(changes)}."


def _say_too_much(opened: OpenCase) -> str:
    accuracy = opened.suite.gate.accuracy
    if accuracy.floor is not None:
        return f"is below the least score of {accuracy.floor:g}"
    return f"loses more than the margin of {accuracy.margin:g}"


def list_costs(opened: OpenCase, explained: TimeExplained) -> list[str]:
    """What the advised change costs in accuracy, and what else gains where that is too much."""
    metric, accuracy, alternative = opened.metric_info, explained.accuracy, explained.alternative
    lines = [describe_accuracy(accuracy, metric)]
    if accuracy is not None and opened.assess_loss(accuracy.against_fp32) == "FAIL":
        lines.append(f"That {_say_too_much(opened)}.")
    if alternative is not None:
        beginning = "For single requests" if alternative.single else "Not shown to"
        lines += [
            f"{beginning}: {_describe_trial(alternative.trial)}.",
            describe_accuracy(alternative.accuracy, metric),
        ]
    return [line for line in lines if line is not None]
