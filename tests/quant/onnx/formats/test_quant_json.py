"""<prefix>.quant.json: what is quantized in the models beside it, and that they are still those models."""

from __future__ import annotations

import json

import onnx_networks
import pytest

from qbench.errors import UsageError
from qbench.quant.onnx import sites
from qbench.quant.onnx.formats import config, quant_json
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales


@pytest.fixture(name="saved")
def saved_(tmp_path):
    """A document beside one model."""
    graph = Graph(onnx_networks.pools())
    actual = sites.find(graph, config.default(graph))
    record = {key: Scales(scale_d=0.5, offset_d=3) for site in actual.activations for key in site.keys}
    record["conv"] = Scales(scale_d=0.25, offset_d=0, scale_w=(0.1, 0.3, 0.2), offset_w=(0, 0, 0))
    (tmp_path / "m_deploy_model.onnx").write_bytes(b"model")
    file = tmp_path / "m.quant.json"
    files = {"onnxruntime": tmp_path / "m_deploy_model.onnx"}
    quant_json.write(file, graph=graph, sites=actual, record=record, files=files, parity={"onnxruntime": {"same": 1.0}})
    return file


def test_it_names_layers_tensors_and_files(saved):
    """Scales as in the record, weights by their least and greatest scale, each file with its content's digest."""
    content = quant_json.read(saved)
    assert content["layers"][0] == {
        "name": "conv", "operator": "Conv", "input": "image", "scale_d": 0.25, "offset_d": 0, "weight": "conv.weight",
        "axis": 0, "scale_w": [0.1, 0.3, 3],
    }  # fmt: skip
    assert {"node": "max", "index": 0, "input": "conv_out", "scale_d": 0.5, "offset_d": 3} in content["tensors"]
    assert content["files"]["onnxruntime"]["name"] == "m_deploy_model.onnx"
    assert content["files"]["onnxruntime"]["bytes"] == 5
    assert content["parity"] == {"onnxruntime": {"same": 1.0}}
    assert saved.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.with_name("m_deploy_model.onnx").write_bytes(b"other"), "is not the file that was saved"),
        (
            lambda file: file.with_name(f"m_deploy_model.onnx.{'0' * 16}.data").write_bytes(b"w"),
            "is not the file that was saved",
        ),
        (lambda file: file.with_name("m_deploy_model.onnx").unlink(), "is not beside it; save the models again"),
        (lambda file: file.write_text("{"), "not a .quant.json file"),
        (lambda file: file.write_text("[]"), "not a .quant.json file of version 1"),
        (lambda file: file.write_text(json.dumps({"version": 2, "files": {}})), "of version 1; save the models again"),
        (lambda file: file.unlink(), "no such file; qbench onnx save writes it"),
    ],
)
def test_models_that_were_changed_are_noticed(saved, change, message):
    """A document that does not describe what lies beside it is refused."""
    change(saved)
    with pytest.raises(UsageError, match=message):
        quant_json.read(saved)
