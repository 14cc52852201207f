"""qbench.doctor.plugin_list: every plug-in with its origin and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from qbench import registry
from qbench.doctor.plugin_list import PlugIn, listing, to_text
from qbench.errors import UsageError


def test_every_registered_plug_in_is_listed_once() -> None:
    """The rows are the registry, kind by kind."""
    rows = listing()
    assert [(row.kind, row.name) for row in rows] == [
        (kind, name)
        for kind in registry.KINDS
        for name in (*registry.names(kind), *(family.name for family in registry.families(kind)))
    ]


def test_names_that_take_an_argument_are_listed_with_it() -> None:
    """A reader learns that there are more hosts and metrics than those with a fixed name."""
    listed = {(row.kind, row.name): row for row in listing()}
    assert {("host", "qemu:<CPU>"), ("host", "ray:<class>"), ("metric", "top<k>")} <= set(listed)
    assert listed["host", "qemu:<CPU>"].origin.rpartition(":")[0].endswith("emulated.py")
    assert listed["host", "qemu:<CPU>"].missing is None


def test_an_origin_is_a_file_that_exists_and_a_line() -> None:
    """A reader can open what a row points at."""
    for row in listing():
        file, _, line = row.origin.rpartition(":")
        assert Path(file).is_file()
        assert int(line) >= 1


class Lacking:
    """A backend that says what it lacks."""

    def missing(self) -> str:
        """The reason."""
        return "no compiler; install g++"


def fake_registry(monkeypatch: pytest.MonkeyPatch, targets: Mapping[tuple[str, str], str]) -> None:
    """Replaces the entries of every kind."""

    def entries(kind: str) -> dict[str, registry.Entry]:
        return {
            name: registry.Entry(kind=kind, name=name, target=target, distribution="other")
            for (of, name), target in targets.items()
            if of == kind
        }

    monkeypatch.setattr(registry, "entries", entries)
    monkeypatch.setattr(registry, "families", lambda kind: ())


def test_a_backend_is_asked_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `missing` says is shown as it is."""
    fake_registry(monkeypatch, {("backend", "lacking"): "qbench.doctor.plugin_list:PlugIn"})
    monkeypatch.setattr(registry, "load", lambda kind, name: Lacking())
    assert [row.missing for row in listing()] == ["no compiler; install g++"]


def test_a_backend_that_does_not_load_is_missing_and_does_not_stop_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One broken package must not hide the others."""

    def load(kind: str, name: str) -> Lacking:
        raise UsageError("backend 'broken' from other cannot be loaded: no module")

    fake_registry(
        monkeypatch,
        {
            ("backend", "broken"): "qbench.doctor.plugin_list:PlugIn",
            ("metric", "fine"): "qbench.doctor.plugin_list:PlugIn",
        },
    )
    monkeypatch.setattr(registry, "load", load)
    by_name = {row.name: row.missing for row in listing()}
    assert by_name == {"broken": "backend 'broken' from other cannot be loaded: no module", "fine": None}


@pytest.mark.parametrize("module", ["qbench.no_such", "no_such_package.inner"])
def test_a_plug_in_whose_module_is_gone_is_missing(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Other kinds are not imported; that their module is not there is found all the same."""
    fake_registry(monkeypatch, {("dataset", "gone"): f"{module}:open_dataset"})
    monkeypatch.setattr(registry, "load", lambda kind, name: pytest.fail(f"{kind} {name} was imported"))
    (row,) = listing()
    assert row.missing == f"module '{module}' is not installed; reinstall other"


def test_text_is_aligned_and_names_who_brings_what() -> None:
    """One heading per kind; names aligned; what is missing stands below its plug-in."""
    rows = [
        PlugIn(kind="metric", name="top1", origin="/q/topk.py:7", distribution="qbench", missing=None),
        PlugIn(kind="backend", name="inductor", origin="/q/inductor.py:1", distribution="more", missing="no g++"),
    ]
    assert to_text(rows) == (
        "metric:\n  top1      /q/topk.py:7\nbackend:\n  inductor  /q/inductor.py:1  (more)\n            missing: no g++"
    )


def test_a_backend_is_listed_with_its_modes() -> None:
    """What a suite may ask it for; other kinds have none."""
    listed = {(row.kind, row.name): row for row in listing()}
    assert listed["backend", "torch"].modes == ("fp32", "bf16", "fp16")
    assert {row.modes for row in listed.values() if row.kind != "backend"} == {()}
    row = PlugIn(kind="backend", name="b", origin="b.py:1", distribution="qbench", missing=None, modes=("fp32", "qat"))
    assert to_text([row]).split("\n") == ["backend:", "  b  b.py:1", "     modes: fp32, qat"]


def test_a_plug_in_is_one_line() -> None:
    """Whatever its package calls itself."""
    row = PlugIn(kind="metric", name="a\nb", origin="c\nd.py:1", distribution="e\nf", missing="g\nh")
    assert to_text([row]).split("\n") == ["metric:", "  a b  c d.py:1  (e f)", f"  {'':3}  missing: g h"]
