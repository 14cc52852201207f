"""Which flow makes a network int8 on the engines of torch, and what is said of those that could not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import residual_cnn
from torch import nn

from qbench import registry
from qbench.backends import torch_quantize
from qbench.backends.base import BuildJob, Built
from qbench.errors import BuildError, ModeImpossible
from qbench.models.base import Network
from qbench.quant.analysis import layer_error
from qbench.quant.recipe import AUTO, Recipe


@pytest.fixture(autouse=True)
def _engine(engine_put_back):
    """Each test leaves it as it was."""


class Branching(nn.Module):
    """Its forward asks for the largest value, which FX has none of; its parts are plain."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.head = nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        if float(x.abs().max()) > 1e6:
            raise ValueError("too large")
        return self.head(self.body(x).mean((2, 3)))


class Reading(Branching):
    """Multiplies by the very weight of one of its layers, too, which an int8 layer no longer has."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) + self.body[0].weight.sum()


def build(module: nn.Module, folder: Any, *, flow: str | None = None, mode: str = "static", **changes: Any) -> Built:
    """A network of one picture, on onednn."""
    folder.mkdir()
    backend = registry.load("backend", "onednn")
    images = (np.random.default_rng(0).random((32, 1, 8, 8), dtype=np.float32),)
    recipe = Recipe(flow=flow, epochs=1, learning_rate=1e-3, batch_size=32, seed=0, target=None, **changes)
    job = BuildJob(
        network=Network(kind="torch", module=module.eval()),
        mode=mode,
        recipe=backend.resolve(mode, recipe),
        calibration=images,
        training=(images, np.arange(32) % 10) if mode == "qat" else None,
        folder=folder,
    )
    built: Built = backend.build(job)
    return built


def test_fx_makes_what_it_traces_as_flow_fx_does(tmp_path):
    """Its answers, bit for bit; nothing is said of a flow that was not needed."""
    auto, fx = build(residual_cnn(), tmp_path / "auto"), build(residual_cnn(), tmp_path / "fx", flow="fx")
    assert (auto.conversion.flow, fx.conversion.flow) == ("fx", "fx")
    assert auto.expected == fx.expected
    assert not any("by the flow" in note for note in auto.conversion.notes)


@pytest.mark.parametrize("mode", ["static", "qat"])
def test_what_fx_cannot_trace_is_made_by_eager_and_the_reason_is_kept(tmp_path, mode):
    """In both modes, and as `flow: eager` makes it."""
    torch.manual_seed(0)
    module = Branching()
    auto, eager = (
        build(module, tmp_path / "auto", mode=mode),
        build(module, tmp_path / "eager", flow="eager", mode=mode),
    )
    assert (auto.conversion.flow, eager.conversion.flow) == ("eager", "eager")
    assert auto.expected == eager.expected
    said = "not by the flow fx: FX cannot trace this model (TypeError"
    assert any(note.startswith(said) for note in auto.conversion.notes)
    assert sum(layer.int8 for layer in auto.layers) == 3


def test_a_flow_that_was_asked_for_names_the_way_out_which_works(tmp_path):
    """Without the key the network builds."""
    with pytest.raises(ModeImpossible, match="FX cannot trace.*; leave `flow` out, and eager is tried, too$"):
        build(Branching(), tmp_path / "fx", flow="fx")
    assert build(Branching(), tmp_path / "open").conversion.flow == "eager"


def test_where_no_flow_takes_it_each_says_why(tmp_path):
    """And which backends need none of them; the first one's kind of error decides whether the case is skipped."""
    with pytest.raises(ModeImpossible, match="^by the flow fx: FX cannot trace .*; by the flow eager: .*need neither$"):
        build(Reading(), tmp_path / "auto")


def test_what_every_flow_says_is_said_once(tmp_path, monkeypatch):
    """A pattern that fits no layer is no matter of flows."""
    with pytest.raises(BuildError) as refused:
        build(residual_cnn(), tmp_path / "auto", skip_layers=("no_such_layer",))
    assert str(refused.value).count("no_such_layer") == 1
    assert "flow" not in str(refused.value)


