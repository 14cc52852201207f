"""What else makes a case faster, where the change that makes it fastest loses too much accuracy, or begins with more
examples a call, which a service of single requests cannot have."""

from __future__ import annotations

from dataclasses import dataclass

from qbench.explain.change import Change
from qbench.explain.explanation import Explanation
from qbench.explain.mended import MendedAccuracy, assess_loss, evaluate_mended
from qbench.explain.open_case import OpenCase
from qbench.explain.trials import Trial
from qbench.plan.variants import Variants
from qbench.progress.live import Silent
from qbench.record.stored_run import MetricInfo

MOST = 3  # that are evaluated


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A change alone that is shown to gain, and is not shown to lose more than the margin. ``accuracy``: None where the
    answers are those of the case. ``single``: it stands beside changes that were measured with more examples a call."""

    trial: Trial
    accuracy: MendedAccuracy | None
    single: bool = False


def find_alternative(
    opened: OpenCase,
    explanation: Explanation,
    mended: MendedAccuracy | None,
    metric: MetricInfo,
    variants: Variants,
    progress: Silent,
) -> Alternative | None:
    """The change that gains most of those that keep to the suite's margin; None where the advised one, ``mended``, is
    not shown to break it and is for single requests, too, and where none keeps to it."""
    first = explanation.confirmed[0].trial.counterfactual.change if explanation.confirmed else Change()
    single = first.batch_size is not None
    lost = mended is not None and assess_loss(mended.against_fp32, opened, metric) == "FAIL"
    if not (single or lost):
        return None
    for trial in list_alternatives(explanation, single=single)[:MOST]:
        change = trial.counterfactual.change
        accuracy = evaluate_mended(opened, change, variants, progress)
        outcome = None if accuracy is None else assess_loss(accuracy.against_fp32, opened, metric)
        if outcome in ("PASS", "INCONCLUSIVE") or not change.rebuilds:
            return Alternative(trial=trial, accuracy=accuracy, single=single)
    return None


def list_alternatives(explanation: Explanation, *, single: bool = False) -> list[Trial]:
    """The changes to the case itself that are shown to gain, other than the advised one, the largest gain first: those
    that take another artifact, or, for ``single`` requests, all but more examples a call."""
    return [
        trial
        for trial in explanation.alone
        if (trial.counterfactual.change.batch_size is None if single else trial.counterfactual.change.rebuilds)
        and trial.counterfactual.change != explanation.change
    ]
