"""Networks whose int8 is slow for a known cause, or for several at once, for ``explain_error.py``.

Each is a small convolutional or fully connected network with seeded weights, int8 in a way that has the causes; the
same without one of them is another network of this kind.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MODEL = '''
import torch
from torch import nn


class Magnitude(nn.Module):
    """An operator that nothing computes in int8."""

    def forward(self, x):
        return torch.abs(x)


class Net(nn.Module):
    """Convolutions of 3 x 3, or linear layers, of one width. ``faint``: all but the first give outputs
    near 1e-39; ``clear``: the same with larger weights. ``islands``: small convolutions between operators in float
    behind the large ones."""

    def __init__(self, kind, width, depth, size):
        super().__init__()
        torch.manual_seed(width * 100 + depth)
        if kind == "conv":
            layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
            for _ in range(depth - 1):
                layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
            layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, 10)]
        elif kind == "linear":
            layers = [nn.Flatten(), nn.Linear(3 * size * size, width), nn.ReLU()]
            for _ in range(depth - 1):
                layers += [nn.Linear(width, width), nn.ReLU()]
            layers += [nn.Linear(width, 10)]
        elif kind == "islands":
            layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(width, 8, 1), Magnitude()]
            for _ in range(depth - 1):
                layers += [nn.Conv2d(8, 8, 1), Magnitude()]
            layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)]
        elif kind in ("faint", "clear"):
            layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
            for _ in range(depth - 1):
                layers += [nn.Conv2d(width, width, 3, padding=1)]
            layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, 10)]
        if kind == "faint":
            with torch.no_grad():
                layers[2].weight.mul_(1e-38)
                layers[2].bias.mul_(1e-38)
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return self.body(x)


def build(kind="conv", width=64, depth=3, size=32):
    return Net(kind, width, depth, size)
'''
DATA = """
import numpy as np

SIZE = {size}


def load(split):
    random = np.random.default_rng(0 if split == "test" else 1)
    return random.standard_normal((64, 3, SIZE, SIZE)).astype(np.float32), random.integers(0, 10, 64)


load.splits = ("train", "test")
load.classes = 10
"""
SUITE = """
suite: planted
models:
  - name: net
    source: {{python: "net.py:build", args: {{kind: {kind}, width: {width}, depth: {depth}, size: {size}}}}}
data: {{dataset: {{python: "examples.py:load"}}, calibrate: {{split: train, samples: 32}}}}
matrix: {{modes: [{mode}], backends: [{backend}], threads: [{threads}], batch_sizes: [{batch_size}]}}
quantize: {{{mode}: {{{recipe}}}{quantize}}}
{more}
measure: {{max_seconds: 1}}
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A network and how it is made int8, with the causes that this has."""

    name: str
    causes: tuple[str, ...]
    backend: str
    mode: str = "static"
    kind: str = "conv"
    width: int = 64
    depth: int = 3
    size: int = 32
    threads: int = 1
    recipe: str = ""
    quantize: str = ""  # keys beside the mode's
    more: str = ""  # keys of the suite
    environment: dict[str, str] = field(default_factory=dict)
    batch_size: int = 1
    without: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of a cause, in place of ``WITHOUT``

    def take_away(self, causes: Iterable[str]) -> Planted:
        """The network without some of its causes."""
        changed = self
        for cause in causes:
            changed = replace(changed, **(self.without.get(cause) or WITHOUT[cause]))
        return changed

    def write(self, folder: Path) -> Path:
        """Its code, data and suite; returns the suite's file."""
        folder.mkdir(parents=True, exist_ok=True)
        network = ("kind", "width", "depth", "size")
        names = (*network, "mode", "backend", "threads", "batch_size", "recipe", "quantize", "more")
        suite = SUITE.format(**{name: getattr(self, name) for name in names})
        (folder / "net.py").write_text(textwrap.dedent(MODEL), encoding="utf-8")
        (folder / "examples.py").write_text(textwrap.dedent(DATA.format(size=self.size)), encoding="utf-8")
        (folder / "planted.yaml").write_text(suite, encoding="utf-8")
        return folder / "planted.yaml"


