"""Child processes and a whole run on a cluster of three nodes on this machine, and what becomes of their work when
nodes die.

One cluster for the module: starting it takes about ten seconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import os
import threading
import time
from dataclasses import dataclass, replace
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
from qbench.fleet import engine, transfer
from qbench.fleet import nodes as described_nodes
from qbench.fleet.core_keeper import list_processes
from qbench.fleet.fleet import Fleet, FleetWorker
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


# --- without a cluster ----------------------------------------------------------------------------------------


class RayFault(Exception):
    """As Ray's own errors."""


class Unschedulable(RayFault):
    """As Ray says of a node that is gone."""


class Refused(RayFault):
    """As Ray says of an agent whose making failed."""

    actor_init_failed = True


class Ended(RayFault):
    """As Ray says of an agent that died after it was made."""

    actor_init_failed = False


class FakeRay:
    """Ray without a cluster: a reference is a function that gives the answer. ``stored`` and ``killed`` tell what was
    put and ended; the first ``waits`` looks at a reference find it open."""

    exceptions = SimpleNamespace(RayError=RayFault, ActorUnschedulableError=Unschedulable, GetTimeoutError=TimeoutError)

    def __init__(self, waits=0):
        self.waits, self.stored, self.killed = waits, [], []

    def get(self, reference, timeout=None):
        return reference()

    def put(self, files):
        self.stored.append(files)
        return ("stored", len(self.stored))

    def wait(self, references, timeout):
        assert timeout == 2.0
        self.waits -= 1
        return ([], references) if self.waits >= 0 else (references, [])

    def kill(self, agent):
        self.killed.append(agent)


class FakeAgent:
    """A node's agent: each method answers by the function of its name, and what it was asked is kept."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def __getattr__(self, name):
        def remote(*args):
            self.asked.append((name, *args))
            return lambda: self.answers[name](*args)

        return SimpleNamespace(remote=remote)


PRINT = {**dict.fromkeys(described_nodes.fingerprint.COMPARED), "cpu": "Zen 4", "cores_allowed": 2}
OTHER = {**PRINT, "cpu": "Graviton"}
HERE = replace(described_nodes.read_facts(name="", address="here", label=None, niceness=0), fingerprint=PRINT)


def describe(name, **changes):
    """What a node says of itself."""
    values = {"name": name, "address": f"10.0.0.{name[-1]}", "machine": name, "cores": (0, 1), **changes}
    return replace(HERE, **values)


def make_fleet(monkeypatch, *facts, waits=0, root=None, **answers):
    """A fleet of nodes that say that of themselves, with its notes, its agents by name, and the list that Ray has of
    its nodes, which a test may change."""
    agents, notes = {}, []
    listed = [engine.FoundNode(name=each.name, address=each.address, label=each.label) for each in facts]
    known = {each.name: each for each in facts}

    def open_agent(ray, node, kind):
        answer = known[node.name] if node.name in known else describe(node.name)
        agents[node.name] = FakeAgent(**answers, describe=lambda *_: raise_or_give(answer))
        return agents[node.name]

    monkeypatch.setattr(engine, "list_nodes", lambda ray: list(listed))
    monkeypatch.setattr(engine, "open_agent", open_agent)
    fleet = Fleet(ray=FakeRay(waits), root=root or Path("/nowhere"), own=HERE, note=notes.append)
    return SimpleNamespace(fleet=fleet, agents=agents, notes=notes, listed=listed, known=known)


def raise_or_give(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer


def form(cluster):
    """Admits the nodes and forms their classes."""
    assert cluster.fleet.admit_nodes() == []
    assert cluster.fleet.form_classes() == []
    return cluster.fleet


def test_nodes_are_admitted_once_and_form_classes(monkeypatch):
    """Their places are those of their cores, by class; this machine's own count where no class is like it."""
    cluster = make_fleet(
        monkeypatch, describe("n1"), describe("n2"), describe("n3", fingerprint=OTHER, cores=(0, 1, 2))
    )
    assert not cluster.fleet.has_nodes
    fleet = form(cluster)
    assert fleet.has_nodes
    assert fleet.admit_nodes() == []
    assert [len(agent.asked) for agent in cluster.agents.values()] == [1, 1, 1]
    assert fleet.cores_by_host == {"ray:zen-4-2c": 2, "ray:graviton-3c": 3}
    assert (fleet.home.label, fleet.places, fleet.schedule.count("zen-4-2c")) == ("zen-4-2c", 7, 4)
    assert fleet.form_classes() == []
    assert fleet.places == 7
    strange = make_fleet(monkeypatch, describe("n1", fingerprint=OTHER))
    assert form(strange).home is None
    assert strange.fleet.places == 2 + len(HERE.cores)


