"""What a node does for a run: entries of its cache, child processes, a setting; errors travel as values."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.cache import manifest, store
from qbench.cache.root import open_cache
from qbench.errors import CaseError, CaseSkipped, NodeLost
from qbench.fleet import agent as agents
from qbench.fleet import nodes, transfer
from qbench.fleet.agent import Agent
from qbench.process import imports

KEY = "c" * 64


class FakeWorker:
    """A child process: ``begin`` and ``answer`` are what its start and its session do."""

    begin = staticmethod(lambda: None)
    answer = staticmethod(lambda progress, *args: args)
    started: list[tuple[object, ...]] = []  # noqa: RUF012  # one list of a test
    closed: list[object] = []  # noqa: RUF012

    def __init__(self, factory, *args, **options):
        self.name = options.get("name")
        self.started.append((factory, args, options))

    def ready(self):
        self.begin()

    def ask(self, method, *args, progress):
        return self.answer(progress, method, *args)

    def close(self):
        self.closed.append(self.name)


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """An agent with a cache and temporary files of its own, whose children are fakes."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    (tmp_path / "made").mkdir()
    monkeypatch.setattr(agents, "offspring", lambda: SimpleNamespace(folder=tmp_path / "made"))
    monkeypatch.setattr(agents, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "started", [])
    monkeypatch.setattr(FakeWorker, "closed", [])
    monkeypatch.setattr(nodes, "count_niceness", lambda: 3)
    for name in imports.name_own_cores():
        monkeypatch.delenv(name, raising=False)
    yield Agent()
    for name in imports.name_own_cores():
        monkeypatch.delenv(name, raising=False)


def pack(value):
    """A value as the run sends it, which lies elsewhere."""
    return transfer.pack(value, Path("/nowhere")).payload


def test_a_nodes_children_import_as_without_ray(agent):
    """Ray's number of threads is gone, and the cores to import on are those of this moment."""
    assert "OMP_NUM_THREADS" not in os.environ
    assert {name: os.environ[name] for name in imports.name_own_cores()} == imports.name_own_cores()
    described = agent.describe("n1", "10.0.0.1", "zen4")
    assert (described.name, described.address, described.label, described.niceness) == ("n1", "10.0.0.1", "zen4", 3)


def test_an_entry_is_kept_as_it_was_sent_with_its_facts(agent, tmp_path):
    """It is then missing no more; a plain file comes without a manifest, and has no facts."""
    root, here = open_cache(), tmp_path / "here"
    here.mkdir()
    (here / "m.onnx").write_bytes(b"weights")
    manifest.write(here, {"n": 7})
    sent, plain = f"artifacts/{KEY}", f"{transfer.FILES}/{'d' * 64}"
    assert agent.list_missing([sent, plain]) == [sent, plain]
    assert agent.keep(sent, transfer.read_folder(here)) == ("result", None, {})
    assert agent.list_missing([sent, plain]) == [plain]
    assert manifest.read(root / sent).facts == {"n": 7}
    assert transfer.read_folder(root / sent) == transfer.read_folder(here)
    assert agent.keep(plain, {"mine.onnx": b"model"}) == ("result", None, {})
    assert agent.list_missing([sent, plain]) == []
    assert manifest.read(root / plain).facts == {}
    assert (root / plain / "mine.onnx").read_bytes() == b"model"


def test_an_entry_that_arrives_damaged_is_an_answer(agent):
    """Nothing of it is kept."""
    kind, error, folders = agent.keep(f"artifacts/{KEY}", {"../x": b""})
    assert (kind, folders) == ("error", {})
    assert "leads out" in str(error)
    assert agent.list_missing([f"artifacts/{KEY}"]) == [f"artifacts/{KEY}"]


