"""Graphs from the wild: prepared they compute the same in a form that can be quantized, or they are refused."""

from __future__ import annotations

import contextlib
import functools

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS, Draft, half, mlp, old_style, random_inputs, residual_cnn, save, two_inputs

from qbench.errors import ModelError, UsageError
from qbench.quant.onnx.graph import equivalence, names, without_weights
from qbench.quant.onnx.graph import graph as graph_module
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.prepare import infer_shapes, prepare


def outputs(graph, inputs):
    return equivalence.run(graph, dict(zip(graph.inputs, inputs, strict=True)))


def prepared(model, tmp_path, **options):
    """The prepared graph, after onnx's checker took it and it proved equal to the original."""
    graph = prepare(save(model, tmp_path), **options)
    onnx.checker.check_model(graph.model, full_check=True)
    original = Graph(model)
    names.give(original)
    inputs = random_inputs(model, seed=1)
    for ours, theirs in zip(outputs(original, inputs), outputs(graph, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        tolerance = 1e-2 if ours.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance)
    return graph


@pytest.mark.parametrize("name", NETWORKS)
def test_a_prepared_graph_computes_the_same(name, tmp_path):
    """Inputs, outputs and their values; every node has a name of its own and no weight has two readers."""
    model = NETWORKS[name]()
    graph = prepared(model, tmp_path)
    assert graph.outputs == Graph(model).outputs
    assert graph.inputs == Graph(model).inputs
    listed = [node.name for node in graph.nodes]
    assert all(listed)
    assert len(set(listed)) == len(listed)
    assert graph.opset >= 13
    weights = [node.input[1] for node in graph.nodes if node.op_type in ("Conv", "Gemm", "ConvTranspose")]
    assert all(len(graph.readers(weight)) == 1 for weight in weights)


def test_the_input_file_is_not_changed(tmp_path):
    """Preparing reads."""
    file = save(old_style(), tmp_path)
    before = file.read_bytes()
    prepare(file)
    assert file.read_bytes() == before


def test_it_is_deterministic(tmp_path):
    """Twice the same file, twice the same bytes."""
    file = save(old_style(), tmp_path)
    first, second = (prepare(file).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_prepared_stays_as_it_is(name, tmp_path):
    """Preparing twice changes nothing more."""
    once = prepare(save(NETWORKS[name](), tmp_path))
    once.save(tmp_path / "once.onnx")
    twice = prepare(tmp_path / "once.onnx")
    assert [node.SerializeToString() for node in twice.nodes] == [node.SerializeToString() for node in once.nodes]
    assert set(twice.constants) == set(once.constants)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_never_a_crash(tmp_path, data):
    """Whatever bytes are cut off or changed: it is prepared or refused."""
    whole = _small()
    cut = data.draw(st.integers(0, len(whole)))
    places = data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4))
    damaged = bytearray(whole)
    for place, byte in places:
        damaged[place] = byte
    file = tmp_path / "damaged.onnx"
    file.write_bytes(bytes(damaged[: cut or None]))
    with contextlib.suppress(ModelError):
        prepare(file)


@functools.cache
def _small():
    """A file whose bytes are mostly structure."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "conv", 1, 2)], "relu")
    draft.add("MaxPool", [x], "pool", kernel_shape=[2, 2], outputs=["y"])
    return draft.model({"x": [1, 1, 4, 4]}, {"y": [1, 2, 3, 3]}).SerializeToString()


def test_old_habits_are_brought_up_to_date(tmp_path):
    """Opset 11, initializers as inputs, nameless and duplicated names, Constant and Identity nodes."""
    graph = prepared(old_style(), tmp_path)
    assert (graph.opset, graph.inputs) == (13, ("image",))
    assert [value.name for value in graph.model.graph.input] == ["image"]
    assert {node.op_type for node in graph.nodes} & {"Constant", "Identity", "BatchNormalization"} == set()
    values = [node.name for node in graph.nodes]
    assert [name for name in values if name.startswith("twice")] == ["twice", "twice_1", "twice_2"]
    assert "Conv_1" in values


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 15, 21])
def test_opsets_from_old_to_new(opset, tmp_path):
    """Older ones become 13, newer ones stay."""
    graph = prepared(residual_cnn(opset=opset), tmp_path)
    assert graph.opset == max(opset, 13)


def test_a_format_newer_than_the_runtime_is_no_obstacle(tmp_path):
    """onnx's builders stamp their newest format on any opset; what the opset needs is enough."""
    model = residual_cnn()
    model.ir_version = onnx.IR_VERSION
    assert prepare(save(model, tmp_path)).model.ir_version == 10


