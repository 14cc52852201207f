"""An explanation as text for a terminal, and as JSON; pure."""

from __future__ import annotations

import json
from typing import Any

from qbench import formatting
from qbench.explain.causes.base import Cause
from qbench.explain.explanation import Confirmed, Explanation
from qbench.explain.story import Explained
from qbench.explain.trials import Trial
from qbench.explain.where_time_goes import LayerTime, TimeShares
from qbench.progress.table import TextTable
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

LONGEST_LAYERS = 10
NOTHING = "No cause that was tried makes it slower."


def list_head(explained: Explained) -> list[str]:
    """What is explained, and how far it is from what it could be."""
    opened, result = explained.opened, explained.explanation
    lines = [f"{opened.case.id}: {formatting.duration(result.case_seconds)} for one example{_beside_fp32(explained)}."]
    if result.best_seconds < result.case_seconds:
        lines.append(
            f"It could take {formatting.duration(result.best_seconds)} ({result.best}): a gap of "
            f"{formatting.duration(result.case_seconds - result.best_seconds)}."
        )
    return [*lines, *opened.notes]


def _beside_fp32(explained: Explained) -> str:
    seconds = explained.explanation.fp32_seconds
    if seconds is None:
        return ""
    ratio = explained.explanation.case_seconds / seconds
    backend = explained.opened.fp32_case.variant.backend
    return f", {ratio:.2f} times what fp32 on {backend} takes ({formatting.duration(seconds)})"


def make_kind_table(times: TimeShares) -> TextTable:
    """Seconds by kind of work, in the case and in its fp32."""
    rows: list[tuple[str, ...]] = [
        (kind, formatting.duration(own), formatting.share(own / times.case.call_seconds), formatting.duration(fp32))
        for kind, own, fp32 in times.kinds()
    ]
    own, fp32 = times.case.overhead_seconds, times.fp32.overhead_seconds
    share = "" if own is None else formatting.share(own / times.case.call_seconds)
    rows.append(("beside the nodes", _or_unknown(own), share, _or_unknown(fp32)))
    rows.append(
        (
            "a call",
            formatting.duration(times.case.call_seconds),
            "",
            formatting.duration(times.fp32.call_seconds),
        )
    )
    return TextTable(columns=("where the time goes", "int8", "of the call", "fp32"), rows=tuple(rows))


def _or_unknown(seconds: float | None) -> str:
    return "less than watching costs" if seconds is None else formatting.duration(seconds)


def make_layer_table(times: TimeShares) -> TextTable:
    """The layers that take longest."""
    return TextTable(
        columns=("layer", "operator", "kind", "int8", "fp32", "of the peak"),
        rows=tuple(_layer_row(layer) for layer in times.layers[:LONGEST_LAYERS]),
        words=(0, 1, 2),
    )


def _layer_row(layer: LayerTime) -> tuple[str, ...]:
    return (
        formatting.one_line(layer.name),
        formatting.one_line(layer.operator),
        layer.kind,
        formatting.duration(layer.int8_seconds),
        "" if layer.fp32_seconds is None else formatting.duration(layer.fp32_seconds),
        "" if layer.peak_fraction is None else formatting.share(layer.peak_fraction),
    )


def list_causes(result: Explanation, titles: dict[str, Cause]) -> list[str]:
    """A sentence for each confirmed cause, what they are together, and what was tried in vain or not at all."""
    lines = [f"{number}. {_describe(cause, titles)}" for number, cause in enumerate(result.confirmed, start=1)] or [
        NOTHING
    ]
    if result.together is not None:
        lines.append(f"All of these taken away: {_times(result.together)} as fast.")
    if result.unexplained is not None and result.best_seconds < result.case_seconds:
        lines.append(f"Not explained: {formatting.share(max(0.0, result.unexplained))} of the gap.")
    if result.hidden:
        lines.append("Gains alone, but nothing beyond these:")
    lines += [f"  {_describe_trial(trial)}" for trial in result.hidden]
    if result.unconfirmed:
        lines.append("No gain shown, all that was tried taken together:")
    lines += [f"  {_describe_trial(trial)}" for trial in result.unconfirmed]
    return lines + [f"Not tried: {trial.counterfactual.text}: {trial.reason}." for trial in result.untried]


def _describe(cause: Confirmed, titles: dict[str, Cause]) -> str:
    name = cause.trial.counterfactual.cause
    share = "" if cause.share is None else f"; {formatting.share(max(0.0, cause.share))} of the gap"
    title = titles[name].title
    return (
        f"{title[0].upper()}{title[1:]} ({name}). Taken away ({cause.trial.counterfactual.text}): "
        f"{_times(cause.trial.gain)} as fast{share}."
    )


