"""An fp32 file in the form that a runtime has faster kernels for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx_networks import Draft, save
from quantized_networks import run

from qbench.quant.onnx.export import fast_forms
from qbench.quant.onnx.graph.graph import Graph


def test_a_file_whose_nodes_have_no_names_and_whose_tensors_no_shapes_is_arranged(tmp_path: Path) -> None:
    """As users bring them: both Softmax are flat, and the answers are bit for bit the same."""
    draft = Draft()
    tensor = draft.add("Softmax", ["x"], "", axis=1)
    draft.add("Softmax", [draft.add("Exp", [tensor], "")], "", outputs=["y"], axis=1)
    file = save(draft.model({"x": ["n", 4, 6, 6]}, {"y": ["n", 4, 6, 6]}), tmp_path)
    before, content = Graph.load(file), file.read_bytes()
    after = Graph.load(fast_forms.arrange(file, "onnxruntime"))
    assert [node.op_type for node in after.nodes if node.op_type != "Exp"] == ["Reshape", "Softmax", "Reshape"] * 2
    assert file.read_bytes() == content  # the layers' names are read from it
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4, 6, 6), np.float32)}
    assert np.array_equal(run(after, feed, optimized=False)[0], run(before, feed, optimized=False)[0])


def test_a_file_without_such_forms_is_taken_as_it_is(tmp_path: Path) -> None:
    """One that has no such operator, and one whose operators have the fast form; for each runtime its own, for that of
    a plug-in none."""
    draft = Draft()
    draft.add("Softmax", ["x"], "", outputs=["y"], axis=1)
    model = draft.model({"x": ["n", 4, 6, 6]}, {"y": ["n", 4, 6, 6]})
    fast = onnx.ModelProto.FromString(model.SerializeToString())
    fast.graph.node[0].attribute[0].i = -1
    for name, content, runtime in (("other", model, "openvino"), ("fast", fast, "onnxruntime"), ("any", model, "own")):
        file = save(content, tmp_path, name)
        assert fast_forms.arrange(file, runtime) == file
