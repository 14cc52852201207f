"""A run of several hosts, before it builds: what the kernels of each backend say on each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qbench import registry
from qbench.errors import CaseError, CaseSkipped
from qbench.hosts.base import Host
from qbench.hosts.read_back import read_kernels
from qbench.machine import fingerprint
from qbench.plan.planner import Case
from qbench.quant.target import loads_on
from qbench.record.schema import NATIVE, HostFacts
from qbench.running.context import RunContext

KnownHosts = Mapping[str, HostFacts]  # by case id


def read_hosts(context: RunContext) -> dict[str, HostFacts]:
    """Where each open case runs, as its kernels say; empty in a run on this machine alone. A host that does not do what
    was set skips its cases with the reason."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for planned in context.tracker.open_cases():
        groups.setdefault((planned.case.host, planned.case.variant.backend), []).append(planned.case)
    if all(host == NATIVE for host, _ in groups):
        return {}
    context.progress.stage("hosts", len(groups))
    facts_by_case: dict[str, HostFacts] = {}
    for (name, backend), cases in groups.items():
        try:
            facts = _read_host(context, name, backend)
        except (CaseError, CaseSkipped) as error:
            context.tracker.break_cases(cases, "host", error)
        else:
            facts_by_case |= {case.id: _describe_case(facts, case) for case in cases}
        context.progress.advance(f"{backend} on {name}")
    return facts_by_case


def _read_host(context: RunContext, name: str, backend: str) -> HostFacts:
    """What a backend's kernels say on a host; raises ``CaseSkipped`` where that is another host."""
    host: Host = registry.load("host", name)
    if host.answers(backend) == "emulated":
        return HostFacts(kind="emulated", cpu=host.describe())
    of_host = None if context.fleet is None else context.fleet.find_class(name)
    cpu = fingerprint.cpu_model() if of_host is None else of_host.nodes[0].cpu
    if host.answers(backend) == "predicted":
        return HostFacts(kind="predicted", cpu=fingerprint.cpu_model(), int8_sums="16 bits")
    environment = dict(host.environment())
    run_child = context.find_place(name).run_child
    view = read_kernels(backend, environment=environment, limits=context.limits, run_child=run_child)
    if (reason := host.contradict(backend, view)) is not None:
        raise CaseSkipped(f"not limited: {reason}")
    return HostFacts(
        kind=host.kind,
        cpu=cpu,
        switches=tuple(sorted(f"{variable}={value}" for variable, value in environment.items())),
        torch_isa=view.torch_isa,
        onednn_isa=view.onednn_isa,
        mkl_isa=view.mkl_isa,
        int8_sums=view.int8_sums,
        note=host.caution(backend),
    )


def _describe_case(facts: HostFacts, case: Case) -> HostFacts:
    """The facts of one case; what is predicted of fp32 are this machine's answers, and machine code that was compiled
    for the host loads there."""
    if facts.note is not None and loads_on(case.variant.recipe.cpus, case.host):
        return replace(facts, note=None)
    if facts.kind != "predicted" or case.variant.mode != "fp32":
        return facts
    return replace(
        facts, int8_sums=None, note="fp32 adds no products of bytes, so its answers are those of this machine"
    )
