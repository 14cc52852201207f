"""What `qbench train` says: what was learned from what, how good it is on held-out examples, and where it lies."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qbench import formatting
from qbench.suite import Suite
from qbench.train.train import Report


def text(report: Report, suite: Suite, *, changes: Mapping[str, Any], out: Path | None) -> str:
    """A few lines for a person; the last says how `qbench run` comes to use these weights."""
    done, plan = report.trained, report.trained.training
    took = formatting.duration(done.outcome.seconds)
    how = f"trained in {took}" if done.fresh else f"from the cache, nothing to train (it took {took})"
    if done.fresh and done.outcome.resumed:
        how += f", of which {formatting.share(done.outcome.resumed, 0)} before it was interrupted"
    return "\n".join(
        (
            f"{done.reference.name}: {how}",
            f"learned from: {done.examples:,} examples of {done.dataset}/{done.split}, {plan.epochs} "
            f"{'epoch' if plan.epochs == 1 else 'epochs'}, seed {plan.seed}, learning rate {plan.learning_rate:g}",
            f"held out: {_held_out(report)}",
            f"weights: {out or done.file}",
            _next(report, suite, changes, out),
        )
    )


def as_json(report: Report, *, out: Path | None) -> str:
    """The same for a program: ``accuracy`` is a share (null where it was not measured)."""
    done = report.trained
    content = {
        "model": done.reference.name,
        "arguments": dict(done.reference.args),
        "dataset": done.dataset,
        "split": done.split,
        "examples": done.examples,
        "training": asdict(done.training),
        "outcome": asdict(done.outcome),
        "cached": not done.fresh,
        "held_out": {
            "split": report.held_out,
            "examples": report.evaluated,
            "accuracy": None if report.accuracy is None else asdict(report.accuracy),
        },
        "weights": str(out or done.file),
        "notes": list(report.notes),
    }
    return json.dumps(content, indent=2)


def _held_out(report: Report) -> str:
    where = f"{report.evaluated:,} examples of {report.held_out}"
    if report.accuracy is None:
        return f"not measured, since the {where} have no class labels"
    return f"top1 {formatting.with_limits(report.accuracy, scale=100, least=1)} % on {where}"


def _next(report: Report, suite: Suite, changes: Mapping[str, Any], out: Path | None) -> str:
    """Which suite uses them: this one as it is, or what must be written into it."""
    name = report.trained.reference.name
    listed = next((reference for reference in suite.references() if reference.name == name), None)
    if listed is not None and {**listed.training, **changes} == listed.training:
        return f"next: qbench run {shlex.quote(suite.file)}, which finds them there"
    training = {**(listed.training if listed else {}), **changes}
    inside = f", train: {{{', '.join(f'{key}: {value}' for key, value in training.items())}}}" if training else ""
    if out is not None:
        inside = f", weights: {os.path.relpath(out.absolute(), suite.base)}"
    return f"next: write {{name: {name}{inside}}} under `models` of {suite.file}, and qbench run finds them"
