"""The host ``native``: this machine as it is."""

from __future__ import annotations

from qbench.hosts.base import NATIVE, Host


class Native(Host):
    """This machine, with every instruction that it has."""

    name = NATIVE
    title = "this machine"
    kind = "native"

    def missing(self) -> str | None:
        """It is always there."""
        return None

    def why_not(self, backend: str) -> str | None:
        """Every backend runs as it does on this machine."""
        return None


HOST = Native()
