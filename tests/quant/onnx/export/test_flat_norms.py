"""LayerNorm over the last of more than three dimensions, for OpenVINO."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from onnx_networks import Draft, save
from optional_packages import needs_openvino
from quantized_networks import run

from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx.export import flat_norms
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import prepare

CHANNELS = 6


def normalized(
    *, batch: int | str = "batch", perm: tuple[int, ...] = (0, 2, 3, 1), sizes: tuple[int, ...] = (5, 4), **keys: object
) -> Graph:
    """A convolution whose channels a Transpose moves, a norm over the last dimension, and a Transpose back.
    ``keys``: ``axis``, ``second`` (another reads what the norm reads), ``statistics`` (the norm gives its mean)."""
    draft = Draft()
    tensor = draft.conv("x", "conv", CHANNELS, CHANNELS, dims=len(sizes))
    moved = draft.add("Transpose", [tensor], "moved", perm=perm)
    shape = [(batch, CHANNELS, *sizes)[i] for i in perm]
    axis = keys.get("axis", -1)
    factors, shifts = (draft.bias(name, shape[axis:]) for name in ("factors", "shifts"))
    outputs = ["norm_out", "mean"] if keys.get("statistics") else None
    draft.add("LayerNormalization", [moved, factors, shifts], "norm", outputs=outputs, axis=axis, epsilon=1e-3)
    draft.add("Add", ["norm_out", moved if keys.get("second") else "norm_out"], "last", outputs=["y"])
    more = {"mean": [*shape[:-1], 1]} if keys.get("statistics") else {}
    with tempfile.TemporaryDirectory() as folder:
        return prepare(save(draft.model({"x": [batch, CHANNELS, *sizes]}, {"y": shape, **more}), Path(folder)))


def flat(graph: Graph) -> tuple[Graph, list[str]]:
    """The graph with flat norms, and the kinds of its nodes from the convolution on."""
    changed = graph.copy()
    flat_norms.flatten(changed)
    return changed, [node.op_type for node in changed.nodes]


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, ["Reshape", "Transpose", "LayerNormalization", "Reshape"]),
        ({"sizes": (3, 5, 4), "perm": (0, 2, 3, 4, 1)}, ["Reshape", "Transpose", "LayerNormalization", "Reshape"]),
        ({"axis": 3}, ["Reshape", "Transpose", "LayerNormalization", "Reshape"]),
        ({"batch": 3}, ["Transpose", "Reshape", "LayerNormalization", "Reshape"]),
        ({"second": True}, ["Transpose", "Reshape", "LayerNormalization", "Reshape"]),
        ({"perm": (0, 3, 2, 1)}, ["Transpose", "Reshape", "LayerNormalization", "Reshape"]),
    ],
    ids=["places", "volume", "axis by number", "fixed batch", "read twice", "moved otherwise"],
)
def test_a_norm_of_places_gives_the_same_values(keys: dict, kinds: list[str]) -> None:
    """[n, places, channels] holds the same rows, so every value stays bit for bit; channels that a Transpose moves last
    for the norm alone are moved in the flat form where the batch is open."""
    graph = normalized(**keys)
    changed, after = flat(graph)
    assert [kind for kind in after if kind != "Identity"] == ["Conv", *kinds, "Add"]
    feed = {"x": np.random.default_rng(1).standard_normal((3, *graph.shape("x")[1:])).astype(np.float32)}
    assert np.array_equal(run(changed, feed, optimized=False)[0], run(graph, feed, optimized=False)[0])


@pytest.mark.parametrize(
    "keys",
    [{"sizes": (5,), "perm": (0, 2, 1)}, {"axis": 2}, {"statistics": True}],
    ids=["three dimensions", "two of them", "its mean is read"],
)
def test_other_norms_stay(keys: dict) -> None:
    """OpenVINO has kernels for these, or more is asked of the norm than its values."""
    graph = normalized(**keys)
    assert flat(graph)[1] == [node.op_type for node in graph.nodes]


@needs_openvino
def test_openvino_runs_it_by_one_kernel(tmp_path: Path) -> None:
    """As it stands OpenVINO makes a mean and a norm of its own of it; flat it is one step. That is why."""
    kinds = []
    for name, graph in (("as it stands", normalized()), ("flat", flat(normalized())[0])):
        graph.save(tmp_path / f"{name}.onnx")
        compiled = openvino_model.compile_file(tmp_path / f"{name}.onnx")
        steps = {node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ordered_ops()}
        kinds.append(steps & {"MVN", "Reduce", "RMS"})
    assert kinds == [{"Reduce", "RMS"}, {"MVN"}]
