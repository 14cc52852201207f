"""Where the time of a call goes on the runtimes of ONNX files, by their own counters."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_networks
import pytest
from onnx_networks import save
from onnxruntime.quantization import QuantType, quantize_dynamic
from optional_packages import needs_openvino

from qbench.errors import BuildError
from qbench.quant.onnx import onnxruntime_layers, onnxruntime_profile, onnxruntime_session

CALLS = 3
X = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A convolution and a linear layer, in fp32 and dynamic int8."""
    folder = tmp_path_factory.mktemp("profiled")
    draft = onnx_networks.Draft()
    x = draft.add("Relu", [draft.conv("image", "conv", 4, 8)], "relu")
    x = draft.linear(draft.add("Flatten", [x], "flatten"), "head", 512, 10)
    fp32 = save(draft.model({"image": ["batch", 4, 8, 8]}, {x: ["batch", 10]}), folder)
    quantize_dynamic(str(fp32), str(folder / "int8.onnx"), weight_type=QuantType.QInt8)
    return fp32, folder / "int8.onnx"


def test_products_of_fp32_are_float(files):
    """With the seconds of each, and the call beside them."""
    profile = onnxruntime_layers.time_nodes(files[0], (X,), threads=1, calls=CALLS)
    assert [node.operator for node in profile.nodes if node.kind == "float product"] == ["Conv", "Gemm"]
    assert profile.call_seconds > 0
    assert profile.watched_seconds >= profile.node_seconds > 0


def test_conversions_and_int8_products_are_told_apart(files):
    """Dynamic quantization looks for a range at each call."""
    profile = onnxruntime_layers.time_nodes(files[1], (X,), threads=1, calls=CALLS)
    kinds = {node.operator: node.kind for node in profile.nodes}
    assert kinds["ConvInteger"] == "int8 product"
    assert kinds["DynamicQuantizeLinear"] == "conversion"
    assert "float product" not in kinds.values()


def test_every_call_has_events_of_its_own(files):
    """As many calls as were made, each with the same nodes."""
    profile = onnxruntime_profile.profile_calls(files[0], (X,), calls=CALLS)
    names = [[name for name, _ in call] for call in profile.calls]
    assert len(names) == len(profile.call_seconds) == CALLS
    assert names[0] == names[1] == names[2]


@needs_openvino
def test_openvino_tells_its_nodes_too(files):
    """Float products of an fp32 file, the convolution under its name in the file."""
    from qbench.quant.onnx import openvino_layers

    profile = openvino_layers.time_nodes(files[0], (X,), threads=1, calls=CALLS)
    products = {node.layer: node.operator.split()[0] for node in profile.nodes if node.kind == "float product"}
    assert products == {"conv": "Convolution", "head_out": "FullyConnected"}


def test_weights_in_files_beside_it_are_no_obstacle(files, tmp_path):
    """torch exports them so: the optimized graph lies elsewhere, and would look for them there."""
    apart = tmp_path / "apart.onnx"
    model = onnx.load(str(files[0]))
    onnx.save(model, str(apart), save_as_external_data=True, location="apart.onnx.data", size_threshold=0)
    assert (tmp_path / "apart.onnx.data").exists()
    profile = onnxruntime_layers.time_nodes(apart, (X,), threads=1, calls=CALLS)
    assert [node.operator for node in profile.nodes if node.kind == "float product"] == ["Conv", "Gemm"]


def event(name, ts, cat="Node", dur=1):
    return {"name": name, "ts": ts, "dur": dur, "cat": cat}


def test_events_belong_to_the_call_that_they_begin_in():
    """In the order of time; those of a session that is made, and those that are no kernel, to none."""
    events = [
        event("b_kernel_time", 250), event("model_run", 100, "Session", 2_000_000), event("a_kernel_time", 99),
        event("model_run", 200, "Session", 500_000), event("a_kernel_time", 100), event("b_fence_before", 110),
        event("c_kernel_time", 120, "Api"), event("a_kernel_time", 200), event("b_kernel_time", 199), {"cat": "x"},
    ]  # fmt: skip
    told = onnxruntime_profile._split_calls(events)
    assert [[(name, each["ts"]) for name, each in call] for call in told["calls"]] == [
        [("a", 100), ("b", 199)], [("a", 200), ("b", 250)],
    ]  # fmt: skip
    assert told["call_seconds"] == (2.0, 0.5)
    assert onnxruntime_profile._split_calls([]) == {"calls": (), "call_seconds": ()}


BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[n,2] x, bool c) => (float[n,2] y) {
  a = Relu (x)
  b = Relu (a)
  y = If (c) <
    then_branch = t () => (float[n,2] p) { p = Abs (b) },
    else_branch = e () => (float[n,2] q) { r = Neg (b) q = Neg (r) }
  >
}
"""


def named(*names):
    """The model of ``BRANCHES``, its nodes with these names in the order in which they are listed."""
    model = onnx.parser.parse_model(BRANCHES)
    nodes = list(onnxruntime_profile.list_nodes(model.graph))
    assert [node.op_type for node in nodes] == ["Relu", "Relu", "If", "Abs", "Neg", "Neg"]
    for node, name in zip(nodes, names, strict=True):
        node.name = name
    return model


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("a", "b", "c", "d", "e", "f"), None),
        (("a", "b", "c", "d", "e", "a"), ("a", "b", "c", "d", "e", "Neg_5")),
        (("", "b", "c", "", "e", "f"), ("Relu_0", "b", "c", "Abs_3", "e", "f")),
        (("", "Relu_0", "c", "d", "", ""), ("Relu_0_", "Relu_0", "c", "d", "Neg_4", "Neg_5")),
        (("a", "a", "c", "d", "Relu_1", "Relu_1_"), ("a", "Relu_1__", "c", "d", "Relu_1", "Relu_1_")),
    ],
)
def test_each_node_gets_a_name_of_its_own(given, expected, tmp_path):
    """Those of subgraphs, too; the file itself where all have one, else a copy."""
    file, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(named(*given), file)
    used = onnxruntime_profile._with_names(file, target)
    assert used == (file if expected is None else target)
    assert target.exists() == (expected is not None)
    nodes = onnxruntime_profile.list_nodes(onnx.load(used).graph)
    assert tuple(node.name for node in nodes) == (expected or given)


def test_what_the_runtime_says_is_one_message(files):
    """A lack of memory goes up as it is; the folder of a profile is gone afterwards."""
    with onnxruntime_profile.ProfiledSession(files[0], (X,)) as session:
        folder = session._folder
        assert folder.is_dir()
        session._feed = {"image": X[:, :1]}
        with pytest.raises(BuildError, match="^ONNX Runtime cannot run the model: "):
            session.run()

        class Full:
            def run(self, *_):
                raise RuntimeError("Failed to allocate memory for requested buffer of size 99")

        session._session = Full()
        with pytest.raises(RuntimeError, match="^Failed to allocate memory"):
            session.run()
    assert not folder.exists()


def test_a_file_that_cannot_be_opened_leaves_no_folder(files, tmp_path, monkeypatch):
    """Nor does it hide its error."""
    monkeypatch.setattr(onnxruntime_profile.tempfile, "tempdir", str(tmp_path))

    def refuse(*_, **__):
        raise BuildError("no luck")

    monkeypatch.setattr(onnxruntime_profile.onnxruntime_session, "open_session", refuse)
    with pytest.raises(BuildError, match="^no luck$"):
        onnxruntime_profile.ProfiledSession(files[0], (X,))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("optimized", [True, False])
def test_a_profile_is_of_one_thread_unless_it_is_asked_otherwise(files, optimized, monkeypatch):
    """Of the graph as the runtime makes it, or as it is written."""
    asked, opened = [], []
    options, open_session = (getattr(onnxruntime_session, name) for name in ("session_options", "open_session"))
    monkeypatch.setattr(
        onnxruntime_session, "session_options", lambda threads: asked.append(threads) or options(threads)
    )

    def note(file, *, options):
        opened.append(options)
        return open_session(file, options=options)

    monkeypatch.setattr(onnxruntime_session, "open_session", note)
    profile = onnxruntime_profile.profile_calls(files[0], (X,), optimized=optimized)
    assert asked == [1]
    assert len(profile.calls) == 1
    assert opened[0].enable_profiling
    level = str(opened[0].graph_optimization_level)
    assert ("DISABLE_ALL" in level) != optimized
    kinds = {node.op_type for node in profile.graph.node}
    assert ("Relu" in kinds) != optimized  # joined with its convolution
    assert opened[0].enable_cpu_mem_arena
    onnxruntime_profile.profile_calls(files[0], (X,), threads=2)
    assert asked == [1, 2]
    # Where nobody asks for the times, with less memory: the same nodes.
    lean = onnxruntime_profile.profile_calls(files[0], (X,), optimized=optimized, lean=True)
    assert not opened[-1].enable_cpu_mem_arena
    assert [node.op_type for node in lean.graph.node] == [node.op_type for node in profile.graph.node]
    assert [name for name, _ in lean.calls[0]] == [name for name, _ in profile.calls[0]]
