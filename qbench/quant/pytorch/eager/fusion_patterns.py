"""Which layers of a graph are fused into one: Conv-BatchNorm-ReLU and its like, and an addition with its ReLU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qbench.quant.pytorch.eager import operator_support
from qbench.quant.pytorch.eager.graph import Value

# What a ReLU6 or Hardtanh does to the layer before it: its range ends there, or ends there so exactly that saturation
# does the activation's work.
Clip = Literal["range", "replace"]


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Positions of nodes, the first the one that stays. ``ends``: what the ReLU6 or Hardtanh behind the layers cuts to;
    ``cut``: that activation is the last node, and goes with the others."""

    nodes: tuple[int, ...]
    ends: tuple[float, float] | None = None
    cut: bool = False


def find(
    traced: Any, values: Sequence[Value], *, training: bool, clip: Clip | None, free: Callable[[Any], bool]
) -> tuple[Chain, ...]:
    """The chains of a graph, in its order.

    ``free(node)`` tells a node that may take part. Nodes inside a chain are used once, and so are their modules, but
    for the activation that goes: only its range counts.
    """
    nodes = list(traced.graph.nodes)
    positions = {node: i for i, node in enumerate(nodes)}
    modules = {node: traced.get_submodule(node.target) for node in nodes if node.op == "call_module"}
    calls = Counter(id(part) for part in modules.values())
    usable = {node: part for node, part in modules.items() if calls[id(part)] == 1 and free(node)}
    chains: list[Chain] = []
    used: set[Any] = set()
    for node in [candidate for candidate in nodes if free(candidate)]:
        if node in used:
            continue
        chain, cut, replaced = [node], None, False
        if node in usable:
            chain = _layers(node, usable, values[positions[node]], training=training)
            last = _only_user(chain[-1])
            bounds = ends(modules.get(last)) if last is not None and free(last) else None
            cut = bounds if clip and type(modules[node]) in operator_support.heavy() else None
            replaced = cut is not None and cut[0] == 0.0 and clip == "replace"
            chain += [last] if replaced else []
        elif operator_support.arithmetic().get(node.target) == "add":
            chain = _addition(node, modules, free)
        if len(chain) > 1 or cut:
            used |= set(chain)
            chains.append(Chain(nodes=tuple(positions[member] for member in chain), ends=cut, cut=replaced))
    return tuple(chains)


def ends(part: Any) -> tuple[float, float] | None:
    """The range that an activation cuts to; None for any other layer."""
    from torch import nn

    if type(part) is nn.ReLU6:
        return 0.0, 6.0
    return (float(part.min_val), float(part.max_val)) if type(part) is nn.Hardtanh else None


def _layers(node: Any, usable: dict[Any, Any], value: Value, *, training: bool) -> list[Any]:
    """A node and those after it that torch fuses with it."""
    from torch import nn

    chain, kind = [node], type(usable[node])
    norm = _norms(training).get(kind)
    following = _only_user(node)
    if norm and type(usable.get(following)) is norm and _folds(usable[following], kind, value):
        chain.append(following)
        following = _only_user(following)
    plain = kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d) or (kind is nn.Linear and len(chain) == 1)
    alone = kind in (nn.BatchNorm2d, nn.BatchNorm3d) and not training
    if (plain or alone) and type(usable.get(following)) is nn.ReLU:
        chain.append(following)
    return chain


def _folds(norm: Any, kind: Any, value: Value) -> bool:
    """A BatchNorm with statistics; after Linear only where it normalizes the features, not a middle axis."""
    from torch import nn

    return norm.running_mean is not None and (kind is not nn.Linear or len(value.shape) == 2)


def _norms(training: bool) -> dict[type, type]:
    from torch import nn

    norms: dict[type, type] = {
        nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, nn.Linear: nn.BatchNorm1d,
    }  # fmt: skip
    if training:
        return norms
    transposed: dict[type, type] = {
        nn.ConvTranspose1d: nn.BatchNorm1d, nn.ConvTranspose2d: nn.BatchNorm2d, nn.ConvTranspose3d: nn.BatchNorm3d,
    }  # fmt: skip
    return norms | transposed


def _addition(node: Any, modules: dict[Any, Any], free: Callable[[Any], bool]) -> list[Any]:
    """An addition of two tensors and the ReLU that alone uses it; the ReLU's module may be shared, it is not moved."""
    from torch import nn

    after = _only_user(node)
    both = all(hasattr(argument, "op") for argument in node.args[:2]) and len(node.args) == 2
    return [node, after] if both and type(modules.get(after)) is nn.ReLU and free(after) else [node]


def _only_user(node: Any) -> Any | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].args and users[0].args[0] is node else None
