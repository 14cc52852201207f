"""Which operators of a network have a fixed int8 range."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.explain.probes import list_fixed_ranges
from qbench.models.base import ModelReference

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
