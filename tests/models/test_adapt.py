"""A network called in another way than it was written for: axes, constants, one output of several, precisions."""

from __future__ import annotations

import copy
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from qbench.errors import ModelError, SuiteError
from qbench.models import adapt, dry_run
from qbench.models.base import InputForm, ModelReference, Network
from qbench.models.onnx import load as load_onnx
from qbench.suite import parse

X = np.random.RandomState(0).standard_normal((5, 3)).astype(np.float32)
STATE = np.random.RandomState(1).standard_normal((5, 2, 3)).astype(np.float32)  # examples first, as data has them
Named = namedtuple("Named", ["hidden", "logits"])


@dataclass
class Outputs:
    """What some libraries return."""

    hidden: torch.Tensor
    logits: torch.Tensor


class Stateful(nn.Module):
    """Takes a state (2, n, 3) and a rate, returns two outputs in the form that it was made for."""

    def __init__(self, form: str = "dict") -> None:
        super().__init__()
        self.form = form
        self.fc = nn.Linear(3, 4)

    def forward(self, x: Any, state: Any, rate: int, *, scale: float = 1.0) -> Any:
        """``logits`` depend on everything that is given."""
        hidden = x + state[0] - state[1]
        logits = self.fc(hidden) * scale * (2 if rate == 16000 else 1)
        result = {"dict": lambda: {"hidden": hidden, "logits": logits}, "dataclass": lambda: Outputs(hidden, logits),
                "named": lambda: Named(hidden, logits), "list": lambda: [hidden, logits],
                "turned": lambda: logits.T}  # fmt: skip
        return result[self.form]()


def reference(**changes: Any) -> ModelReference:
    """How the network above is called."""
    inputs = {"state": InputForm(axis=1), "rate": InputForm(constant=16000)}
    return ModelReference(name="mine", **{"inputs": inputs, "output": "logits", **changes})


def expected(module: Stateful, scale: float = 1.0) -> Any:
    """What it must give, by hand."""
    with torch.inference_mode():
        x, state = torch.from_numpy(X), torch.from_numpy(STATE)
        return (module.fc(x + state[:, 0] - state[:, 1]) * scale * 2).numpy()


@pytest.mark.parametrize("form", ["dict", "dataclass", "named", "list", "turned"])
def test_a_module_is_called_with_examples_first(form: str) -> None:
    """State turned, rate fixed, the output that is named first and the other behind it, in every form; layers keep
    their names, and a copy is the same."""
    module = Stateful(form).eval()
    names = list(module.state_dict())
    output = {"list": {"output": 1}, "turned": {"output": None, "output_axis": 1}}.get(form, {})
    scale = {**reference().inputs, "scale": InputForm(constant=0.5)}
    adapt.adapt_module(module, reference(inputs=scale, **output))
    assert isinstance(module, Stateful)
    assert list(module.state_dict()) == names
    for entry in (module, copy.deepcopy(module)):
        network = Network(kind="torch", module=entry)
        assert len(list(adapt.list_paths(dry_run._call(network, (X, STATE))))) == (1 if form == "turned" else 2)
        assert [actual.name for actual in dry_run.inputs_of(network) or ()] == ["x", "state"]
        np.testing.assert_allclose(dry_run.try_outputs(network, (X, STATE)), expected(module, 0.5), rtol=1e-6)


def test_an_adapted_module_is_traced_and_exported() -> None:
    """What the flows do with a network works on the adapted one: symbolic tracing and export."""
    module = Stateful().eval()
    adapt.adapt_module(module, reference())
    inputs = (torch.from_numpy(X), torch.from_numpy(STATE))
    for entry in (torch.export.export(module, inputs).module(), torch.fx.symbolic_trace(module)):
        logits, hidden = (output.detach().numpy() for output in entry(*inputs))
        np.testing.assert_allclose(logits, expected(module), rtol=1e-6)
        np.testing.assert_allclose(hidden, X + STATE[:, 0] - STATE[:, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": {"sate": InputForm(axis=1)}}, "mine: no input named 'sate'; did you mean 'state'"),
        ({"output": "logit"}, "no output 'logit'; it returns hidden, logits"),
        ({"output": None}, "returns a dict with hidden, logits; say which of them counts: write `output: hidden`"),
    ],
)
def test_a_wrong_name_is_told_with_those_that_there_are(changes: dict[str, Any], words: str) -> None:
    """Of inputs and of outputs; and a dict without a choice says how to make one."""
    module = Stateful().eval()

    def tried() -> None:
        adapt.adapt_module(module, reference(**changes))
        dry_run.try_outputs(Network(kind="torch", module=module), (X, STATE))

    with pytest.raises(ModelError, match=words):
        tried()


