"""Ray itself: the one module that imports it. Connects to a cluster, or starts one on this machine."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import installation
from qbench.errors import NodeLost, UsageError, reraise
from qbench.fleet.reach import CLIENT, explain_unreachable
from qbench.machine import fingerprint
from qbench.process import imports, inheritance, reaper
from qbench.process.offspring import offspring

RESOURCE = "qbench"  # a node that offers one of it works for qbench, for one run at a time
LABEL = "qbench-class"
LOCAL = "local-cluster"
_LOCAL = re.compile(rf"{LOCAL}(?::([1-9]\d{{0,2}}))?")
_REMOTE = re.compile(rf"({CLIENT})?(?!{LOCAL})[^/\s]+:\d{{1,5}}")
AUTO = "auto"  # Ray's word for the cluster that this machine is a node of
_CONNECTIONS = 3  # the client's server forks while it serves others, and what it forked may hang or end then
_ENDING_SECONDS = 2.0  # between two checks whether the run ends
_STORE_BYTES = 200 * 2**20
_LONGEST_FOLDER = 23  # Ray's sockets lie up to 84 characters below it, and their paths may have 107
# Ray reads these when it is imported, or hands them to its processes. Without the last it looks for an address that
# other machines reach, and listens there.
_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


@dataclass(frozen=True, kw_only=True)
class FoundNode:
    """A living node that offers itself to qbench."""

    name: str
    address: str
    label: str | None


def read_target(on: str) -> str:
    """``--on`` as it was given; raises ``UsageError`` for what names no cluster, and where Ray is not installed."""
    if not (_LOCAL.fullmatch(on) or on == "ray" or _REMOTE.fullmatch(on)):
        raise UsageError(
            f"--on '{on}': expected ray://HOST:PORT, HOST:PORT, ray (the cluster that RAY_ADDRESS names), {LOCAL} or "
            f"{LOCAL}:N"
        )
    if on == "ray" and not os.environ.get("RAY_ADDRESS"):
        raise UsageError("--on ray: RAY_ADDRESS is not set; set it, or give the address: --on ray://HOST:PORT")
    address = os.environ["RAY_ADDRESS"] if on == "ray" else on
    if on == "ray" and address != AUTO and not _REMOTE.fullmatch(address):
        raise UsageError(f"--on ray: RAY_ADDRESS is '{address}': expected ray://HOST:PORT, HOST:PORT or {AUTO}")
    import importlib.util

    if importlib.util.find_spec("ray") is None:
        raise UsageError(f"--on needs Ray, which is not installed: {installation.install(['ray'], 'cluster')}")
    if address.startswith(CLIENT) and importlib.util.find_spec("grpc") is None:
        raise UsageError(f"--on {on}: Ray's client needs grpcio: {installation.install(['ray'], 'cluster')}")
    return address


@contextlib.contextmanager
def connect(on: str, cache: Path) -> Iterator[Any]:
    """The module ``ray``, connected to what ``--on`` names; the connection, or the cluster that was started here, ends
    with it. ``cache``: beside it lie the caches of the nodes of a cluster on this machine."""
    address = read_target(on)
    local = _LOCAL.fullmatch(address)
    if local is None and address != AUTO and (problem := explain_unreachable(address)) is not None:
        raise UsageError(f"--on {on}: {problem}")
    with _start_here(int(local[1] or 1), cache) if local else contextlib.nullcontext(address) as where:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray = _init(on, where)
        _keep_quiet()
        try:
            yield ray
        finally:
            ray.shutdown()


def _init(on: str, address: str) -> Any:
    """The module ``ray``, connected; raises ``UsageError`` where it is not."""
    import ray
    from ray.exceptions import RayError

    _keep_sigterm()
    for attempt in range(_CONNECTIONS):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="qbench")
            _take_sigterm_back()
            break
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, RayError) as error:
            if attempt == _CONNECTIONS - 1 or not address.startswith(CLIENT):
                raise UsageError(f"--on {on}: no connection to the cluster: {_shorten(error)}") from error
    return ray


def _shorten(error: Exception) -> str:
    """The first and the last line of what Ray says; between them is where in Ray it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(dict.fromkeys((lines[0], lines[-1])))[:300]


def _keep_sigterm() -> None:
    """Keeps Ray from taking SIGTERM, which it does with each node that it starts and where it connects: it would wait
    for 30 seconds and then end the process, without the stages of the run."""
    from ray._private import utils

    utils.set_sigterm_handler = lambda handler: None


def _take_sigterm_back() -> None:
    """Sets the handler of SIGTERM once more: Ray has put one of its own, in C++, before it, which prints its stack."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _keep_quiet() -> None:
    """Keeps the raylets' logs, which Ray prints for each node that dies, out of standard output: it is the result's."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


