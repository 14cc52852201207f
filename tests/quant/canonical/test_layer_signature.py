"""Rules of qbench/quant/canonical/layer_signature.py: which plain layer a call is, or what it does beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.canonical.layer_signature import NotPlain, find_function, names_of, watch_layer


class Layer(nn.Module):
    """Tensors of its own, and a forward given as a function of them."""

    def __init__(self, run: Callable[[Any, Any], Any], **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.rand(shape)))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))
        self.run = run

    def forward(self, x: Any) -> Any:
        """By the function."""
        return self.run(self, x)


IMAGE, ROWS, SERIES = torch.rand(2, 3, 6, 6), torch.rand(2, 3), torch.rand(2, 3, 6)
CONV, LINEAR = {"w": (4, 3, 3, 3), "b": (4,)}, {"w": (4, 3), "b": (4,)}


@pytest.mark.parametrize(
    ("run", "shapes", "x", "kind", "numbers", "pairs", "padded"),
    [
        (lambda m, x: functional.conv2d(x, m.w, m.b), CONV, IMAGE, nn.Conv2d,
         {"stride": (1, 1), "dilation": (1, 1), "groups": 1}, ((0, 0), (0, 0)), False),
        (lambda m, x: functional.conv2d(x, m.w, None, 2, (1, 2), 3), CONV, IMAGE, nn.Conv2d,
         {"stride": (2, 2), "dilation": (3, 3), "groups": 1}, ((1, 1), (2, 2)), False),
        (lambda m, x: functional.conv2d(functional.pad(x, [0, 1, 2, 3]), m.w, padding=1), CONV, IMAGE, nn.Conv2d,
         {"stride": (1, 1), "dilation": (1, 1), "groups": 1}, ((3, 4), (1, 2)), True),
        (lambda m, x: functional.conv2d(functional.pad(functional.pad(x, [1, 1]), [0, 0, 1, 0], "constant", 0.0), m.w),
         CONV, IMAGE, nn.Conv2d, {"stride": (1, 1), "dilation": (1, 1), "groups": 1}, ((1, 0), (1, 1)), True),
        (lambda m, x: functional.conv1d(x, m.w, groups=3), {"w": (6, 1, 2)}, SERIES, nn.Conv1d,
         {"stride": (1,), "dilation": (1,), "groups": 3}, ((0, 0),), False),
        (lambda m, x: functional.conv_transpose1d(x, m.w, None, 2, 1, 1, 1, 3), {"w": (3, 4, 2)}, SERIES,
         nn.ConvTranspose1d,
         {"stride": (2,), "dilation": (3,), "groups": 1, "padding": (1,), "output_padding": (1,)}, (), False),
        (lambda m, x: functional.conv_transpose1d(x, m.w), {"w": (3, 4, 2)}, SERIES, nn.ConvTranspose1d,
         {"stride": (1,), "dilation": (1,), "groups": 1, "padding": (0,), "output_padding": (0,)}, (), False),
        (lambda m, x: functional.linear(x, m.w, m.b), LINEAR, ROWS, nn.Linear, {}, (), False),
        (lambda m, x: functional.linear(x.contiguous(), m.w * 2), LINEAR, ROWS, nn.Linear, {}, (), False),
        (lambda m, x: x @ m.w.T + m.b, LINEAR, ROWS, nn.Linear, {}, (), False),
        (lambda m, x: m.b + torch.mm(x, m.w.T), LINEAR, ROWS, nn.Linear, {}, (), False),
        (lambda m, x: functional.batch_norm(x, m.mean, m.variance), {}, IMAGE, nn.BatchNorm2d, {"eps": 1e-5},
         (), False),
        (lambda m, x: functional.batch_norm(x, m.mean, m.variance, eps=1e-3), {}, ROWS, nn.BatchNorm1d, {"eps": 1e-3},
         (), False),
        (lambda m, x: functional.batch_norm(x, m.mean, m.variance), {}, SERIES, nn.BatchNorm1d, {"eps": 1e-5},
         (), False),
        (lambda m, x: functional.batch_norm(x, m.mean, m.variance), {}, IMAGE[..., None], nn.BatchNorm3d, {"eps": 1e-5},
         (), False),
        (lambda m, x: x * m.s + m.t, {"s": (3, 1, 1), "t": (1, 3, 1, 1)}, IMAGE, nn.BatchNorm2d, {"eps": 0.0},
         (), False),
        (lambda m, x: m.s * x, {"s": (3,)}, ROWS, nn.BatchNorm1d, {"eps": 0.0}, (), False),
    ],
)  # fmt: skip
def test_a_call_that_is_one_plain_layer_is_told_as_it(
    run: Any, shapes: Any, x: Any, kind: Any, numbers: Any, pairs: Any, padded: bool
) -> None:
    """Its class and numbers with the defaults of torch's functions, and the zeros around its input."""
    form = watch_layer(Layer(run, **shapes), x, training=False)
    assert (form.kind, dict(form.numbers), form.pairs, form.padded) == (kind, numbers, pairs, padded)


