"""The quantization that a network's author gave its layers: ``module.qconfig``, or a QConfigMapping in its place.

It is torch.ao's, so the flows fx and eager honour it, where a recipe says ``qconfig: own``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from qbench.errors import BuildError, ModeImpossible, first_names, out_of_memory
from qbench.quant import layer_selection
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import torch_ao

NAMES = ("qconfig", "qconfig_mapping")  # of a module; the second of the whole network
FLOAT = "its own qconfig is None"
_SEVEN_BITS = 127
_NOTHING = (
    "no layer of this network has a qconfig for the recipe `qconfig: own`; set `model.qconfig = …` (of torch.ao, on "
    "the network or on layers of it) in its Python source, or take another recipe for it"
)
# mode -> what its qconfig is made by.
_WAYS = {
    "static": "torch.ao.quantization.get_default_qconfig, or QConfig(activation=HistogramObserver.with_args(…), …)",
    "dynamic": "torch.ao.quantization.default_dynamic_qconfig",
    "qat": "torch.ao.quantization.get_default_qat_qconfig, or FakeQuantize.with_args(…)",
}


@dataclass(frozen=True, kw_only=True)
class OwnQConfigs:
    """torch's QConfigMapping of all that the author said."""

    mapping: Any

    def of(self, name: str, kind: type) -> Any:
        """The QConfig of a layer by its name and type; one without gets that of the nearest module around it. None:
        the layer stays float."""
        return torch_ao._maybe_adjust_qconfig_for_module_type_or_name(
            self.mapping, kind, name, self.mapping.global_qconfig
        )

    @property
    def between(self) -> Any:
        """The QConfig of what has no name: stubs and arithmetic that a flow puts in."""
        return next(config for config in (self.mapping.global_qconfig, *_values(self.mapping)) if config is not None)

    def float_layers(self, module: Any) -> dict[str, str]:
        """Layer that multiplies by weights -> why it stays float, of those whose qconfig is None."""
        return {
            name: FLOAT
            for name, part in module.named_modules()
            if name and isinstance(part, layer_selection.multiplying()) and self.of(name, type(part)) is None
        }


def take(module: Any) -> tuple[Any, OwnQConfigs | None]:
    """A network without the qconfigs of its author, and these (None where there are none). torch's converters read
    the attribute whatever they are told, so that it must not be there for any other recipe. A qconfig of None stays:
    beside stubs of the author's it says that a layer is float."""
    qconfigs = dict(_given(module))
    if not qconfigs:
        return module, None
    bare = copy.deepcopy(module)
    for part in bare.modules():
        for name in NAMES:
            if getattr(part, name, None) is not None:
                setattr(part, name, None) if name not in vars(part) else delattr(part, name)
    return bare, OwnQConfigs(mapping=_as_mapping(module))


def read(module: Any, own: OwnQConfigs | None, mode: str, engine: str) -> OwnQConfigs:
    """The qconfigs after a look at each: raises ``ModeImpossible`` where there are none, or none for this mode, and
    ``BuildError`` where one is none, or asks for what the engine's kernels do not compute."""
    if own is None:
        raise ModeImpossible(_NOTHING)
    _require_constructors(own)
    layers = {
        name: own.of(name, type(part))
        for name, part in module.named_modules()
        if isinstance(part, layer_selection.multiplying())
    }
    if all(config is None for config in layers.values()):
        raise ModeImpossible(_NOTHING)
    of_other_mode: dict[str, list[str]] = {}
    impossible: dict[str, list[str]] = {}
    for name, config in layers.items():
        if config is None:
            continue
        activation, weight = _make(config, name)
        if (why := _why_other_mode(activation, weight, mode)) is not None:
            of_other_mode.setdefault(why, []).append(name or "the network")
        elif (why := _why_not_run(activation, weight)) is not None:
            impossible.setdefault(why, []).append(name or "the network")
    if impossible:
        raise BuildError(f"{engine} cannot run the qconfig of {_listed(impossible)}")
    if of_other_mode:
        raise ModeImpossible(
            f"mode {mode} cannot take the qconfig of {_listed(of_other_mode)}; make it by {_WAYS[mode]}"
        )
    return own