def test_a_training_that_went_wrong_is_not_repeated_by_another_flow(tmp_path, monkeypatch):
    """It may have taken an hour; static has no such cost, and tries the next."""
    asked = []

    def fail(job, flow, quantize_job):
        asked.append(flow.__name__.rpartition(".")[2])
        raise BuildError("the loss is not finite")

    monkeypatch.setattr(torch_quantize, "_convert", fail)
    with pytest.raises(BuildError, match="^the loss is not finite$"):
        build(residual_cnn(), tmp_path / "qat", mode="qat")
    assert asked == ["fx"]
    with pytest.raises(BuildError, match="^the loss is not finite$"):
        build(residual_cnn(), tmp_path / "static")
    assert asked == ["fx", "fx", "eager"]


def test_each_way_is_given_what_it_needs(tmp_path, monkeypatch):
    """A training its inputs with their labels and an example of one; the static way its batches; dynamic neither."""
    calls = []

    class Flow:
        def static(self, job, batches):
            calls.append(("static", [len(x) for (x,) in batches()]))
            return "converted"

        def dynamic(self, job):
            calls.append(("dynamic", None))
            return "converted"

    def train(flow, job, inputs, labels, *, checkpoints):
        calls.append(("qat", [tuple(x.shape) for x in job.example], [len(x) for x in inputs], len(labels), checkpoints))
        return "converted"

    monkeypatch.setattr("qbench.quant.pytorch.qat.train", train)
    images = (np.zeros((40, 1, 8, 8), np.float32),)
    network = Network(kind="torch", module=residual_cnn())
    for mode in ("static", "dynamic", "qat"):
        training = (images, np.arange(40)) if mode == "qat" else None
        job = BuildJob(network=network, mode=mode, recipe=Recipe(), calibration=images, training=training,
                       folder=tmp_path, checkpoints=tmp_path / "c")  # fmt: skip
        example = (torch.zeros(7, 1, 8, 8),)
        quantize_job = torch_quantize.QuantizeJob(network.module, "onednn", Recipe(), example)
        assert torch_quantize._convert(job, Flow(), quantize_job) == "converted"
    assert calls[1:] == [("dynamic", None), ("qat", [(1, 1, 8, 8)], [40], 40, tmp_path / "c")]
    assert sum(calls[0][1]) == 40


def test_the_frameworks_default_is_the_tutorials_flow(tmp_path):
    """What is compared as torch's own default has no other way in."""
    backend = registry.load("backend", "onednn")
    assert backend.resolve("static", Recipe(framework_default=True)).flow == "fx"
    assert backend.resolve("static", Recipe()).flow == AUTO
    assert backend.resolve("dynamic", Recipe()).flow == "eager"


def job_of(mode: str = "static", examples: int = 40, **changes: Any) -> BuildJob:
    """A job of a small network; nothing is built."""
    images = (np.arange(examples, dtype=np.float32).reshape(examples, 1, 1, 1),)
    network = Network(kind="torch", module=residual_cnn())
    return BuildJob(
        network=network, mode=mode, recipe=Recipe(**changes), calibration=images, training=None, folder=Path("unused")
    )


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ({}, [16, 16, 8]),
        ({"most": 32}, [16, 16]),
        ({"size": 1, "most": 3}, [1, 1, 1]),
        ({"size": 8, "most": 8}, [8]),
        ({"size": 7, "most": 50}, [7, 7, 7, 7, 7, 5]),
    ],
)
def test_calibration_examples_come_in_batches_and_again(keys: dict[str, int], sizes: list[int]) -> None:
    """The first ones, each once, in their order; a second pass begins anew."""
    batches = torch_quantize.read_calibration_batches(job_of(), **keys)
    for _ in range(2):
        passed = [x for (x,) in batches()]
        assert [len(x) for x in passed] == sizes
        assert torch.cat(passed).flatten().tolist() == list(range(sum(sizes)))


BOTH = "by the flow fx: a; by the flow eager: b"
UNTRIED = "; leave `flow` out, and eager is tried, too"


