"""A network is tried on real examples first, and what does not fit is told with the way to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
import torch
from networks import Masked, perceptron, tokens
from onnx import TensorProto, helper, numpy_helper

from qbench import data_preparation
from qbench.cache import store
from qbench.data import DataRequest
from qbench.errors import ModelError
from qbench.metrics.spec import MetricSpec
from qbench.models import adapt, dry_run
from qbench.models.base import ModelReference, Network
from qbench.network import prepare_model

NETWORKS = Path(__file__).parent.parent / "fixtures" / "networks.py"
IDS = np.arange(24).reshape(4, 6) % 16


def prepared(folder, arrays, reference, options=None):
    """The model, tried on an .npz of these arrays, as a run does."""
    splits = {f"{split}_{name}": array for split in ("train", "test") for name, array in arrays.items()}
    np.savez(folder / "d.npz", **splits)
    root = store.open_cache(folder / "cache")
    request = DataRequest(
        loader="npz",
        value="d.npz",
        options=options or {},
        base=folder,
        calibrate_split="train",
        calibrate_samples=4,
        calibrate_seed=0,
        evaluate_split="test",
        evaluate_samples=None,
        evaluate_seed=0,
        train=False,
        allow_overlap=True,
    )
    data = data_preparation.prepare_data(request, root, progress=lambda *_: None)
    return prepare_model(reference, data, MetricSpec(name="top1"), root, progress=lambda *_: None)


def python(name):
    return ModelReference(name="mine", source="python", path=NETWORKS, attribute=name)


def onnx_file(file, *, kind=TensorProto.INT64, batch="n", fixed_output=None, inputs=("ids",)):
    """A lookup of 10 scores for each first id; for float inputs a projection."""
    values = [helper.make_tensor_value_info(name, kind, [batch, 6]) for name in inputs]
    table = numpy_helper.from_array(np.random.default_rng(0).random((16, 10), dtype=np.float32), "table")
    weight = numpy_helper.from_array(np.ones((6, 10), np.float32), "weight")
    if kind == TensorProto.INT64:
        nodes = [
            helper.make_node("Gather", ["table", inputs[0]], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], ["y"], axes=[1], keepdims=0),
        ]
    else:
        nodes = [helper.make_node("MatMul", [inputs[0], "weight"], ["y"])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [fixed_output or batch, 10])
    graph = helper.make_graph(nodes, "net", values, [output], [table, weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return ModelReference(name="mine", source="onnx", path=file)


def labelled(**arrays):
    return {**arrays, "labels": np.arange(4) % 10}


def test_a_model_of_token_ids_says_how_to_leave_them_whole(tmp_path):
    """Ids that were made float do not fit, the message says the option, and with the option they fit."""
    with pytest.raises(ModelError, match=r"mine does not take this data \(float32\[4, 6\]\): .*`to_float: false`"):
        prepared(tmp_path, labelled(inputs=IDS), python("tokens"))
    prepared(tmp_path, labelled(inputs=IDS), python("tokens"), {"to_float": False})


def test_ids_of_a_type_that_the_model_does_not_take_are_named(tmp_path):
    """An embedding takes no bytes: both steps are told."""
    with pytest.raises(ModelError, match=r"takes the examples \(uint8\) as int64: save them as int64, and write `to_f"):
        prepared(tmp_path, labelled(inputs=IDS.astype(np.uint8)), python("tokens"))


def test_images_of_whole_numbers_get_no_wrong_advice(tmp_path):
    """Where whole numbers would not fit either, nothing is said of them."""
    with pytest.raises(ModelError, match=r"mine does not take this data \(float32\[4, 7\]\)") as raised:
        prepared(tmp_path, labelled(inputs=np.ones((4, 7), np.uint8)), python("residual_cnn"))
    assert "to_float" not in str(raised.value)


def test_images_with_channels_on_the_other_side_say_what_to_write(tmp_path):
    """Channels last for a network that takes them first; with the option they fit."""
    images = np.zeros((4, 8, 8, 1), np.float32)
    with pytest.raises(ModelError, match=r"channels last, the network takes them first: write `stored_layout: nhwc`"):
        prepared(tmp_path, labelled(inputs=images), python("residual_cnn"))
    prepared(tmp_path, labelled(inputs=images), python("residual_cnn"), {"stored_layout": "nhwc"})


def test_an_onnx_model_of_token_ids_names_its_type_and_the_option(tmp_path):
    """The expected type is read from the graph."""
    model = onnx_file(tmp_path / "m.onnx")
    message = (
        r"its input 'ids' takes int64, the data gives float32; it takes the examples as they are.*`to_float: false`"
    )
    with pytest.raises(ModelError, match=message):
        prepared(tmp_path, labelled(inputs=IDS), model)
    prepared(tmp_path, labelled(inputs=IDS), model, {"to_float": False})


def test_two_inputs_and_one_array(tmp_path):
    """The inputs are named, for a Python network and for an ONNX file; with both arrays it fits."""
    first, two = np.ones((4, 6), np.float32), {"inputs_0": np.ones((4, 6), np.float32), "inputs_1": np.ones((4, 6))}
    message = (
        r"it has 3 inputs \(values, mask, scale \(optional\)\), but the data gives 1 array; give one array per input"
    )
    with pytest.raises(ModelError, match=message):
        prepared(tmp_path, labelled(inputs=first), python("masked"))
    prepared(tmp_path, labelled(**two), python("masked"))
    model = onnx_file(tmp_path / "m.onnx", kind=TensorProto.FLOAT, inputs=("left", "right"))
    with pytest.raises(ModelError, match=r"it has 2 inputs \(left, right\), but the data gives 1 array"):
        prepared(tmp_path, labelled(inputs=first), model)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")
def test_a_scripted_network_names_its_inputs():
    """From its schema, since it has no Python signature."""
    network = Network(kind="torchscript", module=torch.jit.script(Masked().eval()))
    assert [entry.name for entry in dry_run.inputs_of(network)] == ["values", "mask", "scale"]
    with pytest.raises(dry_run.Misfit, match=r"\(values, mask, scale \(optional\)\)"):
        dry_run.try_outputs(network, (np.ones((2, 6), np.float32),))


def test_any_number_of_inputs_is_taken_as_it_comes():
    """A forward(*inputs) tells nothing, so nothing is required."""

    class Sum(torch.nn.Module):
        def forward(self, *arrays):
            return sum(arrays)

    network = Network(kind="torch", module=Sum())
    assert dry_run.inputs_of(network) is None
    assert dry_run.try_outputs(network, (np.ones((2, 3)), np.ones((2, 3)))).tolist() == [[2.0] * 3] * 2


def test_memory_that_runs_out_is_no_misfit():
    """What limits the memory says it better than a data set that does not fit."""

    class Huge(torch.nn.Module):
        def forward(self, x):
            return x + torch.empty(1 << 50)

    with pytest.raises(RuntimeError, match="can't allocate memory"):
        dry_run.try_outputs(Network(kind="torch", module=Huge()), (np.ones((2, 3), np.float32),))


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            lambda x: {"logits": x},
            "the network returns a dict with logits; say which of them counts: write `output: logits`",
        ),
        (lambda x: x.sum(), r"a batch of 2 gives an output of shape \[\]"),
        (lambda x: x.reshape(-1), r"a batch of 2 gives an output of shape \[6\]"),
    ],
)
def test_an_output_that_is_no_row_per_example_is_refused(output, words):
    """Not as data that does not fit: the data is fine."""

    class Own(torch.nn.Module):
        def forward(self, x):
            return output(x)

    with pytest.raises(ModelError, match=words) as raised:
        dry_run.try_outputs(Network(kind="torch", module=Own()), (np.ones((2, 3), np.float32),))
    assert not isinstance(raised.value, dry_run.Misfit)


class Detector(torch.nn.Module):
    """A dict for each image, of as many boxes as it has, as torchvision's detectors give."""

    def forward(self, images):
        return [{"boxes": image[: 1 + i], "scores": image[: 1 + i, 0]} for i, image in enumerate(images)]


