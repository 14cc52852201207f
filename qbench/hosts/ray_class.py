"""The hosts ``ray:<label>``: machines of one kind among the nodes of a Ray cluster (``qbench run --on ADDRESS``)."""

from __future__ import annotations

from qbench.hosts.base import Host

PREFIX = "ray:"


class RayClass(Host):
    """The nodes of a cluster that are alike, by the label of their class; each of them as it is."""

    kind = "node"

    def __init__(self, label: str) -> None:
        self.name = f"{PREFIX}{label}"
        self.title = f"nodes of the class {label}"

    def missing(self) -> str | None:
        """Only a run on a cluster has it."""
        return "it is a class of the nodes of a Ray cluster; say which: `qbench run SUITE --on ray://HOST:PORT`"

    def why_not(self, backend: str) -> str | None:
        """Every backend runs as it does on such a machine."""
        return None


def find_class(label: str) -> RayClass:
    """The host ``ray:<label>``."""
    return RayClass(label)
