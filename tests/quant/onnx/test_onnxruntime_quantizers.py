"""What ONNX Runtime's own dynamic quantizer is asked for."""

from __future__ import annotations

import logging
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


@pytest.mark.parametrize(
    ("form", "recipe", "narrow", "said"),
    [
        ("U8S8", {}, False, ()),
        ("U8U8", {}, True, ("no VNNI: weights have 7 bits, so that 16-bit sums hold",)),
        ("U8U8", {"framework_default": True}, False, ()),
        ("U8S8", {"target": ("vnni", "avx512", "avx2")}, True,
         ("for avx512 and avx2: weights have 7 bits, so that 16-bit sums hold",)),
        ("U8S8", {"target": ("vnni", "arm")}, False, ()),
        ("U8U8", {"target": ("vnni",)}, True, ("no VNNI: weights have 7 bits, so that 16-bit sums hold",)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("per_channel", [True, False, None])
def test_what_the_dynamic_quantizer_is_asked_for(
    form: str,
    recipe: dict[str, Any],
    narrow: bool,
    said: tuple[str, ...],
    per_channel: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights of 7 bits where this CPU, or one that the file is for, adds in 16 bits; scales of channels are qbench's,
    as far as the weights may reach. What is skipped is so under the name that its product has by then."""
    import onnxruntime.quantization as quantization

    floats, asked, scaled = write_layers(tmp_path / "m.onnx"), [], []
    monkeypatch.setattr(onnxruntime_quantizers.deploy_onnxruntime, "form_for", lambda: form)
    monkeypatch.setattr(onnxruntime_quantizers, "preprocess", lambda source, target: target.write_bytes(
        source.read_bytes()) and target)  # fmt: skip
    monkeypatch.setattr(quantization, "quantize_dynamic", lambda *what, **how: asked.append((what[1], how)))
    monkeypatch.setattr(
        onnxruntime_quantizers.dynamic_scales, "scale_channels", lambda *what, top: scaled.append((what[1], top))
    )
    file, chosen = tmp_path / "int8.onnx", Recipe(per_channel=per_channel, skip_layers=("gemm", "product"), **recipe)
    assert onnxruntime_quantizers.dynamic(floats, file, chosen) == said
    expected = {
        "per_channel": bool(per_channel),
        "weight_type": quantization.QuantType.QInt8,
        "reduce_range": narrow,
        "nodes_to_exclude": ["gemm", "product", "gemm_MatMul"],
        "op_types_to_quantize": None,
    }
    assert asked == [(str(file), expected)]
    assert scaled == ([(file, 64 if narrow else 127)] if per_channel else [])
    onnxruntime_quantizers.dynamic(floats, file, Recipe(embeddings=False))
    assert asked[-1][1]["op_types_to_quantize"] == {"Gemm", "MatMul"}
    assert asked[-1][1]["nodes_to_exclude"] == []


def write_layers(file: Path) -> Path:
    """A Gemm and a MatMul of one weight, and rows of a table."""
    nodes = [
        helper.make_node("Gather", ["w", "ids"], ["rows"], name="lookup"),
        helper.make_node("Gemm", ["rows", "w"], ["h"], name="gemm", transB=1),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="product"),
    ]
    ends = [("ids", onnx.TensorProto.INT64, ["n"]), ("y", onnx.TensorProto.FLOAT, ["n", 4])]
    (inputs, outputs) = ([helper.make_tensor_value_info(*end)] for end in ends)
    noted = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4]) for name in ("w", "h")]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "layers", inputs, outputs, [weight], value_info=noted)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


def test_a_weight_that_several_read_is_one_for_each(tmp_path: Path) -> None:
    """Under a name of its own, the first as it was; what the file notes of its shape is gone, of others it stays."""
    file = write_layers(tmp_path / "m.onnx")
    onnxruntime_quantizers._plain_weights(file)
    graph = onnx.load(str(file)).graph
    weights = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer}
    assert weights == dict.fromkeys(("w", "w_of_gemm_1", "w_of_product_1"), np.eye(4).tolist())
    assert [list(node.input) for node in graph.node] == [["w", "ids"], ["rows", "w_of_gemm_1"], ["h", "w_of_product_1"]]
    assert [value.name for value in graph.value_info] == ["h"]


@pytest.mark.parametrize(("machine", "kind"), [("x86_64", "QUInt8"), ("AMD64", "QUInt8"), ("aarch64", "QInt8")])
@pytest.mark.parametrize(("float_joins", "joined"), [(True, ["b"]), (None, []), (False, [])])
def test_what_the_static_quantizer_is_asked_for(
    machine: str,
    kind: str,
    float_joins: bool | None,
    joined: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes of the type that its kernels have on this kind of machine; all else as its documentation has it. A Gemm
    goes by its own name."""
    import onnxruntime.quantization as quantization

    floats, asked, ids = write_layers(tmp_path / "m.onnx"), [], np.arange(3)

    def quantize(*what: Any, **how: Any) -> None:
        asked.append((what[1], [batch["ids"].tolist() for batch in what[2]], how))

    named = [helper.make_node("Add", [], [], name=name) for name in ("", "b")]
    monkeypatch.setattr(onnxruntime_quantizers.platform, "machine", lambda: machine)
    monkeypatch.setattr(onnxruntime_quantizers, "preprocess", lambda *_: floats)
    monkeypatch.setattr(onnxruntime_quantizers.float_nodes, "find_float_nodes", lambda *_: named)
    monkeypatch.setattr(quantization, "quantize_static", quantize)
    recipe = Recipe(skip_layers=("gemm",), float_joins=float_joins)
    onnxruntime_quantizers.framework_static(floats, tmp_path / "int8.onnx", recipe, (ids,))
    how = {"activation_type": getattr(quantization.QuantType, kind), "nodes_to_exclude": ["gemm", *joined]}
    assert asked == [(str(tmp_path / "int8.onnx"), [[0], [1], [2]], how)]


@pytest.mark.parametrize(
    ("target", "expected"), [(None, None), ((), None), (("vnni", "avx2"), (4, 4)), (("vnni",), (4, 0))]
)
def test_what_a_dynamic_file_is_for(target: Any, expected: tuple[int, int] | None, tmp_path: Path) -> None:
    """All of its integer products are narrow, or none; a file for this machine alone says nothing."""
    kinds = (*onnxruntime_quantizers._INTEGER_PRODUCTS, "MatMul")
    graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"]) for kind in kinds], "g", [], [])
    onnx.save(helper.make_model(graph), str(tmp_path / "m.onnx"))
    facts = onnxruntime_quantizers.describe_target(tmp_path / "m.onnx", Recipe(target=target))
    assert (facts and (facts.layers, facts.layers_narrowed)) == expected


@pytest.mark.parametrize("before", [logging.NOTSET, logging.ERROR])
def test_the_quantizer_is_quiet_for_its_time(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may warn of nothing; afterwards all is as it was, whatever it raised."""
    monkeypatch.setattr(logging.root.manager, "disable", before)
    with onnxruntime_quantizers._quiet_library():
        assert logging.root.manager.disable == logging.WARNING
    assert logging.root.manager.disable == before
    with pytest.raises(BuildError), onnxruntime_quantizers._quantizing():
        raise ValueError
    assert logging.root.manager.disable == before


def test_batches_are_read_once() -> None:
    """However the quantizer asks for them."""
    reader = onnxruntime_quantizers._Reader(iter([{"x": 1}, {"x": 2}, {"x": 3}]))  # type: ignore[dict-item]
    assert [reader.get_next(), next(reader), *reader, reader.get_next()] == [{"x": 1}, {"x": 2}, {"x": 3}, None]
