"""Child processes and a whole run on a cluster of three nodes on this machine, and what becomes of their work when
nodes die.

One cluster for the module: starting it takes about ten seconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

# Not imported here: what the cluster of this machine is told by its environment is read at that moment.
if importlib.util.find_spec("ray") is None:
    pytest.skip("a cluster needs Ray: pip install -e '.[cluster]'", allow_module_level=True)

from qbench import suite
from qbench.cache import store
from qbench.errors import CaseError, NodeLost
from qbench.fleet import engine
from qbench.fleet.core_keeper import list_processes
from qbench.fleet.fleet import Fleet
from qbench.fleet.opening import open_fleet
from qbench.fleet.reach import explain_unreachable
from qbench.fleet.schedule import FleetNode
from qbench.process import imports, reaper
from qbench.process.child_process import Limits
from qbench.progress.live import Silent
from qbench.running import run

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
LIMITS = Limits(seconds=120)
NOTES: list[str] = []
SUITE = """
suite: whole
models: [{name: mine, source: {python: "model.py:network"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static], backends: [onnxruntime], batch_sizes: [1]}
measure: {max_seconds: 0.1, precision: 50%, processes: 1, cold_starts: 1}
"""
MODEL = """
import torch

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Three nodes that share this machine's cores, each with a cache of its own."""
    folder = tmp_path_factory.mktemp("f")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBENCH_CACHE", str(folder / "cache"))
        patch.setattr(engine, "share_cores", lambda cores, number, count: cores)
        with open_fleet("local-cluster:3", store.open_cache(), NOTES.append) as fleet:
            yield fleet


@pytest.fixture
def home(nodes: Fleet) -> str:
    """The label of the one class that there is."""
    assert nodes.home is not None
    return nodes.home.label


def read_pids(*, progress):
    return os.getpid(), os.getppid(), os.environ["QBENCH_CACHE"], os.nice(0)


def read_import_cores(*, progress):
    return os.environ[imports.CORES]


def copy_file(source, folder, *, progress):
    """What a build does: reads the cache and fills a folder."""
    (folder / "copy").write_text(source.read_text() + os.environ["QBENCH_CACHE"])
    return str(source)


def wait_once(sign, *, progress):
    """The first time it says that it works, and does not end."""
    if Path(sign).exists():
        return os.environ["QBENCH_CACHE"]
    Path(sign).write_text(os.environ["QBENCH_CACHE"])
    time.sleep(300)
    return None


def refuse(*, progress):
    raise CaseError("no such layer")


def test_what_a_node_says_is_what_the_child_raises(nodes, home):
    """Errors and values come back as from a child on this machine; it runs at niceness 0, with the node's cache."""
    run = nodes.place(home).run_child
    pid, _, cache, niceness = run(read_pids, limits=LIMITS)
    assert pid != os.getpid()
    assert "cache-nodes" in cache
    assert niceness <= os.nice(0)
    with pytest.raises(CaseError, match="no such layer"):
        run(refuse, limits=LIMITS)


def test_children_of_a_node_import_as_on_this_machine(nodes, home):
    """Whatever cores Ray is kept off meanwhile: libraries choose their kernels by those that the machine has."""
    cores = nodes.place(home).run_child(read_import_cores, limits=LIMITS)
    assert cores == imports.name_own_cores()[imports.CORES]


def test_nodes_that_share_a_machine_name_all_of_its_cores(nodes, tmp_path, monkeypatch):
    """Each may use its share alone, but imports as a process of this machine does."""
    started = []

    class Cluster:
        address = "127.0.0.1:0"

        def __init__(self, **_):
            pass

        def add_node(self, env_vars, **_):
            started.append((sorted(os.sched_getaffinity(0)), env_vars[imports.CORES]))

        def shutdown(self):
            pass

    monkeypatch.setattr("ray.cluster_utils.Cluster", Cluster)
    monkeypatch.setattr(engine, "share_cores", lambda cores, number, count: cores[number : number + 1])
    whole, cores = imports.name_own_cores()[imports.CORES], sorted(os.sched_getaffinity(0))
    with engine._start_here(len(cores), tmp_path):
        assert started == [([core], whole) for core in cores]


def test_files_travel_by_hash_and_come_back(nodes, home):
    """An entry of the cache is sent to a node once; what was made there lies here."""
    entry = store.fetch(nodes.root, "artifacts", "b" * 64, lambda folder: {"n": (folder / "m").write_text("weights")})
    making = nodes.root / "artifacts" / ".0123456789abcdef-x"
    making.mkdir()
    there = nodes.place(home).run_child(copy_file, entry.folder / "m", making, limits=LIMITS)
    assert not Path(there).is_relative_to(nodes.root)
    assert (making / "copy").read_text().startswith("weights")
    assert Path(there).read_text() == "weights"
    assert f"artifacts/{'b' * 64}" in nodes._objects


def test_a_run_on_nodes_is_the_run_on_this_machine(nodes, tmp_path, monkeypatch):
    """Built apart, from empty caches: every artifact has the same bytes, every case the same score."""
    draw = np.random.default_rng(0)
    arrays = {
        f"{part}_{name}": draw.random((count, 1, 8, 8), dtype=np.float32) if name == "inputs" else np.arange(count) % 10
        for part, count in (("train", 32), ("test", 40))
        for name in ("inputs", "labels")
    }
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "whole.yaml").write_text(SUITE)
    here = run_suite(tmp_path, None)
    monkeypatch.setenv("QBENCH_CACHE", str(nodes.root))
    monkeypatch.setattr(run, "open_fleet", lambda *_: contextlib.nullcontext(nodes))
    there = run_suite(tmp_path, "local-cluster:3")
    assert len(here) == 2
    assert {case: facts[:2] for case, facts in here.items()} == {case: facts[:2] for case, facts in there.items()}
    assert not any(node for _, _, node in here.values())
    assert all(node for _, _, node in there.values())


