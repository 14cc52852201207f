"""An explanation of lost accuracy as text for a terminal, and as a run keeps it; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qbench import formatting
from qbench.errors import first_names
from qbench.explain.accuracy_explanation import OVER_DRAWS, AccuracyExplanation, ConfirmedLoss, find_least_share
from qbench.explain.accuracy_trials import AccuracyTrial
from qbench.explain.causes.base import Cause
from qbench.explain.story import Explained
from qbench.explain.text import describe_difference, write_suite_keys
from qbench.progress.table import TextTable
from qbench.record.explained_accuracy import ExplainedAccuracy, ExplainedLayer, ExplainedLoss
from qbench.record.stored_run import MetricInfo

NO_LOSS = "No change that was tried takes error away."
NOT_TRIED = "No change could be tried."
FLATTERS = (
    "To calibrate on what is evaluated proves the cause and flatters the score: bring calibration examples like those "
    "that the network will see."
)
NAMED = 12  # changes of a sentence


def list_losses(result: AccuracyExplanation, titles: Mapping[str, Cause], metric: MetricInfo) -> list[str]:
    """What int8 loses against fp32, a sentence for each confirmed cause, and what was tried in vain or not at all."""
    tried, together = result.tried, result.together
    noise = "the same outputs as fp32" if tried.sqnr_db is None else f"{tried.sqnr_db:.1f} dB signal to noise"
    change = "" if tried.against_fp32 is None else f", {metric.name} {describe_difference(tried.against_fp32, metric)}"
    lines = [f"Against fp32, on {tried.n:,} examples: {noise}{change}."]
    lines += [
        _describe_loss(number, loss, titles, metric) for number, loss in enumerate(result.confirmed, start=1)
    ] or [NO_LOSS if result.unconfirmed else NOT_TRIED]
    if together is not None and len(result.confirmed) > 1:
        lines.append(f"Without all of these: {_removed(together)} of the error gone{_effect(together, metric)}.")
    if result.left is not None:
        lines.append(f"Not explained: {formatting.share(max(0.0, result.left))} of the error.")
    if _calibrates_on_evaluated(result):
        lines.append(FLATTERS)
    return [*lines, *_list_others(result)]


def make_layer_table(result: AccuracyExplanation, metric: MetricInfo) -> TextTable:
    """The layers that were returned to float: what each takes away alone, and with those above it."""
    rows = [
        (
            layer.trial.counterfactual.part,
            _removed(layer.trial),
            formatting.DASH if layer.together is None else formatting.share(layer.together),
            formatting.DASH if (change := layer.trial.metric_change) is None else describe_difference(change, metric),
        )
        for layer in result.layers
    ]
    return TextTable(columns=("layer in float", "error gone", "with those above", metric.name), rows=tuple(rows))


def to_stored(explained: Explained, result: AccuracyExplanation, titles: Mapping[str, Cause]) -> ExplainedAccuracy:
    """What the run keeps of an explanation of lost accuracy."""
    losses, together = result.confirmed, result.together
    return ExplainedAccuracy(
        case=explained.opened.case.id,
        metric=explained.opened.metric_info.name,
        n=result.tried.n,
        sqnr_db=result.tried.sqnr_db,
        against_fp32=result.tried.against_fp32,
        causes=tuple(
            ExplainedLoss(
                title=titles[loss.trial.counterfactual.cause].title,
                change=loss.trial.counterfactual.text,
                removed=loss.trial.share.interval(),
                metric_change=loss.trial.metric_change,
                beyond=loss.share,
            )
            for loss in losses
            if loss.trial.share is not None
        ),
        layers=tuple(
            ExplainedLayer(
                name=layer.trial.counterfactual.part,
                removed=layer.trial.share.interval(),
                metric_change=layer.trial.metric_change,
                together=layer.together,
            )
            for layer in result.layers
            if layer.trial.share is not None
        ),
        left=result.left,
        suite=write_suite_keys(result.change, explained.opened),
        metric_change=None if together is None else together.metric_change,
        note=FLATTERS if _calibrates_on_evaluated(result) else None,
    )


def _calibrates_on_evaluated(result: AccuracyExplanation) -> bool:
    return any(loss.trial.counterfactual.change.calibrate is not None for loss in result.confirmed)


def _list_others(result: AccuracyExplanation) -> Iterator[str]:
    """What was tried beside the confirmed causes, in a sentence for each outcome."""
    if (share := result.tried.draw_share) > 0:
        yield (
            f"Another draw of the calibration examples changes the error by {formatting.share(share)} "
            f"({len(result.tried.draws)} draws); a cause removes {OVER_DRAWS:g} times as much and more."
        )
    for title, trials in (
        ("Takes error away alone, but no more beside those above, or cannot be built with them", result.hidden),
        (f"Not shown to take {100 * find_least_share(result.tried):.2g} % of the error away", result.unconfirmed),
    ):
        if trials:
            names = [f"{trial.counterfactual.text} ({_removed(trial)})" for trial in trials]
            yield f"{title}: {first_names(names, NAMED)}."
    yield from _list_untried(result.untried)


def _list_untried(trials: Sequence[AccuracyTrial]) -> Iterator[str]:
    """What could not be tried, in a sentence for each reason."""
    for reason in dict.fromkeys(trial.reason for trial in trials):
        names = [trial.counterfactual.text for trial in trials if trial.reason == reason]
        yield f"Not tried: {first_names(names, NAMED)}: {reason}."


def _describe_loss(number: int, loss: ConfirmedLoss, titles: Mapping[str, Cause], metric: MetricInfo) -> str:
    counterfactual = loss.trial.counterfactual
    title = titles[counterfactual.cause].title
    beyond = "" if number == 1 else f"; {formatting.share(loss.share)} beyond those before it"
    return (
        f"{number}. {title[0].upper()}{title[1:]} ({counterfactual.cause}). Without it ({counterfactual.text}): "
        f"{_removed(loss.trial)} of the error gone{_effect(loss.trial, metric)}{beyond}."
    )


def _effect(trial: AccuracyTrial, metric: MetricInfo) -> str:
    change = trial.metric_change
    return "" if change is None else f"; {metric.name} {describe_difference(change, metric)}"


def _removed(trial: AccuracyTrial) -> str:
    share = None if trial.share is None else trial.share.interval()
    return f"{formatting.with_limits(share, scale=100.0)} %"
