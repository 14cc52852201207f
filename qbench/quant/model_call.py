"""Calling a network that qbench did not write: its first output, and what is wrong where it gives none."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qbench.errors import BuildError, reraise
from qbench.quant import random_draws

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST = 400
_OPENVINOS_PLACES = re.compile(r"(Exception from|Check '.*' failed at) \S+:\d+:?$")  # the lines above what is wrong
_TRACERS_ADVICE = " This can be attempted when"  # how FX goes on for three lines


class ChangesByItself(BuildError):
    """The network's outputs differ from call to call."""


def reason(error: BaseException) -> str:
    """An error as one line with its type and its line of the user's: the first line of its text, or the last of a
    TorchScript traceback, which holds the cause; without escape codes, cut to a readable length."""
    lines = [line.strip() for line in _ESCAPE.sub("", str(error)).splitlines() if line.strip()]
    if not lines:
        return f"{type(error).__name__}{_place(error)}"
    if lines[0].startswith("The following operation failed in the TorchScript interpreter"):
        return lines[-1][:_LONGEST]
    said = next((line for line in lines if not _OPENVINOS_PLACES.match(line)), lines[0]).partition(_TRACERS_ADVICE)[0]
    return f"{type(error).__name__}: {said[:_LONGEST]}{_place(error)}"


def _place(error: BaseException) -> str:
    """`` at my_model.py:12``, the innermost line that is neither a library's nor qbench's; nothing without one."""
    here = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_file() and "site-packages" not in path.parts and not path.is_relative_to(here):
            return f" at {path.name}:{frame.lineno}"
    return ""


@contextmanager
def hooked(hooks: Iterable[Any]) -> Iterator[None]:
    """The hooks are there inside, and removed afterwards."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def plain_attention() -> Iterator[None]:
    """torch's fast path of attention, one operator that enters no layer, is off inside."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def first(result: Any) -> Any:
    """The output that counts: the result itself, or the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def list_tensors(result: Any) -> list[Any]:
    """The tensors in what a network returned, tuples, lists and dicts taken apart, in order."""
    if isinstance(result, tuple | list | dict):
        parts = result.values() if isinstance(result, dict) else result
        return [tensor for part in parts for tensor in list_tensors(part)]
    return [] if result is None else [result]


def of_one_example(module: Any, example: tuple[Any, ...]) -> Any:
    """The first output of a module for a batch of 1; raises ``BuildError`` where its forward does not take one."""
    import torch

    refused = reraise(  # the user's forward can raise anything
        BuildError,
        lambda error: (
            f"the network does not take a batch of 1 ({reason(error)}): variants are built, checked and timed on "
            "single examples; make its forward work for one (the usual causes: a squeeze() that drops the batch axis, "
            "statistics over the batch)"
        ),
    )
    with refused, torch.inference_mode():
        return first(module(*example))


def require_repeatable(*modules: Callable[..., Any], example: tuple[Any, ...], tolerance: float = 0.0) -> None:
    """Raises ``ChangesByItself`` where one of the modules gives two different first outputs for one example.

    ``tolerance`` is a share of the largest output. Without one, only ask why outputs were not as expected: the first
    calls of a ScriptModule may round in another way than the later, compiled ones.
    """
    import torch

    for module in modules:
        with torch.inference_mode():
            first_output, other = (first(module(*example)).clone() for _ in range(2))
        if first_output.shape != other.shape or not bool(
            ((first_output - other).abs() <= tolerance * first_output.abs().max()).all()
        ):
            raise ChangesByItself(_explain_change(module, example))


def _explain_change(module: Callable[..., Any], example: tuple[Any, ...]) -> str:
    draws = random_draws.describe_draws(lambda: module(*example))
    cause = (
        f"{draws}; turn dropout off in eval mode (nn.Dropout, or F.dropout(x, training=self.training)), and write what "
        "else draws so that it does not there"
        if draws
        else "nothing draws from torch's generator, so it keeps something of earlier calls (a cache, a counter), or "
        "has a generator of its own; make it forget that in eval mode"
    )
    return (
        f"the network's outputs differ from call to call: {cause}; a network that changes by itself cannot be compared "
        "with its int8"
    )
