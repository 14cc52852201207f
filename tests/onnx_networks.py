"""Small ONNX networks with seeded weights, as exporters make them; each function returns an ``onnx.ModelProto``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.uniform import whole

OPSET = 17


class Draft:
    """A graph under construction: ``add`` appends a node and returns its first output; arrays become initializers."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name, value):
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name, *shape):
        """Normal values, scaled so that activations keep their size."""
        fan_in = int(np.prod(shape[1:])) or 1
        return self.constant(name, (self.rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))

    def bias(self, name, size):
        return self.constant(name, (0.1 * self.rng.standard_normal(size)).astype(np.float32))

    def add(self, kind, inputs, name, *, outputs=None, **attributes):
        outputs = outputs or [f"{name}_out" if name else f"{kind.lower()}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def conv(self, x, name, channels_in, channels_out, kernel=3, *, group=1, stride=1, bias=True, dims=2):
        weight = self.weight(f"{name}.weight", channels_out, channels_in // group, *[kernel] * dims)
        inputs = [x, weight, *([self.bias(f"{name}.bias", channels_out)] if bias else [])]
        pads = [kernel // 2] * 2 * dims
        return self.add("Conv", inputs, name, kernel_shape=[kernel] * dims, pads=pads, strides=[stride] * dims,
                        group=group)  # fmt: skip

    def batch_norm(self, x, name, channels):
        scale = self.constant(f"{name}.weight", self.rng.uniform(0.5, 1.5, channels).astype(np.float32))
        shift = self.bias(f"{name}.bias", channels)
        mean = self.bias(f"{name}.running_mean", channels)
        variance = self.constant(f"{name}.running_var", self.rng.uniform(0.5, 1.5, channels).astype(np.float32))
        return self.add("BatchNormalization", [x, scale, shift, mean, variance], name, epsilon=1e-5)

    def linear(self, x, name, size_in, size_out):
        """As torch exports it: the weight is (out, in)."""
        inputs = [x, self.weight(f"{name}.weight", size_out, size_in), self.bias(f"{name}.bias", size_out)]
        return self.add("Gemm", inputs, name, transB=1)

    def model(self, inputs, outputs, *, opset=OPSET, ir_version=8):
        """``inputs`` and ``outputs``: name -> shape, or name -> (element type, shape)."""
        graph = helper.make_graph(self.nodes, "network", _values(inputs), _values(outputs), self.initializers)
        return _checked(graph, opset, ir_version)


def _values(described):
    made = []
    for name, shape in described.items():
        kind, dims = shape if isinstance(shape, tuple) else (TensorProto.FLOAT, shape)
        made.append(helper.make_tensor_value_info(name, kind, dims))
    return made


def _checked(graph, opset=OPSET, ir_version=8):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    onnx.checker.check_model(model)
    return model


def save(model: onnx.ModelProto, folder: Path, name: str = "model") -> Path:
    """``<folder>/<name>.onnx``."""
    file = Path(folder) / f"{name}.onnx"
    onnx.save(model, str(file))
    return file


def random_inputs(model: onnx.ModelProto, batch: int = 1, seed: int = 0) -> tuple[np.ndarray, ...]:
    """An array for each input: normal, or 0 and 1 for integers; dimensions without a size get ``batch``."""
    rng = np.random.default_rng(seed)
    constants = {one.name for one in model.graph.initializer}
    made = []
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value or batch for dim in value.type.tensor_type.shape.dim]
        values = rng.standard_normal(shape) if kind.kind == "f" else rng.integers(0, 2, shape)
        made.append(np.asarray(values, kind))
    return tuple(made)


def residual_cnn(*, opset=OPSET, batch="batch"):
    """conv1-bn1-relu1, a residual block (conv2-bn2-relu2-conv3-bn3, add, relu3), maxpool, global pool, fc.

    Input ``image`` (batch, 3, 16, 16), output ``logits`` (batch, 10).
    """
    draft = Draft()
    x = draft.conv("image", "conv1", 3, 8, bias=False)
    x = skip = draft.add("Relu", [draft.batch_norm(x, "bn1", 8)], "relu1")
    x = draft.batch_norm(draft.conv(x, "conv2", 8, 8, bias=False), "bn2", 8)
    x = draft.add("Relu", [x], "relu2")
    x = draft.batch_norm(draft.conv(x, "conv3", 8, 8), "bn3", 8)
    x = draft.add("Relu", [draft.add("Add", [x, skip], "add")], "relu3")
    x = draft.add("MaxPool", [x], "maxpool", kernel_shape=[2, 2], strides=[2, 2])
    x = draft.add("GlobalAveragePool", [x], "pool")
    x = draft.linear(draft.add("Flatten", [x], "flatten"), "fc", 8, 10)
    draft.nodes[-1].output[0] = "logits"
    return draft.model({"image": [batch, 3, 16, 16]}, {"logits": [batch, 10]}, opset=opset)


def depthwise(*, opset=OPSET):
    """A MobileNet block: expand 1x1, depthwise 3x3, project 1x1, ReLU6 as Clip(0, 6), AveragePool, 1x1 classifier."""
    draft = Draft(1)
    zero, six = draft.constant("zero", np.float32(0)), draft.constant("six", np.float32(6))

    def block(x, name, *sizes, clip=True, **options):
        x = draft.batch_norm(draft.conv(x, f"{name}_conv", *sizes, bias=False, **options), f"{name}_bn", sizes[1])
        return draft.add("Clip", [x, zero, six], f"{name}_clip") if clip else x

    x = block("image", "stem", 3, 8, stride=2)
    x = block(x, "expand", 8, 24, 1)
    x = block(x, "depthwise", 24, 24, 3, group=24)
    x = block(x, "project", 24, 8, 1, clip=False)
    x = draft.add("AveragePool", [x], "avgpool", kernel_shape=[8, 8])
    x = draft.conv(x, "classifier", 8, 10, 1)
    draft.add("Flatten", [x], "flatten", outputs=["logits"])
    return draft.model({"image": ["batch", 3, 16, 16]}, {"logits": ["batch", 10]}, opset=opset)


def decoder(*, group=1):
    """ConvTranspose (grouped on request) with BatchNorm, then a Conv; (batch, 8, 4, 4) -> (batch, 3, 8, 8)."""
    draft = Draft(2)
    weight = draft.weight("up.weight", 8, 8 // group, 4, 4)
    x = draft.add("ConvTranspose", ["code", weight, draft.bias("up.bias", 8)], "up", kernel_shape=[4, 4],
                  strides=[2, 2], pads=[1, 1, 1, 1], group=group)  # fmt: skip
    x = draft.add("Relu", [draft.batch_norm(x, "bn", 8)], "relu")
    x = draft.conv(x, "out", 8, 3)
    draft.add("Sigmoid", [x], "sigmoid", outputs=["image"])
    return draft.model({"code": ["batch", 8, 4, 4]}, {"image": ["batch", 3, 8, 8]})


def mlp():
    """MatMul + Add, Relu, Gemm with transB and with alpha and beta of 0.5; (batch, 16) -> (batch, 4)."""
    draft = Draft(3)
    x = draft.add("MatMul", ["x", draft.weight("first.weight", 16, 32)], "first")
    x = draft.add("Relu", [draft.add("Add", [x, draft.bias("first.bias", 32)], "bias")], "relu1")
    x = draft.add("Relu", [draft.linear(x, "second", 32, 32)], "relu2")
    weights = [draft.weight("third.weight", 32, 4), draft.bias("third.bias", 4)]
    draft.add("Gemm", [x, *weights], "third", alpha=0.5, beta=0.5, outputs=["y"])
    return draft.model({"x": ["batch", 16]}, {"y": ["batch", 4]})


def tokens():
    """Embedding, MatMul with a constant weight, MatMul of two activations, LayerNormalization, LSTM; any length."""
    draft = Draft(4)
    x = draft.add("Gather", [draft.weight("embedding", 20, 8), "ids"], "embed")
    x = draft.add("LayerNormalization", [x, draft.constant("ln.weight", np.ones(8, np.float32))], "norm", axis=-1)
    q = draft.add("MatMul", [x, draft.weight("query.weight", 8, 8)], "query")
    k = draft.add("Transpose", [x], "keys", perm=[0, 2, 1])
    scores = draft.add("Softmax", [draft.add("MatMul", [q, k], "scores")], "softmax", axis=-1)
    x = draft.add("MatMul", [scores, x], "mix")
    x = draft.add("Transpose", [x], "time_first", perm=[1, 0, 2])
    recurrent = [draft.weight("lstm.w", 1, 24, 8), draft.weight("lstm.r", 1, 24, 6)]
    draft.add("LSTM", [x, *recurrent], "lstm", hidden_size=6, outputs=["lstm_all", "lstm_last"])
    x = draft.add("Squeeze", ["lstm_last", draft.constant("axis", np.array([0]))], "squeeze")
    draft.add("Gemm", [x, draft.weight("fc.weight", 6, 2)], "fc", outputs=["y"])
    return draft.model({"ids": (TensorProto.INT64, ["batch", "length"])}, {"y": ["batch", 2]})


def volume():
    """Two 3-D convolutions; (batch, 2, 4, 8, 8) -> (batch, 3, 4, 8, 8)."""
    draft = Draft(5)
    x = draft.add("Relu", [draft.conv("volume", "conv1", 2, 4, dims=3)], "relu")
    draft.conv(x, "conv2", 4, 3, dims=3)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"volume": ["batch", 2, 4, 8, 8]}, {"y": ["batch", 3, 4, 8, 8]})


def signal():
    """A 1-D convolution and a Gemm."""
    draft = Draft(6)
    x = draft.add("GlobalAveragePool", [draft.conv("signal", "conv", 2, 4, dims=1)], "pool")
    draft.linear(draft.add("Flatten", [x], "flatten"), "fc", 4, 3)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"signal": ["batch", 2, 32]}, {"y": ["batch", 3]})


