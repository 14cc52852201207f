"""The trials of other people's networks: what they make, and what they tell; the networks themselves run by command."""

from __future__ import annotations

import importlib.util
import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "architectures"), str(HERE)]


@pytest.fixture
def ecosystem():
    """The command, beside the one of tests/architectures that has its name, too."""
    spec = importlib.util.spec_from_file_location("ecosystem_run", HERE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_eighty_and_more_of_their_own_names_and_three_lists_of_others(ecosystem):
    """Of each family some, none in two lists; none needs its package to be listed."""
    lists = {
        title: {family: list(importlib.import_module(family).NETWORKS) for family in families}
        for title, families in ecosystem.LISTS.items()
    }
    names = {title: [name for networks in lists[title].values() for name in networks] for title in lists}
    counts = {title: len(set(of_one)) for title, of_one in names.items()}
    assert counts["first"] >= 80
    assert {title: counts[title] for title in counts if title != "first"} == {"second": 50, "third": 50, "fourth": 28}
    every = [name for of_one in names.values() for name in of_one]
    assert len(set(every)) == len(every)
    assert all(len(networks) >= 5 for families in lists.values() for networks in families.values())
    loaded = subprocess.check_output(
        [sys.executable, "-c", f"import sys, {', '.join(sum(ecosystem.LISTS.values(), ()))}; print(*sys.modules)"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    assert {"torchvision", "timm", "transformers", "ultralytics"}.isdisjoint(loaded.split())


def test_the_packages_come_without_their_dependencies(ecosystem, monkeypatch, tmp_path):
    """Which would bring another torch, of 6 GB; those of this Python stand beside them."""
    asked = []

    def run(command, **options):
        asked.append(command)
        (tmp_path / "venv" / "lib" / "python3" / "site-packages").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(subprocess, "run", run)
    ecosystem.make_venv(tmp_path / "venv")
    assert asked[0][1:] == ["-m", "venv", str(tmp_path / "venv")]
    assert "--no-deps" in asked[1]
    assert not any(package.partition("=")[0] == "torch" for package in asked[1])
    (beside,) = (tmp_path / "venv").glob("lib/python*/site-packages/beside.pth")
    assert beside.read_text().split() == site.getsitepackages()


def test_the_command_runs_in_its_venv_which_is_made_once(ecosystem, monkeypatch, tmp_path):
    """With all that it writes below the folder: cache, settings of the packages, results."""
    venvs, ran = [], []
    monkeypatch.setattr(ecosystem, "make_venv", lambda folder: venvs.append(folder))
    done = subprocess.CompletedProcess([], 3)
    monkeypatch.setattr(subprocess, "run", lambda command, env, check: ran.append((command, env)) or done)
    assert ecosystem.main([str(tmp_path), "--only", "bert"]) == 3
    assert venvs == [tmp_path / "venv"]
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").touch()
    assert ecosystem.main([str(tmp_path), "--only", "bert"]) == 3
    assert len(venvs) == 1
    command, environment = ran[-1]
    assert command[2:] == [str(tmp_path), "--list", "first", "--only", "bert"]
    assert environment["QBENCH_CACHE"] == str(tmp_path / "cache")


def test_the_slowest_come_last(ecosystem, tmp_path):
    """By the longest of a network's cells; as many as asked for."""
    for name, seconds in {"a": (1.0, 9.4), "b": (30.0,), "c": (2.0,)}.items():
        cells = {f"static/{i}": {"seconds": taken} for i, taken in enumerate(seconds)}
        (tmp_path / f"{name}.json").write_text(json.dumps(cells))
    assert ecosystem.list_slowest(tmp_path, most=2) == ["slowest: b 30 s", "slowest: a 9 s"]


def test_a_file_is_named_by_its_network_and_form():
    """The last word is the form, and each has both exporters of torch."""
    import exported

    assert {name.rpartition("-")[2] for name in exported.NETWORKS} == set(exported._FORMS)
    assert "mobilenet_v3_small-torchscript" in exported.NETWORKS
