"""The deploy model for OpenVINO: signed and unsigned bytes where its kernels gain by them, floats elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_networks
import pytest
from onnx_networks import Draft
from quantized_networks import Quantized, of, quantized, run

from qbench.quant.uniform.files.record import Scales
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs import deploy_openvino, narrow
from qbench.quant.uniform.outputs.fake_quant import fake_quant


def deployed(made: Quantized, *, learned: bool = False) -> Graph:
    fitted = narrow.fitted(made.graph, made.sites, made.record)
    return deploy_openvino.deploy(made.graph, made.sites, fitted, learned=learned)


def types(model: Graph) -> dict[str, Any]:
    """What is quantized -> the type of its bytes."""
    return {
        node.input[0]: model.constant(node.input[2]).dtype for node in model.nodes if node.op_type == "QuantizeLinear"
    }


def test_a_nearly_symmetric_range_becomes_symmetric() -> None:
    """[-6, 10] is widened to [-10, 10] and loses its zero point; [-1, 10] and [0, 10] keep theirs."""

    def scales(low: float, high: float) -> Scales:
        step = (high - low) / 255
        return Scales(scale_d=step, offset_d=-128 - round(low / step))

    made = deploy_openvino.balanced({"a": scales(-6, 10), "b": scales(-1, 10), "c": scales(0, 10), "w": Scales()})
    assert made["a"].offset_d == 0
    assert made["a"].scale_d == pytest.approx(10 / 127, rel=0.01)
    assert made["b"] == scales(-1, 10)
    assert made["c"] == scales(0, 10)
    assert made["w"] == Scales()


def test_signed_and_unsigned_bytes_side_by_side() -> None:
    """What has no offset is signed, what a ReLU gives is unsigned; trained scales stay as they are."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 4, 4)], "relu")
    draft.conv(x, "two", 4, 4)
    draft.nodes[-1].output[0] = "y"
    made = of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 8, 8]}))
    assert sorted(str(one) for one in types(deployed(made)).values()) == ["int8", "uint8"]
    assert {str(one) for one in types(deployed(made, learned=True)).values()} == {"uint8"}


def test_what_takes_floats_gets_floats() -> None:
    """A convolution's output is quantized for the next layer and an Add, not for other operators nor the caller."""
    draft = Draft()
    conv = draft.conv("x", "one", 4, 4)
    added = draft.add("Add", [draft.conv(conv, "two", 4, 4), conv], "add")
    draft.add("Sigmoid", [draft.conv(added, "three", 4, 4)], "act", outputs=["y"])
    draft.add("Identity", [draft.conv(added, "four", 4, 4)], "give", outputs=["z"])
    made = of(draft.model({"x": ["batch", 4, 8, 8]}, {name: ["batch", 4, 8, 8] for name in "yz"}))
    assert set(types(deployed(made))) == {"x", "one_out", "two_out", "add_out"}


@pytest.mark.parametrize("name", sorted(onnx_networks.NETWORKS))
def test_its_values_are_those_of_its_record(name: str) -> None:
    """The file gives what the float simulation of the same places and scales gives."""
    made = quantized(name)
    fitted = narrow.fitted(made.graph, made.sites, made.record)
    record = deploy_openvino.balanced(fitted.record)
    simulated = fake_quant(made.graph, deploy_openvino.sites_of(made.graph, made.sites), record)
    for one, other in zip(run(deployed(made), made.feed), run(simulated, made.feed), strict=True):
        assert np.abs(one.astype(np.float64) - other).max() <= 0.05 * np.abs(other).max()


def test_one_place_of_a_sequence_keeps_its_rank(tmp_path: Path) -> None:
    """``x[:, -1]`` is written without a scalar index, for which OpenVINO gave [1, batch, classes] (a GPT)."""
    openvino_model = pytest.importorskip("qbench.quant.openvino_model")
    pytest.importorskip("openvino", reason="openvino is not installed; pip install 'qbench[openvino]'")
    draft = Draft()
    product = draft.add("MatMul", ["x", draft.weight("w", 8, 6)], "product")
    draft.add("Gather", [product, draft.constant("last", np.array(-1, np.int64))], "last_place", outputs=["y"], axis=1)
    made = of(draft.model({"x": ["batch", 4, 8]}, {"y": ["batch", 6]}))
    model = deployed(made)
    assert [model.constant(node.input[1]).shape for node in model.nodes if node.op_type == "Gather"] == [(1,)]
    model.save(tmp_path / "int8.onnx")
    x = np.random.default_rng(1).normal(size=(3, 4, 8)).astype(np.float32)
    (expected,) = run(model, {"x": x})
    found = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), (x,))
    assert found.shape == expected.shape == (3, 6)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
