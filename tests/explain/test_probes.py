"""Which operators of a network have a fixed int8 range."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from qbench import registry
from qbench.errors import CaseError
from qbench.explain import probes
from qbench.explain.probes import (
    find_fixed_ranges,
    find_joins,
    list_fixed_ranges,
    list_joined_nodes,
    list_joins,
)
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


HEAD = """
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.boxes, self.scores, self.factor = nn.Conv2d(1, 4, 1), nn.Conv2d(1, 2, 1), factor

    def forward(self, x):
        return torch.cat([torch.relu(self.boxes(x)) * self.factor, self.scores(x)], 1)


class Looped(nn.Module):
    def forward(self, x):
        return torch.cat([x] * int(x.sum()), 1)


def head(factor):
    torch.manual_seed(0)
    return Head(factor).eval()


def plain():
    return nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()


def looped():
    return Looped().eval()
"""


@pytest.mark.parametrize(
    ("build", "args", "names"),
    [("head", {"factor": 900.0}, ("mul", "cat")), ("plain", {}, ()), ("looped", {}, ())],
)
def test_joins_that_one_scale_cannot_hold_are_found_by_what_they_hold(tmp_path, build, args, names):
    """On examples; none in a network without, or in one that FX cannot trace."""
    (tmp_path / "head.py").write_text(HEAD, encoding="utf-8")
    reference = ModelReference(name="net", source="python", path=tmp_path / "head.py", attribute=build, args=args)
    examples = (np.random.default_rng(0).random((4, 1, 6, 6), dtype=np.float32),)
    assert list_joins(reference, None, examples, progress=None) == names


@pytest.mark.parametrize(
    ("backend", "recipe", "asked"),
    [
        ("onednn", Recipe(flow="fx", framework_default=True), list_joins),
        ("inductor", Recipe(flow="pt2e", framework_default=True), list_joins),
        ("onnxruntime", Recipe(flow="onnx", framework_default=True), list_joined_nodes),
        ("openvino", Recipe(flow="onnx", framework_default=True), None),
        ("onednn", Recipe(flow="fx"), None),
        ("onednn", Recipe(flow="fx", framework_default=True, float_joins=True), None),
    ],
)
def test_only_cases_that_share_a_scale_are_asked_for_joins(backend, recipe, asked):
    """Of frameworks that can be told to leave them in float; a few calibration examples go along."""
    calls = []
    opened = SimpleNamespace(
        case=SimpleNamespace(variant=SimpleNamespace(recipe=recipe, backend=backend, mode="static")),
        backends={backend: registry.load("backend", backend)},
        fp32=SimpleNamespace(file="fp32.onnx"),
        model=SimpleNamespace(reference="reference", weights=None),
        data=SimpleNamespace(calibration=lambda: (np.arange(20),)),
        call_child=lambda *words: calls.append(words) or ("cat",),
    )
    assert find_joins(opened) == (("cat",) if asked else ())
    assert [call[0] for call in calls] == ([asked] if asked else [])
    assert [call[-1][0].tolist() for call in calls] == ([list(range(8))] if asked else [])


def test_a_recipe_without_a_flow_fixes_no_range_and_a_file_has_no_joins():
    """What the user brought is built by nobody here."""
    opened = SimpleNamespace(
        case=SimpleNamespace(variant=SimpleNamespace(recipe=Recipe(flow=None), backend="onednn", mode="static")),
        backends={"onednn": registry.load("backend", "onednn")},
        call_child=lambda *words: pytest.fail("asked"),
    )
    assert find_fixed_ranges(opened) == ()
    opened.case.variant.recipe = Recipe(flow="fx", framework_default=True, file="mine.pt")
    assert find_joins(opened) == ()
    opened.case.variant.recipe, opened.case.variant.mode = Recipe(flow="fx", framework_default=True), "dynamic"
    assert find_joins(opened) == ()


def test_a_network_that_is_a_fixed_range_itself_has_no_name():
    """A recipe leaves modules in float by their name."""
    reference = ModelReference(name="net", source="python", path=None, attribute="build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "load_network", lambda *_: SimpleNamespace(module=torch.nn.Tanh()))
        assert list_fixed_ranges(reference, None, None, progress=None) == ()
        patch.setattr(probes, "load_network", lambda *_: SimpleNamespace(kind="onnx"))
        assert list_joins(reference, None, (), progress=None) == ()


class Denormal:
    """A runner whose calls take twice as long where denormals are not taken as zero, of so many seconds each; the clock
    is its own."""

    def __init__(self, seconds):
        self.now, self.flushed, self.calls, self.seconds = 0.0, False, 0, seconds

    def flush(self, on):
        """As ``denormals.flush``."""
        self.flushed = on

    def prepare(self, inputs):
        """As they are."""
        return inputs

    def context(self):
        """None is needed."""
        return contextlib.nullcontext()

    def __call__(self, prepared):
        self.calls += 1
        self.now += self.seconds if self.flushed else 2 * self.seconds


@pytest.mark.parametrize(("seconds", "turns"), [(0.0625, 15), (0.25, 4), (4.0, 1)])
def test_how_much_faster_calls_are_without_denormals(seconds, turns, monkeypatch):
    """Twice as fast, in turns behind five calls that nobody times, for three seconds at most; the process is left as it
    was."""
    runner = Denormal(seconds)
    monkeypatch.setattr(probes.denormals, "flush", runner.flush)
    monkeypatch.setattr(probes.time, "perf_counter", lambda: runner.now)
    monkeypatch.setattr(probes.registry, "load", lambda kind, name: SimpleNamespace(load=lambda file, threads: runner))
    gain = probes.time_flushing_here("backend", Path("file"), (), 1, progress=None)
    assert gain == pytest.approx(2.0)
    assert runner.calls == 5 + 2 * turns
    assert not runner.flushed


@pytest.mark.parametrize(("batch_size", "count"), [(4, 4), (16, 10)])
def test_a_child_times_calls_with_and_without_denormals(batch_size, count):
    """On the case's own cores, with as many real examples as it has; one that dies tells nothing."""
    asked = []

    def call_child(function, *words, cores):
        asked.append((function, words, cores))
        if len(asked) > 1:
            raise CaseError("it was killed")
        return 1.5

    opened = SimpleNamespace(
        case=SimpleNamespace(variant=SimpleNamespace(backend="onednn"), batch_size=batch_size, threads=2),
        artifact=SimpleNamespace(file="model.pt"),
        data=SimpleNamespace(evaluation=lambda start, stop: (start, stop), evaluation_count=10),
        call_child=call_child,
    )
    assert probes.find_flushing_gain(opened) == 1.5
    assert asked == [(probes.time_flushing_here, ("onednn", "model.pt", (0, count), 2), 2)]
    assert probes.find_flushing_gain(opened) is None


def test_what_reading_the_weights_takes_is_measured_on_the_last_core(monkeypatch):
    """One where cases are measured; not known where that fails."""
    opened = SimpleNamespace(artifact=SimpleNamespace(size_bytes=1000), limits="limits", cores=(1, 2, 3))
    monkeypatch.setattr(probes.bandwidth, "measure_reading", lambda *words, **named: (words, named))
    assert probes.find_reading_seconds(opened) == ((1000,), {"limits": "limits", "cores": (3,)})

    def fail(*words, **named):
        raise CaseError("no memory")

    monkeypatch.setattr(probes.bandwidth, "measure_reading", fail)
    assert probes.find_reading_seconds(opened) is None
