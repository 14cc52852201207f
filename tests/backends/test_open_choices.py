"""What backends choose where a recipe leaves it open: the CPUs that an artifact is for."""

from __future__ import annotations

import platform
from dataclasses import asdict, replace

import pytest
from made_records import same_as_golden

from qbench import registry
from qbench.backends.open_choices import choose_ranges, choose_target, choose_weights, make_room_for_sums
from qbench.quant.recipe import Recipe
from qbench.quant.target import EVERY_X86
from qbench.suite.settings import Quantize

X86_ENGINES = ("fbgemm", "x86", "onednn", "qnnpack", "onnxruntime", "openvino")
OPEN = Recipe(target=None, narrow_weights=True, reduce_range=False)


@pytest.fixture
def on_x86(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.mark.parametrize("backend", X86_ENGINES)
@pytest.mark.parametrize("mode", ["static", "qat"])
def test_int8_is_for_all_of_x86_where_nothing_is_said(on_x86, backend, mode):
    """A suite that names no target gets artifacts whose sums hold on every x86 CPU."""
    recipe = Quantize().recipe(mode, backend)
    assert recipe.target is None
    assert registry.load("backend", backend).resolve(mode, recipe).target == EVERY_X86


@pytest.mark.parametrize("written", ["native", "avx2", ["vnni", "arm"]])
@pytest.mark.parametrize("backend", X86_ENGINES)
def test_what_a_suite_says_stands(on_x86, backend, written):
    """``native`` is the way to weights of 8 bits for this CPU alone."""
    recipe = Quantize(target=written).recipe("static", backend)
    chosen = {"native": (), "avx2": ("avx2",)}.get(str(written), ("vnni", "arm"))
    assert registry.load("backend", backend).resolve("static", recipe).target == chosen


@pytest.mark.parametrize("mode", ["static", "qat", "dynamic"])
def test_machine_code_is_for_this_machine(on_x86, mode):
    """A package of inductor that loads on older CPUs is slower here, so that it has to be asked for."""
    recipe = registry.load("backend", "inductor").resolve(mode, Quantize().recipe(mode, "inductor"))
    assert recipe.target == ()


@pytest.mark.parametrize("backend", X86_ENGINES)
def test_dynamic_int8_and_the_frameworks_default_are_for_this_machine(on_x86, backend):
    """No weight of theirs is narrowed for another CPU unless a suite asks for it."""
    plugin = registry.load("backend", backend)
    if "dynamic" in plugin.modes:
        assert plugin.resolve("dynamic", Quantize().recipe("dynamic", backend)).target == ()
    untouched = replace(Quantize().recipe("static", backend), framework_default=True)
    assert plugin.resolve("static", untouched).target == ()


@pytest.mark.parametrize(
    ("narrow_weights", "reduce_range", "sums_hold"),
    [(True, False, True), (True, True, True), (False, True, True), (False, False, False)],
)
def test_nothing_is_promised_of_sums_that_may_overflow(on_x86, narrow_weights, reduce_range, sums_hold):
    """A recipe that leaves weights and activations at 8 bits is for this machine; with 7 bits of either it holds."""
    recipe = choose_target(replace(OPEN, narrow_weights=narrow_weights, reduce_range=reduce_range), "static")
    assert recipe.target == (EVERY_X86 if sums_hold else ())


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "ppc64le"])
def test_another_kind_of_machine_builds_for_itself(monkeypatch, machine):
    """Sums are exact there."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert choose_target(OPEN, "static").target == ()


NAMED = {
    "open": Recipe(target=None),
    "framework's": Recipe(name="framework-default", framework_default=True, canonicalize=False, clip_ranges=False),
    "named": Recipe(
        calibrator="mse", per_channel=False, symmetric=True, reduce_range=True, narrow_weights=False,
        target=("native",), skip_layers=("fc",), first_layer_float=True, last_layer_float=True,
        clip_ranges=False, canonicalize=False, embeddings=True,
    ),
    "a file": Recipe(name="mine", file="mine.onnx", canonicalize=False, clip_ranges=False),
}  # fmt: skip


def test_what_each_backend_chooses_where_a_suite_leaves_it_open(on_x86) -> None:
    """By mode, what differs from the recipe that it is given; the artifact's key and the report's words come of it.
    ``QBENCH_WRITE_GOLDEN=1`` writes the list anew."""
    lines = []
    for backend in sorted(set(registry.BUILT_IN["backend"]) - {"fake", "torch"}):
        plugin = registry.load("backend", backend)
        for mode in ("dynamic", "static", "qat"):
            for name, given in NAMED.items():
                if given.file is not None and not plugin.int8_formats:
                    continue
                chosen = plugin.resolve(mode, given)
                differing = [key for key, value in asdict(chosen).items() if value != getattr(given, key)]
                told = ", ".join(f"{key} {getattr(chosen, key)}" for key in differing)
                lines.append(f"{backend} {mode}, {name}: {told or 'as it is'}")
    assert same_as_golden("open_choices.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("mode", "given", "chosen"),
    [
        ("static", {}, ("mse", None, True, False)),
        ("static", {"calibrator": "percentile", "percentile": 99.0}, ("percentile", 99.0, True, False)),
        ("static", {"calibrator": "minmax", "percentile": 99.0}, ("minmax", None, True, False)),
        ("qat", {"calibrator": "percentile", "percentile": 99.0}, ("moving_average", None, True, False)),
        ("static", {"per_channel": False, "symmetric": True}, ("mse", None, False, True)),
        ("static", {"per_channel": True, "symmetric": False}, ("mse", None, True, False)),
    ],
)
def test_ranges_are_chosen_as_far_as_they_are_open(mode, given, chosen):
    """A percentile belongs to the calibrator of that name."""
    recipe = choose_ranges(Recipe(**given), mode, "mse")
    assert (recipe.calibrator, recipe.percentile, recipe.per_channel, recipe.symmetric) == chosen


def test_the_percentile_of_a_default_is_kept():
    """Where a backend takes that calibrator by itself."""
    assert choose_ranges(Recipe(percentile=99.0), "static", "percentile").percentile == 99.0


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, (8, 128, False, "int8")),
        ({"bits": 4, "group": "channel", "symmetric": True, "arithmetic": "fp32"}, (4, "channel", True, "fp32")),
    ],
)
def test_weights_of_few_bits_have_bits_and_a_group(given, chosen):
    """And nothing of what concerns activations."""
    recipe = choose_weights(Recipe(name="n", flow="onnx", calibrator="mse", skip_layers=("a",), **given))
    assert (recipe.bits, recipe.group, recipe.symmetric, recipe.arithmetic) == chosen
    assert (recipe.name, recipe.flow, recipe.skip_layers) == ("n", "onnx", ("a",))
    assert (recipe.calibrator, recipe.canonicalize, recipe.clip_ranges) == (None, False, False)


@pytest.mark.parametrize(
    ("narrow_weights", "reduce_range", "chosen"),
    [
        (None, None, (True, False)),
        (None, True, (False, True)),
        (None, False, (False, False)),
        (True, True, (True, True)),
        (False, None, (False, False)),
    ],
)
def test_room_for_sums_is_made_by_weights_unless_something_else_is_said(narrow_weights, reduce_range, chosen):
    """Who reduces the range of activations, or says that they keep it, has said something."""
    recipe = make_room_for_sums(Recipe(narrow_weights=narrow_weights, reduce_range=reduce_range))
    assert (recipe.narrow_weights, recipe.reduce_range) == chosen
