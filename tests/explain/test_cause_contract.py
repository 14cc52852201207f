"""What every cause keeps to, also those of other packages."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from made_situations import CALL, ISLAND, LAYERS, SLOW, layer_time, node, situation
from pydantic import TypeAdapter

from qbench import registry
from qbench.explain.causes.base import Cause
from qbench.explain.change import Change
from qbench.explain.suite_text import list_environment
from qbench.explain.where_time_goes import TimeShares
from qbench.process import imports
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.recipe import FRAMEWORK_DEFAULT, Recipe
from qbench.record.explained import Setting
from qbench.record.schema import InputFit, Spread

CAUSES = registry.names("cause")


@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_says_what_is_wrong_and_takes_it_away(name):
    """Its name is the registered one, and every change that it proposes, anywhere, changes something."""
    cause: Cause = registry.load("cause", name)
    assert cause.name == name
    assert cause.title
    assert cause.title[0].islower()
    for case in (situation(), *SITUATIONS.values()):
        for counterfactual in cause.propose(case):
            assert counterfactual.cause == name
            assert counterfactual.text
            assert counterfactual.change != Change()


@pytest.mark.parametrize("name", CAUSES)
def test_what_a_cause_has_set_for_the_process_is_what_a_run_keeps(name):
    """A run's folder takes known settings only, so that what somebody else wrote there is no advice."""
    cause: Cause = registry.load("cause", name)
    for case in (situation(), *SITUATIONS.values()):
        for counterfactual in cause.propose(case):
            TypeAdapter(tuple[Setting, ...]).validate_python(tuple(list_environment(counterfactual.change, case.case)))


DARK = Spread(least=0.0, greatest=0.3, mean=0.1, deviation=0.1)
LIGHT = Spread(least=0.0, greatest=1.0, mean=0.3, deviation=0.3)
SITUATIONS = {
    "calibration-data": situation(inputs=(InputFit(evaluated=LIGHT, calibrated=DARK),), evaluation=("test", 32)),
    "few-levels": situation(recipe=Recipe(flow="fx", reduce_range=True)),
    "fixed-range": situation(fixed_ranges=("gate",)),
    "joined-ranges": situation(
        joins=("cat",), recipe=Recipe(name=FRAMEWORK_DEFAULT, flow="fx", framework_default=True)
    ),
    "overflowing-sums": situation(recipe=Recipe(flow="fx", narrow_weights=False, reduce_range=False)),
    "mean-error": situation(recipe=Recipe(flow="onnx")),
    "uneven-channels": situation(recipe=Recipe(flow="onnx")),
    "wider-steps": situation(recipe=Recipe(flow="fx", narrow_weights=True, target=("avx2", "vnni"))),
    "calibrator": situation(recipe=Recipe(flow="fx", calibrator="minmax")),
    "per-tensor": situation(recipe=Recipe(flow="fx", per_channel=False)),
    "sensitive-layers": situation(),
    "dynamic-activations": situation(mode="dynamic"),
    "engine-kernels": situation(backend="fbgemm", backends=("fbgemm", "onednn")),
    "framework-default": situation(recipe=Recipe(name=FRAMEWORK_DEFAULT, framework_default=True)),
    "kept-float": situation(recipe=Recipe(skip_layers=("head",))),
    "older-instructions": situation(hiding_variables=("ONEDNN_MAX_CPU_ISA=AVX2",)),
    "page-faults": situation(faults_per_call=300.0),
    "per-channel": situation(recipe=Recipe(per_channel=True)),
    "slower-in-int8": replace(situation(), times=SLOW),
    "threads": situation(threads=2),
    "little-work": situation(),
    "conversions": replace(situation(), times=ISLAND),
    "denormals": situation(flushing_gain=1.5),
    "memory-bound": replace(situation(reading_seconds=8e-4, call_seconds=1e-3), times=None),
    "older-target": situation(recipe=Recipe(target=("avx2", "vnni")), machine_code=True),
    "own-file": situation(recipe=Recipe(name="own", file="mine.onnx")),
    "small-for-amx": situation(amx_tiles=True, timed_core=1),
    "unused-amx": situation(amx_tiles=False, timed_core=1, pinned=True),
    "symmetric": situation(recipe=Recipe(symmetric=True)),
    "unfused": situation(recipe=Recipe(canonicalize=False)),
}


def test_every_cause_has_a_situation_in_which_it_may_be_at_work():
    """A new cause is one more line here."""
    assert set(SITUATIONS) >= {name for name in CAUSES if registry.entry("cause", name).distribution == "qbench"}


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_a_cause_is_proposed_where_it_may_be_at_work(name):
    """With the change that takes it away."""
    assert registry.load("cause", name).propose(SITUATIONS[name])


@pytest.mark.parametrize("name", sorted(set(SITUATIONS) - {"little-work", "sensitive-layers"}))
def test_a_cause_is_not_proposed_where_it_cannot_be(name):
    """A plain static case of one thread has none of them; of too little work, and of single layers, only a trial
    tells."""
    assert registry.load("cause", name).propose(situation()) == ()


def test_of_many_layers_those_are_tried_behind_which_the_signal_falls_most():
    """With the first and the last one; where that is not known, the outer ones."""
    cause, names = registry.load("cause", "sensitive-layers"), [f"layer{number}" for number in range(40)]
    layers = tuple(Layer(name=name, operator="conv", macs=1, precision="int8") for name in names)
    falls = {20: 9.0, 30: 7.0}
    signal, numbers = 60.0, []
    for number, name in enumerate(names):
        signal -= falls.get(number, 0.01)
        numbers.append({"name": name, "sqnr_db": signal})
    many = replace(situation(), layers=layers)
    tried = [each.part for each in cause.propose(replace(many, layer_numbers=tuple(numbers)))]
    assert {"layer0", "layer20", "layer30", "layer39"} <= set(tried)
    assert [each.part for each in cause.propose(many)] == names[:6] + names[-6:]


def test_layers_that_lose_are_returned_to_float_and_no_others():
    """With those that the recipe skips already."""
    slow = replace(situation(recipe=Recipe(skip_layers=("head",))), times=SLOW)
    (counterfactual,) = registry.load("cause", "slower-in-int8").propose(slow)
    assert counterfactual.change == Change(recipe={"skip_layers": ("head", "stem")})


def test_layers_are_returned_to_float_where_the_suite_asks_for_more_int8():
    """With a threshold that allows it: two of three equal layers are left, 0.66."""
    cause = registry.load("cause", "slower-in-int8")
    for least, extra in ((0.9, {"min_coverage": 0.66}), (0.5, {}), (None, {})):
        slow = replace(situation(recipe=Recipe(min_coverage=least)), times=SLOW)
        (counterfactual,) = cause.propose(slow)
        assert counterfactual.change.recipe == {"skip_layers": ("stem",), **extra}
        assert counterfactual.gives_up


def test_a_stretch_that_does_not_repay_its_conversions_is_returned_to_float():
    """Those in which the layers gain more stay int8; a network of one stretch is not tried without it."""
    cause = registry.load("cause", "conversions")
    (counterfactual,) = cause.propose(replace(situation(), times=ISLAND))
    assert counterfactual.change == Change(recipe={"skip_layers": ("stem",)})
    repaid = replace(ISLAND, layers=(layer_time("stem", 1e-4, 4e-4), *ISLAND.layers[1:]))
    assert cause.propose(replace(situation(), times=repaid)) == ()
    assert cause.propose(replace(situation(), times=ISLAND, layers=LAYERS[:1])) == ()


def test_where_no_stretch_repays_its_conversions_the_one_that_loses_least_stays():
    """A variant without int8 layers is none: stem and head lose 0.3 ms each, body 0.1."""
    nodes = []
    for name, conversion in (("stem", 2e-4), ("body", 1e-4), ("head", 2e-4)):
        nodes += [node("conversion", seconds=conversion), node("int8 product", name), node("conversion"), node("other")]
    call = CallProfile(nodes=tuple(nodes), call_seconds=3e-3, watched_seconds=3e-3)
    rows = (layer_time("stem", 1e-4, 1e-4), layer_time("body", 1e-4, 2e-4), layer_time("head", 1e-4, 1e-4))
    times = TimeShares(case=call, fp32=CALL, layers=rows)
    (counterfactual,) = registry.load("cause", "conversions").propose(replace(situation(), times=times))
    assert counterfactual.change.recipe["skip_layers"] == ("stem", "head")
    assert registry.load("cause", "conversions").propose(replace(situation(), times=times, layers=())) == ()


def test_what_waits_for_memory_is_told_from_what_has_too_little_work():
    """The change is the same; which of the two is named depends on what reading the weights takes."""
    waiting = SITUATIONS["memory-bound"]
    assert registry.load("cause", "little-work").propose(waiting) == ()
    busy = replace(waiting, reading_seconds=1e-5)
    assert registry.load("cause", "memory-bound").propose(busy) == ()
    assert registry.load("cause", "little-work").propose(busy)
    disturbed = replace(waiting, call_seconds=1.0, times=ISLAND)  # its nodes take 0.6 ms
    assert registry.load("cause", "memory-bound").propose(disturbed)


