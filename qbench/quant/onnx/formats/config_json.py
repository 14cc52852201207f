"""AMCT's config.json: text -> Config with every problem at once, each with its path; Config -> text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from qbench import registry
from qbench.errors import UsageError, refuse
from qbench.quant.onnx.formats import algorithms
from qbench.quant.onnx.settings import (
    ARQ,
    BALANCES,
    PRECISION_MODES,
    ActivationParams,
    Config,
    LayerConfig,
    TensorConfig,
    WeightParams,
)

VERSION = 1
BITS = 8
# Of the file itself; every other key is the name of a layer. The last two are qbench's own.
GENERAL = (
    "version", "batch_num", "activation_offset", "joint_quant", "do_fusion", "skip_fusion_layers", "tensor_quantize",
    "fakequant_precision_mode", "balance", "bias_correction",
)  # fmt: skip
LAYER = ("quant_enable", "dmq_balancer_param", "activation_quant_params", "weight_quant_params")
TENSOR = ("layer_name", "input_index", "activation_quant_params")


def loads(text: str, name: str) -> Config:
    """See ``config.loads``."""
    try:
        content = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        what = str(error)
        if isinstance(error, json.JSONDecodeError):
            raise UsageError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}; correct the file") from error
        raise UsageError(f"{name}: not JSON: {what}; correct the file") from error
    reader = _Reader()
    config = reader.config(content)
    refuse(name, reader.problems)
    return config


def dumps(config: Config) -> str:
    """See ``config.dumps``."""
    for name in config.layers:
        if name in GENERAL:
            raise UsageError(f"a layer is called {name!r}, which is a key of config.json; rename it in the model")
    content: dict[str, Any] = {
        "version": VERSION,
        "batch_num": config.batch_num,
        "activation_offset": config.activation_offset,
        "do_fusion": config.do_fusion,
        "skip_fusion_layers": list(config.skip_fusion_layers),
    }
    if config.balance is not None:
        content["balance"] = config.balance
    if config.fp16_scales:
        content["fakequant_precision_mode"] = PRECISION_MODES[1]
    if config.bias_correction:
        content["bias_correction"] = True
    content["tensor_quantize"] = [
        {
            "layer_name": tensor.layer_name,
            "input_index": tensor.input_index,
            "activation_quant_params": _activation_json(tensor.activation),
        }
        for tensor in config.tensor_quantize
    ]
    for name, layer in config.layers.items():
        content[name] = {
            "quant_enable": layer.quant_enable,
            "activation_quant_params": _activation_json(layer.activation),
        }
        if layer.balance is not None:
            content[name]["dmq_balancer_param"] = layer.balance
        if layer.weight is not None:
            content[name]["weight_quant_params"] = _weight_json(layer.weight)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _activation_json(params: ActivationParams) -> dict[str, Any]:
    values: dict[str, Any] = {"num_bits": BITS, "act_algo": params.algorithm, "asymmetric": params.asymmetric}
    return values | _listed(params.options)


def _weight_json(params: WeightParams) -> dict[str, Any]:
    values: dict[str, Any] = {"num_bits": BITS, "wts_algo": params.algorithm, "channel_wise": params.channel_wise}
    return values | _listed(params.options)


def _listed(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys stood there more than once."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        pairs = list(pairs)
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]


class _Reader:
    """Takes values out of the JSON and keeps a list of what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def _wrong(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}" if where else what)

    def config(self, content: Any) -> Config:
        """The configuration, with defaults where something is wrong."""
        if not isinstance(content, dict):
            self.problems.append(f"expected an object of keys and layers, got {_shown(content)}")
            return Config()
        layers = {key: value for key, value in content.items() if key not in GENERAL}
        self._repeated("", content)
        self._fixed(content)
        offset = self._boolean(content, "", "activation_offset", default=True)
        general = {key for key in content if key in GENERAL}
        layers_by_name = {}
        for name, value in layers.items():
            if isinstance(value, dict):
                layers_by_name[name] = self._layer(value, name, offset)
            else:
                hint = registry.suggest(name, GENERAL)
                self._wrong(name, f"unknown key{hint or '; a layer is an object ({...})'}")
        if "version" not in general:
            self._wrong("version", f"missing; expected {VERSION}")
        return Config(
            batch_num=self._whole(content, "", "batch_num", least=1, default=1),
            activation_offset=offset,
            do_fusion=self._boolean(content, "", "do_fusion", default=True),
            skip_fusion_layers=self._names(content, "skip_fusion_layers"),
            layers=layers_by_name,
            tensor_quantize=self._tensors(content, offset),
            balance=self._exponent(content, "", "balance", (0, 1)),
            fp16_scales=content.get("fakequant_precision_mode") == PRECISION_MODES[1],
            bias_correction=self._boolean(content, "", "bias_correction", default=False),
        )

    def _fixed(self, content: Mapping[str, Any]) -> None:
        """Keys of AMCT that have one value here."""
        version = content.get("version", VERSION)
        if version != VERSION or isinstance(version, bool):
            self._wrong("version", f"expected {VERSION}, got {_shown(version)}")
        if content.get("joint_quant", False) is not False:
            self._wrong("joint_quant", "only false is supported: each input has its own scale; set it to false")
        if (mode := content.get("fakequant_precision_mode", "")) not in ("", "FORCE_FP32_QUANT", *PRECISION_MODES):
            words = " or ".join(PRECISION_MODES)
            self._wrong("fakequant_precision_mode", f"expected {words}, or no such key, got {_shown(mode)}")

    def _layer(self, section: Mapping[str, Any], where: str, offset: bool) -> LayerConfig:
        self._known(section, where, LAYER)
        weight = None
        if "weight_quant_params" in section:
            weight = self._weight(section["weight_quant_params"], f"{where}.weight_quant_params")
        return LayerConfig(
            quant_enable=self._boolean(section, where, "quant_enable", default=True),
            activation=self._activation(section, where, offset),
            weight=weight,
            balance=self._exponent(section, where, "dmq_balancer_param", BALANCES),
        )

    def _tensors(self, content: Mapping[str, Any], offset: bool) -> tuple[TensorConfig, ...]:
        entries = content.get("tensor_quantize", [])
        if not isinstance(entries, list):
            self._wrong("tensor_quantize", f"expected a list, got {_shown(entries)}")
            return ()
        tensors = []
        for number, entry in enumerate(entries):
            where = f"tensor_quantize[{number}]"
            if not isinstance(entry, _Object):
                self._wrong(where, f"expected an object, got {_shown(entry)}")
                continue
            self._known(entry, where, TENSOR)
            name = entry.get("layer_name")
            if not isinstance(name, str) or not name:
                self._wrong(f"{where}.layer_name", f"expected the name of a node, got {_shown(name)}")
            index = self._whole(entry, where, "input_index", least=0, default=0)
            tensors.append(
                TensorConfig(layer_name=str(name), input_index=index, activation=self._activation(entry, where, offset))
            )
        return tuple(tensors)

    def _activation(self, section: Mapping[str, Any], where: str, offset: bool) -> ActivationParams:
        where = f"{where}.activation_quant_params"
        params = section.get("activation_quant_params", _Object(()))
        if not isinstance(params, _Object):
            self._wrong(where, f"expected an object, got {_shown(params)}")
            return ActivationParams()
        self._repeated(where, params)
        self._bits(params, where)
        algorithm = params.get("act_algo", ActivationParams().algorithm)
        asymmetric = (
            offset if params.get("asymmetric") is None else self._boolean(params, where, "asymmetric", default=True)
        )
        if algorithm not in algorithms.names():
            self.problems.append(
                f"{where}.act_algo: {registry.unknown('calibrator', str(algorithm), algorithms.names())}"
            )
            return ActivationParams(asymmetric=asymmetric)
        options = {name: value for name, value in params.items() if name not in ("num_bits", "act_algo", "asymmetric")}
        self._options(where, algorithms.activation_problems(algorithm, options))
        defaults = algorithms.defaults(algorithm)
        parameters = defaults | algorithms.typed(defaults, options)
        return ActivationParams(algorithm=algorithm, asymmetric=asymmetric, options=parameters)

    def _weight(self, section: Any, where: str) -> WeightParams:
        if not isinstance(section, _Object):
            self._wrong(where, f"expected an object, got {_shown(section)}")
            return WeightParams()
        self._repeated(where, section)
        self._bits(section, where)
        algorithm = section.get("wts_algo", ARQ)
        wise = self._boolean(section, where, "channel_wise", default=True)
        if algorithm not in algorithms.WEIGHT_ALGORITHMS:
            options = ", ".join(algorithms.WEIGHT_ALGORITHMS)
            hint = registry.suggest(str(algorithm), algorithms.WEIGHT_ALGORITHMS) or ";"
            self._wrong(f"{where}.wts_algo", f"no algorithm named {_shown(algorithm)}{hint} available: {options}")
            return WeightParams(channel_wise=wise)
        params = {
            name: value for name, value in section.items() if name not in ("num_bits", "wts_algo", "channel_wise")
        }
        self._options(where, algorithms.weight_problems(algorithm, params))
        defaults = algorithms.weight_defaults(algorithm)
        parameters = defaults | algorithms.typed(defaults, params)
        return WeightParams(algorithm=algorithm, channel_wise=wise, options=parameters)

    def _exponent(self, section: Mapping[str, Any], where: str, key: str, ends: tuple[float, float]) -> float | None:
        """Of a balance; None where there is none."""
        value = section.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not ends[0] <= value <= ends[1]:
            self._wrong(_join(where, key), f"expected a number in [{ends[0]}, {ends[1]}], got {_shown(value)}")
            return None
        return float(value)

    def _options(self, where: str, problems: Iterator[tuple[str, str]]) -> None:
        for name, what in problems:
            self._wrong(_join(where, name) if name else where, what)

    def _bits(self, section: Mapping[str, Any], where: str) -> None:
        bits = section.get("num_bits", BITS)
        if bits != BITS or isinstance(bits, bool):
            self._wrong(f"{where}.num_bits", f"only {BITS} is supported, got {_shown(bits)}")

    def _repeated(self, where: str, section: Any) -> None:
        for name in getattr(section, "repeated", ()):
            self._wrong(_join(where, name), "stands there twice; keep one")

    def _known(self, section: Mapping[str, Any], where: str, names: tuple[str, ...]) -> None:
        self._repeated(where, section)
        for name in section:
            if name not in names:
                hint = registry.suggest(name, names) or f"; there are: {', '.join(names)}"
                self._wrong(_join(where, name), f"unknown key{hint}")

    def _boolean(self, section: Mapping[str, Any], where: str, key: str, *, default: bool) -> bool:
        value = section.get(key, default)
        if not isinstance(value, bool):
            self._wrong(_join(where, key), f"expected true or false, got {_shown(value)}")
            return default
        return value

    def _whole(self, section: Mapping[str, Any], where: str, key: str, *, least: int, default: int) -> int:
        value = section.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.problems.append(
                f"{_join(where, key)}: expected a whole number of at least {least}, got {_shown(value)}"
            )
            return default
        return value

    def _names(self, section: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = section.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._wrong(key, f"expected a list of names, got {_shown(value)}")
            return ()
        if twice := [item for item in dict.fromkeys(value) if value.count(item) > 1]:
            self._wrong(key, f"{twice[0]!r} stands there twice; keep one")
        return tuple(value)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
