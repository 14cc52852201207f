"""What to write into a suite, and to set for the process, for a change; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qbench.explain.change import Change
from qbench.explain.open_case import OpenCase
from qbench.plan.cases import Case
from qbench.process import imports
from qbench.record.explained import FLUSH_IN_TORCH, FLUSHING, IMPORT_ON_ONE, IMPORT_ON_SEVERAL

OPTION = "# Optional, where examples can wait for each other (single requests gain nothing):"


def write_suite_keys(change: Change | None, opened: OpenCase, option: Change | None = None) -> str | None:
    """The piece of a suite for a change, and as comments below it what an ``option`` has beyond it; None where a suite
    has no key for either."""
    text = _write_keys({} if change is None else change.suite_keys(opened.case, opened.recipe_keys, opened.recipes))
    keys = write_option(option, change, opened)
    if keys is None:
        return text or None
    settings = list_environment(change, opened.case)
    more = [line for line in list_environment(option, opened.case) if line not in settings]
    return "\n".join([*([text] if text else []), OPTION, *(f"# {line}" for line in [*keys.splitlines(), *more])])


def write_option(option: Change | None, change: Change | None, opened: OpenCase) -> str | None:
    """The keys of a change with more examples a call, which only some services can have, beyond those of ``change``;
    None where no change is about that."""
    if option is None or option.batch_size is None:
        return None
    keys, advised = (
        each.suite_keys(opened.case, opened.recipe_keys, opened.recipes) for each in (option, change or Change())
    )
    return _write_keys(_leave_out(keys, advised))


def _write_keys(keys: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(keys, sort_keys=False, default_flow_style=None, width=1000) if keys else ""
    return text.rstrip()


def _leave_out(keys: Mapping[str, Any], advised: Mapping[str, Any]) -> dict[str, Any]:
    """The keys without those that are advised with the same value."""
    left: dict[str, Any] = {}
    for name, value in keys.items():
        before = advised.get(name)
        if value != before:
            left[name] = _leave_out(value, before) if isinstance(value, dict) and isinstance(before, dict) else value
    return left


def list_environment(change: Change | None, case: Case) -> list[str]:
    """What to set for the process, where confirmed causes lie there."""
    if change is None:
        return []
    backend = change.backend or case.variant.backend
    lines = [_write_variable(name, value) for name, value in change.environment.items()]
    return [*lines, *([FLUSHING.get(backend, FLUSH_IN_TORCH)] if change.flush_denormals else [])]


def _write_variable(name: str, value: str) -> str:
    """What to do for a variable of the process; that of qbench's own is about when to pin it."""
    if name == imports.CORES:
        return IMPORT_ON_SEVERAL if "," in value else IMPORT_ON_ONE
    return f"export {name}={value}" if value else f"unset {name}"
