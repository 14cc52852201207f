"""Rules of qbench/quant/onnx/formats/algorithms.py: which options an algorithm has, and what is said of others."""

from __future__ import annotations

from typing import Any

import pytest

from qbench.quant.onnx.formats import algorithms

DEFAULTS: dict[str, Any] = {"rate": 0.5, "steps": 10, "ends": (0.7, 1.3), "sure": True}
OTHERS = {"own": set(DEFAULTS), "first": {"bins"}, "second": {"bins", "depth"}}


def make(**options: Any) -> None:
    """The algorithm itself, which refuses a rate above one."""
    if options.get("rate", 0) > 1:
        raise ValueError("rate: expected at most 1, got 2")
    if options.get("steps") == 13:
        raise ValueError("steps and rate do not go together")
    if options.get("steps") == 14:
        raise ValueError("other: is none of its options")


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({}, []),
        ({"rate": 1, "steps": 5.0, "ends": [1, 2.0], "sure": False}, []),
        ({"rate": True}, [("rate", "expected a number, got True")]),
        ({"rate": float("inf")}, [("rate", "expected a number, got inf")]),
        ({"steps": 1.5}, [("steps", "expected a whole number, got 1.5")]),
        ({"steps": True}, [("steps", "expected a whole number, got True")]),
        ({"sure": 1}, [("sure", "expected true or false, got 1")]),
        ({"ends": (1, 2)}, []),
        ({"ends": [1, 2, 3]}, [("ends", "expected two numbers, got [1, 2, 3]")]),
        ({"ends": ["1", 2]}, [("ends", "expected two numbers, got ['1', 2]")]),
        ({"ends": 1}, [("ends", "expected two numbers, got 1")]),
        ({"rat": 1, "steps": "2"}, [("steps", "expected a whole number, got '2'"),
                                    ("rat", "unknown key; did you mean 'rate'?")]),
        ({"zzz": 1}, [("zzz", "unknown key; own has: asymmetric, ends, num_bits, rate, steps, sure")]),
        ({"depth": 1}, [("depth", "an option of second, and the algorithm here is own; keep one of them")]),
        ({"bins": 1}, [("bins", "an option of first and second, and the algorithm here is own; keep one of them")]),
        ({"rate": 2}, [("rate", "expected at most 1, got 2")]),
        ({"rate": 2, "zzz": 1}, [("zzz", "unknown key; own has: asymmetric, ends, num_bits, rate, steps, sure")]),
        ({"steps": 13}, [("", "steps and rate do not go together")]),
        ({"steps": 14}, [("", "other: is none of its options")]),
    ],
)  # fmt: skip
def test_options_are_those_of_the_algorithm_in_the_type_of_their_defaults(
    options: dict[str, Any], problems: list[tuple[str, str]]
) -> None:
    """A whole number may be written as a float; what the algorithm itself refuses is told where all else is right."""
    assert list(algorithms._option_problems("own", options, DEFAULTS, OTHERS, make)) == problems


def test_given_options_have_the_types_that_the_algorithm_takes() -> None:
    """Pairs are tuples, whole numbers are such, and what is unknown is left out."""
    typed = algorithms.typed(DEFAULTS, {"rate": 1, "steps": 5.0, "ends": [1, 2], "zzz": 1})
    assert typed == {"rate": 1, "steps": 5, "ends": (1, 2)}
    assert type(typed["steps"]) is int


def test_the_options_of_an_algorithm_are_its_keywords() -> None:
    """Whether it is asymmetric is told apart from them; rounding has none, AdaRound its own."""
    assert algorithms.defaults("percentile") == {"percentile": 99.999}
    assert algorithms.weight_defaults("arq_quantize") == {}
    assert {"num_iteration", "reg_param", "beta_range", "warm_start"} <= set(algorithms.weight_defaults("ada_quantize"))
    assert list(algorithms.weight_problems("arq_quantize", {"num_iteration": 5})) == [
        ("num_iteration", "an option of ada_quantize, and the algorithm here is arq_quantize; keep one of them")
    ]
    assert list(algorithms.activation_problems("minmax", {})) == []