IMAGES = (np.ones((3, 5, 4), np.float32),)


def test_a_dict_for_each_image_says_what_to_return_and_that_works():
    """No ``output`` names one of them: the message gives the expression that makes a tensor, and it is judged."""
    with pytest.raises(ModelError, match=r"a list of 3 dicts \(boxes, scores\), one for each example") as raised:
        dry_run.try_outputs(Network(kind="torch", module=Detector()), IMAGES)
    assert "output:" not in str(raised.value)
    expression = str(raised.value).split("`")[1]

    class Filled(Detector):
        def forward(self, images):
            return eval(expression, {"torch": torch, "detections": super().forward(images)})

    assert dry_run.try_outputs(Network(kind="torch", module=Filled()), IMAGES).shape == (3, 100, 4)


class OneStage(Detector):
    """With parts of torchvision's names: a level of features, and heads that give each cell's box and scores."""

    def __init__(self):
        super().__init__()
        self.box, self.score = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def backbone(self, images):
        return {"0": images}

    def head(self, features):
        return {"boxes": self.box(features[0]), "scores": self.score(features[0])}


def test_a_detector_of_one_stage_is_told_how_to_end_with_its_heads():
    """The line is tried before it is given, and what it makes is judged; parts that do not fit are not spoken of."""
    with pytest.raises(ModelError, match="gives boxes and scores, before decoding") as raised:
        dry_run.try_outputs(Network(kind="torch", module=OneStage()), IMAGES)
    (line,) = (part for part in str(raised.value).split("`") if part.startswith("return "))
    scope = {}
    exec(f"def forward(self, images):\n    {line}\n", scope)
    ended = type("Ended", (OneStage,), {"forward": scope["forward"]})()
    network = Network(kind="torch", module=ended)
    assert dry_run.find_first_output(network, IMAGES) == "boxes"
    assert dry_run.list_outputs(network, IMAGES) == ("boxes", "scores")

    class Strange(OneStage):
        def head(self, features, sizes):
            raise AssertionError("it is called with sizes")

    with pytest.raises(ModelError) as raised:
        dry_run.try_outputs(Network(kind="torch", module=Strange()), IMAGES)
    assert "self.head" not in str(raised.value)


