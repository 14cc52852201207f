"""Rules of qbench/replay/replay.py: from the run's own record, with an empty cache, and no code of the folder's."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import case_key, failed, fp32, info, int8
from made_runs import run_folder

import qbench
from qbench.cache import store
from qbench.environments.environment import Environment, list_needed
from qbench.environments.pins import Pin
from qbench.errors import NotComparable, UsageError
from qbench.record.commit import Commit
from qbench.record.locate import REPORTS
from qbench.record.stored_run import RunInfo, SuiteInfo
from qbench.replay import replay as replaying
from qbench.replay.replay import list_pins, list_reservations, replay
from qbench.running.stopped import Asked

OTHER = "net/qat/onednn/t1/b1"
TEXT = "suite: small\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
OWN = 'suite: small\nmodels: [{name: net, source: {python: "n.py:f"}}]\ndata: {dataset: digits}\nmatrix: {}\n'


def silent(text: str) -> None:
    """Hears nothing."""


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunInfo:
    """What a run of a suite on this disk says of itself."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "small.yaml").write_text(TEXT)
    return info(suite=SuiteInfo(name="small", file=str(tmp_path / "small.yaml"), text=TEXT), filter="*/static/*")


def test_it_runs_with_an_empty_cache_and_what_was_fetched(described: RunInfo, tmp_path: Path) -> None:
    """What is asked for is what the run was asked for; the cache is gone afterwards."""
    fetched = store.open_cache() / "downloads/digits"
    fetched.mkdir(parents=True)
    (fetched / "file").write_text("fetched")
    (store.cache_folder() / "artifacts").mkdir()
    caches: list[Path] = []
    folder = run_folder(tmp_path / "run", [], described)

    def run(asked: Asked, words: list[str], environment: Environment, cache: Path) -> Path:
        caches.append(cache)
        assert words == ["--filter", "*/static/*"]
        assert environment.is_present
        assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == ["downloads", "locks"]
        assert (cache / "downloads/digits/file").read_text() == "fetched"
        return folder

    replayed = replay(folder, silent, run=run)
    assert (replayed.exit_code, replayed.artifacts, replayed.answers, replayed.settings) == (0, 0, 0, 0)
    assert not caches[0].exists()
    assert [path.name for path in (tmp_path).glob(".qbench-replay-*")] == []


def test_what_was_compared_is_counted(described: RunInfo, tmp_path: Path) -> None:
    """Artifacts once each, the answers of the case that has most, decisions; what did not run counts for nothing."""
    int8_case = int8()
    assert int8_case.artifact is not None
    assert int8_case.accuracy is not None
    again = replace(int8_case, case=case_key("net/static/onednn/t2/b1"))
    more = replace(int8_case.accuracy, n=1_450)
    other = replace(
        int8_case, artifact=replace(int8_case.artifact, sha256="1" * 64), accuracy=more, case=case_key(OTHER)
    )
    fewer = replace(fp32("net/fp32/torch/t2/b1"), accuracy=None, artifact=None)
    ended = [fp32(), int8_case, fewer, again, other, failed("net/dynamic/onednn/t1/b1")]
    folder = run_folder(tmp_path / "run", ended, described)
    replayed = replay(folder, silent, run=lambda *words: folder)
    assert (replayed.artifacts, replayed.answers, replayed.settings) == (2, 1_450, 2)
    assert replayed.differences == ()


def test_what_is_counted_is_what_the_run_had(described: RunInfo, tmp_path: Path) -> None:
    """Not what its replay came to."""
    folder = run_folder(tmp_path / "run", [fp32(), int8()], described)
    others = [failed(fp32().case.id), failed(), failed("net/static/onednn/t2/b1")]  # and a setting more
    again = run_folder(tmp_path / "again", others, described)
    replayed = replay(folder, silent, run=lambda *words: again)
    assert (replayed.artifacts, replayed.answers, replayed.settings) == (1, 1_000, 1)
    assert replayed.exit_code == 1


