"""The networks that qbench trains itself: their figures in the guide are of these sizes and these trainings."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from qbench.models import (
    digits_cnn,
    digits_lstm,
    mobilenet_small,
    resnet20,
    reviews_decoder,
    shapes_detector,
    shapes_unet,
    trainer,
)

MODULES = (digits_cnn, digits_lstm, mobilenet_small, resnet20, reviews_decoder, shapes_detector, shapes_unet)
MODELS = {module.MODEL.name: module.MODEL for module in MODULES}
SHAPES = {
    "digits-cnn": (1, 8, 8),
    "digits-lstm": (1, 8, 8),
    "mobilenet-small": (1, 28, 28),
    "resnet20": (1, 28, 28),
    "reviews-decoder": (128,),
    "shapes-detector": (3, 96, 96),
    "shapes-unet": (3, 96, 96),
}
# Weights, multiply-accumulates of one example (of an LSTM torch counts the last layer alone), and additions.
SIZES = {
    "digits-cnn": (431_690, 1_817_600, 1),
    "digits-lstm": (204_042, 1_280, 0),
    "mobilenet-small": (48_730, 6_422_240, 3),
    "resnet20": (272_186, 31_021_952, 9),
    "reviews-decoder": (1_135_744, 109_051_904, 7),
    "shapes-detector": (211_678, 27_266_112, 4),
    "shapes-unet": (101_316, 132_968_448, 0),
}
# Epochs, examples of a batch, learning rate, weight decay, seed, parts of a batch, channels last.
TRAININGS = {
    "digits-cnn": (8, 64, 3e-3, 1e-2, 0, 1, False),
    "digits-lstm": (20, 64, 5e-3, 1e-4, 0, 1, False),
    "mobilenet-small": (3, 128, 1e-2, 1e-3, 0, 4, True),
    "resnet20": (2, 128, 1e-2, 1e-3, 0, 4, True),
    "reviews-decoder": (1, 32, 3e-3, 1e-2, 0, 2, False),
    "shapes-detector": (12, 32, 4e-3, 1e-3, 0, 2, True),
    "shapes-unet": (4, 16, 4e-3, 1e-3, 0, 2, True),
}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    return str(request.param)


def fresh(name: str) -> Any:
    return trainer.fresh(MODELS[name]).eval()


def examples(name: str, n: int) -> torch.Tensor:
    seed = torch.Generator().manual_seed(0)
    if name == "reviews-decoder":
        return torch.randint(reviews_decoder.VOCABULARY, (n, *SHAPES[name]), generator=seed)
    return torch.randn(n, *SHAPES[name], generator=seed)


def test_it_has_so_many_weights_takes_so_much_work_and_is_trained_so(name: str) -> None:
    """Whoever changes one of these changes what is published of it, and its trained weights in every cache."""
    module, training = fresh(name), MODELS[name].training
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(examples(name, 1))
    additions = sum("add" in str(node.target) for node in torch.fx.symbolic_trace(module).graph.nodes)
    weights = sum(weight.numel() for weight in module.parameters())
    counts = counter.get_flop_counts()["Global"]  # of attention on a CPU from torch 2.15 on
    operations = sum(count for operator, count in counts.items() if "scaled_dot_product" not in str(operator))
    assert (weights, operations // 2, additions) == SIZES[name]
    assert training is not None
    assert astuple(training) == TRAININGS[name]


def test_an_answer_is_of_its_own_example_and_of_all_of_it(name: str) -> None:
    """Beside others it is what it is alone, and every value of the example has its part in it."""
    module, inputs = fresh(name).double(), examples(name, 3)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    with torch.no_grad():
        together = module(inputs)
        torch.testing.assert_close(module(inputs[1:2]), together[1:2], rtol=1e-9, atol=1e-12)
    assert not torch.allclose(together[0], together[1], rtol=1e-7, atol=1e-10)
    if inputs.is_floating_point():
        inputs.requires_grad_()
        module(inputs)[1].square().sum().backward()
        assert bool((inputs.grad[1] != 0).all())
        assert not inputs.grad[[0, 2]].any()


def test_the_decoder_sees_what_came_before_and_where_it_stood() -> None:
    """A token changes the answers at its place and behind it alone; two tokens that change places, those behind them;
    nothing is known yet, so each of 2,048 tokens is as likely."""
    module, ids = fresh("reviews-decoder"), examples("reviews-decoder", 1)
    other, swapped = ids.clone(), ids.clone()
    other[0, 60] = (ids[0, 60] + 1) % reviews_decoder.VOCABULARY
    swapped[0, [60, 61]] = ids[0, [61, 60]]
    with torch.no_grad():
        answers, changed, moved = (module(each)[0] for each in (ids, other, swapped))
        loss = reviews_decoder.compute_loss(answers[None], torch.cat([torch.tensor([[0]]), ids], 1))
    assert torch.equal(answers[:60], changed[:60])
    assert bool((answers[60:] - changed[60:]).abs().amax(1).min() > 0)
    assert bool((answers[62:] - moved[62:]).abs().amax(1).min() > 0)
    assert float(loss) == pytest.approx(math.log(2048), rel=0.03)
    for embedding in (module.tokens, module.places):
        assert float(embedding.weight.detach().std()) == pytest.approx(0.02, rel=0.02)


def test_tokens_that_do_not_count_and_the_number_of_the_document_teach_nothing() -> None:
    """The first label is the document's, and -1 stands where there is no token."""
    outputs = torch.zeros(1, 3, reviews_decoder.VOCABULARY)
    outputs[0, 0, 5] = outputs[0, 1, 7] = 50.0
    labels = torch.tensor([[9, 5, 7, reviews_decoder.NO_TOKEN]])
    assert reviews_decoder.NO_TOKEN == -1
    assert float(reviews_decoder.compute_loss(outputs, labels)) == pytest.approx(0, abs=1e-6)
    labels[0, 1] = 6
    assert float(reviews_decoder.compute_loss(outputs, labels)) == pytest.approx(25, abs=0.1)


@pytest.mark.parametrize(("name", "classes", "channels"), [("resnet20", 7, 3), ("mobilenet-small", 7, 3)])
def test_channels_and_classes_are_those_of_the_data(name: str, classes: int, channels: int) -> None:
    """What the data tells goes into the network, else it has one channel and ten classes."""
    arguments = MODELS[name].arguments((channels, 32, 32), classes)
    assert arguments == {"channels": channels, "classes": classes}
    with torch.no_grad():
        assert trainer.fresh(MODELS[name], **arguments).eval()(torch.zeros(1, channels, 32, 32)).shape == (1, classes)