def test_a_scale_and_a_shift_are_a_norm_whose_statistics_do_nothing() -> None:
    """What is not there scales by 1 and shifts by 0."""
    layer = Layer(lambda m, x: x * m.s + m.t, s=(3, 1, 1), t=(3, 1, 1))
    tensors = watch_layer(layer, IMAGE, training=False).tensors
    assert torch.equal(tensors["weight"], layer.s.flatten())
    assert torch.equal(tensors["bias"], layer.t.flatten())
    assert (tensors["running_mean"].tolist(), tensors["running_var"].tolist()) == ([0.0] * 3, [1.0] * 3)
    alone = watch_layer(Layer(lambda m, x: x * m.s, s=(3, 1, 1)), IMAGE, training=False).tensors
    assert alone["bias"].tolist() == [0.0] * 3
    assert watch_layer(Layer(lambda m, x: x * m.s, s=(3,)), ROWS, training=False).tensors["bias"].tolist() == [0.0] * 3


def test_a_product_by_a_weight_of_its_own_keeps_that_weight() -> None:
    """The very parameter, which may be trained; of another matrix what is computed, which may not."""
    own = Layer(lambda m, x: x @ m.w.T, w=(4, 3))
    assert watch_layer(own, ROWS, training=True).tensors == {"weight": own.w, "bias": None}
    square = Layer(lambda m, x: x @ m.w, w=(3, 3))
    assert torch.equal(watch_layer(square, ROWS, training=False).tensors["weight"], square.w.T)
    with pytest.raises(NotPlain, match="computes its weights"):
        watch_layer(square, ROWS, training=True)
    plain = nn.Linear(3, 4)
    assert watch_layer(plain, ROWS, training=True).tensors == {"weight": plain.weight, "bias": plain.bias}


