"""Which operators of a network have a fixed int8 range."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from qbench.explain.probes import find_fixed_ranges, list_fixed_ranges
from qbench.models.base import ModelReference
from qbench.quant.recipe import Recipe

NETWORK = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gate, self.relu = nn.Linear(4, 4), nn.Tanh(), nn.ReLU()

    def forward(self, x):
        return torch.sigmoid(self.relu(self.gate(self.first(x))))


def build():
    return Net().eval()
"""


@pytest.mark.parametrize(("rewritten", "names"), [(False, ("gate",)), (True, ("gate", "relu_sigmoid"))])
def test_a_call_has_a_name_where_the_network_is_rewritten(tmp_path, rewritten, names):
    """A sigmoid that forward calls is no module of the network as written; the rewriting makes one of it, which a
    recipe can leave in float."""
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    reference = ModelReference(name="net", source="python", path=tmp_path / "net.py", attribute="build")
    examples = (np.ones((2, 4), dtype=np.float32),) if rewritten else None
    assert list_fixed_ranges(reference, None, examples, progress=None) == names


@pytest.mark.parametrize(("flow", "asked"), [("fx", True), ("eager", True), ("pt2e", False), ("onnx", False)])
@pytest.mark.parametrize("canonicalize", [True, False])
def test_only_flows_that_fix_ranges_are_asked(flow, asked, canonicalize):
    """Others calibrate those ranges like any. Examples go along where the network is rewritten first."""
    calls = []
    opened = SimpleNamespace(
        case=SimpleNamespace(variant=SimpleNamespace(recipe=Recipe(flow=flow, canonicalize=canonicalize))),
        model=SimpleNamespace(reference="reference", weights=None),
        data=SimpleNamespace(evaluation=lambda start, stop: (start, stop)),
        call_child=lambda *words: calls.append(words) or ("gate",),
    )
    names = find_fixed_ranges(opened)
    assert names == (("gate",) if asked else ())
    examples = (0, 2) if canonicalize else None
    assert calls == ([(list_fixed_ranges, "reference", None, examples)] if asked else [])
