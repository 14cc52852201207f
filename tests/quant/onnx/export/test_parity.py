"""How far a deploy model agrees with its fake-quant model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_networks import Draft, random_inputs, residual_cnn
from quantized_networks import quantized

from qbench.errors import BuildError
from qbench.quant.onnx.export import deploy_ascend, deploy_onnxruntime, parity
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.export.parity import Parity
from qbench.quant.onnx.graph.class_axis import class_axis
from qbench.quant.onnx.graph.graph import Graph

MADE = quantized("residual_cnn")
FAKE = fake_quant(MADE.graph, MADE.sites, MADE.record)


@pytest.mark.parametrize("target", [deploy_onnxruntime, deploy_ascend])
@pytest.mark.parametrize("name", ["residual_cnn", "two_inputs", "tokens", "pools", "branches"])
def test_deploy_models_predict_what_fake_quant_models_predict(name: str, target) -> None:
    """Random examples get the same predictions, and outputs that differ by less than a hundredth of the largest."""
    network = quantized(name)
    fake = fake_quant(network.graph, network.sites, network.record)
    compared = parity.compared(fake, target.deploy(network.graph, network.sites, network.record))
    assert compared is not None
    assert compared.examples == (parity.ASCEND_EXAMPLES if target is deploy_ascend else parity.EXAMPLES)
    assert compared.agreement is not None
    assert compared.agreement >= 0.9
    assert compared.relative_difference < 0.01
    assert compared.largest_difference > 0 or compared.relative_difference == 0


@pytest.mark.parametrize("target", [deploy_onnxruntime, deploy_ascend])
def test_a_damaged_model_is_seen(target) -> None:
    """One layer's scales that are wrong by a half show in the difference."""
    model = target.deploy(MADE.graph, MADE.sites, MADE.record)
    name = next(name for name in model.constants if name.startswith(("conv2.weight_scale", "conv2.deq_scale")))
    constant = model.constant(name)
    wrong = constant * np.float32(1.5) if constant.dtype == np.float32 else deploy_ascend.packed(
        constant.astype(np.uint32).view(np.float32) * np.float32(1.5))  # fmt: skip
    model.set_constant(name, wrong)
    compared = parity.compared(FAKE, model)
    assert compared is not None
    assert compared.relative_difference > 0.02


def test_the_given_examples_are_compared() -> None:
    """All batches that are given are run, and nothing else; of an ascend model, whose interpreter is slow, as many
    examples as it takes in seconds."""
    feeds = [{"image": random_inputs(residual_cnn(), 4, seed)[0]} for seed in range(2)]
    model = deploy_onnxruntime.deploy(MADE.graph, MADE.sites, MADE.record)
    compared = parity.compared(FAKE, model, feeds)
    assert compared is not None
    assert compared.examples == 8
    assert compared == parity.compared(FAKE, model, feeds)
    parts = [parity.compared(FAKE, model, [feed]) for feed in feeds]
    assert compared.largest_difference == max(part.largest_difference for part in parts if part is not None)
    ascend = parity.compared(FAKE, deploy_ascend.deploy(MADE.graph, MADE.sites, MADE.record), feeds)
    assert ascend is not None
    assert ascend.examples == parity.ASCEND_EXAMPLES


def test_the_share_of_equal_predictions_and_the_largest_difference() -> None:
    """Three of four examples with the same largest logit are 0.75; 0.5 of a largest output of 4 is 0.125."""
    ours = np.float32([[1, 0], [0, 2], [-4, 0], [0, 0.5]])
    theirs = np.float32([[0.5, 0], [0, 2], [-4, 0], [0.25, 0]])
    network = parity.of([[ours]], [[theirs]])
    assert network == Parity(examples=4, agreement=0.75, largest_difference=0.5, relative_difference=0.125)


def test_batches_and_outputs_count_together() -> None:
    """Two batches with two outputs each: every float output's predictions and every integer count."""
    ours = [np.float32([[1, 0]]), np.array([3, 4])]
    theirs = [np.float32([[1, 0]]), np.array([3, 5])]
    network = parity.of([ours, ours], [ours, theirs])
    assert network == Parity(examples=2, agreement=5 / 6, largest_difference=0.0, relative_difference=0.0)


def test_outputs_without_classes_have_no_agreement() -> None:
    """A single number an example has no largest class: the agreement is not known, the difference is."""
    network = parity.of([[np.float32([[2.0], [4.0]])]], [[np.float32([[2.0], [4.5]])]])
    assert network == Parity(examples=2, agreement=None, largest_difference=0.5, relative_difference=0.125)


