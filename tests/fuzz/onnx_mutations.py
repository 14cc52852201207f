"""Hostile ONNX files: small networks with something in them that no exporter writes. ``hostile(seed)`` repeats."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
from onnx_networks import NETWORKS, OPSET, Draft

HUGE = (0, -1, 1, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 10**5)
PLACES = ("/etc/passwd", "../outside.bin", "a/../../outside.bin", "link.bin", "pipe", "missing.bin", "", "C:\\x", ".",
          "weights.bin", "\\\\host\\x", "file:///etc/passwd")  # fmt: skip
NAMES = (
    "",
    "x" * 5000,
    "a/b",
    "../a",
    "\x1b[31mred",
    "line\nbreak",
    "\u202eevil",
    "version",
    "batch_num",
    "0",
    "ü",
    "a:0",
)
OPERATORS = (
    "Conv", "Gemm", "MatMul", "ConvTranspose", "AveragePool", "MaxPool", "Add", "Relu", "Clip", "Pad", "Identity", "If",
    "Constant", "ConstantOfShape", "BatchNormalization", "Expand", "Tile", "Range", "Reshape", "Loop", "Resize",
    "QuantizeLinear", "NoSuchOperator", "Einsum", "Softmax",
)  # fmt: skip


def functions() -> onnx.ModelProto:
    """A network with functions of its own, one calling the other."""
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("mine", 1)]
    inner = helper.make_function("mine", "Inner", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)
    outer = helper.make_function(
        "mine", "Outer", ["a"], ["c"],
        [helper.make_node("Inner", [a], [b], domain="mine") for a, b in (("a", "b"), ("b", "c"))],
        opsets,
    )  # fmt: skip
    draft = Draft(12)
    x = draft.conv("image", "conv", 1, 4)
    draft.nodes.append(helper.make_node("Outer", [x], ["called"], name="call", domain="mine"))
    draft.conv("called", "last", 4, 2, 1)
    draft.nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, 1, ["batch", size, 8, 8]) for name, size in (("image", 1), ("y", 2))]
    graph = helper.make_graph(draft.nodes, "network", ends[:1], ends[1:], draft.initializers)
    return helper.make_model(graph, opset_imports=opsets, functions=[inner, outer], ir_version=8)


def computed() -> onnx.ModelProto:
    """A weight and a bias that are computed from constants, in a Constant node among others."""
    draft = Draft(13)
    shape = draft.constant("shape", np.array([4, 1, 3, 3]))
    draft.nodes.append(helper.make_node("ConstantOfShape", [shape], ["ones"], name="ones_node",
                                        value=numpy_helper.from_array(np.array([0.1], np.float32))))  # fmt: skip
    weight = draft.add("Mul", ["ones", draft.constant("factor", np.float32(2))], "scaled")
    draft.nodes.append(helper.make_node("Constant", [], ["bias"], name="bias_node",
                                        value=numpy_helper.from_array(np.zeros(4, np.float32))))  # fmt: skip
    x = draft.add("Conv", ["image", weight, "bias"], "conv", pads=[1, 1, 1, 1])
    x = draft.add("Expand", [x, draft.constant("to", np.array([1, 4, 8, 8]))], "expand")
    x = draft.add("Pad", [x, draft.constant("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1]))], "pad")
    draft.conv(x, "last", 4, 2, 1)
    draft.nodes[-1].output[0] = "y"
    return draft.model({"image": ["batch", 1, 8, 8]}, {"y": ["batch", 2, 10, 10]})


SOURCES = (*NETWORKS.values(), functions, computed)


def hostile(seed: int, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A file in ``folder`` and the names of what was done to it; beside it what hostile weights may point at."""
    chance = random.Random(seed)
    (folder / "weights.bin").write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    content, done = mutated(chance.choice(SOURCES)(), chance)
    file = folder / "hostile.onnx"
    file.write_bytes(content)
    return file, done


