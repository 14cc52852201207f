"""Rules of qbench/bisect/releases.py: which releases are candidates, and what becomes of those that cannot be had."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kept_notes import Notes
from made_wheels import make_wheel, use_index

from qbench.bisect.candidates import Absent
from qbench.bisect.releases import Releases, list_candidates, require_runtime
from qbench.environments.environment import Environment
from qbench.environments.pins import Pin, parse_pin
from qbench.environments.pip import Uninstallable, Unreachable
from qbench.environments.read_back import Unimportable
from qbench.errors import CaseError, UsageError

OFFERED = ("1.20.0", "1.20.1", "1.21.0rc1", "1.21.0", "1.22.0")


def pins(good: str, bad: str) -> tuple[Pin, Pin]:
    """Both ends."""
    return parse_pin(f"onnxruntime=={good}"), parse_pin(f"onnxruntime=={bad}")


def list_all(name: str, *, pre_releases: bool) -> tuple[str, ...]:
    """The index."""
    assert name == "onnxruntime"
    return OFFERED if pre_releases else tuple(each for each in OFFERED if "rc" not in each)


def test_candidates_are_the_releases_between_the_ends() -> None:
    """Both with them; those before a release only where asked for, or where one is an end."""
    listed = list_candidates(*pins("1.20.0", "1.22.0"), pre_releases=False, list_all=list_all)
    assert listed == (("1.20.0", "1.20.1", "1.21.0", "1.22.0"), False)
    listed = list_candidates(*pins("1.20.1", "1.21.0"), pre_releases=True, list_all=list_all)
    assert listed == (("1.20.1", "1.21.0rc1", "1.21.0"), False)
    listed = list_candidates(*pins("1.20.0", "1.21.0rc1"), pre_releases=False, list_all=list_all)
    assert listed == (("1.20.0", "1.20.1", "1.21.0rc1"), False)
    listed = list_candidates(*pins("1.20", "1.21"), pre_releases=False, list_all=list_all)
    assert listed == (("1.20.0", "1.20.1", "1.21.0"), False)


def test_a_good_end_that_is_newer_is_a_fault_that_was_mended() -> None:
    """Then the way goes back in time."""
    listed = list_candidates(*pins("1.22.0", "1.20.1"), pre_releases=False, list_all=list_all)
    assert listed == (("1.22.0", "1.21.0", "1.20.1"), True)


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("1.20.0", "1.23.0", r"--bad onnxruntime==1\.23\.0: it does not exist.*nearest: 1\.21\.0, 1\.22\.0"),
        ("1.19.9", "1.22.0", r"--good onnxruntime==1\.19\.9: .*nearest: 1\.20\.0, 1\.20\.1"),
        ("1.20.0", "1.20.0", "the same release"),
        ("1.20", "1.20.0", "the same release"),
        ("1.19.9", "1.19.9", "the same release"),
        ("1.20.0+cpu", "1.20.0", "the same release"),
    ],
)
def test_ends_that_are_none_are_refused(good: str, bad: str, told: str) -> None:
    """With the nearest that there are."""
    with pytest.raises(UsageError, match=told):
        list_candidates(*pins(good, bad), pre_releases=False, list_all=list_all)


def test_two_packages_are_no_way() -> None:
    """A search is over the releases of one."""
    with pytest.raises(UsageError, match="of two packages"):
        list_candidates(parse_pin("torch==2.13"), parse_pin("openvino==2026.0"), pre_releases=False, list_all=list_all)


def test_the_index_of_pip_is_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of wheels here."""
    for version in ("1.0", "1.1", "2.0"):
        make_wheel(tmp_path / "index", "onnxruntime", version)
    use_index(tmp_path / "index", monkeypatch)
    assert list_candidates(*pins("1.0", "2.0"), pre_releases=False) == (("1.0", "1.1", "2.0"), False)


def test_a_package_that_does_not_run_the_case_is_refused() -> None:
    """With what does."""
    require_runtime("onnxruntime", "onnxruntime", "net/static/onnxruntime/t1/b1")
    with pytest.raises(UsageError, match="net/static/onednn/t1/b1 is run by torch"):
        require_runtime("onnxruntime", "onednn", "net/static/onednn/t1/b1")


@dataclass
class Opened:
    """Stands for ``OpenSuite``: one artifact, built once."""

    progress: Notes = field(default_factory=Notes)
    built: list[str] = field(default_factory=list)
    predicted: list[dict[str, Any]] = field(default_factory=list)
    case: Any = field(
        default_factory=lambda: SimpleNamespace(variant=SimpleNamespace(backend="onnxruntime", mode="static"))
    )

    def build(self, variant: Any) -> Any:
        self.built.append(variant.mode)
        return SimpleNamespace(file=Path("model.onnx"), sha256="abc")

    def specify_worker(self, *given: Any) -> Any:
        return given

    def predict(self, artifact: Any, file: Path, environment: Any, *, own: bool) -> None:
        self.predicted.append({"file": file, "environment": environment, "own": own})


def open_release(make: Any, opened: Opened, place: int = 1) -> Any:
    """A candidate of three."""
    names = ("1.20.0", "1.21.0", "1.22.0")
    return Releases(opened=opened, of="onnxruntime", names=names, mended=False, make=make).open(place)  # type: ignore[arg-type]


def test_the_same_artifact_runs_under_each_release(tmp_path: Path) -> None:
    """It must load that version, and need not give what it gave where it was built."""
    opened, asked = Opened(), []

    def make(pins: Any, tell: Any) -> Environment:
        asked.append(list(pins))
        tell("fetching")
        return Environment(digest="d", folder=tmp_path)

    arm = open_release(make, opened)
    assert asked == [[Pin(name="onnxruntime", version="1.21.0")]]
    assert opened.progress.notes == ["fetching"]
    name, file, backend, mode, variables, versions = arm.spec
    assert (name, file, backend, mode) == ("1.21.0", Path("model.onnx"), "onnxruntime", "static")
    assert str(tmp_path) in variables["QBENCH_IMPORT_PATHS"]
    assert "onnxruntime" in versions
    arm.predict(tmp_path / "a.npz")
    assert opened.predicted == [{"file": tmp_path / "a.npz", "environment": variables, "own": False}]
    assert arm.digest == "abc+d"


def test_the_artifact_is_built_once_for_all_releases(tmp_path: Path) -> None:
    """By what is here."""
    opened = Opened()
    names = ("1.20.0", "1.21.0")
    present = Environment(digest="d")
    releases = Releases(
        opened=opened,  # type: ignore[arg-type]
        of="onnxruntime",
        names=names,
        mended=False,
        make=lambda pins, tell: present,
    )
    for place in (0, 1):
        releases.open(place).predict(tmp_path / "a.npz")
    assert opened.built == ["static"]
    assert [each["own"] for each in opened.predicted] == [True, True]


def _raise(error: Exception) -> Any:
    def make(pins: Any, tell: Any) -> Environment:
        raise error

    return make


def test_what_cannot_be_had_is_told_from_what_fails_and_from_an_index_that_is_silent() -> None:
    """The first is passed by, the second is an answer, the third ends the search: another look would say the same."""
    with pytest.raises(Absent, match="no wheel"):
        open_release(_raise(Uninstallable("no wheel")), Opened())
    with pytest.raises(CaseError, match="cannot be imported") as caught:
        open_release(_raise(Unimportable("cannot be imported")), Opened())
    assert not isinstance(caught.value, Absent)
    with pytest.raises(Unreachable):
        open_release(_raise(Unreachable("nobody answers")), Opened())
