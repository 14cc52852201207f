"""ReLU6, Hardtanh, ReLU and clamp pulled into the range of what feeds them, in a graph that FX prepared.

FX lets such an operator share the observer of its input, which has then seen the values before the clamp: half of the
levels or more go to values that the clamp removes. Clamping in front of the observer gives every level to what is left,
and where the range ends exactly where the clamp does, saturation does the clamp's work and the operator goes.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from qbench.quant.pytorch.torch_ao import FakeQuantizeBase, ObserverBase

Bounds = tuple[float, float]
_FULL = (0, 255)  # the levels outside of which quint8 has none
_ROUNDING = 1e-6  # of the scale, a float32


class ClippedObserver(ObserverBase):  # type: ignore[misc]  # torch is Any to mypy
    """Another observer or fake-quantize behind a clamp to [low, high]: a following ReLU6 or Hardtanh, pulled forward.

    What passes on is clamped, too, so that the layers after it see what they would see behind the activation.
    ``make`` builds the observer.
    """

    def __init__(self, make: Any, low: float, high: float) -> None:
        inner = make()
        super().__init__(dtype=inner.dtype, is_dynamic=bool(inner.is_dynamic))
        self.inner, self.low, self.high = inner, low, high
        for name in ("qscheme", "quant_min", "quant_max"):
            setattr(self, name, getattr(inner, name))

    def forward(self, x: Any) -> Any:
        """The clamped input, as the inner one passes it on."""
        return self.inner(x.clamp(self.low, self.high))

    def calculate_qparams(self) -> tuple[Any, Any]:
        """The inner one's scale and zero point."""
        return self.inner.calculate_qparams()  # type: ignore[no-any-return]


def fold(prepared: Any, apart: frozenset[str] = frozenset()) -> int:
    """The number of clamps pulled into the range of their only input; changes the graph of ``prepared``. The observers'
    nodes of the names ``apart`` stay as they are: they watch the outputs of other calls, too."""
    count = 0
    for node in list(prepared.graph.nodes):
        bounds = _bounds(node, prepared)
        source: Any = node.args[0] if bounds and node.args else None
        observer = watching(source, prepared)
        if bounds is None or observer is None or source.name in apart:
            continue
        if set(source.users) != {node} or set(source.args[0].users) != {source}:
            continue
        behind = sum(watching(user, prepared) is observer for user in node.users)
        name = f"clipped_{count}"
        prepared.add_submodule(name, ClippedObserver(lambda observer=observer: observer, *bounds))
        source.target = name
        # No other part of the network widens the range: the clamp is not needed, in training neither.
        alone = _uses(observer, prepared) == behind
        if alone and _full_range(observer) and bounds[0] == 0 and _becomes_int8(source, prepared):
            _remove(node, source, observer, prepared)
        count += 1
    prepared.recompile()
    return count


def drop(prepared: Any) -> int:
    """The number of clamps removed from a calibrated graph since the range of their input ends inside their bounds."""
    count = 0
    for node in list(prepared.graph.nodes):
        bounds = _bounds(node, prepared)
        source = node.args[0] if bounds and node.args else None
        clipped = watching(source, prepared)
        if bounds is None or not isinstance(clipped, ClippedObserver) or (clipped.low, clipped.high) != bounds:
            continue
        scale, zero = (float(value) for value in clipped.calculate_qparams())
        top = (_FULL[1] - zero) * scale
        if not _becomes_int8(source, prepared):
            continue
        if _full_range(clipped) and -zero * scale == bounds[0] and top <= bounds[1] * (1 + _ROUNDING):
            _remove(node, source, clipped.inner, prepared)
            count += 1
    prepared.recompile()
    return count


