"""Steps of weights with room for sums of 16 bits: which grow, how far, and that no pair then overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ADA, WeightParams
from qbench.quant.onnx.sites import Scales, Sites, WeightSite
from qbench.quant.onnx.weights import narrow_steps as narrow_module
from qbench.quant.onnx.weights.narrow_steps import narrow_steps
from qbench.quant.saturation.pair_sums import PairedProduct, find_pairs

Array = NDArray[Any]
NEAREST, ADAROUND = WeightParams(), WeightParams(algorithm=ADA)


def weights_of(
    value: Array, axis: int | None = 0, kind: str = "Conv", params: WeightParams = NEAREST, **attributes: Any
) -> Any:
    """A layer's weight as a graph, its place, and its record by the absolute maximum."""
    node = helper.make_node(kind, ["x", "w"], ["y"], name="one", **attributes)
    shape = [1, *value.shape[1:]]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, of) for name, of in (("x", shape), ("y", None))]
    tensor = numpy_helper.from_array(value.astype(np.float32), "w")
    graph = helper.make_graph([node], "net", values[:1], values[1:], [tensor])
    site = WeightSite(layer="one", tensor="w", axis=axis, params=params)
    rows = value.reshape(1, -1) if axis is None else np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
    scales = tuple(float(entry) or 1.0 for entry in np.abs(rows).max(axis=1) / 127)
    return Graph(helper.make_model(graph)), Sites(weights=(site,), activations=()), {"one": Scales(scale_w=scales)}


VALUES = st.floats(-1, 1, width=32).map(lambda value: value if abs(value) > 1e-6 else 0.0)


@given(value=arrays.arrays(np.float64, st.tuples(*map(st.just, (2, 4, 1, 2))), elements=VALUES))
def test_no_pair_of_neighbours_overflows_16_bits(value: Array) -> None:
    """Of two neighbouring channels at one place of the window: 255 times the sum of two weights of one sign stays below
    32768; and no step is wider than that needs."""
    graph, sites, record = weights_of(value)
    result = narrow_steps(graph, sites, record)
    before, after = (np.asarray(entry["one"].scale_w) for entry in (record, result))
    steps = np.rint(value / after.reshape(-1, 1, 1, 1))
    sums = steps[:, 0::2] + steps[:, 1::2]
    largest = np.where(steps[:, 0::2] * steps[:, 1::2] > 0, np.abs(sums), 0).max(axis=(1, 2, 3))
    assert largest.max() * 255 <= 32767
    assert np.all(largest[after > before] >= 126)


@pytest.mark.parametrize("shape", [(16, 8, 3, 3), (16, 3, 3, 3), (16, 5, 1, 1), (16, 40), (16, 1, 5, 5)])
def test_sums_hold_in_the_order_of_every_runtime(shape: tuple[int, ...]) -> None:
    """ONNX Runtime and OpenVINO pair the weights of an odd number of channels otherwise; neither finds a pair that can
    leave 16 bits, and most channels had one."""
    value = np.random.default_rng(0).uniform(-1, 1, shape)
    graph, sites, record = weights_of(value)
    result = narrow_steps(graph, sites, record)

    def pairs(scales: Any, order: Any) -> int:
        steps = np.asarray(scales["one"].scale_w).reshape(-1, *[1] * (value.ndim - 1))
        return len(find_pairs(PairedProduct(weight=np.rint(value / steps).astype(np.int8), pairing=order)))

    assert pairs(record, "flat") > 4
    assert (pairs(result, "flat"), pairs(result, "even")) == (0, 0)
    assert 1 < np.divide(result["one"].scale_w, record["one"].scale_w).max() < 2.01


def test_what_cannot_overflow_keeps_its_8_bits() -> None:
    """A depthwise channel has no neighbour; weights of opposite signs take from each other."""
    depthwise = weights_of(np.random.default_rng(0).standard_normal((8, 1, 3, 3)), group=8)
    assert narrow_steps(*depthwise) == depthwise[2]
    opposite = weights_of(np.array([1.0, -1.0]).reshape(1, 2, 1, 1))
    assert narrow_steps(*opposite) == opposite[2]
    both = weights_of(np.array([1.0, 1.0]).reshape(1, 2, 1, 1))
    assert narrow_steps(*both)["one"].scale_w[0] == pytest.approx(2 / 127)


def test_one_scale_for_a_whole_weight_grows_for_its_worst_channel() -> None:
    """As one tensor there is one step for all; the channels of a MatMul are its columns."""
    value = np.concatenate([np.ones((1, 2, 1, 1)), np.full((1, 2, 1, 1), 0.1)])
    for entry in (weights_of(value, axis=None), weights_of(value.reshape(2, 2).T, axis=None, kind="MatMul")):
        (scale,) = narrow_steps(*entry)["one"].scale_w
        assert 2 * round(1 / scale) * 255 <= 32767
    apart = weights_of(np.eye(4), axis=None, kind="MatMul")
    assert narrow_steps(*apart) == apart[2], "a row is what meets one input"


