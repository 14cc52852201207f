"""Stage 2: Suite -> Plan: which variants are built, which cases are measured, what is skipped and why. Pure.

Every cell that the matrix asks for ends as exactly one of: a case, a skip with a reason, or (where it has no
meaning, such as fp32 on fbgemm) a word in a note.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qbench import registry
from qbench.errors import UsageError
from qbench.hosts.base import Host
from qbench.plan.cases import Case, Plan, PlannedCase, Skip, Variant
from qbench.plan.decision_rule import make_decision_rule, note_idle_keys
from qbench.plan.matrix import Cell, case_id, requested
from qbench.plan.variants import Variants
from qbench.quant.recipe import FRAMEWORK_DEFAULT
from qbench.record.schema import NATIVE
from qbench.suite import Suite
from qbench.suite.gate import CASE_KEYS, note_idle_overrides
from qbench.suite.settings import DynamicRecipe, QatRecipe, StaticRecipe

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
    """The backends that a suite names and those that their baselines run on; raises ``UsageError``."""
    backends: dict[str, Backend] = {}
    for name in (*suite.matrix.backends, *(cell.backend for cell in suite.matrix.include)):
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
    asked, notes = requested(suite)
    variants = Variants(suite, backends, cores=cores, nodes=nodes)
    cells, more = _keep_meaningful(asked, variants)
    notes += more
    cells += _find_twins(cells, variants)
    keys = (dict(zip(CASE_KEYS, cell, strict=True)) for cell in cells)
    notes += note_idle_overrides(suite.gate, keys, suite.place, of="this suite")
    notes += _note_idle_quantize_keys(suite, cells)
    if only is not None:
        wanted = _match_globs(cells, only)
        notes += [f"--filter '{only}' keeps {len(wanted)} of {len(cells)} cells"] * (len(wanted) < len(cells))
        cells = wanted + _find_twins(wanted, variants)
    references = _find_references(cells, variants)
    every = sorted([*cells, *references], key=_make_sort_key(variants, [*asked, *cells]))
    planned = tuple(variants.planned(cell, cell in references) for cell in every if variants.why_skipped(cell) is None)
    skipped = tuple(
        Skip(case=variants.case(cell), reason=reason)
        for cell in every
        if (reason := variants.why_skipped(cell)) is not None
    )
    notes += _note_references(references) + _note_twins(planned)
    notes += _note_seeds(suite, planned) + _note_predicted(planned) + _note_emulated(suite, planned)
    if not planned:
        _require_cores(suite, cells, variants)
        notes.append(f"nothing to run: {'every case is skipped' if skipped else 'the matrix holds no case'}")
    notes += note_idle_keys(suite, memory_bytes=memory_bytes)
    return Plan(
        suite=suite.suite, cases=planned, skipped=skipped, notes=tuple(notes), decision=make_decision_rule(suite)
    )


def _keep_meaningful(cells: list[Cell], variants: Variants) -> tuple[list[Cell], list[str]]:
    """The cells that can be cases anywhere, and a note for each backend that has others."""
    kept, meaningless = [], dict[str, dict[str, None]]()
    emulated: dict[str, None] = {}
    meaning: dict[tuple[str, str], bool] = {}
    idle: dict[tuple[str, str, str], str | None] = {}
    for cell in cells:
        _, mode, name, _, _, recipe, _ = cell
        if (mode, name) not in meaning:
            backend = variants.backend(name)
            other_runtime = mode == "fp32" and backend.runtime != name
            meaning[mode, name] = not other_runtime and (mode == "fp32" or backend.modes != ("fp32",))
        if not meaning[mode, name]:
            meaningless.setdefault(name, {})[mode] = None
        elif (mode, name, recipe) not in idle:
            idle[mode, name, recipe] = variants.why_no_recipe(mode, name, recipe)
        if meaning[mode, name] and mode == "fp32" and variants.is_emulated(cell):
            emulated[cell[-1]] = None
        elif meaning[mode, name] and idle[mode, name, recipe] is None:
            kept.append(cell)
    order = dict.fromkeys(cell[2] for cell in cells)
    without = [(name, meaningless[name]) for name in order if name in meaningless]
    notes = [_note_no_case(variants.backend(name), tuple(modes)) for name, modes in without]
    notes += [f"fp32 on {host} is no case: int8 answers there are held against those of native" for host in emulated]
    return kept, notes + _note_meaningless(idle)


def _note_meaningless(idle: Mapping[tuple[str, str, str], str | None]) -> list[str]:
    """A note for each backend and recipe that give no case, by the reason."""
    modes: dict[tuple[str, str, str], list[str]] = {}
    for (mode, backend, recipe), reason in idle.items():
        if reason is not None:
            modes.setdefault((backend, recipe, reason), []).append(mode)
    return [
        f"{backend}: {', '.join(names)} with the recipe {recipe} is no case: {reason}"
        for (backend, recipe, reason), names in modes.items()
    ]


def _note_no_case(backend: Backend, modes: tuple[str, ...]) -> str:
    if modes == ("fp32",):
        return f"{backend.name}: fp32 is no case; its runtime is {backend.runtime}, whose fp32 is the baseline"
    listed = " and ".join([", ".join(modes[:-1])] * (len(modes) > 1) + [modes[-1]])
    return f"{backend.name}: {listed} {'is no case' if len(modes) == 1 else 'are no cases'}; it runs fp32 only"


def _match_globs(cells: list[Cell], only: str) -> list[Cell]:
    """The cells whose id matches one of the globs; each glob must match one."""
    ids = [case_id(cell) for cell in cells]
    kept: set[int] = set()
    for glob in (part.strip() for part in only.split(",")):
        match = re.compile(fnmatch.translate(glob)).match
        matches = {index for index, name in enumerate(ids) if match(name)}
        if not matches:
            some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "") if ids else "none"
            raise UsageError(
                f"--filter '{glob}' matches no case; ids are model/mode/backend/t<threads>/b<batch size>"
                f"{'' if all(cell[-1] == NATIVE for cell in cells) else '[/<host>]'}: {some}"
            )
        kept |= matches
    return [cell for index, cell in enumerate(cells) if index in kept]


def _find_references(cells: list[Cell], variants: Variants) -> dict[Cell, None]:
    """The baselines that the cells that run need and that are not among the cells, in order; and theirs."""
    needed = (variants.baseline(cell) for cell in cells if variants.why_skipped(cell) is None)
    have = set(cells)
    missing = [cell for cell in dict.fromkeys(needed) if cell is not None and cell not in have]
    if not missing:
        return {}
    return dict.fromkeys(missing) | _find_references([*cells, *missing], variants)


def _find_twins(cells: list[Cell], variants: Variants) -> list[Cell]:
    """The fp32 twins of the QAT cells that run and that are not among the cells, in order."""
    twins = dict.fromkeys(twin for cell in cells if (twin := variants.twin(cell)) is not None)
    have = set(cells)
    return [cell for cell in twins if cell not in have]


def _note_idle_quantize_keys(suite: Suite, cells: Iterable[Cell]) -> list[str]:
    """A note for each backend whose own keys of a mode no cell takes, and for targets that a framework's own recipe
    does not look at."""
    quantize, present = suite.quantize, {(cell[1], cell[2]) for cell in cells}
    modes: dict[str, DynamicRecipe | StaticRecipe | QatRecipe]
    modes = {"dynamic": quantize.dynamic, "static": quantize.static, "qat": quantize.qat}
    keys = [
        f"quantize.{mode}.backends.{backend}"
        for mode, section in modes.items()
        for backend in section.backends
        if (mode, backend) not in present
    ]
    notes = [f"{suite.place(key)}: {key} is for no case of this suite" for key in keys]
    untouched = {cell[1] for cell in cells if cell[5] == FRAMEWORK_DEFAULT}
    targets = {"quantize.target": untouched if quantize.target is not None else set()}
    targets |= {
        f"quantize.{mode}.target": untouched & {mode} for mode, section in modes.items() if section.target is not None
    }
    return notes + [
        f"{suite.place(key)}: {key} has no effect on recipe {FRAMEWORK_DEFAULT}, which is left as the framework has it"
        for key, concerned in targets.items()
        if concerned
    ]


def _note_references(references: Iterable[Cell]) -> list[str]:
    counts = Counter(("fp32" if cell[1] == "fp32" else "int8", cell[2]) for cell in references)
    return [
        f"added {count} reference {'case' if count == 1 else 'cases'}: {kind} on {backend}, as the baseline"
        for (kind, backend), count in sorted(counts.items())
    ]


def _note_twins(planned: Iterable[PlannedCase]) -> list[str]:
    """A note on what the twins are, where there are some."""
    twins = {case.twin for case in planned if case.twin is not None}
    if not twins:
        return []
    count = f"{len(twins)} fp32 twin{' is' if len(twins) == 1 else 's are'}"
    return [f"{count} trained as the qat cases beside, without fake quantization (quantize.qat.fp32_twin)"]


def _note_predicted(planned: Iterable[PlannedCase]) -> list[str]:
    """A note for each backend whose answers on a host are computed on this machine."""
    pairs = dict.fromkeys((each.case.variant.backend, each.case.host) for each in planned)
    hosts: dict[str, Host] = {host: registry.load("host", host) for _, host in pairs}
    return [
        f"{backend} on {host}: its answers are predicted, not measured: it has no switch that hides instructions"
        for backend, host in pairs
        if hosts[host].answers(backend) == "predicted"
    ]


def _note_emulated(suite: Suite, planned: Iterable[PlannedCase]) -> list[str]:
    """A note for each host that answers a few examples only, and slowly."""
    cases = [each.case for each in planned]
    files = {(case.host, case.variant.id, case.variant.mode == "dynamic" and case.batch_size) for case in cases}
    slow = {host for host in {file[0] for file in files} if _answers_by_emulation(host)}
    emulated = Counter(host for host, *_ in files if host in slow)
    samples = suite.evaluate.emulated_samples
    return [
        f"{host}: answers only, no latency, of {'1 artifact' if count == 1 else f'{count} artifacts'}, for the "
        f"{samples} evaluation examples nearest to flipping (evaluate.emulated_samples); one takes some hundred times "
        "as long as here, and how long all take is told once the first is done"
        for host, count in emulated.items()
    ]


def _answers_by_emulation(name: str) -> bool:
    host: Host = registry.load("host", name)
    return host.kind == "emulated"


def _note_seeds(suite: Suite, planned: Iterable[PlannedCase]) -> list[str]:
    """A note where static variants are built with several calibration subsets."""
    calibrate = suite.data.calibrate
    variants = {case.case.variant.id for case in planned if _is_calibrated(case.case.variant)}
    if calibrate.seeds == 1 or not variants:
        return []
    last = calibrate.seed + calibrate.seeds - 1
    count = f"{len(variants)} static {'variant is' if len(variants) == 1 else 'variants are'}"
    return [
        f"{count} built and evaluated with {calibrate.seeds} calibration subsets, of the seeds {calibrate.seed} to "
        f"{last}; what is measured is the first"
    ]


def _is_calibrated(variant: Variant) -> bool:
    """Whether qbench chooses its ranges from calibration examples once; a file of the user's has its own."""
    return variant.mode == "static" and variant.recipe.file is None


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


