"""What is known of each variant of a suite: its recipe, its baseline, and why it is skipped. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qbench import registry
from qbench.errors import UsageError
from qbench.hosts.base import NATIVE, Host
from qbench.models.base import NetworkKind, OwnInt8
from qbench.plan.cases import Case, PlannedCase, Variant
from qbench.plan.matrix import Cell, case_id
from qbench.plan.twins import Twins
from qbench.quant.recipe import DEFAULT, Recipe
from qbench.suite import Suite
from qbench.suite.recipes import RecipeChoice

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend


class Variants:
    """What is known of each variant of one suite, asked once: its recipe, and why it cannot be built. ``cores``: how
    many of them its cases may be measured on, ``nodes`` how many each class of a cluster's nodes has, by host."""

    def __init__(
        self,
        suite: Suite,
        backends: Mapping[str, Backend],
        *,
        cores: int,
        nodes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._suite = suite
        self._cores, self._nodes = cores, nodes
        self._backends = backends
        self._models = {reference.name: reference for reference in suite.references()}
        self._known = {name: (model.missing(), model.kind) for name, model in self._models.items()}
        self._missing: dict[str, str | None] = {}
        self._files = {own.recipe for reference in self._models.values() for own in reference.int8}
        self._choices = {choice.name: choice for choice in suite.recipe}
        self._twins = Twins(suite)
        self._variants: dict[tuple[str, str, str, str], Variant] = {}
        self._reasons: dict[tuple[str, str, str, bool], str | None] = {}
        self._hosts: dict[tuple[str, str], str | None] = {}
        self._emulated: dict[tuple[str, str], bool] = {}
        self._targets: dict[tuple[str, str, str, str], str | None] = {}

    def backend(self, name: str) -> Backend:
        """The backend of that name."""
        if name not in self._backends:
            raise UsageError(registry.unknown("backend", name, self._backends))
        return self._backends[name]

    def baseline(self, cell: Cell) -> Cell | None:
        """The like-for-like fp32 of a cell, None for that fp32 itself; of an emulated one the cell of the same artifact
        on the native host, whose answers it is held against."""
        model, _, backend, threads, batch_size, _, host = cell
        if self.is_emulated(cell):
            return (*cell[:-1], NATIVE)
        baseline = (model, "fp32", self.backend(backend).runtime, threads, batch_size, DEFAULT, host)
        return None if cell == baseline else baseline

    def twin(self, cell: Cell) -> Cell | None:
        """The fp32 twin of a QAT cell that runs; None for any other cell, and where the suite asks for no twins."""
        model, mode, backend, threads, batch_size, recipe, host = cell
        name = self._twins.find(mode, backend, recipe)
        if name is None or self.is_emulated(cell) or self.why_skipped(cell) is not None:
            return None
        return model, "fp32", self.backend(backend).runtime, threads, batch_size, name, host

    def why_skipped(self, cell: Cell) -> str | None:
        """Why a cell is skipped: for its own sake, or because its baseline cannot be; None if it runs."""
        own = self._why_not(cell[:3], cell[5] in self._files) or self.why_too_wide(cell) or self._why_not_there(cell)
        own = own or self._why_not_for_target(cell)
        baseline = self.baseline(cell)
        if own is not None or baseline is None:
            return own
        if self.is_emulated(cell):  # its baseline is the same variant
            return self.why_skipped(baseline)
        reason = self._why_not(baseline[:3])
        return None if reason is None else f"its baseline {case_id(baseline)} is skipped: {reason}"

    def why_too_wide(self, cell: Cell) -> str | None:
        """Why a cell has too many threads: beyond the cores they would share one, and measure the scheduler; None if
        each has its own. A suite travels between machines, so such a cell is skipped, not an error."""
        threads, host = cell[3], cell[-1]
        if threads <= self._nodes.get(host, self._cores):
            return None
        if host in self._nodes:
            return f"{threads} threads, but a node of {host} has {self._nodes[host]} usable cores; take fewer threads"
        named = self._suite.measure.cores is not None
        whose, more = (
            ("measure.cores names", "name more") if named else ("this process may use", "allow it more (taskset)")
        )
        have = "1 core" if self._cores == 1 else f"{self._cores} cores"
        return f"{threads} threads, but {whose} {have}; take fewer threads, or {more}"

    def is_emulated(self, cell: Cell) -> bool:
        """Whether a cell's answers are those of a CPU in software."""
        backend, host = cell[2], cell[-1]
        if (backend, host) not in self._emulated:
            plugin: Host = registry.load("host", host)
            self._emulated[backend, host] = plugin.answers(backend) == "emulated"
        return self._emulated[backend, host]

    def _why_not_there(self, cell: Cell) -> str | None:
        """Why a cell's backend does not run on its host; None where it does."""
        backend, host = cell[2], cell[-1]
        if (backend, host) not in self._hosts:
            plugin: Host = registry.load("host", host)
            self._hosts[backend, host] = self._why_no_host(plugin) or plugin.why_not(backend)
        return self._hosts[backend, host]

    def _why_not_for_target(self, cell: Cell) -> str | None:
        """Why what a cell's backend builds does not run on a kind of CPU of its target; None where it does."""
        model, mode, backend, _, _, recipe, _ = cell
        key = (model, mode, backend, recipe)
        if key not in self._targets:
            has_recipe = self.why_no_recipe(mode, backend, recipe) is None
            cpus = self.case(cell).variant.recipe.cpus if has_recipe else ()
            reasons = ((cpu, self.backend(backend).why_not_for(cpu)) for cpu in cpus)
            self._targets[key] = next(
                (
                    f"{reason}; use qnnpack or onnxruntime, or take {cpu} out of its target (quantize)"
                    for cpu, reason in reasons
                    if reason is not None
                ),
                None,
            )
        return self._targets[key]

    def _why_no_host(self, plugin: Host) -> str | None:
        """Why a host is not there; of a cluster it is known which are."""
        if plugin.kind != "node" or not self._nodes:
            return plugin.missing()
        classes = ", ".join(sorted(self._nodes))
        return None if plugin.name in self._nodes else f"the cluster has no nodes of this class; it has {classes}"

    def _why_not(self, variant: tuple[str, str, str], own_file: bool = False) -> str | None:
        key = (*variant, own_file)
        if key not in self._reasons:
            model, mode, name = variant
            backend = self.backend(name)
            if name not in self._missing:
                self._missing[name] = backend.missing()
            missing, kind = self._known[model]
            wanted: NetworkKind = "onnx" if own_file else kind
            reason = missing or self._missing[name] or backend.why_not(mode=mode, kind=wanted)
            if reason is None and mode not in backend.modes:
                reason = f"{name} has no {mode} mode; it has {', '.join(backend.modes)}"
            self._reasons[key] = reason
        return self._reasons[key]

    def case(self, cell: Cell) -> Case:
        """The case of a cell; cases of one variant share it."""
        model, mode, backend, threads, batch_size, recipe, host = cell
        key = (model, mode, backend, recipe)
        if key not in self._variants:
            own = self._models[model].own_int8(recipe)
            taken = self.recipe(mode, backend, recipe) if own is None else self._recipe_of_file(mode, backend, own)
            self._variants[key] = Variant(model=self._models[model], mode=mode, backend=backend, recipe=taken)
        return Case(variant=self._variants[key], threads=threads, batch_size=batch_size, host=host)

    def recipe(self, mode: str, backend: str, name: str, changed: Mapping[str, Any] = MappingProxyType({})) -> Recipe:
        """The recipe of that name as the backend takes it, without open choices; ``changed``: fields that it has in
        place of the suite's."""
        recipe = self._twins.recipes.get(name) if mode == "fp32" else None
        recipe = recipe or self._suite.quantize.recipe(mode, backend)
        if mode == "fp32":
            target = self._suite.quantize.recipe(mode, backend).target if self.backend(backend).machine_code else ()
            return replace(recipe, target=target)
        least = recipe.min_coverage
        if (choice := self._choices.get(name)) is not None:
            recipe = choice.over(recipe)
        recipe = RecipeChoice(name=recipe.name, keys=tuple(changed.items())).over(recipe)
        if (
            mode == "dynamic"
        ):  # what counts as int8 there is the suite's to say: no recipe builds another artifact by it
            recipe = replace(recipe, min_coverage=least)
        return replace(self.backend(backend).resolve(mode, recipe), name=recipe.name)

    def _recipe_of_file(self, mode: str, backend: str, own: OwnInt8) -> Recipe:
        """The recipe of a file that the user brings: of what the suite says of its mode, only the least coverage."""
        least = self._suite.quantize.recipe(mode, backend).min_coverage
        recipe = Recipe(name=own.recipe, file=own.file, min_coverage=least, canonicalize=False, clip_ranges=False)
        return replace(self.backend(backend).resolve(mode, recipe), name=recipe.name)

    def why_no_recipe(self, mode: str, backend: str, name: str) -> str | None:
        """Why a recipe has no meaning for a mode on a backend: another flow, or nothing that differs; None if it has.

        Raises ``UsageError`` for a name that the suite's ``recipe`` does not hold.
        """
        if mode == "fp32":
            return None
        if name in self._files:
            runs = self.backend(backend).int8_files
            return None if runs else "an int8 ONNX file of your own runs on onnxruntime and openvino"
        if name not in self._choices:
            have = ", ".join(self._choices)
            place = self._suite.place("matrix.include")
            raise UsageError(f"{place}: matrix.include: no recipe named '{name}'; there are {have}")
        flow, flows = self._choices[name].flow, self.backend(backend).flows
        if flow is not None and flow not in flows:
            return f"its flow is {' or '.join(flows) or 'its own'}"
        own = replace(self.recipe(mode, backend, name), name=DEFAULT)
        if (reason := _why_not_calibrator(own)) is not None:
            return reason
        for other in itertools.takewhile(lambda choice: choice != name, self._choices):
            known = self._choices[other].flow
            if (known is None or known in flows) and own == replace(self.recipe(mode, backend, other), name=DEFAULT):
                return f"it is the same as {other}"
        return None

    def planned(self, cell: Cell, reference: bool) -> PlannedCase:
        """The planned case of a cell that runs."""
        baseline, twin = (None if other is None else case_id(other) for other in (self.baseline(cell), self.twin(cell)))
        return PlannedCase(case=self.case(cell), baseline=baseline, reference=reference, twin=twin)


def _why_not_calibrator(recipe: Recipe) -> str | None:
    """Why the flow of a recipe cannot use its calibrator; None if it can."""
    name = recipe.calibrator
    if name is None or name in registry.BUILT_IN["calibrator"]:  # they serve every flow, and loading one imports numpy
        return None
    flows = registry.load("calibrator", name).flows
    return None if recipe.flow in flows else f"its calibrator {name} is for the flow {' or '.join(flows)}"
