"""ONNX files from anywhere: what contradicts itself is one message that names the file, before anything is decoded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_networks
import pytest
from onnx import TensorProto, helper, numpy_helper

import qbench.onnx as steps
from qbench.errors import ModelError, QbenchError
from qbench.models import onnx as source
from qbench.models.base import ModelReference
from qbench.quant.artifacts import onnx_check, onnx_problems
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.graph import constants, equivalence
from qbench.quant.onnx.graph import pads as pads_module
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import prepare


def write(model, folder, old=b"", new=b""):
    """A file as somebody else may have written it, unchecked."""
    file = folder / "hostile.onnx"
    file.write_bytes(model.SerializeToString().replace(old, new) if old else model.SerializeToString())
    return file


def refused(file, words):
    """Both ways into qbench say the same, and name the file."""
    with pytest.raises(ModelError, match=words) as caught:
        steps.config(file)
    assert str(caught.value).startswith(f"{file}: ")
    with pytest.raises(ModelError, match=words) as caught:
        source.load(ModelReference(name="mine", source="onnx", path=file))
    assert str(file) in str(caught.value)


def weight(model, name="conv1.weight"):
    return next(entry for entry in model.graph.initializer if entry.name == name)


def other_dimensions(model):
    weight(model).dims[0] = 7


def negative(model):
    weight(model).dims[0] = -8


def beyond_all(model):
    weight(model).dims[:] = [2**40, 2**40]


def unknown_type(model):
    weight(model).data_type = 57


def unknown_declared_type(model):
    model.graph.input[0].type.tensor_type.elem_type = 99


def one_input(model):
    del model.graph.node[0].input[1:]


def other_attribute(model):
    node = model.graph.node[0]
    ones = [entry for entry in node.attribute if entry.name != "strides"]
    del node.attribute[:]
    node.attribute.extend([*ones, helper.make_attribute("strides", "SAME")])


def in_a_node(model):
    tensor = numpy_helper.from_array(np.ones(4, np.float32))
    tensor.dims[0] = 5
    model.graph.node.insert(0, helper.make_node("Constant", [], ["unread"], name="c", value=tensor))


def no_group(model):
    node = next(entry for entry in model.graph.node[0].attribute if entry.name == "group")
    node.i = 0


def no_output(model):
    del model.graph.node[3].output[:]


def calls_itself(model):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    nodes = [helper.make_node("F", ["a"], ["b"], domain="mine")]
    model.functions.append(helper.make_function("mine", "F", ["a"], ["b"], nodes, opsets))
    model.opset_import.append(opsets[1])


def doubles(model):
    """60 functions, each of which calls the next one twice: a few kilobytes that unfold to 2^60 nodes."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    for i in range(60):
        ends = zip(("a", "b"), ("b", "c"), strict=True)
        nodes = [helper.make_node(f"F{i + 1}", [a], [b], domain="mine") for a, b in ends]
        model.functions.append(helper.make_function("mine", f"F{i}", ["a"], ["c"], nodes, opsets))
    last = helper.make_function("mine", "F60", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)
    model.functions.append(last)
    model.opset_import.append(opsets[1])
    model.graph.node.append(helper.make_node("F0", ["logits"], ["more"], domain="mine"))
    model.graph.output.append(helper.make_tensor_value_info("more", 1, ["batch", 10]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_dimensions, r"tensor 'conv1.weight': \d+ bytes where its shape \[7, 3, 3, 3\] of float takes \d+"),
        (negative, r"tensor 'conv1.weight': a negative dimension"),
        (beyond_all, r"tensor 'conv1.weight': a shape that nothing can hold"),
        (unknown_type, r"tensor 'conv1.weight': an unknown data type \(57\)"),
        (unknown_declared_type, r"input 'image': an unknown data type \(99\)"),
        (one_input, r"input size 1 not in range"),
        (other_attribute, r"strides"),
        (in_a_node, r"16 bytes where its shape \[5\]"),
        (no_output, r"it gives nothing"),
        (no_group, r"node 'conv1': group \[0\]: at least 1 is needed"),
        (calls_itself, r"function 'F' calls itself"),
        (doubles, r"its functions unfold to 1.15e\+18 nodes"),
    ],
)
def test_what_contradicts_itself_is_one_message(change, words, tmp_path):
    """The same in ``qbench onnx`` and as a suite's source, with the file and the tensor or node."""
    model = onnx_networks.residual_cnn()
    change(model)
    refused(write(model, tmp_path), words)