def test_a_model_that_cannot_be_converted_says_what_to_do(tmp_path, monkeypatch):
    """The message names both opsets and the way out."""

    def fail(*_):
        raise RuntimeError("no adapter for Conv")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fail)
    with pytest.raises(ModelError, match=r"needs opset 13, this model has 11.*no adapter.*; export it with opset 13"):
        prepare(save(old_style(), tmp_path))


def test_shapes_are_inferred_with_a_dynamic_batch(tmp_path):
    """The symbol goes through the network."""
    graph = prepared(residual_cnn(), tmp_path)
    assert graph.shape(graph.node("conv2").output[0]) == ("batch", 8, 16, 16)
    assert graph.element_type(graph.node("add").output[0]) == np.float32


def test_sizes_that_are_computed_are_followed(tmp_path):
    """From a Shape through the numbers that are moved about, to what has that shape."""
    draft = Draft()
    shape = draft.add("Shape", [draft.conv("x", "conv", 3, 4)], "shape")
    places = [draft.constant(name, np.array([at])) for name, at in (("batch", 0), ("channels", 1))]
    sizes = [draft.add("Gather", [shape, place], f"size{i}") for i, place in enumerate(places)]
    both = draft.add("Concat", [*sizes, draft.constant("rest", np.array([-1]))], "both", axis=0)
    draft.add("Reshape", [draft.nodes[0].output[0], both], "reshaped")
    draft.add("Relu", ["reshaped_out"], "relu", outputs=["y"])
    graph = Graph(draft.model({"x": [2, 3, 8, 8]}, {"y": [None] * 3}))
    infer_shapes(graph)
    assert graph.shape("reshaped_out") == (2, 4, 64)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_computes_in_float32(kind, tmp_path):
    """Inputs and outputs keep their type; weights become float32, Casts within become harmless."""
    draft = Draft()
    numpy_type = helper.tensor_dtype_to_np_dtype(kind)
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(numpy_type)
    outer = TensorProto.FLOAT16 if kind == TensorProto.FLOAT16 else TensorProto.FLOAT
    x = draft.add("Cast", ["x"], "narrow", to=kind)
    x = draft.add("MatMul", [x, draft.constant("w", weight)], "mm")
    draft.add("Cast", [x], "out", to=outer, outputs=["y"])
    file = save(draft.model({"x": (outer, ["n", 4])}, {"y": (outer, ["n", 4])}, opset=17), tmp_path)
    if kind == TensorProto.BFLOAT16:  # ONNX Runtime has no kernel for it on CPUs
        with pytest.raises(ModelError, match="cannot load the model"):
            prepare(file)
        return
    graph = prepare(file)
    assert graph.constant(graph.node("mm").input[1]).dtype == np.float32
    assert [node.op_type for node in graph.nodes] == ["Cast", "MatMul", "Cast"]
    assert graph.element_type("x") == graph.element_type("y") == np.float16
    x = np.float16([[1, 2, 3, 4]])
    np.testing.assert_allclose(outputs(graph, [x])[0], x @ weight, rtol=1e-2, atol=1e-2)


def test_half_precision_keeps_its_inputs_and_outputs(tmp_path):
    """A float16 network is quantized like one in float32."""
    graph = prepared(NETWORKS["half"](), tmp_path)
    assert graph.element_type("image") == graph.element_type("logits") == np.float16
    assert all(graph.element_type(name) == np.float32 for name in graph.constants)


@pytest.mark.parametrize("name", ["branches", "loop", "two_inputs", "tokens", "decoder"])
def test_half_precision_in_every_shape(name, tmp_path):
    """Subgraphs, several inputs and outputs, integers among the inputs."""
    graph = prepared(half(NETWORKS[name]()), tmp_path)
    assert all(graph.element_type(tensor) != np.float16 for tensor in graph.constants)


