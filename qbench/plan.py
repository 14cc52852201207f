"""Stage 2: Suite -> Plan: which variants are built, which cases are measured, what is skipped and why. Pure.

Every cell that the matrix asks for ends as exactly one of: a case, a skip with a reason, or (where it has no
meaning, such as fp32 on fbgemm) a word in a note.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qbench import registry
from qbench.errors import UsageError
from qbench.models.base import ModelReference
from qbench.quant.recipe import DEFAULT, Recipe
from qbench.record import CaseKey
from qbench.suite import Suite
from qbench.suite.cells import Cell, case_id, requested, variant_id

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """Model x recipe x backend: what is built."""

    model: ModelReference
    mode: str
    backend: str
    recipe: Recipe

    @property
    def id(self) -> str:
        """``model/mode/backend``, ``model/mode@recipe/backend`` for a recipe that is not the default."""
        return variant_id(self.model.name, self.mode, self.backend, self.recipe.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Variant x threads x batch size: what is measured."""

    variant: Variant
    threads: int
    batch_size: int

    @property
    def id(self) -> str:
        """``model/mode/backend/t<threads>/b<batch size>``."""
        return f"{self.variant.id}/t{self.threads}/b{self.batch_size}"

    @property
    def key(self) -> CaseKey:
        """The case as records name it."""
        return CaseKey(
            id=self.id,
            model=self.variant.model.name,
            mode=self.variant.mode,
            backend=self.variant.backend,
            threads=self.threads,
            batch_size=self.batch_size,
            recipe=self.variant.recipe.name,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCase:
    """A case to measure. ``baseline`` is the id of the like-for-like fp32, None for that fp32 itself;
    ``reference`` says that the plan added the case, as a baseline that nobody asked for."""

    case: Case
    baseline: str | None
    reference: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """A case that cannot exist here, and a reason that a person can act on."""

    case: Case
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a run will do. ``cases`` stand in the order in which they run: by model, threads and batch size,
    then by runtime with its fp32 first."""

    suite: str
    cases: tuple[PlannedCase, ...]
    skipped: tuple[Skip, ...]
    notes: tuple[str, ...]


def load_backends(suite: Suite) -> dict[str, Backend]:
    """The backends that a suite names and those that their baselines run on; raises ``UsageError``."""
    found: dict[str, Backend] = {}
    for name in (*suite.matrix.backends, *(cell.backend for cell in suite.matrix.include)):
        for each in (name, registry.load("backend", name).runtime):
            found[each] = registry.load("backend", each)
    return found


def make_plan(suite: Suite, backends: Mapping[str, Backend], *, cores: int, only: str | None = None) -> Plan:
    """The plan of a suite on a machine with ``cores`` usable cores.

    ``only`` keeps the cases whose id matches one of its comma-separated globs (and the baselines they need).
    Raises ``UsageError`` for a glob without a match, more threads than cores, a backend that ``backends`` lacks
    or a matrix beyond ``cells.MAX_CELLS``.
    """
    asked, notes = requested(suite)
    variants = _Variants(suite, backends)
    cells, more = _meaningful(asked, variants)
    notes += more
    if only is not None:
        wanted = _matching(cells, only)
        notes += [f"--filter '{only}' keeps {len(wanted)} of {len(cells)} cells"] * (len(wanted) < len(cells))
        cells = wanted
    _require_cores(suite, cells, cores)
    references = _references(cells, variants)
    every = sorted([*cells, *references], key=_order(variants, asked))
    planned = tuple(variants.planned(cell, cell in references) for cell in every if variants.why_skipped(cell) is None)
    skipped = tuple(
        Skip(case=variants.case(cell), reason=reason)
        for cell in every
        if (reason := variants.why_skipped(cell)) is not None
    )
    notes += _added(references)
    if not planned:
        notes.append(f"nothing to run: {'every case is skipped' if skipped else 'the matrix holds no case'}")
    return Plan(suite=suite.suite, cases=planned, skipped=skipped, notes=tuple(notes))


class _Variants:
    """What is known of each variant of one suite, asked once: its recipe, and why it cannot be built."""

    def __init__(self, suite: Suite, backends: Mapping[str, Backend]) -> None:
        self._suite = suite
        self._backends = backends
        self._models = {reference.name: reference for reference in suite.references()}
        self._known = {name: (one.missing(), one.kind) for name, one in self._models.items()}
        self._missing: dict[str, str | None] = {}
        self._choices = {choice.name: choice for choice in suite.recipe}
        self._variants: dict[tuple[str, str, str, str], Variant] = {}
        self._reasons: dict[tuple[str, str, str], str | None] = {}

    def backend(self, name: str) -> Backend:
        """The backend of that name."""
        if name not in self._backends:
            raise UsageError(registry.unknown("backend", name, self._backends))
        return self._backends[name]

    def baseline(self, cell: Cell) -> Cell | None:
        """The like-for-like fp32 of a cell; None for that fp32 itself."""
        model, mode, backend, threads, batch_size, _ = cell
        runtime = self.backend(backend).runtime
        return None if (mode, backend) == ("fp32", runtime) else (model, "fp32", runtime, threads, batch_size, DEFAULT)

    def why_skipped(self, cell: Cell) -> str | None:
        """Why a cell is skipped: for its own sake, or because its baseline cannot be; None if it runs."""
        own = self._why_not(cell[:3])
        baseline = self.baseline(cell)
        if own is not None or baseline is None:
            return own
        reason = self._why_not(baseline[:3])
        return None if reason is None else f"its baseline {case_id(baseline)} is skipped: {reason}"

    def _why_not(self, key: tuple[str, str, str]) -> str | None:
        if key not in self._reasons:
            model, mode, name = key
            backend = self.backend(name)
            if name not in self._missing:
                self._missing[name] = backend.missing()
            missing, kind = self._known[model]
            reason = missing or self._missing[name] or backend.why_not(mode=mode, kind=kind)
            if reason is None and mode not in backend.modes:
                reason = f"{name} has no {mode} mode; it has {', '.join(backend.modes)}"
            self._reasons[key] = reason
        return self._reasons[key]

    def case(self, cell: Cell) -> Case:
        """The case of a cell; cases of one variant share it."""
        model, mode, backend, threads, batch_size, recipe = cell
        key = (model, mode, backend, recipe)
        if key not in self._variants:
            self._variants[key] = Variant(
                model=self._models[model], mode=mode, backend=backend, recipe=self.recipe(mode, backend, recipe)
            )
        return Case(variant=self._variants[key], threads=threads, batch_size=batch_size)

    def recipe(self, mode: str, backend: str, name: str) -> Recipe:
        """The recipe of that name as the backend takes it, without open choices."""
        recipe = self._suite.quantize.recipe(mode, backend)
        if mode == "fp32":
            return recipe
        if (choice := self._choices.get(name)) is not None:
            recipe = choice.over(recipe)
        return replace(self.backend(backend).resolve(mode, recipe), name=recipe.name)

    def why_no_recipe(self, mode: str, backend: str, name: str) -> str | None:
        """Why a recipe has no meaning for a mode on a backend: another flow, or nothing that differs; None if it has.

        Raises ``UsageError`` for a name that the suite's ``recipe`` does not hold.
        """
        if mode == "fp32":
            return None
        if name not in self._choices:
            have = ", ".join(self._choices)
            raise UsageError(f"{self._suite.place('matrix.include')}: no recipe named '{name}'; there are {have}")
        flow, flows = self._choices[name].flow, self.backend(backend).flows
        if flow is not None and flow not in flows:
            return f"its flow is {' or '.join(flows) or 'its own'}"
        own = replace(self.recipe(mode, backend, name), name=DEFAULT)
        for other in itertools.takewhile(lambda one: one != name, self._choices):
            known = self._choices[other].flow
            if (known is None or known in flows) and own == replace(self.recipe(mode, backend, other), name=DEFAULT):
                return f"it is the same as {other}"
        return None

    def planned(self, cell: Cell, reference: bool) -> PlannedCase:
        """The planned case of a cell that runs."""
        baseline = self.baseline(cell)
        name = None if baseline is None else case_id(baseline)
        return PlannedCase(case=self.case(cell), baseline=name, reference=reference)


def _meaningful(cells: list[Cell], variants: _Variants) -> tuple[list[Cell], list[str]]:
    """The cells that can be cases anywhere, and a note for each backend that has others."""
    kept, meaningless = [], dict[str, dict[str, None]]()
    meaning: dict[tuple[str, str], bool] = {}
    idle: dict[tuple[str, str, str], str | None] = {}
    for cell in cells:
        _, mode, name, _, _, recipe = cell
        if (mode, name) not in meaning:
            backend = variants.backend(name)
            other_runtime = mode == "fp32" and backend.runtime != name
            meaning[mode, name] = not other_runtime and (mode == "fp32" or backend.modes != ("fp32",))
        if not meaning[mode, name]:
            meaningless.setdefault(name, {})[mode] = None
        elif (mode, name, recipe) not in idle:
            idle[mode, name, recipe] = variants.why_no_recipe(mode, name, recipe)
        if meaning[mode, name] and idle[mode, name, recipe] is None:
            kept.append(cell)
    order = dict.fromkeys(cell[2] for cell in cells)
    without = [(name, meaningless[name]) for name in order if name in meaningless]
    notes = [_no_case(variants.backend(name), tuple(modes)) for name, modes in without]
    return kept, notes + _without_meaning(idle)


def _without_meaning(idle: Mapping[tuple[str, str, str], str | None]) -> list[str]:
    """A note for each backend and recipe that give no case, by the reason."""
    modes: dict[tuple[str, str, str], list[str]] = {}
    for (mode, backend, recipe), reason in idle.items():
        if reason is not None:
            modes.setdefault((backend, recipe, reason), []).append(mode)
    return [
        f"{backend}: {', '.join(found)} with the recipe {recipe} is no case: {reason}"
        for (backend, recipe, reason), found in modes.items()
    ]


def _no_case(backend: Backend, modes: tuple[str, ...]) -> str:
    if modes == ("fp32",):
        return f"{backend.name}: fp32 is no case; its runtime is {backend.runtime}, whose fp32 is the baseline"
    listed = " and ".join([", ".join(modes[:-1])] * (len(modes) > 1) + [modes[-1]])
    return f"{backend.name}: {listed} {'is no case' if len(modes) == 1 else 'are no cases'}; it runs fp32 only"


def _matching(cells: list[Cell], only: str) -> list[Cell]:
    """The cells whose id matches one of the globs; each glob must match one."""
    ids = [case_id(cell) for cell in cells]
    kept: set[int] = set()
    for glob in (part.strip() for part in only.split(",")):
        match = re.compile(fnmatch.translate(glob)).match
        found = {index for index, name in enumerate(ids) if match(name)}
        if not found:
            some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "") if ids else "none"
            raise UsageError(
                f"--filter '{glob}' matches no case; ids are model/mode/backend/t<threads>/b<batch size>: {some}"
            )
        kept |= found
    return [cell for index, cell in enumerate(cells) if index in kept]


def _references(cells: list[Cell], variants: _Variants) -> dict[Cell, None]:
    """The baselines that the cells that run need and that are not among the cells, in order."""
    needed = (variants.baseline(cell) for cell in cells if variants.why_skipped(cell) is None)
    have = set(cells)
    return dict.fromkeys(cell for cell in needed if cell is not None and cell not in have)


def _added(references: Iterable[Cell]) -> list[str]:
    return [
        f"added {count} reference {'case' if count == 1 else 'cases'}: fp32 on {runtime}, as the baseline"
        for runtime, count in sorted(Counter(cell[2] for cell in references).items())
    ]


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


def _require_cores(suite: Suite, cells: list[Cell], cores: int) -> None:
    threads = max((cell[3] for cell in cells), default=0)
    if threads > cores:
        key = "matrix.threads" if threads in suite.matrix.threads else "matrix.include"
        have = "1 core" if cores == 1 else f"{cores} cores"
        raise UsageError(
            f"{suite.place(key)}: {key}: {threads} threads, but this process may use {have}; "
            "take fewer threads, or allow it more cores"
        )


def _order(variants: _Variants, cells: Iterable[Cell]) -> Callable[[Cell], tuple[int, ...]]:
    """The sort key: model, threads, batch size, runtime, fp32 first, then backend and mode as the suite has them."""
    ranks: list[dict[Any, int]] = [{}, {}, {}, {}, {}, {}]
    runtimes: dict[str, int] = {}
    for cell in cells:
        for rank, value in zip(ranks, cell, strict=True):
            rank.setdefault(value, len(rank))
        runtimes.setdefault(variants.backend(cell[2]).runtime, len(runtimes))
    models, modes, names, threads, batch_sizes, recipes = ranks

    def key(cell: Cell) -> tuple[int, ...]:
        model, mode, name, count, batch_size, recipe = cell
        return (
            models[model],
            threads[count],
            batch_sizes[batch_size],
            runtimes[variants.backend(name).runtime],
            mode != "fp32",
            names.get(name, -1),  # a reference's backend may stand nowhere in the suite
            modes.get(mode, -1),
            recipes.get(recipe, -1),
        )

    return key