def test_positions_of_a_segmentation_count_one_by_one() -> None:
    """Classes lie along axis 1: of two by two positions one that differs is 0.75."""
    ours = np.zeros((1, 3, 2, 2), np.float32)
    ours[:, 1] = 1
    theirs = ours.copy()
    theirs[0, 2, 0, 0] = 2
    assert parity.of([[ours]], [[theirs]]).agreement == 0.75


def outputs_of(kind: str) -> Graph:
    """A network from (batch, 3, 8) whose output has its classes where ``kind`` says."""
    draft, shape = Draft(), ["batch", 3, 5]
    if kind in ("last", "reshaped", "softmax"):
        draft.add("MatMul", ["x", draft.weight("w", 8, 5)], "product")
        draft.add("Add", ["product_out", draft.bias("b", 5)], "added", outputs=["y"] if kind == "last" else None)
    if kind == "softmax":
        draft.add("Softmax", ["added_out"], "softmax", outputs=["y"], axis=1)
    if kind == "reshaped":
        draft.add("Reshape", ["added_out", draft.constant("size", np.int64([0, 3, 5]))], "reshaped", outputs=["y"])
    if kind in ("second", "transposed"):
        draft.add("Conv", ["x", draft.weight("w", 5, 3, 1)], "conv", outputs=["y"] if kind == "second" else None)
        shape = ["batch", 5, 8]
    if kind == "transposed":
        draft.add("Transpose", ["conv_out"], "transposed", outputs=["y"], perm=[0, 2, 1])
        shape = ["batch", 8, 5]
    return Graph(onnx.shape_inference.infer_shapes(draft.model({"x": ["batch", 3, 8]}, {"y": shape})))


@pytest.mark.parametrize(
    ("kind", "axis"), [("last", 2), ("reshaped", 2), ("transposed", 2), ("second", 1), ("softmax", 1)]
)
def test_classes_lie_where_the_graph_has_them(kind: str, axis: int) -> None:
    """Behind a matrix product, or a transposed convolution, they are the last axis; behind a convolution the second;
    a Softmax says so itself. The agreement counts positions of that axis."""
    graph = outputs_of(kind)
    assert class_axis(graph, "y", 3) == axis
    ours = np.zeros((1, 4, 4), np.float32)
    ours[0, :, 0] = 1  # along the last axis every position chooses 0
    theirs = ours.copy()
    theirs[0, 0, 1] = 2  # one of them now chooses 1; along axis 1 one that was tied chooses 0, as it did
    assert parity.of([[ours]], [[theirs]], [axis]).agreement == (0.75 if axis == 2 else 1.0)


def test_a_recognizer_of_text_is_compared_by_its_steps() -> None:
    """Outputs (batch, steps, classes): of ten steps the deploy model gets one wrong, which is 0.9, whatever the order
    of the steps along axis 1."""
    draft = Draft()
    draft.add("MatMul", ["x", draft.constant("w", np.eye(7, dtype=np.float32))], "product", outputs=["y"])
    ours = Graph(draft.model({"x": ["batch", 10, 7]}, {"y": ["batch", 10, 7]}))
    theirs = ours.copy()
    shift = np.eye(7, dtype=np.float32)
    shift[0] = 0  # the first class is never chosen
    theirs.set_constant("w", shift)
    steps = np.float32(np.eye(7)[[0, 1, 2, 3, 4, 5, 6, 1, 2, 3]])[None] + np.float32(0.1) * np.float32(
        np.arange(7) == 6
    )
    compared = parity.compared(ours, theirs, [{"x": steps}])
    assert compared is not None
    assert compared.agreement == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), (2, 1.0, 0.0, 0.0, True)),
        (np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32), (2, 1.0, 1.0, 0.0, True)),
        (np.float32([[0, -2]]), np.float32([[0, -1]]), (1, 1.0, 1.0, 0.5, False)),
        (np.float32([1.0, 2.0]), np.float32([1.0, 2.0]), (2, None, 0.0, 0.0, False)),
        (np.float32(4.0), np.float32(5.0), (1, None, 1.0, 0.25, False)),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), (0, None, 0.0, 0.0, False)),
        (np.zeros((3, 0), np.float32), np.zeros((3, 0), np.float32), (3, None, 0.0, 0.0, False)),
        (np.zeros(2, np.int64), np.zeros(2, np.int64), (2, 1.0, 0.0, 0.0, False)),
        (np.zeros(0, np.int64), np.zeros(0, np.int64), (0, None, 0.0, 0.0, False)),
        (np.array([True, False]), np.array([True, True]), (2, 0.5, 0.0, 0.0, False)),
        (np.uint8([1, 2, 3, 4]), np.uint8([1, 2, 3, 5]), (4, 0.75, 0.0, 0.0, False)),
        (np.array(["a"]), np.array(["b"]), (1, None, 0.0, 0.0, False)),
        (np.float16([[60000, 0]]), np.float16([[-60000, 0]]), (1, 0.0, 120000.0, 2.0, False)),
    ],
)
def test_what_outputs_of_a_kind_tell(ours: np.ndarray, theirs: np.ndarray, expected: tuple) -> None:
    """Examples, share of equal predictions, largest difference, that as a share, and whether all that was simulated is
    zero: by whole numbers and classes, which need two; what is empty tells nothing."""
    keys = ("examples", "agreement", "largest_difference", "relative_difference", "silent")
    assert parity.of([[ours]], [[theirs]]) == Parity(**dict(zip(keys, expected, strict=True)))


