"""Opens the fleet of a run: connects, admits the nodes, and ends with everything that it had on them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from qbench.errors import UsageError
from qbench.fleet import engine, nodes
from qbench.fleet.fleet import OPEN_SECONDS, Fleet, Note
from qbench.hosts.ray_class import PREFIX


@contextlib.contextmanager
def open_fleet(on: str, root: Path, note: Note) -> Iterator[Fleet]:
    """The nodes that ``--on`` names, held for one run of qbench; ``root`` is the open cache here.

    Raises ``UsageError`` before anything runs where a node has other versions, or none can work.
    """
    with engine.connect(on, root) as ray:
        own = nodes.read_facts(name="", address="here", label=None, niceness=0)
        fleet = Fleet(ray=ray, root=root, own=own, note=note)
        watcher = threading.Thread(target=fleet.watch, name="fleet-watch", daemon=True)
        try:
            _require_nodes(fleet, on, fleet.admit_nodes())
            for problem in fleet.form_classes():
                note(problem)
            _describe(fleet)
            watcher.start()
            yield fleet
        finally:
            fleet.cancel()
            if watcher.is_alive():
                watcher.join(OPEN_SECONDS)


def _require_nodes(fleet: Fleet, on: str, refused: Sequence[str]) -> None:
    """Raises ``UsageError`` unless every node can work."""
    if refused:
        raise UsageError("\n".join(f"--on {on}: {problem}" for problem in refused))
    if not fleet.has_nodes:
        raise UsageError(
            f"--on {on}: no node of the cluster offers itself to qbench; start nodes with "
            f"""`RAY_worker_niceness=0 ray start --address=HOST:6379 --resources='{{"{engine.RESOURCE}": 1}}'`"""
        )


def _describe(fleet: Fleet) -> None:
    """Notes the classes of the cluster."""
    for each in fleet.classes:
        count = f"{len(each.nodes)} node{'' if len(each.nodes) == 1 else 's'}"
        home = " (like this machine: native)" if each is fleet.home else ""
        fleet.note(f"{PREFIX}{each.label}: {count}, {each.cores} cores each, {each.nodes[0].cpu}{home}")
    if fleet.home is None:
        fleet.note("no node is like this machine: what is native runs here")
