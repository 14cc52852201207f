"""PyTorch FX and dynamic quantization: the only module that imports torch.ao.quantization.

Everything here changes process-global state (the quantized engine), so it runs in child processes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from qbench.errors import BuildError
from qbench.quant import forward
from qbench.quant.recipe import Recipe

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")


def set_engine(engine: str) -> None:
    """Makes the engine the process's quantized engine, and reads it back."""
    import torch

    supported = torch.backends.quantized.supported_engines
    if engine not in supported:
        raise BuildError(f"this build of torch has no quantized engine '{engine}'; it has {', '.join(supported)}")
    torch.backends.quantized.engine = engine
    if torch.backends.quantized.engine != engine:
        raise BuildError(f"torch kept the quantized engine '{torch.backends.quantized.engine}', not '{engine}'")


def static(module: Any, engine: str, recipe: Recipe, calibration: tuple[Any, ...], batch: int = 64) -> Any:
    """The int8 GraphModule of an fp32 module, calibrated on tensors whose first axis is the example.

    The module is copied, never changed. Raises ``BuildError`` where FX cannot trace or convert it, or where
    calibration observed nothing.
    """
    import torch

    with _known_warnings():
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        example = tuple(tensor[:1] for tensor in calibration)
        mapping = _mapping(engine, recipe, module, training=False)
        prepared = _traced(prepare_fx, copy.deepcopy(module).eval(), mapping, example)
        with torch.inference_mode():
            for start in range(0, len(calibration[0]), batch):
                prepared(*(tensor[start : start + batch] for tensor in calibration))
        _require_observed(prepared)
        return _converted(convert_fx, prepared, mapping)