def test_two_draws_from_one_source_are_no_drift():
    """Nor an input of whole numbers, which has no spread; a clipped one is."""
    cause = registry.load("cause", "calibration-data")
    fit = InputFit(evaluated=LIGHT, calibrated=replace(LIGHT, mean=0.32, deviation=0.28), clipped=0.0)
    assert cause.propose(situation(inputs=(fit, None), evaluation=("test", 32))) == ()
    (counterfactual,) = cause.propose(situation(inputs=(replace(fit, clipped=0.01),), evaluation=("test", 32)))
    assert counterfactual.change == Change(calibrate=("test", 32))
    assert cause.propose(situation(inputs=(replace(fit, clipped=0.01),))) == ()


def test_of_a_file_the_layers_in_float_and_how_it_was_made_are_two_causes():
    """Quantized anew with the same layers in float, and with all in int8."""
    layers = (*LAYERS[:2], replace(LAYERS[2], precision="fp32"))
    mine = replace(SITUATIONS["own-file"], layers=layers)
    (same,) = registry.load("cause", "own-file").propose(mine)
    (all_int8,) = registry.load("cause", "kept-float").propose(mine)
    assert same.change == Change(own_recipe=True, recipe={"skip_layers": ("head",)})
    assert all_int8.change == Change(own_recipe=True, recipe={"skip_layers": ()})


def test_levels_are_given_back_where_the_recipe_takes_them():
    """7 bits, and no offset, each alone and both."""
    cause = registry.load("cause", "few-levels")
    (both,) = cause.propose(situation(recipe=Recipe(flow="fx", reduce_range=True, symmetric=True)))
    assert both.change == Change(recipe={"reduce_range": False, "narrow_weights": True, "symmetric": False})
    (offset,) = cause.propose(situation(recipe=Recipe(flow="fx", symmetric=True)))
    assert offset.change == Change(recipe={"symmetric": False})


def test_a_long_call_has_work_enough():
    """Eight times as many examples would take as long to try as all else."""
    cause = registry.load("cause", "little-work")
    assert cause.propose(situation(call_seconds=0.3)) == ()
    assert cause.propose(situation(call_seconds=0.003))


def test_sums_that_overflow_on_another_cpu_are_mended_for_it():
    """A case on such a host whose recipe is not for it; one whose recipe is, overflows nowhere."""
    cause, recipe = registry.load("cause", "overflowing-sums"), Recipe(flow="fx", narrow_weights=True, target=("avx2",))
    here = situation(recipe=recipe)
    assert cause.propose(replace(here, case=replace(here.case, host="avx2"))) == ()
    (counterfactual,) = cause.propose(replace(here, case=replace(here.case, host="avx512")))
    assert counterfactual.change.recipe == {"narrow_weights": True, "reduce_range": False, "target": ("avx512",)}


def test_a_layer_is_tried_in_float_whatever_share_of_the_work_must_be_int8():
    """The layer that does most of the work may be the one that costs accuracy; the suite's share is lowered for it
    alone."""
    layers = tuple(
        Layer(name=name, operator="conv", macs=macs, precision="int8") for name, macs in (("big", 84), ("small", 16))
    )
    case = replace(situation(recipe=Recipe(min_coverage=0.5)), layers=layers)
    big, small = registry.load("cause", "sensitive-layers").propose(case)
    assert big.change.recipe == {"skip_layers": ("big",), "min_coverage": 0.16}
    assert small.change.recipe == {"skip_layers": ("small",)}


@pytest.mark.parametrize("used", [True, False, None])
@pytest.mark.parametrize("pinned", [True, False])
def test_amx_is_left_out_where_it_was_used_and_taken_where_pinning_kept_it_out(used, pinned):
    """One that does not use it though it may, and one of which that is not known, have no other kernels to try."""
    case = situation(amx_tiles=used, timed_core=1, pinned=pinned)
    proposed = {
        name: [each.change.environment[imports.CORES] for each in registry.load("cause", name).propose(case)]
        for name in ("small-for-amx", "unused-amx")
    }
    assert proposed["small-for-amx"] == (["1"] if used else [])
    every = ",".join(map(str, range(os.cpu_count() or 1)))
    assert proposed["unused-amx"] == ([every] if used is False and pinned else [])
