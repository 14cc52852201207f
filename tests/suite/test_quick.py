"""qbench.suite.quick: what a quick look changes in a suite."""

from __future__ import annotations

import pytest

from qbench.suite import Suite, parse
from qbench.suite.quick import list_written

SMALL = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def look(text: str = SMALL, *overrides: str) -> Suite:
    """The quick look at a suite."""
    return parse(text, file="s.yaml", overrides=overrides, quick=True)


def test_a_quick_look_times_coarsely_and_trains_nothing() -> None:
    """One generation of processes, no further calibration subsets, few examples, QAT from the cache alone."""
    text = f"{SMALL}measure: {{protocol: both, processes: 9, cold_starts: 12}}\nevaluate: {{layers: true}}\n"
    suite = look(text)
    assert suite.quick
    assert (suite.measure.protocol, suite.measure.spend) == ("paired", "screening")
    assert (suite.measure.processes, suite.measure.cold_starts) == (1, 1)
    assert (suite.data.evaluate.at_most, suite.data.calibrate.seeds) == (500, 1)
    assert not suite.limits.train_qat
    assert not suite.evaluate.layers


def test_what_is_built_is_what_the_suite_says() -> None:
    """Nothing that decides an artifact changes, so that the run proper finds it in the cache."""
    plain, quick = parse(SMALL), look()
    assert not plain.quick
    assert (plain.models, plain.matrix, plain.quantize, plain.recipe) == (
        quick.models,
        quick.matrix,
        quick.quantize,
        quick.recipe,
    )
    assert plain.data.calibrate == quick.data.calibrate
    assert (plain.gate, plain.decide) == (quick.gate, quick.decide)


def test_an_override_of_the_user_comes_last() -> None:
    """Who wants a quick look with more examples gets it."""
    suite = look(SMALL, "data.evaluate.at_most=2000")
    assert suite.data.evaluate.at_most == 2000
    assert suite.overrides[-1] == "data.evaluate.at_most=2000"


def test_the_stored_overrides_give_the_same_suite() -> None:
    """A run that is read back needs no word on quick looks to have the settings that it was made with."""
    suite = look(SMALL, "measure.precision=5%")
    again = parse(suite.text, overrides=suite.overrides, stored=True)
    assert dict(again) == dict(suite)


@pytest.mark.parametrize("key", ["data", "measure", "limits"])
def test_a_broken_suite_is_told_at_its_place(key: str) -> None:
    """What a quick look puts in hides no mistake."""
    from qbench.errors import SuiteError

    with pytest.raises(SuiteError, match=f"{key}"):
        look(f"{SMALL}{key}: 3\n")


def test_what_somebody_wrote_stands_behind_what_a_quick_look_changes() -> None:
    """Of a run proper all overrides were written."""
    quick, plain = look(SMALL, "limits.train_qat=true"), parse(SMALL, overrides=("limits.train_qat=true",))
    assert list_written(quick.overrides, True) == list_written(plain.overrides, False) == ("limits.train_qat=true",)