@pytest.mark.parametrize(
    ("refusals", "mode", "changes", "said"),
    [
        ({"fx": "a", "eager": "b"}, "static", {}, f"{BOTH}; onnxruntime and openvino need neither"),
        ({"fx": "a", "eager": "b"}, "qat", {}, BOTH),
        ({"fx": "a", "eager": "a"}, "static", {}, "a"),
        ({"fx": "a"}, "static", {}, f"a{UNTRIED}"),
        ({"fx": "a"}, "qat", {}, f"a{UNTRIED}"),
        ({"eager": "a"}, "static", {}, "a; leave `flow` out, and fx is tried, too"),
        ({"fx": "a"}, "dynamic", {}, "a"),
        ({"fx": "a"}, "static", {"framework_default": True}, "a"),
        ({"pt2e": "a"}, "static", {}, "a"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_is_left_to_try(
    refusals: dict[str, str], mode: str, changes: dict[str, Any], said: str
) -> None:
    """Another flow of torch's where there is one; other runtimes where all refused in their own words."""
    raised = {name: ModeImpossible(text) if name == "fx" else BuildError(text) for name, text in refusals.items()}
    joined = torch_quantize._join_refusals(raised, job_of(mode, **changes))
    assert (str(joined), type(joined)) == (said, type(next(iter(raised.values()))))


def test_names_that_rewriting_folded_away_are_skipped_no_more() -> None:
    """They stand in the network as written; what stands in neither is left for the error that names it."""
    job = job_of(skip_layers=("stem", "norm", "no*", "typo", "h*"))
    prepared = nn.ModuleDict({"stem": nn.Identity(), "head": nn.Identity()})
    assert {"stem", "norm", "head"} <= {name for name, _ in job.network.module.named_modules()}
    assert torch_quantize._without_folded(job, prepared).skip_layers == ("stem", "typo", "h*")


def test_a_flow_is_given_what_shows_what_a_network_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight calibration examples one by one; comparing the layers is told behind it."""
    given: list[Any] = []
    steps: list[Any] = []

    def convert(job: BuildJob, quantize_job: Any) -> Any:
        given.append((job, quantize_job))
        return torch_quantize.Converted(module=job.network.module)

    monkeypatch.setattr(torch_quantize, "_convert_by_first", convert)
    monkeypatch.setattr(torch_quantize, "_layer_numbers", lambda job, module: ((), ("a note",)))
    monkeypatch.setattr(torch_quantize.quantized_range, "range_of_module", lambda module, example: ("a range",))
    for mode in ("static", "dynamic"):
        job = replace(job_of(mode, canonicalize=False, target=()), progress=lambda *step: steps.append(step))
        converted = torch_quantize.quantize_network(job, "onednn", (torch.zeros(1, 1, 8, 8),))
        assert converted.conversion.notes == ("a note",)
        assert converted.conversion.input_ranges == (("a range",) if mode == "static" else ())
        assert converted.conversion.target is None
    assert steps == [("compare layers", 0.9)] * 2
    for _, quantize_job in given:
        assert [[len(x) for x in example] for example in quantize_job.more] == [[1]] * 8
        assert quantize_job.own is None


def test_layers_that_cannot_be_held_against_fp32_are_a_note(monkeypatch) -> None:
    """A good variant is not lost over it; a layer that is equal has no number of decibels, which JSON has none for."""
    equal = layer_error.ComparedLayer(name="a", sqnr_db=math.inf)
    near = replace(equal, sqnr_db=40.0)
    monkeypatch.setattr(layer_error, "measure_layers", lambda module, int8, batches: [equal, near])
    numbers, notes = torch_quantize._layer_numbers(job_of(), None)
    assert [(each["sqnr_db"], each["reason"]) for each in numbers] == [(None, "equal to fp32"), (40.0, None)]
    assert notes == ()

    def fail(module, int8, batches):
        assert [len(x) for (x,) in batches()] == [8]
        raise BuildError("no hooks")

    monkeypatch.setattr(layer_error, "measure_layers", fail)
    assert torch_quantize._layer_numbers(job_of(), None) == ((), ("its layers are not held against fp32: no hooks",))
