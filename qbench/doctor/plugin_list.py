"""What is registered: every plug-in with where it is defined and what is missing to use it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench import registry
from qbench.errors import UsageError
from qbench.foreign_text import join_lines


@dataclass(frozen=True, kw_only=True)
class PlugIn:
    """One plug-in. ``origin`` is ``file:line``; ``missing`` says why it cannot be used here and how to mend it,
    None if it can; ``modes`` are those that a backend builds."""

    kind: str
    name: str
    origin: str
    distribution: str
    missing: str | None
    modes: tuple[str, ...] = ()


def listing(kinds: Iterable[str] = registry.KINDS) -> tuple[PlugIn, ...]:
    """Every plug-in of the given kinds, in the registry's order, then the names that take an argument; imports no heavy
    library.

    Only backends and models are imported, since only they know what they need. Raises ``UsageError`` when two packages
    register one name.
    """
    return tuple(
        _row(entry) for kind in kinds for entry in (*registry.entries(kind).values(), *registry.families(kind))
    )


def to_text(rows: Sequence[PlugIn]) -> str:
    """The rows as aligned lines under one heading per kind: a name, its origin, and what is missing below it."""
    width = max(len(row.name) for row in rows)
    lines: list[str] = []
    for kind in dict.fromkeys(row.kind for row in rows):
        lines.append(f"{kind}:")
        for row in (row for row in rows if row.kind == kind):
            brought = "" if row.distribution == "qbench" else f"  ({row.distribution})"
            lines.append(f"  {row.name:<{width}}  {row.origin}{brought}")
            if row.modes:
                lines.append(f"  {'':<{width}}  modes: {', '.join(row.modes)}")
            if row.missing:
                lines.append(f"  {'':<{width}}  missing: {row.missing}")
    return "\n".join(map(join_lines, lines))


def _row(entry: registry.Entry) -> PlugIn:
    return PlugIn(
        kind=entry.kind,
        name=entry.name,
        origin=registry.origin(entry),
        distribution=entry.distribution,
        missing=_missing(entry),
        modes=_list_modes(entry),
    )


def _list_modes(entry: registry.Entry) -> tuple[str, ...]:
    if entry.kind != "backend":
        return ()
    try:
        modes: tuple[str, ...] = getattr(registry.load(entry.kind, entry.name), "modes", ())
    except UsageError:
        return ()
    return modes


def _missing(entry: registry.Entry) -> str | None:
    if entry.kind in ("backend", "model"):
        try:
            reason: str | None = registry.load(entry.kind, entry.name).missing()
        except UsageError as error:
            return str(error)
        return reason
    module = entry.target.partition(":")[0]
    try:
        installed = importlib.util.find_spec(module) is not None
    except ImportError:  # a parent package that is not there
        installed = False
    return None if installed else f"module '{module}' is not installed; reinstall {entry.distribution}"
