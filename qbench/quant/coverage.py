"""Coverage: the share of a model's multiply-accumulates that really run in int8, by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer that multiplies and accumulates, in execution order; ``macs`` at batch size 1."""

    name: str
    operator: str
    macs: int
    int8: bool


def align(reference: Sequence[Layer], artifact: Sequence[Layer]) -> tuple[Layer, ...]:
    """The reference's layers, each marked with what the artifact ran for it.

    ``reference`` is the fp32 network (its names, its multiply-accumulates), ``artifact`` the operators that were
    seen to run. Both are in execution order. A layer is int8 when an int8 operator with as many
    multiply-accumulates ran at its place in the order; fusion removes operators but neither reorders nor
    resizes them, so the longest in-order match is the right one. An int8 operator that matches no layer
    (a rewritten one) is ignored: coverage is then understated, never overstated.
    """
    if [layer.macs for layer in reference] == [layer.macs for layer in artifact]:
        pairs = list(zip(reference, artifact, strict=True))
        return tuple(replace(ours, operator=theirs.operator, int8=theirs.int8) for ours, theirs in pairs)
    matched = _longest_match([layer.macs for layer in reference], artifact)
    return tuple(
        replace(layer, operator=matched[i].operator, int8=matched[i].int8) if i in matched else layer
        for i, layer in enumerate(reference)
    )


def _longest_match(macs: Sequence[int], artifact: Sequence[Layer]) -> dict[int, Layer]:
    """Position in ``macs`` -> the artifact's layer, for a longest common subsequence by multiply-accumulates."""
    rows, columns = len(macs), len(artifact)
    length = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            same = macs[i] == artifact[j].macs
            length[i][j] = length[i + 1][j + 1] + 1 if same else max(length[i + 1][j], length[i][j + 1])
    found: dict[int, Layer] = {}
    i = j = 0
    while i < rows and j < columns:
        if macs[i] == artifact[j].macs:
            found[i] = artifact[j]
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def share(layers: Sequence[Layer]) -> float:
    """Multiply-accumulates in int8 over all of them, 0 to 1; 0 for a model that has none."""
    total = sum(layer.macs for layer in layers)
    return sum(layer.macs for layer in layers if layer.int8) / total if total else 0.0
