"""Causes: the ranges of activations and how finely they are divided."""

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


_CALIBRATORS = ("minmax", "histogram", "mse", "percentile")


class UnfitCalibrator(Cause):
    """A range that is too narrow clips, one that is too wide has few levels for most values; calibrators differ in what
    they give up."""

    name = "calibrator"
    title = "the calibrator's ranges do not fit"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The other common calibrators."""
        calibrator = situation.case.variant.recipe.calibrator
        if calibrator is None or situation.case.variant.mode != "static":
            return ()
        return tuple(
            self.counterfactual(f"calibrated by {name}", Change(recipe={"calibrator": name}))
            for name in _CALIBRATORS
            if name != calibrator
        )


class FewLevels(Cause):
    """7 bits (reduce_range) halve the levels; so does a range symmetric about zero for values that are never below it,
    as behind a ReLU."""

    name = "few-levels"
    title = "activations have fewer than 256 levels"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """All 8 bits, an offset, or both."""
        recipe = situation.case.variant.recipe
        if recipe.framework_default or recipe.file is not None or situation.case.variant.mode != "static":
            return ()
        # Without 7 bits, sums are kept from overflowing by wider steps for the weights that need it.
        bits = {"reduce_range": False, "narrow_weights": True} if recipe.reduce_range else {}
        offset = {"symmetric": False} if recipe.symmetric else {}
        text = " and ".join([*(["8 bits"] if bits else []), *(["an offset"] if offset else [])])
        return (self.counterfactual(f"activations with {text}", Change(recipe={**bits, **offset})),) if text else ()


CALIBRATION_DATA = CalibrationData()
CALIBRATOR = UnfitCalibrator()
FEW_LEVELS = FewLevels()
