"""An explanation of time in words and keys."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import yaml
from made_trials import trial, tried

from qbench.explain.change import Change
from qbench.explain.explanation import Round, choose, explain
from qbench.explain.text import list_causes, write_option, write_suite_keys
from qbench.quant.recipe import DEFAULT

RECIPE = SimpleNamespace(name=DEFAULT)
CASE = SimpleNamespace(variant=SimpleNamespace(mode="dynamic", backend="onnxruntime", recipe=RECIPE), batch_size=1)
OPENED = SimpleNamespace(case=CASE, recipe_keys={})


def test_more_examples_a_call_are_an_option_and_no_key():
    """Who serves single requests pastes the rest as it stands; without a rest there is nothing but the option."""
    change = Change(mode="static", batch_size=8)
    keys = write_suite_keys(change, OPENED)
    assert yaml.safe_load(keys) == {"matrix": {"modes": ["static"]}}
    assert keys.endswith(f"# {write_option(change)}")
    assert yaml.safe_load(write_option(change)) == {"matrix": {"batch_sizes": [8]}}
    assert yaml.safe_load(write_suite_keys(Change(batch_size=8), OPENED)) is None
    assert write_suite_keys(Change(environment={"A": "1"}), OPENED) is None
    assert write_option(Change(mode="static")) is None


def test_what_closes_the_same_part_of_the_gap_is_said_with_its_share_alone():
    """It is in the shares of those above, which stay the whole gap."""
    first = tried(trial("layers", 0.1), trial("denormals", 0.2))
    rounds = [Round(tried=first, chosen=choose(first, ()))]
    result = explain(rounds, [(0.05, "arithmetic")])
    titles = {"layers": SimpleNamespace(title="layers stay float")}
    lines = list_causes(result, titles)
    assert "94.7 % of the gap" in lines[0]
    assert "alone it closes 84.2 % of the gap" in lines[-1]
    beyond = replace(result, hidden=(replace(result.hidden[0], beyond=True),))
    assert "alone" not in list_causes(beyond, titles)[-1]
