"""A change to a case, and several one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qbench.explain.change import Change
from qbench.plan.planner import load_backends
from qbench.plan.variants import Variants
from qbench.quant.recipe import Recipe
from qbench.record.schema import make_case_key
from qbench.suite import parse

TEXT = """
suite: demo
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [torch, fbgemm, onednn]}
quantize: {static: {skip_layers: [head], backends: {fbgemm: {percentile: 99.5}}}}
recipe: [default, framework-default, {name: mine, calibrator: percentile, percentile: 90, target: native}]
"""
CHANGES = st.builds(
    Change,
    mode=st.none() | st.sampled_from(["static", "dynamic"]),
    backend=st.none() | st.sampled_from(["fbgemm", "onednn"]),
    recipe=st.dictionaries(st.sampled_from(["per_channel", "last_layer_float"]), st.booleans()),
    batch_size=st.none() | st.integers(1, 64),
    calibrate=st.none() | st.just(("test", 8)),
    environment=st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["", "1"])),
)
PASTED = {
    "another mode": Change(mode="dynamic", batch_size=8),
    "another engine": Change(backend="onednn", threads=2),
    "qbench's recipe": Change(own_recipe=True, recipe={"skip_layers": ()}),
    "another calibrator": Change(recipe={"calibrator": "percentile"}),
    "the same calibrator, wider": Change(recipe={"calibrator": "percentile", "percentile": 99.9}),
    "layers in float": Change(backend="onednn", recipe={"skip_layers": ("head", "hidden"), "last_layer_float": True}),
    "this machine alone": Change(recipe={"target": ("native",), "reduce_range": False}),
}


@pytest.fixture(scope="module")
def variants():
    """The variants of a suite with two engines and two recipes."""
    suite = parse(TEXT)
    return Variants(suite, load_backends(suite))


def case_of(variants, backend="fbgemm", recipe="default"):
    """A static case of the suite."""
    return variants.case(make_case_key("digits-cnn", "static", backend, 1, 1, recipe))


def test_another_engine_keeps_the_file_that_was_brought():
    """It is the same file there; qbench's own recipe is another artifact."""
    suite = parse(TEXT.replace("models: [digits-cnn]", "models: [{name: digits-cnn, int8: mine.pt}]"))
    variants = Variants(suite, load_backends(suite))
    case = case_of(variants, recipe="file")
    moved = Change(backend="onednn").apply(case, variants).variant
    assert (moved.backend, moved.recipe.file, moved.recipe.name) == ("onednn", "mine.pt", "file")
    assert Change(own_recipe=True).apply(case, variants).variant.recipe.file is None


@given(CHANGES, CHANGES, CHANGES)
def test_changes_one_after_the_other_do_not_depend_on_how_they_are_grouped(first, second, third):
    """(a then b) then c is a then (b then c); nothing before or behind changes nothing."""
    assert first.then(second).then(third) == first.then(second.then(third))
    assert Change().then(first) == first == first.then(Change())


def test_layers_that_two_changes_skip_are_joined():
    """What either returns to float stays so; a change that skips none ends it."""
    first, second = Change(recipe={"skip_layers": ("a", "b")}), Change(recipe={"skip_layers": ("b", "c")})
    assert first.then(second).recipe == {"skip_layers": ("a", "b", "c")}
    assert first.then(Change(recipe={"skip_layers": ()})).recipe == {"skip_layers": ()}


def test_of_two_shares_of_int8_the_lower_one_is_kept():
    """Both changes must be built together."""
    low, high = Change(recipe={"min_coverage": 0.1}), Change(recipe={"min_coverage": 0.3})
    assert low.then(high).recipe == high.then(low).recipe == {"min_coverage": 0.1}


def test_a_change_leaves_the_rest_of_the_case_as_it_was(variants):
    """Only what it names differs, and the suite's own choices hold on another engine."""
    case = case_of(variants)
    changed = Change(recipe={"per_channel": False}).apply(case, variants)
    assert changed.variant.recipe.per_channel is False
    assert changed.variant.recipe.skip_layers == ("head",)
    assert (changed.variant.backend, changed.batch_size, changed.threads) == ("fbgemm", 1, 1)
    other = Change(backend="onednn").apply(case, variants)
    assert (other.variant.backend, other.variant.recipe.skip_layers) == ("onednn", ("head",))


def test_only_a_change_of_the_artifact_rebuilds():
    """A batch size, threads or variables of the process take the same file."""
    assert not Change(batch_size=8, threads=1, environment={"A": "1"}).rebuilds
    assert all(change.rebuilds for change in (Change(mode="static"), Change(recipe={"per_channel": False})))


def paste(keys, into):
    """A mapping with these keys put in, as a person pastes them: what is no mapping takes the place of what stood."""
    if not isinstance(keys, dict) or not isinstance(into, dict):
        return keys
    return {**into, **{key: paste(value, into.get(key)) for key, value in keys.items()}}


