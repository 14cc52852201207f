"""The graph under rewriting: who makes and reads a tensor, what is constant, edits that stay executable, saving."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS, residual_cnn, save

from qbench.errors import ModelError
from qbench.files.atomic import make_workplace
from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph import graph as module
from qbench.quant.onnx.graph.graph import Graph


def chain(*names):
    """Relu after Relu, each named by its output, from ``x`` to ``y``."""
    nodes = [helper.make_node("Relu", [a], [b], name=b) for a, b in zip(("x", *names), (*names, "y"), strict=True)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    return Graph(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])))


def test_it_knows_who_makes_and_who_reads_a_tensor():
    """A residual connection has two readers, with their positions; an input has no maker."""
    graph = Graph(residual_cnn())
    assert graph.maker("relu1_out").name == "relu1"
    assert graph.maker("image") is None
    assert [(node.name, position) for node, position in graph.readers("relu1_out")] == [("conv2", 0), ("add", 1)]
    assert graph.is_output("logits")
    assert not graph.is_output("add_out")


def test_a_subgraph_reads_outer_tensors():
    """What a branch of an If captures counts as read by the If, at position -1, and is not dropped."""
    graph = Graph(NETWORKS["branches"]())
    assert ("if", -1) in [(node.name, position) for node, position in graph.readers("conv_out")]
    graph.drop_unused()
    assert graph.constant("then.weight") is not None


def test_nodes_are_found_by_their_present_names():
    """A node renamed in place is found under its new name, no longer under the old one."""
    graph = chain("a")
    graph.nodes[0].name = "renamed"
    assert graph.node("renamed").output[0] == "a"
    with pytest.raises(KeyError):
        graph.node("a")


@pytest.mark.parametrize(
    "value",
    [
        np.float32(2.5), np.arange(6, dtype=np.int64).reshape(2, 3), np.array([True, False]), np.zeros((0, 2), np.int8),
        np.asarray(np.arange(6.0).reshape(2, 3).T, order="F"), np.float16([1, 2]), np.array(3, np.int32),
    ],
)  # fmt: skip
def test_a_constant_reads_back_as_it_was_given(value):
    """Type, shape (a scalar stays a scalar) and values, however the array lies in memory; also after a change."""
    graph = chain()
    for name in (graph.add_constant("c", value), graph.add_constant("c", np.ones(3))):
        graph.set_constant(name, value)
        constant = graph.constant(name)
        assert constant.dtype == np.asarray(value).dtype
        assert constant.shape == np.shape(value)
        np.testing.assert_array_equal(constant, value)
        assert graph.element_type(name) == np.asarray(value).dtype
        assert graph.shape(name) == np.shape(value)


def test_what_makes_a_constant_vanishes():
    """A tensor that becomes constant keeps its name and its readers; its node goes."""
    graph = chain("a", "b")
    graph.make_constant({"a": np.ones(2, np.float32)})
    assert [node.name for node in graph.nodes] == ["b", "y"]
    assert [node.name for node, _ in graph.readers("a")] == ["b"]
    graph.drop_unused()
    onnx.checker.check_model(graph.model)


def test_names_that_are_taken_are_not_given_again():
    """A fresh name is neither a node's, a tensor's nor an input's, and is taken from then on."""
    graph = chain("a")
    assert [graph.fresh(name) for name in ("a", "x", "new", "new")] == ["a_1", "x_1", "new", "new_1"]


def test_names_within_subgraphs_are_taken():
    """An outer tensor of an inner one's name would be hidden in the branch."""
    assert Graph(NETWORKS["branches"]()).fresh("then_y") == "then_y_1"


@given(order=st.permutations(range(6)))
def test_an_edited_graph_can_be_executed(order):
    """Nodes left in any order are sorted, each behind what it reads."""
    graph = chain("a", "b", "c", "d", "e")
    with graph.editing() as nodes:
        nodes[:] = [nodes[i] for i in order]
    assert [node.name for node in graph.nodes] == ["a", "b", "c", "d", "e", "y"]


def test_what_can_stay_where_it_is_stays():
    """Sorting moves no node that has what it needs."""
    graph = Graph(residual_cnn())
    before = [node.name for node in graph.nodes]
    with graph.editing():
        pass
    assert [node.name for node in graph.nodes] == before


