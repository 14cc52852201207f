"""The PT2E flow: what torchao's quantizer matches, what it leaves float and why, QAT with the network's BatchNorm."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from networks import Branching, NothingToQuantize, perceptron, residual_cnn
from torch import nn

from qbench import registry
from qbench.errors import BuildError, ModeImpossible, UnknownName
from qbench.quant import canonical
from qbench.quant.artifacts import torch_export
from qbench.quant.artifacts.tracing import known_warnings as torchscript_warnings
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import pt2e, pt2e_inductor, qconfig
from qbench.quant.recipe import Recipe

pytest.importorskip("torchao", reason="torchao is not installed; pip install 'torchao>=0.18'")
pytestmark = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
RECIPE = Recipe(flow="pt2e", calibrator="minmax", per_channel=True, symmetric=False, reduce_range=False)
Q_MAX = 4  # the place of the largest integer among the arguments of a quantize node


def images(n=32):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def batches(*tensors):
    return lambda: iter([tuple(tensor[start : start + 10] for tensor in tensors) for start in range(0, 32, 10)])


def static(module, recipe=RECIPE, *inputs):
    inputs = inputs or (images(),)
    example = tuple(tensor[:1] for tensor in inputs)
    return pt2e.static(QuantizeJob(module, "inductor", recipe, example), batches(*inputs))


def dynamic(module, recipe=RECIPE):
    return pt2e.dynamic(QuantizeJob(module, "inductor", recipe, (images(1),)))


def off(converted, module, *inputs):
    inputs = inputs or (images(),)
    with torch.no_grad():
        return float((converted.module(*inputs) - module(*inputs)).abs().max())


def nodes(module, part):
    return [node for node in module.graph.nodes if part in str(node.target)]


def input_scale(converted):
    """(scale, zero point, largest integer) of the network's input."""
    node = nodes(converted.module, "quantize_per_tensor.default")[0]
    return node.args[1], node.args[2], node.args[Q_MAX]


class Normed(nn.Module):
    """BatchNorm with eps and momentum of its own, dropout, ReLU6, a depthwise convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=1e-2, momentum=0.03)
        self.relu = nn.ReLU6()
        self.drop = nn.Dropout(0.3)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.norm2 = nn.BatchNorm2d(8, eps=1e-3)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.drop(self.norm2(self.depthwise(self.relu(self.norm(self.conv(x))))))
        return self.head(x.mean((2, 3)))


def normed():
    """Its variances are small: BatchNorm's eps decides the outputs."""
    torch.manual_seed(0)
    model = Normed()
    for norm in (model.norm, model.norm2):
        nn.init.uniform_(norm.running_var, 0.001, 0.02)
        nn.init.normal_(norm.running_mean, 0, 0.1)
    return model.eval()


def test_static_quantizes_every_layer_and_stays_close():
    """A quantize node stands before each layer, no layer has a reason to be float, outputs stay near fp32, and the
    fp32 network is as it was."""
    model = residual_cnn()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    network = static(model)
    assert len(nodes(network.module, "dequantize_per_channel")) == 3
    assert network.conversion.float_reasons == {}
    assert 0 < off(network, model) < 0.02
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_the_range_is_that_of_the_recipe():
    """minmax spans the values seen: 255 steps, 127 with reduce_range; symmetric puts zero in the middle."""
    model, top = perceptron(), float(images().max())
    assert input_scale(static(model)) == pytest.approx((top / 255, 0, 255))
    reduced = Recipe(calibrator="minmax", reduce_range=True)
    assert input_scale(static(model, reduced)) == pytest.approx((top / 127, 0, 127))
    symmetric = Recipe(calibrator="minmax", symmetric=True)
    assert input_scale(static(model, symmetric)) == pytest.approx((top / 127.5, 128, 255))


@pytest.mark.parametrize("name", registry.names("calibrator"))
def test_every_calibrator_is_at_home_in_this_flow(name):
    """The calibrators are those of the other flows: the same data give the scale that the observer itself gives."""
    spiky = images()
    spiky[0, 0, 0, 0] = 5.0
    network = static(perceptron(), Recipe(calibrator=name), spiky)
    alone = qconfig.activation_observer(Recipe(calibrator=name))(dtype=torch.quint8)
    for (batch,) in batches(spiky)():
        alone(batch)
    scale, zero = alone.calculate_qparams()
    assert input_scale(network) == pytest.approx((float(scale), int(zero), 255))


