"""A first convolution of few channels stays float for ONNX Runtime, which runs it faster so."""

from __future__ import annotations

import pytest
from onnx_networks import Draft
from quantized_networks import Quantized, executed, of

from qbench.quant.onnx.export import executed_layers, narrow_weights
from qbench.quant.onnx.export.slow_in_int8 import REASON, find_slow


def network(
    *,
    channels: int = 3,
    width: int = 16,
    kernel: int = 3,
    hardswish: bool = False,
    rest: int = 32,
    scaled: bool = False,
) -> Quantized:
    """A first convolution, a Relu or Hardswish, two wider ones."""
    draft = Draft()
    x = "x"
    if scaled:
        x = draft.add("Sub", [x, draft.bias("mean", 1)], "shift")
    x = draft.conv(x, "first", channels, width, kernel, stride=2)
    if hardswish:
        x = draft.add("Mul", [x, draft.add("HardSigmoid", [x], "gate", alpha=1 / 6, beta=0.5)], "swish")
    else:
        x = draft.add("Relu", [x], "relu")
    x = draft.add("Relu", [draft.conv(x, "second", width, rest)], "relu2")
    draft.conv(x, "third", rest, 2 * rest)
    draft.nodes[-1].output[0] = "y"
    return of(draft.model({"x": ["batch", channels, 16, 16]}, {"y": ["batch", 2 * rest, 8, 8]}))


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"channels": 1, "width": 8},
        {"width": 32},
        {"scaled": True},
        {"width": 64, "hardswish": True, "rest": 64},
        {"channels": 1, "width": 64, "kernel": 9, "hardswish": True, "rest": 64},
    ],
)
def test_a_first_convolution_of_few_channels_is_slow_on_bytes(shape: dict[str, int]) -> None:
    """Few values in a window and few channels out: float is faster, more so where floats are read behind it."""
    planned = network(**shape)  # type: ignore[arg-type]
    assert find_slow(planned.graph, planned.sites) == {"first": REASON}


@pytest.mark.parametrize(
    "shape",
    [
        {"channels": 4},
        {"width": 48, "rest": 64},
        {"kernel": 7},
        {"width": 96, "hardswish": True, "rest": 96},
        {"rest": 1},
    ],
)
def test_others_are_quantized(shape: dict[str, int]) -> None:
    """More channels or larger windows pay for bytes; what is most of a network's work stays int8 whatever its shape."""
    planned = network(**shape)  # type: ignore[arg-type]
    assert find_slow(planned.graph, planned.sites) == {}


def test_only_the_first_layer_is_left_float() -> None:
    """The runtime runs the others on bytes, and the deploy model has no integers of the first."""
    planned = network()
    slow = find_slow(planned.graph, planned.sites)
    fitted = narrow_weights.fitted(planned.graph, planned.sites, planned.record, None)
    settled = executed_layers.settled(planned.graph, planned.sites, fitted, slow)
    assert settled.floats == {"first": REASON}
    assert [site.layer for site in settled.sites.weights] == ["second", "third"]
    kinds = [node.op_type for node in executed(settled.graph)]
    assert kinds.count("QLinearConv") == 2
    assert kinds.count("QuantizeLinear") == 1, "what the first layer gives; its input stays float"