def test_a_host_is_a_class_or_this_machine(monkeypatch):
    """What is native goes to nodes like this machine; another class has another processor, which decides answers."""
    fleet = form(make_fleet(monkeypatch, describe("n1"), describe("n2", fingerprint=OTHER)))
    assert fleet.find_class("native") is fleet.home is fleet.find_class("ray:zen-4-2c")
    assert fleet.find_class("ray:graviton-2c").label == "graviton-2c"
    assert fleet.find_class("ray:none") is None
    assert fleet.name_processor("native") is None
    assert fleet.name_processor("ray:zen-4-2c") is None
    assert fleet.name_processor("ray:none") is None
    assert fleet.name_processor("ray:graviton-2c") == ("Graviton", None, None, None, None)


def test_a_node_that_cannot_work_is_refused_and_let_go(monkeypatch):
    """One with other versions, and one on which qbench does not start; who died since Ray listed it is only noted."""
    cluster = make_fleet(
        monkeypatch, describe("n1", niceness=15), describe("n000000002"), describe("n3"), describe("n4"), describe("n5")
    )
    cluster.known |= {
        "n000000002": Refused("no module qbench\nmore"),
        "n3": Ended("it ended"),
        "n4": Unschedulable("gone"),
    }
    refused = cluster.fleet.admit_nodes()
    assert [text.partition(":")[0] for text in refused] == ["node 10.0.0.1 (n1)", "node 10.0.0.2 (n0000000)"]
    assert refused[1].endswith("qbench does not start there (no module qbench)")
    assert [note.rpartition(" (")[2] for note in cluster.notes] == ["it ended)", "gone)"]
    assert cluster.fleet.ray.killed == [cluster.agents[name] for name in ("n1", "n000000002", "n3", "n4")]
    assert set(cluster.fleet._agents) == {"n5"}


def test_a_node_that_says_that_its_disk_is_full_is_lost(monkeypatch):
    """It is told once, its agent is ended, and nobody is sent there any more; an error of the work is only raised."""
    answers = iter(
        [("result", 7, {"samples": {}}), ("error", CaseError("no layer"), {}), ("lost", NodeLost("full"), {})]
    )
    cluster = make_fleet(monkeypatch, describe("n1"), describe("n2"), measure=lambda *_: next(answers))
    fleet = form(cluster)
    assert fleet.call("n1", "measure", b"x") == (7, {"samples": {}})
    with pytest.raises(CaseError, match="no layer"):
        fleet.call("n1", "measure", b"x")
    assert (cluster.notes, fleet.ray.killed) == ([], [])
    with pytest.raises(NodeLost, match="full"):
        fleet.call("n1", "measure", b"x")
    fleet.lose("n1", "again")
    assert cluster.notes == ["node 10.0.0.1 (n1) is gone (full); its work goes to others of its class"]
    assert fleet.ray.killed == [cluster.agents["n1"]]
    assert fleet.schedule.names() == {"n2"}
    with pytest.raises(NodeLost, match="node n1 is gone"):
        fleet.ask("n1", "measure", b"x")
    assert len(cluster.agents["n1"].asked) == 4


