"""What a fake-quantized network has learned: where it quantizes, with which scales; the same for every flow.

Fake-quantize modules are told by what they can do (``fake_quant_enabled``, ``calculate_qparams``): torch.ao's and
torchao's have no common base class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WEIGHT = "weight"
ACTIVATION = "activation"
# A fake-quantize module that sits in its layer, by the end of its name (eager, and the weights of FX).
_IN_LAYER = {"weight_fake_quant": WEIGHT, "activation_post_process": ACTIVATION}


@dataclass(frozen=True, kw_only=True)
class Site:
    """One place that is quantized: the weight of the layer ``name``, or the output (activation) of the layer, operation
    or input ``name``; ``module`` is its fake-quantize module."""

    name: str
    of: str
    module: Any

    @property
    def enabled(self) -> bool:
        """Whether values are rounded here, and not only observed."""
        return bool(self.module.fake_quant_enabled.ne(0).all())

    @property
    def observer(self) -> Any:
        """What follows the range, also that of a weight; None where the range is fixed in another way."""
        return getattr(self.module, "activation_post_process", None)

    @property
    def observed(self) -> bool:
        """Whether a value was ever seen here; without one there is no range."""
        observer = self.observer
        if not hasattr(observer, "min_val"):
            return True  # a range that is fixed, as that of a sigmoid
        return observer.min_val.numel() > 0 and bool((observer.min_val <= observer.max_val).all())


@dataclass(frozen=True, kw_only=True)
class LearnedScale:
    """The quantization of one tensor after QAT: q = clip(round(x / scale) + zero_point, low, high).

    ``name`` and ``of`` as in ``Site`` (the output of fused layers stands under the name that the flow gave them).
    ``scale`` and ``zero_point`` have one value, or one per channel along ``axis`` (None: per tensor).
    ``low`` and ``high`` are the least and greatest q, ``dtype`` is ``int8`` or ``uint8``.
    """

    name: str
    of: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None
    low: int
    high: int
    dtype: str


def learned_scales(prepared: Any) -> tuple[LearnedScale, ...]:
    """The scale of every weight and activation of a fake-quantized network, in the order of its modules and graph.

    Places that no value ever reached have no scale and are left out (``sites`` knows them).
    """
    return tuple(_scale(site) for site in sites(prepared) if site.enabled and site.observed)


def sites(prepared: Any) -> tuple[Site, ...]:
    """Every place where a network is fake-quantized: those in its layers, then those in its graphs in their order."""
    in_layers = []
    for name, part in prepared.named_modules():
        owner, _, end = name.rpartition(".")
        if end in _IN_LAYER and _fake(part) is part:
            in_layers.append(Site(name=owner, of=_IN_LAYER[end], module=part))
    return (*in_layers, *_in_graphs(prepared))


def _in_graphs(prepared: Any) -> Iterator[Site]:
    """The fake-quantize modules that are called in a graph (FX and PT2E)."""
    from torch.fx import GraphModule

    for prefix, part in prepared.named_modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            module = _fake(part.get_submodule(node.target)) if node.op == "call_module" else None
            if module is not None:
                source, of = _source(node.args[0])
                yield Site(name=f"{prefix}.{source}" if prefix else source, of=of, module=module)


def _fake(part: Any) -> Any:
    """The fake-quantize module that a module is, or that it clamps for (``ClippedObserver``); else None."""
    part = getattr(part, "inner", part)
    return part if hasattr(part, "fake_quant_enabled") and hasattr(part, "calculate_qparams") else None


def _source(node: Any) -> tuple[str, str]:
    """Whose weight or output a node of a graph is."""
    if (weight := _parameter(node)) is not None:
        return weight.removesuffix(".weight"), WEIGHT
    if node.op == "call_module":
        return str(node.target), ACTIVATION
    path, kind = next(reversed((node.meta.get("nn_module_stack") or {"": ("", "")}).values()))
    layer = path.removeprefix("L['self']").lstrip(".")
    # Only torch's own layers are one operation; the add in a user's block goes by its own name.
    of_torch = "torch.nn.modules." in str(kind) and layer and node.op == "call_function"
    return (layer if of_torch else str(node.name)), ACTIVATION


def _parameter(node: Any) -> str | None:
    """The name of the parameter that a node is, or that it multiplies by BatchNorm's factor; None for an activation."""
    pending, visited = [node], set()
    while pending:
        current = pending.pop()
        if current.op == "placeholder":
            return None
        if current not in visited:
            visited.add(current)
            pending += current.all_input_nodes
    while node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return str(node.target) if node.op == "get_attr" else None


def _scale(site: Site) -> LearnedScale:
    part = site.module
    scale, zero_point = part.calculate_qparams()
    limits = site.observer or part
    return LearnedScale(
        name=site.name,
        of=site.of,
        scale=tuple(scale.reshape(-1).tolist()),
        zero_point=tuple(int(value) for value in zero_point.reshape(-1).tolist()),
        axis=int(part.ch_axis) if getattr(part, "is_per_channel", False) else None,
        low=int(limits.quant_min),
        high=int(limits.quant_max),
        dtype=str(part.dtype).removeprefix("torch.").removeprefix("q"),
    )
