"""qbench.registry: names to plug-ins, lazily, from qbench itself and from other packages."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench import registry
from qbench.errors import UnknownName, UsageError

BUILT_IN = [(kind, name) for kind in registry.KINDS for name in registry.BUILT_IN[kind]]
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution that has one module and one entry point, for the length of a test."""

    def installed(distribution: str, group: str, point: str, source: str) -> None:
        folder = tmp_path / distribution
        info = folder / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
        (folder / f"{distribution}_module.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()

    return installed


@pytest.mark.parametrize(("kind", "name"), BUILT_IN, ids=["/".join(pair) for pair in BUILT_IN])
def test_every_built_in_is_where_the_registry_says(kind: str, name: str) -> None:
    """Each built-in's module defines the attribute, at the line that origin gives."""
    entry = registry.entry(kind, name)
    file, _, line = registry.origin(entry).rpartition(":")
    attribute = entry.target.partition(":")[2]
    text = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert re.match(rf"(def |class )?{attribute}\b", text), text


@pytest.mark.parametrize(("kind", "name"), BUILT_IN, ids=["/".join(pair) for pair in BUILT_IN])
def test_every_built_in_loads(kind: str, name: str) -> None:
    """Each built-in gives an object."""
    assert registry.load(kind, name) is not None


def test_what_is_installed_after_the_first_look_is_there(install: Install, tmp_path: Path) -> None:
    """Entry points are read once for what lies in the places of ``sys.path``, and again where that has changed."""
    install("early", "qbench.metric", "early = early_module:METRIC", "METRIC = 1\n")
    assert "early" in registry.names("metric")
    late = tmp_path / "early" / "late-1.0.dist-info"
    late.mkdir()
    (late / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (late / "entry_points.txt").write_text("[qbench.metric]\nlate = early_module:METRIC\n")
    assert {"early", "late"} <= set(registry.names("metric"))


def test_kinds_and_names_are_sorted_and_lower_case() -> None:
    """A name is what a user types in a suite: lower case, letters, digits and dashes or underscores."""
    for kind in registry.KINDS:
        names = registry.names(kind)
        assert list(names) == sorted(names)
        assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) for name in names)


def test_an_unknown_name_gets_a_suggestion_and_the_list() -> None:
    """The message says what was meant, if something is near, and what there is."""
    with pytest.raises(UnknownName) as caught:
        registry.load("backend", "onnxruntme")
    assert str(caught.value).startswith(
        "no backend named 'onnxruntme'; did you mean 'onnxruntime'? available: executorch, fake, fbgemm, inductor, "
    )
    assert registry.suggest("onnxruntim", ["onnxruntimes", "onnxruntime"]) == "; did you mean 'onnxruntime'?"
    assert registry.unknown("backend", "zzz", ["b", "a"]) == "no backend named 'zzz'; available: a, b"


def test_a_package_adds_a_plug_in_by_an_entry_point(install: Install) -> None:
    """An installed package's plug-in is listed with who brings it and where it is, and loads."""
    install("mine", "qbench.metric", "mine = mine_module:METRIC", "\nMETRIC = 'a metric'\n")
    entry = registry.entry("metric", "mine")
    assert entry.distribution == "mine"
    assert registry.origin(entry).endswith("mine_module.py:2")
    assert "mine_module" not in sys.modules
    assert registry.load("metric", "mine") == "a metric"


def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    """Nothing is overwritten silently: both packages are named."""
    install("mine", "qbench.backend", "torch = mine_module:BACKEND", "BACKEND = 1\n")
    with pytest.raises(UsageError, match=r"two packages register the backend 'torch': qbench .* and mine "):
        registry.entries("backend")


def test_an_entry_point_of_no_package_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder on the path whose package does not tell its name: its owner is unknown."""
    point = SimpleNamespace(name="mine", value="mine_module:METRIC", dist=None)
    monkeypatch.setattr(registry, "_read_points", lambda places: {"metric": (point,)})
    assert registry.entries("metric")["mine"].distribution == "unknown"


@pytest.mark.parametrize("source", ["import no_such_library\n", "OTHER = 1\n"], ids=["import", "attribute"])
def test_a_broken_plug_in_says_whose_it_is(install: Install, source: str) -> None:
    """A plug-in that does not import, or lacks its attribute, is a clear message with its package."""
    name = f"broken{len(source)}"
    install(name, "qbench.metric", f"bad = {name}_module:METRIC", source)
    with pytest.raises(UsageError, match=f"metric 'bad' from {name} cannot be loaded: "):
        registry.load("metric", "bad")


def test_origin_of_a_module_that_is_not_there(install: Install) -> None:
    """A plug-in whose module is gone has no place, and asking for it is no error."""
    install("gone", "qbench.metric", "gone = gone_elsewhere.inner:METRIC", "")
    assert registry.origin(registry.entry("metric", "gone")) == "gone_elsewhere.inner (not found)"


def test_origin_finds_functions_classes_and_annotated_names(install: Install) -> None:
    """Whatever way an attribute is bound at a module's top level, origin finds its line."""
    source = "A = 1\nB: int = 2\n\n\ndef c():\n    pass\n\n\nclass D:\n    pass\n"
    install("ways", "qbench.metric", "\n".join(f"{n} = ways_module:{n.upper()}" for n in "ab") + "\n", source)
    for attribute, line in {"A": 1, "B": 2, "c": 5, "D": 9, "elsewhere": 1}.items():
        entry = registry.Entry(kind="metric", name="x", target=f"ways_module:{attribute}", distribution="ways")
        assert registry.origin(entry).endswith(f"ways_module.py:{line}")


def test_another_word_for_a_name_is_suggested_where_that_is_offered() -> None:
    """Whatever its capitals; of two the one that there is. No spelling leads there."""
    assert registry.suggest("ORT", ["torch", "onnxruntime"]) == "; did you mean 'onnxruntime'?"
    assert registry.suggest("half", ["fp32", "bf16"]) == "; did you mean 'bf16'?"
    assert registry.suggest("half", ["fp32"]) == ""


def test_a_folder_without_code_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes it for a package that has no file."""
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = registry.Entry(kind="metric", name="mine", target="only_a_folder:METRIC", distribution="mine")
    assert registry.origin(entry) == "only_a_folder (not found)"


def test_a_name_that_takes_an_argument_is_found_by_its_pattern() -> None:
    """With what it captures; what is near it is no name."""
    member = registry.find_in_family("metric", "top17")
    assert member is not None
    assert (member.name, member.argument, member.distribution) == ("top17", "17", "qbench")
    assert registry.entry("metric", "top17") == member
    assert registry.find_in_family("metric", "top0") is None
    assert registry.find_in_family("backend", "top17") is None
    with pytest.raises(
        UnknownName, match=r"no metric named 'top0'; .*available: .*top<k>.*\{python: file.py:function\}"
    ):
        registry.entry("metric", "top0")