def test_nothing_listens_beyond_this_machine(nodes):
    """Read from the kernel: every listening socket of Ray's processes is on a loopback address."""
    inodes = {name for pid in list_ours() for name in list_sockets(pid)}
    listening = [address for inode, address in read_listening() if inode in inodes]
    assert listening
    assert [address for address in listening if not address.is_loopback] == []


def test_other_users_of_this_machine_have_no_token_for_it(nodes, monkeypatch):
    """The ports of loopback are open to all of them."""
    address = nodes.ray.get_runtime_context().gcs_address
    assert explain_unreachable(address) is None
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert "the cluster asks for a token" in str(explain_unreachable(address))


def test_the_work_of_a_node_that_is_killed_goes_to_another(nodes, home, tmp_path):
    """Its agent dies by a signal while a child works: the child goes with it, the work is done elsewhere, and the node
    is told of once."""
    from concurrent.futures import ThreadPoolExecutor

    sign = tmp_path / "sign"
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(nodes.place(home).run_child, wait_once, str(sign), limits=LIMITS)
        wait_until(lambda: sign.exists() or future.done())
        assert not future.done()
        first = sign.read_text()
        (agent,) = [pid for pid in list_ours() if is_agent(pid) and reads_cache(pid, first)]
        below = reaper.descendants(agent)
        reaper.kill(agent)
        assert future.result(60) != first
    assert len([note for note in NOTES if "is gone" in note]) == 1
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


class LosingFleet(Fleet):
    """Nodes of which some are gone when they are first asked, and whose children are this process."""

    def __init__(self, gone, fatal=False):
        super().__init__(ray=None, root=Path(), own=None, note=NOTES.append)
        self.gone, self.fatal, self.started = list(gone), fatal, []
        for name in (*gone, *(f"alive{number}" for number in range(5))):
            self.schedule.add(FleetNode(name=name, group="zen4", machine=name, places=1))

    def deliver(self, name, sent):
        if name in self.gone:
            self.schedule.lose(name)
            raise NodeLost(f"node {name} is gone")

    def call(self, name, method, *args):
        return 0, {}

    def send(self, name, method, *args):
        self.started.append(name)
        return

    def ask(self, name, method, *args):
        return None

    def follow(self, name, reference, number, progress):
        if self.fatal:
            self.schedule.lose(name)
            raise NodeLost(f"node {name} is gone")
        return "result", "done", {}


def test_only_work_that_had_begun_counts_as_what_ended_a_node():
    """Nodes that were dead when they were asked are passed over, however many; work that is lost with three nodes on
    which it had begun may be what ends them, and fails."""
    fleet = LosingFleet(gone="abcdefg")
    assert fleet.place("zen4").run_child(read_pids, limits=LIMITS) == "done"
    fleet = LosingFleet(gone="abcdefg", fatal=True)
    with pytest.raises(CaseError, match="lost with 3 nodes"):
        fleet.place("zen4").run_child(read_pids, limits=LIMITS)
    assert len(fleet.started) == 3


