"""A run's first stage: data and networks, each checked in a process of its own."""

from __future__ import annotations

from dataclasses import replace

from qbench.errors import CaseError
from qbench.inputs import Model, prepare_data, prepare_model, request_of
from qbench.models.base import ModelReference
from qbench.process import call
from qbench.run_metric import judge
from qbench.run_state import RunState
from qbench.train import TRAINING_SECONDS, is_trained


def prepare(state: RunState) -> None:
    """Fills the state's ``data`` and ``models``; what fails here fails every case that needs it.

    Raises ``UsageError`` where an earlier part of this run had other data or networks.
    """
    references: dict[str, ModelReference] = {
        one.case.variant.model.name: one.case.variant.model for one in state.ledger.open_cases()
    }
    if not references:
        return
    state.progress.stage("prepare", 1 + len(references))
    try:
        train = any(one.case.variant.mode == "qat" for one in state.plan.cases)
        request = request_of(state.suite.data, state.suite.base, train=train)
        state.data = call(prepare_data, request, state.root, limits=state.limits, progress=state.progress.advance)
    except CaseError as error:
        state.ledger.break_([one.case for one in state.plan.cases], "data", error)
        return
    for note in state.data.notes:
        state.progress.note(note)
    state.progress.advance("data")
    judge(state)
    state.each("prepare", list(references.values()), lambda reference: _network(state, reference))
    state.folder.require_same_inputs(_digests(state))


def _digests(state: RunState) -> dict[str, str]:
    """What names the data and the networks of this run: a resumed run must have the same."""
    data = state.examples
    named = {f"model {name}": f"{one.weights_digest}+{one.code_digest}" for name, one in state.models.items()}
    for name, one in state.models.items():
        named |= {f"int8 {recipe} of {name}": digest for recipe, digest in one.int8_digests.items()}
    seen = [data.calibration_digest, *(draw.digest for draw in data.draws)]
    seen += [data.training_digest] if data.request is not None and data.request.train else []
    return {"data": "+".join([*seen, data.evaluation_digest]), **named}


def _network(state: RunState, reference: ModelReference) -> None:
    metric = state.suite.gate.accuracy.metric
    limits = replace(state.limits, seconds=TRAINING_SECONDS) if is_trained(reference) else state.limits
    try:
        report = state.telling(reference.name)
        model: Model = call(prepare_model, reference, state.data, metric, state.root, limits=limits, progress=report)
        state.models[reference.name] = model
        for note in model.notes:
            state.progress.note(note)
    except CaseError as error:
        cases = [one.case for one in state.plan.cases if one.case.variant.model.name == reference.name]
        state.ledger.break_(cases, "model", error)
    state.progress.advance(reference.name)