def test_other_precisions_are_converted_where_that_is_exact() -> None:
    """float16, bfloat16 and float64 that float32 holds become float32, with a note; else the message says the call."""
    for dtype in (torch.float16, torch.bfloat16):
        module = nn.Linear(3, 2).to(dtype)
        before = module.weight.clone()
        note = adapt.to_float32(module, "mine")
        assert "held in float32, which is exact" in str(note)
        assert module.weight.dtype == torch.float32
        assert torch.equal(module.weight.to(dtype), before)
    doubled = nn.Linear(3, 2).double()  # of float32 values
    assert "float64" in str(adapt.to_float32(doubled, "mine"))
    assert adapt.to_float32(doubled, "mine") is None
    real = nn.Linear(3, 2).double()
    nn.init.constant_(real.weight, 0.1)
    with pytest.raises(ModelError, match=r"float32 does not hold the values of 1 of 2 of them \(weight\).*call .float"):
        adapt.to_float32(real, "mine")


def graph_file(folder: Path, kind: int = TensorProto.FLOAT) -> Path:
    """The same network as an ONNX file: x (n, 3), state (2, n, 3), rate a number of int64."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        helper.make_node("Gather", ["state", "zero"], ["first"], axis=0),
        helper.make_node("Gather", ["state", "one"], ["second"], axis=0),
        helper.make_node("Add", ["x", "first"], ["sum"]),
        helper.make_node("Sub", ["sum", "second"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w"], ["product"]),
        helper.make_node("Cast", ["rate"], ["factor"], to=kind),
        helper.make_node("Mul", ["product", "factor"], ["logits"]),
        helper.make_node("Exp", ["hidden"], ["other"]),
    ]
    weights = np.arange(12).reshape(3, 4).astype(dtype)
    content = [numpy_helper.from_array(weights, "w"), *(numpy_helper.from_array(np.int64(i), n) for i, n in
            enumerate(("zero", "one")))]  # fmt: skip
    value = helper.make_tensor_value_info
    inputs = [value("x", kind, ["n", 3]), value("state", kind, [2, "n", 3]), value("rate", TensorProto.INT64, [1])]
    outputs = [value("other", kind, ["n", 3]), value("logits", kind, ["n", 4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, content)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_an_onnx_file_becomes_one_with_examples_first(kind: int, tmp_path: Path) -> None:
    """The same answers from a file whose inputs all begin with the example, the output that is named first; the other
    one stays: what is timed and shipped is the whole network."""
    file = graph_file(tmp_path, kind)
    network = load_onnx(ModelReference(name="mine", source="onnx", path=file))
    inputs = {"state": InputForm(axis=1), "rate": InputForm(constant=3)}
    write = adapt.file_of(network, reference(inputs=inputs))
    assert write is not None
    write(tmp_path / "adapted.onnx")
    onnx.checker.check_model(tmp_path / "adapted.onnx", full_check=True)
    graph = onnx.load(tmp_path / "adapted.onnx").graph
    assert [value.name for value in graph.input] == ["x", "state"]
    assert [value.name for value in graph.output] == ["logits", "other"]
    assert "Exp" in {node.op_type for node in graph.node}
    session = onnxruntime.InferenceSession(tmp_path / "adapted.onnx", providers=["CPUExecutionProvider"])
    assert {value.type for value in session.get_inputs()} == {"tensor(float)"}
    actual = session.run(None, {"x": X, "state": STATE})[0]
    required = 3 * (X + STATE[:, 0] - STATE[:, 1]) @ np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(actual, required, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": {"stat": InputForm(axis=1)}}, "no input named 'stat'; did you mean 'state'"),
        ({"inputs": {"state": InputForm(axis=3)}}, "input 'state' has 3 axes, none is number 3"),
        ({"inputs": {"rate": InputForm(constant=0.5)}}, "input 'rate' takes int64, which does not hold 0.5"),
        ({"inputs": {"rate": InputForm(constant=[1, 2])}}, r"input 'rate' has the shape \[1\]"),
        ({"output": "logit"}, "no output named 'logit'; did you mean 'logits'"),
        ({"output": 2}, "no output 2; it has 2, counted from 0"),
    ],
)
def test_what_an_onnx_file_lacks_is_told(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Names, axes, types and shapes are held against the file."""
    network = Network(kind="onnx", path=graph_file(tmp_path))
    write = adapt.file_of(network, reference(**{"inputs": {}, "output": None, **changes}))
    assert write is not None
    with pytest.raises(ModelError, match=words):
        write(tmp_path / "adapted.onnx")


