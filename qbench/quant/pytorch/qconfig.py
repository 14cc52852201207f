"""The recipe as torch.ao understands it: which observer watches an activation, which one a weight."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from qbench import registry
from qbench.errors import BuildError
from qbench.quant.pytorch import torch_ao
from qbench.quant.pytorch.clamp_fusion import ClippedObserver
from qbench.quant.pytorch.torch_ao import UniformQuantizationObserverBase
from qbench.quant.recipe import Recipe

PERCENTILE = 99.99  # per cent of the values inside the range, where the recipe names none
# qnnpack adds bias / (input scale * weight scale) as an int32: a channel of zeros at torch's smallest scale (1.2e-7)
# overflows it, and one such channel in the first layer of EfficientNet-Lite0 made every prediction wrong.
QNNPACK_SMALLEST = 2.0**-18
# Of activations: small enough for what a network computes with, and no product with a scale of weights is 0 in float32.
SMALLEST = 2.0**-60


def qconfig(engine: str, recipe: Recipe, *, training: bool, layer: type | None = None) -> Any:
    """torch's QConfig (constructors of observers, or of fake-quantize for ``training``) for a type of layer.

    None: layers of that type stay float in every static flow. Transposed convolutions get per-tensor weights (no
    engine has other kernels), PReLU's slope is quint8, LayerNorm's weights stay float. With
    ``recipe.framework_default`` it is torch's own default of the engine, but for the same exceptions.
    Raises ``UnknownName`` for a calibrator that is not registered, ``BuildError`` for one that QAT cannot use.
    """
    if layer is not None and issubclass(layer, never_static()):
        return None
    if recipe.framework_default:
        make = torch_ao.get_default_qat_qconfig if training else torch_ao.get_default_qconfig
        with torch_ao.known_warnings():
            default = make(engine)
        activation, weight = default.activation, default.weight
    else:
        activation = _make_trained_activation(recipe) if training else _make_activation(recipe)
        weight = _make_weight(engine, training=training, per_channel=bool(recipe.per_channel))
    if layer is not None and issubclass(layer, transposed()):
        weight = _make_weight(engine, training=training, per_channel=False)
    elif layer is not None and issubclass(layer, torch.nn.PReLU):
        weight = torch_ao.MinMaxObserver
    elif layer is not None and issubclass(layer, torch.nn.LayerNorm):
        weight = torch_ao.default_placeholder_observer
    return torch_ao.QConfig(activation=activation, weight=weight)


def clipped(config: Any, low: float, high: float) -> Any:
    """The QConfig of a layer whose output goes into a clamp to [low, high] (ReLU6: 0 and 6) and nowhere else."""
    return torch_ao.QConfig(
        activation=ClippedObserver.with_args(make=config.activation, low=low, high=high), weight=config.weight
    )


def unfix(prepared: Any, engine: str, recipe: Recipe, *, training: bool) -> None:
    """Lets observers of a graph that FX prepared follow the values that they see.

    A sigmoid, tanh or softmax has a range that is fixed. FX gives the same range to its input, too, where that comes
    from outside or from a layer that stays float, and clips it to 0..1 (torch 2.13).
    """
    fixed = (torch_ao.FixedQParamsObserver, torch_ao.FixedQParamsFakeQuantize)
    qconfigs = prepared.meta["_observed_graph_module_attrs"].node_name_to_qconfig
    for node in prepared.graph.nodes:
        part = prepared.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(part, fixed) and qconfigs.get(node.args[0].name) is None:
            prepared.set_submodule(node.target, qconfig(engine, recipe, training=training).activation())


def keep_residuals(mapping: Any, module: Any) -> None:
    """Leaves the sums of a transformer and their LayerNorm in float: some of their channels are far above the others
    (Bondarenko et al. 2021, arXiv:2109.12948), and one scale for all leaves the others few of the levels.

    ``mapping`` is a QConfigMapping. MiniLM on 100 reviews, 7-bit activations, against fp32: with int8 sums SQNR of the
    logits 0.8 dB and 67 % equal answers (minmax), 11.2 dB and 93 % (percentile); with float sums 7.4 dB and 91 %, 15.4
    dB and 96 %. They multiply by no weights, so coverage stays.
    """
    nn = torch.nn
    if any(isinstance(part, nn.LayerNorm) for part in module.modules()):
        for kind in (nn.LayerNorm, nn.functional.layer_norm, operator.add, operator.iadd, torch.add):
            mapping.set_object_type(kind, None)


def never_static() -> tuple[type, ...]:
    """The types of layer that no static int8 kernel of torch.ao covers: their activations stay float."""
    nn = torch.nn
    return (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Embedding, nn.EmbeddingBag, nn.Bilinear)


def transposed() -> tuple[type, ...]:
    """The transposed convolutions."""
    nn = torch.nn
    return (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def _make_activation(recipe: Recipe) -> Any:
    # qint8 activations have kernels on qnnpack only: symmetric ones are quint8 with their zero in the middle.
    scheme = torch.per_tensor_symmetric if recipe.symmetric else torch.per_tensor_affine
    return activation_observer(recipe).with_args(dtype=torch.quint8, qscheme=scheme, **_choose_levels(recipe))


def _make_trained_activation(recipe: Recipe) -> Any:
    """Ranges follow the moving average in one fused operator, or the extremes."""
    name = recipe.calibrator or "moving_average"
    if name not in ("moving_average", "minmax"):
        raise BuildError(
            f"QAT cannot track ranges with the calibrator '{name}', which is too slow in a training loop; "
            "use moving_average or minmax"
        )
    arguments = {
        "dtype": torch.quint8,
        "qscheme": torch.per_tensor_symmetric if recipe.symmetric else torch.per_tensor_affine,
        "quant_min": 0,
        "quant_max": 127 if recipe.reduce_range else 255,
    }
    if name == "minmax":
        return torch_ao.FakeQuantize.with_args(observer=torch_ao.MinMaxObserver, **arguments)
    return torch_ao.FusedMovingAvgObsFakeQuantize.with_args(observer=torch_ao.MovingAverageMinMaxObserver, **arguments)


def activation_observer(recipe: Recipe) -> Any:
    """The constructor of the observer around the calibrator that chooses an activation's range. Raises ``UnknownName``
    for a name that is not registered.

    ``moving_average`` is torch's own, of batches, as in QAT: the mean of the ends of single examples clips more (SQNR
    of the logits on onednn: digits-cnn 17.8 dB instead of 31.3, MiniLM 5.9 instead of 11.1).
    """
    name = registry.entry("calibrator", recipe.calibrator or "histogram").name
    if name == "moving_average":
        return torch_ao.MovingAverageMinMaxObserver
    options = (("percentile", recipe.percentile or PERCENTILE),) if name == "percentile" else ()
    return CalibratorObserver.with_args(calibrator=name, options=options)


def _choose_levels(recipe: Recipe) -> dict[str, int]:
    return {"quant_min": 0, "quant_max": 127} if recipe.reduce_range else {}


def _make_weight(engine: str, *, training: bool, per_channel: bool) -> Any:
    """Symmetric qint8, per output channel or for the whole tensor."""
    scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
    arguments: dict[str, Any] = {"dtype": torch.qint8, "qscheme": scheme}
    if engine == "qnnpack":
        arguments["eps"] = QNNPACK_SMALLEST
    if not training:
        observer = torch_ao.PerChannelMinMaxObserver if per_channel else torch_ao.MinMaxObserver
        return observer.with_args(**arguments)
    observer = torch_ao.MovingAveragePerChannelMinMaxObserver if per_channel else torch_ao.MovingAverageMinMaxObserver
    return torch_ao.FusedMovingAvgObsFakeQuantize.with_args(
        observer=observer, quant_min=-128, quant_max=127, **arguments
    )


class CalibratorObserver(UniformQuantizationObserverBase):  # type: ignore[misc]  # torch is Any to mypy
    """Shows a calibrator, made with ``options``, the values that pass; its range for the levels of the observer (128
    with ``reduce_range``) gets scale and zero point by torch's rule; where all values are small, a step below torch's
    least of 1.2e-7, which would round them to a few levels."""

    def __init__(self, calibrator: str, options: tuple[tuple[str, Any], ...] = (), **arguments: Any) -> None:
        super().__init__(**arguments)
        self.calibrator = f"{calibrator} {options}"  # a text: what shares calibrated ranges compares it
        self.register_buffer("min_val", torch.tensor(math.inf))
        self.register_buffer("max_val", torch.tensor(-math.inf))
        calibrator_class = registry.load("calibrator", calibrator)
        self._calibrator = calibrator_class(asymmetric=self.qscheme != torch.per_tensor_symmetric, **dict(options))
        self._calibrator.levels = self.quant_max - self.quant_min + 1
        self._range: tuple[float, float] | None = None  # of what was seen so far; finding it takes milliseconds

    def forward(self, x: Any) -> Any:
        """The input as it came; its values are counted. Of values that are not finite only the ends are kept, which
        whoever calibrates refuses."""
        if x.numel():
            values = x.detach().float()
            low, high = torch.aminmax(values)
            self.min_val.copy_(torch.minimum(self.min_val, low))
            self.max_val.copy_(torch.maximum(self.max_val, high))
            self._range = None
            if bool(torch.isfinite(low) & torch.isfinite(high)):
                self._calibrator.add(values.cpu().numpy())
        return x

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Scale and zero point of the range."""
        if not bool(torch.isfinite(self.min_val) & torch.isfinite(self.max_val)):
            return self._calculate_qparams(self.min_val, self.max_val)  # type: ignore[no-any-return]
        self._range = self._range or self._calibrator.range()
        low, high = (torch.tensor(end) for end in self._range)
        if bool(high > low):
            self.eps.fill_(SMALLEST)
        return self._calculate_qparams(low, high)  # type: ignore[no-any-return]