def _describe_trial(trial: Trial) -> str:
    return f"{trial.counterfactual.text} ({trial.counterfactual.cause}): {_times(trial.gain)} as fast"


def _times(interval: Interval | None) -> str:
    return f"{formatting.with_limits(interval)} times"


def describe_accuracy(explained: Explained) -> str | None:
    """What the change costs in accuracy; None where the artifact stays the same, or nothing is known."""
    accuracy, metric = explained.accuracy, explained.metric
    if accuracy is None or accuracy.against_case is None:
        return None
    changes = [
        f"{_difference(change, metric)} against {against}"
        for change, against in ((accuracy.against_case, "the case"), (accuracy.against_fp32, "fp32"))
        if change is not None
    ]
    return f"Its {metric.name}, on {accuracy.n:,} examples: {', '.join(changes)}."


def _difference(change: Interval, metric: MetricInfo) -> str:
    shown = formatting.with_limits(change, scale=metric.scale, signed=True, least=metric.least)
    return f"{shown} {metric.unit}".rstrip()


def write_suite_keys(explained: Explained) -> str | None:
    """The piece of a suite that takes the confirmed causes away; None where a suite has no key for it."""
    import yaml

    change = explained.explanation.change
    keys = {} if change is None else change.suite_keys(explained.opened.case)
    if not keys:
        return None
    text: str = yaml.safe_dump(keys, sort_keys=False, default_flow_style=None, width=1000)
    return text.rstrip()


def list_environment(explained: Explained) -> list[str]:
    """What to set for the process, where confirmed causes lie there."""
    change = explained.explanation.change
    variables = {} if change is None else change.environment
    return [f"unset {name}" if not value else f"export {name}={value}" for name, value in variables.items()]


def as_json(explained: Explained) -> str:
    """All of it as JSON, seconds for one example."""
    result, times = explained.explanation, explained.times
    value: dict[str, Any] = {
        "case": explained.opened.case.id,
        "notes": list(explained.opened.notes),
        "case_seconds": result.case_seconds,
        "fp32_seconds": result.fp32_seconds,
        "best_seconds": result.best_seconds,
        "best": result.best,
        "where": None if times is None else _times_as_json(times),
        "no_profile": explained.no_times,
        "causes": [_cause_as_json(cause) for cause in result.confirmed],
        "together": _limits(result.together),
        "unexplained": result.unexplained,
        "hidden": [_trial_as_json(trial) for trial in result.hidden],
        "unconfirmed": [_trial_as_json(trial) for trial in result.unconfirmed],
        "untried": [
            {"cause": trial.counterfactual.cause, "change": trial.counterfactual.text, "reason": trial.reason}
            for trial in result.untried
        ],
        "accuracy": None
        if explained.accuracy is None
        else {
            "metric": explained.accuracy.metric,
            "n": explained.accuracy.n,
            "against_case": _limits(explained.accuracy.against_case),
            "against_fp32": _limits(explained.accuracy.against_fp32),
        },
        "suite": write_suite_keys(explained),
        "environment": list_environment(explained),
    }
    return f"{json.dumps(value, indent=2)}\n"


def _times_as_json(times: TimeShares) -> dict[str, Any]:
    return {
        "call_seconds": times.case.call_seconds,
        "fp32_call_seconds": times.fp32.call_seconds,
        "overhead_seconds": times.case.overhead_seconds,
        "kinds": [{"kind": kind, "seconds": own, "fp32_seconds": fp32} for kind, own, fp32 in times.kinds()],
        "layers": [
            {
                "layer": layer.name,
                "operator": layer.operator,
                "kind": layer.kind,
                "seconds": layer.int8_seconds,
                "fp32_seconds": layer.fp32_seconds,
                "macs": layer.macs,
                "peak_fraction": layer.peak_fraction,
            }
            for layer in times.layers
        ],
        "nodes": [
            {"layer": node.layer, "operator": node.operator, "kind": node.kind, "seconds": node.seconds}
            for node in times.case.nodes
        ],
    }


def _cause_as_json(cause: Confirmed) -> dict[str, Any]:
    return {**_trial_as_json(cause.trial), "share": cause.share}


def _trial_as_json(trial: Trial) -> dict[str, Any]:
    return {"cause": trial.counterfactual.cause, "change": trial.counterfactual.text, "gain": _limits(trial.gain)}


def _limits(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else {"value": interval.value, "low": interval.low, "high": interval.high}
