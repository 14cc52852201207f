"""The cells of the matrix -> the cases that are planned, or why they are skipped: each cell once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from qbench.hosts.base import NATIVE, Host
from qbench.modes import FLOATS, HALVES, WEIGHT_ONLY
from qbench.plan.cases import Case, PlannedCase, Skip
from qbench.plan.variants import CellVariant, Listed, VariantName, name_variant
from qbench.record.schema import CaseKey, find_fp32, place_on

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where cases run: the ``hosts`` by name, how many ``cores`` of this machine may measure (``chosen``: the suite
    names them), and how many each class of a cluster's ``nodes`` has, by host."""

    hosts: Mapping[str, Host]
    cores: int
    chosen: bool
    nodes: Mapping[str, int]


def resolve_cells(
    cells: Iterable[CaseKey], listed: Listed, environment: Environment
) -> dict[CaseKey, PlannedCase | Skip]:
    """Each cell that can be a case anywhere, planned or skipped, in order; then whatever these are compared with: their
    twins and references."""
    resolver = _Resolver({name: cell for name, cell in listed.items() if isinstance(cell, CellVariant)}, environment)
    resolved = {key: resolver.resolve(key) for key in cells if resolver.can_be_case(key)}
    pending = [*resolved]
    while pending:
        case = resolved[pending.pop()]
        needed = (case.reference, case.twin) if isinstance(case, PlannedCase) else ()
        missing = [key for key in needed if key is not None and key not in resolved]
        resolved |= {key: resolver.resolve(key) for key in missing}
        pending += missing
    return resolved