def make_contiguous(int8: Any) -> int:
    """The number of clamps in a converted graph that now get their input in the plain memory format: qnnpack's clamp of
    a channels-last int8 tensor returns its values shuffled (torch 2.13)."""
    count = 0
    for node in list(int8.graph.nodes):
        if _clamps_both_ends(node, int8):
            with int8.graph.inserting_before(node):
                plain = int8.graph.call_method("contiguous", (node.args[0],))
            node.replace_input_with(node.args[0], plain)
            count += 1
    int8.recompile()
    return count


def shuffled_note(int8: Any) -> str | None:
    """What qnnpack does to the clamps of a converted graph that ``make_contiguous`` was kept from; None without one."""
    count = sum(_clamps_both_ends(node, int8) for node in int8.graph.nodes)
    if not count:
        return None
    return (
        f"qnnpack's clamp shuffles the values of channels-last tensors (torch 2.13), and the framework's default keeps "
        f"{count} of them (ReLU6, Hardtanh, clamp): its outputs are wrong; the default recipe has a way round"
    )


def _clamps_both_ends(node: Any, module: Any) -> bool:
    bounds = _bounds(node, module)
    return bounds is not None and bounds != (0.0, math.inf)


def watching(node: Any, prepared: Any) -> Any:
    """The observer or fake-quantize that a node calls, None for any other node."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_module":
        return None
    part = prepared.get_submodule(node.target)
    return part if isinstance(part, ObserverBase | FakeQuantizeBase) else None


def _uses(observer: Any, prepared: Any) -> int:
    return sum(watching(node, prepared) is observer for node in prepared.graph.nodes)


def _becomes_int8(source: Any, prepared: Any) -> bool:
    """Whether converting makes a quantize of an observer for certain, which then saturates: what it watches is not one
    of the nodes that the recipe keeps float."""
    qconfigs = prepared.meta["_observed_graph_module_attrs"].node_name_to_qconfig
    return qconfigs.get(source.args[0].name) is not None


def _full_range(observer: Any) -> bool:
    """Whether values beyond the range saturate at its ends: the levels of the range are all that the type has."""
    affine = observer.qscheme == torch.per_tensor_affine
    return affine and observer.dtype == torch.quint8 and (observer.quant_min, observer.quant_max) == _FULL


def _remove(node: Any, source: Any, observer: Any, prepared: Any) -> None:
    """Takes a clamp and the observer behind it out of the graph: what comes from ``source`` is clamped already."""
    for user in list(node.users):
        if watching(user, prepared) is observer:
            user.replace_all_uses_with(source)
            prepared.graph.erase_node(user)
    node.replace_all_uses_with(source)
    prepared.graph.erase_node(node)


def _bounds(node: Any, prepared: Any) -> Bounds | None:
    """(low, high) of a node that clamps, None for any other and for bounds that are not numbers."""
    if node.op == "call_module":
        part = prepared.get_submodule(node.target)
        if type(part) is nn.ReLU:
            return 0.0, math.inf
        if type(part) in (nn.ReLU6, nn.Hardtanh):
            return float(part.min_val), float(part.max_val)
        return None
    if node.op not in ("call_function", "call_method"):
        return None
    if node.target in (functional.relu, torch.relu, "relu", "relu_"):
        return 0.0, math.inf
    if node.target in (functional.relu6,):
        return 0.0, 6.0
    if node.target in (functional.hardtanh, functional.hardtanh_):
        return _given(node, ("min_val", "max_val"), (-1.0, 1.0))
    if node.target in (torch.clamp, "clamp"):
        return _given(node, ("min", "max"), (-math.inf, math.inf))
    return None


def _given(node: Any, names: tuple[str, str], defaults: Bounds) -> Bounds | None:
    """The two bounds as they stand in a call, by position or by name."""
    ends = []
    for position, (name, default) in enumerate(zip(names, defaults, strict=True), start=1):
        value = node.args[position] if len(node.args) > position else node.kwargs.get(name)
        if value is not None and not isinstance(value, int | float):
            return None
        ends.append(default if value is None else float(operator.pos(value)))
    return (ends[0], ends[1]) if ends[0] < ends[1] else None
