"""What the change that is advised costs in accuracy: the mended variant evaluated beside the case."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from qbench.compare.compare import oriented
from qbench.errors import CaseError
from qbench.evaluate.predictions import predict_cached
from qbench.evaluate.score import score
from qbench.explain.change import Change
from qbench.explain.open_case import OpenCase
from qbench.plan.variants import Variants
from qbench.progress.live import Silent
from qbench.record.stored_run import MetricInfo
from qbench.stats import noninferiority
from qbench.stats.interval_type import Interval
from qbench.stats.thresholds import Outcome


@dataclass(frozen=True, kw_only=True)
class MendedAccuracy:
    """``metric`` of the mended variant on ``n`` examples, and its paired changes against the case and against fp32, in
    the metric's own scale; None where the metric has none."""

    metric: str
    n: int
    against_case: Interval | None
    against_fp32: Interval | None


def assess_loss(delta: Interval | None, opened: OpenCase, metric: MetricInfo) -> Outcome | None:
    """Whether a change of the run's metric against fp32 keeps to the suite's margin; None where either is not known."""
    margin = opened.suite.gate.accuracy.margin
    if delta is None or margin is None:
        return None
    return noninferiority.assess_interval(oriented(delta, metric.sign), margin / metric.scale).outcome


def evaluate_mended(opened: OpenCase, change: Change, variants: Variants, progress: Silent) -> MendedAccuracy | None:
    """The accuracy with a change; None where the answers are those of the case, since the artifact is, or where it
    cannot be evaluated."""
    if not change.rebuilds and not (change.batch_size and opened.case.variant.mode == "dynamic"):
        return None  # dynamic ranges are those of a batch
    metric = opened.suite.gate.accuracy.choose_metric(
        base=opened.suite.base, labelled=opened.data.evaluation_labels() is not None
    )
    case = change.apply(opened.case, variants)
    batch_size = opened.case.batch_size if case.variant.mode != "dynamic" else case.batch_size
    try:
        artifacts = {
            "mended": opened.build(case.variant, progress),
            "case": opened.artifact,
            "fp32": opened.fp32,
        }
        with tempfile.TemporaryDirectory() as folder:
            files = {name: Path(folder) / f"{name}.npz" for name in artifacts}
            for name, artifact in artifacts.items():
                predict_cached(
                    artifact,
                    opened.data,
                    batch_size,
                    files[name],
                    root=opened.cache,
                    limits=opened.limits,
                    progress=progress.advance,
                )
            scores = [
                score(
                    metric,
                    files["mended"],
                    files[name],
                    opened.data.classes,
                    fp32=files["fp32"] if name == "case" else None,
                    limits=opened.limits,
                    progress=progress.advance,
                )
                for name in ("case", "fp32")
            ]
    except CaseError:
        return None
    return MendedAccuracy(metric=metric.name, n=scores[0].n, against_case=scores[0].delta, against_fp32=scores[1].delta)