def test_an_unknown_calibrator_lists_those_there_are():
    """A misspelt name must not pass as the default."""
    with pytest.raises(UnknownName, match="no calibrator named 'minimax'; did you mean 'minmax'"):
        static(perceptron(), Recipe(calibrator="minimax"))


def test_the_framework_default_is_torchaos_own():
    """A histogram over 255 steps, with torchao's floor of 2**-12 under every scale of a weight."""
    model = perceptron()
    with torch.no_grad():
        model.first.weight[0].mul_(1e-6)
    theirs, ours = (static(model, recipe) for recipe in (Recipe(framework_default=True), RECIPE))
    assert input_scale(theirs)[2] == 255
    assert float(theirs.module.get_buffer("_scale_0")[0]) == 2**-12
    assert float(ours.module.get_buffer("_scale_0")[0]) < 2**-20


def test_per_tensor_weights_have_one_scale():
    """Inductor's kernels know per-channel weights only, so every channel gets the scale of the widest."""
    model = perceptron()
    wide, single = (static(model, Recipe(calibrator="minmax", per_channel=choice)) for choice in (True, False))
    scales = [actual.module.get_buffer("_scale_0") for actual in (wide, single)]
    assert [len(set(each.tolist())) > 1 for each in scales] == [True, False]
    assert float(scales[1][0]) == pytest.approx(float(scales[0].max()))


def test_static_without_calibration_is_refused():
    """torchao only warns, and returns zeros."""
    with pytest.raises(BuildError, match="calibration observed nothing at activation_post_process"):
        pt2e.static(QuantizeJob(perceptron(), "inductor", RECIPE, (images(1),)), lambda: iter(()))


def test_skipped_layers_stay_float_and_say_so():
    """Names and patterns; the reasons name the recipe."""
    network = static(residual_cnn(), Recipe(calibrator="minmax", skip_layers=("bo*",), last_layer_float=True))
    assert set(network.conversion.float_reasons) == {"body", "head"}
    assert "skip_layers" in network.conversion.float_reasons["body"]
    assert "last_layer_float" in network.conversion.float_reasons["head"]
    assert len(nodes(network.module, "dequantize_per_channel")) == 1


@pytest.mark.parametrize("make", [static, dynamic])
def test_an_unknown_layer_to_skip_is_an_error_that_lists_the_layers(make):
    """A misspelt name must not pass silently."""
    with pytest.raises(BuildError, match="no layer named frist; there are first, second"):
        make(perceptron(), Recipe(calibrator="minmax", skip_layers=("frist",)))


def test_dynamic_quantizes_linear_layers_by_the_range_of_each_call():
    """Weights have seen themselves (scales of 1 would be zeros), inputs a thousand times larger do not clip."""
    model = perceptron()
    network = dynamic(model)
    assert len(nodes(network.module, "choose_qparams")) == 2
    assert off(network, model) < 0.02
    with torch.no_grad():
        large = model(images() * 1000)
    assert off(network, model, images() * 1000) < 0.02 * float(large.abs().max())


def test_dynamic_ranges_can_be_reduced():
    """7 bits for activations, for CPUs whose kernels add pairs of products in 16 bits."""
    network = dynamic(perceptron(), Recipe(reduce_range=True))
    assert {node.args[2] for node in nodes(network.module, "choose_qparams")} == {127}
    assert off(network, perceptron()) < 0.02


def test_dynamic_leaves_convolutions_float_and_says_so():
    """Inductor has no dynamic convolution."""
    network = dynamic(residual_cnn())
    reason = "dynamic quantization by PT2E covers Linear layers only"
    assert network.conversion.float_reasons == {"stem": reason, "body": reason}


def test_dynamic_without_a_layer_for_it_is_refused():
    """Nothing would be int8."""
    with pytest.raises(BuildError, match="covers Linear layers.*use static instead"):
        dynamic(NothingToQuantize())