@pytest.mark.parametrize(
    ("run", "shapes", "x", "said"),
    [
        (lambda m, x: x, {}, ROWS, "returns something else than a plain layer's result"),
        (lambda m, x: m.w * 2, LINEAR, ROWS, "returns something else than a plain layer's result"),
        (lambda m, x: (functional.linear(x, m.w), 1), LINEAR, ROWS, "returns something else than a plain layer's"),
        (lambda m, x: functional.linear(x, m.w).relu(), LINEAR, ROWS, "its forward also calls relu"),
        (lambda m, x: functional.linear(x.relu(), m.w), LINEAR, ROWS, "its forward also calls relu"),
        (lambda m, x: functional.linear(x, m.w) + x.sum(), LINEAR, ROWS, "its forward also calls linear"),
        (lambda m, x: functional.linear(x, m.w) + x, {"w": (3, 3)}, ROWS, "its forward also calls add"),
        (lambda m, x: functional.linear(functional.pad(x, [1, 1]), m.w), {"w": (4, 5)}, ROWS,
         "its forward also calls pad"),
        (lambda m, x: functional.conv2d(functional.pad(x, [1, 1], value=1.0), m.w), CONV, IMAGE,
         "its forward also calls pad"),
        (lambda m, x: functional.conv2d(functional.pad(x, [1, 1, 1, 1], mode="reflect"), m.w), CONV, IMAGE,
         "its forward also calls pad"),
        (lambda m, x: functional.conv2d(functional.pad(x, [-1, 1]), m.w), CONV, IMAGE,
         "its padding cuts, or is not of the spatial axes"),
        (lambda m, x: functional.linear(x, m.w), {"w": (3,)}, ROWS, "its weight has no axis of outputs and inputs"),
        (lambda m, x: functional.batch_norm(x, m.mean, m.variance, training=True), {}, IMAGE,
         "it takes the statistics of the batch"),
        (lambda m, x: x * m.s + m.s + m.s, {"s": (3,)}, ROWS, "its forward also calls add"),
        (lambda m, x: x * m.s * m.s, {"s": (3,)}, ROWS, "its forward also calls mul"),
        (lambda m, x: x * 2.0, {}, ROWS, "its forward also calls mul"),
        (lambda m, x: x * m.s, {"s": (1, 1, 6)}, IMAGE, "its forward also calls mul"),
        (lambda m, x: x * m.s, {"s": (2, 3)}, ROWS, "its forward also calls mul"),
        (lambda m, x: x @ m.w.T * m.b, LINEAR, ROWS, "its forward also calls mul"),
        (lambda m, x: x @ m.w.T + m.b + m.b, LINEAR, ROWS, "its forward also calls add"),
        (lambda m, x: x @ m.w.T + 1, LINEAR, ROWS, "its forward also calls add"),
        (lambda m, x: x @ m.w.T + m.b, {"w": (4, 3), "b": (1,)}, ROWS, "its forward also calls add"),
        (lambda m, x: m.w @ x.T, LINEAR, ROWS, "its forward also calls"),
        (lambda m, x: x @ m.w, {"w": (3,)}, ROWS, "its product is none of its input and a matrix"),
        (lambda m, x: torch.matmul(x, other=m.w.T), LINEAR, ROWS, "its product is none of its input and a matrix"),
        (lambda m, x: torch.mm(input=x, mat2=m.w.T), LINEAR, ROWS, "its product is none of its input and a matrix"),
        (lambda m, x: 1 / 0, {}, ROWS, "it raises"),
    ],
)  # fmt: skip
def test_what_does_more_is_no_plain_layer(run: Any, shapes: Any, x: Any, said: str) -> None:
    """The first call that no plain layer makes is named."""
    with pytest.raises(NotPlain, match=said):
        watch_layer(Layer(run, **shapes), x, training=False)


def test_a_subclass_that_computes_another_layer_is_none() -> None:
    """A convolution whose forward is linear would be told by its class as what it is not."""

    class Other(nn.Conv2d):
        def forward(self, x: Any) -> Any:
            return functional.linear(x, self.weight[:, :, 0, 0])

    with pytest.raises(NotPlain, match="its forward calls linear"):
        watch_layer(Other(6, 4, 3), IMAGE, training=False)


def test_layers_are_the_same_whatever_their_tensors_hold() -> None:
    """By class, numbers and zeros."""

    def form(*words: Any) -> Any:
        return watch_layer(Layer(lambda m, x: functional.conv2d(x, m.w, m.b, *words), **CONV), IMAGE, training=False)

    assert form().same_as(form())
    assert not form().same_as(form(2))
    assert not form().same_as(form(1, 1))


def test_functions_are_known_by_their_layer() -> None:
    """A norm has no weight to multiply by."""
    assert find_function(functional.linear) == (nn.Linear, ("input", "weight", "bias"))
    assert find_function(functional.batch_norm) is None
    assert find_function(functional.relu) is None
    assert names_of(nn.Conv3d)[-1] == "groups"
    assert names_of(nn.ConvTranspose2d)[-1] == "dilation"