def test_a_cycle_is_refused():
    """The message names a node of the cycle."""
    graph = chain("a", "b")
    with pytest.raises(ModelError, match="cycle through (a|b|y)"), graph.editing() as nodes:
        nodes[0].input[0] = "b"


def test_what_leads_nowhere_is_dropped():
    """Unread nodes and initializers go; those that make an output stay."""
    graph = Graph(residual_cnn())
    graph.add_constant("unread", np.ones(2))
    with graph.editing() as nodes:
        nodes.append(helper.make_node("Relu", ["conv1_out"], ["nowhere"], name="dead"))
    graph.drop_unused()
    assert "unread" not in graph.constants
    assert "dead" not in [node.name for node in graph.nodes]
    assert graph.outputs == ("logits",)


def test_shapes_tell_sizes_symbols_and_what_is_not_known():
    """-1, which some exporters write, is not a size."""
    graph = Graph(residual_cnn())
    assert graph.shape("image") == ("batch", 3, 16, 16)
    assert graph.shape("conv1_out") is None
    assert graph.element_type("image") == np.float32
    graph.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert graph.shape("image")[0] is None


@pytest.mark.parametrize("newer", [False, True])
def test_a_copy_without_weights_has_all_the_rest(newer):
    """Of a model with fields that this onnx does not know it is whole, since these have their places as well."""
    graph = Graph(residual_cnn())
    graph.model.doc_string, graph.model.graph.doc_string = "a model", "its graph"
    graph.model.metadata_props.add(key="author", value="somebody")
    if newer:
        graph.model.MergeFromString(bytes([0xA2, 0x3F, 2, 7, 7]))
    copied = graph.copy(without={"fc.weight"})
    if not newer:
        (weight,) = (tensor for tensor in graph.model.graph.initializer if tensor.name == "fc.weight")
        graph.model.graph.initializer.remove(weight)
    assert copied.model.SerializeToString() == graph.model.SerializeToString()


def test_a_copy_is_independent():
    """Changing the copy leaves the original."""
    graph = Graph(residual_cnn())
    before = graph.constant("fc.bias").copy()
    graph.copy().set_constant("fc.bias", np.zeros(10, np.float32))
    np.testing.assert_array_equal(graph.constant("fc.bias"), before)


@pytest.fixture(name="umask", params=[0o022, 0o077])
def umask_(request):
    """A usual umask and a strict one."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("large", [False, True])
def test_a_saved_file_loads_as_the_same_graph(tmp_path, monkeypatch, large, umask):
    """Mode 0640, or what a stricter umask leaves of it; above protobuf's limit the weights lie beside it, and saving
    small again removes them."""
    graph = Graph(residual_cnn())
    if large:
        monkeypatch.setattr(module, "LARGEST_FILE", 1000)
        monkeypatch.setattr(module, "EXTERNAL_ABOVE", 100)
    file = tmp_path / "saved.onnx"
    graph.save(file)
    assert len(module.weights_beside(file)) == large
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640 & ~umask}
    loaded = Graph.load(file)
    np.testing.assert_array_equal(loaded.constant("conv2.weight"), graph.constant("conv2.weight"))
    inputs = {"image": np.ones((1, 3, 16, 16), np.float32)}
    np.testing.assert_array_equal(equivalence.run(loaded, inputs)[0], equivalence.run(graph, inputs)[0])
    monkeypatch.undo()
    graph.save(file)
    assert [path.name for path in tmp_path.iterdir()] == ["saved.onnx"]


def test_weights_that_the_replaced_file_does_not_name_stay(tmp_path):
    """A name like that of weights is no proof that they are this model's."""
    file = tmp_path / "saved.onnx"
    theirs = tmp_path / f"saved.onnx.{'0' * 16}.data"
    theirs.write_text("somebody's")
    for _ in range(2):
        Graph(residual_cnn()).save(file)
        assert theirs.read_text() == "somebody's"