def mutated(model: onnx.ModelProto, chance: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a changed model, and the names of the changes."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        change = chance.choice(CHANGES)
        try:
            change(model, chance)
        except (IndexError, TypeError, ValueError, OverflowError, AttributeError, onnx.checker.ValidationError):
            continue  # an earlier change left nothing to do it to
        done.append(change.__name__)
    content = model.SerializeToString()
    if chance.random() < 0.15:
        content = flipped(content, chance)
        done.append("flipped")
    if chance.random() < 0.05:
        content = not_text(content, model, chance)
        done.append("not_text")
    return content, tuple(done)


def flipped(content: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut off, doubled or left out."""
    held = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(held) or 1)
        match chance.randrange(4):
            case 0:
                held[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del held[at : at + chance.randint(1, 9)]
            case 2:
                held[at:at] = held[at : at + chance.randint(1, 40)]
            case _:
                if chance.random() < 0.3:
                    del held[at:]
    return bytes(held)


def not_text(content: bytes, model, chance: random.Random) -> bytes:
    """A name with bytes in it that are no UTF-8."""
    names = [name.encode() for node in model.graph.node for name in (*node.input, *node.output, node.name) if name]
    name = chance.choice(names or [b"x"])
    return content.replace(name, b"\xff" + name[1:])


def _node(model, chance):
    return chance.choice(model.graph.node)


def _tensor(model, chance):
    return chance.choice(model.graph.initializer)


def _value(model, chance):
    return chance.choice([*model.graph.input, *model.graph.output])


def dimensions(model, chance):
    tensor = _tensor(model, chance)
    match chance.randrange(4):
        case 0:
            tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice((*HUGE, 2, 3, 7))
        case 1:
            tensor.dims.append(chance.choice((*HUGE, 2)))
        case 2:
            del tensor.dims[:]
        case _:
            tensor.dims[:] = tensor.dims[::-1]


def truncated(model, chance):
    tensor = _tensor(model, chance)
    tensor.raw_data = tensor.raw_data[: chance.randrange(len(tensor.raw_data) + 1)]


def other_shape(model, chance):
    """Whole and of another size: what onnx accepts and the operator does not."""
    tensor = _tensor(model, chance)
    shape = [chance.choice((0, 1, 2, 3, 5)) for _ in range(chance.randrange(6))]
    kind = chance.choice((np.float32, np.float64, np.int64, np.float16, np.bool_, np.int8))
    tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, kind), tensor.name))


def strange_values(model, chance):
    tensor = _tensor(model, chance)
    value = numpy_helper.to_array(tensor).copy()
    if value.dtype.kind != "f":
        raise ValueError
    value.reshape(-1)[: chance.randrange(value.size + 1)] = chance.choice((np.nan, np.inf, -np.inf, 3e38, 1e-45, 0))
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def data_type(model, chance):
    _tensor(model, chance).data_type = chance.randrange(0, 60)


def typed_fields(model, chance):
    tensor = _tensor(model, chance)
    tensor.ClearField("raw_data")
    getattr(tensor, chance.choice(("int32_data", "int64_data", "uint64_data"))).extend([1] * chance.randrange(40))
    tensor.string_data.extend([b"\xff"] * chance.randrange(3))


def fewer_inputs(model, chance):
    node = _node(model, chance)
    del node.input[chance.randrange(len(node.input)) :]


def more_inputs(model, chance):
    node = _node(model, chance)
    node.input.extend([chance.choice(("", "nowhere", *node.input))] * chance.choice((1, 2, 50)))


def other_input(model, chance):
    node = _node(model, chance)
    names = (
        [tensor.name for tensor in model.graph.initializer] + [value.name for value in model.graph.input] + ["", "no"]
    )
    node.input[chance.randrange(len(node.input))] = chance.choice(names)


def outputs(model, chance):
    node = _node(model, chance)
    match chance.randrange(3):
        case 0:
            del node.output[:]
        case 1:
            node.output.extend(["more", "and more"])
        case _:
            node.output[0] = ""


def attribute_type(model, chance):
    node = chance.choice([node for node in model.graph.node if node.attribute])
    name = chance.choice(node.attribute).name
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    value = chance.choice((1, 1.5, "text", [1, 2], [1.5], ["a"], numpy_helper.from_array(np.ones(2)), b"\xff\xfe"))
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def attribute_kind(model, chance):
    """The kind that is told is not the one that is there."""
    node = chance.choice([node for node in model.graph.node if node.attribute])
    chance.choice(node.attribute).type = chance.randrange(0, 15)


def attribute_value(model, chance):
    node = chance.choice([node for node in model.graph.node if node.attribute])
    attribute = chance.choice(node.attribute)
    if attribute.ints:
        match chance.randrange(3):
            case 0:
                attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(HUGE)
            case 1:
                del attribute.ints[:]
            case _:
                attribute.ints.append(chance.choice((0, 1, 2)))
    elif attribute.HasField("i"):
        attribute.i = chance.choice(HUGE)
    elif attribute.HasField("f"):
        attribute.f = chance.choice((float("nan"), float("inf"), 0.0, -1.0, 1e30))
    else:
        attribute.s = chance.choice((b"", b"\xff", b"SAME_UPPER", b"x" * 1000))


def attribute_more(model, chance):
    node = _node(model, chance)
    name = chance.choice(("kernel_shape", "strides", "group", "pads", "axis", "perm", "to", "auto_pad", "nonsense", ""))
    value = chance.choice((chance.choice(HUGE), [chance.choice(HUGE)] * 2, "SAME_LOWER", [1, 1, 1, 1], 0.5))
    node.attribute.append(helper.make_attribute(name, value))


def operator(model, chance):
    node = _node(model, chance)
    node.op_type = chance.choice(OPERATORS)
    if chance.random() < 0.2:
        node.domain = chance.choice(("com.microsoft", "ai.onnx.ml", "unheard.of", "ai.onnx"))


def name(model, chance):
    node = _node(model, chance)
    new = chance.choice(NAMES)
    if chance.random() < 0.5:
        node.name = new
        return
    old = node.output[0]
    for holder in model.graph.node:
        for held in (holder.input, holder.output):
            for i, this in enumerate(held):
                if this == old:
                    held[i] = new
    for value in model.graph.output:
        if value.name == old:
            value.name = new


def duplicates(model, chance):
    match chance.randrange(5):
        case 0:
            model.graph.initializer.append(_tensor(model, chance))
        case 1:
            model.graph.input.append(chance.choice(model.graph.input))
        case 2:
            model.graph.output.append(chance.choice(model.graph.output))
        case 3:
            model.graph.node.append(_node(model, chance))
        case _:
            _node(model, chance).output[0] = _node(model, chance).output[0]


def cycle(model, chance):
    first, second = _node(model, chance), _node(model, chance)
    first.input[chance.randrange(len(first.input))] = second.output[0]


def shuffled(model, chance):
    nodes = list(model.graph.node)
    chance.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def without_node(model, chance):
    del model.graph.node[chance.randrange(len(model.graph.node))]


def declared(model, chance):
    value = _value(model, chance)
    held = value.type.tensor_type
    match chance.randrange(6):
        case 0:
            held.elem_type = chance.randrange(0, 60)
        case 1:
            held.shape.dim[chance.randrange(len(held.shape.dim))].dim_value = chance.choice(HUGE)
        case 2:
            held.shape.dim.add().dim_value = chance.choice((*HUGE, 2))
        case 3:
            held.ClearField("shape")
        case 4:
            value.ClearField("type")
        case _:
            kinds = (helper.make_sequence_type_proto, helper.make_optional_type_proto)
            value.type.CopyFrom(chance.choice(kinds)(helper.make_tensor_type_proto(1, [1])))


def huge_shape(model, chance):
    """A large constant that a few bytes describe."""
    sizes = [chance.choice((10**5, 2**31, 2**40)) for _ in range(chance.choice((1, 2, 3)))]
    model.graph.initializer.append(numpy_helper.from_array(np.array(sizes), "huge_shape"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(sizes[0]), "huge_end"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "huge_begin"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "huge_step"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones([1] * len(sizes), np.float32), "huge_one"))
    kind = chance.choice(("ConstantOfShape", "Expand", "Tile", "Range"))
    two, three = ["huge_one", "huge_shape"], ["huge_begin", "huge_end", "huge_step"]
    inputs = {"ConstantOfShape": ["huge_shape"], "Expand": two, "Tile": two, "Range": three}[kind]
    nodes = [helper.make_node(kind, inputs, ["huge"], name="huge_node")]
    nodes += [helper.make_node("Size", ["huge"], ["huge_size"], name="huge_size_node")]
    if chance.random() < 0.5:
        nodes += [helper.make_node("Transpose", ["huge"], ["huge_2"], name="huge_2_node")]
        model.graph.output.append(helper.make_tensor_value_info("huge_2", TensorProto.UNDEFINED, None))
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    model.graph.output.append(helper.make_tensor_value_info("huge_size", TensorProto.INT64, []))


def external(model, chance):
    tensor = _tensor(model, chance)
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    keys = {"location": chance.choice(PLACES)}
    if chance.random() < 0.6:
        keys["offset"] = chance.choice(("0", "-1", "x", "99999999999999999999", "16"))
    if chance.random() < 0.6:
        keys["length"] = chance.choice((str(size), "0", "-5", "1e9", str(2**62)))
    if chance.random() < 0.2:
        keys["unheard_of"] = "x"
    for key, value in keys.items():
        tensor.external_data.add(key=key, value=value)


def sparse(model, chance):
    tensor = _tensor(model, chance)
    sparse_tensor = model.graph.sparse_initializer.add()
    sparse_tensor.values.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), tensor.name))
    sparse_tensor.indices.CopyFrom(numpy_helper.from_array(np.array([0, chance.choice(HUGE), 2]), "indices"))
    sparse_tensor.dims.extend(tensor.dims)
    if chance.random() < 0.7:
        model.graph.initializer.remove(tensor)


def subgraph(model, chance):
    """An If whose branches are broken, or a Loop without end, behind the network."""
    x = model.graph.output[0].name
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    kind = chance.randrange(4)
    if kind < 2:
        node = helper.make_node("Relu" if kind else "NoSuch", [chance.choice((x, "nowhere"))], ["inner"])
        body = helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("inner", 1, None)])
        behind = helper.make_node("If", ["always"], ["behind"], name="if_behind", then_branch=body, else_branch=body)
    else:
        nodes = [helper.make_node("Identity", ["on"], ["on_2"]), helper.make_node("Identity", ["s"], ["s_2"])]
        ends = [("i", 7, []), ("on", 9, []), ("s", 1, None)], [("on_2", 9, []), ("s_2", 1, None)]
        values = [[helper.make_tensor_value_info(*info) for info in end] for end in ends]
        body = helper.make_graph(nodes, "body", *values)
        count = numpy_helper.from_array(np.array(chance.choice((3, 2**62))), "count")
        model.graph.initializer.append(count)
        behind = helper.make_node(
            "Loop", [chance.choice(("count", "")), "always", x], ["behind"], name="loop", body=body
        )
    model.graph.node.append(behind)
    model.graph.output.append(helper.make_tensor_value_info("behind", 1, None))


def deep(model, chance):
    """Branches within branches."""
    body = None
    for i in range(chance.choice((5, 20, 30))):
        nodes = [helper.make_node("Identity", [model.graph.output[0].name], [f"deep{i}"])]
        if body is not None:
            branches = {"then_branch": body, "else_branch": body} if i < 8 else {"then_branch": body}
            nodes = [helper.make_node("If", ["always"], [f"deep{i}"], **branches)]
        body = helper.make_graph(nodes, f"g{i}", [], [helper.make_tensor_value_info(f"deep{i}", 1, None)])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    model.graph.node.append(helper.make_node("If", ["always"], ["deep"], then_branch=body, else_branch=body))
    model.graph.output.append(helper.make_tensor_value_info("deep", 1, None))


def function(model, chance):
    """Functions that call themselves, that double, or that shadow an operator."""
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("mine", 1)]
    match chance.randrange(4):
        case 0:
            nodes = {"F0": [("F0", "mine")]}
        case 1:
            count = chance.choice((10, 25, 60))
            nodes = {f"F{i}": [(f"F{i + 1}", "mine")] * 2 for i in range(count)} | {f"F{count}": [("Relu", "")]}
        case 2:
            nodes = {"F0": [("Missing", "mine")]}
        case _:
            nodes = {"F0": [("F1", "mine")], "F1": [("F0", "mine")]}
    for called, body in nodes.items():
        names = [f"v{i}" for i in range(len(body) + 1)]
        calls = [helper.make_node(op, [a], [b], domain=domain)
                for (op, domain), a, b in zip(body, names, names[1:], strict=False)]  # fmt: skip
        model.functions.append(helper.make_function("mine", called, [names[0]], [names[-1]], calls, opsets))
    model.opset_import.append(opsets[1])
    model.graph.node.append(helper.make_node("F0", [model.graph.output[0].name], ["called_0"], domain="mine"))
    model.graph.output.append(helper.make_tensor_value_info("called_0", 1, None))


def opsets(model, chance):
    match chance.randrange(5):
        case 0:
            model.opset_import[0].version = chance.choice((-1, 0, 1, 5, 6, 7, 8, 9, 11, 12, 21, 25, 99, 2**40))
        case 1:
            model.opset_import.append(
                helper.make_opsetid(chance.choice(("", "ai.onnx", "x")), chance.choice((1, 7, 18)))
            )
        case 2:
            del model.opset_import[:]
        case 3:
            model.ir_version = chance.choice((0, -1, 1, 2, 3, 4, 10, 13, 99))
        case _:
            model.opset_import[0].domain = chance.choice(("ai.onnx", "x", "\x1b"))


def metadata(model, chance):
    keys = ("qbench.config", "qbench.outputs", "qbench.done", "qbench.weight_scales", "qbench.record.schema", "a", "a")
    for key in chance.sample(keys, 3):
        model.metadata_props.add(key=key, value=chance.choice(("1", "{}", "[" * 2000, "99", "-1", "x", "record {")))


def half(model, chance):
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and chance.random() < 0.7:
            kind = chance.choice((np.float16, np.float64))
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(kind), tensor.name))


def text(model, chance):
    """Text where numbers are expected."""
    tensor = _tensor(model, chance)
    tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.STRING, [2], [b"a", b"\xff"]))


CHANGES = (
    dimensions, dimensions, truncated, other_shape, other_shape, strange_values, data_type, typed_fields, fewer_inputs,
    fewer_inputs, more_inputs, other_input, outputs, attribute_type, attribute_type, attribute_kind, attribute_value,
    attribute_value, attribute_value, attribute_more, operator, operator, name, duplicates, cycle, shuffled,
    without_node, declared, declared, huge_shape, external, external, sparse, subgraph, deep, function, opsets,
    metadata, half, text,
)  # fmt: skip