def test_weights_that_are_computed_from_constants_are_computed_now(tmp_path):
    """A transposed weight, a scaled one, and a Cast between."""
    draft = Draft()
    w = draft.add("Transpose", [draft.weight("w", 4, 8)], "t", perm=[1, 0])
    w = draft.add("Mul", [w, draft.constant("two", np.float32(2))], "scale")
    draft.add("MatMul", ["x", w], "mm", outputs=["y"])
    graph = prepared(draft.model({"x": ["n", 8]}, {"y": ["n", 4]}), tmp_path)
    assert [node.name for node in graph.nodes] == ["mm"]
    assert graph.constant(graph.node("mm").input[1]).shape == (8, 4)


def test_a_large_computed_constant_that_is_no_weight_stays_computed(tmp_path):
    """The file does not grow by a mask that an operator makes."""
    draft = Draft()
    size = draft.constant("size", np.array([400, 400]))
    mask = draft.add("ConstantOfShape", [size], "mask")
    draft.add("Sub", ["x", mask], "add", outputs=["y"])
    graph = prepared(draft.model({"x": [400, 400]}, {"y": [400, 400]}), tmp_path)
    assert [node.name for node in graph.nodes] == ["mask", "add"]


def test_a_constant_that_is_an_output_stays(tmp_path):
    """Constant and Identity nodes that make an output of the graph keep making it."""
    draft = Draft()
    draft.add("Constant", [], "c", value=numpy_helper.from_array(np.float32([1, 2]), "v"), outputs=["fixed"])
    draft.add("Relu", ["x"], "relu")
    draft.add("Identity", ["relu_out"], "same", outputs=["y"])
    graph = prepared(draft.model({"x": [2]}, {"y": [2], "fixed": [2]}), tmp_path)
    assert graph.outputs == ("y", "fixed")


def test_an_identity_that_a_subgraph_reads_stays(tmp_path):
    """The branches read its output by name."""
    model = NETWORKS["branches"]()
    nodes = list(model.graph.node)
    nodes[0].output[0] = "before"
    same = helper.make_node("Identity", ["before"], ["conv_out"], name="same")
    del model.graph.node[:]
    model.graph.node.extend([nodes[0], same, *nodes[1:]])
    assert "same" in [node.name for node in prepared(model, tmp_path).nodes]


def test_gemm_is_normalised(tmp_path):
    """transB, alpha and beta go into the constants, and the bias has one value an output."""
    graph = prepared(mlp(), tmp_path)
    for name in ("second", "third"):
        node = graph.node(name)
        assert [attribute(node, key) for key in ("transB", "alpha", "beta")] == [None, None, None]
        assert graph.constant(node.input[2]).shape == graph.constant(node.input[1]).shape[1:]


@pytest.mark.parametrize("bias", [np.float32(3), np.ones((1, 4), np.float32), np.ones((1, 1), np.float32), None])
def test_every_form_of_a_bias(bias, tmp_path):
    """A scalar, a row, one value and none; with beta."""
    draft = Draft()
    content = [] if bias is None else [draft.constant("b", bias)]
    draft.add("Gemm", ["x", draft.weight("w", 8, 4), *content], "fc", outputs=["y"], beta=0.25, alpha=2.0)
    graph = prepared(draft.model({"x": ["n", 8]}, {"y": ["n", 4]}), tmp_path)
    node = graph.node("fc")
    assert not node.attribute
    assert bias is None or graph.constant(node.input[2]).shape == (4,)


def test_without_fusion_the_layers_stay_apart(tmp_path):
    """``fuse=False``, or by name."""
    count = {"fuse": 0, "all": 3, "one": 2}
    for key, options in {"fuse": {}, "all": {"fuse": False}, "one": {"skip_fusion": ["conv1", "conv2"]}}.items():
        graph = prepared(residual_cnn(), tmp_path, **options)
        assert sum(node.op_type == "BatchNormalization" for node in graph.nodes) == count[key]