def test_layers_without_an_int8_form_say_so():
    """A transposed convolution and an LSTM are named with their operator."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
            self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
            self.lstm = nn.LSTM(64, 8, batch_first=True)

        def forward(self, x):
            return self.lstm(self.up(self.down(x)).flatten(2))[0]

    network = static(Decoder().eval())
    assert network.conversion.float_reasons == {
        "up": "X86InductorQuantizer has no int8 form of conv_transpose2d",
        "lstm": "X86InductorQuantizer has no int8 form of lstm",
    }


def test_a_network_without_an_int8_form_is_a_skip():
    """A generator of transposed convolutions is no fault of the suite's."""
    with pytest.raises(ModeImpossible, match="has no int8 form of conv_transpose2d, and this model has no other layer"):
        static(nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.ReLU()).eval())


def test_a_subclass_that_is_not_matched_is_named():
    """PT2E matches by class: a network of subclasses would run in float, and the reason tells what helps."""

    class Own(nn.Conv2d):
        def forward(self, x):
            return nn.functional.conv2d(x, self.weight, self.bias)

    network = static(nn.Sequential(Own(1, 4, 3), nn.Flatten(), nn.Linear(144, 10)).eval())
    assert list(network.conversion.float_reasons) == ["0"]
    assert (
        "is in Own; a subclass is replaced (unless canonicalize: false) where it computes the same"
        in network.conversion.float_reasons["0"]
    )


@pytest.mark.parametrize("canonicalize", [True, False])
def test_a_module_that_is_called_twice_is_explained(canonicalize):
    """torchao's matcher raises on it; the message names the ways out, and none that the recipe takes already."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.relu = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.ReLU()

        def forward(self, x):
            return self.relu(self.two(self.relu(self.one(x))))

    with pytest.raises(BuildError, match=r"cannot annotate this network.*name the layer in skip_layers") as caught:
        static(Shared().eval(), replace(RECIPE, canonicalize=canonicalize))
    assert ("remove canonicalize: false" in str(caught.value)) is not canonicalize


class Twice(nn.Module):
    """Two calls of one Linear."""

    def __init__(self):
        super().__init__()
        self.mix, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(torch.relu(self.mix(torch.relu(self.mix(x.flatten(1))))))


@pytest.mark.parametrize("mode", ["static", "dynamic", "qat"])
def test_each_call_of_a_layer_gets_its_own_int8_weights(mode):
    """Inductor packs weights and scales that one node reads, and leaves the others in float."""
    torch.manual_seed(0)
    model = Twice().eval()
    module = canonical.canonicalize(model, (images(1),), training=mode == "qat", separate_weights=True).module
    if mode == "qat":
        prepared = observe(pt2e.prepare_qat(QuantizeJob(module, "inductor", RECIPE, (images(1),))))
        converted = pt2e.convert_qat(QuantizeJob(prepared, "inductor", RECIPE, (images(1),)))
    else:
        converted = static(module) if mode == "static" else dynamic(module)
    weights = nodes(converted.module, "dequantize_per_channel")
    assert len(weights) == len({node.args[0] for node in weights}) == len({node.args[1] for node in weights}) == 3
    assert off(converted, model) < 0.02


def test_control_flow_that_export_cannot_trace_is_explained():
    """The message says what cannot be followed, and what can be done."""
    with pytest.raises(BuildError, match=r"torch.export cannot trace this network.*torch.where.*another backend"):
        static(Branching().eval())


class OneDimensional(nn.Module):
    """Two convolutions over time, the first with or without a ReLU behind it."""

    def __init__(self, behind):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.behind, self.last = nn.Conv1d(1, 8, 3), behind, nn.Conv1d(8, 4, 3)

    def forward(self, x):
        return self.last(self.behind(self.first(x.flatten(2))))


def test_convolutions_over_time_have_an_int8_form_with_a_relu_only():
    """A network of none with one, as a WaveNet gated by tanh, cannot have the mode: torchao matches Conv1d and ReLU."""
    without = "X86InductorQuantizer has no int8 form of conv1d without a ReLU behind it"
    assert static(OneDimensional(nn.ReLU()).eval()).conversion.float_reasons == {"last": without}
    with pytest.raises(ModeImpossible, match=f"^{without}, and this model has no other layer; use another backend"):
        static(OneDimensional(nn.Tanh()).eval())


class CausalDecoder(nn.Module):
    """PyTorch's decoder with the mask that its documentation gives it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, target, memory):
        return self.decoder(target, memory, tgt_mask=self.mask)


