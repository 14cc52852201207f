"""On a node: starts the child processes that a run asks for, keeps the cache's entries that they read, and measures.

One for a run and node. It is no different from a run on that machine: the same children, limits and cache. What it
holds ends with it: the reaper of its process ends the children, however it dies.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbench.cache import manifest, store
from qbench.cache.root import open_cache
from qbench.errors import CaseError, CaseSkipped, NodeLost
from qbench.files.full_disk import is_full, names_full_disk
from qbench.fleet import nodes, ray_load, transfer
from qbench.fleet.nodes import NodeFacts
from qbench.machine import fingerprint
from qbench.measure.measure import measure_setting, remove_checkpoint
from qbench.measure.setting import MeasuredSetting, Setting
from qbench.measure.timed_cores import TimedCores
from qbench.plan.planner import measuring_cores
from qbench.process import imports
from qbench.process.child_process import Worker
from qbench.process.offspring import offspring

Answer = tuple[str, Any, Mapping[str, Mapping[str, bytes]]]  # "result", "error" or "lost"; the value; folders


class Agent:
    """What a node does for a run; every method but ``describe`` answers with what became of it, and raises nothing that
    is qbench's own: errors travel as values."""

    def __init__(self) -> None:
        niceness = nodes.count_niceness()
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's; a child's is set where it starts
        # Children import as on this node without Ray, also those that start while Ray is kept off the timed cores.
        for name, cores in imports.name_own_cores().items():
            os.environ.setdefault(name, cores)
        self._niceness = niceness
        self._root = open_cache()
        self._workers: dict[int, Worker] = {}
        self._numbers = itertools.count()
        self._progress: dict[int, tuple[str, float]] = {}

    def describe(self, name: str, address: str, label: str | None) -> NodeFacts:
        """What this node is."""
        return nodes.read_facts(name=name, address=address, label=label, niceness=self._niceness)

    def list_missing(self, entries: Sequence[str]) -> list[str]:
        """Those of the entries (``kind/key``) that the cache of this node does not have."""
        return [entry for entry in entries if not (self._root / entry / manifest.MANIFEST).is_file()]

    def keep(self, entry: str, files: Mapping[str, bytes]) -> Answer:
        """Puts an entry into this node's cache; its manifest comes with it, but for a plain file."""

        def fill(folder: Path) -> Mapping[str, Any]:
            transfer.write_folder(folder, {name: files[name] for name in files if name != manifest.MANIFEST})
            if manifest.MANIFEST not in files:
                return {}
            (folder / manifest.MANIFEST).write_bytes(files[manifest.MANIFEST])
            facts = manifest.read(folder).facts
            (folder / manifest.MANIFEST).unlink()  # it is written once more, and does not list itself
            return facts

        def put() -> None:
            kind, _, key = entry.partition("/")
            store.fetch(self._root, kind, key, fill)

        return self._answer(put)

    def start(self, payload: bytes) -> Answer:
        """Starts a child process; its number."""

        def begin() -> int:
            factory, args, options = transfer.unpack(payload, self._root, {})
            number = next(self._numbers)
            self._workers[number] = Worker(factory, *args, **options)
            self._workers[number].ready()
            return number

        return self._answer(begin)

    def ask(self, number: int, payload: bytes, folders: Sequence[str]) -> Answer:
        """What a child answers, and what it wrote into the unfinished folders that it was given."""
        unfinished = {name: Path(tempfile.mkdtemp(dir=offspring().folder)) for name in folders}

        def request() -> Any:
            method, args = transfer.unpack(payload, self._root, unfinished)
            return self._workers[number].ask(
                method, *args, progress=lambda text, share: self._progress.__setitem__(number, (text, share))
            )

        try:
            kind, value, _ = self._answer(request)
            return kind, value, {name: transfer.read_folder(unfinished[name]) for name in folders if kind == "result"}
        finally:
            for folder in unfinished.values():
                shutil.rmtree(folder, ignore_errors=True)

    def progress(self, number: int) -> tuple[str, float] | None:
        """How far a child has come."""
        return self._progress.get(number)

    def close(self, number: int) -> None:
        """Ends a child."""
        self._progress.pop(number, None)
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.close()

    def measure(self, payload: bytes) -> Answer:
        """Measures a setting, with what Ray took of the machine meanwhile; the samples that it wrote come along."""
        folder = Path(tempfile.mkdtemp(dir=offspring().folder))

        def run() -> MeasuredSetting:
            setting: Setting = transfer.unpack(payload, self._root, {})
            transfer.write_folder(folder / "samples", setting.stored)
            cores = measuring_cores(setting.suite, fingerprint.allowed_cores())
            timed = cores[-max(case.threads for case in setting.cases.values()) :]
            with ray_load.keep_off(timed) as load:
                measured = measure_setting(setting, folder, TimedCores.look_at(cores, self._root, setting.limits))
            remove_checkpoint(setting, folder)
            return replace(measured, cluster_load=load.cores)

        try:
            kind, value, _ = self._answer(run)
            return kind, value, {"samples": transfer.read_folder(folder / "samples")} if kind == "result" else {}
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _answer(self, act: Callable[[], Any]) -> Answer:
        try:
            return "result", act(), {}
        except (CaseError, CaseSkipped) as error:
            if names_full_disk(error) or any(map(is_full, (self._root, offspring().folder))):
                return "lost", NodeLost(f"a disk is full: {error}"), {}
            return "error", error, {}
        except OSError as error:
            return "lost", NodeLost(f"{type(error).__name__}: {error}"), {}
