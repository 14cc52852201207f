"""How layers are to be quantized before there is a graph: by layer, by type, in general."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.quant.onnx.settings import ARQ, ActivationParams, WeightParams

EXAMPLES = 128  # to calibrate with; published gains beyond some hundred are within the noise
BATCH_SIZE = 32  # of a model that takes any


@dataclass(frozen=True, kw_only=True)
class ActivationRule:
    """How activations are calibrated; ``asymmetric`` None: as ``Rules.activation_offset`` has it."""

    algorithm: str = "ifmr"
    asymmetric: bool | None = None
    options: Mapping[str, float | int | tuple[float, float]] = field(default_factory=dict)

    def params(self, activation_offset: bool) -> ActivationParams:
        """The parameters that this rule gives, options not named in it by default."""
        from qbench.quant.onnx.formats import algorithms

        asymmetric = activation_offset if self.asymmetric is None else self.asymmetric
        options = algorithms.defaults(self.algorithm) | dict(self.options)
        return ActivationParams(algorithm=self.algorithm, asymmetric=asymmetric, options=options)


@dataclass(frozen=True, kw_only=True)
class WeightRule:
    """How weights are quantized; ``channel_wise`` None: as the operator is by default."""

    algorithm: str = ARQ
    channel_wise: bool | None = None
    options: Mapping[str, float | int | tuple[float, float]] = field(default_factory=dict)

    def params(self, channel_wise: bool) -> WeightParams:
        """The parameters that this rule gives, options not named in it by default."""
        from qbench.quant.onnx.formats import algorithms

        wise = channel_wise if self.channel_wise is None else self.channel_wise
        options = algorithms.weight_defaults(self.algorithm) | dict(self.options)
        return WeightParams(algorithm=self.algorithm, channel_wise=wise, options=options)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Of one layer, one type, or all; None: as the next more general one has it."""

    activation: ActivationRule | None = None
    weight: WeightRule | None = None
    balance: float | None = None


@dataclass(frozen=True, kw_only=True)
class TensorRule:
    """One input of one node that is quantized."""

    layer_name: str
    input_index: int
    activation: ActivationRule | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What ``config.default`` makes a configuration of. A rule of a layer goes before one of its type, that before
    ``common``, and all before ``activation_offset``. ``skip_layers`` may hold patterns (``*/se/*``).
    ``tensor_quantize`` adds to the inputs that ONNX Runtime needs quantized. ``batch_num`` None: as many as
    ``EXAMPLES`` take. ``file``: where they were read, by which problems with them are named."""

    batch_num: int | None = None
    activation_offset: bool = True
    do_fusion: bool = True
    skip_fusion_layers: tuple[str, ...] = ()
    skip_layers: tuple[str, ...] = ()
    skip_layer_types: tuple[str, ...] = ()
    common: Rule = Rule()
    types: Mapping[str, Rule] = field(default_factory=dict)
    layers: Mapping[str, Rule] = field(default_factory=dict)
    tensor_quantize: tuple[TensorRule, ...] = ()
    balance: float | None = None
    bias_correction: bool = False
    fp16_scales: bool = False
    file: str | None = field(default=None, compare=False)

    def activation(self, name: str, kind: str) -> ActivationParams:
        """Of the layer ``name`` of type ``kind``."""
        rule_for_layer = next((rule.activation for rule in self._of(name, kind) if rule.activation), ActivationRule())
        return rule_for_layer.params(self.activation_offset)

    def weight(self, name: str, kind: str, *, channel_wise: bool) -> WeightParams:
        """Of the layer ``name`` of type ``kind``; ``channel_wise``: what the type is by default."""
        rule_for_layer = next((rule.weight for rule in self._of(name, kind) if rule.weight), WeightRule())
        return rule_for_layer.params(channel_wise)

    def exponent(self, name: str, kind: str) -> float | None:
        """Of the balance of the layer ``name`` of type ``kind``, where a rule has one."""
        return next((rule.balance for rule in self._of(name, kind) if rule.balance is not None), None)

    def _of(self, name: str, kind: str) -> tuple[Rule, ...]:
        return self.layers.get(name, Rule()), self.types.get(kind, Rule()), self.common


PRESETS: Mapping[str, Rules] = {
    "amct": Rules(),  # AMCT's own defaults: IFMR, weights by their absolute maximum
    "fast": Rules(common=Rule(activation=ActivationRule(algorithm="minmax"))),
    "accurate": Rules(common=Rule(activation=ActivationRule(algorithm="mse")), bias_correction=True),
}