def test_an_output_of_a_dict_for_each_image_cannot_be_named():
    """Whoever names one is told the same."""
    detector = Detector()
    adapt.adapt_module(detector, ModelReference(name="mine", source="python", output="boxes"))
    with pytest.raises(ModelError, match=r"no output 'boxes'; it returns a list of 3 dicts .*`torch\.stack"):
        dry_run.try_outputs(Network(kind="torch", module=detector), IMAGES)


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (lambda x: {"loss": None, "aux": x.sum(), "logits": x}, "logits"),
        (lambda x: ({"features": x}, x), 1),
        (lambda x: [None, x], 1),
    ],
)
def test_the_output_that_is_advised_is_one_that_fits(result, output):
    """Neither a loss that is not there nor a total is proposed; with what is written, the network fits."""

    class Own(torch.nn.Module):
        def forward(self, x):
            return result(x)

    x, own = (np.ones((2, 3), np.float32),), Own()
    with pytest.raises(ModelError, match=f"write `output: {output}` beside"):
        dry_run.try_outputs(Network(kind="torch", module=own), x)
    adapt.adapt_module(own, ModelReference(name="mine", source="python", output=output))
    assert dry_run.try_outputs(Network(kind="torch", module=own), x).shape == (2, 3)


@pytest.mark.parametrize("result", [lambda x: {"loss": x.sum()}, lambda x: ("text", x.sum()), lambda x: "text"])
def test_no_output_is_advised_where_none_fits(result):
    """A total for the whole batch is no answer to any example."""

    class Own(torch.nn.Module):
        def forward(self, x):
            return result(x)

    with pytest.raises(ModelError) as raised:
        dry_run.try_outputs(Network(kind="torch", module=Own()), (np.ones((2, 3), np.float32),))
    assert "output:" not in str(raised.value)