def test_bytes_that_are_no_text_are_refused_wherever_they_stand(tmp_path):
    """A name of a node, a tensor, or a declared value."""
    model = onnx_networks.residual_cnn()
    model.metadata_props.add(key="madeby", value="x")
    for name in (b"conv1.weight", b"relu1", b"image", b"madeby"):
        refused(write(model, tmp_path, name, b"\xff" + name[1:]), "a name in it is no text")


@pytest.mark.parametrize(
    "where", ["/etc/hostname", "../outside.bin", "a/../../outside.bin", "link.bin", "sub/x.bin", ""]
)
def test_weights_are_read_beside_the_model_only(where, tmp_path):
    """No absolute path, no way out of the folder, no link, whatever it points at."""
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    for place in (tmp_path / "outside.bin", folder / "real.bin"):
        place.write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to(folder / "real.bin")
    (folder / "sub").symlink_to(tmp_path)
    model = onnx_networks.residual_cnn()
    tensor = weight(model)
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": where, "length": str(size)}.items():
        tensor.external_data.add(key=key, value=value)
    refused(write(model, folder), "its values lie at")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"length": "12"}, "gives 12 from 0 on"),
        ({"offset": "4000"}, "has 4096 and gives 96 from 4000 on"),
        ({"offset": "x"}, "no number"),
        ({"offset": "1e3"}, "no number"),
        ({"location": "gone.bin"}, "its values lie in gone.bin, which must stand beside the model"),
        ({"location": "pipe"}, "its values lie in pipe, which must stand beside the model"),
    ],
)
def test_external_weights_hold_what_their_shape_takes(keys, words, tmp_path):
    """Checked before a byte is read: a wrong length, a place behind the end, a pipe that would never end."""
    (tmp_path / "w.bin").write_bytes(bytes(4096))
    os.mkfifo(tmp_path / "pipe")
    model = onnx_networks.residual_cnn()
    tensor = weight(model)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": "w.bin"} | keys).items():
        tensor.external_data.add(key=key, value=value)
    refused(write(model, tmp_path), words)


def test_a_pipe_and_a_folder_are_no_model(tmp_path):
    """Nothing is waited for."""
    os.mkfifo(tmp_path / "pipe.onnx")
    for file in (tmp_path / "pipe.onnx", tmp_path):
        with pytest.raises(
            ModelError, match=r"cannot be read: (a named pipe, and a regular file is wanted|Is a directory)"
        ):
            onnx_check.load(file)


def test_what_exporters_really_write_is_accepted(tmp_path):
    """Every network of the tests, one with functions, sparse weights, an output of unknown rank."""
    for make in onnx_networks.NETWORKS.values():
        onnx_check.load(write(make(), tmp_path))
    model = onnx_networks.mlp()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    tensor = weight(model, "second.bias")
    dense = numpy_helper.to_array(tensor)
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(dense[3:5], "second.bias"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([3, 4]), "indices"))
    sparse.dims.extend(dense.shape)
    model.graph.initializer.remove(tensor)
    constant = Graph(onnx_check.load(write(model, tmp_path))).constant("second.bias")
    assert np.array_equal(constant, np.where(np.isin(np.arange(32), (3, 4)), dense, 0))


