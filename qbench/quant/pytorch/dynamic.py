"""Dynamic quantization: int8 weights, activations quantized as they come; which layers, and how."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from qbench.errors import BuildError, ModeImpossible, first_names
from qbench.quant import layer_selection, model_call
from qbench.quant.canonical import materialize_weights
from qbench.quant.flow import Conversion, Converted, QuantizeJob
from qbench.quant.pytorch import first_parameter, own_qconfig, torch_ao

_NO_KERNEL = "dynamic quantization covers Linear, LSTM and GRU layers only"
_READ = "its weight is read by other code than its own, which an int8 layer does not offer"
_MAX_NORM = "an int8 table cannot be renormalised (max_norm) as it is read"
_SUMS_ONLY = "torch's int8 kernel sums the rows of a bag whatever its mode and padding_idx say"


def covered() -> tuple[type, ...]:
    """The types of layer that have a dynamic kernel; a subclass of one has none."""
    return (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)


def tables() -> tuple[type, ...]:
    """The types of layer whose table can be read as quint8 with a scale for each row, where a recipe asks for it."""
    return (nn.Embedding, nn.EmbeddingBag)


def why_float_table(part: Any) -> str | None:
    """Why the table of an Embedding or EmbeddingBag cannot be quint8; None where it can.

    torch has one kernel for bags, ``quantized::embedding_bag_byte``, which accepts the modes mean and max and gives
    the sum for them; padding_idx it ignores.
    """
    if part.max_norm is not None:
        return _MAX_NORM
    if isinstance(part, nn.EmbeddingBag) and (part.mode != "sum" or part.padding_idx is not None):
        return _SUMS_ONLY
    return None


def configurations(job: QuantizeJob) -> dict[str, Any]:
    """Layer name -> its QConfig, for every layer that is covered and that the recipe does not keep float.

    Weights are per channel where the recipe asks for it and the layer is Linear; recurrent layers have per-tensor
    kernels only. Tables of embeddings are quint8 per row where ``recipe.embeddings`` asks for it and they can be.
    Raises ``BuildError`` where no layer is left.
    """
    module, recipe = job.module, job.recipe
    float_layers = own_qconfig.kept_float(job)
    configs = {
        name: _choose(job, name, part)
        for name, part in module.named_modules()
        if type(part) in covered() and layer_selection.below(name, float_layers) is None
    }
    for name, part in module.named_modules():
        is_embedding = type(part) in tables() and recipe.embeddings
        if is_embedding and layer_selection.below(name, float_layers) is None and why_float_table(part) is None:
            configs[name] = torch_ao.float_qparams_weight_only_qconfig
    if not configs:
        some = any(type(part) in covered() for part in module.modules())
        raise (BuildError if some else ModeImpossible)(
            f"dynamic quantization covers Linear, LSTM and GRU layers, and this model has none"
            f"{' that is not skipped' if some else ''}; use static instead"
        )
    return configs


def _choose(job: QuantizeJob, name: str, part: Any) -> Any:
    """The QConfig of a covered layer."""
    if job.own is not None:
        return job.own.of(name, type(part))
    per_channel = job.recipe.per_channel and type(part) is nn.Linear
    return torch_ao.per_channel_dynamic_qconfig if per_channel else torch_ao.default_dynamic_qconfig


def float_reasons(job: QuantizeJob) -> dict[str, str]:
    """Layer with weights to multiply, or table that the recipe wants as int8 -> why it stays float."""
    module, recipe = job.module, job.recipe
    float_layers = own_qconfig.kept_float(job)
    reasons: dict[str, str] = {}
    for name, part in module.named_modules():
        if isinstance(part, layer_selection.multiplying()):
            reason = layer_selection.below(name, float_layers) or (None if type(part) in covered() else _NO_KERNEL)
            if reason:
                reasons[name] = reason
        elif type(part) in tables() and recipe.embeddings:
            reason = layer_selection.below(name, float_layers) or why_float_table(part)
            if reason:
                reasons[name] = reason
    return reasons


def by_module(job: QuantizeJob) -> Converted:
    """A copy whose covered layers are exchanged for dynamic ones; its code is not traced, so any control flow works.
    A layer whose weight other code multiplies by stays float.

    Raises ``BuildError`` where no layer is covered, and where the process runs another engine.
    """
    torch_ao.require_engine(job.engine)
    spec = configurations(job)
    int8 = _exchange(job.module, spec)
    read = {} if _runs(int8, job.example) else dict.fromkeys(find_read_elsewhere(job.module, job.example), _READ)
    if read.keys() & spec.keys():
        spec = {name: config for name, config in spec.items() if name not in read}
        if not spec:
            raise ModeImpossible(
                f"{first_names(read, 3)}: {_READ}; use onnxruntime, which quantizes products wherever they stand"
            )
        int8 = _exchange(job.module, spec)
    return Converted(module=int8, conversion=Conversion(float_reasons={**read, **float_reasons(job)}))


def _exchange(module: Any, spec: dict[str, Any]) -> Any:
    copied = materialize_weights.copy_module(module).eval()
    for name, part in copied.named_modules():
        part.qconfig = spec.get(name)  # else torch takes what the author put there, as None, in place of the spec
    with torch_ao.known_warnings():
        int8 = torch_ao.quantize_dynamic(copied, spec, dtype=torch.qint8)
    first_parameter.keep_first_parameters(int8, module)
    return int8


def _runs(int8: Any, example: tuple[Any, ...]) -> bool:
    try:
        model_call.of_one_example(int8, example)
    except BuildError:
        return False
    return True


def find_read_elsewhere(module: Any, example: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of the layers and tables whose parameters are read outside their own call, as Mamba's
    ``self.dt_proj.weight @ steps`` does; an int8 layer has methods in their place."""
    copied, running, read = copy.deepcopy(module).eval(), set[int](), dict[str, None]()
    for name, part in copied.named_modules():
        if type(part) in (*covered(), *tables()):
            _watch(part, name, running, read)
    with torch.no_grad():
        copied(*example)
    return tuple(read)


def _watch(part: Any, name: str, running: set[int], read: dict[str, None]) -> None:
    """Gives a layer a class of its own that notes its name where a parameter is read while it does not run."""
    kind = type(part)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        running.add(id(self))
        try:
            return kind.forward(self, *args, **kwargs)
        finally:
            running.discard(id(self))

    def get(self: Any, attribute: str) -> Any:
        if attribute in self.__dict__["_parameters"] and id(self) not in running:
            read[name] = None
        return kind.__getattr__(self, attribute)

    part.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__getattr__": get})
