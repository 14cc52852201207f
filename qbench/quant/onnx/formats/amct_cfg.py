"""AMCT's simplified configuration (quant.cfg, protobuf text) -> Rules.

batch_num: 2
skip_layers: "conv1"
common_config { ifmr_quantize { search_step: 0.02 } arq_quantize { channel_wise: true } }
override_layer_types { layer_type: "Gemm" calibration_config { hfmg_quantize { num_of_bins: 8192 } } }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.errors import refuse
from qbench.quant.onnx.formats import algorithms, protobuf_text, text_file
from qbench.quant.onnx.formats.rules import ActivationRule, Rule, Rules, TensorRule, WeightRule
from qbench.quant.onnx.settings import BALANCES, PRECISION_MODES

# Of every algorithm; AMCT's releases spell the same eight bits in three ways.
_BITS = {"num_bits": "uint32", "quant_bits": "uint32", "dst_type": "DataType"}
_FIXED = (*_BITS, "asymmetric", "channel_wise")  # no option of an algorithm
_SCHEMA: protobuf_text.Schema = {
    "AMCTConfig": {
        "version": "int32",
        "batch_num": "uint32",
        "activation_offset": "bool",
        "joint_quant": "bool",
        "fakequant_precision_mode": "FakequantPrecisionMode",
        "skip_layers": "repeated string",
        "skip_layer_types": "repeated string",
        "do_fusion": "bool",
        "skip_fusion_layers": "repeated string",
        "common_config": "CalibrationConfig",
        "override_layer_types": "repeated OverrideLayerType",
        "override_layer_configs": "repeated OverrideLayer",
        "tensor_quantize": "repeated TensorQuantize",
    },
    "FakequantPrecisionMode": PRECISION_MODES,
    "DataType": ("FLOAT", "FLOAT16", "INT8", "UINT8", "INT4", "INT16", "INT32", "BINARY"),
    "OverrideLayerType": {"layer_type": "string", "calibration_config": "CalibrationConfig"},
    "OverrideLayer": {"layer_name": "string", "calibration_config": "CalibrationConfig"},
    "CalibrationConfig": {
        "arq_quantize": "ARQuantize",
        "ada_quantize": "ADAQuantize",
        "ifmr_quantize": "FMRQuantize",
        "hfmg_quantize": "HFMGQuantize",
        "dmq_balancer": "DMQBalancer",
    },
    "ARQuantize": {"channel_wise": "bool", **_BITS},
    "ADAQuantize": {
        "channel_wise": "bool",
        "num_iteration": "uint32",
        "reg_param": "float",
        "beta_range_start": "float",
        "beta_range_end": "float",
        "warm_start": "float",
        **_BITS,
    },
    "FMRQuantize": {
        "search_range_start": "float",
        "search_range_end": "float",
        "search_step": "float",
        "max_percentile": "float",
        "min_percentile": "float",
        "asymmetric": "bool",
        **_BITS,
    },
    "HFMGQuantize": {"num_of_bins": "uint32", "asymmetric": "bool", **_BITS},
    "DMQBalancer": {"migration_strength": "float"},
    "TensorQuantize": {
        "layer_name": "string",
        "input_index": "uint32",
        "ifmr_quantize": "FMRQuantize",
        "hfmg_quantize": "HFMGQuantize",
    },
}
_ACTIVATIONS = {"ifmr_quantize": "ifmr", "hfmg_quantize": "hfmg"}


def read(file: Path) -> Rules:
    """The rules in a file. Raises ``UsageError`` with everything that is wrong in it."""
    text = text_file.read(file, "simplified configuration", "no such simplified configuration")
    return loads(text, name=str(file))


def loads(text: str, *, name: str = "quant.cfg") -> Rules:
    """The rules in a text; ``name`` stands before every problem."""
    message = protobuf_text.parse(text, name, _SCHEMA, "AMCTConfig")
    refuse(name, list(_problems(message)))
    common = message.common_config
    return Rules(
        batch_num=message.batch_num if message.HasField("batch_num") else None,
        activation_offset=message.activation_offset if message.HasField("activation_offset") else True,
        do_fusion=message.do_fusion if message.HasField("do_fusion") else True,
        skip_fusion_layers=tuple(message.skip_fusion_layers),
        skip_layers=tuple(message.skip_layers),
        skip_layer_types=tuple(message.skip_layer_types),
        common=replace(_rule(common), balance=None),
        fp16_scales=_fp16(message),
        file=name,
        balance=_rule(common).balance,
        types={override.layer_type: _rule(override.calibration_config) for override in message.override_layer_types},
        layers={override.layer_name: _rule(override.calibration_config) for override in message.override_layer_configs},
        tensor_quantize=tuple(
            TensorRule(layer_name=tensor.layer_name, input_index=tensor.input_index, activation=_activation(tensor))
            for tensor in message.tensor_quantize
        ),
    )


def _fp16(message: Any) -> bool:
    """Whether the scales of activations are to be rounded to float16."""
    return PRECISION_MODES[int(message.fakequant_precision_mode)] == PRECISION_MODES[1]


def _rule(message: Any) -> Rule:
    balance = _number(message.dmq_balancer.migration_strength) if message.HasField("dmq_balancer") else None
    return Rule(activation=_activation(message), weight=_weight(message), balance=balance)


def _activation(message: Any) -> ActivationRule | None:
    for field, algorithm in _ACTIVATIONS.items():
        if message.HasField(field):
            options = _options(getattr(message, field))
            asymmetric = options.pop("asymmetric", None)
            return ActivationRule(algorithm=algorithm, asymmetric=asymmetric, options=options)
    return None


def _weight(message: Any) -> WeightRule | None:
    for algorithm in algorithms.WEIGHT_ALGORITHMS:
        if message.HasField(algorithm):
            options = _options(getattr(message, algorithm))
            wise = options.pop("channel_wise", None)
            return WeightRule(algorithm=algorithm, channel_wise=wise, options=options)
    return None


def _options(message: Any) -> dict[str, Any]:
    """The fields that are set, a start and an end as one pair."""
    options = {field.name: _number(value) for field, value in message.ListFields() if field.name not in _BITS}
    for name, ends in {"search_range": (0.7, 1.3), "beta_range": (20.0, 2.0)}.items():
        start, end = (options.pop(f"{name}_{which}", None) for which in ("start", "end"))
        if start is not None or end is not None:
            options[name] = (ends[0] if start is None else start, ends[1] if end is None else end)
    return options


def _number(value: Any) -> Any:
    """A float32 as the decimal number that was written."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _problems(message: Any) -> Iterator[str]:
    if message.HasField("batch_num") and message.batch_num < 1:
        yield f"batch_num: expected a whole number of at least 1, got {message.batch_num}"
    if message.joint_quant:
        yield "joint_quant: only false is supported: each input has its own scale; leave it out"
    parts = [("common_config", message.common_config)]
    for field, key in (("override_layer_types", "layer_type"), ("override_layer_configs", "layer_name")):
        names = [getattr(override, key) for override in getattr(message, field)]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"{field}: {key} {name!r} stands there twice; keep one"
        parts += [
            (f"{field}[{number}]", override.calibration_config)
            for number, override in enumerate(getattr(message, field))
        ]
    parts += [(f"tensor_quantize[{number}]", tensor) for number, tensor in enumerate(message.tensor_quantize)]
    for where, part in parts:
        for what in _part_problems(part):
            yield f"{where}.{what}"