def test_a_decoder_with_a_causal_mask_is_traced():
    """It would compare its mask with a causal one, value by value; with the mask as it is, it gives the same."""
    target, memory = torch.randn(2, 4, 6, 16, generator=torch.Generator().manual_seed(0))
    module = CausalDecoder().eval()
    exported = torch_export.export(module, (target[:1], memory[:1]))
    assert exported.fixed_batch is None
    with torch.no_grad():
        own, theirs = module(target, memory), exported.module()(target, memory)
    assert float((own - theirs).abs().max()) < 1e-5


def test_two_inputs_go_through():
    """Each input has its batch axis."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 10)

        def forward(self, a, b):
            return self.head(a * b)

    model, inputs = Two().eval(), (torch.rand(32, 4), torch.rand(32, 4))
    network = static(model, RECIPE, *inputs)
    assert off(network, model, *inputs) < 0.05


def test_a_qat_without_fake_quantize_is_refused():
    """What would be plain fp32 training is not called QAT."""
    with pytest.raises(BuildError, match="no fake-quantize"):
        pt2e.prepare_qat(QuantizeJob(NothingToQuantize(), "inductor", RECIPE, (images(1),)))


@pytest.fixture(scope="module")
def once():
    """torchao exports a dozen patterns to prepare a network with BatchNorm, which takes seconds: done once."""
    return pt2e.prepare_qat(QuantizeJob(normed(), "inductor", RECIPE, (images(1),)))


@pytest.fixture
def prepared(once):
    with torch_export.known_warnings():
        return copy.deepcopy(once)


def observe(prepared):
    pt2e.qat_modes(prepared, False)
    with torch.no_grad():
        prepared(images())
    pt2e.freeze_observers(prepared)
    return prepared


def test_qat_keeps_the_networks_own_batch_norm(prepared):
    """torchao's patterns know eps 1e-5 only; untrained, the int8 network is the fp32 one with its eps of 1e-2."""
    observe(prepared)
    with torch.no_grad():
        expected, trained = normed()(images()), prepared(images())
    converted = pt2e.convert_qat(QuantizeJob(prepared, "inductor", RECIPE, (images(1),)))
    with torch.no_grad():
        int8 = converted.module(images())
    largest = float(expected.abs().max())
    assert float((trained - expected).abs().max()) < 0.05 * largest
    assert float((int8 - trained).abs().max()) < 0.03 * largest
    assert nodes(converted.module, "batch_norm") == []
    assert nodes(converted.module, "add_") == []


class Unmatched(nn.Module):
    """A grouped transposed convolution with BatchNorm, which torchao's QAT pairs and scales along the wrong axis."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 2, 2, stride=2, groups=2)
        self.norm = nn.BatchNorm2d(2, eps=1e-2)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.norm(self.up(torch.relu(self.down(x)))).flatten(1))


def test_batch_norm_after_a_layer_that_is_not_quantized_stays_its_own():
    """Where nothing is fake-quantized QAT trains the network as written, and its layer says why it is float."""
    torch.manual_seed(0)
    model = Unmatched().eval()
    nn.init.uniform_(model.norm.running_var, 0.01, 0.02)
    prepared = observe(pt2e.prepare_qat(QuantizeJob(model, "inductor", RECIPE, (images(1),))))
    assert not any("conv_transpose" in str(node.target) and "mul" in str(node.args[1]) for node in prepared.graph.nodes)
    with torch.no_grad():
        expected, trained = model(images()), prepared(images())
    converted = pt2e.convert_qat(QuantizeJob(prepared, "inductor", RECIPE, (images(1),)))
    with torch.no_grad():
        int8 = converted.module(images())
    largest = float(expected.abs().max())
    assert float((trained - expected).abs().max()) < 0.05 * largest
    assert float((int8 - trained).abs().max()) < 0.03 * largest
    assert converted.conversion.float_reasons == {"up": "X86InductorQuantizer has no int8 form of conv_transpose2d"}
    again = torch_export.export(converted.module, (images(1),), any_batch=False).module()
    with torch.no_grad():
        assert torch.equal(again(images(1)), converted.module(images(1)))


class SharedNorm(nn.Module):
    """Three calls of one block with BatchNorm."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, bias=False), nn.BatchNorm2d(1), nn.ReLU())

    def forward(self, x):
        return self.block(self.block(self.block(x)))


