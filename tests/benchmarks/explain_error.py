"""How often ``qbench explain`` names the cause that was planted first, and how often one that is not there.

    python tests/benchmarks/explain_error.py FOLDER [--only GLOB] [--seconds 2]

Each planted network is a small convolutional or fully connected one with seeded weights, int8 in a way that has one
cause of slowness, or two. It is built and measured by ``qbench run`` in FOLDER, its case then explained. A line each:
what was planted, what was confirmed in which order with its share of the gap, what is not explained; the last lines
count. ``nothing`` is a cause without effect (a variable that nothing reads), tried beside the others each time: how
often that one is confirmed is how often a cause is that is not there. Networks that are done are read from FOLDER.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbench import registry
from qbench.explain import json_text, story
from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.progress.live import Silent
from qbench.record.locate import find_run
from qbench.record.stored_run import read_run

MODEL = '''
import torch
from torch import nn


class Sine(nn.Module):
    """An operator that nothing computes in int8."""

    def forward(self, x):
        return torch.sin(x)


class Net(nn.Module):
    """Convolutions of 3 x 3, or linear layers, of one width. ``faint``: all but the first give outputs near 1e-39.
    ``islands``: small convolutions between operators in float behind
    the large ones."""

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
            layers += [nn.Conv2d(width, 8, 1), Sine()]
            for _ in range(depth - 1):
                layers += [nn.Conv2d(8, 8, 1), Sine()]
            layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)]
        if kind == "faint":
            layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
            for _ in range(depth - 1):
                layers += [nn.Conv2d(width, width, 3, padding=1)]
            layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, 10)]
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
matrix: {{modes: [{mode}], backends: [{backend}], threads: [{threads}]}}
quantize: {{{mode}: {{{recipe}}}{quantize}}}
{more}
measure: {{max_seconds: 1}}
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A network and how it is made int8, with the causes that this has, the larger first."""

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


HEAVY = "skip_layers: [body.2, body.4], min_coverage: 0.001"  # two of three convolutions, nearly all of the work
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
    Planted(name="islands-ort", causes=("conversions", "slower-in-int8"), backend="onnxruntime", kind="islands"),
    Planted(name="threads-fbgemm", causes=("threads", "little-work"), backend="fbgemm", width=8, size=8, threads=2),
    Planted(
        name="dynamic-float", causes=("dynamic-activations", "kept-float"), backend="onnxruntime", mode="dynamic",
        quantize=f", static: {{{HEAVY}}}",
    ),
    Planted(
        name="float-little", causes=("kept-float", "little-work"), backend="onednn", width=32, depth=2, size=8,
        recipe="skip_layers: [body.2], min_coverage: 0.001"
    ),
)  # fmt: skip


class Nothing(Cause):
    """A change without effect."""

    name = "nothing"
    title = "a variable that nothing reads"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Always."""
        return (self.counterfactual("with it set", Change(environment={"QBENCH_READ_BY_NOBODY": "1"})),)


NOTHING = Nothing()


def explain_planted(planted: Planted, folder: Path, seconds: float) -> dict[str, Any]:
    """The explanation of a planted network as JSON; made in a process of its own, which has its variables."""
    answer = folder / planted.name / "explained.json"
    if not answer.is_file():
        here = folder / planted.name
        here.mkdir(parents=True, exist_ok=True)
        values = {
            name: getattr(planted, name) for name in ("kind", "width", "depth", "size", "mode", "backend", "threads")
        }
        (here / "net.py").write_text(textwrap.dedent(MODEL), encoding="utf-8")
        (here / "examples.py").write_text(textwrap.dedent(DATA.format(size=planted.size)), encoding="utf-8")
        suite = SUITE.format(recipe=planted.recipe, quantize=planted.quantize, more=planted.more, **values)
        (here / "planted.yaml").write_text(suite, encoding="utf-8")
        command = [sys.executable, __file__, str(folder), "--one", planted.name, "--seconds", str(seconds)]
        subprocess.run(command, check=True, env={**os.environ, **planted.environment}, stdout=subprocess.DEVNULL)
    explained: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))["time"]
    return explained


def explain_here(planted: Planted, folder: Path, seconds: float) -> None:
    """Runs a planted network's suite and writes its explanation."""
    os.chdir(folder / planted.name)
    subprocess.run([sys.executable, "-m", "qbench", "run", "planted.yaml", "--quiet"], check=True)
    registry.BUILT_IN["cause"]["nothing"] = "explain_error:NOTHING"
    run = read_run(find_run("planted"))
    (case,) = [record.case.id for record in run.records if record.case.mode == planted.mode]
    explained = story.explain_case(
        run, case, concerns=("time",), suite_file=None, progress=Silent(), max_seconds=seconds
    )
    Path("explained.json").write_text(json_text.as_json(explained), encoding="utf-8")


def report(planted: Planted, explained: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Prints a line; whether a planted cause is first, whether all planted ones are confirmed, whether nothing is."""
    names = [cause["cause"] for cause in explained["causes"]]
    shown = ", ".join(
        f"{cause['cause']} {cause['gain']['value']:.2f}x {100 * (cause['share'] or 0):.0f} %"
        for cause in explained["causes"]
    )
    unexplained = explained["unexplained"]
    rest = "" if unexplained is None else f"; not explained {100 * unexplained:.0f} %"
    first = bool(names) and names[0] in planted.causes
    print(f"{'ok ' if first else 'NO '} {planted.name:16} planted {', '.join(planted.causes)}: {shown or 'none'}{rest}")
    return first, set(planted.causes) <= set(names), "nothing" in names


def main() -> None:
    """Explains every planted network and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--one")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    by_name = {planted.name: planted for planted in PLANTED}
    if arguments.one:
        explain_here(by_name[arguments.one], folder, arguments.seconds)
        return
    chosen = [planted for planted in PLANTED if fnmatch.fnmatch(planted.name, arguments.only)]
    results = [report(planted, explain_planted(planted, folder, arguments.seconds)) for planted in chosen]
    print(
        f"of {len(results)}: a planted cause first in {sum(first for first, _, _ in results)}, all planted ones "
        f"confirmed in {sum(complete for _, complete, _ in results)}, a cause without effect confirmed in "
        f"{sum(nothing for _, _, nothing in results)}"
    )


if __name__ == "__main__":
    main()
