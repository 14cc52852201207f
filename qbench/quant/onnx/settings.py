"""What is quantized and how, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Of AMCT's fakequant_precision_mode; the second one rounds the scales of activations to float16.
PRECISION_MODES = ("DEFAULT", "FORCE_FP16_QUANT")
ARQ, ADA = "arq_quantize", "ada_quantize"  # weights by their absolute maximum, by AdaRound
BALANCES = (0.2, 0.8)  # of AMCT's dmq_balancer; qbench's own key takes 0 to 1


@dataclass(frozen=True, kw_only=True)
class ActivationParams:
    """How the range of an activation is found: ``algorithm`` is a registered calibrator, ``options`` its keywords
    (``max_percentile``, ``num_of_bins`` ...), ``asymmetric`` whether it has an offset."""

    algorithm: str = "ifmr"
    asymmetric: bool = True
    options: Mapping[str, float | int | tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WeightParams:
    """How a weight is quantized: ``arq_quantize`` (absolute maximum) or ``ada_quantize`` (AdaRound), per channel or
    as one tensor; ``options``: AdaRound's keywords."""

    algorithm: str = ARQ
    channel_wise: bool = True
    options: Mapping[str, float | int | tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """One layer, by the name of its node. ``weight`` is None for a layer without weights (AveragePool), and where a
    file leaves it out: then the layer's default holds. ``balance``: an exponent of this layer's own."""

    quant_enable: bool = True
    activation: ActivationParams = ActivationParams()
    weight: WeightParams | None = None
    balance: float | None = None


@dataclass(frozen=True, kw_only=True)
class TensorConfig:
    """One input of one node (MaxPool, Add, and whatever reads the output of a quantized layer)."""

    layer_name: str
    input_index: int
    activation: ActivationParams = ActivationParams()


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is quantized and how. ``balance`` (qbench's own key) is the exponent a of the balance between activations
    and weights of the layers that have none of their own, None for none; ``fp16_scales`` rounds the scales of
    activations to float16; ``bias_correction`` moves each bias by the mean error that quantization leaves."""

    batch_num: int = 1
    activation_offset: bool = True
    do_fusion: bool = True
    skip_fusion_layers: tuple[str, ...] = ()
    layers: Mapping[str, LayerConfig] = field(default_factory=dict)
    tensor_quantize: tuple[TensorConfig, ...] = ()
    balance: float | None = None
    bias_correction: bool = False
    fp16_scales: bool = False

    @property
    def exponents(self) -> dict[str, float]:
        """The exponent of each layer that is to be balanced."""
        enabled = {name: layer.balance for name, layer in self.layers.items() if layer.quant_enable}
        balances = {name: self.balance if own is None else own for name, own in enabled.items()}
        return {name: exponent for name, exponent in balances.items() if exponent is not None}