def test_an_input_of_unknown_rank_is_calibrated(tmp_path):
    """What the runtime takes decides, not what the file leaves out."""
    model = onnx_networks.residual_cnn()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    batch = np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32)
    rules = steps.Rules(batch_num=1)
    steps.all(write(model, tmp_path), [batch], tmp_path / "m", rules=rules)


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand", "Tile", "Range"])
def test_a_few_bytes_that_ask_for_terabytes_are_not_computed(operator, tmp_path):
    """A constant that would fill the memory stays a node, or is refused by the runtime; nothing is allocated."""
    draft = onnx_networks.Draft()
    sizes = draft.constant("sizes", np.array([2**20, 2**20]))
    ends = [draft.constant(name, np.int64(value)) for name, value in (("begin", 0), ("end", 2**40), ("step", 1))]
    constant = draft.constant("one", np.ones((1, 1), np.float32))
    inputs = {"ConstantOfShape": [sizes], "Expand": [constant, sizes], "Tile": [constant, sizes], "Range": ends}[
        operator
    ]
    x = draft.add("Gemm", ["x", draft.weight("w", 4, 4)], "fc")
    huge = draft.add("Size", [draft.add(operator, inputs, "huge")], "size")
    draft.add("Add", [x, draft.add("Cast", [huge], "cast", to=1)], "add", outputs=["y"])
    graph = Graph(draft.model({"x": [2, 4]}, {"y": [2, 4]}))
    constants.fold(graph)
    assert "huge_out" not in graph.constants
    file = write(graph.model, tmp_path)
    program = (
        "import resource, sys, qbench.onnx as steps, onnxruntime\n"
        "from qbench.errors import QbenchError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))\n"
        "try:\n    steps.config(sys.argv[1])\nexcept QbenchError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout or done.stdout.startswith(str(file))


def test_a_weight_that_is_computed_is_still_computed(tmp_path):
    """The bound is on what is larger than the model itself: a tiled weight becomes a constant."""
    draft = onnx_networks.Draft()
    tiled = draft.add("Tile", [draft.weight("w", 4, 4), draft.constant("by", np.array([1, 8]))], "tiled")
    draft.add("MatMul", ["x", tiled], "fc", outputs=["y"])
    graph = Graph(draft.model({"x": [2, 4]}, {"y": [2, 32]}))
    constants.fold(graph)
    assert graph.constant(tiled).shape == (4, 32)


def test_a_loop_without_end_is_ended(tmp_path, monkeypatch):
    """A person waits two minutes at most, and is told why."""
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("go", "go_on"), ("s", "s_on"))]
    values = {"i": (7, []), "go": (9, []), "s": (1, [2, 4]), "go_on": (9, []), "s_on": (1, [2, 4])}
    infos = {name: helper.make_tensor_value_info(name, *kind) for name, kind in values.items()}
    body = helper.make_graph(nodes, "body", [infos[n] for n in ("i", "go", "s")], [infos[n] for n in ("go_on", "s_on")])
    draft = onnx_networks.Draft()
    x = draft.add("Gemm", ["x", draft.weight("w", 4, 4)], "fc")
    starts = [draft.constant("n", np.int64(2**62)), draft.constant("on", np.bool_(True)), x]
    draft.add("Loop", starts, "loop", body=body, outputs=["y"])
    file = write(draft.model({"x": [2, 4]}, {"y": [2, 4]}), tmp_path)
    monkeypatch.setattr(equivalence, "SECONDS", 0.5)
    with pytest.raises(ModelError, match=r"hostile.onnx: one inference takes longer than 0.5 s: is there a Loop"):
        prepare(file)
    session = onnxruntime_session.open_session(file)
    with pytest.raises(ModelError, match="longer than 0.2 s"):
        onnxruntime_session.call(session, None, {"x": np.ones((2, 4), np.float32)}, seconds=0.2)


def test_inputs_too_large_to_try_are_not_made(tmp_path):
    """An input of 16 TB is told by its shape alone; the network is then not judged on random values."""
    model = onnx_networks.residual_cnn()
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 2**20
    assert not list(equivalence.random_inputs(Graph(model)))