def test_a_child_is_started_asked_and_closed_by_its_number(agent, monkeypatch):
    """Numbers are never used twice; closing one that is gone does nothing."""
    monkeypatch.setattr(FakeWorker, "answer", staticmethod(lambda progress, method, *args: (method, args)))
    payload = pack((Path, ("x",), {"name": "a"}))
    assert [agent.start(payload) for _ in range(2)] == [("result", 0, {}), ("result", 1, {})]
    assert FakeWorker.started[0] == (Path, ("x",), {"name": "a"})
    assert agent.ask(1, pack(("run", (1, 2))), ()) == ("result", ("run", (1, 2)), {})
    agent.close(1)
    agent.close(1)
    assert FakeWorker.closed == ["a"]
    assert agent.start(payload) == ("result", 2, {})


def test_a_child_that_does_not_start_is_an_answer(agent, monkeypatch):
    """With the error of its session; it is there to be closed."""

    def fail():
        raise CaseError("no such engine")

    monkeypatch.setattr(FakeWorker, "begin", staticmethod(fail))
    kind, error, _ = agent.start(pack((Path, (), {"name": "a"})))
    assert (kind, str(error)) == ("error", "no such engine")
    agent.close(0)
    assert FakeWorker.closed == ["a"]


def test_how_far_a_child_is_can_be_asked_meanwhile(agent, monkeypatch):
    """The last that it told; nothing before that, and nothing once it is closed."""
    answers = []

    def answer(progress, method, *args):
        for share in (0.25, 0.5):
            progress("layer", share)
            answers.append((agent.progress(0), agent.progress(1)))

    monkeypatch.setattr(FakeWorker, "answer", staticmethod(answer))
    agent.start(pack((Path, (), {})))
    assert agent.progress(0) is None
    agent.ask(0, pack(("run", ())), ())
    assert answers == [(("layer", 0.25), None), (("layer", 0.5), None)]
    agent.close(0)
    assert agent.progress(0) is None


def test_what_a_child_wrote_into_unfinished_folders_comes_along(agent, monkeypatch, tmp_path):
    """By the names that they have here; nothing of them stays there. Of a child that failed nothing comes."""
    here = tmp_path / "cache-here"
    (here / "artifacts").mkdir(parents=True)
    sent = transfer.pack(("build", (here / "artifacts" / ".0123-x",)), here)

    def answer(progress, method, folder):
        (folder / "m").write_bytes(b"1")
        if method == "fail":
            raise CaseSkipped("no such mode")

    monkeypatch.setattr(FakeWorker, "answer", staticmethod(answer))
    agent.start(pack((Path, (), {})))
    assert agent.ask(0, sent.payload, sent.folders) == ("result", None, {"artifacts/.0123-x": {"m": b"1"}})
    failing = transfer.pack(("fail", (here / "artifacts" / ".0123-x",)), here)
    kind, error, folders = agent.ask(0, failing.payload, failing.folders)
    assert (kind, str(error), folders) == ("error", "no such mode", {})
    assert list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "full", "kind", "text"),
    [
        (CaseError("no such layer"), False, "error", "no such layer"),
        (CaseError("cannot write"), True, "lost", "a disk is full: cannot write"),
        (CaseError("m: No space left on device"), False, "lost", "a disk is full: m: No space left on device"),
        (OSError(5, "Input/output error"), False, "lost", "OSError: [Errno 5] Input/output error"),
    ],
)
def test_a_node_whose_disk_is_full_or_fails_is_lost(agent, monkeypatch, error, full, kind, text):
    """Another one may do the work; an error of the work itself is the same on each."""

    def fail():
        raise error

    monkeypatch.setattr(FakeWorker, "begin", staticmethod(fail))
    monkeypatch.setattr(agents, "is_full", lambda folder: full and folder.name == "made")
    told, value, folders = agent.start(pack((Path, (), {})))
    assert (told, str(value), folders) == (kind, text, {})
    assert isinstance(value, NodeLost) is (kind == "lost")


def test_a_fault_of_qbenchs_own_is_no_answer(agent, monkeypatch):
    """It is a bug, and shows where it was."""

    def fail():
        raise TypeError("a bug")

    monkeypatch.setattr(FakeWorker, "begin", staticmethod(fail))
    with pytest.raises(TypeError, match="a bug"):
        agent.start(pack((Path, (), {})))


