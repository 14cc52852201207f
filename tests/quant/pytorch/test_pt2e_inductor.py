"""Rules of pt2e_inductor: what is observed by a recipe, why an operator stays float, and what is told of sums."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qbench.quant.artifacts import torch_export
from qbench.quant.flow import Conversion, Converted
from qbench.quant.pytorch import narrow_weights, narrow_weights_pt2e, pt2e_inductor, pt2e_observers
from qbench.quant.recipe import Recipe

RECIPE = Recipe(flow="pt2e", calibrator="minmax")


@pytest.mark.parametrize(
    ("operator", "foreign", "followers", "why"),
    [
        ("conv3d", "mine.Conv", ["relu"], f"X86InductorQuantizer {torch_export.NO_INT8_FORM} conv3d"),
        (
            "conv2d",
            "mine.Conv",
            ["relu"],
            "matches torch.nn's own classes, and this conv2d is in mine.Conv; a subclass",
        ),
        ("conv1d", None, ["add"], f"{torch_export.NO_INT8_FORM} conv1d without a ReLU behind it"),
        ("conv1d", None, ["add", "relu_"], "X86InductorQuantizer matched no pattern around this conv1d"),
        ("linear", None, ["add"], "X86InductorQuantizer matched no pattern around this linear"),
    ],
)
def test_why_an_operator_is_float(
    operator: str, foreign: str | None, followers: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no form, is in a class that is not torch's, or there was no pattern."""
    monkeypatch.setattr(torch_export, "foreign_class", lambda node: foreign)
    monkeypatch.setattr(torch_export, "is_operator", lambda user, *names: user in names)
    assert why in pt2e_inductor.explain_float(SimpleNamespace(users=followers), operator)


def configure(training: bool = False, dynamic: bool = False, **changes: Any) -> Any:
    """What is observed for a recipe, without what torchao warns of as it is imported."""
    with torch_export.known_warnings():
        return pt2e_inductor._config(replace(RECIPE, **changes), training=training, dynamic=dynamic)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_activations_are_those_of_the_recipe(training: bool, dynamic: bool) -> None:
    """Their levels always; their scheme where ranges are fixed, their calibrator where they are calibrated."""
    default = configure(training, dynamic, framework_default=True)
    for symmetric, reduced in ((True, True), (None, False)):
        config = configure(training, dynamic, symmetric=symmetric, reduce_range=reduced)
        activation = config.input_activation
        assert activation == config.output_activation
        assert activation.quant_max == (127 if reduced else 255)
        scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
        assert activation.qscheme is (default.input_activation.qscheme if dynamic else scheme)
        calibrated = activation.observer_or_fake_quant_ctr != default.input_activation.observer_or_fake_quant_ctr
        assert calibrated == (not dynamic and not training)
        assert config.weight.observer_or_fake_quant_ctr != default.weight.observer_or_fake_quant_ctr


@pytest.mark.parametrize(
    ("per_channel", "training", "observer", "inner"),
    [
        (True, False, "PerChannelMinMaxObserver", None),
        (None, False, "PerChannelMinMaxObserver", None),
        (False, False, "OneScale", None),
        (True, True, "FusedMovingAvgObsFakeQuantize", "MovingAveragePerChannelMinMaxObserver"),
        (False, True, "FakeQuantize", "OneScale"),
    ],
)
def test_weights_are_watched_as_the_recipe_says(
    per_channel: bool | None, training: bool, observer: str, inner: str | None
) -> None:
    """By channel unless it says otherwise."""
    watched = pt2e_inductor._weight(Recipe(flow="pt2e", per_channel=per_channel), training)
    kind = watched.p.func if hasattr(watched, "p") else watched
    assert kind.__name__ == observer
    if inner is not None:
        assert watched.p.keywords["observer"].__name__ == inner


def test_one_scale_is_that_of_all_channels_of_the_weights_seen_last() -> None:
    """Kernels know one for each channel only; nothing seen changes nothing."""
    observer = pt2e_inductor._weight(Recipe(flow="pt2e", per_channel=False), False)(ch_axis=0, dtype=torch.int8)
    observer(torch.tensor([[100.0, 1.0], [2.0, -200.0]]))
    values = torch.tensor([[1.0, 2.0], [-8.0, 4.0]])
    assert observer(values) is values
    observer(torch.empty(0))
    assert (observer.min_val.tolist(), observer.max_val.tolist()) == ([-8, -8], [4, 4])


@pytest.mark.parametrize(("reduced", "top"), [(True, 127), (None, 255)])
@pytest.mark.parametrize("left", [(), ("conv",)])
def test_what_is_told_of_sums(reduced: bool | None, top: int, left: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the kernels of the target leave: a note, the facts of the target, and whether any overflows."""
    calls: list[Any] = []
    sums = SimpleNamespace(left=left)
    monkeypatch.setattr(torch_export, "separate_weights", lambda module: calls.append(module))
    monkeypatch.setattr(narrow_weights_pt2e, "hold", lambda *words, **named: calls.append((words, named)) or sums)
    monkeypatch.setattr(narrow_weights, "note", lambda sums, engine, **named: f"note of {engine}, {named}")
    monkeypatch.setattr(narrow_weights, "facts", lambda sums, target: f"facts of {target}")
    recipe = replace(RECIPE, narrow_weights=True, reduce_range=reduced)
    converted = Converted(module="module", conversion=Conversion(notes=("before",)))
    finished = pt2e_inductor.finish(converted, recipe, {"w": 1})
    kernels = narrow_weights.Kernels(engine="inductor", target=recipe.cpus, top=top)
    assert calls == ["module", (("module", {"w": 1}), {"narrow": True, "kernels": kernels})]
    note = f"note of oneDNN, {{'narrow': True, 'target': {recipe.cpus}}}"
    assert finished.conversion.notes == ("before", note)
    assert finished.conversion.target == f"facts of {recipe.cpus}"
    assert finished.overflows == bool(left)


@pytest.mark.parametrize(
    ("dtype", "ends", "levels", "below"),
    [
        (torch.uint8, (0, 255), {}, 0),
        (torch.uint8, (0, 127), {"quant_min": 0, "quant_max": 127}, 0),
        (torch.int8, (-128, 127), {}, -128),
        (torch.int8, (-127, 127), {"quant_min": 0, "quant_max": 254}, -127),
    ],
)
def test_a_calibrator_watches_unsigned_bytes(
    dtype: torch.dtype, ends: tuple[int, int], levels: dict[str, int], below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of signed ones the zero point lies lower; the whole range is named to nobody, or zero is at another place."""
    asked: list[Any] = []

    def construct(**named: Any) -> Any:
        asked.append(named)
        return type("Inner", (torch.nn.Module,), {
            "forward": lambda self, x: x + 1,
            "calculate_qparams": lambda self: (torch.tensor(0.5), torch.tensor(100)),
        })()  # fmt: skip

    monkeypatch.setattr(pt2e_observers.qconfig, "activation_observer", lambda recipe: construct)
    observer = pt2e_observers.adapt_observer(RECIPE)(dtype, *ends, torch.per_tensor_affine)
    assert asked == [{"dtype": torch.quint8, "qscheme": torch.per_tensor_affine, **levels}]
    assert (observer.quant_min, observer.quant_max, observer.is_dynamic) == (*ends, False)
    assert observer(torch.tensor(1.0)) == 2.0
    assert [float(value) for value in observer.calculate_qparams()] == [0.5, 100 + below]
