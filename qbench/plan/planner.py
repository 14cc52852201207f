"""Stage 2: Suite -> Plan: which variants are built, which cases are measured, what is skipped and why. Pure.

Every cell that the matrix asks for ends as exactly one of: a case, a skip with a reason, or (where it has no
meaning, such as fp32 on fbgemm) a word in a note.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench import registry
from qbench.errors import UsageError
from qbench.hosts.base import NATIVE, Host
from qbench.plan import notes as plan_notes
from qbench.plan.cases import Case, Plan, PlannedCase, Skip, Variant
from qbench.plan.decision_rule import make_decision_rule, note_idle_keys
from qbench.plan.matrix import expand_matrix
from qbench.plan.resolve import Environment, resolve_cells
from qbench.plan.variants import list_variants
from qbench.record.schema import CaseKey
from qbench.suite import Suite
from qbench.suite.gate import CASE_KEYS, note_idle_overrides

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
Resolved = Mapping[CaseKey, PlannedCase | Skip]


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
    backends: Mapping[str, Backend],
    *,
    cores: int,
    only: str | None = None,
    memory_bytes: int | None = None,
    nodes: Mapping[str, int] = _NO_NODES,
) -> Plan:
    """The plan of a suite on a machine with ``cores`` usable cores and so much memory (None: not known).

    ``only`` keeps the cases whose id matches one of its comma-separated globs (and the baselines and twins they need).
    A cell with more threads than ``cores`` is skipped. ``nodes``: the cores of each host that is a class of a cluster's
    nodes. Raises ``UsageError`` where that leaves nothing to run, for a
    glob without a match, a backend that ``backends`` lacks or a matrix beyond ``matrix.MAX_CELLS``.
    """
    cells, notes = expand_matrix(suite)
    listed = list_variants(suite, backends, cells)
    hosts: dict[str, Host] = {
        name: registry.load("host", name) for name in dict.fromkeys([NATIVE, *(key.host for key in cells)])
    }
    chosen = suite.measure.cores is not None
    resolved = resolve_cells(cells, listed, Environment(hosts=hosts, cores=cores, chosen=chosen, nodes=nodes))
    asked = _with_twins([key for key in cells if key in resolved], resolved)
    kept = asked if only is None else _match_globs(asked, only)
    keys = _with_twins(kept, resolved)
    references = _find_references(keys, resolved)
    ordered = sorted([*keys, *references], key=_make_sort_key(backends, [*cells, *keys]))
    planned = tuple(
        replace(case, added=True) if key in references else case
        for key in ordered
        if isinstance(case := resolved[key], PlannedCase)
    )
    skipped = tuple(skip for key in ordered if isinstance(skip := resolved[key], Skip))
    if not planned:
        _require_cores(suite, [skip for key in keys if isinstance(skip := resolved[key], Skip)])
    notes += plan_notes.note_no_cases(listed, hosts, cells)
    notes += note_idle_overrides(suite.gate, asked, suite.place, of="this suite")
    notes += plan_notes.note_idle_quantize_keys(suite, asked)
    notes += [f"--filter '{only}' keeps {len(kept)} of {len(asked)} cells"] * (len(kept) < len(asked))
    notes += plan_notes.note_planned(suite, planned, references, hosts)
    if not planned:
        notes.append(f"nothing to run: {'every case is skipped' if skipped else 'the matrix holds no case'}")
    notes += note_idle_keys(suite, memory_bytes=memory_bytes)
    return Plan(
        suite=suite.suite, cases=planned, skipped=skipped, notes=tuple(notes), decision=make_decision_rule(suite)
    )


def _match_globs(keys: list[CaseKey], only: str) -> list[CaseKey]:
    """The cells whose id matches one of the globs; each glob must match one."""
    matched: set[str] = set()
    for glob in (part.strip() for part in only.split(",")):
        match = re.compile(fnmatch.translate(glob)).match
        matches = {key.id for key in keys if match(key.id)}
        if not matches:
            some = ", ".join(key.id for key in keys[:5]) + (", …" if len(keys) > 5 else "") if keys else "none"
            words = {word for key in keys for word in key.id.split("/")}
            near = next((hint for part in glob.split("/") if (hint := registry.suggest(part, words - {part}))), ";")
            raise UsageError(
                f"--filter '{glob}' matches no case{near} ids are model/mode/backend/t<threads>/b<batch size>"
                f"{'' if all(key.host == NATIVE for key in keys) else '[/<host>]'}: {some}"
            )
        matched |= matches
    return [key for key in keys if key.id in matched]


def _find_references(keys: list[CaseKey], resolved: Resolved) -> set[CaseKey]:
    """The references that the cells that run need and that are not among the cells; and theirs."""
    present, references = set(keys), set[CaseKey]()
    pending = list(keys)
    while pending:
        case = resolved[pending.pop()]
        reference = case.reference if isinstance(case, PlannedCase) else None
        if reference is not None and reference not in present:
            present.add(reference)
            references.add(reference)
            pending.append(reference)
    return references


def _with_twins(keys: list[CaseKey], resolved: Resolved) -> list[CaseKey]:
    """The cells, then the fp32 twins of the QAT cells that run and that are not among them."""
    twins = (case.twin for key in keys if isinstance(case := resolved[key], PlannedCase))
    return [*dict.fromkeys([*keys, *(twin for twin in twins if twin is not None)])]


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


def _require_cores(suite: Suite, skips: list[Skip]) -> None:
    """Raises ``UsageError`` where fewer threads, or more cores, would have left something to run."""
    skip = next((skip for skip in skips if skip.too_wide), None)
    if skip is not None:
        place = "matrix.threads" if skip.key.threads in suite.matrix.threads else "matrix.include"
        raise UsageError(f"{suite.place(place)}: {place}: nothing to run: {skip.reason}")


def _make_sort_key(backends: Mapping[str, Backend], keys: Iterable[CaseKey]) -> Callable[[CaseKey], tuple[int, ...]]:
    """The sort key: model, threads, batch size, host, runtime, fp32 first, then backend and mode as in the suite."""
    ranks: dict[str, dict[object, int]] = {name: {} for name in (*CASE_KEYS, "runtime")}
    for key in keys:
        for name in CASE_KEYS:
            ranks[name].setdefault(getattr(key, name), len(ranks[name]))
        ranks["runtime"].setdefault(backends[key.backend].runtime, len(ranks["runtime"]))

    def rank_key(key: CaseKey) -> tuple[int, ...]:
        return (
            ranks["model"][key.model],
            ranks["threads"][key.threads],
            ranks["batch_size"][key.batch_size],
            ranks["host"].get(key.host, -1),  # the reference of a host that does not time is native
            ranks["runtime"][backends[key.backend].runtime],
            key.mode != "fp32",
            ranks["backend"].get(key.backend, -1),  # a reference's backend may stand nowhere in the suite
            ranks["mode"].get(key.mode, -1),
            ranks["recipe"].get(key.recipe, -1),
        )

    return rank_key