def seven_bits(own: OwnQConfigs) -> bool:
    """Whether no activation uses more than the levels 0 to 127."""
    activations = [_make(config, "the network")[0] for config in _values(own.mapping) if config is not None]
    return all(0 <= (getattr(part, "quant_max", None) or 255) <= _SEVEN_BITS for part in activations)


def kept_float(job: QuantizeJob) -> dict[str, str]:
    """Submodule name -> why it stays float: the recipe says so, or its author's qconfig."""
    float_layers = {} if job.own is None else job.own.float_layers(job.module)
    return float_layers | layer_selection.float_by_recipe(job.module, job.recipe, job.example)


def _given(module: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """(module's name, attribute) -> what its author put there; None is left out."""
    for name, part in module.named_modules():
        for attribute in NAMES:
            if (value := getattr(part, attribute, None)) is not None:
                yield (name, attribute), value


def _as_mapping(module: Any) -> Any:
    mapping = next(
        (copy.deepcopy(value) for _, value in _given(module) if isinstance(value, torch_ao.QConfigMapping)),
        torch_ao.QConfigMapping(),
    )
    for name, part in module.named_modules():
        config = getattr(part, "qconfig", ...)
        if config is ... or isinstance(config, torch_ao.QConfigMapping):
            continue
        if name:
            mapping.set_module_name(name, config)
        else:
            mapping.set_global(config)
    return mapping


def _values(mapping: Any) -> Iterator[Any]:
    yield mapping.global_qconfig
    for table in ("object_type_qconfigs", "module_name_regex_qconfigs", "module_name_qconfigs"):
        yield from getattr(mapping, table).values()


def _require_constructors(own: OwnQConfigs) -> None:
    for config in _values(own.mapping):
        constructors = [getattr(config, name, None) for name in ("activation", "weight")]
        if config is None or all(
            callable(constructor) and not isinstance(constructor, torch.nn.Module) for constructor in constructors
        ):
            continue
        if any(isinstance(constructor, torch.nn.Module) for constructor in constructors):
            raise BuildError(
                "a qconfig holds an observer itself, which all layers would share: give the way to make one, "
                "`MinMaxObserver.with_args(…)` in place of `MinMaxObserver(…)`"
            )
        raise BuildError(
            f"a qconfig is {type(config).__name__}, not a QConfig(activation=…, weight=…) of torch.ao.quantization"
        )


def _make(config: Any, name: str) -> tuple[Any, Any]:
    try:
        with torch_ao.known_warnings():
            return config.activation(), config.weight()
    except Exception as error:  # the author's own observer, or arguments that torch refuses
        if out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise BuildError(f"the qconfig of {name or 'the network'} makes no observer: {reason}") from error


def _why_other_mode(activation: Any, weight: Any, mode: str) -> str | None:
    """What a qconfig is for, where that is another mode; None where it is for this one."""
    trains = isinstance(weight, torch_ao.FakeQuantizeBase)
    dynamic = bool(getattr(activation, "is_dynamic", False))
    kind = "qat" if trains else "dynamic" if dynamic else "static"
    said = {"qat": "fake quantization", "dynamic": "ranges found as it runs", "static": "observers of ranges"}
    return None if kind == mode else f"it is one of {kind} ({said[kind]})"


def _why_not_run(activation: Any, weight: Any) -> str | None:
    """Why no int8 kernel of torch's computes it; None where one does. Fewer bits run in the same kernels."""
    for tensors, observer, kernel_dtype in (
        ("activations", activation, torch.quint8),
        ("weights", weight, torch.qint8),
    ):
        dtype = getattr(observer, "dtype", None)
        if dtype != kernel_dtype:
            names = [str(kind).removeprefix("torch.") for kind in (dtype, kernel_dtype)]
            return f"its {tensors} are {names[0]}, and the int8 kernels of torch take {names[1]} (of up to 8 bits)"
    return None


def _listed(reasons: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{first_names(names, 3)}: {why}" for why, names in reasons.items())