@given(value=arrays.arrays(np.float64, st.tuples(*map(st.just, (2, 4, 1, 2))), elements=VALUES), seed=st.integers(0, 9))
def test_weights_that_adaround_moves_have_room_either_way(value: Array, seed: int) -> None:
    """Whichever of its two neighbours each weight becomes: no pair overflows, and what is then narrowed again, as the
    file is written, stays as it is. A weight that is rounded to nearest needs, and gets, no more than before."""
    graph, sites, record = weights_of(value, params=ADAROUND)
    result = narrow_steps(graph, sites, record, unrounded=True)
    steps = np.asarray(result["one"].scale_w, np.float32).reshape(-1, 1, 1, 1)
    levels = value.astype(np.float32) / steps
    up = np.random.default_rng(seed).random(value.shape) < 0.5
    chosen = np.where(np.abs(levels - np.rint(levels)) < 1e-4, np.rint(levels), np.floor(levels) + up)
    assert not find_pairs(PairedProduct(weight=chosen.astype(np.int8), pairing="flat"))
    graph.set_constant("w", (chosen * steps).astype(np.float32))
    assert narrow_steps(graph, sites, result) == result
    nearest = weights_of(value)
    assert narrow_steps(*nearest, unrounded=True) == narrow_steps(*nearest)


def pairs_of(kind: str, steps: Any, **attributes: Any) -> list[float]:
    """The largest sum of each channel."""
    node = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    return narrow_module._largest_pairs(node, np.asarray(steps, float)).tolist()


@pytest.mark.parametrize(
    ("kind", "steps", "expected"),
    [
        ("MatMul", [[1, 2, 4, 8]], [12]),
        ("MatMul", [[1, 2, 4]], [3]),  # the odd one stands alone
        ("MatMul", [[5, -7, -4, -2]], [6]),
        ("MatMul", [[0, 7]], [0]),  # nothing is of the sign of nothing
        ("MatMul", [[-3, -4], [1, 1]], [7, 2]),
        ("Conv", [[[1, 10], [2, 20]]], [30]),  # channels at a place
        ("Conv", [[[1, 10, 3]], [[2, -7, -8]]], [11, 8]),  # one channel: places side by side
        ("Conv", [[[1, 5], [1, 1], [9, 1]]], [14]),  # three channels: the third of a place and the first of the next
        ("ConvTranspose", [[[1, 10], [2, 1], [4, 20]]], [30]),  # any two at a place
        ("ConvTranspose", [[[-1, 10], [2, 1], [-4, -20]]], [20]),
        ("ConvTranspose", [[[-1, 10], [2, 1], [-4, -9]]], [11]),
    ],
)
def test_which_weights_are_multiplied_side_by_side(kind: str, steps: Any, expected: list[float]) -> None:
    """Of one sign; by channel."""
    assert pairs_of(kind, steps) == expected


@pytest.mark.parametrize(
    ("channels", "group", "expected"),
    [(3, 3, 1.0), (3, 1, 254 / 127), (6, 3, 254 / 127)],
)
def test_a_depthwise_layer_with_one_channel_for_each_has_no_pairs(
    channels: int, group: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with two for each input channel, or without groups, has them; however many channels are looked at at once."""
    graph, sites, record = weights_of(np.full((channels, 1, 2), 1.0), group=group)
    for block in (1, 4, 2**17):
        monkeypatch.setattr(narrow_module, "_BLOCK", block)
        grown = np.divide(narrow_steps(graph, sites, record)["one"].scale_w, record["one"].scale_w)
        np.testing.assert_allclose(grown, [expected] * channels)


@pytest.mark.parametrize(("kind", "axis"), [("Conv", 0), ("Conv", None), ("ConvTranspose", 1), ("MatMul", 1)])
def test_how_many_weights_are_looked_at_at_once_changes_nothing(
    kind: str, axis: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel at a time, two and the one that is left, or all."""
    value = np.random.default_rng(0).uniform(-1, 1, (5, 5, 3)[: 2 if kind == "MatMul" else 3])
    whole = narrow_steps(*weights_of(value, axis, kind))
    for block in (1, 31):
        monkeypatch.setattr(narrow_module, "_BLOCK", block)
        assert narrow_steps(*weights_of(value, axis, kind)) == whole


@pytest.mark.parametrize(("second", "factor"), [(1.0, 1.0), (1.4, 1.0), (1.6, 128.6 / 127), (127.0, 2.0)])
def test_steps_grow_from_a_sum_of_129_on(second: float, factor: float) -> None:
    """To 127, which leaves room for the rounding of both."""
    graph, sites, _ = weights_of(np.array([127.0, second]).reshape(1, 2, 1, 1))
    record = {"one": Scales(scale_w=(1.0,), scale_d=0.5)}
    result = narrow_steps(graph, sites, record)
    assert result["one"].scale_w == (pytest.approx(factor),)
    assert result["one"].scale_d == 0.5


def test_only_what_adaround_is_still_to_round_has_room_for_both_ways() -> None:
    """126.2 and 1.2 are 127 when rounded, and 129 when both go up."""
    value = np.array([126.2, 1.2]).reshape(1, 2, 1, 1)
    record = {"one": Scales(scale_w=(1.0,))}
    for params, unrounded, grows in ((ADAROUND, True, True), (ADAROUND, False, False), (NEAREST, True, False)):
        graph, sites, _ = weights_of(value, params=params)
        scale = narrow_steps(graph, sites, record, unrounded=unrounded)["one"].scale_w[0]
        assert (scale > 1) == grows
    graph, sites, _ = weights_of(value, params=ADAROUND)
    assert narrow_steps(graph, sites, record) == record