def test_an_unknown_name_is_refused_with_a_near_one(tmp_path):
    """``skip_fusion_layers`` names what is there."""
    with pytest.raises(UsageError, match=r"skip_fusion_layers: no layer named 'conv22'; did you mean 'conv2'\?"):
        prepare(save(residual_cnn(), tmp_path), skip_fusion=["conv22"])


def test_external_weights_are_taken_in(tmp_path):
    """Weights beside the file, of whatever size."""
    file = tmp_path / "external.onnx"
    onnx.save(residual_cnn(), str(file), save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = prepare(file)
    inputs = random_inputs(residual_cnn())
    np.testing.assert_allclose(outputs(graph, inputs)[0], outputs(Graph(residual_cnn()), inputs)[0], rtol=1e-3)


def test_models_above_protobufs_limit(tmp_path, monkeypatch):
    """Nothing serializes the weights: opset and shapes are worked out without them, sessions load them from beside."""
    monkeypatch.setattr(graph_module, "LARGEST_FILE", 2000)
    monkeypatch.setattr(equivalence, "LARGEST_MESSAGE", 2000)
    monkeypatch.setattr(without_weights, "SMALL", 16)
    graph = prepared(old_style(), tmp_path)
    assert graph.opset == 13
    assert graph.shape(graph.node("Conv_5").output[0]) == (1, 8, 16, 16)


@pytest.mark.parametrize(
    "operator", ["QuantizeLinear", "DequantizeLinear", "QLinearConv", "ConvInteger", "DynamicQuantizeLinear",
                 "AscendQuant", "MatMulNBits", "QGemm", "DynamicQuantizeMatMul"]
)  # fmt: skip
def test_quantized_models_are_refused(operator, tmp_path):
    """Whoever quantized it; the message names nodes and the way out."""
    nodes = [helper.make_node(operator, ["x"], [f"y{i}"], name=f"theirs{i}") for i in range(5)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y4")]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]))
    expected = r"already quantized \(theirs0, theirs1, theirs2 and 2 more\); give the float model"
    with pytest.raises(ModelError, match=expected):
        prepare(save(model, tmp_path))


def test_a_quantized_node_within_a_branch_is_found(tmp_path):
    """Subgraphs are searched too."""
    model = NETWORKS["branches"]()
    match = next(node for node in model.graph.node if node.op_type == "If")
    match.attribute[0].g.node[0].op_type = "ConvInteger"
    with pytest.raises(ModelError, match="already quantized"):
        prepare(save(model, tmp_path))


def test_what_onnx_runtime_cannot_load_is_refused(tmp_path):
    """With the runtime's words, on one line."""
    node = helper.make_node("Warp", ["x"], ["y"], name="warp", domain="vendor")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("vendor", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=opsets, ir_version=8
    )
    with pytest.raises(ModelError, match=r"model.onnx: ONNX Runtime cannot load the model: .*vendor") as caught:
        prepare(save(model, tmp_path))
    assert "\n" not in str(caught.value)


def test_randomness_is_refused(tmp_path):
    """What differs from call to call cannot be compared with its int8."""
    draft = Draft()
    noise = draft.add("RandomNormalLike", ["x"], "noise")
    draft.add("Add", ["x", noise], "add", outputs=["y"])
    with pytest.raises(ModelError, match=r"differ from call to call.*eval mode"):
        prepare(save(draft.model({"x": [4]}, {"y": [4]}), tmp_path))


def test_an_example_is_used_where_random_inputs_do_not_fit(tmp_path):
    """Sizes that must agree with a value: random inputs fail, the example judges."""
    draft = Draft()
    x = draft.add("Reshape", ["x", "shape"], "reshape")
    draft.linear(x, "fc", 4, 2)
    draft.nodes[-1].output[0] = "y"
    file = save(draft.model({"x": [12], "shape": (TensorProto.INT64, [2])}, {"y": [None, 2]}), tmp_path)
    example = (np.ones(12, np.float32), np.array([3, 4]))
    assert equivalence.reference(Graph.load(file)) is None
    assert equivalence.reference(Graph.load(file), example) is not None
    assert len(prepare(file).nodes) == len(prepare(file, example=example).nodes) == 2


def test_an_example_that_does_not_fit_is_refused(tmp_path):
    """With the runtime's reason."""
    with pytest.raises(ModelError, match="does not take the example"):
        prepare(save(two_inputs(), tmp_path), example=(np.ones((1, 1, 8, 8), np.float32), np.ones((1, 7), np.float32)))
    with pytest.raises(ModelError, match="the example has 1 arrays, the model 2 inputs: image, features"):
        prepare(save(two_inputs(), tmp_path), example=(np.ones((1, 1, 8, 8), np.float32),))


def test_a_preparation_that_changes_the_result_is_refused(tmp_path, monkeypatch):
    """A fault in qbench or in onnx's converter never becomes a wrong model."""
    from qbench.quant.onnx.graph import gemm

    normalise = gemm.normalise

    def wrong(graph):
        normalise(graph)
        graph.set_constant("fc.bias", graph.constant("fc.bias") + 1)

    monkeypatch.setattr(gemm, "normalise", wrong)
    with pytest.raises(ModelError, match="the model differs \\(output logits: largest difference"):
        prepare(save(residual_cnn(), tmp_path))


def test_a_fusion_that_changes_the_result_is_undone(tmp_path, monkeypatch):
    """Should one pass its own check and still be wrong, the graph is prepared without any."""
    from qbench.quant.onnx.graph import fusion

    fuse = fusion.fuse

    def wrong(graph, skip):
        fusions = fuse(graph, skip)
        graph.set_constant("conv1.weight", graph.constant("conv1.weight") * 2)
        return fusions

    monkeypatch.setattr(fusion, "fuse", wrong)
    graph = prepared(residual_cnn(), tmp_path)
    assert sum(node.op_type == "BatchNormalization" for node in graph.nodes) == 3


def test_functions_of_the_model_are_inlined(tmp_path):
    """A layer within a function can be quantized as well."""
    body = [helper.make_node("MatMul", ["a", "b"], ["c"], name="inner")]
    function = helper.make_function("own", "Linear", ["a", "b"], ["c"], body, [helper.make_opsetid("", 17)])
    node = helper.make_node("Linear", ["x", "w"], ["y"], name="call", domain="own")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weight])
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    assert [operator.op_type for operator in prepare(save(model, tmp_path)).nodes] == ["MatMul"]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (np.float32([1, 2]), np.float32([1, 2.5]), "largest difference 0.5"),
        (np.float32([1, np.nan]), np.float32([np.nan, 1]), "NaN or inf in other places"),
        (np.float32([1, np.inf]), np.float32([1, -np.inf]), "NaN or inf in other places"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 values differ"),
        (np.float32([1]), np.float64([1]), "float64 of shape"),
        (np.float32([1]), np.float32([[1]]), "of shape \\(1, 1\\) instead"),
        ([np.float32([1])], [np.float32([2])], "largest difference 1"),
    ],
)
def test_how_outputs_differ(ours, theirs, words):
    """In words, for floats by size, for everything else exactly."""
    from re import search

    assert search(words, equivalence._difference(ours, theirs, 1e-3))
    assert equivalence._difference(ours, ours, 0.0) is None


def test_what_a_file_tells_of_its_tensors_is_read_beside_what_is_inferred():
    """Of an operator that nobody knows the file alone tells the shape; what it tells of tensors that no node makes is
    left out."""

    def inferred(told, operator="Own"):
        node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
        nodes = [node(operator, ["x"], ["m"], domain="own" if operator == "Own" else ""), node("Relu", ["m"], ["y"])]
        ends = [info("x", onnx.TensorProto.FLOAT, [2, 3])], [info("y", onnx.TensorProto.FLOAT, None)]
        values = [info(name, onnx.TensorProto.FLOAT, shape) for name, shape in told.items()]
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
        model = onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "g", *ends, value_info=values), opset_imports=opsets, ir_version=8
        )
        graph = Graph(model)
        infer_shapes(graph)
        return {value.name for value in graph.model.graph.value_info}, graph.shape("m")

    assert inferred({"m": [4, 5], "gone": [1]}) == ({"m"}, (4, 5))
    assert inferred({}) == (set(), None)
    assert inferred({}, "Abs") == ({"m"}, (2, 3))
