"""Rules of qbench/quant/onnx/export/left_out_ranges.py: where a range clips that a file does not hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration_models import cnn, config

from qbench.quant.onnx.export import left_out_ranges
from qbench.quant.onnx.sites import ActivationSite, Record, Scales, Sites, find


def given() -> tuple[Sites, Record]:
    """What the layers of the residual network and both inputs of its addition read, each with a range."""
    network = cnn()
    sites = find(network, config(network, tensors=[("sum", 0), ("sum", 1)]))
    keys = [key for site in sites.activations for key in site.keys]
    return sites, {key: Scales(scale_d=0.5, offset_d=-28) for key in keys}


def without(sites: Sites, *places: tuple[str, int]) -> Sites:
    """What is left of them."""
    kept = []
    for site in sites.activations:
        keys = {key: place for key, place in site.keys.items() if place not in places}
        kept += [replace(site, keys=keys)] if keys else []
    return replace(sites, activations=tuple(kept))


@pytest.mark.parametrize(
    "places", [(("point", 0),), (("deep", 0), ("sum", 1)), (("sum", 1),), (("stem", 0), ("head", 0))]
)
def test_who_was_trained_to_read_a_range_reads_what_lies_in_it(places: tuple[tuple[str, int], ...]) -> None:
    """Readers that the file holds quantized read what they did; each tensor is clipped once."""
    sites, record = given()
    network = cnn()
    before = network.model.SerializeToString(deterministic=True)
    clipped = left_out_ranges.clip(network, sites, without(sites, *places), record)
    assert network.model.SerializeToString(deterministic=True) == before
    added = [node for node in clipped.nodes if node.op_type == "Clip" and node.name != "clip"]
    tensors = {network.node(name).input[position] for name, position in places}
    assert {node.input[0] for node in added} == tensors
    assert len(added) == len(tensors)
    for node in added:
        ends = [clipped.constant(name) for name in node.input[1:]]
        assert [float(end) for end in ends if end is not None] == [-50.0, 77.5]
        assert all(end is not None and end.dtype == np.float32 for end in ends)
    for name, position in (place for site in sites.activations for place in site.keys.values()):
        maker = clipped.maker(clipped.node(name).input[position])
        assert (maker is not None and maker in added) == ((name, position) in places)


def test_where_all_is_held_nothing_clips() -> None:
    """The copy is the graph."""
    sites, record = given()
    network = cnn()
    clipped = left_out_ranges.clip(network, sites, sites, record)
    assert [node.name for node in clipped.nodes] == [node.name for node in network.nodes]
    assert isinstance(sites.activations[0], ActivationSite)
