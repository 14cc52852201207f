"""An explanation as text for a terminal, and as JSON; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbench import formatting
from qbench.compare import host_share
from qbench.errors import first_names
from qbench.explain.advice import MendedAccuracy
from qbench.explain.causes.base import Cause
from qbench.explain.change import Change
from qbench.explain.explanation import Confirmed, Explanation
from qbench.explain.not_covered import NotCovered
from qbench.explain.open_case import OpenCase
from qbench.explain.story import Explained, TimeExplained
from qbench.explain.trials import Trial
from qbench.explain.where_time_goes import LayerTime, TimeShares
from qbench.plan.cases import Case
from qbench.process import imports
from qbench.progress.table import TextTable
from qbench.record.explained import (
    FLUSH_IN_TORCH,
    FLUSHING,
    IMPORT_ON_ONE,
    IMPORT_ON_SEVERAL,
    ExplainedCase,
    ExplainedCause,
)
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval

LONGEST_LAYERS = 10
NAMED = 4  # layers of a sentence
OPTION = "# Optional, where examples can wait for each other (single requests gain nothing):"
NOTHING = "No cause that was tried makes it slower."


def list_head(opened: OpenCase, result: Explanation) -> list[str]:
    """What is explained, and how far it is from what it could be."""
    beside = _beside_fp32(opened, result)
    lines = [f"{opened.case.id}: {formatting.duration(result.case_seconds)} for one example{beside}."]
    if result.best_seconds < result.case_seconds:
        lines.append(
            f"It could take {formatting.duration(result.best_seconds)} ({result.best}): a gap of "
            f"{formatting.duration(result.case_seconds - result.best_seconds)}."
        )
    if result.off_core is not None and result.off_core >= host_share.OFF_CORE:
        lines.append(f"Note: {host_share.describe_off_core([result.off_core], 'meanwhile')}.")
    return lines


def _beside_fp32(opened: OpenCase, result: Explanation) -> str:
    seconds = result.fp32_seconds
    if seconds is None:
        return ""
    backend = opened.fp32_case.variant.backend
    if result.over_fp32 is None:
        return f"; fp32 on {backend} takes {formatting.duration(seconds)}"
    ratio = formatting.with_limits(result.over_fp32)
    return f", {ratio} times what fp32 on {backend} takes ({formatting.duration(seconds)})"


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


def describe_watching(times: TimeShares) -> str:
    """What watching costs, and whether the nodes were shortened by it."""
    cost = formatting.duration(times.case.watching_seconds)
    share = formatting.share(times.case.watching_seconds / times.case.call_seconds)
    if times.case.scale == 1.0:
        return f"Watching adds {cost} to a call ({share})."
    return f"Watching adds {cost} to a call ({share}); what it saw was shortened by one factor to what a call takes."


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


def list_causes(result: Explanation, titles: Mapping[str, Cause]) -> list[str]:
    """A sentence for each confirmed cause, what they are together, and what was tried in vain or not at all."""
    lines = [f"{number}. {_describe(cause, titles)}" for number, cause in enumerate(result.confirmed, start=1)] or [
        NOTHING
    ]
    if result.together is not None:
        lines.append(f"Without all of these: {_times(result.together)} as fast.")
    if result.unexplained is not None and result.best_seconds < result.case_seconds:
        lines.append(f"Not explained: {formatting.share(max(0.0, result.unexplained))} of the gap.")
    if result.hidden:
        lines.append(
            "Gains alone, but nothing beyond those above, or cannot be built with them; its share is in theirs:"
        )
    lines += [f"  {_describe_alone(trial, result)}" for trial in result.hidden]
    if result.unconfirmed:
        lines.append("No gain shown, all that was tried taken together:")
    lines += [f"  {_describe_trial(trial)}" for trial in result.unconfirmed]
    return lines + [f"Not tried: {trial.counterfactual.text}: {trial.reason}." for trial in result.untried]


def describe_not_covered(not_covered: NotCovered | None) -> str | None:
    """What no recipe makes int8, and how much of the case that is; None for nothing."""
    if not_covered is None:
        return None
    names = [formatting.one_line(f"{name} ({reason})") for name, reason in not_covered.layers]
    shares = [
        f"{formatting.share(share)} of {what}"
        for share, what in (
            (not_covered.time_share, "the call"),
            (not_covered.macs_share, "the multiply-accumulates"),
        )
        if share is not None
    ]
    size = f": {', '.join(shares)}" if shares else ""
    return f"No recipe makes int8 here: {first_names(names, NAMED)}{size}."


def _describe(cause: Confirmed, titles: Mapping[str, Cause]) -> str:
    name = cause.trial.counterfactual.cause
    share = "" if cause.share is None else f"; {formatting.share(max(0.0, cause.share))} of the gap"
    title = titles[name].title
    beyond = " once the first ones are gone" if cause.trial.beyond else ""
    return (
        f"{title[0].upper()}{title[1:]} ({name}). Without it ({cause.trial.counterfactual.text}): "
        f"{_times(cause.trial.gain)} as fast{beyond}{share}."
    )


def _describe_trial(trial: Trial) -> str:
    return f"{trial.counterfactual.text} ({trial.counterfactual.cause}): {_times(trial.gain)} as fast"


def _describe_alone(trial: Trial, result: Explanation) -> str:
    share = result.share_alone(trial)
    closed = "" if share is None else f"; alone it closes {formatting.share(max(0.0, share))} of the gap"
    return f"{_describe_trial(trial)}{closed}"


def _times(interval: Interval | None) -> str:
    return f"{formatting.with_limits(interval)} times"


def describe_accuracy(accuracy: MendedAccuracy | None, metric: MetricInfo) -> str | None:
    """What the change costs in accuracy; None where the artifact stays the same, or nothing is known."""
    if accuracy is None or accuracy.against_case is None:
        return None
    changes = [
        f"{describe_difference(change, metric)} against {against}"
        for change, against in ((accuracy.against_case, "the case"), (accuracy.against_fp32, "fp32"))
        if change is not None
    ]
    return f"Its {metric.name}, on {accuracy.n:,} examples: {', '.join(changes)}."


def describe_difference(change: Interval, metric: MetricInfo) -> str:
    """A metric's change with its limits and unit."""
    shown = formatting.with_limits(change, scale=metric.scale, signed=True, least=metric.least)
    return f"{shown} {metric.unit}".rstrip()


