"""Does a network give an example the same output alone as among others? If not, every score depends on how many
examples were evaluated at once, and on which.

``x - x.mean(0)``, softmax or normalization over the first axis, BatchNorm without running statistics: all of these take
any batch and say nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import ModelError, first_names, out_of_memory
from qbench.models.base import Network
from qbench.models.dry_run import Inputs, try_outputs
from qbench.quant import random_draws
from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx import onnxruntime_session

Array = NDArray[Any]
# Of the largest output. Kernels add in another order for another batch: up to 1e-4 in deep networks.
TOLERANCE = 1e-3
# The same where other examples are seen to change nothing: a LayerNorm of nearly equal values makes much of roundings.
MOST_ROUNDING = 0.05


def require_independent(network: Network, inputs: Inputs, together: Array) -> None:
    """Raises ``ModelError`` where the outputs of these examples one by one are not those of ``together``, which
    ``dry_run.try_outputs`` gave for all of them; says nothing where they cannot be compared."""
    if len(inputs[0]) < 2:
        return
    if network.kind == "onnx":
        beside = _onnx_batch(network, inputs)
        alone = together[: 0 if beside is None else len(beside)]
    else:
        alone, beside = _one_by_one(network, inputs), together
    if beside is None or alone.shape != beside.shape or not np.isfinite(beside).all():
        return
    most = float(np.abs(beside).max(initial=0.0))
    apart = float(np.abs(alone.astype(np.float64) - beside).max(initial=0.0))
    most_of_both = max(most, float(np.abs(alone).max(initial=0.0)))
    if np.isfinite(apart) and apart <= TOLERANCE * most_of_both:
        return
    if apart <= MOST_ROUNDING * most_of_both and _is_same_among_copies(network, inputs, alone, beside):
        return
    if _is_random(network, inputs, together):
        draws = "" if network.module is None else random_draws.describe_draws(lambda: try_outputs(network, inputs))
        raise ModelError(
            f"the network gives another output each time for the same examples (up to {apart:.3g} of {most:.3g}): "
            f"{draws or 'it draws random numbers, or keeps something of earlier calls'}, so no variant can be compared "
            "with it; make it deterministic in eval mode"
        )
    raise ModelError(
        f"an example has another output alone than among {len(beside)} (up to {apart:.3g} of {most:.3g}), so that its "
        f"score would depend on the batch: {_cause(network, len(inputs))}"
    )


def _is_same_among_copies(network: Network, inputs: Inputs, alone: Array, beside: Array) -> bool:
    """Whether the example that is furthest from what it is alone has the same output in a batch of copies of itself as
    ``beside`` the others: kernels follow the size of a batch, and only a network that mixes follows what else is in it.
    """
    distances = np.abs(alone.astype(np.float64) - beside).reshape(len(beside), -1).max(axis=1)
    place = int(distances.argmax())
    copies = tuple(np.repeat(array[place : place + 1], len(array), axis=0) for array in inputs)
    among = _onnx_batch(network, copies) if network.kind == "onnx" else try_outputs(network, copies)
    if among is None or among.shape != beside.shape:
        return False
    changes = np.abs(among[place].astype(np.float64) - beside[place])
    return float(changes.max(initial=0.0)) <= TOLERANCE * float(np.abs(beside).max())


def _one_by_one(network: Network, inputs: Inputs) -> Array:
    count = len(inputs[0])
    try:
        rows = [try_outputs(network, tuple(array[i : i + 1] for array in inputs)) for i in range(count)]
    except ModelError as error:
        raise ModelError(
            f"it takes {count} examples at once, but not one alone ({error}), and a score that depends on the batch "
            f"says nothing of an example: {_cause(network, len(inputs))}"
        ) from error
    if len({row.shape for row in rows}) > 1:
        return np.empty(0)
    return np.concatenate(rows)


def _onnx_batch(network: Network, inputs: Inputs) -> Array | None:
    """The examples in one batch of the size that the file demands; None where it does not take them so, which is said
    where such a batch is wanted."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    assert network.path is not None  # an ONNX network is its file
    count = len(inputs[0])
    size = onnx_file.fixed_batch(network.path) or count
    if size == 1:
        return None
    repeated = np.arange(max(size, count)) % count
    starts = range(0, len(repeated) - size + 1, size)
    try:
        rows = [
            onnxruntime_session.run(network.path, tuple(array[repeated[i : i + size]] for array in inputs))
            for i in starts
        ]
    except (state.Fail, state.InvalidArgument, state.RuntimeException, state.NotImplemented) as error:
        if out_of_memory(error):
            raise
        return None
    outputs = np.concatenate(rows)
    return outputs[:count]


def _is_random(network: Network, inputs: Inputs, together: Array) -> bool:
    again = try_outputs(network, inputs)
    return again.shape == together.shape and not np.allclose(again, together, rtol=TOLERANCE, atol=0)


def _cause(network: Network, inputs: int) -> str:
    """What does it and what to do: the layers that are known to, else what to look for."""
    if network.module is not None:
        norms = [
            name or "the network itself"
            for name, layer in network.module.named_modules()
            if "BatchNorm" in type(layer).__name__ and getattr(layer, "running_mean", 0) is None
        ]
        if norms:
            return (
                f"{first_names(norms, 3)} normalizes by the batch, since it has no running statistics; train with "
                "track_running_stats=True (the default), or use GroupNorm or LayerNorm"
            )
    mixing = (
        "something in it mixes examples (a mean, softmax, sort or normalization over the first axis); make it work on "
        "each example alone"
    )
    if inputs == 1:
        return mixing
    return (
        f"{mixing}, or say where its examples lie along another axis: `inputs: {{state: {{axis: 1}}}}` beside its name"
    )
