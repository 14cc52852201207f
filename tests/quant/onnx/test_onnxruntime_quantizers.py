"""What ONNX Runtime's own dynamic quantizer is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from qbench.errors import BuildError, UsageError
from qbench.quant.onnx import onnxruntime_quantizers, onnxruntime_session
from qbench.quant.recipe import Recipe

RNG = np.random.default_rng(0)


def write_lookup(file: Path) -> Path:
    """Rows of a table, one of them 50 times as large as the others, through a linear layer; no node has a name."""
    table, weight = (RNG.standard_normal(shape).astype(np.float32) for shape in ((40, 16), (16, 8)))
    table[0] *= 50
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("MatMul", ["rows", "weight"], ["y"]),
        ],
        "lookup",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3, 8])],
        [numpy_helper.from_array(values, name) for name, values in (("table", table), ("weight", weight))],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


def decibels(file: Path, floats: Path, feed: dict[str, Any]) -> float:
    """The SQNR of a file's outputs."""
    (expected,), (outputs,) = (onnxruntime_session.open_session(each).run(None, feed) for each in (floats, file))
    return float(10 * np.log10((expected**2).sum() / ((outputs - expected) ** 2).sum()))


@pytest.mark.parametrize(("embeddings", "bytes_of_tables"), [(True, True), (None, True), (False, False)])
def test_tables_are_bytes_unless_they_are_to_be_float(
    tmp_path: Path, embeddings: bool | None, bytes_of_tables: bool
) -> None:
    """The linear layer is int8 either way. One scale for a table whose rows differ costs all but its largest row; a
    float table leaves the error of the layer alone."""
    floats, file = write_lookup(tmp_path / "fp32.onnx"), tmp_path / "int8.onnx"
    onnxruntime_quantizers.dynamic(floats, file, Recipe(embeddings=embeddings, per_channel=True))
    graph = onnx.load(str(file)).graph
    tables = {tensor.name: tensor.data_type for tensor in graph.initializer if list(tensor.dims) == [40, 16]}
    assert list(tables.values()) == [onnx.TensorProto.UINT8 if bytes_of_tables else onnx.TensorProto.FLOAT]
    assert "MatMulInteger" in {node.op_type for node in graph.node}
    feed = {"ids": RNG.integers(1, 40, (4, 3))}
    assert (decibels(file, floats, feed) > 35) is not bytes_of_tables


def test_what_a_quantizer_raises_is_one_message() -> None:
    """But for qbench's own errors, and a lack of memory."""
    for error, kind, said in (
        (KeyError("axis"), BuildError, "quantizer cannot quantize this model: KeyError: .*axis.*skip_layers"),
        (UsageError("mine"), UsageError, "^mine$"),
        (MemoryError("full"), MemoryError, "^full$"),
    ):  # fmt: skip
        with pytest.raises(kind, match=said), onnxruntime_quantizers._quantizing("/tmp/x"):
            raise error


@pytest.mark.parametrize(
    ("error", "calls"), [(None, [{}]), (ValueError(), [{}, {"skip_symbolic_shape": True}]), (MemoryError(), [{}])]
)
def test_where_symbolic_shapes_fail_the_others_are_inferred(
    error: Exception | None, calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a working folder that is gone afterwards, by full paths; not where memory ran out."""
    from onnxruntime.quantization import shape_inference

    asked: list[Any] = []

    def process(source: str, target: str, **options: Any) -> None:
        asked.append(options)
        assert (source, target) == (str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"))
        assert Path.cwd() != tmp_path
        Path("left behind").write_text("x")
        if error is not None and not options:
            raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shape_inference, "quant_pre_process", process)
    if isinstance(error, MemoryError):
        with pytest.raises(MemoryError):
            onnxruntime_quantizers.preprocess(Path("a.onnx"), Path("b.onnx"))
    else:
        assert onnxruntime_quantizers.preprocess(Path("a.onnx"), Path("b.onnx")) == Path("b.onnx")
    assert asked == calls
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []
