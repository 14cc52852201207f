"""What each cause proposes where, and from which figures on: the guards and bounds of qbench's own causes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import same_as_golden
from made_situations import CALL, ISLAND, LAYERS, SLOW, layer_time, node, situation

from qbench import registry
from qbench.explain.causes.base import Situation
from qbench.explain.change import Change
from qbench.explain.where_time_goes import TimeShares
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.recipe import Recipe
from qbench.record.schema import InputFit, Spread

PLAIN = Recipe(flow="fx")
LIGHT = Spread(least=0.0, greatest=1.0, mean=0.3, deviation=0.3)
DRIFT = (None, InputFit(evaluated=LIGHT, calibrated=replace(LIGHT, deviation=0.1)))
FLOAT = (*LAYERS[:2], replace(LAYERS[2], precision="fp32"))
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "of its own file": {"name": "own", "file": "mine.onnx"},
    "of the framework": {"framework_default": True},
    "7 bits": {"reduce_range": True},
    "symmetric": {"symmetric": True},
    "7 bits, symmetric": {"reduce_range": True, "symmetric": True},
    "per channel": {"per_channel": True},
    "per tensor": {"per_channel": False},
    "narrow weights": {"narrow_weights": True, "target": ("avx2", "vnni")},
    "no narrow weights": {"narrow_weights": False, "reduce_range": False},
    "onnx": {"flow": "onnx"},
    "onnx, corrected": {"flow": "onnx", "bias_correction": True, "balance": 0.5},
    "not rewritten": {"canonicalize": False, "clip_ranges": False},
    "layers kept": {"skip_layers": ("gate",), "last_layer_float": True, "first_layer_float": True},
    "minmax": {"calibrator": "minmax"},
    "joined in float": {"float_joins": True},
    "all at once": {
        "reduce_range": True, "symmetric": True, "per_channel": True, "narrow_weights": True, "canonicalize": False,
        "clip_ranges": False, "skip_layers": ("gate",), "target": ("avx2", "vnni"),
    },
}  # fmt: skip


def list_situations() -> Iterator[tuple[str, Situation]]:
    """Every recipe in every mode, with what data and network tell; then of a plain case what the machine tells."""
    told: dict[str, Any] = {
        "inputs": DRIFT, "evaluation": ("test", 32), "fixed_ranges": ("gate", "shut"), "joins": ("cat",),
        "machine_code": True, "backends": ("fbgemm", "onednn", "x86"), "call_seconds": 0.03,
    }  # fmt: skip
    for name, fields in RECIPES.items():
        for mode in ("dynamic", "static", "qat"):
            recipe = Recipe(**{"flow": "fx", **fields})
            yield f"{name}, {mode}", replace(situation(recipe=recipe, mode=mode, **told), layers=FLOAT)
    for backend in ("fbgemm", "qnnpack"):
        yield f"on {backend}", situation(backend=backend, **told)
        yield f"on {backend}, dynamic", situation(backend=backend, mode="dynamic", **told)
    yield "slow layers", replace(situation(), times=SLOW)
    yield "conversions", replace(situation(), times=ISLAND)
    yield "waiting for memory", replace(situation(reading_seconds=8e-4, call_seconds=1e-3), times=None)
    yield "one core", situation(amx_tiles=False, pinned=True)
    yield (
        "a busy process",
        situation(
            threads=2,
            faults_per_call=300.0,
            flushing_gain=1.5,
            hiding_variables=("A=1", "B=2"),
            amx_tiles=True,
            timed_core=1,
        ),
    )
    yield "nothing told", replace(situation(), times=None, layers=())


def test_what_each_cause_proposes_is_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each situation by each of qbench's causes: the words, and the change."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    names = [name for name in registry.names("cause") if registry.entry("cause", name).distribution == "qbench"]
    lines = []
    for words, here in list_situations():
        lines.append(words)
        for name in names:
            for each in registry.load("cause", name).propose(here):
                changed = {
                    field: value for field, value in vars(each.change).items() if value != getattr(Change(), field)
                }
                part = f" [{each.part}]" * bool(each.part) + " gives up" * each.gives_up
                lines.append(f"  {name}: {each.text}{part}: {changed}")
    assert same_as_golden("proposals.txt", "\n".join(lines) + "\n")


def proposes(name: str, here: Situation) -> bool:
    """Whether a cause proposes anything there."""
    return bool(registry.load("cause", name).propose(here))


@pytest.mark.parametrize(
    ("name", "told", "proposed"),
    [
        ("little-work", {"call_seconds": None}, True),
        ("little-work", {"call_seconds": 0.02}, True),
        ("little-work", {"call_seconds": 0.0201}, False),
        ("denormals", {"flushing_gain": None}, False),
        ("denormals", {"flushing_gain": 1.0299}, False),
        ("denormals", {"flushing_gain": 1.03}, True),
        ("page-faults", {"faults_per_call": None}, False),
        ("page-faults", {"faults_per_call": 9.9}, False),
        ("page-faults", {"faults_per_call": 10.0}, True),
        ("threads", {"threads": 1}, False),
        ("threads", {"threads": 2}, True),
        ("small-for-amx", {"amx_tiles": True}, False),
        ("small-for-amx", {"amx_tiles": True, "timed_core": 0}, True),
        ("unused-amx", {"amx_tiles": None, "pinned": True}, False),
        ("unused-amx", {"amx_tiles": False, "pinned": False}, False),
        ("unused-amx", {"amx_tiles": False, "pinned": True}, True),
        ("older-target", {"machine_code": True}, False),
        ("fixed-range", {"fixed_ranges": ("gate",), "recipe": replace(PLAIN, skip_layers=("gate",))}, False),
        ("calibration-data", {"inputs": DRIFT}, False),
        ("calibration-data", {"evaluation": ("test", 32)}, False),
    ],
)
def test_a_cause_is_proposed_from_a_figure_on(name: str, told: dict[str, Any], proposed: bool) -> None:
    """At the bound itself; not where the figure is not known."""
    assert proposes(name, situation(**told)) is proposed


@pytest.mark.parametrize(
    ("reading", "call", "nodes", "waits"),
    [
        (None, 1e-3, None, False),
        (5e-4, None, None, False),
        (5e-4, 1e-3, None, True),
        (4.99e-4, 1e-3, None, False),
        (3.01e-4, 1e-3, ISLAND, True),
        (2.99e-4, 1e-3, ISLAND, False),
    ],
)
def test_a_call_waits_for_memory_where_reading_is_half_of_it(
    reading: float | None, call: float | None, nodes: TimeShares | None, waits: bool
) -> None:
    """Of its nodes, which take 0.6 ms, where the runtime tells of them; else of the call."""
    here = replace(situation(reading_seconds=reading, call_seconds=call), times=nodes)
    assert here.waits_for_memory is waits
    assert (proposes("memory-bound", here), proposes("little-work", here)) == (waits, not waits)


@pytest.mark.parametrize(
    ("calibrated", "clipped", "differs"),
    [
        ({}, None, False),
        ({"deviation": 0.25}, None, False),
        ({"deviation": 0.2499}, None, True),
        ({"deviation": 0.3601}, None, True),
        ({"mean": 0.3 + 0.0749}, None, False),
        ({"mean": 0.3 + 0.0751}, None, True),
        ({"mean": 0.3 - 0.0751}, None, True),
        ({}, 0.0, False),
        ({}, 0.01, True),
    ],
)
def test_inputs_differ_by_their_spread_their_mean_or_what_is_clipped(
    calibrated: dict[str, float], clipped: float | None, differs: bool
) -> None:
    """A deviation 1.2 times as large, a mean a quarter of one away."""
    fit = InputFit(evaluated=LIGHT, calibrated=replace(LIGHT, **calibrated), clipped=clipped)
    assert proposes("calibration-data", situation(inputs=(None, fit), evaluation=("test", 32))) is differs


@pytest.mark.parametrize(
    ("seconds", "returned"),
    [
        ({"stem": (2e-4, 1e-4), "body": (1e-4, 1e-4)}, ("stem",)),
        ({"stem": (1.09e-4, 1e-4), "body": (1e-4, 1e-4)}, None),
        ({"stem": (2e-4, 1e-4), "body": (3e-4, 1e-4)}, None),
        ({"stem": (2e-4, 1e-4), "body": (3e-4, 1e-4), "head": (1e-4, 1e-4)}, ("body", "stem")),
        ({"stem": (2e-4, 1e-4), "gone": (1e-4, 1e-4)}, None),
        ({"stem": (2e-4, None), "body": (1e-4, 1e-4)}, None),
    ],
)
def test_layers_that_lose_a_hundredth_of_the_call_are_returned(
    seconds: dict[str, tuple[float, float | None]], returned: tuple[str, ...] | None
) -> None:
    """Those that lose most first, of layers that the network has and fp32 was timed of; where all lose, it is not
    they."""
    rows = tuple(layer_time(name, *both) for name, both in seconds.items())
    here = replace(situation(), times=TimeShares(case=CALL, fp32=CALL, layers=rows))
    proposals = registry.load("cause", "slower-in-int8").propose(here)
    assert [each.change.recipe["skip_layers"] for each in proposals] == ([returned] if returned else [])


def test_eight_layers_are_returned_at_most_and_none_that_runs_in_float() -> None:
    """The rest of many is left."""
    names = [f"l{number}" for number in range(12)]
    layers = tuple(Layer(name=name, operator="conv", macs=1, precision="int8") for name in names)
    rows = [layer_time(name, 3e-4 + 1e-6 * number, 1e-4) for number, name in enumerate(names)]
    rows[11] = replace(rows[11], kind="float product")
    rows[0] = layer_time("l0", 1e-4, 1e-4)
    here = replace(situation(), layers=layers, times=TimeShares(case=CALL, fp32=CALL, layers=tuple(rows)))
    (proposal,) = registry.load("cause", "slower-in-int8").propose(here)
    assert proposal.change.recipe["skip_layers"] == tuple(reversed(names[3:11]))


@pytest.mark.parametrize(("converting", "tried"), [(1.99e-5, False), (2e-5, True)])
def test_conversions_are_tried_from_a_fiftieth_of_the_call_on(converting: float, tried: bool) -> None:
    """All of them together."""
    half = converting / 2
    nodes = (node("conversion", seconds=half), node("int8 product", "stem"), node("conversion", seconds=half),
             node("other"), node("int8 product", "body"))  # fmt: skip
    call = CallProfile(nodes=nodes, call_seconds=1e-3, watched_seconds=1e-3)
    rows = (layer_time("stem", 1e-4, 1e-4), layer_time("body", 1e-4, 3e-4))
    here = replace(situation(), times=TimeShares(case=call, fp32=CALL, layers=rows))
    assert proposes("conversions", here) is tried


@pytest.mark.parametrize("count", [12, 13, 30])
def test_of_many_layers_twelve_are_tried(count: int) -> None:
    """All of twelve; of more those behind which the signal falls most with the first and the last, in the network's
    order, and the outer ones where too few falls are known."""
    names = [f"l{number:02}" for number in range(count)]
    layers = tuple(Layer(name=name, operator="conv", macs=1, precision="int8") for name in names)
    signal = [{"name": name, "sqnr_db": 90.0 - 0.1 * number**2} for number, name in enumerate(names)]
    for known, expected in (
        (signal, [names[0], *names[-10:]]),
        (signal[:12], [*names[:6], *names[-6:]]),
        (signal[:13], list(dict.fromkeys([names[0], *names[3:13], names[-1]]))),
        ([{"name": each["name"], "sqnr_db": None} for each in signal], [*names[:6], *names[-6:]]),
    ):
        here = replace(situation(), layers=layers, layer_numbers=tuple(known))
        proposals = registry.load("cause", "sensitive-layers").propose(here)
        assert [each.part for each in proposals] == (names if count == 12 else expected)


@pytest.mark.parametrize(
    ("least", "macs", "kept"),
    [(0.5, (84, 16), 0.16), (0.16, (84, 16), None), (0.1601, (84, 16), 0.16), (None, (84, 16), None),
     (0.5, (9877, 123), 0.012), (0.5, (1, 0), None)],
)  # fmt: skip
def test_the_share_that_must_be_int8_is_lowered_to_what_is_left(
    least: float | None, macs: tuple[int, int], kept: float | None
) -> None:
    """To two digits, rounded down, where the suite asks for more; static variants alone have such a share."""
    layers = tuple(
        Layer(name=name, operator="conv", macs=count, precision="int8")
        for name, count in zip(("big", "small"), macs, strict=True)
    )
    for mode, expected in (("static", kept), ("dynamic", None)):
        here = replace(situation(recipe=Recipe(flow="fx", min_coverage=least), mode=mode), layers=layers)
        (big, _) = registry.load("cause", "sensitive-layers").propose(here)
        assert big.change.recipe.get("min_coverage") == expected


@pytest.mark.parametrize(("engine", "tried"), [(None, True), ("fbgemm", False)])
def test_an_engine_that_somebody_named_for_a_file_is_not_changed(engine: str | None, tried: bool) -> None:
    """Whoever named it has chosen."""
    here = situation(backend="fbgemm", backends=("onednn",))
    model: Any = SimpleNamespace(own_int8=lambda name: SimpleNamespace(engine=engine))
    variant = replace(here.case.variant, model=model)
    assert proposes("engine-kernels", replace(here, case=replace(here.case, variant=variant))) is tried
