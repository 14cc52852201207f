"""The int8 ONNX file that a runtime executes on this CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from qbench.machine import fingerprint
from qbench.quant.onnx import attention, simulation_gap
from qbench.quant.onnx.export import (
    concat_ranges,
    deploy_onnxruntime,
    deploy_openvino,
    executed_layers,
    left_out_ranges,
    slow_in_int8,
    swish_apart,
)
from qbench.quant.onnx.export import narrow_weights as export_narrow_weights
from qbench.quant.onnx.export.executed_layers import Settled
from qbench.quant.onnx.export.narrow_weights import Fitted, widen_for_arm
from qbench.quant.onnx.graph import constants
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.onnx.weights import bias_correction
from qbench.quant.onnx.weights.mean_inputs import find_mean_errors
from qbench.quant.target import ADD_IN_16_BITS, name_cpus
from qbench.quant.target import adds_in_16_bits as target_adds_in_16_bits
from qbench.record.schema import TargetFacts

Array = NDArray[Any]
_APART = (
    "{count} SiLU stand apart from their convolutions, which is faster with AMX and slower without; for a CPU without "
    "AMX build the file there"
)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a reader must know of the form of a file, why layers that were to be int8 run in float (node -> why), and
    what was done for other CPUs (None: it is for this one alone)."""

    notes: tuple[str, ...] = ()
    floats: Mapping[str, str] = field(default_factory=dict)
    target: TargetFacts | None = None


def write(
    graph: Graph,
    sites: Sites,
    record: Record,
    file: Path,
    *,
    runtime: str,
    original: Record | None = None,
    learned: bool = False,
    narrow_weights: bool = True,
    target: tuple[str, ...] = (),
    leave_slow_float: bool = False,
    calibration: tuple[Array, ...] = (),
    mean_inputs: Mapping[str, Array] = MappingProxyType({}),
) -> Written:
    """Writes the QDQ file that ``runtime`` ("onnxruntime" or "openvino") executes.

    Where its kernels add products in 16 bits, here or on a CPU of ``target``, weights get wider steps, unless
    ``narrow_weights`` is off; of ONNX Runtime's kernels for ARM only those that overflow (``widen_for_arm``).

    ``leave_slow_float``: what ONNX Runtime runs faster in float stays so. What it runs in int8 is read from it.
    OpenVINO has its own places and types (``deploy_openvino``), and with AMX a form of its own (``swish_apart``).
    ``original``: the steps of weights before any was widened (None: none was); of the wider ones it is told.
    ``learned``: scales that were trained stay as they are. ``calibration``: examples on which what the runtime computes
    is held against a simulation; none are needed. ``mean_inputs``: of layers (``MeanInputs.means``); the mean errors
    that rounded weights make of them are taken off the biases of ``graph``, in place.
    """
    form = _find_form(runtime)
    here, older = form == "U8U8", form != "S8S8" and target_adds_in_16_bits(target)
    if runtime != "openvino" or form != "U8S8" or "arm" in target:  # others gain nothing by it
        sites = attention.leave_float(sites, attention.find_products(graph))
    narrowed: export_narrow_weights.Choice = export_narrow_weights.NARROW if narrow_weights else "U8S8"
    fitted = export_narrow_weights.fitted(graph, sites, record, narrowed if here or older else form, original=original)
    where = "no VNNI" if here else f"for {name_cpus(target, ADD_IN_16_BITS)}"
    notes = list(_notes_on_sums(fitted, where)) if here or older else []
    overflowing = [site.layer for site in sites.weights] if older and not narrow_weights else []
    if runtime == "onnxruntime" and ("arm" in target or form == "S8S8"):
        for_arm = widen_for_arm(graph, sites, fitted, original or record)
        fitted = for_arm if narrow_weights else fitted
        overflowing = overflowing or ([] if narrow_weights else _list_widened(for_arm))
    floats: Mapping[str, str] = {}
    held = sites
    slow = slow_in_int8.find_slow(graph, sites) if runtime != "openvino" and leave_slow_float and form != "S8S8" else {}
    rounded = replace(sites, weights=tuple(site for site in sites.weights if site.layer not in slow))
    mean_errors = find_mean_errors(graph, rounded, fitted.record, mean_inputs)
    if mean_errors:
        bias_correction.subtract(graph, mean_errors)
    if runtime == "openvino":
        kept = older and narrow_weights
        notes += _save_for_openvino(
            deploy_openvino.deploy(graph, sites, fitted, learned=learned, narrow=kept, calibration=calibration), file
        )
    else:
        floats, held = _save_for_onnxruntime(graph, sites, fitted, file, learned, slow, mean_errors)
        notes += _notes_on_outputs(graph, held)
    if calibration:
        gap = simulation_gap.note(graph, sites, fitted.record, file, calibration, runtime, learned)
        notes += [gap] if gap else []
    facts = _describe_target(held, fitted, target, overflowing) if target else None
    return Written(notes=tuple(notes), floats=floats, target=facts)