@pytest.mark.parametrize("error", [RayFault("\n  the actor died \nin Ray"), ConnectionError()], ids=["died", "cut"])
def test_what_ray_raises_is_a_lost_node(monkeypatch, error):
    """With the first line of it, or its kind where it says nothing."""
    cluster = make_fleet(monkeypatch, describe("n000000001"), list_missing=lambda *_: raise_or_give(error))
    fleet = form(cluster)
    said = "the actor died" if str(error) else "ConnectionError"
    with pytest.raises(NodeLost, match=f"node n0000000 is gone: {said}$"):
        fleet.ask("n000000001", "list_missing", [])
    with pytest.raises(NodeLost, match="node n0000000 is gone$"):
        fleet.ask("n000000001", "list_missing", [])
    assert cluster.notes == [f"node 10.0.0.1 (n0000000) is gone ({said}); its work goes to others of its class"]
    assert not fleet.has_nodes


def test_the_cause_is_at_most_a_line(monkeypatch):
    """Ray may say a lot."""
    cluster = make_fleet(monkeypatch, describe("n1"), list_missing=lambda *_: raise_or_give(RayFault("x" * 1000)))
    with pytest.raises(NodeLost) as raised:
        form(cluster).ask("n1", "list_missing", [])
    assert str(raised.value).count("x") == 200


def test_each_entry_is_stored_once_and_sent_to_a_node_once(monkeypatch, tmp_path):
    """What the node lacks alone; a folder with its files, a file from outside by its name. Nothing to send, nothing
    asked."""
    root, outside = tmp_path / "cache", tmp_path / "mine.onnx"
    (root / "artifacts" / ("b" * 64)).mkdir(parents=True)
    (root / "artifacts" / ("b" * 64) / "m").write_bytes(b"1")
    outside.write_bytes(b"2")
    had = {"n1": [], "n2": []}
    cluster = make_fleet(
        monkeypatch, describe("n1"), describe("n2"), root=root,
        list_missing=lambda entries: [entry for entry in entries if entry not in had[asked[0]]],
        keep=lambda entry, files: had[asked[0]].append(entry) or ("result", None, {}),
    )  # fmt: skip
    fleet, asked = form(cluster), [""]
    sent = transfer.pack([root / "artifacts" / ("b" * 64) / "m", outside], root)
    for name in ("n1", "n2", "n1"):
        asked[0] = name
        fleet.deliver(name, sent)
    entries = [f"artifacts/{'b' * 64}", f"files/{store.file_digest(outside)}"]
    assert had == {"n1": entries, "n2": entries}
    assert fleet.ray.stored == [{"m": b"1"}, {"mine.onnx": b"2"}]
    kept = [("keep", entry, ("stored", number)) for number, entry in enumerate(entries, 1)]
    assert [each for each in cluster.agents["n1"].asked if each[0] == "keep"] == kept
    before = len(cluster.agents["n1"].asked)
    fleet.deliver("n1", transfer.pack(7, root))
    assert len(cluster.agents["n1"].asked) == before


def test_a_node_is_asked_how_far_it_is_while_it_works(monkeypatch):
    """What it says is told; where it has nothing to say, or nobody listens, nothing is."""
    states, told = iter([None, ("layer", 0.5)]), []
    cluster = make_fleet(monkeypatch, describe("n1"), waits=2, progress=lambda number: next(states))
    fleet = form(cluster)
    answer = fleet.follow("n1", lambda: ("result", 1, {}), 4, lambda text, share: told.append((text, share)))
    assert (answer, told) == (("result", 1, {}), [("layer", 0.5)])
    assert cluster.agents["n1"].asked[1:] == [("progress", 4)] * 2
    fleet.ray.waits = 5
    assert fleet.follow("n1", lambda: ("result", 2, {}), 4, None) == ("result", 2, {})
    assert fleet.ray.waits == 5


def test_a_cancelled_fleet_ends_its_agents_and_asks_nobody(monkeypatch):
    """Nothing is noted of nodes that are let go on purpose, and nobody waits for a place."""
    cluster = make_fleet(monkeypatch, describe("n1"), describe("n2"), list_missing=lambda *_: [])
    fleet = form(cluster)
    fleet.cancel()
    fleet.lose("n2", "late")
    assert fleet.ray.killed == list(cluster.agents.values())
    assert (cluster.notes, fleet.has_nodes) == ([], False)
    assert fleet.schedule.take_machine("zen-4-2c").name == "n1"
    with pytest.raises(CaseError, match="the run was ended"):
        fleet.schedule.take_machine("zen-4-2c")
    with pytest.raises(NodeLost):
        fleet.ask("n1", "list_missing", [])


