"""What of an artifact runs in int8, or in floats of 16 bits: in figures for its record, and whether it is enough to
count as that."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qbench.backends.base import Built
from qbench.errors import BuildError, ModeImpossible, first_names
from qbench.modes import HALVES, WEIGHT_ONLY, precision_of
from qbench.quant.artifacts.coverage import Layer, compute_int8_share, compute_share, explain_unknown
from qbench.quant.artifacts.torch_export import NO_INT8_FORM
from qbench.quant.recipe import DYNAMIC_MIN_COVERAGE
from qbench.record.schema import Coverage

_RECURRENT = "mode dynamic on a torch engine has int8 kernels for LSTM and GRU"
# What no recipe makes int8 in a mode on a backend: operator -> where there is a kernel for it, None where nowhere is
# (products of two activations).
_NEVER_INT8: Mapping[str, str | None] = {
    **dict.fromkeys(("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", "LSTM", "GRU", "RNN"), _RECURRENT),
    **dict.fromkeys(("aten::bmm", "aten::baddbmm", "aten::scaled_dot_product_attention", "Einsum")),
    "aten::_scaled_dot_product_flash_attention_for_cpu": None,
    "ConvTranspose": "mode static on fbgemm has an int8 kernel for ConvTranspose",
}


def summarize_coverage(built: Built, mode: str = "static") -> Coverage:
    """The share of multiply-accumulates that are what a mode names, the layers that are, the names of those that are
    not, and why; no share where the layers could not be read, or where the work of one is not known."""
    is_named = _find_named(mode)
    floats = tuple(layer.name for layer in built.layers if not is_named(layer))
    reasons, unknown = built.conversion.float_reasons, built.uncounted or explain_unknown(built.layers)
    share = None if unknown else compute_share(built.layers, is_named)
    count = sum(map(is_named, built.layers))
    return Coverage(
        macs_int8=None if unknown else compute_int8_share(built.layers),
        macs_half=share if mode in HALVES else None,
        layers_half=count if mode in HALVES else None,
        macs_weights=share if mode == WEIGHT_ONLY else None,
        layers_weights=count if mode == WEIGHT_ONLY else None,
        weight_bits=max((layer.weight_bits or 0 for layer in built.layers), default=0) or None,
        unknown=unknown,
        layers_int8=sum(layer.int8 for layer in built.layers),
        layers_total=len(built.layers),
        float_layers=floats,
        float_reasons={name: reasons[name] for name in floats if name in reasons},
    )


def require_int8(built: Built, least: float | None) -> None:
    """Raises ``BuildError`` where nothing, or less than the recipe's ``min_coverage``, runs in int8; ``ModeImpossible``
    where that is next to nothing and no recipe makes more of it int8.

    Where the share is not known, that is told (``coverage.warnings``) and nothing fails by ``least``: nothing shows
    that it is less. It still fails where every layer is seen to be float.
    """
    if built.uncounted is not None:
        return
    int8_share = compute_int8_share(built.layers)
    nothing = not any(layer.int8 for layer in built.layers)
    too_little = None if least is None or int8_share is None or int8_share >= least else int8_share
    if (nothing or (too_little is not None and too_little < DYNAMIC_MIN_COVERAGE)) and _is_impossible(built):
        raise ModeImpossible(_explain_impossible(built, nothing))
    if nothing:
        names = _name_float_layers(built) or "the model has no Conv, Linear or LSTM"
        raise BuildError(
            f"nothing runs in int8: all {len(built.layers)} layers stay float: {names}; quantize other layers, or "
            "leave this mode out"
        )
    if too_little is not None and least is not None:
        raise BuildError(
            f"only {too_little * 100:.2g} % of the multiply-accumulates run in int8, and min_coverage is "
            f"{least * 100:g} %: {_name_float_layers(built)} stay float; quantize them, or lower "
            "quantize.<mode>.min_coverage if that is meant"
        )


def _find_named(mode: str) -> Callable[[Layer], bool]:
    """Whether a layer is what a mode names."""
    if mode == WEIGHT_ONLY:
        return lambda layer: layer.weight_bits is not None
    return lambda layer: layer.precision == precision_of(mode)


def require_named(built: Built, mode: str) -> None:
    """Raises ``ModeImpossible`` where no layer is seen to be what a mode of 16-bit floats, or of weights of few bits,
    names."""
    if built.uncounted is None and not any(map(_find_named(mode), built.layers)):
        names = first_names([f"{layer.name} ({layer.operator})" for layer in built.layers], 3)
        nothing = "no weight is in few bits" if mode == WEIGHT_ONLY else f"nothing runs in {mode}"
        raise ModeImpossible(
            f"{nothing}: all {len(built.layers)} layers stay fp32: "
            f"{names or 'the model has no Conv, Linear or LSTM'}; leave {mode} out for this network"
        )


def _is_impossible(built: Built) -> bool:
    """Whether no recipe makes any of the float layers int8 here, and there are some."""
    floats = [layer for layer in built.layers if not layer.int8]
    return bool(floats) and all(has_no_int8_form(layer, built.conversion.float_reasons) for layer in floats)


def has_no_int8_form(layer: Layer, float_reasons: Mapping[str, str]) -> bool:
    """Whether no recipe makes a layer int8 in its mode and backend; ``float_reasons`` of its artifact."""
    return layer.operator in _NEVER_INT8 or NO_INT8_FORM in float_reasons.get(layer.name, "")


def _explain_impossible(built: Built, nothing: bool) -> str:
    which = "no layer" if nothing else "next to no layer"
    elsewhere = dict.fromkeys(_NEVER_INT8.get(layer.operator) for layer in built.layers if not layer.int8)
    ways_out = "; ".join([*filter(None, elsewhere), "leave this mode out here"])
    return f"{which} of this network has an int8 kernel in this mode here: {_name_float_layers(built)}; {ways_out}"


def _name_float_layers(built: Built, most: int = 8) -> str:
    """The largest float layers first, each with its reason or its operator."""
    floats = sorted((layer for layer in built.layers if not layer.int8), key=lambda layer: -(layer.macs or 0))
    reasons = built.conversion.float_reasons
    named = (f"{layer.name} ({reasons.get(layer.name, layer.operator)})" for layer in floats)
    return first_names(named, most)
