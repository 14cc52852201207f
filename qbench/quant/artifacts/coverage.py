"""Coverage: the share of a model's multiply-accumulates that really run in int8, by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from qbench.errors import first_names
from qbench.modes import Precision


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer that multiplies and accumulates, in execution order; ``macs`` at batch size 1, None where it is known
    to multiply but not how much; ``precision`` is the format of the factors, ``weight_bits`` how many bits a weight has
    that is stored in fewer than it is multiplied in."""

    name: str
    operator: str
    macs: int | None
    precision: Precision = "fp32"
    weight_bits: int | None = None

    def ran_as(self, other: Layer) -> Layer:
        """This layer of a network, with what was seen to run for it."""
        return replace(self, operator=other.operator, precision=other.precision, weight_bits=other.weight_bits)

    @property
    def int8(self) -> bool:
        """Whether it multiplies in int8."""
        return self.precision == "int8"


def align_layers(reference: Sequence[Layer], artifact: Sequence[Layer]) -> tuple[Layer, ...]:
    """The reference's layers, each marked with what the artifact ran for it.

    ``reference`` is the fp32 network (its names, its multiply-accumulates), ``artifact`` the operators that were
    seen to run. Both are in execution order. A layer is int8 when an int8 operator with as many
    multiply-accumulates ran at its place in the order; fusion removes operators but neither reorders nor
    resizes them, so the longest in-order match is the right one. An int8 operator that matches no layer
    (a rewritten one) is ignored: coverage is then understated, never overstated. One that cannot be counted is kept
    at the end, since how much it does is not known.
    """
    if [layer.macs for layer in reference] == [layer.macs for layer in artifact]:
        pairs = list(zip(reference, artifact, strict=True))
        return tuple(ours.ran_as(theirs) for ours, theirs in pairs)
    matched = _longest_match([layer.macs for layer in reference], artifact)
    layers = [layer.ran_as(matched[i]) if i in matched else layer for i, layer in enumerate(reference)]
    placed = {id(layer) for layer in matched.values()}
    return (*layers, *(layer for layer in artifact if layer.macs is None and id(layer) not in placed))


def align_by_name(reference: Sequence[Layer], int8: Sequence[Layer]) -> tuple[Layer, ...]:
    """The reference's layers, each marked with what ran for it: by name (a fused addition moves a convolution behind
    the one of the other branch), or by order and work where an int8 operator has no layer's name."""
    names = {layer.name for layer in reference}
    if any(layer.int8 and layer.name not in names for layer in int8):
        return align_layers(reference, int8)
    waiting: dict[tuple[str, int | None], list[Layer]] = defaultdict(list)
    for layer in int8:
        waiting[layer.name, layer.macs].append(layer)
    aligned = []
    for layer in reference:
        mine = waiting[layer.name, layer.macs]
        aligned.append(layer.ran_as(mine.pop(0)) if mine else layer)
    return tuple(aligned)


def name_layers(aligned: Sequence[Layer], artifact: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers of an artifact that somebody else made: ``aligned``, under the reference's names, where each has its
    place there; else under its own: it may have been rewritten, and what ran is what counts."""
    same = _count_int8(aligned) == _count_int8(artifact)
    return tuple(aligned if same and compute_int8_share(aligned) == compute_int8_share(artifact) else artifact)


def _count_int8(layers: Sequence[Layer]) -> int:
    return sum(layer.macs or 0 for layer in layers if layer.int8)


def _longest_match(macs: Sequence[int | None], artifact: Sequence[Layer]) -> dict[int, Layer]:
    """Position in ``macs`` -> the artifact's layer, for a longest common subsequence by multiply-accumulates."""
    rows, columns = len(macs), len(artifact)
    length = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            same = macs[i] == artifact[j].macs
            length[i][j] = length[i + 1][j + 1] + 1 if same else max(length[i + 1][j], length[i][j + 1])
    matches: dict[int, Layer] = {}
    i = j = 0
    while i < rows and j < columns:
        if macs[i] == artifact[j].macs:
            matches[i] = artifact[j]
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return matches


def compute_share(layers: Sequence[Layer], counts: Callable[[Layer], bool]) -> float | None:
    """Multiply-accumulates of the layers that count over all of them, 0 to 1; 0 for a model that has none, None where
    the work of a layer is not known (``explain_unknown``)."""
    if any(layer.macs is None for layer in layers):
        return None
    total = sum(layer.macs or 0 for layer in layers)
    return sum(layer.macs or 0 for layer in layers if counts(layer)) / total if total else 0.0


def compute_int8_share(layers: Sequence[Layer]) -> float | None:
    """That of int8."""
    return compute_share(layers, lambda layer: layer.int8)


def explain_unknown(layers: Sequence[Layer], most: int = 3) -> str | None:
    """Why the share of the layers in a format is not known; None where it is."""
    names = [f"{layer.name} ({layer.operator})" for layer in layers if layer.macs is None]
    return f"how much {first_names(names, most)} multiplies cannot be counted" if names else None
