"""A run's third stage: predictions and scores of every variant, and the luck of its calibration subset."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import CaseError
from qbench.evaluate import predicted
from qbench.plan import Case, PlannedCase
from qbench.record import Accuracy, CalibrationLuck
from qbench.run_state import Redrawn, RunState
from qbench.score import score


@dataclass(frozen=True, kw_only=True)
class _Again:
    """What came of a variant with another calibration subset: its score, or why there is none."""

    value: float | None
    reason: str | None
    seconds: float


Wanted = dict[str, list[PlannedCase]]  # name of the predictions -> the cases that share them


def evaluate(state: RunState) -> None:
    """Fills the state's ``predicted`` and ``accuracy``. Predictions are shared by the cases of a variant, but for
    dynamic ones, whose outputs depend on the batch.

    fp32 first: the others are scored against its predictions. What an earlier part of the run has is kept.
    """
    wanted: Wanted = {}
    for one in state.ledger.open_cases():
        wanted.setdefault(_name(one.case), []).append(one)
    again = [(name, one) for name, cases in wanted.items() for one in state.redrawn.get(cases[0].case.variant.id, [])]
    state.progress.stage("evaluate", len(wanted) + len(again))
    for first in (True, False):
        chosen = [item for item in wanted.items() if (item[1][0].baseline is None) == first]
        state.each("evaluate", chosen, lambda item: _evaluate_one(state, *item))
    found: dict[tuple[str, int], _Again] = {}

    def work(pair: tuple[str, Redrawn]) -> None:
        found[pair[0], pair[1].draw.seed] = _evaluate_again(state, pair[0], pair[1], wanted[pair[0]][0])

    state.each("evaluate", again, work)
    for name in dict.fromkeys(name for name, _ in again):
        _keep_luck(state, name, wanted[name], [found[name, draw.seed] for draw in state.examples.draws])


def _evaluate_one(state: RunState, name: str, planned: list[PlannedCase]) -> None:
    cases = [one.case for one in planned]
    file = _file(state, name)
    started = time.monotonic()
    try:
        kept = file.exists() and all(case.id in state.ledger.done for case in cases)
        if not kept:
            artifact = state.ledger.artifacts[cases[0].variant.id]
            _predict(state, artifact, state.examples, cases[0].batch_size, file, name)
            found = _scored(state, file, planned[0], name)
            state.accuracy.update({case.id: found for case in cases})
        state.predicted.update({case.id: file for case in cases})
    except CaseError as error:
        state.ledger.break_(cases, "evaluate", error)
    state.took(cases, "evaluate", started)
    state.progress.advance(name)


def _predict(state: RunState, artifact: Artifact, data: Data, batch_size: int, file: Path, name: str) -> None:
    """Predictions into the run's folder, from the cache where nothing of them has changed."""
    found = predicted(
        artifact,
        data,
        batch_size,
        file,
        root=state.root,
        slots=state.slots,
        limits=state.limits,
        progress=state.telling(name),
    )
    if found.note is not None:
        state.progress.note(f"{name}: {found.note}")


def _scored(state: RunState, file: Path, planned: PlannedCase, name: str) -> Accuracy:
    base = state.predicted.get(planned.baseline) if planned.baseline else None
    metric, data = state.suite.gate.accuracy.metric, state.examples
    found = score(metric, file, base, data.classes, limits=state.limits, progress=state.telling(name))
    return replace(found, shared_examples=data.shared_examples)


def _evaluate_again(state: RunState, name: str, one: Redrawn, planned: PlannedCase) -> _Again:
    """The score with another calibration subset, or why there is none; it breaks no case."""
    told = f"{name} (calibration seed {one.draw.seed})"
    started, value, reason = time.monotonic(), None, one.reason
    file, data = _file(state, _redrawn_name(name, one.draw.seed)), state.examples.drawn(one.draw)
    if one.artifact is not None and planned.case.id in state.accuracy:
        try:
            _predict(state, one.artifact, data, planned.case.batch_size, file, told)
            value = _scored(state, file, planned, told).value
        except CaseError as error:
            reason = str(error)
            state.lacks(told, f"not evaluated: {reason}")
    state.progress.advance(told)
    return _Again(value=value, reason=reason, seconds=one.seconds + time.monotonic() - started)


def _keep_luck(state: RunState, name: str, planned: list[PlannedCase], others: list[_Again]) -> None:
    """Keeps what the score of a variant was with each calibration subset, the one that is shipped first."""
    own = state.accuracy.get(planned[0].case.id)
    if own is None:
        return
    seeds = [draw.seed for draw in state.examples.draws]
    files = [
        None if one.value is None else f"predictions/{_redrawn_name(name, seed)}.npz"
        for seed, one in zip(seeds, others, strict=True)
    ]
    luck = CalibrationLuck(
        seeds=(state.examples.calibration_seed, *seeds),
        values=(own.value, *(one.value for one in others)),
        predictions=(f"predictions/{name}.npz", *files),
        reasons=(None, *(one.reason for one in others)),
    )
    for each in planned:
        state.accuracy[each.case.id] = replace(own, calibration=luck)
        state.seconds[each.case.id, "calibrations"] = sum(one.seconds for one in others)


def _file(state: RunState, name: str) -> Path:
    return state.folder.path / "predictions" / f"{name}.npz"


def _redrawn_name(name: str, seed: int) -> str:
    return f"{name}__seed{seed}"


def _name(case: Case) -> str:
    name = case.variant.id if case.variant.mode != "dynamic" else f"{case.variant.id}/b{case.batch_size}"
    return name.replace("/", "__")
