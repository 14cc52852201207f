"""An explanation as JSON; pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from qbench.explain.accuracy_explanation import AccuracyExplanation
from qbench.explain.accuracy_trials import AccuracyTrial
from qbench.explain.advice import MendedAccuracy
from qbench.explain.causes.base import Counterfactual
from qbench.explain.open_case import OpenCase
from qbench.explain.story import Explained, TimeExplained
from qbench.explain.text import list_environment, write_option, write_suite_keys
from qbench.explain.trials import Trial
from qbench.explain.where_time_goes import TimeShares
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
    result, accuracy = explained.explanation, explained.accuracy
    return {
        "case_seconds": result.case_seconds,
        "fp32_seconds": result.fp32_seconds,
        "over_fp32": _limits(result.over_fp32),
        "best_seconds": result.best_seconds,
        "best": result.best,
        "off_core": result.off_core,
        "where": None if explained.times is None else _times_as_json(explained.times),
        "no_profile": explained.no_times,
        "causes": [{**_trial_as_json(cause.trial), "share": cause.share} for cause in result.confirmed],
        "together": _limits(result.together),
        "unexplained": result.unexplained,
        "hidden": [{**_trial_as_json(trial), "share_alone": result.share_alone(trial)} for trial in result.hidden],
        "unconfirmed": [_trial_as_json(trial) for trial in result.unconfirmed],
        "untried": [_untried_as_json(trial.counterfactual, trial.reason) for trial in result.untried],
        "not_covered": None if explained.not_covered is None else asdict(explained.not_covered),
        "suite": write_suite_keys(result.single, opened),
        "option": write_option(result.change, result.single, opened),
        "environment": list_environment(result.single, opened.case),
        "option_environment": list_environment(result.change, opened.case),
        "mended": _accuracy_as_json(accuracy),
        "alternative": None
        if (other := explained.alternative) is None
        else {
            **_trial_as_json(other.trial),
            "single_requests": other.single,
            "suite": write_suite_keys(other.trial.counterfactual.change, opened),
            "environment": list_environment(other.trial.counterfactual.change, opened.case),
            "mended": _accuracy_as_json(other.accuracy),
        },
    }


def _accuracy_as_json(accuracy: MendedAccuracy | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    return {
        "metric": accuracy.metric,
        "n": accuracy.n,
        "against_case": _limits(accuracy.against_case),
        "against_fp32": _limits(accuracy.against_fp32),
    }


def _losses_as_json(result: AccuracyExplanation, opened: OpenCase) -> dict[str, Any]:
    together = result.together
    return {
        "n": result.tried.n,
        "sqnr_db": result.tried.sqnr_db,
        "against_fp32": _limits(result.tried.against_fp32),
        "causes": [{**_loss_as_json(loss.trial), "share": loss.share} for loss in result.confirmed],
        "together": None if together is None else _loss_as_json(together),
        "left": result.left,
        "draws": list(result.tried.draws),
        "layers": [
            {**_loss_as_json(layer.trial), "layer": layer.trial.counterfactual.part, "together": layer.together}
            for layer in result.layers
        ],
        "hidden": [_loss_as_json(trial) for trial in result.hidden],
        "unconfirmed": [_loss_as_json(trial) for trial in result.unconfirmed],
        "untried": [_untried_as_json(trial.counterfactual, trial.reason) for trial in result.untried],
        "suite": write_suite_keys(result.change, opened),
    }


def _loss_as_json(trial: AccuracyTrial) -> dict[str, Any]:
    return {
        "cause": trial.counterfactual.cause,
        "change": trial.counterfactual.text,
        "removed": _limits(None if trial.share is None else trial.share.interval()),
        "metric_change": _limits(trial.metric_change),
    }


def _untried_as_json(counterfactual: Counterfactual, reason: str | None) -> dict[str, Any]:
    return {"cause": counterfactual.cause, "change": counterfactual.text, "reason": reason}


def _times_as_json(times: TimeShares) -> dict[str, Any]:
    return {
        "call_seconds": times.case.call_seconds,
        "fp32_call_seconds": times.fp32.call_seconds,
        "overhead_seconds": times.case.overhead_seconds,
        "watching_seconds": times.case.watching_seconds,
        "node_scale": times.case.scale,
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


def _trial_as_json(trial: Trial) -> dict[str, Any]:
    return {"cause": trial.counterfactual.cause, "change": trial.counterfactual.text, "gain": _limits(trial.gain)}


def _limits(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else {"value": interval.value, "low": interval.low, "high": interval.high}