def test_the_largest_differences_are_those_of_all_outputs() -> None:
    """Wherever they lie: one output may be the largest, another the furthest off."""
    ours, theirs = (
        [np.float32([1]), np.float32([8]), np.float32([2])],
        [np.float32([2]), np.float32([8]), np.float32([2])],
    )
    compared = parity.of([ours], [theirs])
    assert (compared.largest_difference, compared.relative_difference) == (1.0, 0.125)
    assert not parity.of([[np.float32([0]), np.float32([1])]], [[np.float32([0]), np.float32([1])]]).silent


def test_outputs_of_another_shape_are_an_error() -> None:
    """A deploy model that gives other shapes is refused with both."""
    with pytest.raises(BuildError, match=r"gives \(1, 3\) where the fake-quant model gives \(1, 2\)"):
        parity.of([[np.zeros((1, 2))]], [[np.zeros((1, 3))]])


def test_a_model_that_takes_no_random_inputs_has_no_parity() -> None:
    """Strings are not made up: the parity is None."""
    draft = Draft()
    draft.add("Identity", ["words"], "same", outputs=["y"])
    strings = (onnx.TensorProto.STRING, ["batch"])
    model = Graph(draft.model({"words": strings}, {"y": strings}))
    assert parity.compared(model, model.copy()) is None


def test_random_examples_have_the_first_sizes_that_the_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are asked for, each another one; a lack of memory is no refusal."""
    sizes = [np.zeros((size, 2), np.float32) for size in (1, 2, 3)]
    monkeypatch.setattr(parity.equivalence, "random_inputs", lambda graph: [{"x": value} for value in sizes])

    def run(feed):
        if len(feed["x"]) < 2:
            raise ValueError
        return []

    shown = list(parity._random(FAKE, run, 4))
    assert [feed["x"].shape for feed in shown] == [(2, 2)] * 4
    assert shown[0]["x"] is sizes[1]
    assert len({feed["x"].tobytes() for feed in shown}) == 4
    again = list(parity._random(FAKE, run, 4))
    assert all(np.array_equal(value["x"], other["x"]) for value, other in zip(shown, again, strict=True))
    assert list(parity._random(FAKE, lambda feed: run({"x": feed["x"][:1]}), 4)) == []

    def full(feed):
        raise MemoryError

    with pytest.raises(MemoryError):
        list(parity._random(FAKE, full, 4))


def test_another_example_has_the_type_and_whole_numbers_of_the_first() -> None:
    """In another order; floats are drawn anew."""
    ids = np.arange(50).reshape(5, 10)
    other = parity._another(np.random.default_rng(0), ids)
    assert (other.dtype, other.shape) == (ids.dtype, ids.shape)
    assert not np.array_equal(other, ids)
    assert np.array_equal(np.sort(other.reshape(-1)), ids.reshape(-1))
    drawn = parity._another(np.random.default_rng(0), np.zeros((3, 4), np.float16))
    assert (drawn.dtype, drawn.shape, bool(drawn.any())) == (np.float16, (3, 4), True)


@pytest.mark.parametrize(
    ("lengths", "count", "expected"),
    [((4, 4), 2, [2]), ((4, 4), 6, [4, 2]), ((4, 4), 8, [4, 4]), ((4, 4), 9, [4, 4]), ((4, 4), 4, [4])],
)
def test_a_few_examples_are_the_first_ones(lengths, count: int, expected: list[int]) -> None:
    """Of batches that are cut; whole ones where the model demands a size or arrays have several lengths."""
    feeds = [{"image": np.zeros((length, 1))} for length in lengths]
    assert [len(feed["image"]) for feed in parity._few(FAKE, feeds, count)] == expected
    fixed = Graph(residual_cnn(batch=4))
    whole = [len(feed["image"]) for feed in parity._few(fixed, feeds, count)]
    assert whole == [4] * len(expected)
    uneven = [{"image": np.zeros((4, 1)), "other": np.zeros((3, 1))}, {"image": np.zeros((4, 1))}]
    assert len(next(iter(parity._few(FAKE, uneven, 2)))["image"]) == 4
    assert parity.EXAMPLES == 32
    assert parity.ASCEND_EXAMPLES == 2
