"""What a plan says beside its cases and skips. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from qbench.hosts.base import Host
from qbench.modes import FLOATS
from qbench.plan.cases import PlannedCase, Variant
from qbench.plan.variants import CellVariant, Listed, NoVariant, name_variant
from qbench.quant.recipe import FLOAT_JOINS, FRAMEWORK_DEFAULT
from qbench.record.schema import CaseKey
from qbench.suite import Suite
from qbench.suite.settings import DynamicRecipe, QatRecipe, StaticRecipe

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend


def note_no_cases(listed: Listed, hosts: Mapping[str, Host], cells: Iterable[CaseKey]) -> list[str]:
    """What of the matrix has no meaning: modes of a backend, floats on an emulated host, recipes of a mode."""
    modes: dict[str, dict[str, None]] = {}
    of_recipes: dict[tuple[str, str, str], dict[str, None]] = {}
    for (_, mode, backend, recipe), cell in listed.items():
        if not isinstance(cell, NoVariant):
            continue
        if cell.reason is None:
            modes.setdefault(backend, {})[mode] = None
        else:
            of_recipes.setdefault((backend, recipe, cell.reason), {})[mode] = None
    emulated = dict.fromkeys(
        (key.mode, key.host)
        for key in cells
        if key.mode in FLOATS
        and isinstance(listed[name_variant(key)], CellVariant)
        and hosts[key.host].answers(key.backend) == "emulated"
    )
    backends = {name: cell.backend for (_, _, name, _), cell in listed.items() if name in modes}
    return [
        *(_note_no_mode(backend, tuple(modes[name])) for name, backend in backends.items()),
        *(
            f"{mode} on {host} is no case: int8 answers there are held against those of native"
            for mode, host in emulated
        ),
        *(
            f"{backend}: {', '.join(names)} with the recipe {recipe} is no case: {reason}"
            for (backend, recipe, reason), names in of_recipes.items()
        ),
    ]


def _note_no_mode(backend: Backend, modes: tuple[str, ...]) -> str:
    """A note on the modes that have no case on a backend."""
    if modes == ("fp32",):
        return f"{backend.name}: fp32 is no case; its runtime is {backend.runtime}, whose fp32 is the baseline"
    if set(modes) <= set(FLOATS):
        return f"{backend.name}: {_list_modes(modes)}; its runtime is {backend.runtime}, which runs floats"
    return f"{backend.name}: {_list_modes(modes)}; it runs {_join(backend.modes)} only"


def _join(words: tuple[str, ...]) -> str:
    """``fp32, bf16 and fp16``."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [words[-1]])


def _list_modes(modes: tuple[str, ...]) -> str:
    """``dynamic and static are no cases``."""
    return f"{_join(modes)} {'is no case' if len(modes) == 1 else 'are no cases'}"


def note_planned(
    suite: Suite, planned: Collection[PlannedCase], references: Iterable[CaseKey], hosts: Mapping[str, Host]
) -> list[str]:
    """What is not plain from the cases that run, of which the plan added the ``references``."""
    return [
        *_note_references(references),
        *_note_twins(planned),
        *_note_seeds(suite, planned),
        *_note_predicted(planned, hosts),
        *_note_emulated(suite, planned, hosts),
    ]


def note_idle_quantize_keys(suite: Suite, keys: Iterable[CaseKey]) -> list[str]:
    """A note for each backend whose own keys of a mode no cell takes, and for targets that a framework's own recipe
    does not look at."""
    listed = [*keys]
    quantize, present = suite.quantize, {(key.mode, key.backend) for key in listed}
    modes: dict[str, DynamicRecipe | StaticRecipe | QatRecipe]
    modes = {"dynamic": quantize.dynamic, "static": quantize.static, "qat": quantize.qat}
    idle = [
        f"quantize.{mode}.backends.{backend}"
        for mode, section in (*modes.items(), ("weight_only", quantize.weight_only))
        for backend in section.backends
        if (mode, backend) not in present
    ]
    notes = [f"{suite.place(key)}: {key} is for no case of this suite" for key in idle]
    untouched = {key.mode for key in listed if key.recipe in (FRAMEWORK_DEFAULT, FLOAT_JOINS)}
    targets = {"quantize.target": untouched if quantize.target is not None else set()}
    targets |= {
        f"quantize.{mode}.target": untouched & {mode} for mode, section in modes.items() if section.target is not None
    }
    return notes + [
        f"{suite.place(key)}: {key} has no effect on recipe {FRAMEWORK_DEFAULT}, which is left as the framework has it"
        for key, concerned in targets.items()
        if concerned
    ]


def _note_references(references: Iterable[CaseKey]) -> list[str]:
    counts = Counter(("fp32" if key.mode == "fp32" else "int8", key.backend) for key in references)
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


def _note_predicted(planned: Iterable[PlannedCase], hosts: Mapping[str, Host]) -> list[str]:
    """A note for each backend whose answers on a host are computed on this machine."""
    pairs = dict.fromkeys((each.case.variant.backend, each.case.host) for each in planned)
    return [
        f"{backend} on {host}: its answers are predicted, not measured: it has no switch that hides instructions"
        for backend, host in pairs
        if hosts[host].answers(backend) == "predicted"
    ]


def _note_emulated(suite: Suite, planned: Iterable[PlannedCase], hosts: Mapping[str, Host]) -> list[str]:
    """A note for each host that answers a few examples only, and slowly."""
    cases = [each.case for each in planned]
    files = {(case.host, case.variant.id, case.variant.mode == "dynamic" and case.batch_size) for case in cases}
    emulated = Counter(host for host, *_ in files if hosts[host].kind == "emulated")
    samples = suite.evaluate.emulated_samples
    return [
        f"{host}: answers only, no latency, of {'1 artifact' if count == 1 else f'{count} artifacts'}, for the "
        f"{samples} evaluation examples nearest to flipping (evaluate.emulated_samples); one takes some hundred times "
        "as long as here, and how long all take is told once the first is done"
        for host, count in emulated.items()
    ]


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