def test_the_suite_is_run_as_a_program(described: RunInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the overrides of the run, the empty cache, and no look at modules of the folder that one works in."""
    asked: list[tuple[object, ...]] = []
    named: list[dict[str, Any]] = []
    described = replace(described, suite=replace(described.suite, overrides=("measure.seed=1",)))
    folder = run_folder(tmp_path / "run", [], described)

    def run_suite(suite: str, words: list[str], **options: Any) -> Path:
        asked.append((suite, words))
        named.append(options)
        return folder

    monkeypatch.setattr(replaying, "run_suite", run_suite)
    monkeypatch.chdir(tmp_path)
    replay(folder, silent)
    replay(folder, silent, out=Path("out"), quiet=True)
    assert asked == [(str(tmp_path / "small.yaml"), ["--filter", "*/static/*"])] * 2
    assert [each["out"] for each in named] == [tmp_path / REPORTS, tmp_path / "out"]
    assert [each["quiet"] for each in named] == [False, True]
    for each in named:
        assert (each["name"], each["settings"], each["from_here"]) == ("the replay", ("measure.seed=1",), False)
        assert each["environment"].is_present
        assert Path(each["variables"]["QBENCH_CACHE"]).parent.parent == tmp_path


def test_what_was_fetched_is_taken_over_without_a_copy(
    described: RunInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that has no links gets one; a cache that fetched nothing has no such folder."""
    folder = run_folder(tmp_path / "run", [], described)
    replay(folder, silent, run=lambda asked, words, environment, cache: folder)
    fetched = store.open_cache() / "downloads/file"
    fetched.parent.mkdir()
    fetched.write_text("fetched")
    same: list[bool] = []

    def run(asked: Asked, words: list[str], environment: Environment, cache: Path) -> Path:
        assert (cache / "downloads/file").read_text() == "fetched"
        same.append((cache / "downloads/file").samefile(fetched))
        return folder

    def refuse(source: str, target: str) -> None:
        raise OSError("no links here")

    replay(folder, silent, run=run)
    monkeypatch.setattr("os.link", refuse)
    replay(folder, silent, run=run)
    assert same == [True, False]


def test_a_suite_that_changed_is_not_the_run_s(described: RunInfo, tmp_path: Path) -> None:
    """The message names the commit that it was made at."""
    changed = replace(described, commit=Commit(sha="1234567890abcdef"))
    folder = run_folder(tmp_path / "run", [], changed)
    (tmp_path / "small.yaml").write_text(f"{TEXT}measure: {{seed: 1}}\n")
    with pytest.raises(UsageError, match="has changed since; check out the one that it was made from: .* 123456789$"):
        replay(folder, silent, run=lambda *words: pytest.fail("it ran"))
    bare = run_folder(tmp_path / "bare", [], described)
    with pytest.raises(UsageError, match="check out the one that it was made from$"):
        replay(bare, silent, run=lambda *words: pytest.fail("it ran"))


def test_a_run_that_did_not_end(described: RunInfo, tmp_path: Path) -> None:
    """Has nothing to be held against."""
    folder = run_folder(tmp_path / "run", [], replace(described, finished=None))
    with pytest.raises(NotComparable, match="did not end"):
        replay(folder, silent)


def test_what_a_folder_brings_along_is_not_executed(described: RunInfo, tmp_path: Path) -> None:
    """A suite that names Python which this user never ran is refused."""
    (tmp_path / "small.yaml").write_text(OWN)
    (tmp_path / "n.py").write_text("raise SystemExit('executed')\ndef f(): pass\n")
    suite = replace(described.suite, text=OWN)
    folder = run_folder(tmp_path / "run", [], replace(described, suite=suite))
    with pytest.raises(UsageError, match="names what you never ran here"):
        replay(folder, silent, run=lambda *words: pytest.fail("it ran"))


def test_the_packages_that_are_not_here_as_they_were() -> None:
    """Those that are here are not asked for, qbench never; a run of former times names fewer."""
    numpy = importlib.metadata.version("numpy")
    locked = {"numpy": numpy, "onnxruntime": "1.5", "qbench-int8": "0.0.1", "scipy": "1.0"}
    assert list_pins(info(locked=locked, versions={"torch": "1.0"})) == [
        Pin(name="onnxruntime", version="1.5"),
        Pin(name="scipy", version="1.0"),
    ]
    former = info(versions={"numpy": numpy, "openvino": None, "onnxruntime": "1.5", "qbench": "0.0.1"})
    assert list_pins(former) == [Pin(name="onnxruntime", version="1.5")]


def test_a_folder_does_not_name_what_is_fetched() -> None:
    """What none of qbench's libraries needs is not installed, and a version is a version, not an option of pip's."""
    assert list_pins(info(locked={"somebodys-package": "1.0", "pytest": "1.0"})) == []
    with pytest.raises(UsageError, match="not one package in one version"):
        list_pins(info(locked={"onnxruntime": "1.5 --index-url=http://evil.example"}))


def test_what_a_run_keeps_makes_its_environment_again() -> None:
    """What the libraries need and what that needs, by the versions that are here; so nothing is to be installed."""
    locked = list_needed(["onnxruntime", "scikit-learn", "no-such-package"])
    assert {"onnxruntime", "numpy", "scikit-learn", "scipy", "joblib"} <= set(locked)
    assert "pytest" not in locked
    assert locked["numpy"] == importlib.metadata.version("numpy")
    assert list_pins(info(locked=locked)) == []


def test_what_could_not_be_made_as_it_was() -> None:
    """The machine, qbench, Python, files that were not committed; nothing where all is."""
    same = info(locked={"numpy": "1"}, versions={"qbench": qbench.__version__})
    assert list_reservations(same, same) == []
    before = info(
        environment={**same.environment, "cpu": "CPU B", "python": "3.9"},
        versions={"qbench": "0.0.1"},
        commit=Commit(sha="1234567890", changed=True),
    )
    assert list_reservations(before, same) == [
        "cpu of this machine is another: CPU B, here CPU A",
        f"the run was made by qbench 0.0.1, this is {qbench.__version__}",
        "the run was made by Python 3.9, this is None",
        "the run is of former times and does not tell the versions of all that its libraries need",
        "files had changed since commit 123456789 when the run was made",
    ]


def test_what_a_run_does_not_tell_is_no_reservation() -> None:
    """Its Python, its qbench; and a commit that nothing was changed of is none."""
    silent_one = info(locked={"numpy": "1"}, commit=Commit(sha="1234567890"))
    told = replace(silent_one, environment={**silent_one.environment, "python": "3.9"})
    assert list_reservations(silent_one, told) == []


@pytest.mark.parametrize(
    ("only", "quick", "words"),
    [
        (None, False, []),
        ("*/static/*", False, ["--filter", "*/static/*"]),
        (None, True, ["--quick"]),
        ("a", True, ["--filter", "a", "--quick"]),
    ],
)
def test_a_run_is_asked_for_as_it_was(only: str | None, quick: bool, words: list[str]) -> None:
    """By its filter and its extent, where it had them."""
    assert replaying._list_words(SimpleNamespace(only=only, suite=SimpleNamespace(quick=quick))) == words  # type: ignore[arg-type]
