"""The options of the algorithms that a configuration may name: their defaults, and what is wrong with given ones."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from qbench import registry
from qbench.quant.onnx.settings import ADA, ARQ

Options: TypeAlias = dict[str, float | int | tuple[float, float]]

WEIGHT_ALGORITHMS = (ARQ, ADA)


@functools.cache  # what is installed does not change while a process runs, and asking takes milliseconds
def names() -> tuple[str, ...]:
    """The calibrators that can be named."""
    return registry.names("calibrator")


@functools.cache
def _calibrator(algorithm: str) -> Any:
    return registry.load("calibrator", algorithm)


def defaults(algorithm: str) -> Options:
    """The options of a calibrator: the keywords of its class. Raises ``UnknownName``."""
    return dict(_keywords(_calibrator(algorithm)))


@functools.cache
def _keywords(calibrator: Any) -> Mapping[str, Any]:
    keywords = inspect.signature(calibrator).parameters.values()
    return {parameter.name: parameter.default for parameter in keywords if parameter.name != "asymmetric"}


def weight_defaults(algorithm: str) -> Options:
    """The options of a weight algorithm."""
    from qbench.quant.onnx.weights.adaround import Options as AdaRound

    return dataclasses.asdict(AdaRound()) if algorithm == ADA else {}


def activation_problems(algorithm: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a calibrator: (option, what)."""
    others = {name: set(defaults(name)) for name in names()}
    make = functools.partial(_calibrator(algorithm), asymmetric=True)
    return _option_problems(algorithm, options, defaults(algorithm), others, make)


def weight_problems(algorithm: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a weight algorithm: (option, what)."""
    from qbench.quant.onnx.weights.adaround import Options as AdaRound

    others = {name: set(weight_defaults(name)) for name in WEIGHT_ALGORITHMS}
    return _option_problems(
        algorithm, options, weight_defaults(algorithm), others, AdaRound if algorithm == ADA else dict
    )


def _option_problems(
    algorithm: str,
    options: Mapping[str, Any],
    defaults: Options,
    others: Mapping[str, set[str]],
    make: Callable[..., Any],
) -> Iterator[tuple[str, str]]:
    """Options that the algorithm does not have, of a wrong type, or that ``make`` refuses."""
    wrong = dict(_types(defaults, options))
    wrong |= {name: _explain_unknown(name, algorithm, defaults, others) for name in options if name not in defaults}
    yield from wrong.items()
    if not wrong:
        try:
            make(**typed(defaults, options))
        except ValueError as error:
            name, _, what = str(error).partition(": ")
            yield (name, what) if name in defaults and what else ("", str(error))


def typed(table: Options, options: Mapping[str, Any]) -> Options:
    """The given options that are known, pairs as tuples, whole numbers as such."""
    return {key: _typed(table[key], value) for key, value in options.items() if key in table}


def _typed(default: Any, value: Any) -> Any:
    if isinstance(default, int) and isinstance(value, float):
        return int(value)  # JSON of other tools has 100.0
    return tuple(value) if isinstance(value, list) else value


def _types(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options of another type than their default."""
    for name, value in options.items():
        default = defaults.get(name)
        if default is None:
            continue
        if isinstance(default, tuple):
            good = isinstance(value, list | tuple) and len(value) == 2 and all(map(_number, value))
            expected = "two numbers"
        elif isinstance(default, bool):
            good, expected = isinstance(value, bool), "true or false"
        elif isinstance(default, int):
            good, expected = _number(value) and int(value) == value, "a whole number"
        else:
            good, expected = _number(value), "a number"
        if not good:
            yield name, f"expected {expected}, got {value!r}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _explain_unknown(name: str, algorithm: str, names: Iterable[str], others: Mapping[str, set[str]]) -> str:
    """That an algorithm has no such option: whose it is, or what it may have been."""
    owners = sorted(owner for owner, options in others.items() if name in options)
    if owners:
        return f"an option of {' and '.join(owners)}, and the algorithm here is {algorithm}; keep one of them"
    options = sorted({*names, "asymmetric", "num_bits"})
    return f"unknown key{registry.suggest(name, options) or f'; {algorithm} has: ' + ', '.join(options)}"
