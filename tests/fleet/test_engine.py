"""What ``--on`` takes, and what it says without Ray. A cluster itself: tests/fleet/test_fleet.py."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.errors import NodeLost, UsageError
from qbench.fleet import engine
from qbench.machine import fingerprint
from qbench.process import imports


@pytest.mark.parametrize("on", ["", "local", "local-cluster:0", "ray://host", "http://x:1", "a b:1"])
def test_what_names_no_cluster_is_refused(on):
    """The message lists what does."""
    with pytest.raises(UsageError, match="expected ray://HOST:PORT"):
        engine.read_target(on)


def test_ray_address_counts_only_where_it_is_asked_for(monkeypatch):
    """`--on ray` without it says so; a run without --on never reads it."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UsageError, match="RAY_ADDRESS is not set"):
        engine.read_target("ray")
    monkeypatch.setenv("RAY_ADDRESS", "head")
    with pytest.raises(UsageError, match="RAY_ADDRESS is 'head': expected ray://HOST:PORT"):
        engine.read_target("ray")


def test_without_ray_one_message_says_what_to_install(monkeypatch):
    """The extra is named."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install .*\[cluster\]'?$"):
        engine.read_target("local-cluster")


@pytest.mark.parametrize("length", range(4, 60))
def test_the_folder_of_a_cluster_has_room_for_the_sockets_of_ray(monkeypatch, length):
    """Whatever the temporary folder is: the path of a socket may have 107 characters (unix(7))."""
    temporary = "/tmp/".ljust(length, "x").rstrip("/")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: temporary)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **given: f"{given['dir']}/{given['prefix']}12345678")
    longest = "ray/session_2026-11-23_16-07-20_442282_4194304/sockets/plasma_store.999"
    folder = engine._make_folder()
    assert len(str(folder / longest)) <= 107
    assert folder.parent == Path(temporary if len(temporary) <= 23 else "/tmp")


class SilentRay:
    """A cluster that answers once it was asked ``times`` times."""

    exceptions = SimpleNamespace(GetTimeoutError=TimeoutError)

    def __init__(self, times):
        self._times = times

    def get(self, reference, timeout):
        assert timeout == 2.0
        self._times -= 1
        if self._times > 0:
            raise TimeoutError
        return reference


def test_nobody_waits_for_a_node_once_the_run_ends():
    """A cluster whose head has ended never says that the node is gone; before the end an answer may take its time."""
    ending = threading.Event()
    assert engine.get(SilentRay(times=3), "answer", ending) == "answer"
    ending.set()
    with pytest.raises(NodeLost, match="the run was ended"):
        engine.get(SilentRay(times=3), "answer", ending)


@pytest.mark.parametrize("on", ["local-cluster", "local-cluster:1", "local-cluster:999", "ray://h:10001", "h.x:6379"])
def test_what_names_a_cluster_is_taken_as_it_is(monkeypatch, on):
    """Whatever RAY_ADDRESS says."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("RAY_ADDRESS", "other:1")
    assert engine.read_target(on) == on


@pytest.mark.parametrize("address", ["auto", "h:6379", "ray://h:10001"])
def test_the_address_of_the_environment_is_taken_where_it_is_asked_for(monkeypatch, address):
    """Ray's own word for the cluster that this machine is a node of is one, too."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert engine.read_target("ray") == address


@pytest.mark.parametrize("on", ["local-cluster:1000", "auto", "h:123456", "h:", ":1", "ray://local-cluster:1x"])
def test_what_is_nearly_a_cluster_is_refused(monkeypatch, on):
    """More nodes than three digits say, ports of more than five, no host."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(UsageError, match="expected ray://HOST:PORT"):
        engine.read_target(on)