def test_a_shared_batch_norm_is_matched_in_training_and_counts_each_call():
    """torchao's QAT takes no BatchNorm with two outputs."""
    module = canonical.canonicalize(SharedNorm().eval(), (images(1),), training=True, separate_weights=True).module
    graph = torch_export.export(module.train(), (images(1),)).module()
    with torch_export.known_warnings():
        pt2e_inductor.make_quantizer(RECIPE, {}, lambda graph: (), training=True, dynamic=False).annotate(graph)
    graph(images())
    (counter,) = [value for name, value in graph.named_buffers() if "num_batches" in name]
    assert int(counter) == 3


def test_modes_change_batch_norm_and_dropout_and_nothing_else(prepared):
    """In train mode dropout acts and statistics move; in eval mode neither; the share of dropout stays 0.3."""
    variance = prepared.get_buffer("norm.running_var")
    for training in (True, False, True):
        pt2e.qat_modes(prepared, training)
        before = variance.clone()
        with torch.no_grad():
            prepared(images())
        assert torch.equal(before, variance) != training
        (dropout,) = nodes(prepared, "dropout")
        assert dropout.args[1:] == (0.3, training)


def test_frozen_batch_norm_stays_frozen(prepared):
    """Also when the modes change afterwards; dropout still follows them."""
    pt2e.freeze_batch_norm(prepared)
    before = prepared.get_buffer("norm.running_var").clone()
    for training in (True, False, True):
        pt2e.qat_modes(prepared, training)
        with torch.no_grad():
            prepared(images())
    assert torch.equal(before, prepared.get_buffer("norm.running_var"))
    assert nodes(prepared, "dropout")[0].args[2] is True


def test_frozen_observers_keep_their_scales(prepared):
    """Inputs ten times larger change no scale any more."""
    observe(prepared)
    scales = {name: value.clone() for name, value in prepared.state_dict().items() if name.endswith(".scale")}
    prepared(images() * 10)
    assert scales
    assert all(torch.equal(value, prepared.state_dict()[name]) for name, value in scales.items())


def test_qat_trains_per_tensor_weights_too():
    """One scale for a weight, after conversion as well."""
    recipe = Recipe(per_channel=False, symmetric=False, reduce_range=True)
    prepared = pt2e.prepare_qat(QuantizeJob(perceptron(), "inductor", recipe, (images(1),)))
    converted = pt2e.convert_qat(QuantizeJob(observe(prepared), "inductor", recipe, (images(1),)))
    assert len(set(converted.module.get_buffer("_scale_0").tolist())) == 1
    assert input_scale(converted)[2] == 127


def test_an_export_takes_any_batch_or_says_that_it_does_not():
    """A free axis takes one example and many; a network that names its batch size is exported for that one."""
    model = perceptron()
    free = torch_export.export(model, (images(1),))
    with torch.no_grad():
        assert all(torch.equal(free.module()(images(n)), model(images(n))) for n in (1, 7))
    assert free.fixed_batch is None

    class One(nn.Module):
        def forward(self, x):
            return x.reshape(1, 64)

    assert torch_export.export(One().eval(), (images(1),)).fixed_batch == 1


def test_torchscript_is_refused_by_name():
    """torch.export would say that it expects an nn.Module."""
    with torchscript_warnings():
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.rand(1, 2))
    with pytest.raises(BuildError, match="does not take TorchScript; give the model's Python source"):
        torch_export.export(scripted, (torch.rand(1, 2),))


def test_a_rewritten_graph_is_named_after_what_it_calls():
    """A graph that was rewritten after tracing still holds the names of the calls before; they are not believed, and
    are there again afterwards."""
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(64, 8), nn.ReLU()).eval())
    graph.add_submodule("other", nn.Linear(64, 8))
    call = next(node for node in graph.graph.nodes if node.target == "0")
    call.target, stack = "other", call.meta["nn_module_stack"]
    graph.recompile()
    module = torch_export.export(graph, (torch.rand(1, 64),)).module()
    assert [torch_export.layer_name(node) for node in nodes(module, "linear")] == ["other"]
    assert call.meta["nn_module_stack"] == stack