@pytest.mark.parametrize("recipe", ["default", "mine"])
@pytest.mark.parametrize("change", PASTED.values(), ids=PASTED)
def test_a_suite_with_the_keys_pasted_has_the_case_that_was_tried(variants, change, recipe):
    """The same variant, threads and batch size, whichever recipe the case is of."""
    case = case_of(variants, recipe=recipe)
    of_recipe = {"calibrator": "percentile", "percentile": 90, "target": ("native",)} if recipe == "mine" else {}
    pasted = parse(yaml.safe_dump(paste(change.suite_keys(case, of_recipe), yaml.safe_load(TEXT))))
    changed = change.apply(case, variants)
    variant = changed.variant
    assert Variants(pasted, load_backends(pasted)).case(changed.key) == changed
    assert variant.recipe.name in {choice.name for choice in pasted.recipe}
    assert variant.mode in pasted.matrix.modes
    assert changed.batch_size in pasted.matrix.batch_sizes


def test_another_engine_keeps_the_framework_default(variants):
    """Only the engine changes: what a recipe brings is another cause."""
    changed = Change(backend="onednn").apply(case_of(variants, recipe="framework-default"), variants)
    assert (changed.variant.backend, changed.variant.recipe.framework_default) == ("onednn", True)


def test_a_change_is_told_as_keys_of_a_suite(variants):
    """What can be pasted; variables of the process are no part of a suite, and a recipe keeps what it said."""
    case = case_of(variants)
    change = Change(backend="onednn", recipe={"skip_layers": ("a",)}, batch_size=8, environment={"A": "1"})
    assert change.suite_keys(case, {}) == {
        "matrix": {"backends": ["onednn"], "batch_sizes": [8]},
        "quantize": {"static": {"backends": {"onednn": {"skip_layers": ["a"]}}}},
    }
    assert Change(own_recipe=True).suite_keys(case_of(variants, recipe="mine"), {}) == {"recipe": ["default"]}
    assert Change(own_recipe=True).suite_keys(case_of(variants, recipe="mine"), {}, ["default", "mine"]) == {}
    mine = case_of(variants, recipe="mine")
    assert Change(recipe={"per_channel": False}).suite_keys(mine, {"calibrator": "percentile"}) == {
        "recipe": [{"name": "mine", "calibrator": "percentile", "per_channel": False}]
    }
    theirs = case_of(variants, recipe="framework-default")
    assert Change(recipe={"float_joins": True}).suite_keys(theirs, {}) == {"recipe": ["framework-default+float_joins"]}
    both = Change(recipe={"float_joins": True}).then(Change(own_recipe=True))
    assert both.suite_keys(theirs, {}) == {"recipe": ["default"]}
    assert Change(environment={"A": "1"}).suite_keys(case, {}) == {}
    assert Change(calibrate=("test", 100)).suite_keys(case, {}) == {
        "data": {"calibrate": {"split": "test", "samples": 100}, "overlap": "allow"}
    }


def test_a_change_that_takes_another_one_back_is_told():
    """Layers that an earlier change put in float, back to int8; not those that the suite keeps there."""
    given_up, all_int8 = Change(recipe={"skip_layers": ("a", "b")}), Change(recipe={"skip_layers": ()})
    assert all_int8.takes_back(given_up, Recipe())
    assert not all_int8.takes_back(given_up, Recipe(skip_layers=("a",)))
    assert not all_int8.takes_back(Change(mode="static"), Recipe())


def test_joins_in_float_are_the_recipe_that_a_suite_names_so(variants):
    """The trial builds what the suite would: the framework's recipe, and nothing else of it is changed."""
    theirs = case_of(variants, recipe="framework-default")
    tried = Change(recipe={"float_joins": True}).apply(theirs, variants).variant.recipe
    suite = parse(TEXT.replace("framework-default,", "framework-default+float_joins,"))
    named = case_of(Variants(suite, load_backends(suite)), recipe="framework-default+float_joins").variant.recipe
    assert replace(named, name=tried.name) == tried
    assert replace(tried, float_joins=None) == theirs.variant.recipe


def test_a_share_of_int8_that_only_the_second_change_asks_for_is_kept():
    """The first one says nothing of it."""
    low = Change(recipe={"min_coverage": 0.1})
    assert Change(recipe={"per_channel": True}).then(low).recipe == {"per_channel": True, "min_coverage": 0.1}


def test_denormals_that_either_change_flushes_are_flushed():
    """Neither says that they are not."""
    flushed = Change(flush_denormals=True)
    assert flushed.then(Change()).flush_denormals
    assert Change().then(flushed).flush_denormals
    assert not Change().then(Change()).flush_denormals


def test_a_recipe_with_other_fields_is_no_file_of_the_user_s():
    """A change of the recipe of a file that was brought makes qbench's own artifact."""
    suite = parse(TEXT.replace("models: [digits-cnn]", "models: [{name: digits-cnn, int8: mine.pt}]"))
    variants = Variants(suite, load_backends(suite))
    case = case_of(variants, recipe="file")
    changed = Change(recipe={"per_channel": False}).apply(case, variants).variant.recipe
    assert (changed.per_channel, changed.file) == (False, None)


def test_a_change_beside_the_recipe_names_no_recipe(variants):
    """The case's own stands in the suite already."""
    mine = case_of(variants, recipe="mine")
    assert Change(batch_size=8).suite_keys(mine, {"calibrator": "percentile"}) == {"matrix": {"batch_sizes": [8]}}


def test_an_artifact_for_no_other_cpu_is_one_for_this_machine(variants):
    """A suite has no empty list of targets."""
    keys = Change(recipe={"target": ()}).suite_keys(case_of(variants), {})
    assert keys == {"quantize": {"static": {"backends": {"fbgemm": {"target": ["native"]}}}}}
