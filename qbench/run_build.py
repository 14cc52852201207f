"""A run's second stage: every variant that open cases need, and static ones with further calibration subsets, too."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from qbench import registry
from qbench.backends.base import Backend
from qbench.build import Artifact, build
from qbench.data import Data, Draw
from qbench.errors import CaseError, CaseSkipped, ModeImpossible
from qbench.plan import Case, Variant
from qbench.run_state import Redrawn, RunState


def build_variants(state: RunState) -> None:
    """Fills the ledger's ``artifacts``; a variant that fails breaks its cases. Those that are built anew with further
    calibration subsets go into the state's ``redrawn`` and break nothing: their reason is kept.

    fp32 first: without it the others have nothing to be compared with.
    """
    variants = {one.case.variant.id: one.case.variant for one in state.ledger.open_cases()}
    again = [(one, draw) for one in variants.values() for draw in _draws(state, one)]
    state.progress.stage("build", len(variants) + len(again))
    for first in (True, False):
        chosen = [one for one in variants.values() if (one.mode == "fp32") == first]
        state.each("build", _spread(chosen), lambda variant: _build_one(state, variant))
    state.redrawn = {variant.id: [] for variant, _ in again}
    state.each("build", again, lambda pair: _build_again(state, *pair))


def _draws(state: RunState, variant: Variant) -> tuple[Draw, ...]:
    """The further calibration subsets of a variant; a file of the user's is calibrated already."""
    return state.draws(variant.mode) if variant.recipe.file is None else ()


def _spread(variants: Sequence[Variant]) -> list[Variant]:
    """Builds of one mode and runtime share work and wait for each other, so they do not stand beside each other; the
    long ones, trainings, begin first."""
    seen: Counter[tuple[str, str, str]] = Counter()
    ranks: dict[str, int] = {}
    for one in variants:
        backend: Backend = registry.load("backend", one.backend)
        kind = (one.model.name, one.mode, backend.runtime)
        ranks[one.id] = seen[kind]
        seen[kind] += 1
    return sorted(variants, key=lambda one: (ranks[one.id], one.mode != "qat"))


def _build_one(state: RunState, variant: Variant) -> None:
    cases = [one.case for one in state.plan.cases if one.case.variant.id == variant.id]
    backend: Backend = registry.load("backend", variant.backend)
    started = time.monotonic()
    try:
        fp32 = f"{variant.model.name}/fp32/{backend.runtime}"
        if variant.mode != "fp32" and fp32 not in state.ledger.artifacts:
            raise CaseError(f"its baseline {fp32} could not be built")
        artifact = _built(state, variant, state.examples, variant.id)
        state.ledger.artifacts[variant.id] = artifact
        for note in artifact.notes:
            if "damaged" in note:
                state.progress.note(f"{variant.id}: {note}")
        _refuse_other_batches(state, artifact, cases)
    except ModeImpossible as error:
        state.ledger.break_(cases, "build", CaseSkipped(str(error)))
    except (CaseError, CaseSkipped) as error:
        state.ledger.break_(cases, "build", error)
    state.took(cases, "build", started)
    state.progress.advance(variant.id)


def _build_again(state: RunState, variant: Variant, draw: Draw) -> None:
    name = f"{variant.id} (calibration seed {draw.seed})"
    started, artifact, reason = time.monotonic(), None, None
    if variant.id in state.ledger.artifacts:
        try:
            artifact = _built(state, variant, state.examples.drawn(draw), name)
        except (CaseError, CaseSkipped) as error:
            reason = str(error)
            state.lacks(name, f"not built: {reason}")
        seconds = time.monotonic() - started
        state.redrawn[variant.id].append(Redrawn(draw=draw, artifact=artifact, reason=reason, seconds=seconds))
    state.progress.advance(name)


def _built(state: RunState, variant: Variant, data: Data, name: str) -> Artifact:
    model = state.models[variant.model.name]
    return build(variant, model=model, data=data, root=state.root, limits=state.limits, progress=state.telling(name))


def _refuse_other_batches(state: RunState, artifact: Artifact, cases: Sequence[Case]) -> None:
    if artifact.fixed_batch is None:
        return
    wrong = [case for case in cases if case.batch_size != artifact.fixed_batch]
    reason = f"the model takes batches of {artifact.fixed_batch} only; export it with a dynamic batch axis"
    state.ledger.break_(wrong, "build", CaseSkipped(reason))