def test_rays_client_needs_grpc_and_nothing_else_does(monkeypatch):
    """An installation of Ray without it reaches a cluster by its own port."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else name)
    assert engine.read_target("h:6379") == "h:6379"
    with pytest.raises(UsageError, match="Ray's client needs grpcio"):
        engine.read_target("ray://h:10001")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("", "ValueError"),
        ("one", "one"),
        ("\n first \n in Ray\n last\n\n", "first last"),
        ("x" * 400, "x" * 300),
    ],
)
def test_of_what_ray_says_the_first_and_the_last_line_are_told(text, short):
    """Between them is where in Ray it was; nothing said is the kind of the error."""
    assert engine._shorten(ValueError(text)) == short


def test_the_nodes_of_a_cluster_share_its_cores():
    """Each core is one node's, as evenly as that goes; with more nodes than cores some have none."""
    cores = (3, 5, 7, 9, 11)
    assert [engine.share_cores(cores, number, 2) for number in range(2)] == [(3, 5), (7, 9, 11)]
    assert [engine.share_cores(cores, number, 5) for number in range(5)] == [(core,) for core in cores]
    assert engine.share_cores(cores, 0, 6) == ()


def test_more_nodes_than_cores_are_refused(tmp_path, monkeypatch):
    """Before anything starts."""
    monkeypatch.setattr(engine.fingerprint, "allowed_cores", lambda: (0, 1))
    with (
        pytest.raises(UsageError, match=r"local-cluster:3: this process may use 2 cores, and each node needs one"),
        engine._start_here(3, tmp_path),
    ):
        pass


def test_living_nodes_that_offer_themselves_are_listed():
    """With the label that their owner gave; a dead one, and one without the resource, are none."""
    node = {"NodeID": "1", "NodeManagerAddress": "10.0.0.1", "Alive": True, "Resources": {"qbench": 1.0}}
    listed = [
        {**node, "Labels": {"qbench-class": "zen4"}},
        {**node, "NodeID": "2"},
        {**node, "NodeID": "3", "Alive": False},
        {**node, "NodeID": "4", "Resources": {"CPU": 8}},
        {**node, "NodeID": "5", "Resources": {"qbench": 0.5}},
    ]
    assert engine.list_nodes(SimpleNamespace(nodes=lambda: listed)) == [
        engine.FoundNode(name="1", address="10.0.0.1", label="zen4"),
        engine.FoundNode(name="2", address="10.0.0.1", label=None),
    ]


def test_variables_are_set_and_set_back(monkeypatch):
    """What was not there is removed again."""
    monkeypatch.setenv("QBENCH_TEST_A", "old")
    monkeypatch.delenv("QBENCH_TEST_B", raising=False)
    saved = engine._set({"QBENCH_TEST_A": None, "QBENCH_TEST_B": "new"})
    assert saved == {"QBENCH_TEST_A": "old", "QBENCH_TEST_B": None}
    assert (os.environ.get("QBENCH_TEST_A"), os.environ.get("QBENCH_TEST_B")) == (None, "new")
    engine._set(saved)
    assert (os.environ.get("QBENCH_TEST_A"), os.environ.get("QBENCH_TEST_B")) == ("old", None)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no process")
def test_what_starts_meanwhile_has_the_cores_of_its_node_alone():
    """And this process all of its own afterwards, also where a start fails."""
    before = os.sched_getaffinity(0)

    def start():
        with engine._only_on((min(before),)):
            assert os.sched_getaffinity(0) == {min(before)}
            raise KeyError

    with pytest.raises(KeyError):
        start()
    assert os.sched_getaffinity(0) == before


class Gone(Exception):
    """As Ray's own errors."""


@pytest.mark.parametrize("error", [None, Gone(), ConnectionError()])
def test_an_agent_that_is_gone_is_ended(error):
    """So is one behind a connection that is lost; any other error is a fault."""
    killed = []

    def kill(agent):
        killed.append(agent)
        if error is not None:
            raise error

    engine.end_agent(SimpleNamespace(kill=kill, exceptions=SimpleNamespace(RayError=Gone)), "agent")
    assert killed == ["agent"]


