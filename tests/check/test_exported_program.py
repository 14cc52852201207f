"""Programs of torch.export: told apart from packages, read and never loaded."""

from __future__ import annotations

import json
import zipfile
from types import SimpleNamespace

import pytest
import torch

from qbench.check.check_file import check_file
from qbench.check.exported_program import explain_exported
from qbench.quant.artifacts import torch_export


def save(path, module):
    with torch_export.known_warnings():
        torch.export.save(torch.export.export(module.eval(), (torch.randn(1, 8),)), path)
    return path


def write_archive(path, graph, **others):
    with zipfile.ZipFile(path, "w") as archive:
        if graph is not None:
            archive.writestr("m/models/model.json", graph if isinstance(graph, str) else json.dumps(graph))
        for name, content in others.items():
            archive.writestr(f"m/data/{name.replace('_', '.')}", content)
    return path


def nodes(*targets):
    return {"graph_module": {"graph": {"nodes": [{"target": target} for target in targets]}}}


def test_what_torch_saves_is_no_package(tmp_path):
    """It needs no shapes, and what to do is said."""
    check = check_file(save(tmp_path / "model.pt2", torch.nn.Linear(8, 4)))
    assert (check.format, check.sound) == ("torch.export program", False)
    (finding,) = check.findings
    assert finding.code == "not-compiled"
    assert "(nothing in it is quantized), which no runtime runs as it is" in finding.text


def test_what_would_be_int8_is_counted(tmp_path):
    """By the operators of its graph."""
    graph = nodes("torch.ops.quantized_decomposed.quantize_per_tensor.default", "torch.ops.aten.linear.default")
    finding = explain_exported(write_archive(tmp_path / "m.pt2", graph))
    assert finding is not None
    assert "(1 of its 2 operators quantize or dequantize)" in finding.text


@pytest.mark.parametrize(
    ("graph", "others"),
    [
        (None, {}),
        (nodes("torch.ops.aten.linear.default"), {"model_so": b"code"}),
        ("{", {}),
        ("[]", {}),
        (json.dumps({"graph_module": []}), {}),
    ],
)
def test_any_other_archive_is_left_to_the_runtime(graph, others, tmp_path):
    """One with machine code, one without a graph, and damaged ones; as is what is no archive."""
    assert explain_exported(write_archive(tmp_path / "m.pt2", graph, **others)) is None
    (tmp_path / "text.pt2").write_text("no archive")
    assert explain_exported(tmp_path / "text.pt2") is None


@pytest.mark.parametrize(("size", "is_read"), [(2**28, True), (2**28 + 1, False)])
def test_a_graph_of_more_than_a_quarter_of_a_gigabyte_is_not_read(tmp_path, monkeypatch, size, is_read):
    """Whatever the archive says that it holds."""
    file = write_archive(tmp_path / "m.pt2", nodes("torch.ops.aten.linear.default"))
    told = [SimpleNamespace(filename="m/models/model.json", file_size=size)]
    monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda archive: told)
    assert (explain_exported(file) is not None) == is_read