class Watching(threading.Event):
    """Ends after so many looks at the cluster; before each, ``look`` may change it."""

    def __init__(self, *looks):
        super().__init__()
        self.looks, self.waited = list(looks), []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        if not self.looks:
            return True
        self.looks.pop(0)()
        return False


def test_nodes_that_join_late_work_and_dead_ones_are_forgotten(monkeypatch):
    """A late node of a class that the run has joins it; one of another class, and one that is refused, are told of and
    do nothing. What Ray raises meanwhile is passed over."""
    cluster = make_fleet(monkeypatch, describe("n1"), describe("n2"))
    fleet = form(cluster)

    def join(*facts):
        cluster.known.update({each.name: each for each in facts})
        cluster.listed.extend(engine.FoundNode(name=each.name, address=each.address, label=None) for each in facts)

    def fail():
        monkeypatch.setattr(engine, "list_nodes", lambda ray: raise_or_give(RayFault("no answer")))

    def answer():
        monkeypatch.setattr(engine, "list_nodes", lambda ray: list(cluster.listed))

    fleet._ending = Watching(
        lambda: None,
        lambda: cluster.listed.pop(0),
        fail,
        answer,
        lambda: join(describe("n3"), describe("n4", fingerprint=OTHER), describe("n5", niceness=9)),
        lambda: None,
    )
    fleet.watch()
    assert fleet._ending.waited == [5.0] * 7
    assert sorted(fleet.schedule.names()) == ["n2", "n3"]
    assert (
        cluster.notes[0]
        == "node 10.0.0.1 (n1) is gone (Ray says that it is dead); its work goes to others of its class"
    )
    assert "niceness 9" in cluster.notes[1]
    assert sorted(cluster.notes[2:]) == [
        "node 10.0.0.3 (n3) joined the class zen-4-2c",
        "node 10.0.0.4 (n4) is of a class that this run does not have",
    ]


def test_a_late_node_with_the_label_of_nodes_that_differ_is_left_out(monkeypatch):
    """As where it had been there from the start, with the field."""
    cluster = make_fleet(monkeypatch, describe("n1", label="a"))
    fleet = form(cluster)
    cluster.known["n2"] = describe("n2", label="a", fingerprint=OTHER)
    cluster.listed.append(engine.FoundNode(name="n2", address="10.0.0.2", label="a"))
    fleet._ending = Watching(lambda: None)
    fleet.watch()
    assert ["another cpu (Graviton, not Zen 4)" in note for note in cluster.notes] == [True]
    assert fleet.schedule.names() == {"n1"}


def open_worker(fleet, **answers):
    """A child on the one node of a fleet."""
    return FleetWorker(fleet, lambda: fleet.schedule.take_place("zen-4-2c"), Path, "x", name="child", **answers)


def test_a_child_on_a_node_fills_folders_here_and_gives_its_place_back(monkeypatch, tmp_path):
    """Once, however often it is closed; its number is what the node gave it."""
    (tmp_path / "artifacts").mkdir()
    cluster = make_fleet(
        monkeypatch, describe("n1"), root=tmp_path, start=lambda payload: ("result", 5, {}), close=lambda number: None,
        ask=lambda number, payload, folders: ("result", "done", {name: {"m": b"1"} for name in folders}),
    )  # fmt: skip
    fleet = form(cluster)
    taken = fleet.schedule.take_place("zen-4-2c")
    with open_worker(fleet) as worker:
        assert fleet.schedule._find_free("zen-4-2c") is None
        worker.ready()
        making = tmp_path / "artifacts" / ".0123456789abcdef-x"
        assert worker.ask("build", making) == "done"
        assert (making / "m").read_bytes() == b"1"
        assert worker.count_room() == 1000
    worker.close()
    assert [each[:2] for each in cluster.agents["n1"].asked if each[0] in ("ask", "close")] == [
        ("ask", 5),
        ("close", 5),
    ]
    assert fleet.schedule.take_place("zen-4-2c").name == "n1"
    fleet.schedule.give_back(taken)


