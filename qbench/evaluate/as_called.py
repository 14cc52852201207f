"""Whether an fp32 case answers as the network that it was built from, called as its author calls it, one example a
call.

A trace, or an export, takes a decision on values as it fell for one example. The case is then another network, and
every figure of int8 is held against it. So the predictions of each fp32 case are held against the network itself, on
the very examples that score it: all of them, or as many as ``SECONDS`` allow, spread over the set.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.cache import store
from qbench.data import Data
from qbench.errors import BuildError, EvaluateError, first_names, out_of_memory
from qbench.machine import fingerprint
from qbench.network import Model, load_network
from qbench.process.child_process import Limits, call
from qbench.progress.callback import Progress
from qbench.record.schema import AsCalled

Array = NDArray[Any]
SECONDS = 20.0
# Of the largest output: two runtimes' roundings of fp32 lie below, as between any two fp32 cases (runtime_difference).
SAME = 1e-3
# Where no line decides on values, so few examples that differ may be a value that rounding moves over a threshold.
FEW = 0.01
_FILE, _SHOWN = "answers.npz", 2


@dataclass(frozen=True, kw_only=True)
class OwnAnswers:
    """What the network gives for the evaluation examples at ``positions``, one row each, and the lines of its code that
    decide on values, as a trace finds them; none where its outputs are the network's on all of them."""

    positions: Array
    outputs: Array
    decisions: tuple[str, ...]


def ask_network(model: Model, data: Data, root: Path, *, limits: Limits, progress: Progress) -> OwnAnswers:
    """The answers of a network of torch's, asked for once and then from the cache ``root``."""

    def fill(folder: Path) -> Mapping[str, Any]:
        answers: OwnAnswers = call(_ask_here, model, data, limits=limits, progress=progress)
        np.savez(folder / _FILE, positions=answers.positions, outputs=answers.outputs)
        return {"decisions": list(answers.decisions)}

    parts = {
        "network": [model.weights_digest, model.code_digest],
        "data": data.evaluation_digest,
        "versions": fingerprint.versions(["torch"]),
        "cpu": [fingerprint.cpu_model(), fingerprint.isa(), fingerprint.switches()],
        "code": store.source_digest(sys.modules[__name__]),
    }
    entry = store.fetch(root, "answers", store.key_of(parts), fill)
    with np.load(entry.folder / _FILE, allow_pickle=False) as archive:
        positions, outputs = archive["positions"], archive["outputs"]
    return OwnAnswers(positions=positions, outputs=outputs, decisions=tuple(entry.facts["decisions"]))


def _ask_here(model: Model, data: Data, *, progress: Progress) -> OwnAnswers:
    import torch

    from qbench.backends.torch_runner import tensors
    from qbench.quant import model_call

    module = load_network(model.reference, model.weights).module
    assert module is not None  # a network of torch's
    rows: list[Array] = []
    positions: list[int] = []
    started = time.monotonic()
    with torch.inference_mode():
        for position in spread_positions(data.evaluation_count):
            output = model_call.first(module(*tensors(data.evaluation(position, position + 1))))
            rows.append(np.asarray(output.detach(), dtype=np.float32)[0])
            positions.append(position)
            spent = (time.monotonic() - started) / SECONDS
            if spent > 1:
                break
            progress("ask the network itself", max(spent, len(rows) / data.evaluation_count))
    own = OwnAnswers(positions=np.asarray(positions), outputs=np.stack(rows), decisions=())
    return replace(own, decisions=_find_decisions(module, data, own))


def spread_positions(count: int) -> Iterator[int]:
    """All numbers below ``count``, each once, any first part of them spread over the whole (van der Corput)."""
    bits = (count - 1).bit_length()
    for number in range(1 << bits):
        position = int(f"{number:0{bits}b}"[::-1], 2)
        if position < count:
            yield position


def _find_decisions(module: Any, data: Data, own: OwnAnswers) -> tuple[str, ...]:
    """Empty where the network cannot be traced, is a script, which keeps its decisions, or where those that a trace of
    the first calibration example took do no harm: many are about shapes."""
    from qbench.backends.torch_runner import tensors
    from qbench.quant.artifacts import tracing

    first = data.preprocessing(tuple(array[:1] for array in data.calibration_examples()))
    try:
        traced = tracing.trace(module, tensors(first))
    except BuildError:
        return ()
    harmless = traced.decisions and _answers_alike(traced.script, data, own)
    return () if harmless else tuple(map(str, traced.decisions))


def _answers_alike(script: Any, data: Data, own: OwnAnswers) -> bool:
    """Whether a trace gives what its network gives for all examples that were asked, within ``SECONDS``."""
    import torch

    from qbench.backends.torch_runner import tensors
    from qbench.quant import model_call

    largest, started = float(np.abs(own.outputs).max()), time.monotonic()
    with torch.inference_mode():
        for position, expected in zip(own.positions.tolist(), own.outputs, strict=True):
            try:
                output = model_call.first(script(*tensors(data.evaluation(position, position + 1))))
            except RuntimeError as error:  # a decision that does not fit this example
                if out_of_memory(error):
                    raise
                return False
            row = np.asarray(output.detach(), dtype=np.float32)[0]
            same = row.shape == expected.shape and bool((np.abs(row - expected) <= SAME * largest).all())
            if not same or time.monotonic() - started > SECONDS:
                return False
    return True


def compare_predictions(answers: OwnAnswers, predictions: Path, of: int) -> AsCalled:
    """How an fp32 case's predictions lie beside the network's own answers; raises ``EvaluateError`` where they are of
    another network."""
    with np.load(predictions, allow_pickle=False) as archive:
        outputs = archive["outputs"]
        names = [str(name) for name in archive["ids"]]
    kept = answers.positions < len(outputs)  # beside answers those of the first examples are kept
    answers = replace(answers, positions=answers.positions[kept], outputs=answers.outputs[kept])
    rows = outputs[answers.positions].astype(np.float64)
    if rows.shape != answers.outputs.shape:
        raise EvaluateError(
            f"its outputs have the shape {rows.shape[1:]}, the network's own {answers.outputs.shape[1:]}"
        )
    expected = answers.outputs.astype(np.float64)
    largest = float(np.abs(expected).max())
    apart = np.abs(rows - expected).reshape(len(rows), -1).max(axis=1)
    differing = np.flatnonzero(~(apart <= SAME * largest))
    compared = AsCalled(
        compared=len(rows), of=of, differing=len(differing), worst=float(apart.max() / largest) if largest else 0.0
    )
    if len(differing) > FEW * len(rows) or (len(differing) and answers.decisions):
        first = names[answers.positions[differing[0]]]
        raise EvaluateError(_explain_other(compared, first, float(apart.max()), largest, answers.decisions))
    return compared


def _explain_other(compared: AsCalled, first: str, worst: float, largest: float, decisions: tuple[str, ...]) -> str:
    lines, advice = (
        (
            f": its forward decides on values at {first_names(decisions, _SHOWN)}, taken as it fell for one example",
            "write that part with tensor operations (torch.where), or such that torch.jit.script takes it",
        )
        if decisions
        else (
            "",
            "no line was found that decides on values: the runtime computes an operator otherwise; use a backend whose "
            "fp32 is ok for this network",
        )
    )
    return (
        f"it is not the network as its author calls it{lines}; {compared.differing:,} of {compared.compared:,} "
        f"evaluation examples differ (example {json.dumps(first)} first), by up to {worst:.3g} at outputs up to "
        f"{largest:.3g}; {advice}"
    )
