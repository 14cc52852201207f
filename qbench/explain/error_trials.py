"""Counterfactuals evaluated on the suite's examples: how much of the error of the outputs each takes away."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.build import Artifact
from qbench.data import Data
from qbench.data_preparation import prepare_data
from qbench.datasets import overlap
from qbench.datasets.base import Examples
from qbench.errors import CaseError, CaseSkipped
from qbench.evaluate.predictions import load_predictions, predict_cached
from qbench.evaluate.score import score, take_outputs
from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.open_case import OpenCase, why_not_built
from qbench.explain.trial import (
    LEAST_EXAMPLES,
    SAME_ARTIFACT,
    Trial,
    Tried,
    compare_errors,
    signal_to_noise_db,
    square_errors,
)
from qbench.record.schema import Accuracy
from qbench.stats.interval_type import Interval

DRAWS = 3  # of the calibration examples, beside the case's own
LEAST_SHARE = 0.02  # of the error: what a cause must take away beyond those before it
# As many times what other draws of the calibration examples change, typically, must a cause take away. The limits of a
# share are those over evaluated examples, for this one draw.
OVER_DRAWS = 3.0


@dataclass(frozen=True, kw_only=True)
class Evaluated(Tried):
    """On ``n`` examples, without those that a trial was calibrated on: signal to noise of the case's outputs against
    fp32's in dB (None: they are the same), and its metric's change against fp32, which is of all examples where outputs
    of the first alone are kept. ``draws``: the share of the error that
    is gone where the case calibrates on examples that other seeds draw."""

    n: int
    sqnr_db: float | None
    against_fp32: Interval | None
    draws: tuple[float, ...] = ()

    @property
    def draw_share(self) -> float:
        """The share of the error by which another draw of the calibration examples changes it, typically; 0 where
        there is no other one."""
        return math.sqrt(sum(share**2 for share in self.draws) / len(self.draws)) if self.draws else 0.0

    @property
    def least(self) -> float:
        """More than a trifle, and than another draw of the calibration examples would."""
        return max(LEAST_SHARE, OVER_DRAWS * self.draw_share)


class Evaluation:
    """The predictions of a case, of its fp32 and of changed cases, each made once and kept in a folder of its own."""

    def __init__(self, opened: OpenCase, folder: Path, batch_size: int | None = None) -> None:
        self._opened, self._folder, self._batch_size = opened, folder, batch_size or opened.case.batch_size
        self._count, self._judged = 0, opened.judged_output
        self._fp32 = self._predict(opened.fp32)
        self._case = self._predict(opened.artifact)
        self._outputs = load_predictions(self._fp32)["outputs"]
        # Beside answers the outputs of the first examples alone are kept: errors are of those, scores of all.
        self._errors = square_errors(load_predictions(self._case)["outputs"], self._outputs)

    def _predict(self, artifact: Artifact) -> Path:
        self._count += 1
        file = self._folder / f"{self._count}.npz"
        predict_cached(
            artifact,
            self._opened.data,
            self._batch_size,
            file,
            host=self._opened.case.host,
            postprocess=self._opened.postprocess,
            root=self._opened.cache,
            limits=self._opened.limits,
            progress=self._opened.progress.advance,
        )
        if self._judged:
            np.savez(file, **take_outputs(load_predictions(file), self._judged))  # type: ignore[arg-type]
        return file

    def score_artifact(self, artifact: Artifact) -> tuple[Accuracy, Accuracy]:
        """The scores of another artifact against the case and against fp32."""
        file = self._predict(artifact)
        return self._score(file, self._case, self._fp32), self._score(file, self._fp32)

    def try_change(self, counterfactual: Counterfactual) -> Trial:
        """What a counterfactual gives."""
        case = self._opened.apply(counterfactual.change)
        if (reason := why_not_built(counterfactual.change, case)) is not None:
            return Trial(counterfactual=counterfactual, reason=reason)
        try:
            data, used = self._calibrate(counterfactual.change)
            artifact = self._opened.build(case.variant, data)
            if artifact.sha256 == self._opened.artifact.sha256:
                return Trial(counterfactual=counterfactual, reason=SAME_ARTIFACT)
            file = self._predict(artifact)
            if used.any() and len(used) - int(used.sum()) < LEAST_EXAMPLES:
                raise CaseSkipped("it calibrates on nearly all that is evaluated")
            change = self._score(*(self._leave_out(each, used) for each in (file, self._case, self._fp32))).delta
        except (CaseError, CaseSkipped) as error:
            return Trial(counterfactual=counterfactual, reason=str(error))
        errors = square_errors(load_predictions(file)["outputs"], self._outputs)
        kept = ~used[: len(errors)]
        removed = compare_errors(self._errors[kept], errors[kept])
        reason = None if removed is not None else "the case has no error to take away"
        return Trial(counterfactual=counterfactual, saving=removed, metric_change=change, reason=reason)

    def _calibrate(self, change: Change) -> tuple[Data, NDArray[np.bool_]]:
        """The data with the calibration examples of a change, and which evaluation examples are among these."""
        data = self._opened.data
        if change.calibrate is None:
            return data, np.zeros(data.evaluation_count, dtype=np.bool_)
        split, samples = change.calibrate
        recalibrated = self._prepare(calibrate_split=split, calibrate_samples=samples, allow_overlap=True)
        calibrated = Examples(inputs=recalibrated.calibration_examples(), labels=None)
        used = np.zeros(data.evaluation_count, dtype=np.bool_)
        used[list(overlap.find_shared([calibrated], data.evaluation_examples()))] = True
        return recalibrated, used

    def _prepare(self, **fields: Any) -> Data:
        """The data with another calibration set."""
        assert self._opened.data.request is not None
        request = replace(self._opened.data.request, calibrate_seeds=1, **fields)
        data: Data = self._opened.call_child(prepare_data, request, self._opened.cache)
        return data

    def try_draws(self) -> tuple[float, ...]:
        """The share of the error that is gone with the calibration examples that other seeds draw: what chance does.
        Nothing where ranges are not calibrated, where the split has no others, and of draws that cannot be built."""
        opened, shares = self._opened, list[float]()
        variant, request = opened.case.variant, opened.data.request
        if variant.mode != "static" or variant.recipe.file is not None or request is None:
            return ()
        first = request.calibrate_seed + request.calibrate_seeds
        for seed in range(first, first + DRAWS):
            with contextlib.suppress(CaseError):
                artifact = opened.build(variant, self._prepare(calibrate_seed=seed))
                if artifact.sha256 == opened.artifact.sha256:
                    continue
                errors = square_errors(load_predictions(self._predict(artifact))["outputs"], self._outputs)
                removed = compare_errors(self._errors, errors)
                shares += [] if removed is None else [removed.share]
        return tuple(shares)

    def _leave_out(self, file: Path, used: NDArray[np.bool_]) -> Path:
        """The predictions without those of the examples that were calibrated on."""
        if not used.any():
            return file
        others = file.with_name(f"{file.stem}-left.npz")
        stored = {name: array for name, array in load_predictions(file).items() if array.ndim}
        arrays: dict[str, Any] = {name: array[~used[: len(array)]] for name, array in stored.items()}
        np.savez(others, **arrays)
        return others

    def conclude(self, trials: Sequence[Trial]) -> Evaluated:
        """The trials beside what the case itself loses."""
        return Evaluated(
            n=len(self._errors),
            sqnr_db=signal_to_noise_db(self._errors, self._outputs),
            against_fp32=self._score(self._case, self._fp32).delta,
            trials=tuple(trials),
            draws=self.try_draws() if any(trial.saving is not None for trial in trials) else (),
        )

    def _score(self, file: Path, against: Path, fp32: Path | None = None) -> Accuracy:
        return score(
            self._opened.metric,
            file,
            against,
            self._opened.data.classes,
            fp32=fp32,
            limits=self._opened.limits,
            progress=self._opened.progress.advance,
        )


def offer_calibration(opened: OpenCase) -> tuple[str, int] | None:
    """The evaluated split, and how many of its examples can calibrate so that as many are left to be scored; None where
    these are too few to tell limits from."""
    spec = opened.suite.data
    samples = min(spec.calibrate.samples, opened.data.evaluation_count // 2)
    return (spec.evaluate.split, samples) if samples >= LEAST_EXAMPLES else None
