"""qbench.quant.onnx.weights.adaround and samples: rows of a layer's input, and rounding that keeps its output."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.affine import dequantize_linear, fake_quantize
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ActivationParams, WeightParams
from qbench.quant.onnx.sites import ActivationSite, Scales, Sites, WeightSite
from qbench.quant.onnx.weights import adaround
from qbench.quant.onnx.weights.input_samples import BYTES, MOST, PER_EXAMPLE, InputSamples, arrange, restore, rows
from qbench.quant.onnx.weights.weight_scales import arq, quantized

Array = NDArray[Any]


def network(operator: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Graph:
    """One layer named ``layer`` with a random weight ``w``; its input is ``x``."""
    weight = np.random.default_rng(3).standard_normal(w).astype(np.float32)
    node = helper.make_node(operator, ["x", "w"], ["y"], name="layer", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(x))],
        [numpy_helper.from_array(weight, "w")],
    )
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def run(graph: Graph, x: Array) -> Array:
    """What ONNX Runtime gives for ``x``."""
    onnx.checker.check_model(graph.model)
    session = onnxruntime.InferenceSession(graph.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


LAYERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "conv": ("Conv", (2, 3, 6, 5), (4, 3, 3, 2), {}),
    "conv-strided": ("Conv", (2, 3, 9, 7), (4, 3, 3, 3), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    "conv-dilated-groups": ("Conv", (2, 4, 9, 8), (6, 2, 3, 2), {"dilations": [2, 3], "group": 2}),
    "conv-depthwise": ("Conv", (2, 5, 6, 6), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1]}),
    "conv-same-upper": ("Conv", (1, 2, 7, 6), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "conv-same-lower": ("Conv", (1, 2, 7, 6), (3, 2, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    "conv-valid": ("Conv", (1, 2, 7, 6), (3, 2, 3, 3), {"auto_pad": "VALID"}),
    "conv-3d": ("Conv", (2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": [1, 2, 2], "pads": [1, 0, 1, 0, 1, 0]}),
    "transposed": ("ConvTranspose", (2, 3, 4, 5), (3, 2, 3, 2), {}),
    "transposed-strided": (
        "ConvTranspose",
        (2, 4, 4, 3),
        (4, 3, 3, 3),
        {"strides": [2, 3], "pads": [1, 0, 1, 2], "output_padding": [1, 2], "group": 2},
    ),
    "transposed-dilated": ("ConvTranspose", (1, 2, 4, 4), (2, 3, 2, 3), {"dilations": [2, 2], "strides": [2, 1]}),
    "transposed-shape": ("ConvTranspose", (1, 2, 4, 4), (2, 3, 3, 3), {"output_shape": [7, 8], "strides": [2, 2]}),
    "transposed-same": (
        "ConvTranspose",
        (1, 2, 4, 4),
        (2, 3, 4, 3),
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "transposed-same-lower": (
        "ConvTranspose",
        (1, 2, 4, 4),
        (2, 3, 4, 3),
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
    "gemm": ("Gemm", (5, 7), (7, 3), {}),
    "gemm-transposed": ("Gemm", (9, 30), (8, 30), {"transB": 1}),
    "matmul": ("MatMul", (9, 30), (30, 8), {}),
    "matmul-deep": ("MatMul", (2, 4, 3, 7), (7, 3), {}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_rows_times_the_arranged_weight_are_the_layers_outputs(name: str) -> None:
    """For every output position of every kind of layer, its row times the weight is what ONNX Runtime computes."""
    operator, shape, w, attributes = LAYERS[name]
    graph = network(operator, shape, w, **attributes)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result = run(graph, x)
    weight = graph.constant("w")
    assert weight is not None
    is_conv = operator.startswith("Conv")
    # Channels last, so that every output position is one row of ``result``.
    result = np.moveaxis(result, 1, -1) if is_conv else result
    each = math.prod(result.shape[1:-1])
    examples, places = np.repeat(np.arange(len(x)), each), np.tile(np.arange(each), len(x))
    result_rows = rows(graph.node("layer"), w, x, examples, places)
    parts = arrange(graph.node("layer"), weight)
    by_group = result_rows.reshape(len(result_rows), len(parts), -1).swapaxes(0, 1)
    actual = np.concatenate(list(by_group @ parts.swapaxes(1, 2)), axis=-1)
    np.testing.assert_allclose(actual, result.reshape(actual.shape), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(restore(graph.node("layer"), parts, w), weight)


def site(axis: int | None, **options: Any) -> WeightSite:
    """The weight of ``network``, to be rounded adaptively."""
    params = WeightParams(algorithm="ada_quantize", channel_wise=axis is not None, options=options)
    return WeightSite(layer="layer", tensor="w", axis=axis, params=params)


def test_which_rows_are_kept_does_not_depend_on_batches() -> None:
    """One batch of many examples and many batches of one or two leave the same rows."""
    graph = network("Conv", ("n", 2, 8, 8), (3, 2, 3, 3))  # type: ignore[arg-type]  # a name is a free size
    x = np.random.default_rng(0).standard_normal((100, 2, 8, 8)).astype(np.float32)
    actual = []
    for cuts in ([], list(range(1, 100)), [3, 50, 51]):
        samples = InputSamples(graph, (site(0),))
        for part in np.split(x, cuts):
            samples.add({"x": part})
        actual.append(samples.rows("layer"))
    assert actual[0].shape == (1, MOST, 18)
    np.testing.assert_array_equal(actual[0], actual[1])
    np.testing.assert_array_equal(actual[0], actual[2])


def test_rows_come_from_all_examples_alike() -> None:
    """The last examples have the same share of the rows as the first ones."""
    graph = network("MatMul", ("n", 64, 4), (4, 3))  # type: ignore[arg-type]
    samples = InputSamples(graph, (site(1),))
    for number in range(400):
        samples.add({"x": np.full((1, 64, 4), number, np.float32)})
    rows = samples.rows("layer")[0, :, 0]
    assert len(rows) == MOST
    by_quarter = np.histogram(rows, bins=4, range=(0, 400))[0] / MOST
    np.testing.assert_allclose(by_quarter, 0.25, atol=0.04)  # four standard deviations of 2048 draws


def test_rows_of_wide_layers_stay_within_the_memory() -> None:
    """A layer with many inputs keeps fewer rows; before the first batch there are none."""
    graph = network("MatMul", ("n", 400_000), (400_000, 1))  # type: ignore[arg-type]
    samples = InputSamples(graph, (site(1),))
    with pytest.raises(ValueError, match="no value was seen"):
        samples.rows("layer")
    for _ in range(4):
        samples.add({"x": np.ones((50, 400_000), np.float32)})
    assert samples.rows("layer").nbytes <= BYTES
    assert PER_EXAMPLE < samples.rows("layer").shape[1] < 200


def correlated(count: int, inputs: int) -> Array:
    """Rows whose inputs move together: what makes one rounding error able to undo another."""
    random = np.random.default_rng(1)
    mixed = random.standard_normal((count, 4)) @ random.standard_normal((4, inputs))
    return np.maximum(mixed + 0.1 * random.standard_normal((count, inputs)), 0).astype(np.float32)


def test_a_tiny_layer_gets_about_the_best_of_all_roundings() -> None:
    """Where all 2**10 roundings can be tried, the chosen one leaves at most a tenth more than the least error."""
    x = correlated(300, 10)
    weight = np.random.default_rng(2).uniform(-100, 100, (1, 1, 10)).astype(np.float32)
    ones = np.ones_like(weight)
    q, share = adaround.choose(weight, ones, x[None], x[None], adaround.Options(num_iteration=600), seed=0)
    ups = np.array(list(itertools.product([0, 1], repeat=10)), np.float32)

    def error(rounded: Array) -> Array:
        left: Array = np.square((rounded - weight[0]) @ x.T).sum(axis=1)
        return left

    nearest, best = float(error(np.rint(weight[0]))[0]), float(error(np.floor(weight[0]) + ups).min())
    assert best < 0.5 * nearest
    assert float(error(q[0])[0]) <= best * 1.1
    assert share < 0.5


def test_every_weight_goes_to_one_of_its_two_neighbours() -> None:
    """A weight is rounded up or down, never further, and stays in -128 .. 127."""
    x = correlated(200, 6)
    weight = np.random.default_rng(2).uniform(-140, 140, (1, 5, 6)).astype(np.float32)
    q, _ = adaround.choose(weight, np.ones_like(weight), x[None], x[None], adaround.Options(num_iteration=50), seed=0)
    inside = np.clip(weight, -128, 127)
    assert np.array_equal(q, np.rint(q))
    assert q.min() >= -128
    assert q.max() <= 127
    assert np.abs(q - inside).max() < 1


def test_no_channel_is_worse_than_nearest_rounding() -> None:
    """Also after a single step, in which nothing can be learned, no channel's error on the rows that judge (every
    fourth) exceeds nearest rounding's, and the share told is what is left of it there."""
    x = correlated(200, 6)[None]
    weight = np.random.default_rng(2).uniform(-100, 100, (1, 8, 6)).astype(np.float32)
    options = adaround.Options(num_iteration=1, warm_start=0.0, reg_param=10.0)
    q, share = adaround.choose(weight, np.ones_like(weight), x, x, options, seed=0)

    def errors(rounded: Array) -> Array:
        left: Array = np.square((rounded - weight[0]) @ x[0, ::4].T).sum(axis=1)
        return left

    assert (errors(q[0]) <= errors(np.rint(weight[0])) * 1.0001).all()
    assert share == pytest.approx(errors(q[0]).sum() / errors(np.rint(weight[0])).sum(), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "axis"),
    [("conv-depthwise", 0), ("conv-strided", 0), ("transposed", 1), ("gemm-transposed", None), ("matmul", None)],
)
def test_a_rounded_layer_keeps_its_output_better(name: str, axis: int | None) -> None:
    """With an input in int8, the quantized layer's output is closer to fp32 with the weights chosen than with
    ARQ's, the weights quantize to themselves with the scales of the record, and the given graph stays as it was."""
    operator, shape, w, attributes = LAYERS[name]
    graph = network(operator, shape, w, **attributes)
    weight = graph.constant("w")
    assert weight is not None
    scales = arq(weight * 8, axis)  # coarse: some 32 levels are used, as if there were 5 bits
    record = {"layer": Scales(scale_d=0.02, offset_d=-128, scale_w=scales, offset_w=(0,) * len(scales))}
    keys = {"layer": ("layer", 0)}
    sites = Sites(
        weights=(site(axis, num_iteration=400),),
        activations=(ActivationSite(tensor="x", keys=keys, params=ActivationParams()),),
    )
    samples = InputSamples(graph, adaround.sites(sites))
    random = np.random.default_rng(0)
    # All inputs are about 2, as behind a ReLU with a bias: the errors of the weights can cancel.
    batches = [np.abs(0.3 * random.standard_normal(shape) + 2).astype(np.float32) for _ in range(20)]
    for batch in batches:
        samples.add({"x": batch})
    message: list[tuple[str, float]] = []
    rounded = adaround.rounded(graph, sites, record, samples, progress=lambda *told: message.append(told))
    constant = rounded.constant("w")
    assert constant is not None
    np.testing.assert_array_equal(weight, graph.constant("w"))
    by_channel = np.asarray(scales, np.float32).reshape([-1 if place == axis else 1 for place in range(len(w))])
    np.testing.assert_array_equal(constant, dequantize_linear(quantized(constant, scales, axis), by_channel))
    nearest = graph.copy()
    nearest.set_constant("w", fake_quantize(weight, by_channel))

    def error(of: Graph) -> float:
        return sum(
            float(np.square(run(graph, batch) - run(of, fake_quantize(batch, 0.02, -128))).sum())
            for batch in batches[:5]
        )

    assert error(rounded) < 0.9 * error(nearest)
    assert [layer for layer, _ in message] == ["layer"]
    assert message[0][1] < 0.9


