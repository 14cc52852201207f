"""Settings measured on the nodes of a cluster: where, with what, and what becomes of their samples."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import CaseError
from qbench.measure.setting import CaseLatency, MeasuredSetting
from qbench.running.measure_nodes import measure_on_nodes


@dataclass(frozen=True)
class FakeSetting:
    """What is raced on a node."""

    cases: tuple[str, ...]
    done: tuple[str, ...] = ()
    stored: Any = None


class FakeFleet:
    """Nodes of a class, which answer a setting by its first case."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked, self.cancelled = answers, list[tuple[str, FakeSetting]](), 0
        self.classes = (SimpleNamespace(label="zen4"), SimpleNamespace(label="arm"))
        self.schedule = SimpleNamespace(machines=lambda label: 0)

    def find_class(self, host: str) -> Any:
        """The one of that host."""
        return SimpleNamespace(label=host.removeprefix("ray:"))

    def measure(self, label: str, setting: FakeSetting) -> Any:
        """The answer, or its error."""
        self.asked.append((label, setting))
        answer = self.answers[setting.cases[0]]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def cancel(self) -> None:
        """Counts."""
        self.cancelled += 1


class Context(SimpleNamespace):
    """A run's context: its folder, and what it heard."""

    def __init__(self, folder: Path) -> None:
        notes, steps = list[str](), list[str]()
        super().__init__(
            directory=SimpleNamespace(path=folder),
            progress=SimpleNamespace(note=notes.append, advance=steps.append, notes=notes, steps=steps),
            tracker=SimpleNamespace(stopping=False),
        )
        (folder / "samples").mkdir()


def plan(*cases: str, host: str = "ray:zen4") -> Any:
    """Planned cases of one setting."""
    return [SimpleNamespace(case=SimpleNamespace(id=case, host=host)) for case in cases]


def enter(planned: Any) -> Any:
    """The setting of planned cases, of which ``old`` is done."""
    return FakeSetting(cases=tuple(each.case.id for each in planned), done=("old",))


DONE = MeasuredSetting(latencies={"a/b": CaseLatency(reason=None)}, node="10.0.0.1 (n1)")


def test_a_setting_goes_to_the_class_of_its_host_with_the_samples_that_it_has(tmp_path: Path) -> None:
    """Those of its own cases alone; the new ones lie in the run's folder then, over the old."""
    context, fleet = Context(tmp_path), FakeFleet(**{"a/b": (DONE, {"a__b.npz": b"new", "c.npz": b"more"})})
    for name in ("a__b.npz", "other.npz"):
        (tmp_path / "samples" / name).write_bytes(b"old")
    planned = plan("a/b", "c", host="ray:arm")
    assert list(measure_on_nodes(context, fleet, [("setting", planned)], enter)) == [(planned, DONE)]  # type: ignore[arg-type]
    assert fleet.asked == [("arm", FakeSetting(cases=("a/b", "c"), done=("old",), stored={"a__b.npz": b"old"}))]
    written = {path.name: path.read_bytes() for path in (tmp_path / "samples").iterdir()}
    assert written == {"a__b.npz": b"new", "c.npz": b"more", "other.npz": b"old"}
    assert (context.progress.notes, context.progress.steps) == ([], ["setting"])


def test_a_setting_whose_nodes_are_lost_says_so_of_each_case_that_is_not_done(tmp_path: Path) -> None:
    """The others are measured."""
    context = Context(tmp_path)
    fleet = FakeFleet(a=CaseError("no node of the class is left"), b=(DONE, {}))
    settings = [("first", plan("a", "old")), ("second", plan("b"))]
    results = dict(zip("ab", [measured for _, measured in sorted(
        measure_on_nodes(context, fleet, settings, enter), key=lambda pair: pair[0][0].case.id  # type: ignore[arg-type]
    )], strict=True))  # fmt: skip
    assert results["a"].latencies == {"a": CaseLatency(reason="no node of the class is left")}
    assert results["b"] is DONE
    assert sorted(context.progress.steps) == ["first", "second"]


def test_a_node_whose_peak_is_not_known_is_told_of(tmp_path: Path) -> None:
    """With the reason; its latencies stand."""
    context = Context(tmp_path)
    fleet = FakeFleet(a=(replace(DONE, unknown_peak="no kernel runs"), {}))
    list(measure_on_nodes(context, fleet, [("s", plan("a"))], enter))  # type: ignore[arg-type]
    assert context.progress.notes == ["the peak of 10.0.0.1 (n1) is not known: no kernel runs"]


def test_a_name_that_leads_elsewhere_is_not_written(tmp_path: Path) -> None:
    """Files come from other machines."""
    context, fleet = Context(tmp_path), FakeFleet(a=(DONE, {"../x.npz": b"1"}))
    with pytest.raises(Exception, match="x.npz"):
        list(measure_on_nodes(context, fleet, [("s", plan("a"))], enter))  # type: ignore[arg-type]
    assert not (tmp_path / "x.npz").exists()
    assert (context.tracker.stopping, fleet.cancelled) == (True, 1)


def test_whoever_stops_listening_ends_the_nodes_work(tmp_path: Path) -> None:
    """An interrupt between two results: no case breaks, and nothing goes on."""
    context, fleet = Context(tmp_path), FakeFleet(a=(DONE, {}), b=(DONE, {}))
    results = measure_on_nodes(context, fleet, [("first", plan("a")), ("second", plan("b"))], enter)  # type: ignore[arg-type]
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert (context.tracker.stopping, fleet.cancelled) == (True, 1)


def test_what_waits_for_a_machine_is_not_begun_any_more(tmp_path: Path) -> None:
    """One setting at a time here: the second is measured as the user interrupts, the third never."""
    context, ended, begun = Context(tmp_path), threading.Event(), threading.Event()

    class Slow(FakeFleet):
        """Nodes whose second setting takes until the run is cancelled."""

        def measure(self, label: str, setting: FakeSetting) -> Any:
            """The answer, at last."""
            if setting.cases == ("b",):
                begun.set()
                assert ended.wait(30)
            return super().measure(label, setting)

        def cancel(self) -> None:
            """Ends what is measured."""
            super().cancel()
            ended.set()

    fleet = Slow(a=(DONE, {}), b=(DONE, {}), c=(DONE, {}))
    results = measure_on_nodes(context, fleet, [(case, plan(case)) for case in "abc"], enter)  # type: ignore[arg-type]
    next(results)
    assert begun.wait(30)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert [setting.cases for _, setting in fleet.asked] == [("a",), ("b",)]