def _save_for_openvino(deployed: Graph, file: Path) -> tuple[str, ...]:
    """Writes the file; what to know of its form."""
    apart = swish_apart.set_apart(deployed) if "amx_int8" in fingerprint.onednn_isa() else 0
    constants.share(deployed)
    deployed.save(file)
    return (_APART.format(count=apart),) if apart else ()


def _save_for_onnxruntime(
    graph: Graph,
    sites: Sites,
    fitted: Fitted,
    file: Path,
    learned: bool,
    slow: Mapping[str, str],
    mean_errors: Mapping[str, Array],
) -> tuple[Mapping[str, str], Sites]:
    """Writes the file; which layers are float in it (node -> why), and what it holds in int8. Of ``mean_errors``, which
    were taken off the graph's biases, those of float layers are given back."""
    settled = _settle(graph, sites, fitted, learned, slow)
    if left := mean_errors.keys() - {site.layer for site in settled.sites.weights}:
        bias_correction.subtract(graph, {layer: -mean_errors[layer] for layer in left})
        again = _settle(graph, settled.sites, fitted, learned, {})
        settled = replace(again, floats={**settled.floats, **again.floats})
    constants.share(settled.graph)
    settled.graph.save(file)
    return settled.floats, settled.sites


def adds_in_16_bits(runtime: str, target: tuple[str, ...]) -> bool:
    """Whether the kernels of a runtime add products in 16 bits, here or on a CPU of ``target``."""
    form = _find_form(runtime)
    return form == "U8U8" or (form != "S8S8" and target_adds_in_16_bits(target))


def _find_form(runtime: str) -> deploy_onnxruntime.Form:
    """The bytes that a runtime multiplies here. oneDNN's switch hides instructions from OpenVINO; ONNX Runtime reads
    what the CPU has."""
    return deploy_onnxruntime.form_for(fingerprint.onednn_isa() if runtime == "openvino" else fingerprint.isa())


def _describe_target(sites: Sites, fitted: Fitted, target: tuple[str, ...], overflowing: Iterable[str]) -> TargetFacts:
    """What was done for other CPUs, of the layers that the file holds in int8 (``sites``); ``overflowing``: those whose
    sums may overflow there, since weights stay as they are."""
    layers = {site.layer for site in sites.weights}
    widened = {layer: count for layer, count in (fitted.widened or {}).items() if layer in layers and count}
    return TargetFacts(
        cpus=target,
        layers=len(layers),
        layers_narrowed=len(widened),
        channels_narrowed=sum(widened.values()),
        overflowing=tuple(layer for layer in overflowing if layer in layers),
    )


def _list_widened(fitted: Fitted) -> list[str]:
    """The layers of which a channel got a wider step."""
    return [layer for layer, count in (fitted.widened or {}).items() if count]


def _settle(graph: Graph, sites: Sites, fitted: Fitted, learned: bool, slow: Mapping[str, str]) -> Settled:
    """What ONNX Runtime runs in int8; trained ranges clip where they are left out, others are joined at a Concat."""
    if not learned:
        joint = {**fitted.record, **concat_ranges.ranges(graph, sites, fitted.record)}
        return executed_layers.settled(graph, sites, replace(fitted, record=joint), slow)
    settled = executed_layers.settled(graph, sites, fitted, slow)
    if not settled.floats:
        return settled
    clipped = left_out_ranges.clip(graph, sites, settled.sites, fitted.record)
    again = executed_layers.settled(clipped, settled.sites, fitted)
    return replace(again, floats={**settled.floats, **again.floats})


def _notes_on_sums(fitted: Fitted, where: str) -> Iterator[str]:
    """What kernels that add in 16 bits, ``where`` they do, do to the values, or to the weights."""
    if fitted.narrowed is None:
        yield f"{where}: products are added in 16 bits, which may overflow; narrow_weights: true avoids it"
    else:
        share = f"{fitted.narrowed:.0%} of the channels of weights"
        yield f"{where}: {share} use fewer than 8 bits, so that 16-bit sums hold"


def _notes_on_outputs(graph: Graph, sites: Sites) -> Iterator[str]:
    """Which outputs are quantized."""
    if names := executed_layers.outputs_quantized(graph, sites):
        yield (
            f"{names}: quantized to 8 bits for ONNX Runtime, whose convolutions give bytes only; last_layer_float or "
            "skip_layers keeps the layer before it float"
        )
