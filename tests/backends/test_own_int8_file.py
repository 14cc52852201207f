"""An int8 ONNX file of the user's own: taken as it is, held against the float network, counted by its own layers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench import registry
from qbench.backends import own_int8_file
from qbench.backends.base import BuildJob
from qbench.backends.own_int8_file import require_alike
from qbench.errors import BuildError
from qbench.models.base import Network
from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.recipe import Recipe

BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))
    for name in ("onnxruntime", "openvino")
    for reason in [registry.load("backend", name).missing()]
]


def vectors(n=16, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 64)).astype(np.float32)


def network(file, *, inputs=("x", "z"), classes=10, batch="n"):
    """x + z through two matrix products."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((64, 32)) / 8, "v": rng.standard_normal((32, classes)) / 8}
    nodes = [
        helper.make_node("Add", ["x", "z"], ["s"], name="sum"),
        helper.make_node("MatMul", ["s", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="second"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net",
        [value(name, TensorProto.FLOAT, [batch, 64]) for name in inputs],
        [value("y", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


def by_another_tool(source, file, *, mode="static", operators=False):
    """Quantized by ONNX Runtime's own tool."""
    from onnxruntime import quantization as tool

    if mode == "dynamic":
        tool.quantize_dynamic(str(source), str(file))
        return file

    class Reader(tool.CalibrationDataReader):
        feeds = iter([{"x": vectors(), "z": vectors(seed=9)} for _ in range(2)])

        def get_next(self):
            return next(self.feeds, None)

    form = tool.QuantFormat.QOperator if operators else tool.QuantFormat.QDQ
    tool.quantize_static(str(source), str(file), Reader(), quant_format=form, activation_type=tool.QuantType.QUInt8)
    return file


def build(name, own, folder, *, mode="static"):
    backend = registry.load("backend", name)
    folder.mkdir(exist_ok=True)
    job = BuildJob(
        network=Network(kind="onnx", path=network(folder / "float.onnx")),
        mode=mode,
        recipe=backend.resolve(mode, Recipe(name="file", file=own.name)),
        calibration=(vectors(), vectors(seed=9)),
        training=None,
        folder=folder,
        int8_file=own,
    )
    return backend.build(job)


@pytest.mark.parametrize("operators", [False, True], ids=["QDQ", "QOperator"])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_file_of_another_tool_is_taken_as_it_is(name, operators, tmp_path):
    """Its bytes are what is shipped, its layers what is counted; the note says whose it is."""
    own = by_another_tool(network(tmp_path / "m.onnx"), tmp_path / "int8.onnx", operators=operators)
    built = build(name, own, tmp_path / "x")
    assert (tmp_path / "x" / built.file).read_bytes() == own.read_bytes()
    assert sorted(layer.macs for layer in built.layers) == [32 * 10, 64 * 32]
    assert all(layer.int8 for layer in built.layers)
    note, _, told = str(built.note).partition("; ")
    assert note == "the user's own file, int8.onnx: qbench quantized nothing"
    # OpenVINO 2026.4 with AVX512 joins both layers and answers wrongly where it knows how many examples there are.
    assert not told or (name == "openvino" and told.startswith("compiled for any number of examples: "))
    runner = registry.load("backend", name).load(tmp_path / "x" / built.file, threads=1)
    actual = runner.outputs(runner(runner.prepare((vectors(), vectors(seed=9)))))
    expected = onnxruntime_session.run(tmp_path / "m.onnx", (vectors(), vectors(seed=9)))
    assert np.abs(actual - expected).max() < 0.1 * np.abs(expected).max()


def test_a_dynamic_file_is_of_the_mode_dynamic(tmp_path):
    """Its outputs depend on the batch, so it is evaluated as dynamic variants are; the other mode is refused."""
    source = network(tmp_path / "m.onnx")
    own = by_another_tool(source, tmp_path / "dyn.onnx", mode="dynamic")
    assert all(row.int8 for row in build("onnxruntime", own, tmp_path / "x", mode="dynamic").layers)
    with pytest.raises(
        BuildError, match=r"it chooses ranges as it runs \(Dyn.*write `int8: \{file: dyn.onnx, mode: dyn"
    ):
        build("onnxruntime", own, tmp_path / "y")
    fixed = by_another_tool(source, tmp_path / "fixed.onnx")
    with pytest.raises(BuildError, match=r"it has fixed ranges only: write `int8: \{file: fixed.onnx, mode: static\}`"):
        build("onnxruntime", fixed, tmp_path / "z", mode="dynamic")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_file_that_does_not_fit_the_float_network_is_refused(name, tmp_path):
    """Not whole, not int8, inputs in another order, another number of classes: each says what to do."""
    (tmp_path / "cut.onnx").write_bytes(b"\x08\x08nothing")
    with pytest.raises(BuildError, match="cut.onnx: not a whole ONNX file"):
        build(name, tmp_path / "cut.onnx", tmp_path / "x")
    with pytest.raises(BuildError, match="nothing in it is quantized: a float file goes under source"):
        build(name, network(tmp_path / "f.onnx"), tmp_path / "x")
    swapped = by_another_tool(network(tmp_path / "s.onnx", inputs=("z", "x")), tmp_path / "swapped.onnx")
    with pytest.raises(BuildError, match=r"takes z \(float32\), x \(float32\), .* the same inputs in another order"):
        build(name, swapped, tmp_path / "x")
    wide = by_another_tool(network(tmp_path / "w.onnx", classes=12), tmp_path / "wide.onnx")
    with pytest.raises(BuildError, match=r"has the shape \[8, 12\], that of the float model \[8, 10\]"):
        build(name, wide, tmp_path / "x")


@pytest.mark.parametrize(("own_batch", "batch"), [(4, "n"), ("n", 4), (4, 4), (2, 4)])
def test_a_fixed_batch_is_filled_on_either_side(own_batch, batch, tmp_path):
    """The file is asked for as many examples as it takes, and so is the float network."""
    own = by_another_tool(network(tmp_path / "m.onnx"), tmp_path / "int8.onnx")
    model = onnx.load(str(own))
    for value in (*model.graph.input, *model.graph.output):
        if own_batch != "n":
            value.type.tensor_type.shape.dim[0].dim_value = own_batch
    onnx.save(model, str(own))
    source = network(tmp_path / "float.onnx", batch=batch)
    asked = []

    def open_file(file):
        def run(inputs):
            asked.append([len(array) for array in inputs])
            return onnxruntime_session.run(file, inputs)

        return run

    examples = (vectors(), vectors(seed=9))
    job = BuildJob(network=None, mode="static", recipe=Recipe(), calibration=examples, training=None,
                   folder=tmp_path, int8_file=own)  # fmt: skip
    own_int8_file.require_outputs(job, source, own, open_file)
    assert asked == [[8, 8] if own_batch == "n" else [own_batch, own_batch]]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("wrong shape"), BuildError, r"^own.onnx does not take this data \(float32\[8, 64\]\): wrong shape"),
        (BuildError("another matter"), BuildError, "^another matter$"),
        (MemoryError("no room"), MemoryError, "^no room$"),
    ],
)
def test_what_a_file_does_not_take_is_told_by_its_shape(error, kind, said, monkeypatch):
    """But a lack of memory, and what was told already."""

    def open_file(file):
        raise error

    monkeypatch.setattr(onnx_file, "fixed_batch", lambda file: None)
    job = BuildJob(network=None, mode="static", recipe=Recipe(), calibration=(vectors(),), training=None,
                   folder=None, int8_file="own.onnx")  # fmt: skip
    with pytest.raises(kind, match=said):
        own_int8_file.require_outputs(job, "source", "file", open_file)


@pytest.mark.parametrize(
    ("outputs", "expected", "said"),
    [
        (np.zeros((2, 3)), np.zeros((5, 3)), None),  # a file of a fixed batch gives as many as it takes
        (np.zeros(2), np.zeros(2), None),
        (np.zeros((2, 4)), np.zeros((2, 3)), r"has the shape \[2, 4\], that of the float model \[2, 3\]"),
        (np.zeros((2, 3, 1)), np.zeros((2, 3)), "has the shape"),
        (np.zeros(()), np.zeros(1), "has the shape"),
        (np.full((2, 3), np.nan), np.zeros((2, 3)), "gives NaN or infinity where the float model gives numbers"),
        (np.full((2, 3), np.nan), np.full((2, 3), np.inf), None),
    ],
)
def test_the_first_outputs_have_one_shape_and_are_numbers_where_fp32_s_are(outputs, expected, said):
    """However many examples either was asked."""
    if said is None:
        require_alike("own.onnx", outputs, expected)
        return
    with pytest.raises(BuildError, match=said):
        require_alike("own.onnx", outputs, expected)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"x": "float32", "ids": "int64"}, None),
        ({"a": "float32", "b": "int64"}, None),  # names may be others
        (
            {"ids": "int64", "x": "float32"},
            "takes ids (int64), x (float32), the float model x (float32), ids (int64): the",
        ),
        ({"x": "float32"}, "takes x (float32), the float model x (float32), ids (int64): give an int8 file that was"),
        ({"x": "float32", "ids": None}, "takes x (float32), ids (no tensor), the float model"),
        ({}, "takes nothing, the float model"),
    ],
)
def test_inputs_are_those_of_the_float_model_in_its_order(own, told, monkeypatch):
    """By their types, one after the other."""
    types = {"float": {"x": "float32", "ids": "int64"}, "own": own}
    monkeypatch.setattr(onnx_file, "input_types", types.__getitem__)
    if told is None:
        own_int8_file._require_inputs("float", "own", "mine.onnx")
        return
    with pytest.raises(BuildError) as raised:
        own_int8_file._require_inputs("float", "own", "mine.onnx")
    assert str(raised.value).startswith(f"mine.onnx {told}")
