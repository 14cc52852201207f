"""What the advised change costs in accuracy, and what else makes a case faster, where that loses too much, or begins
with more examples a call, which a service of single requests cannot have."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import CaseError
from qbench.explain.change import Change
from qbench.explain.error_trials import Evaluation
from qbench.explain.explanation import Explanation
from qbench.explain.open_case import OpenCase
from qbench.explain.time_trials import Raced
from qbench.explain.trial import Trial
from qbench.stats.interval_type import Interval

MOST = 3  # that are evaluated


@dataclass(frozen=True, kw_only=True)
class MendedAccuracy:
    """``metric`` of the mended variant on ``n`` examples, and its paired changes against the case and against fp32, in
    the metric's own scale; None where the metric has none."""

    metric: str
    n: int
    against_case: Interval | None
    against_fp32: Interval | None


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A change alone that is shown to gain, and is not shown to lose more than the margin. ``accuracy``: None where the
    answers are those of the case. ``single``: it stands beside changes that were measured with more examples a call."""

    trial: Trial
    accuracy: MendedAccuracy | None
    single: bool = False


def evaluate_mended(opened: OpenCase, change: Change) -> MendedAccuracy | None:
    """The accuracy with a change; None where the answers are those of the case, since the artifact is, or where it
    cannot be evaluated."""
    if not change.rebuilds and not (change.batch_size and opened.case.variant.mode == "dynamic"):
        return None  # dynamic ranges are those of a batch
    case = opened.apply(change)
    batch_size = opened.case.batch_size if case.variant.mode != "dynamic" else case.batch_size
    try:
        artifact = opened.build(case.variant)
        with tempfile.TemporaryDirectory() as folder:
            against_case, against_fp32 = Evaluation(opened, Path(folder), batch_size).score_artifact(artifact)
    except CaseError:
        return None
    return MendedAccuracy(
        metric=opened.metric.name,
        n=against_case.n,
        against_case=against_case.delta,
        against_fp32=against_fp32.delta,
    )


def find_alternative(
    opened: OpenCase, explanation: Explanation[Raced], mended: MendedAccuracy | None
) -> Alternative | None:
    """The change that gains most of those that keep to the suite's margin; None where the advised one, ``mended``, is
    not shown to break it and is for single requests, too, and where none keeps to it."""
    first = explanation.confirmed[0].trial.counterfactual.change if explanation.confirmed else Change()
    single = first.batch_size is not None
    lost = mended is not None and opened.assess_loss(mended.against_fp32) == "FAIL"
    if not (single or lost):
        return None
    for trial in list_alternatives(explanation, single=single)[:MOST]:
        change = trial.counterfactual.change
        accuracy = evaluate_mended(opened, change)
        outcome = None if accuracy is None else opened.assess_loss(accuracy.against_fp32)
        if outcome in ("PASS", "INCONCLUSIVE") or not change.rebuilds:
            return Alternative(trial=trial, accuracy=accuracy, single=single)
    return None


def list_alternatives(explanation: Explanation[Raced], *, single: bool = False) -> list[Trial]:
    """The changes to the case itself that are shown to gain, other than the advised one, the largest gain first: those
    that take another artifact, or, for ``single`` requests, all but more examples a call."""
    return [
        trial
        for trial in explanation.alone
        if (trial.counterfactual.change.batch_size is None if single else trial.counterfactual.change.rebuilds)
        and trial.counterfactual.change != explanation.change
    ]