def prepare_qat(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Any:
    """A training-mode GraphModule with fake quantization; raises ``BuildError`` where none was inserted."""
    with _known_warnings():
        from torch.ao.quantization.quantize_fx import prepare_qat_fx

        mapping = _mapping(engine, recipe, module, training=True)
        prepared = _traced(prepare_qat_fx, copy.deepcopy(module).train(), mapping, example)
    if not any(hasattr(part, "weight_fake_quant") for part in prepared.modules()):
        raise BuildError(
            "prepare inserted no fake-quantize on any weight: this would be plain fp32 training; "
            "the model has no layer that FX can quantize"
        )
    return prepared


def freeze_observers(prepared: Any) -> None:
    """Scales and zero points stay as they are from here on."""
    from torch.ao.quantization import disable_observer

    prepared.apply(disable_observer)


def freeze_batch_norm(prepared: Any) -> None:
    """BatchNorm statistics stay as they are from here on, as in the int8 model."""
    from torch.ao.nn.intrinsic.qat import freeze_bn_stats

    prepared.apply(freeze_bn_stats)


def convert_qat(prepared: Any) -> Any:
    """The int8 GraphModule of a trained fake-quantized one."""
    with _known_warnings():
        from torch.ao.quantization.quantize_fx import convert_fx

        return _converted(convert_fx, prepared.eval(), None)


def dynamic(module: Any, recipe: Recipe) -> Any:
    """A copy whose Linear, LSTM and GRU layers and cells hold int8 weights and quantize activations as they run."""
    import torch
    from torch import nn

    with _known_warnings():
        from torch.ao.quantization import (
            default_dynamic_qconfig,
            per_channel_dynamic_qconfig,
            quantize_dynamic,
        )

        kinds = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
        names = [name for name, part in module.named_modules() if isinstance(part, kinds)]
        _refuse_unknown(recipe.skip_layers, module)
        # Per-channel weights exist for Linear only; recurrent layers are per tensor.
        spec = {
            name: per_channel_dynamic_qconfig
            if recipe.per_channel and isinstance(module.get_submodule(name), nn.Linear)
            else default_dynamic_qconfig
            for name in names
            if name not in recipe.skip_layers
        }
        if not spec:
            raise BuildError(
                "dynamic quantization covers Linear, LSTM and GRU layers, and this model has none "
                "that is not skipped; use static instead"
            )
        return quantize_dynamic(copy.deepcopy(module).eval(), spec, dtype=torch.qint8)


def _mapping(engine: str, recipe: Recipe, module: Any, *, training: bool) -> Any:
    """The engine's default mapping with the recipe's calibrator and granularity; recurrent layers stay float."""
    from torch import nn
    from torch.ao.quantization import QConfig, get_default_qat_qconfig_mapping, get_default_qconfig_mapping

    make = get_default_qat_qconfig_mapping if training else get_default_qconfig_mapping
    mapping = make(engine)
    default = mapping.global_qconfig
    chosen = QConfig(
        activation=default.activation if training else _activation(engine, recipe),
        weight=_weight(recipe, training=training),
    )
    mapping.set_global(chosen)
    for kind, qconfig in list(mapping.object_type_qconfigs.items()):
        if qconfig == default:
            mapping.set_object_type(kind, chosen)
    for recurrent in (nn.LSTM, nn.GRU):
        mapping.set_object_type(recurrent, None)
    _refuse_unknown(recipe.skip_layers, module)
    for name in recipe.skip_layers:
        mapping.set_module_name(name, None)
    return mapping


def _activation(engine: str, recipe: Recipe) -> Any:
    import torch
    from torch.ao.quantization import HistogramObserver, MinMaxObserver

    observer = {"histogram": HistogramObserver, "minmax": MinMaxObserver}[recipe.calibrator or "histogram"]
    # fbgemm's kernels add two products in 16 bits on CPUs without VNNI: half the range keeps them from saturating.
    return observer.with_args(dtype=torch.quint8, reduce_range=engine in ("fbgemm", "x86"))


def _weight(recipe: Recipe, *, training: bool) -> Any:
    from torch.ao.quantization import (
        default_fused_per_channel_wt_fake_quant,
        default_fused_wt_fake_quant,
        default_per_channel_weight_observer,
        default_weight_observer,
    )

    if training:
        return default_fused_per_channel_wt_fake_quant if recipe.per_channel else default_fused_wt_fake_quant
    return default_per_channel_weight_observer if recipe.per_channel else default_weight_observer


def _refuse_unknown(skipped: tuple[str, ...], module: Any) -> None:
    names = {name for name, _ in module.named_modules() if name}
    unknown = [name for name in skipped if name not in names]
    if unknown:
        raise BuildError(f"skip_layers: no layer named {', '.join(unknown)}; there are {', '.join(sorted(names))}")


def _traced(prepare: Callable[..., Any], module: Any, mapping: Any, example: tuple[Any, ...]) -> Any:
    import torch

    try:
        return prepare(module, mapping, example)
    # Tracing runs the user's forward on stand-ins: whatever it does with values fails in its own way.
    except (torch.fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        if forward.out_of_memory(error):
            raise
        raise BuildError(
            f"FX cannot trace this model ({error}): its control flow depends on values; "
            "rewrite that part with tensor operations, or use the onnxruntime backend"
        ) from error


def _converted(convert: Callable[..., Any], prepared: Any, mapping: Any) -> Any:
    try:
        return convert(prepared, qconfig_mapping=mapping)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        if forward.out_of_memory(error):
            raise
        raise BuildError(f"FX cannot convert this model: {error}; name the layer in quantize.*.skip_layers") from error


def _require_observed(prepared: Any) -> None:
    """torch only warns about an observer that saw nothing, and its layer then returns zeros."""
    from torch.ao.quantization import ObserverBase

    blind = [
        name
        for name, part in prepared.named_modules()
        if isinstance(part, ObserverBase) and hasattr(part, "min_val") and _saw_nothing(part)
    ]
    if blind:
        raise BuildError(f"calibration observed nothing at {', '.join(blind[:5])}: is that part of the model unused?")


def _saw_nothing(observer: Any) -> bool:
    low, high = observer.min_val, observer.max_val
    return low.numel() == 0 or bool((low > high).any())


@contextmanager
def _known_warnings() -> Iterator[None]:
    """torch.ao.quantization says that it will be removed; the version is pinned and this file is the one to change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|qbench\.quant")
        warnings.filterwarnings("ignore", message=".*torch.ao.quantization is deprecated.*")
        warnings.filterwarnings("ignore", message=".*reduce_range will be deprecated.*")
        yield
