"""What a node says of itself; which nodes are alike, and which are refused, with the difference."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import qbench
from qbench.backends.libraries import list_libraries
from qbench.cache import store
from qbench.machine import fingerprint

_VALUES = ("ray", "pydantic")  # carry and read what travels
# What decides which artifact is built and what it answers; the number of cores does not.
SAME_BUILDS = ("cpu", "arch", "isa", "isa_switches", "os")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NO_WORD = re.compile(r"[^a-z0-9]+")
_TRADE_MARKS = re.compile(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|@.*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """``name`` is Ray's id of the node, ``machine`` that of the kernel it runs on: nodes of one machine share its
    cores. ``niceness``: what its child processes would run at. ``label`` is what its owner calls its class (None:
    nothing)."""

    name: str
    address: str
    machine: str
    label: str | None
    cores: tuple[int, ...]
    niceness: int
    fingerprint: Mapping[str, Any]
    versions: Mapping[str, str | None]
    code: str

    @property
    def cpu(self) -> str | None:
        """The name of its processor."""
        return self.fingerprint.get("cpu")

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.address} ({self.name[:8]})"


@dataclass(frozen=True, kw_only=True)
class NodeClass:
    """Nodes with the same fingerprint: what is measured on one of them says what any other would have."""

    label: str
    nodes: tuple[NodeFacts, ...]

    @property
    def cores(self) -> int:
        """How many cores each of its nodes has."""
        return min(len(node.cores) for node in self.nodes)


def read_facts(*, name: str, address: str, label: str | None, niceness: int) -> NodeFacts:
    """What this process's machine is, as a node of that name."""
    return NodeFacts(
        name=name,
        address=address,
        machine=_BOOT.read_text(encoding="utf-8").strip() if _BOOT.exists() else platform.node(),
        label=label,
        cores=fingerprint.allowed_cores(),
        niceness=niceness,
        fingerprint=fingerprint.fingerprint(),
        versions=fingerprint.versions((*list_libraries(), *_VALUES)) | {"python": platform.python_version()},
        code=store.source_digest(qbench),
    )


def explain_refusal(node: NodeFacts, own: NodeFacts) -> str | None:
    """Why a node cannot work for this qbench; None where it can."""
    differing = [
        f"{library} {node.versions.get(library) or 'is not installed'} (here {version or 'not installed'})"
        for library, version in own.versions.items()
        if node.versions.get(library) != version
    ]
    if differing:
        return f"node {node.title}: {'; '.join(differing)}; install the same versions there"
    if node.code != own.code:
        return f"node {node.title}: its qbench {node.versions.get('qbench')} has other code than the one here"
    if node.niceness > 0:
        return (
            f"node {node.title}: Ray's workers run at niceness {node.niceness} there, so that anything else slows what "
            "is measured; start it with RAY_worker_niceness=0 ray start …"
        )
    return None


def form_classes(nodes: Sequence[NodeFacts]) -> tuple[tuple[NodeClass, ...], list[str]]:
    """The classes of the nodes, by label, and why some nodes are in none: their owner gave one label to nodes that
    differ. Without a label a class is named after its processor and its number of cores."""
    groups: dict[tuple[str | None, tuple[Any, ...]], list[NodeFacts]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        groups.setdefault((node.label, _key(node)), []).append(node)
    classes: dict[str, NodeClass] = {}
    problems = []
    for (label, _), members in groups.items():
        name = label or _name_class(members[0])
        if (other := classes.get(name)) is None:
            classes[name] = NodeClass(label=name, nodes=tuple(members))
            continue
        field = fingerprint.comparable(members[0].fingerprint, other.nodes[0].fingerprint)
        theirs, ours = (each.fingerprint.get(field or "") for each in (members[0], other.nodes[0]))
        problems += [
            f"node {node.title} is left out: its class {name} has nodes of another {field} ({theirs}, not {ours}); "
            "give it a label of its own"
            for node in members
        ]
    return tuple(classes.values()), problems


def choose_home(classes: Sequence[NodeClass], own: Mapping[str, Any]) -> NodeClass | None:
    """The class of the machine with the fingerprint ``own``, that with the most nodes where there are several; None
    where the cluster has none."""
    alike = [
        each for each in classes if all(each.nodes[0].fingerprint.get(field) == own.get(field) for field in SAME_BUILDS)
    ]
    return max(alike, key=lambda each: (len(each.nodes), each.label), default=None)


def _key(node: NodeFacts) -> tuple[Any, ...]:
    return tuple(str(node.fingerprint.get(field)) for field in fingerprint.COMPARED)


def _name_class(node: NodeFacts) -> str:
    """``xeon-platinum-8481c-2c``."""
    words = _NO_WORD.sub("-", _TRADE_MARKS.sub(" ", node.cpu or node.fingerprint.get("arch") or "unknown").lower())
    return f"{words.strip('-')[:34].strip('-')}-{len(node.cores)}c"


def count_niceness() -> int:
    """The highest niceness of this process's threads, having tried to make it 0 (which takes a privilege)."""
    highest = 0
    for task in Path("/proc/self/task").iterdir() if Path("/proc/self/task").exists() else ():
        thread = int(task.name)
        try:
            if os.getpriority(os.PRIO_PROCESS, thread) > 0:
                os.setpriority(os.PRIO_PROCESS, thread, 0)
        except OSError:  # not allowed, or the thread has ended
            pass
        try:
            highest = max(highest, os.getpriority(os.PRIO_PROCESS, thread))
        except OSError:
            continue
    return highest