def test_a_file_that_needs_nothing_stays(tmp_path: Path) -> None:
    """No copy of a file that is called as it was written."""
    network = Network(kind="onnx", path=graph_file(tmp_path))
    assert adapt.file_of(network, ModelReference(name="mine")) is None


class Scripted(nn.Module):
    """The network above for torch.jit.script, with an int that its schema names."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor, state: torch.Tensor, rate: int) -> dict[str, torch.Tensor]:
        """A dict of two."""
        hidden = x + state[0] - state[1]
        return {"hidden": hidden, "logits": self.fc(hidden) * (2 if rate == 16000 else 1)}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_torchscript_file_becomes_one_with_examples_first(tmp_path: Path) -> None:
    """The same answers; what its schema calls an int gets a number."""
    module = Scripted().eval()
    network = Network(kind="torchscript", module=torch.jit.script(module), path=tmp_path / "net.pt")
    write = adapt.file_of(network, reference())
    assert write is not None
    write(tmp_path / "adapted.pt")
    again = Network(kind="torchscript", module=torch.jit.load(tmp_path / "adapted.pt"), path=tmp_path / "adapted.pt")
    assert [entry.name for entry in dry_run.inputs_of(again) or ()] == ["x", "state"]
    plain = Stateful()
    plain.load_state_dict(module.state_dict())
    np.testing.assert_allclose(dry_run.try_outputs(again, (X, STATE)), expected(plain), rtol=1e-6)
    with pytest.raises(ModelError, match="no input named 'stat'; did you mean 'state'"):
        adapt.file_of(network, reference(inputs={"stat": InputForm(axis=1)}))(tmp_path / "x.pt")  # type: ignore[misc]


SUITE = """
suite: s
models:
  - name: mine
    source: {{onnx: m.onnx}}
    {key}
