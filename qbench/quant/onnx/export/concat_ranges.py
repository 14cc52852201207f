"""One range for all that a Concat reads and gives, so that bytes are joined as they are.

What reads a Concat has the widest of its ranges anyway. A U-Net, one thread, each runtime's own tool = 1: ONNX Runtime
0.88 [0.87, 0.88] -> 0.83 [0.83, 0.84], 51.0 -> 51.7 dB; OpenVINO 1.26 [1.24, 1.27] -> 0.99 [0.98, 1.00], 50.6 -> 51.4
dB (tests/benchmarks/by_hand.py unet; SQNR of four examples).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD
from qbench.quant.onnx.sites import Record, Scales, Sites
from qbench.quant.scale_rules import QParams, amct_qparams

WIDEST = 2.0  # by how much the step of a tensor may widen that is read elsewhere, too: 6 dB of that tensor


def ranges(graph: Graph, sites: Sites, record: Record) -> Record:
    """New scales, by their keys in the record, for what Concats read and give: of each one range, where all of it is
    quantized and nothing that is read elsewhere loses more than ``WIDEST`` by it."""
    keys: dict[str, list[str]] = {}
    for site in sites.activations:
        keys.setdefault(site.tensor, []).extend(site.keys)
    scales: dict[str, Scales] = {}
    for tensors in _merge_groups(_concats(graph, sites)):
        common = widest([record[key] for tensor in tensors for key in keys[tensor]])
        steps = [record[key].scale_d or 0.0 for name in tensors if _read_elsewhere(graph, name) for key in keys[name]]
        if common.scale <= WIDEST * min(steps, default=common.scale):
            for key in (key for tensor in tensors for key in keys[tensor]):
                scales[key] = replace(record[key], scale_d=common.scale, offset_d=common.zero_point)
    return scales


def widest(scales: Iterable[Scales]) -> QParams:
    """Of the least range that holds several."""
    ends = [_ends(each) for each in scales]
    return amct_qparams(min(low for low, _ in ends), max(high for _, high in ends))


def _concats(graph: Graph, sites: Sites) -> Iterator[set[str]]:
    """Of each Concat all of whose inputs and whose output are quantized: these tensors."""
    quantized = {place for site in sites.activations for place in site.keys.values()}
    tensors = {site.tensor for site in sites.activations}
    for node in graph.nodes:
        if node.op_type != "Concat" or node.domain not in STANDARD or node.output[0] not in tensors:
            continue
        if all((node.name, i) in quantized for i in range(len(node.input))):
            yield {*node.input, node.output[0], *_pooled(graph, node.input, tensors)}


def _pooled(graph: Graph, tensors: Iterable[str], quantized: Collection[str]) -> Iterator[str]:
    """What MaxPools give of tensors, where it is quantized: the same bytes, fewer of them."""
    for tensor in tensors:
        for reader, _ in graph.readers(tensor):
            if reader.op_type == "MaxPool" and reader.output[0] in quantized:
                yield reader.output[0]


def _merge_groups(groups: Iterator[set[str]]) -> list[set[str]]:
    """The groups, those that share a tensor as one."""
    merged: list[set[str]] = []
    for group in groups:
        shared = [other for other in merged if other & group]
        merged = [other for other in merged if not other & group] + [group.union(*shared)]
    return merged


def _read_elsewhere(graph: Graph, tensor: str) -> bool:
    """Whether another node than a Concat reads a tensor that no Concat gives."""
    maker = graph.maker(tensor)
    kinds = {reader.op_type for reader, _ in graph.readers(tensor)}
    return kinds != {"Concat"} and (maker is None or maker.op_type != "Concat")


def _ends(scales: Scales) -> tuple[float, float]:
    """The lowest and the highest value that bytes stand for."""
    step, offset = scales.scale_d or 1.0, scales.offset_d or 0
    return (LOW - offset) * step, (HIGH - offset) * step