def test_work_of_several_processes_is_repeated_as_that_of_one():
    """What holds workers of its own begins again where a node is lost with it: with three it fails, and it ends with
    the run."""
    fleet, tries = LosingFleet(gone=""), []

    def lose_twice():
        tries.append(len(tries))
        if len(tries) < 3:
            raise NodeLost("gone")
        return "done"

    assert fleet.place("zen4").repeat(lose_twice) == "done"
    tries.clear()

    def lose_always():
        tries.append(len(tries))
        raise NodeLost("gone")

    with pytest.raises(CaseError, match="lost with 3 nodes"):
        fleet.place("zen4").repeat(lose_always)
    assert len(tries) == 3
    fleet.cancel()
    with pytest.raises(NodeLost):
        fleet.place("zen4").repeat(lose_always)
    assert len(tries) == 4


def test_a_node_that_died_as_it_was_listed_is_left_out(monkeypatch):
    """Ray cannot place the agent on it any more: it is noted, and the run goes on without it. A node on which qbench
    does not start, or does not answer, is refused."""
    listed = [engine.FoundNode(name=name, address="127.0.0.1", label=None) for name in ("dead", "broken", "silent")]
    errors = {"dead": Unschedulable("the node does not exist any more"), "broken": RayFault("no module qbench")}
    errors["silent"] = TimeoutError()
    monkeypatch.setattr(engine, "list_nodes", lambda ray: listed)
    monkeypatch.setattr(engine, "open_agent", lambda ray, node, agent: FailingAgent(errors[node.name]))
    monkeypatch.setattr(engine, "end_agent", lambda ray, agent: None)
    exceptions = SimpleNamespace(RayError=RayFault, ActorUnschedulableError=Unschedulable, GetTimeoutError=TimeoutError)
    notes = []
    fleet = Fleet(ray=SimpleNamespace(exceptions=exceptions, get=raise_it), root=Path(), own=None, note=notes.append)
    broken, silent = fleet.admit_nodes()
    assert "no module qbench" in broken
    assert "(silent): no answer within 60 s; another run of qbench holds it, or processes of Ray were ended" in silent
    assert [("dead" in note, "does not exist" in note) for note in notes] == [(True, True)]


class RayFault(Exception):
    """As Ray's own errors."""


class Unschedulable(RayFault):
    """As Ray says of a node that is gone."""


class FailingAgent:
    """An agent whose description is an error."""

    def __init__(self, error):
        self.describe = SimpleNamespace(remote=lambda *_: error)


def raise_it(error, timeout):
    """What getting a reference does that is an error."""
    raise error


def test_a_cancelled_run_leaves_no_process(nodes, home):
    """Agents and their children end; whoever waits hears of it. It is the last test of the cluster."""
    agents = [pid for pid in list_ours() if is_agent(pid)]
    below = [pid for agent in agents for pid in reaper.descendants(agent)]
    assert agents
    nodes.cancel()
    with pytest.raises(CaseError):
        nodes.place(home).run_child(read_pids, limits=LIMITS)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*agents, *below)))


def run_suite(folder, on):
    """The artifact's hash, the accuracy and the node of each case."""
    read = suite.read(folder / "whole.yaml")
    done = run.run(read, out=folder / "reports", only=None, resume=None, jobs=None, progress=Silent(), on=on)
    assert [record.reason for record in done.records if record.status != "ok"] == []
    return {
        record.case.id: (record.artifact.sha256, record.accuracy.value, record.host and record.host.node)
        for record in done.records
    }


def list_ours():
    """Ray's processes of this cluster: the machine may have others."""
    return set(list_processes()) & set(reaper.descendants(os.getpid()))


def is_agent(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Agent")


def reads_cache(pid, cache):
    return f"QBENCH_CACHE={cache}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def list_sockets(pid):
    """The inodes of a process's sockets."""
    try:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []
    return [str(link)[8:-1] for link in links if str(link).startswith("socket:[")]


def read_listening():
    """The inode and the address of each socket that listens."""
    for file in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                words = bytes.fromhex(fields[1].partition(":")[0])
                raw = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                address = ipaddress.ip_address(raw)
                yield fields[9], getattr(address, "ipv4_mapped", None) or address