def _require_cores(suite: Suite, cells: list[Cell], variants: Variants) -> None:
    """Raises ``UsageError`` where fewer threads, or more cores, would have left something to run."""
    for cell in cells:
        reason = variants.why_too_wide(cell)
        if reason is not None and variants.why_skipped(cell) == reason:
            key = "matrix.threads" if cell[3] in suite.matrix.threads else "matrix.include"
            raise UsageError(f"{suite.place(key)}: {key}: nothing to run: {reason}")


def _make_sort_key(variants: Variants, cells: Iterable[Cell]) -> Callable[[Cell], tuple[int, ...]]:
    """The sort key: model, threads, batch size, host, runtime, fp32 first, then backend and mode as in the suite."""
    ranks: list[dict[Any, int]] = [{}, {}, {}, {}, {}, {}, {}]
    runtimes: dict[str, int] = {}
    for cell in cells:
        for rank, value in zip(ranks, cell, strict=True):
            rank.setdefault(value, len(rank))
        runtimes.setdefault(variants.backend(cell[2]).runtime, len(runtimes))
    models, modes, names, threads, batch_sizes, recipes, hosts = ranks

    def key(cell: Cell) -> tuple[int, ...]:
        model, mode, name, count, batch_size, recipe, host = cell
        return (
            models[model],
            threads[count],
            batch_sizes[batch_size],
            hosts.get(host, -1),  # the reference of a host that does not time is native
            runtimes[variants.backend(name).runtime],
            mode != "fp32",
            names.get(name, -1),  # a reference's backend may stand nowhere in the suite
            modes.get(mode, -1),
            recipes.get(recipe, -1),
        )

    return key
