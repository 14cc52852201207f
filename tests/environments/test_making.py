"""Rules of qbench/environments/making.py: made once, whole or not at all, and usable without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from made_wheels import make_wheel, use_index

from qbench.cache import clean, store
from qbench.cache.root import ENVIRONMENTS
from qbench.environments import pip
from qbench.environments.environment import Environment, find_present
from qbench.environments.making import Wanted, digest_tree, find_digest, make_environment, make_for
from qbench.environments.pins import parse_pins
from qbench.environments.pip import Uninstallable, Unreachable
from qbench.environments.read_back import Unimportable
from qbench.errors import UsageError

PINS = parse_pins(["qbt-alpha==1.0"])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index and a cache of the test's own."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    make_wheel(tmp_path / "index", "qbt-alpha", "1.0", requires=["qbt-beta"])
    make_wheel(tmp_path / "index", "qbt-beta", "2.0")
    use_index(tmp_path / "index", monkeypatch)
    return tmp_path / "index"


def ask(environment: Environment, code: str) -> object:
    """What a program under the environment prints, as JSON."""
    command = [str(environment.python), "-P", "-c", f"import json\n{code}"]
    done = subprocess.run(command, env={**os.environ, **environment.program_variables}, check=True, capture_output=True)
    return json.loads(done.stdout)


def test_an_environment_holds_what_was_asked_for_before_the_present(index: Path) -> None:
    """And what that needs; everything else is the present environment's. What it takes is told before."""
    told: list[str] = []
    environment = make_environment(PINS, told.append)
    names = "[qbt_alpha.__version__, qbt_beta.__version__, numpy.__version__]"
    code = f"import numpy, qbt_alpha, qbt_beta; print(json.dumps({names}))"
    assert ask(environment, code) == ["1.0", "2.0", np.__version__]
    assert environment.text == "qbt-alpha 1.0 and qbt-beta 2.0"
    assert environment.list_versions(["qbt_alpha", "numpy", "qbt-none"]) == {
        "qbt_alpha": "1.0",
        "numpy": np.__version__,
        "qbt-none": None,
    }
    assert environment.paths[0] == str(environment.folder)
    assert "fetching; " in told[0]
    assert re.search(r"takes \d+ B in .*/environments; `qbench clean` frees it", told[1])
    assert all(len(locked.sha256 or "") == 64 for locked in environment.lock)


def test_a_made_environment_needs_no_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the cache by its digest; with other packages asked for it would be another."""
    first = make_environment(PINS)
    monkeypatch.setattr(pip, "run_pip", lambda *words, **options: pytest.fail("pip was asked"))
    assert make_environment(PINS) == first
    assert find_digest(Wanted(requirements=("qbt-alpha==1.0",))) == first.digest
    assert find_digest(Wanted(requirements=("qbt-alpha==1.0",), content="x")) != first.digest


def test_importing_does_not_damage_it(index: Path) -> None:
    """A program that ran under it leaves no bytecode that its manifest does not list."""
    environment = make_environment(PINS)
    assert environment.folder is not None
    for file in environment.folder.rglob("*.pyc"):
        file.unlink()  # as where pip does not compile
    (environment.folder / "__pycache__").rmdir()
    ask(environment, "import qbt_alpha; print(1)")
    assert not list(environment.folder.rglob("*.pyc"))


def test_half_made_or_damaged_ones_are_made_again(index: Path) -> None:
    """What lies there is not trusted unless it is what was written."""
    environment = make_environment(PINS)
    assert environment.folder is not None
    (environment.folder / "qbt_alpha.py").write_text("__version__ = '6.6.6'\n")
    again = make_environment(PINS)
    assert again == environment
    assert ask(again, "import qbt_alpha; print(json.dumps(qbt_alpha.__version__))") == "1.0"


def test_two_makers_make_one(index: Path) -> None:
    """The other waits, and takes what was made."""
    told: list[str] = []
    makers = [threading.Thread(target=make_environment, args=(PINS, told.append)) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(told) == 2  # what one maker says


def test_versions_that_are_here_need_no_environment(index: Path) -> None:
    """The present one is it, and leaves children as they are."""
    import importlib.metadata

    version = importlib.metadata.version("numpy")
    environment = make_environment(parse_pins([f"numpy=={version}"]))
    assert environment == find_present() == make_environment(parse_pins([f"numpy=={version}.0"]))
    assert environment.is_present
    assert (environment.paths, environment.worker_variables, environment.program_variables) == ((), {}, {})


def test_a_version_that_does_not_exist_names_the_nearest(index: Path) -> None:
    """And nothing half-made stays."""
    make_wheel(index, "qbt-alpha", "1.2")
    with pytest.raises(Uninstallable, match=r"qbt-alpha==1\.1 cannot be installed: .*nearest: 1\.0, 1\.2"):
        make_environment(parse_pins(["qbt-alpha==1.1"]))
    assert list((store.cache_folder() / ENVIRONMENTS).iterdir()) == []


def test_requirements_that_contradict_are_told_in_pips_words(index: Path) -> None:
    """The version exists; another one that was asked for stands in the way."""
    make_wheel(index, "qbt-gamma", "1.0", requires=["qbt-beta<2"])
    with pytest.raises(Uninstallable, match="pip says: .*ResolutionImpossible"):
        make_environment(parse_pins(["qbt-gamma==1.0", "qbt-beta==2.0"]))


def test_nothing_is_built_for_an_environment(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless that is asked for: building runs code of whoever wrote the package."""
    asked: list[bool] = []

    def resolve(requirements: object, folder: object, *, wheels_only: bool) -> list[object]:
        asked.append(wheels_only)
        return []

    monkeypatch.setattr(pip, "resolve", resolve)
    for place, options in enumerate(({}, {"wheels_only": True}, {"wheels_only": False})):
        make_for(Wanted(requirements=(f"qbt-beta=={place}",)), **options)
    assert asked == [True, True, False]


