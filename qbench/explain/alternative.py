"""What else makes a case faster, where the change that makes it fastest loses too much accuracy."""

from __future__ import annotations

from dataclasses import dataclass

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
    """A change alone that is shown to gain, and is not shown to lose more than the margin."""

    trial: Trial
    accuracy: MendedAccuracy


def find_alternative(
    opened: OpenCase,
    explanation: Explanation,
    mended: MendedAccuracy | None,
    metric: MetricInfo,
    variants: Variants,
    progress: Silent,
) -> Alternative | None:
    """The change that gains most of those that keep to the suite's margin; None where the advised one, ``mended``, is
    not shown to break it, and where none keeps to it."""
    if mended is None or assess_loss(mended.against_fp32, opened, metric) != "FAIL":
        return None
    for trial in list_alternatives(explanation)[:MOST]:
        accuracy = evaluate_mended(opened, trial.counterfactual.change, variants, progress)
        if accuracy is not None and assess_loss(accuracy.against_fp32, opened, metric) in ("PASS", "INCONCLUSIVE"):
            return Alternative(trial=trial, accuracy=accuracy)
    return None


def list_alternatives(explanation: Explanation) -> list[Trial]:
    """The changes to the case itself that are shown to gain, other than the advised one, the largest gain first."""
    trials = [*(cause.trial for cause in explanation.confirmed), *explanation.hidden]
    known = [
        (gain.value, trial)
        for trial in trials
        if not trial.beyond
        and trial.counterfactual.change.rebuilds
        and trial.counterfactual.change != explanation.change
        and (gain := trial.gain) is not None
        and gain.value is not None
    ]
    return [trial for _, trial in sorted(known, key=lambda pair: -pair[0])]