class _Resolver:
    """Resolves cells; a backend, model or host is asked once, whatever cells it has."""

    def __init__(self, variants: Mapping[VariantName, CellVariant], environment: Environment) -> None:
        self._variants = variants
        self._environment = environment
        self._answers: dict[Hashable, Any] = {}
        self._resolved: dict[CaseKey, PlannedCase | Skip] = {}

    def resolve(self, key: CaseKey) -> PlannedCase | Skip:
        """The planned case of a cell, or its skip: for its own sake, or because its reference cannot be."""
        if key not in self._resolved:
            self._resolved[key] = self._resolve(key)
        return self._resolved[key]

    def can_be_case(self, key: CaseKey) -> bool:
        """Whether a cell is a case anywhere: it has a variant, and is no float of a CPU in software."""
        return name_variant(key) in self._variants and not (key.mode in FLOATS and self._is_emulated(key))

    def _is_emulated(self, key: CaseKey) -> bool:
        host = self._environment.hosts[key.host]
        return self._ask(("answers", key.backend, key.host), lambda: host.answers(key.backend)) == "emulated"

    def _resolve(self, key: CaseKey) -> PlannedCase | Skip:
        reference, too_wide = self._find_reference(key), None
        reason = self._why_not_built(key) or (too_wide := self._why_too_wide(key))
        reason = reason or self._why_not_there(key) or self._why_no_format(key) or self._why_no_target(key)
        if reason is None and reference is not None:
            reason = self._why_no_reference(key, reference)
        if reason is not None:
            return Skip(key=key, reason=reason, too_wide=too_wide is not None)
        variant = self._variants[name_variant(key)].variant
        case = Case(variant=variant, threads=key.threads, batch_size=key.batch_size, host=key.host)
        return PlannedCase(case=case, reference=reference, twin=self._find_twin(key))

    def _find_reference(self, key: CaseKey) -> CaseKey | None:
        """The like-for-like fp32 of a cell, None for that fp32 itself; of an emulated one the cell of the same artifact
        on the native host, whose answers it is held against."""
        if self._is_emulated(key):
            return place_on(key, NATIVE)
        reference = find_fp32(key, self._variants[name_variant(key)].backend.runtime)
        return None if key == reference else reference

    def _find_twin(self, key: CaseKey) -> CaseKey | None:
        """The fp32 twin of a QAT cell; None for any other cell, and where the suite asks for no twins."""
        cell = self._variants[name_variant(key)]
        if cell.twin is None or self._is_emulated(key):
            return None
        return find_fp32(key, cell.backend.runtime, cell.twin)

    def _why_no_reference(self, key: CaseKey, reference: CaseKey) -> str | None:
        if self._is_emulated(key):  # its reference is the same variant
            native = self.resolve(reference)
            return native.reason if isinstance(native, Skip) else None
        reason = self._why_not_built(reference)
        return None if reason is None else f"its baseline {reference.id} is skipped: {reason}"

    def _why_too_wide(self, key: CaseKey) -> str | None:
        """Why a cell has too many threads: beyond the cores they would share one, and measure the scheduler; None if
        each has its own. A suite travels between machines, so such a cell is skipped, not an error."""
        threads, host, cores, nodes = key.threads, key.host, self._environment.cores, self._environment.nodes
        if threads <= nodes.get(host, cores):
            return None
        if host in nodes:
            return f"{threads} threads, but a node of {host} has {nodes[host]} usable cores; take fewer threads"
        whose, more = (
            ("measure.cores names", "name more")
            if self._environment.chosen
            else ("this process may use", "allow it more (taskset)")
        )
        have = "1 core" if cores == 1 else f"{cores} cores"
        return f"{threads} threads, but {whose} {have}; take fewer threads, or {more}"

    def _why_not_built(self, key: CaseKey) -> str | None:
        """Why a cell's variant is not built here: its model or backend is missing, or the backend has no such mode."""
        cell = self._variants[name_variant(key)]
        return self._ask(("built", key.model, key.mode, key.backend, cell.form), lambda: self._ask_built(key, cell))

    def _ask_built(self, key: CaseKey, cell: CellVariant) -> str | None:
        model, backend, form = cell.variant.model, cell.backend, cell.form
        reason = self._ask(("model", key.model), model.missing) or self._ask(("backend", key.backend), backend.missing)
        if form != "torchscript":  # which is int8 already, so nothing has to be quantized
            reason = reason or backend.why_not(mode=key.mode, kind=model.kind if form is None else "onnx")
        if reason is None and key.mode not in backend.modes:
            reason = f"{key.backend} has no {key.mode} mode; it has {', '.join(backend.modes)}"
        return reason

    def _why_not_there(self, key: CaseKey) -> str | None:
        """Why a cell's backend does not run on its host; None where it does."""
        return self._ask(("host", key.backend, key.host), lambda: self._ask_host(key))

    def _ask_host(self, key: CaseKey) -> str | None:
        host, nodes = self._environment.hosts[key.host], self._environment.nodes
        if host.kind != "node" or not nodes:
            return host.missing() or host.why_not(key.backend)
        if host.name not in nodes:  # of a cluster it is known which are there
            return f"the cluster has no nodes of this class; it has {', '.join(sorted(nodes))}"
        return host.why_not(key.backend)

    def _why_no_format(self, key: CaseKey) -> str | None:
        """Why a host has no answers in what a mode names; None where it may: a node of a cluster is asked when it runs
        there."""
        host = self._environment.hosts[key.host]
        if key.mode in HALVES and host.kind == "limited":
            return (
                f"{key.host} stands for CPUs whose instructions do not multiply {key.mode}; take {key.mode} on native"
            )
        if key.mode == WEIGHT_ONLY and host.kind == "limited":
            return (
                f"on {key.host} no switch tells a runtime that weights of few bits meet a CPU without VNNI: OpenVINO "
                "2026.4 gives empty outputs; take qemu:Haswell for answers"
            )
        return None

    def _why_no_target(self, key: CaseKey) -> str | None:
        """Why what a cell's backend builds does not run on a kind of CPU of its target; None where it does."""
        return self._ask(("target", *name_variant(key)), lambda: self._ask_target(key))

    def _ask_target(self, key: CaseKey) -> str | None:
        cell = self._variants[name_variant(key)]
        for cpu in cell.variant.recipe.cpus:
            reason = cell.backend.why_not_for(cpu)
            if reason is not None:
                return f"{reason}; use qnnpack or onnxruntime, or take {cpu} out of its target (quantize)"
        return None

    def _ask(self, question: Hashable, answer: Callable[[], T]) -> T:
        """What was answered to a question before, or is now."""
        if question not in self._answers:
            self._answers[question] = answer()
        reply: T = self._answers[question]
        return reply