def _balancer_problems(message: Any) -> Iterator[str]:
    low, high = BALANCES
    if not message.HasField("migration_strength"):
        yield f"dmq_balancer.migration_strength: missing; expected a number in [{low}, {high}]"
    elif not low <= _number(message.migration_strength) <= high:
        yield f"dmq_balancer.migration_strength: expected [{low}, {high}], got {_number(message.migration_strength)}"


def _part_problems(part: Any) -> Iterator[str]:
    """Of one CalibrationConfig or TensorQuantize."""
    fields = [field.name for field, _ in part.ListFields()]
    for kinds in (tuple(_ACTIVATIONS), algorithms.WEIGHT_ALGORITHMS):
        both = [name for name in kinds if name in fields]
        if len(both) > 1:
            yield f"{both[1]}: stands beside {both[0]}; keep one of them"
    for name in fields:
        message = getattr(part, name)
        if name == "dmq_balancer":
            yield from _balancer_problems(message)
        if name in ("layer_name", "input_index", "dmq_balancer"):
            continue
        for bits in ("num_bits", "quant_bits"):
            if message.HasField(bits) and getattr(message, bits) != 8:
                yield f"{name}.{bits}: only 8 is supported, got {getattr(message, bits)}"
        if message.HasField("dst_type") and (kind := _SCHEMA["DataType"][message.dst_type]) != "INT8":
            yield f"{name}.dst_type: only INT8 is supported, got {kind}"
        options = {key: value for key, value in _options(message).items() if key not in _FIXED}
        if name in _ACTIVATIONS:
            wrong = algorithms.activation_problems(_ACTIVATIONS[name], options)
        else:
            wrong = algorithms.weight_problems(name, options)
        yield from (f"{name}.{key}: {what}" if key else f"{name}: {what}" for key, what in wrong)
