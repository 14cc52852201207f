"""The nodes of a run, as places where child processes run: what is asked of one goes to another where it is lost."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qbench.errors import NodeLost
from qbench.fleet import engine, lost_work, nodes, transfer
from qbench.fleet.agent import Agent, Answer
from qbench.fleet.nodes import NodeClass, NodeFacts
from qbench.fleet.schedule import FleetNode, Schedule
from qbench.hosts.ray_class import PREFIX
from qbench.measure.setting import MeasuredSetting, Setting
from qbench.process import child
from qbench.process.child_process import Limits
from qbench.process.cpu_slots import Slots
from qbench.process.place import Place
from qbench.progress.callback import Progress

OPEN_SECONDS = 60.0  # within which a node opens its agent
_WATCH_SECONDS, _PROGRESS_SECONDS = 5.0, 2.0
_PLENTY = 1_000
_NOTHING: Mapping[str, str] = MappingProxyType({})
Note = Callable[[str], None]


@dataclass(kw_only=True)
class Fleet:
    """The nodes that a run works on. ``home`` is the class of this machine, where ``native`` is (None: the cluster has
    none, and what is native runs here)."""

    ray: Any
    root: Path
    own: NodeFacts
    note: Note
    classes: tuple[NodeClass, ...] = ()
    home: NodeClass | None = None
    schedule: Schedule = field(default_factory=Schedule)
    _agents: dict[str, Any] = field(default_factory=dict)
    _facts: dict[str, NodeFacts] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _objects: dict[str, Any] = field(default_factory=dict)  # what the object store has, by entry
    _places: dict[str, Place] = field(default_factory=dict)
    _sending: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    @property
    def cores_by_host(self) -> dict[str, int]:
        """The cores of a node of each class, by the name of the host."""
        return {f"{PREFIX}{each.label}": each.cores for each in self.classes}

    @property
    def places(self) -> int:
        """How many processes may work on all nodes, beside those of what is native here."""
        here = 0 if self.home is not None else len(self.own.cores)
        return here + sum(self.schedule.count(each.label) for each in self.classes)

    @property
    def has_nodes(self) -> bool:
        """Whether any node may work."""
        return bool(self._agents)

    def find_class(self, host: str) -> NodeClass | None:
        """The class that a host is; that of this machine for every other host, None where the cluster has none."""
        if host.startswith(PREFIX):
            return next((each for each in self.classes if f"{PREFIX}{each.label}" == host), None)
        return self.home

    def name_processor(self, host: str) -> tuple[Any, ...] | None:
        """What decides the answers of the machines of a host; None where it is what this machine has."""
        of_host = self.find_class(host)
        if of_host is None or of_host is self.home:
            return None
        return tuple(of_host.nodes[0].fingerprint.get(field) for field in nodes.SAME_BUILDS)

    def place(self, label: str) -> Place:
        """Where the processes of a class run."""
        with self._lock:
            return self._places.setdefault(
                label,
                Place(
                    slots=Slots(max(1, self.schedule.count(label))),
                    run_child=functools.partial(self._run_child, label, ""),
                    run_near=functools.partial(self._run_child, label),
                    repeat=functools.partial(lost_work.repeat, ending=self._ending),
                    start_worker=functools.partial(
                        FleetWorker, self, functools.partial(self.schedule.take_place, label, beyond=True)
                    ),
                ),
            )

    def measure(self, label: str, setting: Setting) -> tuple[MeasuredSetting, Mapping[str, bytes]]:
        """A setting measured on a node of a class, on whose machine nothing else of this run is meanwhile, and the
        files of its samples by name; on another one where a node is lost. Raises ``CaseError`` where none is left."""
        sent = transfer.pack(setting, self.root)

        def measure(begin: Callable[[], None]) -> tuple[MeasuredSetting, Mapping[str, bytes]]:
            node = self.schedule.take_machine(label)
            try:
                self.deliver(node.name, sent)
                begin()
                measured, folders = self.call(node.name, "measure", sent.payload)
            finally:
                self.schedule.give_machine_back(node)
            return replace(measured, node=self._facts[node.name].title), folders["samples"]

        return lost_work.repeat_begun(measure, self._ending)

    def deliver(self, name: str, sent: transfer.Sent) -> None:
        """Has a node keep what a value names: each entry goes through the object store once for all nodes, and to each
        node once."""
        entries = {entry: self.root / entry for entry in sent.entries}
        entries |= {f"{transfer.FILES}/{digest}": path for digest, path in sent.files.items()}
        if not entries:
            return
        with self._lock_of(f"to {name}"):
            for entry in self.ask(name, "list_missing", list(entries)):
                self.call(name, "keep", entry, self._put(entry, entries[entry]))

    def call(self, name: str, method: str, *args: Any) -> tuple[Any, Mapping[str, Mapping[str, bytes]]]:
        """What a node answers, with the folders that came along; raises the error that it answers with."""
        kind, value, folders = self.ask(name, method, *args)
        if kind == "lost":
            self.lose(name, str(value))
            raise value
        if kind == "error":
            raise value
        return value, folders

    def follow(self, name: str, reference: Any, number: int, progress: Progress | None) -> Answer:
        """The answer of a node that is awaited; meanwhile it is asked now and then how far it is."""
        with self._losing(name):
            while progress is not None and not self.ray.wait([reference], timeout=_PROGRESS_SECONDS)[0]:
                state = engine.get(self.ray, self._agents[name].progress.remote(number), self._ending)
                if state is not None:
                    progress(*state)
            answer: Answer = engine.get(self.ray, reference, self._ending)
        return answer

    def send(self, name: str, method: str, *args: Any) -> Any:
        """Asks a node without waiting."""
        agent = self._agents.get(name)
        if agent is None or self._ending.is_set():
            self.schedule.lose(name)  # it may have joined as it was lost
            raise NodeLost(f"node {name[:8]} is gone")
        with self._losing(name):
            return getattr(agent, method).remote(*args)

    def ask(self, name: str, method: str, *args: Any) -> Any:
        """What a node returns; raises ``NodeLost`` where it is gone."""
        reference = self.send(name, method, *args)
        with self._losing(name):
            return engine.get(self.ray, reference, self._ending)

    def lose(self, name: str, reason: str) -> None:
        """Uses a node no more, and says so once."""
        agent = self._agents.pop(name, None)
        if self.schedule.lose(name) and not self._ending.is_set():
            self.note(f"node {self._facts[name].title} is gone ({reason}); its work goes to others of its class")
        if agent is not None:
            engine.end_agent(self.ray, agent)

    def cancel(self) -> None:
        """Ends everything on every node, and everything that waits for one."""
        self._ending.set()
        self.schedule.close()
        for name in list(self._agents):
            if (agent := self._agents.pop(name, None)) is not None:
                engine.end_agent(self.ray, agent)

    def admit_nodes(self) -> list[str]:
        """Opens an agent on each new node; why nodes were refused."""
        refused = []
        for node in engine.list_nodes(self.ray):
            if node.name in self._seen:
                continue
            self._seen.add(node.name)
            agent = engine.open_agent(self.ray, node, Agent)
            try:
                described = agent.describe.remote(node.name, node.address, node.label)
                facts = self.ray.get(described, timeout=OPEN_SECONDS)
            except self.ray.exceptions.GetTimeoutError:
                refused.append(
                    f"node {node.address} ({node.name[:8]}): no answer within {OPEN_SECONDS:g} s; another run of "
                    "qbench holds it, or processes of Ray were ended there"
                )
            except self.ray.exceptions.RayError as error:
                failed = f"node {node.address} ({node.name[:8]}): qbench does not start there ({_cause(error)})"
                died = isinstance(error, self.ray.exceptions.ActorUnschedulableError)
                if died or not getattr(error, "actor_init_failed", True):
                    self.note(failed)  # it died since Ray listed it, which Ray learns seconds later
                else:
                    refused.append(failed)
            else:
                problem = nodes.explain_refusal(facts, self.own)
                if problem is None:
                    self._agents[node.name], self._facts[node.name] = agent, facts
                    continue
                refused.append(problem)
            engine.end_agent(self.ray, agent)
        return refused

    def form_classes(self) -> list[str]:
        """Forms the classes of the nodes that are there, and gives each its work; why nodes are in none."""
        self.classes, problems = nodes.form_classes([self._facts[name] for name in self._agents])
        self.home = nodes.choose_home(self.classes, self.own.fingerprint)
        known = self.schedule.names()
        for each in self.classes:
            for facts in each.nodes:
                if facts.name not in known:
                    self._add(each.label, facts)
        return problems

    def watch(self) -> None:
        """Lets nodes join that come late, and forgets those that Ray says are dead, until the run ends."""
        while not self._ending.wait(_WATCH_SECONDS):
            try:
                alive = {node.name for node in engine.list_nodes(self.ray)}
                for name in set(self._agents) - alive:
                    self.lose(name, "Ray says that it is dead")
                if alive - self._seen:
                    self._join_late()
            except (self.ray.exceptions.RayError, ConnectionError, RuntimeError):  # the stages will hear of it
                continue

    def _join_late(self) -> None:
        known = set(self._agents)
        for problem in self.admit_nodes():
            self.note(problem)
        for name in set(self._agents) - known:
            facts = self._facts[name]
            formed, problems = nodes.form_classes([*(node for each in self.classes for node in each.nodes), facts])
            label = next((each.label for each in formed if facts in each.nodes), None)
            if label in {each.label for each in self.classes}:
                self._add(label or "", facts)
                self.note(f"node {facts.title} joined the class {label}")
            else:
                self.note(problems[0] if problems else f"node {facts.title} is of a class that this run does not have")

    def _add(self, label: str, facts: NodeFacts) -> None:
        self.schedule.add(FleetNode(name=facts.name, group=label, machine=facts.machine, places=len(facts.cores)))

    def _run_child(
        self,
        label: str,
        shared: str,
        function: Callable[..., Any],
        *args: Any,
        limits: Limits,
        progress: Progress | None = None,
        environment: Mapping[str, str] = _NOTHING,
    ) -> Any:
        """What ``child_process.call`` does, on a node of a class, one that has had work of that name before if it is
        free; on another one where a node is lost."""
        name = function.__name__
        take = functools.partial(self.schedule.take_place, label, near=shared)
        options = {"limits": limits, "environment": environment, "name": name}

        def run(begin: Callable[[], None]) -> Any:
            with FleetWorker(self, take, child.Function, function, **options) as worker:
                worker.ready()
                begin()
                return worker.ask("run", args, progress=progress)

        return lost_work.repeat_begun(run, self._ending)

    def _put(self, entry: str, path: Path) -> Any:
        """An entry in the object store."""
        with self._lock_of(entry):
            if entry not in self._objects:
                files = transfer.read_folder(path) if path.is_dir() else {path.name: path.read_bytes()}
                self._objects[entry] = self.ray.put(files)
            return self._objects[entry]

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._sending.setdefault(name, threading.Lock())

    @contextlib.contextmanager
    def _losing(self, name: str) -> Iterator[None]:
        """Whatever Ray raises meanwhile is a lost node."""
        try:
            yield
        except (self.ray.exceptions.RayError, ConnectionError, KeyError) as error:
            self.lose(name, _cause(error))
            raise NodeLost(f"node {name[:8]} is gone: {_cause(error)}") from error


class FleetWorker:
    """A child process on a node of a class, asked as ``child_process.Worker`` is."""

    def __init__(
        self, fleet: Fleet, take: Callable[[], FleetNode], factory: Callable[..., Any], *args: Any, **options: Any
    ) -> None:
        self._fleet = fleet
        self._number: int | None = None
        options = {**options, "environment": dict(options.get("environment", {}))}
        self._session = transfer.pack((factory, args, options), fleet.root)
        self._node: FleetNode | None = take()

    def ready(self) -> None:
        """Has the session made there; raises what making it raised."""
        assert self._node is not None
        self._fleet.deliver(self._node.name, self._session)
        self._number, _ = self._fleet.call(self._node.name, "start", self._session.payload)

    def ask(self, method: str, *args: Any, progress: Progress | None = None) -> Any:
        """What the session's method returns; unfinished folders of the cache that it was given are filled here."""
        assert self._node is not None
        assert self._number is not None
        name = self._node.name
        sent = transfer.pack((method, args), self._fleet.root)
        self._fleet.deliver(name, sent)
        reference = self._fleet.send(name, "ask", self._number, sent.payload, sent.folders)
        kind, value, folders = self._fleet.follow(name, reference, self._number, progress)
        if kind == "lost":
            self._fleet.lose(name, str(value))
        if kind != "result":
            raise value
        for folder, files in folders.items():
            transfer.write_folder(self._fleet.root / folder, files)
        return value

    def count_room(self) -> int:
        """How many more may start beside it: as many as there are places, whose memory its node has."""
        return _PLENTY

    def close(self) -> None:
        """Ends the child and gives its place back."""
        node, self._node = self._node, None
        if node is None:
            return
        try:
            if self._number is not None:
                with contextlib.suppress(NodeLost):
                    self._fleet.ask(node.name, "close", self._number)
        finally:
            self._fleet.schedule.give_back(node)

    def __enter__(self) -> FleetWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cause(error: BaseException) -> str:
    """The first line of what Ray says, which may go on for many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
