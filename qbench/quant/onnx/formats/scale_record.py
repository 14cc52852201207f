"""record.txt <-> Record: the scales that were found, as protobuf text in AMCT's form.

record {
  key: "conv1"
  value { scale_d: 0.0078 offset_d: -5 scale_w: 0.0016 (one for each channel) offset_w: 0 dst_type: "INT8" }
}
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench import registry
from qbench.errors import UsageError, refuse
from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx.formats import protobuf_text, text_file
from qbench.quant.onnx.sites import Record, Scales, Sites
from qbench.quant.scale_rules import LEAST_SCALE

if TYPE_CHECKING:
    from qbench.quant.onnx.graph.graph import Graph

INT8 = "INT8"
SHIFTS = (1, 16)  # of shift_bit, as AMCT documents it
# Every field that AMCT's releases write for a layer. Those that hold no scale are read over, so is shift_bit: by how
# much an accumulator is shifted on its way to half precision is the hardware's affair and changes no value here.
_SCHEMA: protobuf_text.Schema = {
    "ScaleOffsetRecord": {"record": "repeated MapFiledEntry"},
    "MapFiledEntry": {"key": "string", "value": "SingleLayerRecord"},
    "SingleLayerRecord": {
        "scale_d": "float",
        "offset_d": "int32",
        "scale_w": "repeated float",
        "offset_w": "repeated int32",
        "shift_bit": "repeated uint32",
        "dst_type": "string",
        "act_type": "string",
        "wts_type": "string",
        "tensor_balance_factor": "repeated float",
        "cluster": "repeated int32",
        "skip_fusion": "bool",
        "is_tensor_quantize": "bool",
        "op_data_type": "string",
        "channels": "uint32",
        "height": "uint32",
        "width": "uint32",
    },
}


def read(file: Path, *, empty: bool = False) -> Record:
    """A record file; ``empty``: one without entries is taken. Raises ``UsageError`` with everything that is wrong."""
    text = text_file.read(file, "record file", "no such record; qbench onnx quantize writes it")
    return loads(text, name=str(file), empty=empty)


def loads(text: str, *, name: str = "record.txt", empty: bool = False) -> Record:
    """The record in a text, keys in its order; ``name`` stands before every problem."""
    entries = protobuf_text.parse(text, name, _SCHEMA, "ScaleOffsetRecord").record
    if not entries and not empty:
        raise UsageError(f"{name}: an empty record; run qbench onnx quantize and calibrate again")
    problems, scales_by_key = [], {}
    for number, entry in enumerate(entries, start=1):
        where = repr(entry.key) if entry.key else f"record {number}"
        if not entry.key:
            problems.append(f"{where}: no key; give it the name of its layer")
        elif entry.key in scales_by_key:
            problems.append(f"{where}: stands there twice; keep one")
        problems += [f"{where}: {what}" for what in _problems(entry.value)]
        scales_by_key[entry.key] = _scales(entry.value)
    refuse(name, problems)
    return scales_by_key


def write(record: Record, file: Path) -> None:
    """Writes a record whole or not at all, mode 0640."""
    text_file.write(dumps(record), file)


def dumps(record: Record) -> str:
    """The text of a record."""
    message = protobuf_text.empty(_SCHEMA, "ScaleOffsetRecord")
    for key, scales in record.items():
        entry = message.record.add(key=key)
        value = entry.value
        if scales.scale_d is not None:
            value.scale_d = scales.scale_d
        if scales.offset_d is not None:
            value.offset_d = scales.offset_d
        value.scale_w.extend(scales.scale_w)
        value.offset_w.extend(scales.offset_w)
        value.tensor_balance_factor.extend(scales.balance)
        value.dst_type = INT8
    return protobuf_text.text(message)


def require_complete(record: Record, graph: Graph, sites: Sites, *, file: Path, batch_num: int) -> None:
    """Raises ``UsageError`` unless the record holds every scale that the sites of a prepared graph need, each of the
    right length, and nothing else."""
    refuse(str(file), [*_strangers(record, sites), *_missing(record, graph, sites, batch_num)])


def _problems(value: Any) -> Iterator[str]:
    """What is wrong with the numbers of one entry, whatever model it belongs to."""
    if value.HasField("scale_d") and not _positive(value.scale_d):
        yield f"scale_d {value.scale_d:g} is not a positive number; calibrate again"
    elif value.HasField("scale_d") and not _documented(value.scale_d):
        yield f"scale_d {value.scale_d:g} is outside [{LEAST_SCALE:.3g}, {1 / LEAST_SCALE:.3g}]; calibrate again"
    if value.HasField("offset_d") and not LOW <= value.offset_d <= HIGH:
        yield f"offset_d {value.offset_d} is outside [{LOW}, {HIGH}]; calibrate again"
    wrong = [number for number, scale in enumerate(value.scale_w) if not _positive(scale)]
    if wrong:
        yield f"scale_w[{wrong[0]}] {value.scale_w[wrong[0]]:g} is not a positive number; quantize the model again"
    elif wrong := [number for number, scale in enumerate(value.scale_w) if not _documented(scale)]:
        yield (
            f"scale_w[{wrong[0]}] {value.scale_w[wrong[0]]:g} is outside [{LEAST_SCALE:.3g}, {1 / LEAST_SCALE:.3g}]; "
            "quantize the model again"
        )
    if wrong := [bits for bits in value.shift_bit if not SHIFTS[0] <= bits <= SHIFTS[1]]:
        yield f"shift_bit {wrong[0]} is outside [{SHIFTS[0]}, {SHIFTS[1]}]; an accumulator has 32 bits"
    if any(value.offset_w):
        yield f"offset_w {next(filter(None, value.offset_w))} is not 0; weights are quantized symmetrically"
    if len(value.offset_w) not in (0, 1, len(value.scale_w)):
        yield f"{len(value.offset_w)} offset_w for {len(value.scale_w)} scale_w; give one for each, or none"
    for field in ("dst_type", "act_type", "wts_type"):
        if (kind := getattr(value, field)) not in ("", INT8):
            yield f"{field} {kind!r}; qbench quantizes to {INT8}"
    if value.cluster:
        yield "cluster: non-uniform quantization; qbench quantizes uniformly"


def _scales(value: Any) -> Scales:
    return Scales(
        scale_d=value.scale_d if value.HasField("scale_d") else None,
        offset_d=value.offset_d if value.HasField("scale_d") else None,
        scale_w=tuple(value.scale_w),
        offset_w=(0,) * len(value.scale_w),
        balance=tuple(value.tensor_balance_factor),
    )


def _strangers(record: Record, sites: Sites) -> Iterator[str]:
    keys = {key for site in sites.activations for key in site.keys} | {site.layer for site in sites.weights}
    for key in record:
        if key not in keys:
            hint = registry.suggest(key, keys) or "; a record belongs to one model and configuration"
            yield f"{key!r}: nothing of that name is quantized in this model{hint}"


def _missing(record: Record, graph: Graph, sites: Sites, batch_num: int) -> Iterator[str]:
    keys = dict.fromkeys(key for site in sites.activations for key in site.keys)
    if missing := [key for key in keys if record.get(key, Scales()).scale_d is None]:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield (
            f"{missing[0]!r}{others}: no scale_d: calibration saw fewer than batch_num batches ({batch_num}), or did "
            "not run; run qbench onnx calibrate"
        )
    for site in sites.weights:
        count = len(record.get(site.layer, Scales()).scale_w)
        weight = graph.constant(site.tensor)
        assert weight is not None, site.tensor
        expected = 1 if site.axis is None else weight.shape[site.axis]
        if count != expected:
            yield f"{site.layer!r}: {count} scale_w where its weight needs {expected}; quantize the model again"


def _documented(value: float) -> bool:
    """Whether a scale is one that AMCT writes, up to float32's rounding: from float32's epsilon to its reciprocal."""
    return bool(LEAST_SCALE * (1 - 1e-6) <= value <= (1 + 1e-6) / LEAST_SCALE)


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