def test_a_start_that_fails_is_one_message():
    """Whatever Ray raises, with what to do; what qbench raises itself passes as it is."""
    with pytest.raises(UsageError, match=r"local-cluster:2: a node of it did not start: no port; is there memory"):
        fail_within(engine._explain_start(2), Gone("no port"))
    with pytest.raises(UsageError, match="^mine$"):
        fail_within(engine._explain_start(2), UsageError("mine"))


def fail_within(around, error):
    with around:
        raise error


def test_the_token_of_a_cluster_is_nobodys_guess():
    """One for a process, of 32 random bytes."""
    token = engine._make_token()
    assert token is engine._make_token()
    assert token["RAY_AUTH_MODE"] == "token"
    assert len(bytes.fromhex(token["RAY_AUTH_TOKEN"])) == 32


class Connected:
    """What connecting does, in order."""

    def __init__(self, monkeypatch, problem=None):
        self.done = []

        @contextlib.contextmanager
        def start_here(count, cache):
            self.done.append(("start", count, cache))
            yield "127.0.0.1:1"
            self.done.append("end")

        def init(on, where):
            self.done.append(("init", on, where))
            return SimpleNamespace(shutdown=lambda: self.done.append("shutdown"))

        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        monkeypatch.setattr(engine, "_start_here", start_here)
        monkeypatch.setattr(engine, "_init", init)
        monkeypatch.setattr(engine, "_keep_quiet", lambda: self.done.append("quiet"))
        monkeypatch.setattr(
            engine, "explain_unreachable", lambda address: self.done.append(("ask", address)) or problem
        )
        monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)


@pytest.mark.parametrize(("on", "count"), [("local-cluster", 1), ("local-cluster:3", 3)])
def test_a_cluster_that_is_started_here_ends_with_its_connection(monkeypatch, tmp_path, on, count):
    """One node unless told; nobody is asked whether it answers, and no usage is reported."""
    connected = Connected(monkeypatch)
    with engine.connect(on, tmp_path):
        assert os.environ.pop("RAY_USAGE_STATS_ENABLED") == "0"
    around = [("start", count, tmp_path), ("init", on, "127.0.0.1:1"), "quiet", "shutdown", "end"]
    assert connected.done == around


@pytest.mark.parametrize(("address", "asked"), [("h:6379", True), ("auto", False)])
def test_a_cluster_that_is_there_is_asked_and_left(monkeypatch, tmp_path, address, asked):
    """Also where the run fails; what Ray knows itself, as a node of it, is not asked. A setting of the user's own for
    usage stays."""
    connected = Connected(monkeypatch)
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")

    def fail():
        with engine.connect("ray", tmp_path):
            assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert connected.done == [*([("ask", address)] if asked else []), ("init", "ray", address), "quiet", "shutdown"]


def test_a_cluster_that_is_not_reached_is_not_connected_to(monkeypatch, tmp_path):
    """Ray would try for minutes."""
    connected = Connected(monkeypatch, problem="nothing answers")
    with pytest.raises(UsageError, match="^--on h:6379: nothing answers$"), engine.connect("h:6379", tmp_path):
        pass
    assert connected.done == [("ask", "h:6379")]


needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install -e '.[cluster]'")

KEPT = """
import signal, sys
from pathlib import Path
from qbench.fleet import engine

def end(number, frame):
    raise SystemExit

def hear(number, handler):
    if number == signal.SIGTERM and handler is not end:
        taken.append(sys._getframe(1).f_code.co_filename)
    return set_handler(number, handler)

set_handler, taken = signal.signal, []
set_handler(signal.SIGTERM, end)
signal.signal = hear
with engine.connect("local-cluster", Path(sys.argv[1])):
    print(signal.getsignal(signal.SIGTERM) is end, taken)
print(signal.getsignal(signal.SIGTERM) is end, taken)
"""


