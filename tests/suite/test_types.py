"""Rules of qbench/suite/types.py: which values a suite takes, to the last one, and how a message shows the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from qbench.suite import types
from qbench.suite.types import Names


def told(kind: Any, value: Any) -> str:
    """What is said of a value that does not fit."""
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(kind).validate_python(value)
    return raised.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        (False, "false"),
        ({}, "a mapping"),
        ([], "a list"),
        ((), "a list"),
        (1.5, "1.5"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 56}…'"),
    ],
)
def test_a_value_is_shown_short_and_in_words_of_yaml(value: object, text: str) -> None:
    """Of more than 60 signs, quotes included, the first 57 and the last."""
    assert types.shown(value) == text


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        (types.Share, "2%", 0.02),
        (types.Share, " .5 % ", 0.005),
        (types.Share, 0.999, 0.999),
        (types.Share, 1e-9, 1e-9),
        (types.ShareOrZero, 0, 0.0),
        (types.Ratio, 1, 1.0),
        (types.Ratio, "250%", 2.5),
    ],
)
def test_a_share_is_a_number_or_per_cent(kind: Any, value: object, number: float) -> None:
    """As a float, whatever it was written as."""
    share = TypeAdapter(kind).validate_python(value)
    assert share == pytest.approx(number)
    assert type(share) is float


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (types.Share, 0, "expected a share above 0, got 0"),
        (types.Share, "0%", "expected a share above 0, got '0%'"),
        (types.ShareOrZero, -0.1, "expected a share of at least 0, got -0.1"),
        (types.Ratio, 0, "expected a share above 0, got 0"),
        (types.Share, 1, "expected a share below 100% (1.0), got 1; did you mean 1%?"),
        (types.ShareOrZero, 5, "expected a share below 100% (1.0), got 5; did you mean 5%?"),
        (types.Share, "100%", "expected a share below 100% (1.0), got '100%'"),
        (types.Share, True, "expected a share such as 2% or 0.02, got true"),
        (types.Share, float("inf"), "expected a share such as 2% or 0.02, got inf"),
        (types.Share, "-2%", "expected a share such as 2% or 0.02, got '-2%'"),
        (types.Share, None, "expected a share such as 2% or 0.02, got nothing"),
    ],
)
def test_what_is_no_share_is_said(kind: Any, value: object, said: str) -> None:
    """A number that was meant as per cent gets the hint; per cent that are too many get none."""
    assert told(kind, value) == said


def test_the_text_of_a_run_may_have_times_without_a_unit() -> None:
    """In seconds, as an earlier qbench took them; elsewhere it is a question, also where nothing is known."""
    adapter = TypeAdapter(types.Seconds)
    assert adapter.validate_python(5, context=Names(stored=True)) == 5.0
    for context in (Names(), None):
        with pytest.raises(ValidationError, match="with its unit"):
            adapter.validate_python(5, context=context)


@pytest.mark.parametrize("value", [0, "0 ms", -1, "-1 ms"])
def test_nothing_is_no_time(value: object) -> None:
    """Neither in the text of a run."""
    said = f"expected a time above 0, such as 5 ms, got {types.shown(value)}"
    assert told(types.Seconds, value) == said


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (types.Whole, (0, 2**53), (-1, 2**53 + 1)),
        (types.Count, (1, 2**53), (0, 2**53 + 1)),
        (types.Seed, (0, 2**32 - 1), (-1, 2**32)),
        (types.Positive, (1e-300,), (0.0, float("inf"))),
        (types.Number, (-1.0,), (float("nan"),)),
        (types.ShareToOne, (0.0, 1.0), (-1e-9, 1.0 + 1e-9)),
        (types.SuiteName, ("a" * 100, "0._-"), ("a" * 101, "-a", "A", "baselines")),
        (types.ModelName, ("a" * 100, "A._-"), ("a" * 101, "-a", "")),
        (types.Text, ("x",), (" ", "")),
        (types.PythonTarget, ("f.py:f", "C:/f.py:f"), (":f", "f.py:", "f.py", "f.py:1f")),
    ],
)
def test_a_value_is_taken_up_to_its_limit(kind: Any, good: tuple[object, ...], bad: tuple[object, ...]) -> None:
    """The limit itself is taken, what is beyond it is not."""
    adapter = TypeAdapter(kind)
    assert [adapter.validate_python(value) for value in good] == list(good)
    for value in bad:
        assert told(kind, value)


def test_a_name_in_other_capitals_is_named() -> None:
    """The first option that is the same but for them; else nothing is said."""
    assert types.near_case("mb", ["B", "MB"]) == "; did you mean 'MB'?"
    assert types.near_case("mx", ["B", "MB"]) == ""
