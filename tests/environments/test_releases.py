"""Rules of qbench/environments/releases.py: what can be installed here, in order, and what is nearest."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_wheels import make_wheel, use_index

from qbench.environments import releases
from qbench.environments.pins import Pin
from qbench.environments.pip import Uninstallable
from qbench.environments.releases import advise_nearest, find_nearest, list_releases, sort_versions


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Releases of one package, among them one for another platform and one before its release."""
    for version in ("1.2", "1.10", "1.9", "2.0rc1"):
        make_wheel(tmp_path / "index", "qbt-alpha", version)
    make_wheel(tmp_path / "index", "qbt-alpha", "1.11", tag="cp36-cp36m-win32")
    make_wheel(tmp_path / "index", "qbt-elsewhere", "1.0", tag="cp36-cp36m-win32")
    use_index(tmp_path / "index", monkeypatch)
    return tmp_path / "index"


def test_releases_are_those_with_a_wheel_for_this_machine(index: Path) -> None:
    """The oldest first, by PEP 440 and not by letters; those before a release only when asked for."""
    assert list_releases("QBT_alpha") == ("1.2", "1.9", "1.10")
    assert list_releases("qbt-alpha", pre_releases=True) == ("1.2", "1.9", "1.10", "2.0rc1")


@pytest.mark.parametrize("name", ["qbt-elsewhere", "qbt-nowhere"])
def test_a_package_that_cannot_be_had(index: Path, name: str) -> None:
    """Names the package."""
    with pytest.raises(Uninstallable, match=f"{name}: no release can be installed on this Python and platform"):
        list_releases(name)


def test_the_nearest_are_told(index: Path) -> None:
    """Two below and two above; nothing where the version is there and something else stood in the way."""
    assert find_nearest(Pin(name="a", version="1.11"), ["2", "1.9", "1.10", "3", "0.1", "4"]) == (
        "1.9",
        "1.10",
        "2",
        "3",
    )
    assert find_nearest(Pin(name="a", version="latest"), ["2", "1"]) == ("1", "2")
    assert find_nearest(Pin(name="a", version="latest"), list("7654321")) == ("4", "5", "6", "7")
    assert find_nearest(Pin(name="a", version="3"), list("7654321"), 1) == ("2", "4")
    assert "nearest: 1.9, 1.10, 2.0rc1" in advise_nearest(Pin(name="qbt-alpha", version="1.11"))
    assert advise_nearest(Pin(name="qbt-alpha", version="1.9.0")) == ""
    assert advise_nearest(Pin(name="qbt-alpha", version="1.10")) == ""
    assert advise_nearest(Pin(name="qbt-elsewhere", version="1")).startswith("pip finds no wheel of qbt-elsewhere")


def test_what_pip_lists_are_the_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lists none, or nothing between two commas, has none to name."""
    said = iter(["qbt-alpha (1.1)\nAvailable versions: 1.1, , 1.0\n", "qbt-alpha (1.1)\n"])
    monkeypatch.setattr(releases, "run_pip", lambda words: next(said))
    assert list_releases("qbt-alpha") == ("1.0", "1.1")
    assert list_releases("qbt-alpha") == ()


def test_what_is_no_version_is_left_out() -> None:
    """An index may hold names of former times."""
    assert sort_versions(["1.10", "snapshot", "1.9"]) == ["1.9", "1.10"]
