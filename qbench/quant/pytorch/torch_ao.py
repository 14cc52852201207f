"""torch.ao as qbench sees it: the only module that imports it, and the process's quantized engine.

Every name in ``_NAMES`` and ``_NAMESPACES`` is an attribute here (``from qbench.quant.pytorch.torch_ao import
QConfig``), imported at its first use: a measuring process only sets the engine. Engines are process-global state, so
the rest runs in child processes.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qbench.errors import BuildError

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")

_NAMESPACES = {
    "nni": "torch.ao.nn.intrinsic",
    "nniqat": "torch.ao.nn.intrinsic.qat",
    "nniq": "torch.ao.nn.intrinsic.quantized",
    "nnqat": "torch.ao.nn.qat",
    "nnq": "torch.ao.nn.quantized",
    "nnqd": "torch.ao.nn.quantized.dynamic",
    "nnqr": "torch.ao.nn.quantized.reference",
    "quantization": "torch.ao.quantization",
}
_NAMES = {
    "torch.ao.quantization": (
        "DeQuantStub", "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize", "FixedQParamsObserver",
        "FusedMovingAvgObsFakeQuantize", "MinMaxObserver", "MovingAverageMinMaxObserver",
        "MovingAveragePerChannelMinMaxObserver", "ObserverBase", "PerChannelMinMaxObserver", "PlaceholderObserver",
        "QConfig", "QConfigMapping", "QuantStub", "QuantWrapper", "UniformQuantizationObserverBase", "convert",
        "default_dynamic_qconfig", "default_placeholder_observer", "disable_fake_quant", "disable_observer",
        "enable_fake_quant", "enable_observer", "float_qparams_weight_only_qconfig", "fuse_modules",
        "fuse_modules_qat", "get_default_qat_qconfig", "get_default_qat_qconfig_mapping", "get_default_qconfig",
        "get_default_qconfig_mapping", "per_channel_dynamic_qconfig", "prepare", "prepare_qat", "propagate_qconfig_",
        "quantize_dynamic",
    ),
    "torch.ao.quantization.quantize_fx": (
        "_convert_to_reference_decomposed_fx", "convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx",
        "prepare_qat_fx",
    ),
    "torch.ao.quantization.fx.tracer": ("QuantizationTracer",),
    "torch.ao.quantization.fx.qconfig_mapping_utils": ("_maybe_adjust_qconfig_for_module_type_or_name",),
    "torch.ao.nn.intrinsic.qat": ("freeze_bn_stats", "update_bn_stats"),
    "torch.ao.nn.quantized": ("FloatFunctional", "QFunctional"),
}  # fmt: skip
_WHERE = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return _imported(_NAMESPACES[name])
    if name in _WHERE:
        return getattr(_imported(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _imported(module: str) -> Any:
    with known_warnings():
        import torch.ao.quantization  # noqa: F401  # its parts import each other in a circle from any other start

        return importlib.import_module(module)


def opaque(*kinds: type) -> Any:
    """A configuration with which FX does not look into modules of these types."""
    from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

    return PrepareCustomConfig().set_non_traceable_module_classes([*kinds])


def set_engine(engine: str) -> None:
    """Makes the engine the process's quantized engine, and reads it back."""
    import torch

    supported = torch.backends.quantized.supported_engines
    if engine not in supported:
        raise BuildError(f"this build of torch has no quantized engine '{engine}'; it has {', '.join(supported)}")
    torch.backends.quantized.engine = engine
    if torch.backends.quantized.engine != engine:
        raise BuildError(f"torch kept the quantized engine '{torch.backends.quantized.engine}', not '{engine}'")


def require_engine(engine: str) -> None:
    """Raises ``BuildError`` where the process's engine is another: weights are packed for the engine that is set."""
    import torch

    current = torch.backends.quantized.engine
    if current != engine:
        raise BuildError(
            f"the process's quantized engine is '{current}': weights for '{engine}' would be packed for the wrong one; "
            f"call torch_ao.set_engine('{engine}') first"
        )


@contextmanager
def without_stack_traces() -> Iterator[None]:
    """Tracing keeps no stack trace of a node: nothing reads them, and for the first one torch imports its compiler,
    which takes a process a second or two."""
    import torch.fx.config as config

    before = config.do_not_emit_stack_traces
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


@contextmanager
def known_warnings() -> Iterator[None]:
    """torch.ao.quantization says that it will be removed; the version is pinned and this file is the one to change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.|qbench\.quant")
        warnings.filterwarnings("ignore", message=".*torch.ao.quantization is deprecated.*")
        warnings.filterwarnings("ignore", message=".*reduce_range will be deprecated.*")
        warnings.filterwarnings("ignore", message="To copy construct from a tensor.*")
        # What these two say of every layer, a build finds out for each one and says in its notes (``narrow_weights``).
        warnings.filterwarnings("ignore", message="Default qconfig of oneDNN backend with reduce_range of false.*")
        warnings.filterwarnings("ignore", message=".*Onednn backend.*VNNI.*")
        yield