def test_an_index_that_does_not_answer_is_no_missing_version(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Unreachable``; what was made before still comes from the cache."""
    environment = make_environment(PINS)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(Unreachable, match="does not answer"):
        make_environment(parse_pins(["qbt-beta==2.0"]))
    assert make_environment(PINS) == environment


@pytest.mark.parametrize(
    ("code", "told"),
    [("raise OSError('no such CPU')", "OSError: no such CPU"), ("import os; os._exit(3)", r"the process ended \(exit")],
)
def test_what_cannot_be_imported_is_another_answer(index: Path, code: str, told: str) -> None:
    """Than what cannot be installed."""
    make_wheel(index, "qbt-broken", "1.0", {"qbt_broken.py": code})
    with pytest.raises(Unimportable, match=rf"qbt-broken 1\.0 cannot be imported.*{told}"):
        make_environment(parse_pins(["qbt-broken==1.0"]))


def test_what_a_child_imports_is_read_back(index: Path) -> None:
    """A package whose module leads elsewhere is not what was asked for."""
    code = "import sys, json; sys.modules[__name__] = json\n"
    make_wheel(index, "qbt-liar", "1.0", {"qbt_liar.py": code})
    with pytest.raises(UsageError, match="asked for qbt-liar==1.0, but a process there imports .*json"):
        make_environment(parse_pins(["qbt-liar==1.0"]))


def test_a_disk_without_room_is_told_before(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it takes and what there is."""
    usage = shutil.disk_usage(index)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UsageError, match="takes .* there, and 10 B are free; make room"):
        make_environment(PINS)


def test_clean_removes_environments(index: Path) -> None:
    """As every other entry, each named by what it was made for; they alone where one asks for that."""
    environment = make_environment(PINS)
    assert environment.folder is not None
    store.fetch(store.cache_folder(), "data", "0" * 64, lambda folder: {})
    cleaned = clean.clean(dry_run=True, only=ENVIRONMENTS)
    assert cleaned.removed == 1
    assert re.search(r"\nenvironment qbt-alpha==1\.0: [\d.]+ k?B$", clean.to_text(cleaned, dry_run=True))
    assert clean.clean(only=ENVIRONMENTS).removed == 1
    assert (store.cache_folder() / "data" / ("0" * 64)).exists()
    assert not environment.folder.exists()


def test_a_folder_counts_by_what_its_files_hold(tmp_path: Path) -> None:
    """Their names and contents; what git keeps beside them does not count."""
    (tmp_path / "a").write_text("1")
    first = digest_tree(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/x").write_text("2")
    assert digest_tree(tmp_path) == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert digest_tree(tmp_path) != first


def test_a_link_is_no_file_of_a_folder(tmp_path: Path) -> None:
    """What it leads to may be anything."""
    (tmp_path / "a").write_text("1")
    first = digest_tree(tmp_path)
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert digest_tree(tmp_path) == first
    (tmp_path / "b").write_text("1")
    assert digest_tree(tmp_path) != first


def test_a_folder_is_the_same_wherever_it_lies() -> None:
    """Paths count from it."""
    first, second = (
        Wanted(requirements=("-r", f"{place}/r.txt"), folder=Path(place), content="c") for place in ("/a", "/b")
    )
    assert find_digest(first) == find_digest(second)
    assert find_digest(first) != find_digest(Wanted(requirements=("-r", "/a/r.txt"), content="c"))


def test_what_holds_here_needs_no_environment(index: Path) -> None:
    """The entry says so, and the next time nobody is asked."""
    assert make_for(Wanted(requirements=("numpy",))) == find_present()


def test_a_disk_with_just_enough_room_is_enough(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is laid out is as large as all files of the wheels together."""
    told: list[str] = []
    with pytest.raises(UsageError, match="make room"):
        _make_with_room(0, told, monkeypatch)
    taken = int(re.search(r"takes (\d+) B in", told[-1])[1])  # type: ignore[index]
    assert _make_with_room(taken, told, monkeypatch).folder is not None


def _make_with_room(room: int, told: list[str], monkeypatch: pytest.MonkeyPatch) -> Environment:
    usage = shutil.disk_usage("/")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=room))
        return make_for(Wanted(requirements=("qbt-beta==2.0",)), told.append)


def test_a_folder_of_source_is_built(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit's project, where it is no wheel yet: its own code lies in the environment."""
    source = tmp_path / "project"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "qbt-project"\nversion = "3"\n[tool.setuptools]\npy-modules = ["qbt_project"]\n'
    )
    (source / "qbt_project.py").write_text("NAME = 'built'\n")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip's way of saying yes to it
    environment = make_for(Wanted(requirements=(str(source),), content=digest_tree(source)), wheels_only=False)
    assert ask(environment, "import qbt_project; print(json.dumps(qbt_project.NAME))") == "built"
