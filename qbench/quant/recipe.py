"""A recipe: how a model becomes int8, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DEFAULT = "default"
FRAMEWORK_DEFAULT = "framework-default"
FLOAT_JOINS = f"{FRAMEWORK_DEFAULT}+float_joins"  # the same, but what one scale cannot hold is joined in float
FLOWS = ("eager", "fx", "pt2e", "onnx")
AUTO = "auto"  # in place of a flow: the first of AUTO_FLOWS that takes the network
AUTO_FLOWS = ("fx", "eager")
# What of a recipe decides the course of a training.
TRAINING = (
    *("epochs", "learning_rate", "batch_size", "samples", "seed", "schedule", "distill"),
    *("schedule_keys", "optimizer", "optimizer_keys", "loss", "train"),
)
# What static quantization to ONNX alone does.
ONNX_STATIC = ("balance", "adaround", "bias_correction")
THREE_STATES = ("bias_correction",)  # of these, ``false`` is something else than what is left out
# Fields that came later: where a recipe leaves them open, its key is what it was before.
_LATER = (
    *("qconfig", "schedule_keys", "optimizer", "optimizer_keys", "loss", "train"),
    *ONNX_STATIC,
    *("bits", "group", "arithmetic"),
    "float_joins",
)
OF_WEIGHTS = ("bits", "group", "arithmetic")  # what weight_only alone has
# A dynamic variant with a smaller share of its work in int8 is practically fp32.
DYNAMIC_MIN_COVERAGE = 0.01


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a variant is made; None means that the mode has no such choice, or that the backend chooses.

    ``name`` is what a suite calls it; ``flow`` is one of ``FLOWS``, or ``AUTO`` (None: fp32). ``calibrator`` (under
    that name) chooses the range of an activation, ``percentile`` belongs to the calibrator of that name (per cent of
    the values inside the range). ``per_channel`` weights, ``symmetric`` activations, ``reduce_range`` (7 bits for
    activations). ``narrow_weights``: wider steps for weights where a kernel adds products in 16 bits, so that no sum
    overflows. ``target``: kinds of CPU on which no sum may overflow either (``quant.target``; empty: this machine
    alone; None: the backend's choice). ``skip_layers`` (names or patterns with ``*``), the first and the last layer
    stay float where asked (``first_layer_float`` None: where ONNX Runtime is faster so).
    ``clip_ranges``: the range of a layer ends where a following ReLU6 or Hardtanh cuts it. ``canonicalize``: the
    network is rewritten into an equal one that quantizers match. ``framework_default``: the framework's own recipe,
    untouched, but ``float_joins``: what one scale cannot hold is joined in float (None: in qbench's recipes alone).
    ``balance``: the exponent by which difficulty goes from activations to weights; ``adaround``: weights are
    rounded so that outputs of their layer change least; ``bias_correction``: biases give back the mean error, measured
    with rounded weights and inputs, or nothing (None: what rounded weights make of the mean inputs, in every flow;
    these three: static, flow ``onnx``).
    ``bits`` of a weight, ``group`` (inputs that share a scale, or ``channel``) and ``arithmetic`` (``int8`` or
    ``fp32``) are those of weight_only.
    ``qconfig``: ``own`` takes observers and bits from the network's own qconfig (torch engines).
    ``min_coverage``: least share of multiply-accumulates in int8; a static or qat variant
    with less fails, a dynamic one is practically fp32. ``embeddings``: dynamic quantization makes tables of Embedding
    bytes, too (torch engines: quint8 per row, on ONNX Runtime with one scale). ``file``: the int8 file that the
    user brought, as the suite names it; qbench then quantizes nothing, and the other choices are none.

    QAT, and the training of its fp32 twin (mode fp32): ``epochs``, ``learning_rate``, ``batch_size``, ``samples`` (the
    most examples to train on), ``seed``, ``schedule`` (``constant``, ``cosine``, ``linear`` or ``step``), ``distill``
    (the share of the loss that is the distance to the fp32 network's outputs, 0 to 1), ``optimizer`` (``sgd``, ``adam``
    or ``adamw``), ``loss`` (a name, or the user's ``file.py:function``), each with its keys; ``train`` is a loop of the
    user's own in the place of these (``file.py:function``).
    """

    name: str = DEFAULT
    flow: str | None = None
    calibrator: str | None = None
    percentile: float | None = None
    per_channel: bool | None = None
    symmetric: bool | None = None
    reduce_range: bool | None = None
    narrow_weights: bool | None = None
    target: tuple[str, ...] | None = ()
    skip_layers: tuple[str, ...] = ()
    first_layer_float: bool | None = None
    last_layer_float: bool = False
    clip_ranges: bool = True
    canonicalize: bool = True
    framework_default: bool = False
    float_joins: bool | None = None
    qconfig: str | None = None
    min_coverage: float | None = None
    embeddings: bool | None = None
    balance: float | None = None
    adaround: bool | None = None
    bias_correction: bool | None = None
    bits: int | None = None
    group: int | str | None = None
    arithmetic: str | None = None
    file: str | None = None
    epochs: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    samples: int | None = None
    seed: int | None = None
    schedule: str | None = None
    distill: float | None = None
    schedule_keys: tuple[tuple[str, Any], ...] = ()
    optimizer: str | None = None
    optimizer_keys: tuple[tuple[str, Any], ...] = ()
    loss: str | None = None
    train: str | None = None

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows that are tried, in order."""
        return () if self.flow is None else AUTO_FLOWS if self.flow == AUTO else (self.flow,)

    @property
    def cpus(self) -> tuple[str, ...]:
        """The kinds of CPU of its target; none where the choice is open or it is for this machine alone."""
        return self.target or ()

    @property
    def joins_in_float(self) -> bool:
        """Whether torch's flows leave what one scale cannot hold in float."""
        return not self.framework_default if self.float_joins is None else self.float_joins

    @property
    def gives_back_means(self) -> bool:
        """Whether biases of a static variant give back what rounded weights do on average."""
        return not self.framework_default and self.bias_correction is None

    @property
    def trains(self) -> bool:
        """Whether a network is trained by it."""
        return self.epochs is not None


def key_parts(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says, as the keys of the cache take it."""
    return {name: value for name, value in asdict(recipe).items() if name not in _LATER or value not in (None, ())}


def training_of(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe decides the course of a training, in one order; of ``_LATER`` only what is set."""
    said = key_parts(recipe)
    return {name: said[name] for name in TRAINING if name in said}