def test_a_child_that_never_started_is_closed_without_asking(monkeypatch):
    """Its place is given back all the same; and where the node is gone as it is closed."""
    cluster = make_fleet(
        monkeypatch, describe("n1", cores=(0,)), start=lambda payload: ("result", 0, {}),
        close=lambda number: raise_or_give(RayFault("gone")),
    )  # fmt: skip
    cluster.known["n1"] = describe("n1", cores=(0, 1))
    fleet = form(cluster)
    open_worker(fleet).close()
    assert [each[0] for each in cluster.agents["n1"].asked] == ["describe"]
    worker = open_worker(fleet)
    worker.ready()
    worker.close()
    assert fleet.schedule._running["n1"] == 0
    assert ["is gone (gone)" in note for note in cluster.notes] == [True]


@pytest.mark.parametrize(("kind", "error"), [("lost", NodeLost("a disk is full")), ("error", CaseError("no layer"))])
def test_a_child_whose_answer_is_an_error_raises_it(monkeypatch, kind, error):
    """A node that is lost with it is told of; one whose work fails goes on."""
    cluster = make_fleet(
        monkeypatch, describe("n1"), start=lambda payload: ("result", 0, {}), close=lambda number: None,
        ask=lambda *_: (kind, error, {}),
    )  # fmt: skip
    fleet = form(cluster)
    with open_worker(fleet) as worker:
        worker.ready()
        with pytest.raises(type(error), match=str(error)):
            worker.ask("build")
    assert fleet.has_nodes is (kind == "error")
    assert len(cluster.notes) == (kind == "lost")


@dataclass(frozen=True)
class FakeMeasured:
    """What measuring gave, and where."""

    value: int
    node: str | None = None


def test_a_setting_is_measured_on_another_node_where_one_is_lost(monkeypatch):
    """With the samples of that one and its name; the machine is free again, also of the one that was lost."""
    answers = iter([("lost", NodeLost("full"), {}), ("result", FakeMeasured(3), {"samples": {"a.npz": b"1"}})])
    cluster = make_fleet(monkeypatch, describe("n1"), describe("n2"), measure=lambda payload: next(answers))
    fleet = form(cluster)
    assert fleet.measure("zen-4-2c", 0) == (FakeMeasured(3, "10.0.0.2 (n2)"), {"a.npz": b"1"})
    assert fleet.schedule.take_machine("zen-4-2c").name == "n2"


def test_a_class_has_one_place_with_as_many_slots_as_its_nodes(monkeypatch):
    """Asked for twice it is the same; helpers of an evaluation start there though it holds all places itself."""
    cluster = make_fleet(monkeypatch, describe("n1"), start=lambda payload: ("result", 0, {}))
    fleet = form(cluster)
    place = fleet.place("zen-4-2c")
    assert fleet.place("zen-4-2c") is place
    assert [place.slots.take_spare() for _ in range(3)] == [True, True, False]
    for _ in range(2):
        fleet.schedule.take_place("zen-4-2c")
    assert place.start_worker(Path, "x")._node.name == "n1"
    assert [fleet.place("none").slots.take_spare() for _ in range(2)] == [True, False]


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


class FailingAgent:
    """An agent whose description is an error."""

    def __init__(self, error):
        self.describe = SimpleNamespace(remote=lambda *_: error)


def raise_it(error, timeout):
    """What getting a reference does that is an error."""
    raise error


def test_a_cancelled_run_leaves_no_process(nodes, home):
    """Agents and their children end; whoever waits hears of it. It is the last test of the cluster, and one before may
    have ended a node."""
    nodes.place(home).run_child(read_pids, limits=LIMITS)
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


def wait_until(condition, seconds=30.0):
    """As ``waiting.wait_until``, which cannot be imported here: children on nodes import this file, and have no path to
    the fixtures."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
