"""Cause: the calibration examples are unlike those that are evaluated."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.quant.analysis.input_drift import CLIPPED
from qbench.record.schema import InputFit

# Two draws from one source differ by less; what is told apart here is tried, and confirmed or not by the trial.
LEAST_SCALE, LEAST_MOVE = 1.2, 0.25  # deviations by that factor, means by that many deviations


class CalibrationData(Cause):
    """Ranges found on other data clip what is evaluated, or leave most levels to values that do not occur."""

    name = "calibration-data"
    title = "the calibration examples are unlike those evaluated"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Calibrated on some of the evaluation examples, where the values of an input differ; the others are scored."""
        variant = situation.case.variant
        if variant.recipe.file is not None or variant.mode != "static" or situation.evaluation is None:
            return ()
        if not any(fit is not None and differ(fit) for fit in situation.inputs):
            return ()
        split, samples = situation.evaluation
        text = f"calibrated on {samples:,} examples of '{split}', scored on the others"
        return (self.counterfactual(text, Change(calibrate=(split, samples))),)


def differ(fit: InputFit) -> bool:
    """Whether the values of an input differ between calibration and evaluation by more than two draws of one source."""
    small, large = sorted((fit.calibrated.deviation, fit.evaluated.deviation))
    moved = abs(fit.calibrated.mean - fit.evaluated.mean)
    return large > LEAST_SCALE * small or moved > LEAST_MOVE * large or (fit.clipped or 0.0) > CLIPPED


CAUSE = CalibrationData()