def list_nodes(ray: Any) -> list[FoundNode]:
    """The living nodes that offer the resource ``qbench``."""
    return [
        FoundNode(name=node["NodeID"], address=node["NodeManagerAddress"], label=node.get("Labels", {}).get(LABEL))
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get(RESOURCE, 0) >= 1
    ]


def open_agent(ray: Any, node: FoundNode, agent: type, cores: float = 0) -> Any:
    """An agent on a node, which it holds whole: no other run of qbench has one there meanwhile."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return (
        ray.remote(agent)
        .options(
            num_cpus=cores,
            resources={RESOURCE: 1},
            max_concurrency=64,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.name, soft=False),
        )
        .remote()
    )


def get(ray: Any, reference: Any, ending: threading.Event) -> Any:
    """What a node answers; raises ``NodeLost`` where the run ends first: a cluster whose head has ended does not tell
    that a node is gone."""
    while True:
        try:
            return ray.get(reference, timeout=_ENDING_SECONDS)
        except ray.exceptions.GetTimeoutError as error:
            if ending.is_set():
                raise NodeLost("the run was ended") from error


def end_agent(ray: Any, agent: Any) -> None:
    """Ends an agent, or leaves it where it is gone already, or where the connection is what is lost."""
    with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
        ray.kill(agent)


@contextlib.contextmanager
def _start_here(count: int, cache: Path) -> Iterator[str]:
    """The address of a cluster on this machine that nobody else reaches, with ``count`` nodes that share its cores."""
    cores = fingerprint.allowed_cores()
    if not share_cores(cores, 0, count):
        raise UsageError(f"--on {LOCAL}:{count}: this process may use {len(cores)} cores, and each node needs one")
    folder, whole, ours = _make_folder(), imports.name_own_cores(), offspring()
    ours.remove_at_the_end(folder)  # Ray ends this process itself where the head of its cluster is gone
    saved = _set({**_VARIABLES, **_make_token(), "RAY_TMPDIR": str(folder), reaper.MARK: ours.mark})
    options = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    cluster: Any = None
    try:
        from ray._private import ray_constants
        from ray.cluster_utils import Cluster

        if ray_constants.ENABLE_RAY_CLUSTER:
            raise UsageError(f"--on {LOCAL}: Ray was imported too early to be kept here; start a new process")
        _keep_sigterm()
        head = {"num_cpus": 0, "no_monitor": True, "include_log_monitor": False}  # nobody scales it or reads its logs
        with inheritance.block_signal("SIGHUP"), _explain_start(count):
            cluster = Cluster(initialize_head=True, head_node_args={**options, **head})
        for number in range(count):
            mine = share_cores(cores, number, count)
            with _explain_start(count), _only_on(mine), inheritance.block_signal("SIGHUP"):
                cluster.add_node(
                    **options,
                    num_cpus=len(mine),
                    resources={RESOURCE: 1},
                    env_vars={
                        "QBENCH_CACHE": str(cache.with_name(f"{cache.name}-nodes") / str(number + 1)),
                        **whole,  # children import as on this machine, whose cores the nodes share
                    },
                )
        yield cluster.address
    finally:
        if cluster is not None:
            cluster.shutdown()
        _set(saved)
        shutil.rmtree(folder, ignore_errors=True)


def _explain_start(count: int) -> reraise:
    """Whatever Ray raises of a node that dies while it starts is one message: its classes for that are many."""
    return reraise(
        UsageError,
        lambda error: (
            f"--on {LOCAL}:{count}: a node of it did not start: {_shorten(error)}; is there memory, and room "
            f"on the disk of {tempfile.gettempdir()}? fewer nodes need less"
        ),
    )


@functools.cache
def _make_token() -> dict[str, str]:
    """What keeps other users of this machine out of a cluster on it. Ray reads it once for a process; one before 2.52
    does not know it."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _make_folder() -> Path:
    """Where a cluster on this machine has its files; its path is short enough for Ray's sockets."""
    temporary = Path(tempfile.gettempdir())
    if len(str(temporary)) > _LONGEST_FOLDER and sys.platform != "win32":
        temporary = Path("/tmp")
    return Path(tempfile.mkdtemp(prefix="qb-", dir=temporary))


def share_cores(cores: tuple[int, ...], number: int, count: int) -> tuple[int, ...]:
    """Those of one of ``count`` nodes on this machine."""
    return cores[number * len(cores) // count : (number + 1) * len(cores) // count]


@contextlib.contextmanager
def _only_on(cores: tuple[int, ...]) -> Iterator[None]:
    """Processes that start meanwhile may use these cores alone."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _set(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Sets environment variables (None removes); what they were."""
    saved = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return saved
