"""Where the time of a case goes: its nodes beside those of its fp32, by kind and by layer, and each against the peak of
this core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend, Inputs
from qbench.build import Artifact
from qbench.explain.open_case import OpenCase
from qbench.machine.peak import Peak, fraction
from qbench.plan.cases import Case
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import KINDS, CallProfile, Kind

CALLS = 50  # watched; a call that takes a tenth of a second is watched less often
_LEAST_CALLS, _MOST_SECONDS = 10, 5.0


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """A layer that multiplies: seconds in the case (``int8_seconds``) and in fp32, None where the runtime's names do
    not tell which node it is. ``kind`` as the case runs it; ``peak_fraction``: the share of this core's peak that it
    reaches in that kind, None where it cannot be counted or no peak is known."""

    name: str
    operator: str
    kind: Kind
    int8_seconds: float
    fp32_seconds: float | None
    macs: int | None
    peak_fraction: float | None


@dataclass(frozen=True, kw_only=True)
class TimeShares:
    """The profiles of a case and of its fp32, the layers by what they take, and the other nodes by operator."""

    case: CallProfile
    fp32: CallProfile
    layers: tuple[LayerTime, ...]

    def operators(self) -> dict[tuple[Kind, str], tuple[float, int]]:
        """Seconds and number of the case's nodes by kind and operator, the longest first."""
        sums: dict[tuple[Kind, str], tuple[float, int]] = {}
        for node in self.case.nodes:
            seconds, count = sums.get((node.kind, node.operator), (0.0, 0))
            sums[node.kind, node.operator] = (seconds + node.seconds, count + 1)
        return dict(sorted(sums.items(), key=lambda entry: -entry[1][0]))

    def kinds(self) -> list[tuple[Kind, float, float]]:
        """Of each kind the seconds in the case and in fp32, where either has some."""
        int8, fp32 = self.case.seconds_by_kind(), self.fp32.seconds_by_kind()
        return [(kind, int8.get(kind, 0.0), fp32.get(kind, 0.0)) for kind in KINDS if kind in int8 or kind in fp32]


def profile_case(opened: OpenCase, peak: Peak | None) -> TimeShares:
    """The profiles of the case and of its fp32, each in a process of its own on the cores where cases are measured.

    Raises ``CaseSkipped`` where the runtime does not tell, ``CaseError`` where a process ends early.
    """
    profile = _profile(opened, opened.case, opened.artifact)
    fp32 = _profile(opened, opened.fp32_case, opened.fp32)
    return compare_profiles(
        profile, fp32, opened.artifact.built.layers, opened.case.batch_size, peak, opened.case.threads
    )


def compare_profiles(
    profile: CallProfile,
    fp32: CallProfile,
    layers: Sequence[Layer],
    batch_size: int,
    peak: Peak | None,
    threads: int,
) -> TimeShares:
    """What two profiles, of an int8 form and of its fp32, say of the ``layers`` of the first."""
    macs = count_macs(layers, batch_size)
    return TimeShares(case=profile, fp32=fp32, layers=_list_layers(profile, fp32, macs, peak, threads))


def count_macs(layers: Sequence[Layer], batch_size: int) -> dict[str, int | None]:
    """The multiply-accumulates of a call by layer, all that go by one name together; None where one cannot be
    counted."""
    macs: dict[str, int | None] = {}
    for layer in layers:
        counted = macs.get(layer.name, 0)
        macs[layer.name] = None if counted is None or layer.macs is None else counted + layer.macs * batch_size
    return macs


def _profile(opened: OpenCase, case: Case, artifact: Artifact) -> CallProfile:
    backend: Backend = registry.load("backend", case.variant.backend)
    if backend.watched_builds:
        artifact = opened.build(case.variant, watched=True)
    seconds = opened.record_seconds
    most = CALLS if not seconds else int(min(CALLS, _MOST_SECONDS / seconds))
    profile: CallProfile = opened.call_child(
        time_nodes_here,
        case.variant.backend,
        artifact.file,
        opened.data.evaluation(0, min(case.batch_size, opened.data.evaluation_count)),
        case.threads,
        max(_LEAST_CALLS, most),
        cores=case.threads,
    )
    return name_layers(profile.fit_into_call(), artifact.built.layers)


def time_nodes_here(
    backend: str, file: Path, inputs: Inputs, threads: int, calls: int, *, progress: object
) -> CallProfile:
    """The profile of a file in this process, which is a child."""
    plugin: Backend = registry.load("backend", backend)
    return plugin.time_nodes(file, inputs, threads=threads, calls=calls)


def name_layers(profile: CallProfile, layers: Sequence[Layer]) -> CallProfile:
    """The profile with the names of the network's layers, where as many products ran as there are layers, and those
    whose names the runtime knows stand where they do in the network."""
    products = [node for node in profile.nodes if "product" in node.kind]
    names = {layer.name for layer in layers}
    if len(products) != len(layers) or any(
        node.layer in names and node.layer != layer.name for node, layer in zip(products, layers, strict=True)
    ):
        return profile
    name_of = {id(node): layer.name for node, layer in zip(products, layers, strict=True)}
    return replace(
        profile, nodes=tuple(replace(node, layer=name_of.get(id(node), node.layer)) for node in profile.nodes)
    )


def _list_layers(
    profile: CallProfile, fp32: CallProfile, macs: Mapping[str, int | None], peak: Peak | None, threads: int
) -> tuple[LayerTime, ...]:
    """The layers of the case that multiply, the longest first; several nodes of one layer are one."""
    before = _sum_by_layer(fp32)
    rows = []
    for name, seconds in _sum_by_layer(profile).items():
        nodes = [node for node in profile.nodes if node.layer == name and "product" in node.kind]
        kind: Kind = "int8 product" if all(node.kind == "int8 product" for node in nodes) else "float product"
        rows.append(
            LayerTime(
                name=name,
                operator=nodes[0].operator,
                kind=kind,
                int8_seconds=seconds,
                fp32_seconds=before.get(name),
                macs=macs.get(name),
                peak_fraction=_share_of_peak(kind, seconds, macs.get(name), peak, threads),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.int8_seconds))


def _sum_by_layer(profile: CallProfile) -> Mapping[str, float]:
    sums: dict[str, float] = {}
    for node in profile.nodes:
        if "product" in node.kind:
            sums[node.layer] = sums.get(node.layer, 0.0) + node.seconds
    return sums


def _share_of_peak(kind: Kind, seconds: float, macs: int | None, peak: Peak | None, threads: int) -> float | None:
    if peak is None or not macs or not seconds:
        return None
    peak_ops = peak.fp32_flops_per_second if kind == "float product" else peak.int8_ops_per_second
    return fraction(macs, seconds, peak_ops * threads)