def test_what_fits_only_the_rows_it_saw_is_not_kept() -> None:
    """With fewer rows than inputs and inputs that have nothing in common, nothing can be learned that holds on other
    rows: the error on them does not grow."""
    random = np.random.default_rng(0)
    x, others = random.standard_normal((2, 1, 48, 200)).astype(np.float32)
    weight = random.uniform(-100, 100, (1, 16, 200)).astype(np.float32)
    q, share = adaround.choose(weight, np.ones_like(weight), x, x, adaround.Options(num_iteration=100), seed=0)

    def error(rounded: Array) -> float:
        return float(np.square((rounded - weight[0]) @ others[0].T).sum())

    assert share > 0.8
    assert error(q[0]) < 1.1 * error(np.rint(weight[0]))


def test_rounding_again_gives_the_same_weights() -> None:
    """The same inputs give the same integers, bit by bit."""
    x = correlated(200, 12)[None]
    weight = np.random.default_rng(2).uniform(-100, 100, (1, 8, 12)).astype(np.float32)
    options = adaround.Options(num_iteration=100)
    first, again = (adaround.choose(weight, np.ones_like(weight), x, x, options, seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_an_input_of_zeros_is_rounded_to_the_nearest() -> None:
    """Where nothing can be learned, because the layer saw only zeros, nearest rounding stays."""
    weight = np.random.default_rng(2).uniform(-100, 100, (1, 3, 4)).astype(np.float32)
    x = np.zeros((1, 20, 4), np.float32)
    q, share = adaround.choose(weight, np.ones_like(weight), x, x, adaround.Options(num_iteration=5), seed=0)
    np.testing.assert_array_equal(q, np.rint(weight))
    assert share == 1.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_iteration": 0}, "num_iteration: expected a number of steps above 0, got 0"),
        ({"reg_param": 0}, "reg_param: expected a number above 0, got 0"),
        ({"warm_start": 1.0}, "warm_start: expected a share from 0 to below 1, got 1.0"),
        (
            {"beta_range": (2.0, 20.0)},
            r"beta_range: expected two numbers that fall and stay above 1, got \(2.0, 20.0\)",
        ),
        ({"beta_range": (2.0, 1.0)}, r"beta_range: expected two numbers that fall and stay above 1, got \(2.0, 1.0\)"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    """The message names the key and what it must be."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        adaround.options(wrong)


def test_only_weights_that_ask_for_it_are_rounded() -> None:
    """``sites`` leaves out the weights of ARQ."""
    plain = WeightSite(layer="other", tensor="v", axis=0, params=WeightParams())
    assert adaround.sites(Sites(weights=(plain, site(0)), activations=())) == (site(0),)


# --- the steps of a training ------------------------------------------------------------------------------------------


def test_the_keys_that_are_left_out_are_amcts() -> None:
    """Its defaults; and the ends of what each key may be are taken."""
    assert adaround.options({}) == adaround.Options(
        num_iteration=1000, reg_param=0.01, beta_range=(20.0, 2.0), warm_start=0.2
    )
    adaround.options({"num_iteration": 1, "warm_start": 0.0, "beta_range": (1.5, 1.5)})
    adaround.options({"reg_param": 1e-9, "warm_start": 0.999})
    for wrong in ({"reg_param": math.inf}, {"beta_range": (math.inf, 2.0)}, {"beta_range": (2.0, 2.1)}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected"):
            adaround.options(wrong)
    with pytest.raises(ValueError, match="^warm_start: expected"):
        adaround.options({"warm_start": -0.1})


@pytest.mark.parametrize("rows", [31, 32, 33])
def test_every_fourth_row_judges_and_the_others_are_learned_from(rows: int) -> None:
    """Of fewer than 32 rows all do both."""
    judge, learn = (numbers.tolist() for numbers in adaround._halves(rows))
    if rows < 32:
        assert judge == learn == list(range(rows))
    else:
        assert judge == list(range(0, rows, 4))
        assert learn == [row for row in range(rows) if row % 4]


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((3, 2, 4), [(slice(0, 8), slice(0, 16))]),  # 8 weights a group: 8 of them
        ((9, 2, 4), [(slice(0, 8), slice(0, 16)), (slice(8, 16), slice(0, 16))]),
        ((1, 5, 32), [(slice(0, 1), slice(0, 2)), (slice(0, 1), slice(2, 4)), (slice(0, 1), slice(4, 6))]),
        ((2, 1, 128), [(slice(0, 1), slice(0, 1)), (slice(1, 2), slice(0, 1))]),  # one row is more than a block
    ],
)
def test_weights_are_trained_in_blocks(
    shape: tuple[int, ...], blocks: list[tuple[slice, slice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of about 64 weights here: as many groups as that holds, or as many outputs of one group, but one at least."""
    assert adaround.BLOCK == 65536
    monkeypatch.setattr(adaround, "BLOCK", 64)
    assert list(adaround._blocks(shape)) == blocks


def test_blocks_choose_as_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output is rounded by its own error alone."""
    random = np.random.default_rng(0)
    x = np.stack([correlated(200, 6), correlated(200, 6)[:, ::-1]])
    weight = random.uniform(-100, 100, (2, 5, 6)).astype(np.float32)
    chosen = []
    for size in (adaround.BLOCK, 12):
        monkeypatch.setattr(adaround, "BLOCK", size)
        chosen.append(adaround.choose(weight, np.ones_like(weight), x, x, adaround.Options(num_iteration=80), seed=0))
    np.testing.assert_array_equal(chosen[0][0], chosen[1][0])
    assert chosen[0][1] == pytest.approx(chosen[1][1], rel=1e-4)
    assert chosen[0][1] < 0.9


def test_the_exponent_of_the_push_falls_along_half_a_cosine() -> None:
    """From the first of ``beta_range`` at the warm start's end; before it there is no push."""
    options = adaround.Options(num_iteration=100, warm_start=0.2, beta_range=(20.0, 2.0))
    actual = [adaround._beta(step, options) for step in (0, 19, 20, 60, 80, 100)]
    assert actual[:2] == [None, None]
    assert actual[2:] == pytest.approx([20, 11, 11 - 9 / math.sqrt(2), 2])


def test_the_push_is_the_slope_of_its_formula() -> None:
    """1 - |2 h - 1| ** beta; where h is about a half, as if it were a fortieth beside it."""
    h = np.array([0.0, 0.01, 0.3, 0.4, 0.6, 0.99, 1.0], np.float32)
    for beta in (2.0, 3.5, 20.0):
        slope = -2 * beta * np.sign(2 * h - 1) * np.abs(2 * h - 1) ** (beta - 1)
        np.testing.assert_allclose(adaround._push(h, beta), slope, rtol=1e-4)
    np.testing.assert_allclose(adaround._push(np.float32([0.49, 0.51]), 3.0), [6 * 0.05**2, -6 * 0.05**2], rtol=1e-4)


def test_the_soft_choice_is_a_stretched_sigmoid() -> None:
    """From -0.1 to 1.1, cut to 0 to 1; where it is cut it has no slope."""
    v = np.array([-9.0, -2.0, 0.0, 1.5, 9.0])
    h, slope = adaround._soft(v)
    stretched = 1.2 / (1 + np.exp(-v)) - 0.1
    np.testing.assert_allclose(h, np.clip(stretched, 0, 1))
    further = 1.2 / (1 + np.exp(-v - 1e-6)) - 0.1
    np.testing.assert_allclose(slope, np.where(np.isclose(h, stretched), (further - stretched) / 1e-6, 0), rtol=1e-4)


def reference(steps: Array, x: Array, expected: Array, options: adaround.Options) -> Array:
    """The same training by torch: its Adam, its derivatives."""
    lower = torch.from_numpy(np.floor(steps))
    left = torch.from_numpy(steps) - lower
    v = (-torch.log(1.2 / (left + 0.1) - 1)).requires_grad_()
    optimizer = torch.optim.Adam([v], lr=0.01, betas=(0.9, 0.999))
    random, inputs, targets = np.random.default_rng(5), torch.from_numpy(x), torch.from_numpy(expected)
    for step in range(options.num_iteration):
        batch = random.integers(0, x.shape[1], min(64, x.shape[1]))
        h = (1.2 * torch.sigmoid(v) - 0.1).clip(0, 1)
        outputs = inputs[:, batch] @ (lower + h).clip(-128, 127).transpose(1, 2)
        loss = (outputs - targets[:, batch]).square().sum() / len(batch)
        if (beta := adaround._beta(step, options)) is not None:
            loss = loss + 1000 * options.reg_param * (1 - (2 * h - 1).abs().clip(0.05) ** beta).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    h = (1.2 * torch.sigmoid(v) - 0.1).clip(0, 1)
    chosen: Array = (lower + (h >= 0.5)).clip(-128, 127).detach().numpy()
    return chosen


@pytest.mark.parametrize(
    "options",
    [
        adaround.Options(num_iteration=60, warm_start=0.9),
        adaround.Options(num_iteration=60, warm_start=0.0, reg_param=0.001),
        adaround.Options(num_iteration=3, warm_start=0.0, reg_param=0.01),
    ],
)
@pytest.mark.parametrize("rows", [200, 40])
def test_a_training_is_adams(options: adaround.Options, rows: int) -> None:
    """The integers are those that torch's own Adam and derivatives lead to, but for those near a tie."""
    random = np.random.default_rng(0)
    x = np.stack([correlated(rows, 20), correlated(rows, 20)[:, ::-1]]).astype(np.float32)
    steps = random.uniform(-140, 140, (2, 60, 20)).astype(np.float32)
    expected = x @ steps.swapaxes(1, 2)
    trained = adaround._train(steps, x, expected, options, np.random.default_rng(5))
    by_torch = reference(steps, x, expected, options)
    assert np.mean(trained != by_torch) < 0.002
    assert trained.dtype == np.float32


def test_polishing_moves_weights_until_none_gains() -> None:
    """The move that lowers an output's error most comes first; in the end no single one lowers it."""
    x = correlated(50, 6)[None]
    steps = np.random.default_rng(2).uniform(-130, 130, (1, 8, 6)).astype(np.float32)
    expected = x @ steps.swapaxes(1, 2)
    start = np.clip(np.rint(steps), -128, 127)
    polished = adaround._polish(start, steps, x, expected)
    lower = np.clip(np.floor(steps), -128, 127)
    for output in range(8):
        q = start[0, output].astype(np.float64)

        def error(q: Array, output: int = output) -> float:
            return float(np.square(x[0].astype(np.float64) @ q - expected[0, :, output]).sum())

        for _ in range(6):
            others = [q + np.eye(6)[i] * (2 * lower[0, output, i] + (steps[0, output, i] < 127) - 2 * q[i])
                      for i in range(6) if -128 <= steps[0, output, i] < 127]  # fmt: skip
            best = min(others, key=error)
            if error(best) >= error(q):
                break
            q = best
        np.testing.assert_array_equal(polished[0, output], q)
    assert (polished != start).any()


def test_wide_rows_are_not_polished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 1024 inputs what the training chose stays."""
    assert adaround.POLISHED == 1024
    monkeypatch.setattr(adaround, "POLISHED", 4)
    polished = []
    monkeypatch.setattr(adaround, "_polish", lambda q, *rest: polished.append(q.shape) or q)
    for inputs in (4, 5):
        x, weight = correlated(40, inputs)[None], np.full((1, 2, inputs), 1.4, np.float32)
        adaround.choose(weight, np.ones_like(weight), x, x, adaround.Options(num_iteration=1), seed=0)
    assert polished == [(1, 2, 4)]


def test_the_scale_of_inputs_does_not_matter() -> None:
    """A thousand times the inputs, exact and quantized, are rounded for alike."""
    x = correlated(200, 8)[None]
    inputs = fake_quantize(x, 0.1, 0)
    weight = np.random.default_rng(2).uniform(-100, 100, (1, 8, 8)).astype(np.float32)
    small, large = (
        adaround.choose(
            weight * 0.01, np.full_like(weight, 0.01), x * by, inputs * by, adaround.Options(num_iteration=40), seed=0
        )
        for by in (1, 1024)
    )
    np.testing.assert_array_equal(small[0], large[0])
    assert small[1] == pytest.approx(large[1])


@pytest.mark.parametrize("recorded", [None, Scales(scale_d=0.5), Scales(scale_d=0.5, offset_d=3), Scales()])
def test_the_input_is_quantized_as_the_record_says(recorded: Scales | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is without a scale; an offset that is not told is 0. Each layer has a seed of its own."""
    graph = network("MatMul", (9, 30), (30, 8))
    scales = Scales(scale_w=(0.1,))
    record = {"layer": scales} if recorded is None else {"layer": scales, "put": recorded}
    place = ActivationSite(tensor="x", keys={"put": ("layer", 0)}, params=ActivationParams())
    sites = Sites(weights=(site(None, num_iteration=7), site(None)), activations=(place,))
    samples = InputSamples(graph, adaround.sites(sites)[:1])
    samples.add({"x": np.random.default_rng(0).standard_normal((9, 30)).astype(np.float32)})
    calls: list[tuple[Any, ...]] = []

    def chosen(weight: Array, scales: Array, exact: Array, inputs: Array, options: Any, *, seed: int) -> Any:
        calls.append((exact, inputs, options.num_iteration, seed))
        return np.rint(weight / scales), 0.5

    monkeypatch.setattr(adaround, "choose", chosen)
    adaround.rounded(graph, sites, record, samples)
    exact, inputs, *_ = calls[0]
    scale = recorded.scale_d if recorded else None
    expected = exact if scale is None else fake_quantize(exact, scale, (recorded and recorded.offset_d) or 0)
    np.testing.assert_array_equal(inputs, expected)
    assert [call[2:] for call in calls] == [(7, 0), (1000, 1)]
