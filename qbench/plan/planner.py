"""Stage 2: Suite -> Plan: which variants are built, which cases are measured, what is skipped and why. Pure.

Every cell that the matrix asks for ends as exactly one of: a case, a skip with a reason, or (where it has no
meaning, such as fp32 on fbgemm) a word in a note.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench import registry
from qbench.errors import UsageError
from qbench.hosts.base import NATIVE, Host
from qbench.plan import notes as plan_notes
from qbench.plan.cases import Case, Plan, PlannedCase, Skip, Variant
from qbench.plan.decision_rule import make_decision_rule, note_idle_keys
from qbench.plan.filter import match_globs, sort_cells
from qbench.plan.matrix import expand_matrix
from qbench.plan.plan_or_skip import Environment, resolve_cells
from qbench.plan.references import add_twins, find_references
from qbench.plan.variants import list_variants
from qbench.suite import Suite
from qbench.suite.gate import note_idle_overrides

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend

__all__ = [
    "Case",
    "Plan",
    "PlannedCase",
    "Skip",
    "Variant",
    "load_backends",
    "make_plan",
    "measuring_cores",
]


_NO_NODES: Mapping[str, int] = MappingProxyType({})


def load_backends(suite: Suite) -> dict[str, Backend]:
    """The backends that a suite names, those of the user's int8 files, and those that their baselines run on; raises
    ``UsageError``."""
    backends: dict[str, Backend] = {}
    chosen = (file.choose_backends(suite.matrix.backends) for model in suite.models for file in model.int8)
    included = (cell.backend for cell in suite.matrix.include)
    for name in dict.fromkeys((*suite.matrix.backends, *included, *itertools.chain(*chosen))):
        for runtime in (name, registry.load("backend", name).runtime):
            backends[runtime] = registry.load("backend", runtime)
    return backends


def make_plan(
    suite: Suite,
    backends: Mapping[str, Backend] | None = None,
    *,
    cores: int,
    only: str | None = None,
    memory_bytes: int | None = None,
    nodes: Mapping[str, int] = _NO_NODES,
) -> Plan:
    """The plan of a suite on a machine with ``cores`` usable cores and so much memory (None: not known).
    ``backends``: None loads those that it names.

    ``only`` keeps the cases whose id matches one of its comma-separated globs (and the baselines and twins they need).
    A cell with more threads than ``cores`` is skipped. ``nodes``: the cores of each host that is a class of a cluster's
    nodes. Raises ``UsageError`` where that leaves nothing to run, for a
    glob without a match or a matrix beyond ``matrix.MAX_CELLS``.
    """
    backends = load_backends(suite) if backends is None else backends
    cells, notes = expand_matrix(suite)
    listed = list_variants(suite, backends, cells)
    hosts: dict[str, Host] = {
        name: registry.load("host", name) for name in dict.fromkeys([NATIVE, *(key.host for key in cells)])
    }
    chosen = suite.measure.cores is not None
    resolved = resolve_cells(cells, listed, Environment(hosts=hosts, cores=cores, chosen=chosen, nodes=nodes))
    asked = add_twins([key for key in cells if key in resolved], resolved)
    kept = asked if only is None else match_globs(asked, only)
    keys = add_twins(kept, resolved)
    references = find_references(keys, resolved)
    ordered = sort_cells([*keys, *references], backends, [*cells, *keys])
    planned = tuple(
        replace(case, added=True) if key in references else case
        for key in ordered
        if isinstance(case := resolved[key], PlannedCase)
    )
    skipped = tuple(skip for key in ordered if isinstance(skip := resolved[key], Skip))
    too_wide = next((skip for key in keys if isinstance(skip := resolved[key], Skip) and skip.too_wide), None)
    if not planned and too_wide is not None:  # fewer threads, or more cores, would have left something to run
        place = "matrix.threads" if too_wide.key.threads in suite.matrix.threads else "matrix.include"
        raise UsageError(f"{suite.place(place)}: {place}: nothing to run: {too_wide.reason}")
    idle_overrides = note_idle_overrides(suite.gate, asked, suite.place, of="this suite")
    notes += plan_notes.note_no_cases(listed, hosts, cells) + idle_overrides
    notes += plan_notes.note_idle_quantize_keys(suite, asked)
    notes += [f"--filter '{only}' keeps {len(kept)} of {len(asked)} cells"] * (len(kept) < len(asked))
    notes += plan_notes.note_planned(suite, planned, references, hosts)
    if not planned:
        notes.append(f"nothing to run: {'every case is skipped' if skipped else 'the matrix holds no case'}")
    notes += note_idle_keys(suite, memory_bytes=memory_bytes)
    decision = make_decision_rule(suite)
    return Plan(suite=suite.suite, cases=planned, skipped=skipped, notes=tuple(notes), decision=decision)


def measuring_cores(suite: Suite, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """The cores that cases are measured on: those the suite names, else all of ``allowed``.

    Raises ``UsageError`` where the suite names one that this process may not use.
    """
    named = suite.measure.cores
    outside = [core for core in named or () if core not in allowed]
    if outside:
        raise UsageError(
            f"{suite.place('measure.cores')}: measure.cores: this process may use the cores "
            f"{', '.join(map(str, allowed))}, not {', '.join(map(str, outside))}; name others, or allow it more "
            "(taskset, docker --cpuset-cpus)"
        )
    return allowed if named is None else named