def product():
    """The product of two activations between a convolution and a Gemm."""
    draft = Draft(11)
    x = draft.conv("image", "conv", 1, 4)
    x = draft.add("MatMul", [x, draft.add("Transpose", [x], "turn", perm=[0, 1, 3, 2])], "product")
    draft.linear(draft.add("Flatten", [draft.add("GlobalAveragePool", [x], "pool")], "flatten"), "fc", 4, 3)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"image": ["batch", 1, 8, 8]}, {"y": ["batch", 3]})


def two_inputs():
    """An image and a vector of features, joined; two outputs."""
    draft = Draft(7)
    x = draft.add("Relu", [draft.conv("image", "conv", 1, 4)], "relu")
    x = draft.add("Flatten", [draft.add("GlobalMaxPool", [x], "pool")], "flatten")
    x = draft.add("Concat", [x, "features"], "join", axis=1)
    draft.linear(x, "fc", 10, 3)
    draft.nodes[-1].output[0] = "logits"
    draft.add("Softmax", ["logits"], "softmax", axis=1, outputs=["probabilities"])
    inputs = {"image": ["batch", 1, 8, 8], "features": ["batch", 6]}
    return draft.model(inputs, {"logits": ["batch", 3], "probabilities": ["batch", 3]})


def branches():
    """An If whose branches hold a Conv each (their weights are outer initializers), behind a Conv that is not in it."""
    draft = Draft(8)
    x = draft.conv("image", "conv", 1, 4)
    total = draft.add("ReduceSum", [x], "sum", keepdims=0)
    wanted = draft.add("Greater", [total, draft.constant("limit", np.float32(0))], "positive")
    arms = []
    for name in ("then", "else"):
        weight = draft.weight(f"{name}.weight", 4, 4, 1, 1)
        node = helper.make_node("Conv", [x, weight], [f"{name}_y"], name=f"{name}_conv", kernel_shape=[1, 1])
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["batch", 4, 8, 8])
        arms.append(helper.make_graph([node], name, [], [output]))
    x = draft.add("If", [wanted], "if", then_branch=arms[0], else_branch=arms[1])
    draft.conv(x, "last", 4, 2, 1)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"image": ["batch", 1, 8, 8]}, {"y": ["batch", 2, 8, 8]})