@pytest.mark.parametrize("moved", [0, 1])
def test_a_kill_while_a_large_model_is_rewritten_mismatches_nothing(tmp_path, monkeypatch, moved):
    """Whether it strikes before or behind the new weights, the old file still has its own; the next save clears up."""
    monkeypatch.setattr(module, "LARGEST_FILE", 1000)
    monkeypatch.setattr(module, "EXTERNAL_ABOVE", 100)
    file, graph = tmp_path / "saved.onnx", Graph(residual_cnn())
    graph.save(file)
    other = graph.copy()
    other.set_constant("conv2.weight", 2 * graph.constant("conv2.weight"))
    moves, move = [], type(file).replace

    def killed(part, target):
        moves.append(target)
        if len(moves) > moved:
            raise KeyboardInterrupt
        return move(part, target)

    with monkeypatch.context() as patched:
        patched.setattr(type(file), "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            other.save(file)
    np.testing.assert_array_equal(Graph.load(file).constant("conv2.weight"), graph.constant("conv2.weight"))
    other.save(file)
    np.testing.assert_array_equal(Graph.load(file).constant("conv2.weight"), other.constant("conv2.weight"))
    assert sorted(tmp_path.iterdir()) == [file, *module.weights_beside(file)]


def test_what_killed_processes_left_is_removed_and_work_under_way_is_not(tmp_path):
    """A process that ends without a word leaves its folder; the next that writes the same file removes it."""
    code = (
        "import os, sys, pathlib\n"
        "from qbench.files.atomic import make_workplace\n"
        "with make_workplace(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('half')\n"
        "    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], check=True)
    assert len(list(tmp_path.iterdir())) == 1
    with make_workplace(tmp_path / "m") as mine:
        assert list(tmp_path.iterdir()) == [mine]
        with make_workplace(tmp_path / "m") as other:
            assert sorted(tmp_path.iterdir()) == sorted([mine, other])
    assert not list(tmp_path.iterdir())


def test_files_that_are_not_whole_are_refused(tmp_path):
    """Missing, empty, truncated, garbage, weights that are not there: one line that names the file."""
    whole = save(residual_cnn(), tmp_path).read_bytes()
    contents = {"truncated": whole[: len(whole) // 2], "garbage": b"no protobuf at all", "empty": b""}
    for name, content in contents.items():
        file = tmp_path / f"{name}.onnx"
        file.write_bytes(content)
        with pytest.raises(ModelError, match=f"{name}.onnx: .*(whole ONNX file|without)") as caught:
            Graph.load(file)
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="missing.onnx: no such file"):
        Graph.load(tmp_path / "missing.onnx")


def test_missing_external_weights_are_named(tmp_path):
    """The message names the file that must stand beside the model."""
    file = tmp_path / "model.onnx"
    onnx.save(residual_cnn(), str(file), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"model.onnx: .*w\.bin"):
        Graph.load(file)


def test_weights_outside_the_models_folder_are_not_read(tmp_path):
    """A path that leads elsewhere is refused."""
    folder = tmp_path / "inner"
    folder.mkdir()
    model = residual_cnn()
    content = model.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(content.raw_data)
    content.ClearField("raw_data")
    content.data_location = TensorProto.EXTERNAL
    content.external_data.add(key="location", value="../w.bin")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="model.onnx"):
        Graph.load(folder / "model.onnx")


def test_an_unshared_constant_is_changed_in_place():
    """A constant with one reader keeps its name; one with two readers gets a name of its own for the new value."""
    graph = Graph(NETWORKS["shared_weight"]())
    node = graph.node("one")
    assert graph.own_constant(node, 1, np.zeros(1, np.float32)) == "shared_1"
    assert graph.constant("shared").shape == (4, 4, 3, 3)
    cnn = Graph(residual_cnn())
    assert cnn.own_constant(cnn.node("fc"), 2, np.zeros(10, np.float32)) == "fc.bias"
    assert not cnn.constant("fc.bias").any()


def test_constants_are_seen_behind_identity_and_constant_nodes():
    """Both count as constant; what is computed does not."""
    tensor = numpy_helper.from_array(np.float32([7]), "v")
    nodes = [
        helper.make_node("Constant", [], ["c"], name="c", value=tensor),
        helper.make_node("Identity", ["c"], ["same"], name="same"),
        helper.make_node("Add", ["x", "same"], ["y"], name="y"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])))
    assert graph.constant("same") == [7]
    assert graph.constant("y") is None