@dataclass(frozen=True)
class Took:
    """What a case takes of a machine."""

    threads: int


@dataclass(frozen=True)
class FakeMeasured:
    """What measuring gave."""

    cores: tuple[int, ...]
    stored: tuple[str, ...]
    cluster_load: float | None = None


def test_a_setting_is_measured_on_the_last_cores_with_ray_kept_off_them(agent, monkeypatch, tmp_path):
    """As many as its case with the most threads takes; the samples of an earlier part of the run lie there before, and
    all of them come along; the checkpoint and the folder are gone."""
    done = []

    @contextlib.contextmanager
    def keep_off(timed):
        done.append(("off", timed))
        yield SimpleNamespace(cores=0.25)

    def measure_setting(setting, folder, cores):
        before = tuple(sorted(path.name for path in (folder / "samples").iterdir()))
        (folder / "samples" / "new.npz").write_bytes(b"2")
        return FakeMeasured(cores, before)

    monkeypatch.setattr(agents.ray_load, "keep_off", keep_off)
    monkeypatch.setattr(agents, "measuring_cores", lambda suite, allowed: (4, 5, 6, 7))
    monkeypatch.setattr(agents, "measure_setting", measure_setting)
    monkeypatch.setattr(agents, "remove_checkpoint", lambda setting, folder: done.append(("removed", folder.parent)))
    monkeypatch.setattr(agents.TimedCores, "look_at", lambda cores, root, limits: (cores, root, limits))
    setting = SimpleNamespace(
        suite="s", limits=9, stored={"old.npz": b"1"}, cases={"a": Took(threads=1), "b": Took(threads=2)}
    )
    kind, measured, folders = agent.measure(pack(setting))
    assert kind == "result"
    assert measured == FakeMeasured(((4, 5, 6, 7), open_cache(), 9), ("old.npz",), 0.25)
    assert folders == {"samples": {"old.npz": b"1", "new.npz": b"2"}}
    assert done == [("off", (6, 7)), ("removed", tmp_path / "made")]
    assert list((tmp_path / "made").iterdir()) == []


def test_a_setting_that_cannot_be_measured_is_an_answer(agent, monkeypatch, tmp_path):
    """Without files."""
    monkeypatch.setattr(agents, "measuring_cores", lambda suite, allowed: raise_it(CaseError("no core is left")))
    kind, error, folders = agent.measure(pack(SimpleNamespace(suite="s", stored={})))
    assert (kind, str(error), folders) == ("error", "no core is left", {})
    assert list((tmp_path / "made").iterdir()) == []


def raise_it(error):
    raise error


def test_a_key_that_is_kept_already_is_not_made_again(agent, tmp_path):
    """Two runs may send the same entry to a node."""
    entry = store.fetch(open_cache(), "artifacts", KEY, lambda folder: {"n": (folder / "m").write_text("old")})
    assert agent.keep(f"artifacts/{KEY}", {"m": b"new"}) == ("result", None, {})
    assert (entry.folder / "m").read_text() == "old"


def test_a_folder_that_a_child_removes_is_gone(agent, monkeypatch, tmp_path):
    """Nothing comes along then, and the answer stands; so is one that was measured in."""
    here = tmp_path / "cache-here"
    (here / "artifacts").mkdir(parents=True)
    sent = transfer.pack(("build", (here / "artifacts" / ".0123-x",)), here)
    monkeypatch.setattr(FakeWorker, "answer", staticmethod(lambda progress, method, folder: folder.rmdir()))
    agent.start(pack((Path, (), {})))
    assert agent.ask(0, sent.payload, sent.folders) == ("result", None, {"artifacts/.0123-x": {}})

    def remove_all(suite, allowed):
        shutil.rmtree(tmp_path / "made")
        raise CaseError("no core is left")

    monkeypatch.setattr(agents, "measuring_cores", remove_all)
    assert agent.measure(pack(SimpleNamespace(suite="s", stored={})))[0] == "error"