data: {{dataset: digits}}
matrix: {{}}
"""


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("inputs: {a: {}}", r"<text>:6:17: models\[0\].inputs.a: expected either axis or constant, got none of them"),
        ("inputs: {a: {axis: 1, constant: 2}}", "got both of them"),
        ("inputs: {a: {axis: -1}}", r"<text>:6:24: models\[0\].inputs.a.axis: expected a number of at least 0"),
        ("inputs: {a: {axs: 1}}", "unknown key 'axs'; did you mean 'axis'"),
        ("inputs: {a: {constant: [[1, 2], [3]]}}", "lists of one length at each level"),
        ("inputs: {a: {constant: x}}", "expected a number, true, false or a list of them, got 'x'"),
        ("output: {nme: logits}", "unknown key 'nme'; did you mean 'name'"),
        ("output: [a]", r"<text>:6:13: models\[0\].output: expected a mapping"),
    ],
)
def test_a_wrong_way_to_call_is_told_at_its_place(key: str, words: str) -> None:
    """file:line:col and the path of the key."""
    with pytest.raises(SuiteError, match=words):
        parse(SUITE.format(key=key))


def test_a_suite_says_how_a_network_is_called() -> None:
    """As the stages take it; a built-in is called as it is."""
    text = SUITE.format(key="inputs: {state: {axis: 1}, sr: {constant: 16000}}\n    output: logits")
    (actual,) = parse(text).references()
    assert actual.inputs == {"state": InputForm(axis=1), "sr": InputForm(constant=16000)}
    assert (actual.output, actual.output_axis, actual.adapted) == ("logits", 0, True)
    (other,) = parse(SUITE.format(key="output: {name: 1, axis: 1}")).references()
    assert (other.output, other.output_axis) == (1, 1)
    with pytest.raises(SuiteError, match="only a model of your own is called in another way; remove this key"):
        parse("suite: s\nmodels: [{name: digits-cnn, output: a}]\ndata: {dataset: digits}\nmatrix: {}\n")


TOKENS, MASK = torch.arange(6).reshape(2, 3), torch.ones(2, 3)


class AnyNumber(nn.Module):
    def forward(self, *arrays: Any) -> Any:
        return {"sum": arrays[0] + arrays[1], "first": arrays[0]}


class ByKeyword(nn.Module):
    def forward(self, **arrays: Any) -> Any:
        return arrays["input_ids"] * arrays["attention_mask"]


class OneDict(nn.Module):
    def forward(self, features: dict[str, Any], **more: Any) -> Any:
        return {"embedding": features["input_ids"] * features["attention_mask"], **more}


class Cached(nn.Module):
    def forward(self, input_ids: Any, past: Any = None, attention_mask: Any = None, scale: float = 1.0) -> Any:
        assert past is None
        return input_ids * attention_mask * scale


class KeywordOnly(nn.Module):
    def forward(self, input_ids: Any, *, attention_mask: Any, past: Any = 3) -> Any:
        assert past is None
        return input_ids * attention_mask


ARRAY, NULL = InputForm(axis=0), InputForm(constant=None)


@pytest.mark.parametrize(
    ("network", "changes"),
    [
        (ByKeyword, {"inputs": {"input_ids": ARRAY, "attention_mask": ARRAY}}),
        (OneDict, {"inputs": {"input_ids": ARRAY, "attention_mask": ARRAY}, "output": "embedding"}),
        (Cached, {"inputs": {"input_ids": ARRAY, "attention_mask": ARRAY}}),
        (Cached, {"inputs": {"past": NULL}}),
        (KeywordOnly, {"inputs": {"attention_mask": ARRAY, "past": NULL}}),
    ],
)
def test_arrays_reach_the_inputs_that_are_named(network: type[nn.Module], changes: dict[str, Any]) -> None:
    """By ``**kwargs``, in a dict that is the one argument, past optional ones that come before, by keyword alone;
    ``constant: null`` is None and no array."""
    module = network()
    adapt.adapt_module(module, ModelReference(name="mine", **changes))
    given = [each.name for each in dry_run.inputs_of(Network(kind="torch", module=module)) or ()]
    assert given[:2] == ["input_ids", "attention_mask"]
    assert torch.equal(module(TOKENS, MASK), TOKENS * MASK)


class Three(nn.Module):
    def forward(self, words: torch.Tensor, mask: torch.Tensor, scale: float, picture: torch.Tensor) -> torch.Tensor:
        return (words * mask + picture) * scale


NAMED = {"words": ARRAY, "picture": ARRAY, "scale": InputForm(constant=2.0), "mask": ARRAY}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("inputs", "order"),
    [
        (NAMED, ["words", "picture", "mask"]),
        ({name: form for name, form in NAMED.items() if name != "words"}, ["words", "mask", "picture"]),
    ],
)
@pytest.mark.parametrize("form", ["module", "torchscript", "onnx"])
def test_where_every_array_is_named_they_come_in_that_order(
    form: str, inputs: dict[str, InputForm], order: list[str], tmp_path: Path
) -> None:
    """The data's and the network's orders differ, and arrays of one shape would be mixed up without a word; where some
    are not named, the order is the network's."""
    named = ModelReference(name="mine", inputs=inputs)
    arrays = {name: np.full((2, 3), value, np.float32) for name, value in (("words", 2), ("mask", 3), ("picture", 5))}
    network = Network(kind="torch", module=Three().eval())
    if form == "module":
        adapt.adapt_module(network.module, named)
    elif form == "torchscript":
        torch.jit.save(torch.jit.script(network.module), tmp_path / "net.pt")
        scripted = Network(kind="torchscript", module=torch.jit.load(tmp_path / "net.pt"), path=tmp_path / "net.pt")
        adapt.file_of(scripted, named)(tmp_path / "adapted.pt")  # type: ignore[misc]
        network = Network(kind="torchscript", module=torch.jit.load(tmp_path / "adapted.pt"))
    else:
        value = helper.make_tensor_value_info
        ports = [value(name, TensorProto.FLOAT, ["n", 3]) for name in ("words", "mask", "picture", "y")]
        ports.insert(2, value("scale", TensorProto.FLOAT, []))
        nodes = [
            helper.make_node("Mul", ["words", "mask"], ["seen"]),
            helper.make_node("Add", ["seen", "picture"], ["sum"]),
            helper.make_node("Mul", ["sum", "scale"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "g", ports[:-1], ports[-1:])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "n")
        adapt.file_of(Network(kind="onnx", path=tmp_path / "n"), named)(tmp_path / "a.onnx")  # type: ignore[misc]
        network = Network(kind="onnx", path=tmp_path / "a.onnx")
    assert [port.name for port in dry_run.inputs_of(network) or ()] == order
    answers = dry_run.try_outputs(network, tuple(arrays[name] for name in order))
    np.testing.assert_array_equal(answers, np.full((2, 3), (2 * 3 + 5) * 2.0))


def test_any_number_of_arrays_stays_so_where_an_output_is_chosen() -> None:
    """The adapted forward hands on all that it gets."""
    module = AnyNumber()
    adapt.adapt_module(module, ModelReference(name="mine", output="sum"))
    total, first = module(TOKENS, MASK)
    assert torch.equal(total, TOKENS + MASK)
    assert torch.equal(first, TOKENS)


class Nested(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"logits": [x + 1, {"deep": x + 2}], "past": None}


@pytest.mark.parametrize(("output", "more"), [("logits.0", 1), ("logits.1.deep", 2)])
def test_an_output_that_is_nested_is_named_by_its_path(output: str, more: int) -> None:
    """Names and positions, a point between them; what is not there is told with what is."""
    module = Nested()
    adapt.adapt_module(module, ModelReference(name="mine", output=output))
    counted, other = module(TOKENS)
    assert torch.equal(counted, TOKENS + more)
    assert torch.equal(other, TOKENS + 3 - more)
    first = AnyNumber()
    first.forward = lambda x: (x + 1, x)
    assert torch.equal(adapt._output(first(TOKENS), "0", 0)[0], TOKENS + 1)
    wrong = Nested()
    adapt.adapt_module(wrong, ModelReference(name="mine", output="logits.7"))
    with pytest.raises(ModelError, match="no output 7; it returns 2 without names, from 0"):
        wrong(TOKENS)


def test_a_suite_gives_lists_of_lists_as_a_constant() -> None:
    """Of one length at each level, as a tensor has it."""
    (actual,) = parse(SUITE.format(key="inputs: {a: {constant: [[1, 2], [3, 4]]}}")).references()
    assert actual.inputs["a"].constant == [[1, 2], [3, 4]]


def test_a_suite_gives_null_as_a_constant() -> None:
    """Which is no missing key; an input with neither key is refused."""
    text = SUITE.format(key="inputs: {past: {constant: null}, ids: {axis: 0}}")
    (actual,) = parse(text).references()
    assert actual.inputs == {"past": InputForm(constant=None), "ids": InputForm()}
    assert [form.is_constant for form in actual.inputs.values()] == [True, False]


def test_a_file_of_onnx_has_no_null(tmp_path: Path) -> None:
    """Its inputs are tensors, each."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    network = load_onnx(ModelReference(name="mine", path=tmp_path / "m.onnx"))
    write = adapt.file_of(network, ModelReference(name="mine", inputs={"x": NULL}))
    assert write is not None
    with pytest.raises(ModelError, match="mine: input 'x' of an ONNX file is a tensor and cannot be null; remove it"):
        write(tmp_path / "n.onnx")


def relayed(folder: Path, shape: list[Any], kind: int = TensorProto.FLOAT, more: Any = ()) -> Path:
    """A file that passes ``x`` on as ``y``; ``more``: the shapes of other inputs of int64, each passed on
    behind it."""
    value = helper.make_tensor_value_info
    names = [("x", "y", shape, kind), *((f"a{i}", f"b{i}", size, TensorProto.INT64) for i, size in enumerate(more))]
    nodes = [helper.make_node("Identity", [source], [target]) for source, target, *_ in names]
    inputs = [value(source, of, size) for source, _, size, of in names]
    graph = helper.make_graph(nodes, "g", inputs, [value(target, of, size) for _, target, size, of in names])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "r.onnx")
    return folder / "r.onnx"


def adapted(file: Path, **changes: Any) -> onnxruntime.InferenceSession:
    """The adapted file, opened."""
    write = adapt.file_of(Network(kind="onnx", path=file), ModelReference(name="mine", **changes))
    assert write is not None
    assert write(file.with_name("adapted.onnx")) is None
    onnx.checker.check_model(file.with_name("adapted.onnx"), full_check=True)
    return onnxruntime.InferenceSession(file.with_name("adapted.onnx"), providers=["CPUExecutionProvider"])


def test_axes_of_an_onnx_file_are_turned_there_and_back(tmp_path: Path) -> None:
    """The last of three becomes the first of an input and of an output, with the sizes that they declare; the others
    keep their order."""
    file = relayed(tmp_path, [2, 3, "n"], more=[["n"]])
    data = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    session = adapted(file, inputs={"x": InputForm(axis=2)}, output_axis=2)
    assert [(port.name, port.shape) for port in session.get_inputs()] == [("x", ["n", 2, 3]), ("a0", ["n"])]
    assert [port.shape for port in session.get_outputs()] == [["n", 2, 3], ["n"]]
    answers = session.run(None, {"x": data, "a0": np.zeros(5, np.int64)})
    assert np.array_equal(answers[0], data)
    (turned, _) = adapted(file, inputs={"x": InputForm(axis=2)}).run(None, {"x": data, "a0": np.zeros(5, np.int64)})
    assert np.array_equal(turned, data.transpose(1, 2, 0))


def test_inputs_and_outputs_come_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    """Where each input is named, in that of the suite; an output by its name or its place."""
    file = relayed(tmp_path, ["n"], more=[["n"], ["n"]])
    ordered = adapted(file, inputs={name: InputForm() for name in ("a1", "x", "a0")}, output=2)
    assert [port.name for port in ordered.get_inputs()] == ["a1", "x", "a0"]
    assert [port.name for port in ordered.get_outputs()] == ["b1", "y", "b0"]
    assert {node.op_type for node in onnx.load(tmp_path / "adapted.onnx").graph.node} == {"Identity"}
    assert [port.name for port in adapted(file, output="b0").get_outputs()] == ["b0", "y", "b1"]


@pytest.mark.parametrize(
    ("shape", "constant", "size"),
    [
        ([], 3, ()),
        ([1], 3, (1,)),
        ([1, 1], 3, (1, 1)),
        (["m"], [1, 2], (2,)),
        ([2], [1, 2], (2,)),
        (["m", 2], [[1, 2]], (1, 2)),
    ],
)
def test_a_constant_of_an_onnx_file_has_the_shape_of_its_input(
    shape: list[Any], constant: Any, size: tuple[int, ...], tmp_path: Path
) -> None:
    """A number has as many axes as are declared; a length that is open takes any."""
    session = adapted(relayed(tmp_path, ["n"], more=[shape]), inputs={"a0": InputForm(constant=constant)})
    given = session.run(["b0"], {"x": np.zeros(1, np.float32)})[0]
    assert (given.shape, given.ravel().tolist()) == (size, np.ravel(constant).tolist())


@pytest.mark.parametrize(("shape", "constant"), [([2], [1, 2, 3]), ([2], [[1, 2]]), ([2], 3), ([], [1])])
def test_a_constant_of_another_shape_is_refused(shape: list[Any], constant: Any, tmp_path: Path) -> None:
    """With both shapes."""
    with pytest.raises(ModelError, match=rf"input 'a0' has the shape \{shape} \(0: any\)".replace("]", r"\]")):
        adapted(relayed(tmp_path, ["n"], more=[shape]), inputs={"a0": InputForm(constant=constant)})


@pytest.mark.parametrize("changes", [{"output_axis": 1}, {"output": "b0", "output_axis": 1}])
def test_an_axis_that_an_output_has_not_is_told(changes: dict[str, Any], tmp_path: Path) -> None:
    """As that of an input is."""
    with pytest.raises(ModelError, match=f"mine: output '{changes.get('output', 'y')}' has 1 axes, none is number 1$"):
        adapted(relayed(tmp_path, ["n"], more=[["n"]]), **changes)


def test_a_file_of_half_floats_is_widened_though_it_is_called_as_it_was_written(tmp_path: Path) -> None:
    """Its data and its answers are float32."""
    session = adapted(relayed(tmp_path, ["n"], TensorProto.FLOAT16))
    assert {port.type for port in (*session.get_inputs(), *session.get_outputs())} == {"tensor(float)"}


def test_the_last_axis_of_a_module_is_turned_there_and_back() -> None:
    """The network sees its examples where it was written for them, and one output is turned as its input was."""
    sizes: list[tuple[int, ...]] = []

    class Last(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(tuple(x.shape))
            return x * 2

    module = Last()
    adapt.adapt_module(module, ModelReference(name="mine", inputs={"x": InputForm(axis=2)}, output_axis=2))
    assert torch.equal(module(torch.from_numpy(STATE)), torch.from_numpy(STATE * 2))
    assert sizes == [(2, 3, 5)]


class Several(nn.Module):
    """A scaled input, a number, and the input turned."""

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> tuple[torch.Tensor, int, torch.Tensor]:
        """In a tuple."""
        return x * scale, 3, x.t().contiguous()


class Listed(nn.Module):
    """The same in a list."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Without names."""
        return [x * 2.0, x + 1]


class Turned(nn.Module):
    """Examples along the last of three axes."""

    def forward(self, x: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        """One output."""
        return x.permute(1, 2, 0) + offset


def script(module: nn.Module, folder: Path, **changes: Any) -> Any:
    """The adapted TorchScript file, opened."""
    torch.jit.script(module.eval()).save(str(folder / "net.pt"))
    network = Network(kind="torchscript", module=torch.jit.load(folder / "net.pt"), path=folder / "net.pt")
    write = adapt.file_of(network, ModelReference(name="mine", **changes))
    assert write is not None
    write(folder / "adapted.pt")
    return torch.jit.load(folder / "adapted.pt")


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_an_output_of_a_torchscript_file_comes_first_with_its_examples(tmp_path: Path) -> None:
    """The other tensors follow in their order, what is none is left out; a default that nobody names stays."""
    x = torch.from_numpy(X)
    counted, other = script(Several(), tmp_path, output=2, output_axis=1)(x)
    assert torch.equal(counted, x)
    assert torch.equal(other, x * 2)
    counted, other = script(Several(), tmp_path, output_axis=1, inputs={"scale": InputForm(constant=3.0)})(x)
    assert torch.equal(counted, x.t() * 3)
    assert torch.equal(other, x.t())
    assert torch.equal(script(Listed(), tmp_path, output=1)(x), x + 1)
    assert torch.equal(script(Listed(), tmp_path, output_axis=1)(x), x.t() * 2)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("offset", [1, [1.0]])
def test_axes_and_constants_of_a_torchscript_file(offset: Any, tmp_path: Path) -> None:
    """The last of three axes is turned to the front; what its schema calls a tensor gets one."""
    module = script(Turned(), tmp_path, output_axis=2, inputs={"offset": InputForm(constant=offset)})
    assert torch.equal(module(torch.from_numpy(STATE)), torch.from_numpy(STATE) + 1)
    assert [name for name, _ in module.named_buffers()] == ["constant_offset"]
    with pytest.raises(ModelError, match="mine: the network returns one Tensor; remove `output`"):
        script(Turned(), tmp_path, output=1)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_torchscript_file_of_half_floats_is_widened_though_it_is_called_as_it_was_written(tmp_path: Path) -> None:
    """One of float32 that is called as it was written stays."""
    assert script(nn.Linear(3, 2).half(), tmp_path).network.weight.dtype == torch.float32
    plain = Network(kind="torchscript", module=torch.jit.script(nn.Linear(3, 2)), path=tmp_path / "net.pt")
    assert adapt.file_of(plain, ModelReference(name="mine")) is None


def test_long_lists_of_names_are_cut() -> None:
    """Twelve outputs, and three weights that float32 does not hold."""
    module = AnyNumber()
    module.forward = lambda x: {f"o{number}": x for number in range(14)}
    with pytest.raises(ModelError, match="it returns o0, .*, o11 and 2 more$"):
        adapt._chosen(module(TOKENS), "logits")
    real = nn.ParameterDict({name: nn.Parameter(torch.tensor([0.1], dtype=torch.float64)) for name in "abcd"})
    with pytest.raises(ModelError, match=r"the values of 4 of 4 of them \(a, b, c\); qbench runs float32"):
        adapt.to_float32(real, "mine")
