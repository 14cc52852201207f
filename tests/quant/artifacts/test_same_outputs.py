"""When a compiled artifact gives what its module gives: the limit, what rounding explains, and the words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qbench.errors import BuildError
from qbench.quant import rounding
from qbench.quant.artifacts import same_outputs

torch = pytest.importorskip("torch")

# Two inputs of three examples; the outputs of the module are 1, 2 and 4.
PROBES = (torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.0], [0.0], [1.0]]))


def add(first: Any, second: Any) -> Any:
    return first + second


def off_by(*differences: float) -> Callable[[tuple[Any, ...]], Any]:
    """An artifact whose outputs for the three examples, which it takes one by one, are off by so much."""
    rest = list(differences)

    def run(example: tuple[Any, ...]) -> Any:
        assert [len(tensor) for tensor in example] == [1, 1]
        return add(*example) - rest.pop(0)

    return run


def require(run: Callable[[tuple[Any, ...]], Any], **more: Any) -> str | None:
    return same_outputs.require(add, run, PROBES, tolerance=0.25, **more)


@pytest.mark.parametrize("differences", [(0, 0, 0), (1, 0, 0), (0, 0, -1)])
def test_a_share_of_the_largest_output_is_allowed(
    monkeypatch: pytest.MonkeyPatch, differences: tuple[float, ...]
) -> None:
    """Of all examples' outputs, in both directions; what rounding does, which takes long, is not asked for."""
    monkeypatch.delattr(rounding, "spread")
    assert require(off_by(*differences)) is None


def spread(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setattr(rounding, "spread", lambda _module, examples: value * (len(examples) == 3))


def test_twice_what_rounding_moves_is_allowed_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first difference beyond both is an error that tells all of them."""
    spread(monkeypatch, 0.5)
    assert require(off_by(0, 2, 0)) is None
    with pytest.raises(BuildError) as raised:
        require(off_by(0, 0, 2.125))
    assert str(raised.value) == (
        "the compiled package differs from the module it came from (largest difference 2.125 at outputs up to 4, and "
        "rounding explains 1): does its forward depend on values, or on what earlier calls left behind?"
    )


@pytest.mark.parametrize("difference", [1.125, float("nan")])
def test_the_first_difference_over_the_limit_is_an_error(difference: float) -> None:
    """Also one that is no number; nothing is said of rounding where nothing is rounded."""
    with pytest.raises(BuildError, match=r"^it differs from .* at outputs up to 4\): does"):
        require(off_by(0, difference, 0), title="it")


def test_kernels_that_overflow_are_told_instead() -> None:
    """Of a difference over the limit alone."""
    told = "sums of 16 bits do overflow (outputs off by up to 2, at up to 4)"
    assert require(off_by(2, 0, 0), saturates=True) == told
    assert require(off_by(1, 0, 0), saturates=True) is None


def test_a_module_that_does_not_repeat_is_named_itself() -> None:
    """Before the artifact is blamed, or its kernels."""
    calls, probes = iter(range(1, 100)), (PROBES[0][:1],)  # of one example
    with pytest.raises(BuildError) as raised:
        same_outputs.require(lambda x: x + next(calls), lambda x: x[0], probes, tolerance=0.25, saturates=True)
    assert "differs from the module it came from" not in str(raised.value)
