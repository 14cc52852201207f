"""What draws at random in a call is named with its line; what is repeatable draws nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from qbench.errors import BuildError
from qbench.quant import model_call, random_draws
from qbench.quant.artifacts import tracing

IMAGE = torch.arange(8.0)[None] + 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: x[:, torch.multinomial(torch.ones(8), 8)], r"multinomial at test_random_draws\.py:\d+ \(.*\)"),
        (lambda x: torch.nn.functional.dropout(x, 0.5), r"dropout at test_random_draws\.py:\d+ \(.*\)"),
        (lambda x: x * random.random(), "Python's random"),
        (lambda x: x * float(np.random.rand()), r"numpy\.random"),  # as people have it
    ],
)
def test_what_draws_is_named(call, said):
    """An operator of torch's by its place in the code, other generators by their name."""
    with pytest.raises(model_call.ChangesByItself, match=rf"call to call: {said} draws at random; turn dropout off"):
        model_call.require_repeatable(call, example=(IMAGE,))


def test_what_a_trace_draws_is_named():
    """Its operators run without the code that they came from."""

    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand(8)

    script = tracing.trace(Noisy(), (IMAGE,)).script
    assert random_draws.describe_draws(lambda: script(IMAGE)).startswith("rand")


def test_several_draws_are_counted():
    """Each place once, however often it runs."""

    def call(x):
        for _ in range(3):
            x = x + torch.rand(8)
        return x + torch.randn(8) + torch.randint(3, (8,))

    said = random_draws.describe_draws(lambda: call(IMAGE))
    assert said.startswith("rand at ")
    assert said.endswith(" and 1 more draw at random")


def test_what_does_not_draw_is_not_accused():
    """Attention without dropout and dropout in eval mode are of a kind that may draw. State is another cause."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    assert random_draws.describe_draws(lambda: layer(IMAGE[None])) == ""
    calls = []

    def counting(x):
        calls.append(x)
        return x * len(calls)

    with pytest.raises(BuildError, match="it keeps something of earlier calls"):
        model_call.require_repeatable(counting, example=(IMAGE,))