def write_suite_keys(change: Change | None, opened: OpenCase, option: Change | None = None) -> str | None:
    """The piece of a suite for a change, and as comments below it what an ``option`` has beyond it; None where a suite
    has no key for either."""
    text = _write_keys({} if change is None else change.suite_keys(opened.case, opened.recipe_keys, opened.recipes))
    keys = write_option(option, change, opened)
    if option is None or keys is None:
        return text or None
    known = list_environment(change, opened.case)
    more = [line for line in list_environment(option, opened.case) if line not in known]
    return "\n".join([*([text] if text else []), OPTION, *(f"# {line}" for line in [*keys.splitlines(), *more])])


def write_option(option: Change | None, change: Change | None, opened: OpenCase) -> str | None:
    """The keys of a change with more examples a call, which only some services can have, beyond those of ``change``;
    None where no change is about that."""
    if option is None or option.batch_size is None:
        return None
    keys, known = (
        each.suite_keys(opened.case, opened.recipe_keys, opened.recipes) for each in (option, change or Change())
    )
    return _write_keys(_leave_out(keys, known))


def _write_keys(keys: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(keys, sort_keys=False, default_flow_style=None, width=1000) if keys else ""
    return text.rstrip()


def _leave_out(keys: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The keys without those that are known with the same value."""
    left: dict[str, Any] = {}
    for name, value in keys.items():
        other = known.get(name)
        if value != other:
            left[name] = _leave_out(value, other) if isinstance(value, dict) and isinstance(other, dict) else value
    return left


def list_environment(change: Change | None, case: Case) -> list[str]:
    """What to set for the process, where confirmed causes lie there."""
    if change is None:
        return []
    backend = change.backend or case.variant.backend
    lines = [_write_variable(name, value) for name, value in change.environment.items()]
    return [*lines, *([FLUSHING.get(backend, FLUSH_IN_TORCH)] if change.flush_denormals else [])]


def _write_variable(name: str, value: str) -> str:
    """What to do for a variable of the process; that of qbench's own is about when to pin it."""
    if name == imports.CORES:
        return IMPORT_ON_SEVERAL if "," in value else IMPORT_ON_ONE
    return f"export {name}={value}" if value else f"unset {name}"


def describe_costs(explained: Explained, result: TimeExplained) -> list[str]:
    """What the advised change costs in accuracy, and what else gains where that is too much."""
    opened, metric, accuracy = explained.opened, explained.opened.metric_info, result.accuracy
    lines = [describe_accuracy(accuracy, metric)]
    if accuracy is not None and opened.assess_loss(accuracy.against_fp32) == "FAIL":
        lines.append(f"That loses more than the margin of {opened.suite.gate.accuracy.margin:g}.")
    if (other := result.alternative) is not None:
        beginning = "For single requests" if other.single else "Not shown to"
        lines += [f"{beginning}: {_describe_trial(other.trial)}.", describe_accuracy(other.accuracy, metric)]
    return [line for line in lines if line is not None]


def to_stored(explained: Explained, result: TimeExplained, titles: Mapping[str, Cause]) -> ExplainedCase:
    """What the run keeps of an explanation of time."""
    explanation, case = result.explanation, explained.opened.case
    return ExplainedCase(
        case=case.id,
        seconds=explanation.case_seconds,
        fp32_seconds=explanation.fp32_seconds,
        best_seconds=explanation.best_seconds,
        best=explanation.best,
        over_fp32=explanation.over_fp32,
        off_core=explanation.off_core,
        causes=tuple(
            ExplainedCause(
                title=titles[cause.trial.counterfactual.cause].title,
                change=cause.trial.counterfactual.text,
                gain=cause.trial.gain,
                seconds=cause.seconds,
                share=cause.share,
            )
            for cause in explanation.confirmed
        ),
        overlapping=tuple(_store_alone(trial, explanation, titles) for trial in explanation.hidden),
        unexplained=explanation.unexplained,
        suite=write_suite_keys(explanation.single, explained.opened, explanation.change),
        environment=tuple(list_environment(explanation.single, case)),
        accuracy=" ".join(describe_costs(explained, result)) or None,
    )


def _store_alone(trial: Trial, explanation: Explanation, titles: Mapping[str, Cause]) -> ExplainedCause:
    share = explanation.share_alone(trial)
    return ExplainedCause(
        title=titles[trial.counterfactual.cause].title,
        change=trial.counterfactual.text,
        gain=trial.gain,
        seconds=(share or 0.0) * (explanation.case_seconds - explanation.best_seconds),
        share=share,
    )