# The fields of a network that takes one of its causes away.
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "dynamic-activations": {"mode": "static"},
    "kept-float": {"recipe": "", "quantize": ""},
    "engine-kernels": {"backend": "onednn"},
    "symmetric": {"recipe": ""},
    "older-target": {"recipe": "target: native"},
    "older-instructions": {"environment": {}},
    "little-work": {"batch_size": 8},
    "memory-bound": {"batch_size": 8},
    "denormals": {"kind": "clear"},
    "threads": {"threads": 1},
}
HEAVY = "skip_layers: [body.2, body.4], min_coverage: 0.001"  # two of three convolutions, nearly all of the work
ISLANDS = f"skip_layers: [{', '.join(f'body.{4 + 2 * number}' for number in range(12))}], min_coverage: 0.001"
ONEDNN = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
PLANTED = (
    Planted(name="dynamic-64", causes=("dynamic-activations",), backend="onnxruntime", mode="dynamic"),
    Planted(
        name="dynamic-32", causes=("dynamic-activations",), backend="onnxruntime", mode="dynamic", width=32, depth=5
    ),
    Planted(
        name="dynamic-96", causes=("dynamic-activations",), backend="onnxruntime", mode="dynamic", width=96, depth=2
    ),
    Planted(name="float-ort", causes=("kept-float",), backend="onnxruntime", recipe=HEAVY),
    Planted(name="float-ort-96", causes=("kept-float",), backend="onnxruntime", width=96, recipe=HEAVY),
    Planted(name="float-onednn", causes=("kept-float",), backend="onednn", recipe=HEAVY),
    Planted(name="float-fbgemm", causes=("kept-float",), backend="fbgemm", recipe=HEAVY),
    Planted(name="float-openvino", causes=("kept-float",), backend="openvino", recipe=HEAVY),
    Planted(name="engine-64", causes=("engine-kernels",), backend="qnnpack"),
    Planted(name="engine-32", causes=("engine-kernels",), backend="qnnpack", width=32, depth=5),
    Planted(name="engine-linear", causes=("engine-kernels",), backend="qnnpack", kind="linear", width=1024),
    Planted(name="symmetric-ort", causes=("symmetric",), backend="onnxruntime", recipe="symmetric: true"),
    Planted(  # eight examples a call were measured to be 1.85 times as fast, too
        name="symmetric-onednn", causes=("little-work", "symmetric"), backend="onednn", recipe="symmetric: true"
    ),
    Planted(name="target-inductor", causes=("older-target",), backend="inductor", recipe="target: [avx2]"),
    Planted(name="older-64", causes=("older-instructions",), backend="onednn", environment=ONEDNN),
    Planted(name="older-96", causes=("older-instructions",), backend="onednn", width=96, environment=ONEDNN),
    Planted(name="older-openvino", causes=("older-instructions",), backend="openvino", environment=ONEDNN),
    Planted(name="little-ort", causes=("little-work",), backend="onnxruntime", width=8, depth=2, size=8),
    Planted(name="little-fbgemm", causes=("little-work",), backend="fbgemm", width=8, depth=2, size=8),
    Planted(name="little-openvino", causes=("little-work",), backend="openvino", width=8, depth=2, size=8),
    Planted(
        name="float-engine", causes=("engine-kernels", "kept-float"), backend="qnnpack",
        recipe="skip_layers: [body.2], min_coverage: 0.001"
    ),
    Planted(
        name="float-older", causes=("older-instructions", "kept-float"), backend="onednn",
        recipe="skip_layers: [body.4], min_coverage: 0.001", environment=ONEDNN,
    ),
    Planted(
        name="float-older-little", causes=("older-instructions", "kept-float", "little-work"), backend="onednn",
        width=32, depth=3, size=8, recipe="skip_layers: [body.4], min_coverage: 0.001", environment=ONEDNN,
    ),
    Planted(
        name="dynamic-little", causes=("dynamic-activations", "little-work"), backend="onnxruntime", mode="dynamic",
        width=16, depth=2, size=8,
    ),
    Planted(name="memory-ort", causes=("memory-bound",), backend="onnxruntime", kind="linear", width=4096),
    Planted(name="memory-fbgemm", causes=("memory-bound",), backend="fbgemm", kind="linear", width=4096),
    Planted(
        name="denormals-ort", causes=("denormals", "kept-float"), backend="onnxruntime", kind="faint", size=8,
        recipe="skip_layers: [body.2, body.3, body.6], min_coverage: 0.001"
    ),
    Planted(
        name="denormals-onednn", causes=("denormals", "kept-float"), backend="onednn", kind="faint", size=8,
        recipe="skip_layers: [body.2, body.3, body.6], min_coverage: 0.001"
    ),
    # Twelve of them, behind small convolutions: behind large ones their effect was 2 %.
    Planted(
        name="islands-ort", causes=("conversions",), backend="onnxruntime", kind="islands", width=16, depth=12,
        without={"conversions": {"recipe": ISLANDS}}
    ),
    Planted(name="threads-fbgemm", causes=("threads", "little-work"), backend="fbgemm", width=8, size=8, threads=2),
    Planted(
        name="dynamic-float", causes=("dynamic-activations", "kept-float"), backend="onnxruntime", mode="dynamic",
        quantize=f", static: {{{HEAVY}}}",
        without={"dynamic-activations": {"mode": "static", "recipe": HEAVY, "quantize": ""}},
    ),
    Planted(
        name="float-little", causes=("kept-float", "little-work"), backend="onednn", width=32, depth=2, size=8,
        recipe="skip_layers: [body.2], min_coverage: 0.001"
    ),
)  # fmt: skip
