"""How a variant was made, told by what differs from the default recipe of its mode and backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from qbench import registry
from qbench.modes import FLOATS
from qbench.quant.recipe import AUTO, AUTO_FLOWS
from qbench.record.schema import Record

# What is told beside the differences: how the network was traced and its ranges chosen.
ALWAYS = ("flow", "calibrator")


def describe_recipe(record: Record) -> str:
    """``fx, histogram; skip_layers conv1``: what always matters (of flow ``auto`` the one that took it), then what
    differs from the default; empty for fp32 as it is."""
    recipe = record.recipe or {}
    default = dict(_default(record.case.mode, record.case.backend))
    if default.get("flow") == AUTO and recipe.get("flow") == AUTO_FLOWS[0]:  # the default, as older records have it
        default["flow"] = AUTO_FLOWS[0]
    took = {"flow": record.artifact.flow} if record.artifact is not None and recipe.get("flow") == AUTO else {}
    named = ", ".join(str(took.get(key) or recipe[key]) for key in ALWAYS if recipe.get(key))
    if record.case.mode in FLOATS and not record.case.is_twin:
        return ""
    differences = ", ".join(
        f"{key.replace('_', ' ')}: {_say(recipe.get(key))}"
        for key in sorted(set(recipe) - set(ALWAYS))  # an older record lacks keys: nobody chose them
        if _plain(recipe.get(key)) != _plain(default.get(key))
    )
    default_flow = all(_plain(recipe.get(key)) == _plain(default.get(key)) for key in ALWAYS)
    flow = f"{named} (default)" if named and default_flow and not differences else named
    return "; ".join(part for part in (flow, differences) if part)


@cache
def _default(mode: str, backend: str) -> tuple[tuple[str, Any], ...]:
    """The recipe that a suite without ``quantize:`` gives, as pairs; none for a backend that is not built in."""
    from qbench.suite.settings import Quantize

    if mode not in ("dynamic", "static", "qat") or backend not in registry.BUILT_IN["backend"]:
        return ()
    recipe = registry.load("backend", backend).resolve(mode, Quantize().recipe(mode, backend))
    return tuple((key, value) for key, value in asdict(recipe).items() if key != "name" and value not in (None, ()))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(value) or None
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value


def _say(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