@needs_ray
def test_ray_takes_sigterm_at_no_moment(tmp_path):
    """SIGTERM ends a run by the handler of qbench from the first node that starts on: Ray has no setting for that, and
    a version that comes by another way than the function that is put aside is told here, by its file."""
    command = [sys.executable, "-c", KEPT, str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "True []\nTrue []\n"), done.stderr


HEARS = """
import threading
from types import SimpleNamespace
from ray._private import worker
from qbench.fleet import engine

class Subscriber:
    messages = ["The node with node id: 1 has been marked dead"]

    def subscribe(self):
        pass

    def poll(self):
        if not self.messages:
            raise ConnectionError("the end")
        return None, {"job_id": None, "error_message": self.messages.pop()}

KEEP
told = SimpleNamespace(gcs_error_subscriber=Subscriber(), current_job_id=SimpleNamespace(binary=lambda: b"1"))
worker.listen_error_messages(told, threading.Event())
"""


@needs_ray
@pytest.mark.parametrize("quiet", [False, True])
def test_what_ray_hears_of_nodes_stays_out_of_the_result(quiet):
    """Ray prints it to standard output and has no setting for that. Where a version prints it by another function this
    fails with ``quiet``; where it has stopped printing, without: then what puts it aside can go."""
    command = [sys.executable, "-c", HEARS.replace("KEEP", "engine._keep_quiet()" if quiet else "")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert ("marked dead" in done.stdout) is not quiet


@needs_ray
@pytest.mark.parametrize(
    ("address", "failures", "attempts"), [("ray://h:1", 2, 3), ("ray://h:1", 3, 3), ("h:1", 1, 1), ("h:1", 0, 1)]
)
def test_a_connection_by_rays_client_is_tried_three_times(monkeypatch, address, failures, attempts):
    """Its server forks while it serves others; a cluster's own port either takes the connection or does not."""
    import ray

    tried = []

    def init(**options):
        tried.append(options.pop("address"))
        assert options == {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "qbench"}
        if tried.count(address) <= failures:
            raise ConnectionError("no answer\nin Ray\nat all")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(engine, "_keep_sigterm", lambda: tried.append("sigterm"))
    monkeypatch.setattr(engine, "_take_sigterm_back", lambda: tried.append("taken back"))
    if failures >= attempts:
        with pytest.raises(UsageError, match="--on cluster: no connection to the cluster: no answer at all$"):
            engine._init("cluster", address)
    else:
        assert engine._init("cluster", address) is ray
    assert tried == ["sigterm", *[address] * attempts, *(["taken back"] if failures < attempts else [])]


class FakeCluster:
    """A cluster on this machine that starts nothing: what it was told, and what the environment was then."""

    address = "127.0.0.1:0"
    told: list[tuple[str, dict[str, object], list[int], str | None]] = []  # noqa: RUF012  # one list of a test
    fails = None

    def __init__(self, *, initialize_head, head_node_args):
        assert initialize_head
        self.tell("head", head_node_args)

    def add_node(self, **options):
        self.tell("node", options)

    def tell(self, what, options):
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.told.append((what, options, cores, os.environ.get("RAY_TMPDIR")))
        if self.fails == what:
            raise RuntimeError("no port is free")

    def shutdown(self):
        self.told.append(("shutdown", {}, [], None))


@pytest.fixture
def cluster(monkeypatch):
    """The class, in place of Ray's."""
    monkeypatch.setattr("ray.cluster_utils.Cluster", FakeCluster)
    monkeypatch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
    monkeypatch.setattr(engine, "_keep_sigterm", lambda: FakeCluster.told.append(("sigterm", {}, [], None)))
    monkeypatch.setattr(FakeCluster, "told", [])
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    return FakeCluster


@needs_ray
def test_a_cluster_on_this_machine_has_a_head_without_work_and_nodes_that_share_its_cores(
    cluster, tmp_path, monkeypatch
):
    """On loopback, without dashboard; each node with a cache of its own beside the one here. What was set for Ray is
    set back, and its folder is gone."""
    cores, removed = fingerprint.allowed_cores(), []
    ours = SimpleNamespace(remove_at_the_end=removed.append, mark="mark")
    monkeypatch.setattr(engine, "offspring", lambda: ours)
    with engine._start_here(len(cores), tmp_path / "cache") as address:
        assert address == "127.0.0.1:0"
        assert removed == [Path(os.environ["RAY_TMPDIR"])], "also where this process is killed"
        shutil.rmtree(removed[0])  # as it may be by then
    names = [each[0] for each in cluster.told]
    assert names == ["sigterm", "head", *(["node"] * len(cores)), "shutdown"]
    _, head, _, folder = cluster.told[1]
    assert head == {
        "node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 200 * 2**20, "num_cpus": 0,
        "no_monitor": True, "include_log_monitor": False,
    }  # fmt: skip
    assert folder is not None
    for number, (_, options, may_use, same_folder) in enumerate(cluster.told[2:-1]):
        assert (options["num_cpus"], options["resources"], same_folder) == (1, {"qbench": 1}, folder)
        assert (options["node_ip_address"], options["include_dashboard"]) == ("127.0.0.1", False)
        assert options["env_vars"]["QBENCH_CACHE"] == str(tmp_path / "cache-nodes" / str(number + 1))
        assert options["env_vars"].items() >= imports.name_own_cores().items()
        assert may_use in ([cores[number]], [])
    assert "RAY_TMPDIR" not in os.environ
    assert not Path(folder).exists()


@needs_ray
@pytest.mark.parametrize("fails", ["head", "node"])
def test_a_node_that_dies_as_it_starts_is_one_message(cluster, monkeypatch, tmp_path, fails):
    """What had started ends; nothing of it is left."""
    monkeypatch.setattr(cluster, "fails", fails)
    with pytest.raises(UsageError, match=r"local-cluster:1: a node of it did not start: no port is free; is there"):
        enter(engine._start_here(1, tmp_path / "cache"))
    assert (cluster.told[-1][0] == "shutdown") is (fails == "node")
    assert "RAY_TMPDIR" not in os.environ
    assert not Path(cluster.told[1][3]).exists()


@needs_ray
def test_a_ray_that_was_imported_too_early_is_told_of(cluster, monkeypatch, tmp_path):
    """It would look for an address that other machines reach, and listen there."""
    monkeypatch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", True)
    with pytest.raises(UsageError, match="Ray was imported too early to be kept here"):
        enter(engine._start_here(1, tmp_path / "cache"))
    assert cluster.told == []


def enter(around):
    with around:
        pass


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray (extra cluster)")
def test_an_agent_holds_its_node_whole_and_is_not_moved():
    """It takes the one place for a run of qbench, and none of its cores; where it dies, another run may come."""
    asked = []

    class Remote:
        def options(self, **options):
            asked.append(options)
            return self

        def remote(self):
            return "agent"

    node = engine.FoundNode(name="ab" * 28, address="10.0.0.1", label=None)
    assert engine.open_agent(SimpleNamespace(remote=lambda kind: Remote()), node, dict) == "agent"
    (options,) = asked
    where = options.pop("scheduling_strategy")
    assert (where.node_id, where.soft) == (node.name, False)
    # It answers how far it is while so many of its children work.
    assert options == {"num_cpus": 0, "resources": {"qbench": 1}, "max_concurrency": 64, "max_restarts": 0}


def test_a_system_without_affinity_starts_nodes_on_all_cores(monkeypatch):
    """And finds them where they were."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    with engine._only_on((0,)):
        pass


def test_the_handler_of_sigterm_is_set_by_the_main_thread_alone(monkeypatch):
    """No other may; there Ray sets none either."""
    handled = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: handled.append((number, handler)))
    thread = threading.Thread(target=engine._take_sigterm_back)
    thread.start()
    thread.join()
    assert handled == []
    engine._take_sigterm_back()
    assert handled == [(signal.SIGTERM, signal.getsignal(signal.SIGTERM))]
