"""An explanation as JSON, and as a run keeps it; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from qbench.explain.advice import MendedAccuracy
from qbench.explain.causes.base import Cause
from qbench.explain.error_trials import Evaluated
from qbench.explain.explanation import Explanation
from qbench.explain.not_covered import NotCovered
from qbench.explain.open_case import OpenCase
from qbench.explain.story import Explained, TimeExplained
from qbench.explain.suite_text import list_environment, write_option, write_suite_keys
from qbench.explain.text import FLATTERS, flatters, list_costs
from qbench.explain.trial import Trial
from qbench.explain.where_time_goes import TimeShares
from qbench.record.explained import ErrorFigures, ExplainedCase, ExplainedCause, ExplainedLayer, TimeFigures
from qbench.stats.interval_type import Interval


def as_json(explained: Explained) -> str:
    """All of it as JSON, seconds for one example."""
    value = {
        "case": explained.opened.case.id,
        "notes": list(explained.opened.notes),
        "time": None if explained.time is None else _time_as_json(explained.time, explained.opened),
        "accuracy": None if explained.losses is None else _losses_as_json(explained.losses, explained.opened),
    }
    return f"{json.dumps(value, indent=2)}\n"


def _time_as_json(explained: TimeExplained, opened: OpenCase) -> dict[str, Any]:
    explanation, raced, alternative = explained.explanation, explained.explanation.tried, explained.alternative
    return {
        "case_seconds": raced.original_seconds,
        "fp32_seconds": raced.fp32_seconds,
        "over_fp32": _as_data(raced.over_fp32),
        "best_seconds": raced.original_seconds * explanation.goal.left,
        "best": explanation.goal.name,
        "off_core": raced.off_core,
        "where": None if explained.times is None else _times_as_json(explained.times),
        "no_profile": explained.no_times,
        "causes": [{**_gain_as_json(cause.trial), "share": cause.share} for cause in explanation.confirmed],
        "together": _as_data(explanation.together.interval)
        if explanation.together is not None and len(explanation.confirmed) > 1
        else None,
        "unexplained": explanation.unexplained,
        "hidden": [
            {**_gain_as_json(trial), "share_alone": explanation.share_alone(trial)} for trial in explanation.hidden
        ],
        "unconfirmed": [_gain_as_json(trial) for trial in explanation.unconfirmed],
        "untried": [_untried_as_json(trial) for trial in explanation.untried],
        "not_covered": _as_data(explained.not_covered),
        "suite": write_suite_keys(explanation.single, opened),
        "option": write_option(explanation.change, explanation.single, opened),
        "environment": list_environment(explanation.single, opened.case),
        "option_environment": list_environment(explanation.change, opened.case),
        "mended": _as_data(explained.accuracy),
        "alternative": None
        if alternative is None
        else {
            **_gain_as_json(alternative.trial),
            "single_requests": alternative.single,
            "suite": write_suite_keys(alternative.trial.counterfactual.change, opened),
            "environment": list_environment(alternative.trial.counterfactual.change, opened.case),
            "mended": _as_data(alternative.accuracy),
        },
    }


def _losses_as_json(explanation: Explanation[Evaluated], opened: OpenCase) -> dict[str, Any]:
    evaluated, together = explanation.tried, explanation.together
    return {
        "n": evaluated.n,
        "sqnr_db": evaluated.sqnr_db,
        "against_fp32": _as_data(evaluated.against_fp32),
        "causes": [{**_loss_as_json(cause.trial), "share": cause.share} for cause in explanation.confirmed],
        "together": None if together is None else _loss_as_json(together),
        "left": explanation.unexplained,
        "draws": list(evaluated.draws),
        "layers": [
            {**_loss_as_json(layer.trial), "layer": layer.trial.counterfactual.part, "together": layer.together}
            for layer in explanation.layers
        ],
        "hidden": [_loss_as_json(trial) for trial in explanation.hidden],
        "unconfirmed": [_loss_as_json(trial) for trial in explanation.unconfirmed],
        "untried": [_untried_as_json(trial) for trial in explanation.untried],
        "suite": write_suite_keys(explanation.change, opened),
    }


def _name_trial(trial: Trial) -> dict[str, Any]:
    return {"cause": trial.counterfactual.cause, "change": trial.counterfactual.text}


def _gain_as_json(trial: Trial) -> dict[str, Any]:
    return {**_name_trial(trial), "gain": _as_data(trial.interval)}


def _loss_as_json(trial: Trial) -> dict[str, Any]:
    limits = {"removed": _as_data(trial.interval), "metric_change": _as_data(trial.metric_change)}
    return {**_name_trial(trial), **limits}


def _untried_as_json(trial: Trial) -> dict[str, Any]:
    return {**_name_trial(trial), "reason": trial.reason}


def _times_as_json(times: TimeShares) -> dict[str, Any]:
    return {
        "call_seconds": times.case.call_seconds,
        "fp32_call_seconds": times.fp32.call_seconds,
        "overhead_seconds": times.case.overhead_seconds,
        "watching_seconds": times.case.watching_seconds,
        "node_scale": times.case.scale,
        "kinds": [{"kind": kind, "seconds": int8, "fp32_seconds": fp32} for kind, int8, fp32 in times.kinds()],
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


def _as_data(value: Interval | MendedAccuracy | NotCovered | None) -> dict[str, Any] | None:
    """The fields by name."""
    return None if value is None else asdict(value)


def store_time(opened: OpenCase, explained: TimeExplained, titles: Mapping[str, Cause]) -> ExplainedCase[TimeFigures]:
    """What the run keeps of an explanation of time."""
    explanation, raced = explained.explanation, explained.explanation.tried
    gap = 1 - explanation.goal.left
    overlapping = []
    for trial in explanation.hidden:
        share = explanation.share_alone(trial)
        overlapping.append(_store_cause(trial, titles, share, (share or 0.0) * gap * raced.original_seconds))
    figures = TimeFigures(
        seconds=raced.original_seconds,
        fp32_seconds=raced.fp32_seconds,
        best_seconds=raced.original_seconds * explanation.goal.left,
        best=explanation.goal.name,
        environment=tuple(list_environment(explanation.single, opened.case)),
        over_fp32=raced.over_fp32,
        off_core=raced.off_core,
        overlapping=tuple(overlapping),
    )
    return ExplainedCase(
        case=opened.case.id,
        figures=figures,
        causes=tuple(
            _store_cause(cause.trial, titles, cause.share, cause.saved * raced.original_seconds)
            for cause in explanation.confirmed
        ),
        unexplained=explanation.unexplained,
        suite=write_suite_keys(explanation.single, opened, explanation.change),
        note=" ".join(list_costs(opened, explained)) or None,
    )


def store_error(
    opened: OpenCase, explanation: Explanation[Evaluated], titles: Mapping[str, Cause]
) -> ExplainedCase[ErrorFigures]:
    """What the run keeps of an explanation of lost accuracy."""
    evaluated, together = explanation.tried, explanation.together
    figures = ErrorFigures(
        metric=opened.metric_info.name,
        n=evaluated.n,
        sqnr_db=evaluated.sqnr_db,
        against_fp32=evaluated.against_fp32,
        metric_change=None if together is None else together.metric_change,
        layers=tuple(
            ExplainedLayer(
                name=layer.trial.counterfactual.part,
                saving=layer.trial.saving.interval(),
                metric_change=layer.trial.metric_change,
                together=layer.together,
            )
            for layer in explanation.layers
            if layer.trial.saving is not None
        ),
    )
    return ExplainedCase(
        case=opened.case.id,
        figures=figures,
        causes=tuple(_store_cause(cause.trial, titles, cause.share) for cause in explanation.confirmed),
        unexplained=explanation.unexplained,
        suite=write_suite_keys(explanation.change, opened),
        note=FLATTERS if flatters(explanation) else None,
    )


def _store_cause(
    trial: Trial, titles: Mapping[str, Cause], share: float | None, seconds: float | None = None
) -> ExplainedCause:
    return ExplainedCause(
        title=titles[trial.counterfactual.cause].title,
        change=trial.counterfactual.text,
        saving=trial.interval,
        share=share,
        seconds=seconds,
        metric_change=trial.metric_change,
    )
