"""A cell of the matrix -> the case that is planned, or why it is skipped: each cell once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from qbench import registry
from qbench.hosts.base import NATIVE, Host
from qbench.models.base import FileFormat
from qbench.plan.cases import PlannedCase, Skip
from qbench.plan.variants import Variants
from qbench.record.schema import CaseKey, make_case_key, place_on
from qbench.suite import Suite

T = TypeVar("T")


class Resolver:
    """Resolves the cells of one suite. ``cores``: how many of them its cases may be measured on, ``nodes`` how many
    each class of a cluster's nodes has, by host. A backend, model or host is asked once, whatever cells it has."""

    def __init__(self, suite: Suite, variants: Variants, *, cores: int, nodes: Mapping[str, int]) -> None:
        self._suite = suite
        self._variants = variants
        self._cores, self._nodes = cores, nodes
        self._answers: dict[Hashable, Any] = {}
        self._resolved: dict[CaseKey, PlannedCase | Skip] = {}

    def resolve(self, key: CaseKey) -> PlannedCase | Skip:
        """The planned case of a cell, or its skip: for its own sake, or because its reference cannot be."""
        if key not in self._resolved:
            reference = self.find_reference(key)
            reason = self._why_skipped(key, reference)
            self._resolved[key] = (
                PlannedCase(case=self._variants.case(key), reference=reference, twin=self._find_twin(key))
                if reason is None
                else Skip(key=key, reason=reason)
            )
        return self._resolved[key]

    def find_reference(self, key: CaseKey) -> CaseKey | None:
        """The like-for-like fp32 of a cell, None for that fp32 itself; of an emulated one the cell of the same artifact
        on the native host, whose answers it is held against."""
        if self.is_emulated(key):
            return place_on(key, NATIVE)
        return self._variants.find_fp32(key)

    def is_emulated(self, key: CaseKey) -> bool:
        """Whether a cell's answers are those of a CPU in software."""
        return self._ask(("answers", key.backend, key.host), lambda: _load_host(key).answers(key.backend)) == "emulated"

    def why_too_wide(self, key: CaseKey) -> str | None:
        """Why a cell has too many threads: beyond the cores they would share one, and measure the scheduler; None if
        each has its own. A suite travels between machines, so such a cell is skipped, not an error."""
        threads, host = key.threads, key.host
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

    def _find_twin(self, key: CaseKey) -> CaseKey | None:
        """The fp32 twin of a QAT cell; None for any other cell, and where the suite asks for no twins."""
        name = self._variants.twins.find(key.mode, key.backend, key.recipe)
        if name is None or self.is_emulated(key):
            return None
        runtime = self._variants.backend(key.backend).runtime
        return make_case_key(key.model, "fp32", runtime, key.threads, key.batch_size, name, key.host)

    def _why_skipped(self, key: CaseKey, reference: CaseKey | None) -> str | None:
        reason = (
            self._why_not_built(key) or self.why_too_wide(key) or self._why_not_there(key) or self._why_no_target(key)
        )
        if reason is not None or reference is None:
            return reason
        if self.is_emulated(key):  # its reference is the same variant
            native = self.resolve(reference)
            return native.reason if isinstance(native, Skip) else None
        reason = self._why_not_built(reference)
        return None if reason is None else f"its baseline {reference.id} is skipped: {reason}"

    def _why_not_built(self, key: CaseKey) -> str | None:
        """Why a cell's variant is not built here: its model or backend is missing, or the backend has no such mode."""
        form = self._variants.find_format(key)
        return self._ask(("built", key.model, key.mode, key.backend, form), lambda: self._ask_built(key, form))

    def _ask_built(self, key: CaseKey, form: FileFormat | None) -> str | None:
        model, backend = self._variants.models[key.model], self._variants.backend(key.backend)
        missing = self._ask(("model", key.model), model.missing)
        reason = missing or self._ask(("backend", key.backend), backend.missing)
        if form != "torchscript":  # which is int8 already, so nothing has to be quantized
            reason = reason or backend.why_not(mode=key.mode, kind=model.kind if form is None else "onnx")
        if reason is None and key.mode not in backend.modes:
            reason = f"{key.backend} has no {key.mode} mode; it has {', '.join(backend.modes)}"
        return reason

    def _why_not_there(self, key: CaseKey) -> str | None:
        """Why a cell's backend does not run on its host; None where it does."""
        return self._ask(("host", key.backend, key.host), lambda: self._ask_host(key))

    def _ask_host(self, key: CaseKey) -> str | None:
        host = _load_host(key)
        if host.kind != "node" or not self._nodes:
            return host.missing() or host.why_not(key.backend)
        if host.name not in self._nodes:  # of a cluster it is known which are there
            return f"the cluster has no nodes of this class; it has {', '.join(sorted(self._nodes))}"
        return host.why_not(key.backend)

    def _why_no_target(self, key: CaseKey) -> str | None:
        """Why what a cell's backend builds does not run on a kind of CPU of its target; None where it does."""
        question = ("target", key.model, key.mode, key.backend, key.recipe)
        return self._ask(question, lambda: self._ask_target(key))

    def _ask_target(self, key: CaseKey) -> str | None:
        if self._variants.why_no_recipe(key.mode, key.backend, key.recipe, self._variants.find_format(key)) is not None:
            return None
        for cpu in self._variants.variant(key).recipe.cpus:
            reason = self._variants.backend(key.backend).why_not_for(cpu)
            if reason is not None:
                return f"{reason}; use qnnpack or onnxruntime, or take {cpu} out of its target (quantize)"
        return None

    def _ask(self, question: Hashable, answer: Callable[[], T]) -> T:
        """What was answered to a question before, or is now."""
        if question not in self._answers:
            self._answers[question] = answer()
        reply: T = self._answers[question]
        return reply


def _load_host(key: CaseKey) -> Host:
    host: Host = registry.load("host", key.host)
    return host