class Two(torch.nn.Module):
    """A network with a part of its result that ``kind`` says."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        both = {"tuple": (x, x + 1), "list": [x, x + 1, x], "none": (x, None), "named": Named(x, x + 1), "single": x}
        return both[self.kind]


class Named(NamedTuple):
    """Two outputs with names."""

    logits: torch.Tensor
    boxes: torch.Tensor


@pytest.mark.parametrize(
    ("kind", "outputs"),
    [
        ("single", ("0",)),
        ("tuple", ("0", "1")),
        ("list", ("0", "1", "2")),
        ("none", ("0",)),
        ("named", ("logits", "boxes")),
    ],
)
def test_the_outputs_of_a_network_are_named_as_a_suite_names_them(kind, outputs):
    """By position where they have no names; None is no output."""
    network = Network(kind="torch", module=Two(kind))
    assert dry_run.list_outputs(network, (np.ones((1, 3), np.float32),)) == outputs


@pytest.mark.parametrize(
    ("counted", "outputs"),
    [
        (None, ("a.0", "a.1", "b")),
        ("a", ("a.0", "a.1", "b")),
        ("a.1", ("a.1", "a.0", "b")),
        ("b", ("b", "a.0", "a.1")),
        (2, ("b", "a.0", "a.1")),
        (3, ("a.0", "a.1", "b")),
    ],
)
def test_the_output_that_counts_comes_first(counted, outputs):
    """By name, by position, or all that lie in what is named; the others stay in their order."""
    network = Network(kind="torch", module=Returning(lambda x: {"a": (x, x), "b": x}))
    assert dry_run.list_outputs(network, (np.ones((1, 3), np.float32),), counted) == outputs


def test_a_forward_is_given_what_it_takes_by_position():
    """What it takes by name alone is no input, and one array too many is told."""

    class Scaled(torch.nn.Module):
        def forward(self, x, *, scale=2.0, **more):
            return x * scale

    network, two_rows = Network(kind="torch", module=Scaled()), np.ones((2, 3), np.float32)
    assert dry_run.inputs_of(network) == (dry_run.NetworkInput(name="x"),)
    with pytest.raises(dry_run.Misfit, match=r"^it has 1 input \(x\), but the data gives 2 arrays; "):
        dry_run.try_outputs(network, (two_rows, two_rows))


def test_images_with_channels_first_say_what_to_write_for_a_network_that_takes_them_last():
    """As one that was converted takes them."""
    network = Network(kind="torch", module=Returning(lambda x: torch.nn.functional.linear(x, torch.ones(5, 3))))
    hint = dry_run.find_hint(network, (np.zeros((2, 3, 8, 8), np.uint8),))
    assert hint.startswith(
        "; its images have their channels first, the network takes them last: save them as (n, height"
    )
    assert dry_run.find_hint(network, (np.zeros((2, 3, 8), np.float32),)) == ""


def test_the_outputs_of_an_onnx_file_have_names(tmp_path):
    """All that its graph gives."""
    file = tmp_path / "two.onnx"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "logits", "boxes")]
    nodes = [helper.make_node("Relu", ["x"], [name]) for name in ("logits", "boxes")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "two", ports[:1], ports[1:])), file)
    assert dry_run.list_outputs(Network(kind="onnx", path=file), ()) == ("logits", "boxes")


def test_a_fixed_batch_is_filled(tmp_path):
    """A file that takes batches of 3 only is tried on each example, three times repeated."""
    reference = onnx_file(tmp_path / "m.onnx", kind=TensorProto.FLOAT, batch=3)
    network = Network(kind="onnx", path=reference.path)
    rows = np.random.default_rng(0).random((2, 6), dtype=np.float32)
    outputs = dry_run.try_outputs(network, (rows,))
    np.testing.assert_allclose(outputs[:, 0], rows.sum(axis=1), rtol=1e-6)
    (alone,) = dry_run.try_all_outputs(network, (rows,))
    assert np.array_equal(alone, outputs)
    assert dry_run.find_first_output(network, (rows,)) is None


def test_a_users_error_names_its_line():
    """Whatever a forward raises, with the line of the user's file."""
    network = Network(kind="torch", module=tokens())
    with pytest.raises(dry_run.Misfit, match=r"at networks\.py:\d+"):
        dry_run.try_outputs(network, (np.ones((2, 3), np.float32),))
    assert dry_run.try_outputs(Network(kind="torch", module=perceptron()), (np.ones((2, 64), np.float32),)).shape == (
        2,
        10,
    )


class Returning(torch.nn.Module):
    """Gives what it was made with for its tensor."""

    def __init__(self, give):
        super().__init__()
        self.give = give

    def forward(self, x):
        return self.give(x)


@pytest.mark.parametrize(
    ("give", "output"),
    [
        (lambda x: {"out": x, "loss": None}, "out"),
        (lambda x: {"out": [None, x]}, "out.1"),
        (lambda x: {"out": x, "aux": x}, "out"),
        (lambda x: {"step": x[0, 0], "out": [x], "aux": x}, "aux"),
        (lambda x: (x, {"raw": [x, x]}), "0"),
        (lambda x: [{"boxes": x}, {"boxes": x}], None),
        (lambda x: (x, None), None),
        (lambda x: x, None),
        (lambda x: x.no_such_thing, None),
    ],
)
def test_what_a_dict_holds_needs_no_output(give, output):
    """The outermost tensor with a row for each example comes first; a plain tensor and a tuple stay as they are, a dict
    for each example and a call that fails are told elsewhere."""
    network = Network(kind="torch", module=Returning(give))
    assert dry_run.find_first_output(network, (IDS.astype(np.float32),)) == output


def test_a_tensor_beside_a_dict_is_seen_before_the_build_and_the_advice_works():
    """What detectors return while they are evaluated: no file holds a dict in a tuple, so `output: 0` is offered."""
    module = Returning(lambda x: (x, {"raw": [x, x]}))
    inputs = (IDS.astype(np.float32),)
    with pytest.raises(ModelError, match="a tuple with a dict in it, .*: write `output: 0` beside the model's name$"):
        dry_run.try_outputs(Network(kind="torch", module=module), inputs)
    adapt.adapt_module(module, ModelReference(name="mine", output=0))
    assert np.array_equal(dry_run.try_outputs(Network(kind="torch", module=module), inputs), inputs[0])


