"""A run's third stage, at its end: the numbers of each layer, where the suite asks for them."""

from __future__ import annotations

from qbench import registry
from qbench.backends.base import Backend
from qbench.errors import CaseError
from qbench.layer_clipping import Variant, rows
from qbench.run_state import RunState


def keep_layers(state: RunState) -> None:
    """Writes the run folder's ``layers/``: SQNR and cosine as the build has them, and what evaluation data clips. Where
    that cannot be looked at, the rest is there, so no case fails."""
    if not state.suite.evaluate.layers or state.data is None:
        return
    wanted = {name: mine for name in state.models if (mine := _variants(state, name))}
    state.progress.stage("layers", len(wanted))
    for name, variants in wanted.items():
        model = state.models[name]
        found = {variant: one.artifact.layer_numbers for variant, one in variants.items()}
        try:
            telling = state.telling(name)
            found = rows(variants, model, state.data, root=state.root, limits=state.limits, progress=telling)
        except CaseError as error:
            state.progress.note(f"{name}: what its layers clip is not known: {error}")
        for variant, numbers in found.items():
            if numbers:
                state.folder.write_layers(variant, numbers)
        state.progress.advance(name)


def _variants(state: RunState, model: str) -> dict[str, Variant]:
    """The int8 variants of a network that open cases have, by id."""
    artifacts = state.ledger.artifacts
    found = {}
    for one in state.ledger.open_cases():
        variant = one.case.variant
        backend: Backend = registry.load("backend", variant.backend)
        fp32 = artifacts.get(f"{model}/fp32/{backend.runtime}")
        if variant.model.name == model and variant.mode != "fp32" and variant.id in artifacts and fp32 is not None:
            found[variant.id] = Variant(artifact=artifacts[variant.id], fp32=fp32)
    return found
