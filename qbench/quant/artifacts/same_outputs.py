"""Whether a compiled artifact gives what the module gives that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qbench.errors import BuildError
from qbench.quant import model_call, rounding

# BatchNorm folded, other kernels' order of sums: as a share of the largest output.
TOLERANCE = 1e-3
# How many times the spread by rounding (``rounding.spread``) is allowed for int8, where values on the edge of a step
# may fall to either side, and in a deep network move others over theirs.
SPREADS = 2


def require(
    module: Any,
    run: Callable[[tuple[Any, ...]], Any],
    probes: tuple[Any, ...],
    *,
    tolerance: float,
    saturates: bool = False,
    title: str = "the compiled package",
) -> str | None:
    """None where ``run``, which gives the first output for the tensors of one example, gives the module's on every
    probe (one tensor per input, first axis = example), within ``tolerance`` of the largest and what rounding explains.

    Where it does not: what a reader must know of kernels that overflow (``saturates``), else raises ``BuildError``.
    """
    import torch

    examples = [tuple(tensor[i : i + 1] for tensor in probes) for i in range(len(probes[0]))]
    with torch.no_grad():
        own = torch.cat([model_call.first(module(*example)) for example in examples])
        theirs = torch.cat([run(example) for example in examples])
    worst, largest = float((own - theirs).abs().max()), float(own.abs().max())
    if worst <= tolerance * largest:
        return None
    explained = SPREADS * rounding.spread(module, examples)
    if not worst <= tolerance * largest + explained:
        model_call.require_repeatable(module, example=examples[0])
        if saturates:
            return f"sums of 16 bits do overflow (outputs off by up to {worst:g}, at up to {largest:g})"
        more = f", and rounding explains {explained:g}" if explained else ""
        raise BuildError(
            f"{title} differs from the module it came from (largest difference {worst:g} at outputs up to "
            f"{largest:g}{more}): does its forward depend on values, or on what earlier calls left behind?"
        )
    return None
