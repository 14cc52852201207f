"""What a file answers on examples beside its fp32, and the layer at which the difference begins."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from people_files import node, pair, write

from qbench.check import data_change, float_form
from qbench.check.examples import Examples

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 16)).astype(np.float32)


def perceptron(path, scales):
    """Layers in QDQ form, their weights as well; ``scales``: of the activation that each reads."""
    nodes, constants, x = [], {"ws": np.float32(1 / 160)}, "x"
    for place, scale in enumerate(scales):
        constants |= {f"s{place}": np.float32(scale), f"z{place}": np.int8(0)}
        constants[f"w{place}"] = np.clip(np.rint(RNG.normal(size=(16, 16)) * 40), -127, 127).astype(np.int8)
        nodes.append(node("DequantizeLinear", [f"w{place}", "ws", f"z{place}"], f"w{place}_d"))
        nodes += pair(x, f"s{place}", f"z{place}")
        nodes.append(node("MatMul", [f"{x}_d", f"w{place}_d"], f"y{place}"))
        x = f"y{place}"
    return write(path, nodes, constants, inputs=(("x", ["n", 16]),), outputs=(x,))


def find(tmp_path, scales):
    file, target = perceptron(tmp_path / "int8.onnx", scales), tmp_path / "float.onnx"
    float_form.write_float(onnx.load(str(file)), target)
    examples = Examples(inputs=(ROWS,), labels=None)
    return data_change.find_begin_here(file, target, examples, 1, 1, progress=None)


@pytest.mark.parametrize(
    ("scales", "layer", "operator"),
    [
        ((0.03, 0.03, 0.03), None, None),
        ((0.03, 0.001, 0.03), "y0", "MatMul"),
        ((0.03, 0.03, 0.001), "y1", "MatMul"),
        ((0.001, 0.03, 0.03), "x", "input"),
        ((0.001,), "x", "input"),
    ],
)
def test_the_difference_begins_where_a_range_cuts_off(scales, layer, operator, tmp_path):
    """The layer whose output does not fit, or the input itself; what follows is off as well and is not named. Where
    all ranges fit, none is."""
    begin = find(tmp_path, scales)
    assert (begin and begin.layer, begin and begin.operator) == (layer, operator)
    if begin is not None:
        assert begin.behind_db < 10
        assert begin.before_db > 25


def test_a_clamp_that_became_a_range_is_no_loss(tmp_path):
    """Behind a layer whose bytes begin at zero a ReLU may have gone into the range: what it cuts off is no loss."""
    constants = {"s0": np.float32(0.03), "z0": np.int8(0), "s1": np.float32(0.02), "z1": np.uint8(0)}
    constants |= {name: RNG.normal(size=(16, 16)).astype(np.float32) / 4 for name in ("w0", "w1")}
    nodes = [*pair("x", "s0", "z0"), node("MatMul", ["x_d", "w0"], "h"), *pair("h", "s1", "z1")]
    nodes.append(node("MatMul", ["h_d", "w1"], "y"))
    file = write(tmp_path / "int8.onnx", nodes, constants, inputs=(("x", ["n", 16]),))
    float_form.write_float(onnx.load(str(file)), tmp_path / "float.onnx")
    examples = Examples(inputs=(ROWS,), labels=None)
    assert data_change.find_begin_here(file, tmp_path / "float.onnx", examples, 1, 1, progress=None) is None


def test_a_file_without_dequantized_activations_has_no_beginning(tmp_path):
    """Nothing of it stands for a tensor of its float form."""
    file = write(tmp_path / "float.onnx", [node("Relu", ["x"], "y")], {}, inputs=(("x", ["n", 16]),))
    assert data_change.find_begin_here(file, file, Examples(inputs=(ROWS,), labels=None), 1, 1, progress=None) is None


def test_answers_are_compared_by_class_where_they_are_rows():
    """Flips and right answers are counted, of as many examples as there are answers; other outputs have SQNR alone."""
    expected = np.eye(4, dtype=np.float32)
    own = expected.copy()
    own[0] = expected[1]
    examples = Examples(inputs=(ROWS[:5],), labels=np.array([1, 1, 2, 0, 0]))
    change = data_change.compare_answers([own], [expected], examples, "its own fp32")
    assert (change.examples, change.flips, change.right) == (4, 1, (3, 2))
    assert change.sqnr_db == pytest.approx(10 * np.log10(4 / 2))
    scores = data_change.compare_answers([own[:, :1]], [expected[:, :1]], examples, "its own fp32")
    assert (scores.flips, scores.right) == (None, None)
    unlabelled = data_change.compare_answers([own], [expected], Examples(inputs=(ROWS,), labels=None), "its own fp32")
    assert (unlabelled.flips, unlabelled.right) == (1, None)


@pytest.mark.parametrize(("batch", "count"), [(1, 40), (16, 32)])
def test_each_example_is_answered_in_whole_batches(batch, count, tmp_path):
    """What does not fill one is left out."""
    file = write(tmp_path / "m.onnx", [node("Relu", ["x"], "y")], {}, inputs=(("x", [batch, 16]),))
    (answers,) = data_change.answer_here(
        "onnxruntime", file, Examples(inputs=(ROWS,), labels=None), batch, 1, progress=None
    )
    assert np.array_equal(answers, np.maximum(ROWS[:count], 0))


def test_the_worst_of_several_outputs_is_told(tmp_path):
    """Classes are those of the first; what has no row for each example is left out."""
    nodes = [node("Relu", ["x"], "y"), node("Neg", ["x"], "z"), node("ReduceSum", ["x"], "total")]
    file = write(tmp_path / "m.onnx", nodes, {}, inputs=(("x", ["n", 16]),))
    model = onnx.load(str(file))
    for name, shape in (("z", ["n", 16]), ("total", [1, 1])):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    onnx.save(model, str(file))
    examples = Examples(inputs=(ROWS,), labels=None)
    answers = data_change.answer_here("onnxruntime", file, examples, 8, 1, progress=None)
    assert [array.shape for array in answers] == [(40, 16), (40, 16)]
    off = [answers[0] + 1e-3, answers[1] + 0.1]
    change = data_change.compare_answers(off, answers, examples, "its own fp32")
    assert change.outputs == 2
    assert change.sqnr_db == data_change.measure_sqnr(answers[1], off[1])
    assert change.flips == 0
    assert (data_change.name_output(1), data_change.name_output(2)) == ("its output", "the worst of its 2 outputs")


@pytest.mark.parametrize(
    ("answers", "others", "labels", "flips", "right"),
    [
        ([[1, 0], [0, 1], [1, 0]], [[1, 0], [1, 0], [0, 1]], [0, 0, 0, 1], 2, (2, 2)),
        ([[1, 0], [0, 1]], [[1, 0], [0, 1]], None, 0, None),
        ([[1], [2]], [[1], [3]], [0, 0], None, None),
        ([1, 2], [1, 2], [0, 0], None, None),
        ([[[1, 0]]], [[[1, 0]]], [0], None, None),
    ],
)
def test_classes_are_chosen_from_rows_of_two_scores_or_more(answers, others, labels, flips, right):
    """Of both files alike; right where the data has labels, of the examples that were answered."""
    own, expected = np.asarray(answers, dtype=np.float32), np.asarray(others, dtype=np.float32)
    examples = Examples(inputs=(ROWS,), labels=None if labels is None else np.asarray(labels))
    change = data_change.compare_answers([own], [expected], examples, "fp32")
    assert (change.flips, change.right, change.examples, change.outputs) == (flips, right, len(own), 1)


def test_outputs_of_other_sizes_are_not_held_against_each_other():
    """As the two files may give another number of boxes; the others are, and the worst of them is told."""
    first, second = RNG.normal(size=(2, 5, 3)).astype(np.float32)
    boxes, fewer = np.ones((5, 4), np.float32), np.ones((5, 2), np.float32)
    examples = Examples(inputs=(ROWS,), labels=None)
    change = data_change.compare_answers([first, boxes, second], [first, fewer, second + 0.1], examples, "fp32")
    alone = data_change.compare_answers([second], [second + 0.1], examples, "fp32")
    assert (change.sqnr_db, change.outputs) == (alone.sqnr_db, 3)
    fewer_outputs = data_change.compare_answers([second, boxes], [second + 0.1], examples, "fp32")
    assert (fewer_outputs.sqnr_db, fewer_outputs.outputs) == (alone.sqnr_db, 2)


@pytest.mark.parametrize(
    ("losses", "layer"),
    [
        ([("a", 26.0, 20.0)], "a"),
        ([("a", 25.9, 20.0)], None),
        ([("a", 40.0, 20.1)], None),
        ([("a", 26.0, 19.0), ("b", 28.0, 20.0), ("c", 9.0, 2.0)], "b"),
        ([("a", 60.0, 20.5), ("b", 20.0, 14.0)], "b"),
        ([], None),
    ],
)
def test_a_layer_that_takes_six_decibels_and_leaves_no_more_than_twenty_begins_it(losses, layer, tmp_path, monkeypatch):
    """Of several the one that takes most."""
    listed = [
        data_change.LayerLoss(layer=name, operator="Conv", before_db=before, behind_db=behind)
        for name, before, behind in losses
    ]
    monkeypatch.setattr(data_change, "_list_losses", lambda model, levels: iter(listed))
    begin = find(tmp_path, (0.03, 0.03))
    assert (begin and begin.layer) == layer


@pytest.mark.parametrize(
    ("batch", "available", "count"),
    [(1, 40, 8), (3, 40, 6), (5, 40, 5), (8, 40, 8), (16, 40, 16), (1, 5, 5), (3, 5, 3), (4, 7, 4)],
)
def test_about_eight_examples_are_looked_at_in_whole_batches(batch, available, count, tmp_path, monkeypatch):
    """All tensors of them are held: no more than one batch where that is larger."""
    asked = []

    def run(model, tensors, examples, count, batch, threads):
        asked.append((count, batch))
        return {name: np.ones((count, 16), np.float32) for name in tensors}

    monkeypatch.setattr(data_change, "_run", run)
    file = perceptron(tmp_path / "int8.onnx", (0.03, 0.03))
    float_form.write_float(onnx.load(str(file)), tmp_path / "float.onnx")
    examples = Examples(inputs=(ROWS[:available],), labels=None)
    data_change.find_begin_here(file, tmp_path / "float.onnx", examples, batch, 1, progress=None)
    assert asked == [(count, batch)] * 2


def graph_of(tmp_path, nodes, inputs=("x", "v")):
    shapes = tuple((name, ["n", 16]) for name in inputs)
    constants = {"w": ROWS[:16], "s": np.float32(0.1)}
    return onnx.load(str(write(tmp_path / "m.onnx", nodes, constants, inputs=shapes)))


def test_what_a_layer_reads_is_the_worst_of_its_inputs(tmp_path):
    """The level of what stands for bytes before it, however many nodes lie between; the product among them is it."""
    nodes = [
        *pair("x", "s", ""), *pair("v", "s", ""), node("Relu", ["v_d"], "t"), node("Add", ["x_d", "t"], "a"),
        *pair("a", "s", ""),
        node("MatMul", ["a_d", "w"], "p"), node("Relu", ["p"], "y"), *pair("y", "s", ""),
        node("Abs", ["x"], "r"), *pair("r", "s", ""),
    ]  # fmt: skip
    nodes[5].name = ""
    levels = {"x_d": 40.0, "v_d": 30.0, "a_d": 10.0, "y_d": 9.0, "r_d": 8.0}
    losses = list(data_change._list_losses(graph_of(tmp_path, nodes), levels))
    assert [(loss.layer, loss.operator, loss.before_db, loss.behind_db) for loss in losses] == [
        ("x", "input", data_change.MOST_DECIBELS, 40.0), ("v", "input", data_change.MOST_DECIBELS, 30.0),
        ("a", "Add", 30.0, 10.0), ("p", "MatMul", 10.0, 9.0),
    ]  # fmt: skip
    swapped = {name: levels[name] for name in ("v_d", "x_d", "a_d")} | {"x_d": 20.0}
    assert list(data_change._list_losses(graph_of(tmp_path, nodes), swapped))[2].before_db == 20.0


def test_the_first_output_is_answered_whatever_its_rows(tmp_path):
    """It is the one that counts; of the others those with a row for each example."""
    nodes = [node("ReduceSum", ["x"], "total"), node("Relu", ["x"], "y")]
    file = write(tmp_path / "m.onnx", nodes, {}, inputs=(("x", ["n", 16]),), outputs=("total", "y"))
    examples = Examples(inputs=(ROWS,), labels=None)
    answers = data_change.answer_here("onnxruntime", file, examples, 8, 1, progress=None)
    assert [array.shape for array in answers] == [(5, 1), (40, 16)]
