"""What layers are given on average, and the mean errors that rounded weights make of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calibration_models import cnn, config, graph, images, values
from onnx import helper

from qbench.quant.affine import fake_quantize
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Scales, Sites, find
from qbench.quant.onnx.weights import input_samples, mean_inputs, weight_scales
from qbench.quant.onnx.weights.input_samples import mean_row
from qbench.quant.onnx.weights.mean_inputs import MeanInputs

LAYERS = {
    "conv": ("Conv <pads: ints = [1,0,2,1], strides: ints = [2,1], dilations: ints = [1,2]>", (6, 4, 3, 2)),
    "same": ('Conv <auto_pad: string = "SAME_LOWER", strides: ints = [2,2]>', (6, 4, 3, 3)),
    "groups": ("Conv <group: int = 2, pads: ints = [1,1,1,1]>", (6, 2, 3, 3)),
    "depthwise": ("Conv <group: int = 4, pads: ints = [2,2,2,2]>", (4, 1, 5, 5)),
    "transposed": ("ConvTranspose <pads: ints = [1,0,0,1], strides: ints = [2,3], output_padding: ints = [1,0]>",
                   (4, 6, 3, 2)),
    "transposed in groups": ("ConvTranspose <group: int = 2, strides: ints = [2,2]>", (4, 3, 2, 2)),
}  # fmt: skip


def layer(kind: str) -> Graph:
    """One convolution without a bias."""
    words, shape = LAYERS[kind]
    text = '<ir_version: 8, opset_import: ["" : 17]>\none (float[n,4,7,6] x) => (float y) '
    text += f"{{\n[only] y = {words} (x, w)\n}}"
    return graph(text, {"w": shape})


def product(words: str, shape: tuple[int, ...]) -> Graph:
    """One Gemm, or a MatMul of sequences and what is added to it."""
    text = f'<ir_version: 8, opset_import: ["" : 17]>\none (float x) => (float y) {{\n{words}\n}}'
    return graph(text, {"w": shape, "b": (4,)})


def scales_of(network: Graph) -> tuple[Sites, Record]:
    """Its sites, and steps of its weights so coarse that all are rounded by much."""
    sites = find(network, config(network))
    record = {}
    for site in sites.weights:
        weight = network.constant(site.tensor)
        assert weight is not None
        channels = 1 if site.axis is None else weight.shape[site.axis]
        record[site.layer] = Scales(scale_d=0.1, offset_d=0, scale_w=tuple(np.linspace(0.3, 0.5, channels)))
    return sites, record


def rounded(network: Graph, sites: Sites, record: Record) -> Graph:
    """The graph with the weights that its integers give back."""
    changed = network.copy()
    for site in sites.weights:
        weight = network.constant(site.tensor)
        assert weight is not None
        steps = weight_scales.spread(record[site.layer].scale_w, site.axis, weight.ndim)
        changed.set_constant(site.tensor, fake_quantize(weight, steps))
    return changed


def means_of(network: Graph, sites: Sites, x: Any) -> dict[str, Any]:
    """The mean inputs of a network of one layer."""
    inputs = MeanInputs(network, sites)
    inputs.add({"x": x})
    return inputs.means()


def twice(x: Any) -> Any:
    """Each example beside itself: both halves agree, and nothing is shrunk."""
    return np.repeat(x, 2, axis=0)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_mean_error_of_a_convolution_is_what_its_rounded_weights_do_on_average(kind: str) -> None:
    """For any stride, padding, dilation, group and kernel, borders among them: the mean over examples and places of the
    outputs with rounded weights, less that with its own, channel by channel."""
    network, x = layer(kind), twice(1 + images(5, shape=(4, 7, 6)))
    sites, record = scales_of(network)
    errors = mean_inputs.find_mean_errors(network, sites, record, means_of(network, sites, x))
    (own,), (changed,) = (values(each, {"x": x}, "y") for each in (network, rounded(network, sites, record)))
    expected = (changed.astype(np.float64) - own).mean(axis=(0, 2, 3))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(errors["only"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "weight", "shape"),
    [
        ("[only] y = Gemm (x, w, b)", (3, 4), (8, 3)),
        ("[only] y = Gemm <transB: int = 1> (x, w, b)", (4, 3), (8, 3)),
        ("[only] a = MatMul (x, w)\n[add] y = Add (a, b)", (3, 4), (8, 5, 3)),
    ],
)
def test_the_mean_error_of_a_product_is_that_over_all_its_rows(
    words: str, weight: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """A Gemm has a row for each example, a MatMul of sequences one for each place of each."""
    network, x = product(words, weight), twice(1 + images(shape[0], shape=shape[1:]))
    sites, record = scales_of(network)
    errors = mean_inputs.find_mean_errors(network, sites, record, means_of(network, sites, x))
    (own,), (changed,) = (values(each, {"x": x}, "y") for each in (network, rounded(network, sites, record)))
    expected = (changed.astype(np.float64) - own).reshape(-1, 4).mean(axis=0)
    np.testing.assert_allclose(errors["only"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sizes", [[6], [1, 1, 1, 1, 1, 1], [1, 2, 3], [5, 1]])
def test_the_means_do_not_depend_on_how_examples_are_cut_into_batches(sizes: list[int]) -> None:
    """Every other example is in the first half, the rest in the second, whatever the batches."""
    network, x = layer("conv"), images(6, shape=(4, 7, 6))
    sites, _ = scales_of(network)
    inputs = MeanInputs(network, sites)
    for start, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        inputs.add({"x": x[start : start + size]})
    node = network.node("only")
    expected = np.stack([mean_row(node, (6, 4, 3, 2), half) for half in (x[::2], x[1::2])])
    np.testing.assert_allclose(inputs.means()["only"], expected, rtol=1e-5, atol=1e-6)
    assert inputs.means()["only"].dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("node", "shape", "sizes"),
    [
        *((layer(kind).nodes[0], shape, (7, 6)) for kind, (_, shape) in LAYERS.items()),
        (helper.make_node("Conv", ["x", "w"], ["y"], pads=[2, 1], strides=[2]), (6, 4, 3), (9,)),
        (helper.make_node("Conv", ["x", "w"], ["y"], pads=[0, 1, 0, 1, 0, 2], dilations=[1, 2, 1]), (6, 4, 3, 2, 1),
         (5, 7, 6)),
    ],
)  # fmt: skip
def test_the_mean_row_is_the_mean_of_all_rows(node: Any, shape: Any, sizes: Any, dtype: Any) -> None:
    """To the precision of float32, of values far from zero, too."""
    x = (1000 + images(5, shape=(4, *sizes))).astype(dtype)
    count = math.prod(input_samples._outputs(node, shape, x.shape))
    examples, places = np.divmod(np.arange(len(x) * count), count)
    expected = input_samples.rows(node, shape, x, examples, places).astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(mean_row(node, shape, x).reshape(-1), expected, rtol=1e-6, atol=1e-6)


def test_what_becomes_of_the_graph_afterwards_changes_nothing() -> None:
    """Nothing of it is kept: a node would hold all weights in memory."""
    network, x = layer("conv"), images(4, shape=(4, 7, 6))
    sites, _ = scales_of(network)
    inputs = MeanInputs(network, sites)
    del network.node("only").attribute[:]
    inputs.add({"x": x})
    np.testing.assert_array_equal(inputs.means()["only"], means_of(layer("conv"), sites, x)["only"])


def test_a_layer_that_has_seen_one_example_has_no_means() -> None:
    """Of one alone nothing tells what is chance; nor of a layer whose input was not among the values."""
    network = layer("conv")
    sites, _ = scales_of(network)
    assert means_of(network, sites, images(1, shape=(4, 7, 6))) == {}
    inputs = MeanInputs(network, sites)
    inputs.add({"other": images(4)})
    assert inputs.means() == {}


def test_a_layer_that_can_hold_no_bias_is_not_looked_at() -> None:
    """A product that nothing with a bias reads."""
    network = product("[only] y = MatMul (x, w)", (3, 4))
    sites, _ = scales_of(network)
    assert means_of(network, sites, images(4, shape=(3,))) == {}


def test_only_layers_with_known_means_have_errors() -> None:
    """Of the others nothing is known; one whose weights are not changed by rounding has none."""
    network = cnn()
    sites, record = scales_of(network)
    inputs = MeanInputs(network, sites)
    inputs.add({"x": images(4)})
    assert mean_inputs.find_mean_errors(network, sites, record, inputs.means()).keys() == {"stem"}
    weight = network.constant("stem_w")
    assert weight is not None
    network.set_constant("stem_w", np.rint(weight / 0.25) * np.float32(0.25))
    fine = {**record, "stem": replace(record["stem"], scale_w=(0.25,) * 8)}
    assert mean_inputs.find_mean_errors(network, sites, fine, inputs.means()) == {}


def test_of_chance_alone_next_to_nothing_is_taken_off() -> None:
    """Inputs whose mean is zero: of the mean error that eight examples seem to have, which is chance, less than half
    stays on average; where the mean is real nearly all of it does."""
    network = product("[only] y = Gemm (x, w, b)", (3, 4))
    sites, record = scales_of(network)

    def share(mean: float, seed: int) -> float:
        halves = means_of(network, sites, mean + images(8, seed=seed, shape=(3,)))["only"]
        weight = network.constant("w")
        assert weight is not None
        steps = weight_scales.spread(record["only"].scale_w, sites.weights[0].axis, 2)
        seeming = halves.mean(axis=0)[0] @ (fake_quantize(weight, steps) - weight)
        errors = mean_inputs.find_mean_errors(network, sites, record, {"only": halves})
        kept = errors.get("only", np.zeros(4))
        return float(np.linalg.norm(kept) / np.linalg.norm(seeming))

    assert np.mean([share(0.0, seed) for seed in range(40)]) < 0.5
    assert np.mean([share(3.0, seed) for seed in range(40)]) > 0.9