def loop():
    """A Loop that applies one MatMul three times, then a Gemm outside of it."""
    draft = Draft(9)
    weight = draft.weight("step.weight", 4, 4)
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", weight], ["next"], name="step"),
            helper.make_node("Identity", ["go"], ["go_on"], name="keep_going"),
        ],
        "body",
        _values({"i": (TensorProto.INT64, []), "go": (TensorProto.BOOL, []), "state": ["batch", 4]}),
        _values({"go_on": (TensorProto.BOOL, []), "next": ["batch", 4]}),
    )
    counts = [draft.constant("count", np.int64(3)), draft.constant("go_in", np.bool_(True))]
    x = draft.add("Loop", [*counts, "x"], "loop", body=body)
    draft.linear(x, "fc", 4, 2)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"x": ["batch", 4]}, {"y": ["batch", 2]})


def pools():
    """MaxPool, AveragePool and Add of two activations, and an Add of integers that must not be quantized."""
    draft = Draft(10)
    x = draft.conv("image", "conv", 1, 4)
    a = draft.add("MaxPool", [x], "max", kernel_shape=[2, 2], strides=[2, 2])
    b = draft.add("AveragePool", [x], "average", kernel_shape=[2, 2], strides=[2, 2])
    x = draft.add("Add", [a, b], "sum")
    shape = draft.add("Shape", [x], "shape")
    draft.add("Add", [shape, shape], "shape_sum", outputs=["doubled"])
    draft.conv(x, "last", 4, 2, 1)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"image": ["batch", 1, 8, 8]}, {"y": ["batch", 2, 4, 4], "doubled": (TensorProto.INT64, [4])})