@pytest.mark.parametrize(
    ("pads", "own"), [([0] * 6, [1] * 4), ([0, 0, 1, 1, 0, 0, 1, 1], [2**63 - 1] * 4), ([0] * 8, [1, 1])]
)
def test_pads_that_do_not_fit_are_left_to_the_runtime(pads, own):
    """Too few for the rank, or more than an integer holds beside the convolution's own: nothing is taken in."""
    draft = onnx_networks.Draft()
    x = draft.add("Pad", ["image", draft.constant("by", np.array(pads))], "pad")
    draft.add("Conv", [x, draft.weight("w", 4, 1, 3, 3)], "conv", pads=own, outputs=["y"])
    ends = [helper.make_tensor_value_info(name, 1, None) for name in ("image", "y")]
    graph = helper.make_graph(draft.nodes, "g", ends[:1], ends[1:], draft.initializers)
    assert pads_module.take_in(Graph(helper.make_model(graph))) == ()


def test_a_very_long_chain_is_walked(tmp_path):
    """1,500 nodes behind one another are more than Python recurses; nothing on the way needs to."""
    draft = onnx_networks.Draft()
    x = draft.conv("image", "conv", 1, 4)
    for i in range(1500):
        x = draft.add("Relu", [x], f"relu{i}")
    model = draft.model({"image": [1, 1, 8, 8]}, {x: [1, 4, 8, 8]})
    assert steps.config(write(model, tmp_path)).layers.keys() == {"conv"}
    with pytest.raises(ModelError, match="too many of its nodes"), onnx_check.name_file_in_errors(Path("m.onnx")):
        raise RecursionError


def test_memory_that_runs_out_is_one_message(tmp_path):
    """It names the file, and keeps the allocator's words."""
    with (
        pytest.raises(ModelError, match=r"m.onnx: memory ran out \(bad_alloc\)"),
        onnx_check.name_file_in_errors(Path("m.onnx")),
    ):
        raise MemoryError("bad_alloc")


def test_every_line_names_the_file_once():
    """Whatever has no file gets it; what names one, its own or another of the call's, stays as it is."""
    with (
        pytest.raises(QbenchError, match=r"\Aa.onnx: one\na.onnx: two\Z"),
        onnx_check.name_file_in_errors(Path("a.onnx")),
    ):
        raise ModelError("one\ntwo")
    with (
        pytest.raises(ModelError, match=r"\Ar.txt: one\Z"),
        onnx_check.name_file_in_errors(Path("a.onnx"), Path("r.txt")),
    ):
        raise ModelError("r.txt: one")


def test_a_sample_of_the_fuzzer():
    """40 files of ``tests/fuzz/onnx_models.py``; an hour of it is a command away."""
    fuzzer = Path(__file__).parent.parent.parent / "fuzz" / "onnx_models.py"
    done = subprocess.run([sys.executable, fuzzer, "--count", "40"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("40 files: ")


def test_onnx_s_own_types_are_known():
    """Whatever onnx can make of four bits or sixteen is accepted, raw and in fields."""
    kinds = [TensorProto.INT4, TensorProto.UINT4, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.BOOL]
    for kind in (*kinds, TensorProto.COMPLEX64, TensorProto.DOUBLE, TensorProto.UINT32, TensorProto.FLOAT16):
        tensor = helper.make_tensor("t", kind, [3], [1, 0, 1])
        assert onnx_problems.find_tensor_problem(tensor) is None, onnx.TensorProto.DataType.Name(kind)
        raw = numpy_helper.from_array(numpy_helper.to_array(tensor), "t")
        assert onnx_problems.find_tensor_problem(raw) is None, onnx.TensorProto.DataType.Name(kind)


def test_what_is_read_of_a_file_is_as_much_as_was_asked_for(tmp_path):
    """Weights beside it, and what onnx's checker says; both unless they are left out."""
    onnx.save(onnx_networks.mlp(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    assert not any(tensor.external_data for tensor in onnx_check.load(tmp_path / "m.onnx").graph.initializer)
    left = onnx_check.load(tmp_path / "m.onnx", weights=False).graph.initializer
    assert all(tensor.external_data for tensor in left)
    model = onnx_networks.mlp()
    del model.graph.node[0].input[1:]
    file = write(model, tmp_path)
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        onnx_check.load(file)
    assert onnx_check.load(file, valid=False) == model