def test_a_nested_output_is_advised_by_its_path_and_the_advice_works():
    """In quotes where YAML would read a number."""
    inputs = (IDS.astype(np.float32),)
    for give, advised in (
        (lambda x: ([x, x], [x]), '"0.0"'),
        (lambda x: {"heads": [x, x], "n": 3}, "heads.0"),
    ):
        module = Returning(give)
        with pytest.raises(ModelError, match=f"write `output: {advised}` beside the model's name"):
            dry_run.try_outputs(Network(kind="torch", module=module), inputs)
        adapt.adapt_module(module, ModelReference(name="mine", output=advised.strip('"')))
        assert np.array_equal(dry_run.try_outputs(Network(kind="torch", module=module), inputs), inputs[0])


def test_a_call_that_fails_is_shown():
    """With the names that the forward has for what it got, and the key that binds them."""
    module = Returning(lambda x: x.no_such_thing)
    with pytest.raises(dry_run.Misfit, match="no attribute 'no_such_thing'") as told:
        dry_run.try_outputs(Network(kind="torch", module=module), (IDS,))
    assert "; it was called as forward(x: int64[4, 6]); `inputs:` beside the model's name says" in str(told.value)


def test_a_run_takes_the_one_tensor_of_a_dict(tmp_path):
    """Nothing has to be written for it, and from then on the network returns that tensor."""
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(6, 10)\n"
        "    def forward(self, x):\n        return {'logits': self.fc(x), 'loss': None}\n"
        "def build():\n    return Net()\n"
    )
    reference = ModelReference(name="mine", source="python", path=tmp_path / "net.py", attribute="build")
    arrays = {"inputs": np.random.default_rng(0).random((4, 6), dtype=np.float32), "labels": np.arange(4)}
    assert prepared(tmp_path, arrays, reference).outputs == ("logits",)


def test_a_file_of_any_batch_is_tried_on_single_examples(tmp_path, monkeypatch):
    """As little as it can be."""
    sizes = []
    for name in ("run", "run_all"):
        plain = getattr(dry_run.onnxruntime_session, name)
        monkeypatch.setattr(
            dry_run.onnxruntime_session,
            name,
            lambda path, inputs, plain=plain: sizes.append(len(inputs[0])) or plain(path, inputs),
        )
    network = Network(kind="onnx", path=onnx_file(tmp_path / "m.onnx", kind=TensorProto.FLOAT).path)
    rows = np.random.default_rng(0).random((2, 6), dtype=np.float32)
    outputs = dry_run.try_outputs(network, (rows,))
    (every,) = dry_run.try_all_outputs(network, (rows,))
    assert np.array_equal(every, outputs)
    assert sizes == [1, 1, 1, 1]


def test_a_network_of_torch_is_tried_on_one_thread(monkeypatch):
    """As it is measured and built."""
    threads = []
    monkeypatch.setattr(dry_run, "set_torch", threads.append)
    dry_run.try_outputs(Network(kind="torch", module=Returning(lambda x: x)), (np.ones((2, 3), np.float32),))
    assert threads == [1]


def test_a_call_of_any_number_of_arrays_that_fails_is_shown_without_names():
    """There are none."""

    class Failing(torch.nn.Module):
        def forward(self, *arrays):
            return arrays[7]

    with pytest.raises(dry_run.Misfit, match=r"; it was called as forward\(int64\[4, 6\], int64\[4, 6\]\); `inputs:`"):
        dry_run.try_outputs(Network(kind="torch", module=Failing()), (IDS, IDS))


def run_out(*_):
    """As torch says it."""
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


def test_memory_that_runs_out_is_told_wherever_it_does():
    """While the first output is looked for, and while the heads of a detector are tried."""
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        dry_run.find_first_output(Network(kind="torch", module=Returning(run_out)), IMAGES)
    detector = OneStage()
    detector.head = run_out
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        dry_run.try_outputs(Network(kind="torch", module=detector), IMAGES)


def test_images_beside_other_inputs_are_turned_alone():
    """With channels last for a network that takes them first."""

    class Both(torch.nn.Module):
        def forward(self, images, values):
            return torch.nn.functional.conv2d(images, torch.ones(4, 3, 1, 1)).mean((2, 3)) + values

    network = Network(kind="torch", module=Both())
    hint = dry_run.find_hint(network, (np.zeros((2, 8, 8, 3), np.uint8), np.zeros((2, 4), np.float32)))
    assert "channels last, the network takes them first" in hint