def shared_weight():
    """One weight that two Convs and a Gather read; inputs ``image`` and ``row``."""
    draft = Draft(11)
    draft.weight("shared", 4, 4, 3, 3)
    x = draft.add("Relu", [draft.add("Conv", ["image", "shared"], "one", pads=[1, 1, 1, 1])], "relu")
    x = draft.add("Conv", [x, "shared"], "two", pads=[1, 1, 1, 1])
    picked = draft.add("Gather", ["shared", "row"], "pick")
    picked = draft.add("ReduceSum", [picked], "picked_sum", keepdims=0)
    draft.add("Add", [x, picked], "add", outputs=["y"])
    inputs = {"image": ["batch", 4, 8, 8], "row": (TensorProto.INT64, [])}
    return draft.model(inputs, {"y": ["batch", 4, 8, 8]})


def half(model=None):
    """``residual_cnn``, or another network, in float16: its inputs and outputs too, and its subgraphs."""
    model = model or residual_cnn()
    _to_half(model.graph)
    onnx.checker.check_model(model)
    return model


def _to_half(graph):
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for one in node.attribute:
            if one.HasField("g"):
                _to_half(one.g)


def old_style():
    """Opset 11, IR 3: initializers listed among the inputs, nameless nodes, Constant and Identity nodes, Clip."""
    model = residual_cnn(opset=11, batch=1)
    graph = model.graph
    held = next(one for one in graph.initializer if one.name == "conv2.weight")
    constant = helper.make_node("Constant", [], ["conv2.weight"], value=numpy_helper.from_array(
        numpy_helper.to_array(held), "value"))  # fmt: skip
    graph.initializer.remove(held)
    identity = helper.make_node("Identity", ["relu1_out"], ["relu1_same"])
    nodes = list(graph.node)
    for node in nodes:
        node.name = "twice" if node.op_type == "Relu" else ""
        if node.op_type == "Add":
            node.input[1] = "relu1_same"
    at = next(i for i, node in enumerate(nodes) if "relu1_out" in node.output)
    del graph.node[:]
    graph.node.extend([constant, *nodes[: at + 1], identity, *nodes[at + 1 :]])
    graph.input.extend(helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in graph.initializer)
    model.ir_version = 3
    onnx.checker.check_model(model)
    return model


NETWORKS = {
    make.__name__: make
    for make in (
        residual_cnn, depthwise, decoder, mlp, tokens, volume, signal, two_inputs, branches, loop, pools,
        shared_weight, half, old_style,
    )
}  # fmt: skip


def write_for_ever(target, begun):
    """Begins a file and a temporary one, says so, and never ends."""
    with whole.workplace(target) as folder, tempfile.TemporaryDirectory() as temporary:
        for place in (folder, Path(temporary)):
            (place / "half").write_text("half")
        begun.touch()
        while True:
            time.sleep(1)
