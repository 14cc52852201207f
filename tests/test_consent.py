"""Rules of qbench/consent.py: what a run's suite may execute, and the list of what this user ran.

How each command holds to it: tests/cli/test_planted_runs.py.
"""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import filelock
import platformdirs
import pytest

from qbench import consent, suite
from qbench.record.stored_run import SuiteInfo

TEXT = """
suite: mine
models:
  - {name: net, source: {python: "net.py:build", args: {width: 3}}, weights: net.pt}
  - {name: file, source: {onnx: file.onnx}, int8: [int8.onnx]}
  - digits-cnn
data: {dataset: {python: "data.py:load"}}
matrix: {modes: [fp32, static]}
quantize: {qat: {loss: {python: "loss.py:loss"}, backends: {x86: {train: {python: "loop.py:train"}, loss: null}}}}
gate: {accuracy: {metric: {python: "score.py:score", percent: true}}}
"""
BUILT_IN = "suite: mine\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "qbench"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the suite and all that it names."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "net.py").write_text("import layers\ndef build(width=1): ...\n")
    (folder / "layers.py").write_text("")
    (folder / "data.py").write_text("def load(split): ...\n")
    (folder / "loss.py").write_text("def loss(a, b): ...\n")
    (folder / "loop.py").write_text("def train(a, b, c): ...\n")
    (folder / "score.py").write_text("def score(a, b): ...\n")
    for name in ("file.onnx", "int8.onnx", "net.pt"):
        (folder / name).write_text("")
    (folder / "mine.yaml").write_text(TEXT)
    return folder


def read(project: Path, *overrides: str) -> suite.Suite:
    """The suite as it is now, its files not looked into."""
    return suite.read(project / "mine.yaml", overrides, stored=True)


def refused(project: Path, *overrides: str) -> str:
    """Why the suite is refused; empty where it is not."""
    return consent.why_refused(read(project, *overrides)) or ""


def test_all_that_is_not_built_in_needs_consent_once(project: Path) -> None:
    """Each model, the data set and the score, in words; nothing else, and nothing after the suite was run."""
    assert [source.text for source in consent.list_sources(read(project))] == [
        "model net: python: net.py:build",
        "model file: onnx: file.onnx",
        "QAT loss: python: loss.py:loss",
        "QAT train: python: loop.py:train",
        "data set: python: data.py:load",
        "score: python: score.py:score",
    ]
    assert refused(project).startswith(
        f"{project}/mine.yaml names what you never ran here, or not as it is now (model net"
    )
    assert consent.note_suite(read(project)) is None
    assert refused(project) == ""
    (project / "mine.yaml").write_text(BUILT_IN)
    assert consent.list_sources(read(project)) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("net.py", "# other\n"), "model net"),
        (("layers.py", "# imported by net.py\n"), "model net"),
        (("layers.so", "native code goes before Python of the same name"), "model net"),
        (("file.onnx", "other"), "model file"),
        (("int8.onnx", "other"), "model file"),
        (("data.py", "# other\n"), "data set"),
        (("score.py", "# other\n"), "score"),
        (("loss.py", "# other\n"), "QAT loss"),
        (("loop.py", "# other\n"), "QAT train"),
        (("mine.yaml", TEXT.replace("width: 3", "width: 4")), "model net"),
        (("mine.yaml", TEXT.replace("data.py:load", "net.py:build")), "data set"),
    ],
)
def test_another_byte_is_another_thing(project: Path, change: tuple[str, str], said: str) -> None:
    """Of the code and of what the suite says of it; what did not change stays allowed."""
    consent.note_suite(read(project))
    (project / change[0]).write_text(change[1])
    assert f"({said}: " in refused(project)
    assert ";" not in refused(project)


@pytest.mark.parametrize(
    "change",
    [
        ("net.pt", "weights are no code"),
        ("unrelated.py", "not imported"),
        ("mine.yaml", TEXT.replace("fp32, static", "dynamic").replace("true}}", "true}, margin: 3}")),
    ],
)
def test_what_is_not_executed_may_change(project: Path, change: tuple[str, str]) -> None:
    """Weights are read as data; rules and the matrix are edited after a run."""
    consent.note_suite(read(project))
    (project / change[0]).write_text(change[1])
    assert refused(project) == ""


def test_the_same_files_elsewhere_are_others(project: Path, tmp_path: Path) -> None:
    """Python beside them would be found there; a link to the folder is the folder."""
    consent.note_suite(read(project))
    shutil.copytree(project, tmp_path / "copy")
    assert "data set" in refused(tmp_path / "copy")
    (tmp_path / "link").symlink_to(project)
    assert refused(tmp_path / "link") == ""


def test_overrides_count_as_they_were_given(project: Path) -> None:
    """What they name is noted with the suite that was run with them, and only then."""
    change = "data.dataset={python: 'score.py:score'}"
    consent.note_suite(read(project))
    assert "(data set: python: score.py:score)" in refused(project, change)
    assert refused(project, "measure.seed=3") == ""
    consent.note_suite(read(project, change))
    assert refused(project, change) == ""


def test_the_suite_that_is_named_is_allowed_and_no_more(project: Path) -> None:
    """Overrides of a run's folder are not what the person named."""
    assert consent.why_refused(read(project), named=read(project)) is None
    changed = read(project, "data.dataset={python: 'score.py:score'}")
    assert consent.why_refused(changed, named=read(project)) is not None
    assert consent.why_refused(changed, named=read(project), parts=["models", "metric"]) is None


def test_the_list_is_the_user_s_alone(project: Path, state: Path) -> None:
    """One that others may write, or that is damaged or far too long, allows nothing; the next run writes a new one."""
    consent.note_suite(read(project))
    assert state.stat().st_mode & 0o777 == 0o700
    state.chmod(0o770)
    assert refused(project) != ""
    consent.note_suite(read(project))
    assert refused(project) == ""
    whole = (state / consent.LIST).read_text()
    for text in ("{", whole[:-1], "[1]", whole + " " * consent.MOST_BYTES):
        (state / consent.LIST).write_text(text)
        assert refused(project) != ""
    consent.note_suite(read(project))
    assert refused(project) == ""


def test_the_list_keeps_the_newest(project: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite that is run again is new; each stands there once; neither number nor size grows without end."""
    monkeypatch.setattr(consent, "MOST_SUITES", 3)
    runs = [read(project, f"data.dataset={{python: 'data.py:load', args: {{n: {n}}}}}") for n in range(5)]
    for number in (0, 1, 2, 0, 3, 4):
        consent.note_suite(runs[number])
    assert [consent.why_refused(run, parts=["data"]) is None for run in runs] == [True, False, False, True, True]
    file, suites = state / "other.json", [consent.Noted(file=letter, sources=("digest",)) for letter in "abc"]
    consent._write_list(file, suites)
    size = file.stat().st_size
    for most, kept in ((size, "abc"), (size - 1, "bc"), (2, "")):
        monkeypatch.setattr(consent, "MOST_BYTES", most)
        consent._write_list(file, suites)
        assert [each["file"] for each in json.loads(file.read_text())] == [*kept]


def test_runs_at_the_same_time_note_all(project: Path) -> None:
    """None overwrites what another has just written."""
    runs = [read(project, f"data.dataset={{python: 'data.py:load', args: {{n: {n}}}}}") for n in range(12)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(consent.note_suite, runs)) == [None] * 12
    assert [consent.why_refused(run) for run in runs] == [None] * 12


def test_a_list_that_cannot_be_written_is_told(project: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on; a suite of built-ins has nothing to note."""
    state.parent.mkdir()
    state.write_text("no folder")
    assert "cannot be noted" in (consent.note_suite(read(project)) or "")
    (project / "mine.yaml").write_text(BUILT_IN)
    assert consent.note_suite(read(project)) is None


def test_a_list_below_the_working_folder_is_none(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home folder the path of one's state is relative: whoever made that folder would have written it."""
    monkeypatch.chdir(project)
    consent.note_suite(read(project))
    monkeypatch.setattr(platformdirs, "user_state_path", lambda name: Path("../state") / name)
    assert refused(project) != ""
    assert "no home folder is known" in (consent.note_suite(read(project)) or "")


def test_a_suite_is_looked_for_where_one_works_then_beside_the_reports_then_by_its_text(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is found proves nothing, so each guess is as good; without one it is what the run says."""
    info = SuiteInfo(name="mine", file="project/mine.yaml", text=TEXT)
    run, home = tmp_path / "reports" / "mine" / "run", tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    assert consent.find_suite(run, info) == project / "mine.yaml"
    elsewhere = tmp_path / "out" / "reports" / "mine" / "run"
    assert consent.find_suite(elsewhere, info) == Path("project/mine.yaml")
    consent.note_suite(read(project))
    assert consent.find_suite(elsewhere, info) == project / "mine.yaml"
    (project / "mine.yaml").write_text(f"{TEXT}\n# edited\n")
    assert consent.find_suite(elsewhere, info) == Path("project/mine.yaml")
    (home / "project").mkdir()
    (home / "project/mine.yaml").write_text("")
    assert consent.find_suite(run, info) == Path("project/mine.yaml")


def test_a_suite_that_was_a_text_is_noted_without_a_file(state: Path) -> None:
    """Python gives one without a file."""
    parsed = suite.parse(BUILT_IN.replace("digits}", "{npz: data.npz}}"))
    assert consent.note_suite(parsed) is None
    assert [each["file"] for each in json.loads((state / consent.LIST).read_text())] == [""]
    assert consent.why_refused(parsed) is None


def test_the_list_has_a_thousand_suites_in_four_megabytes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who writes it waits ten seconds for another at most."""
    assert (consent.MOST_SUITES, consent.MOST_BYTES) == (1000, 4_194_304)
    waited: list[float] = []

    def lock(file: Path, timeout: float) -> Any:
        waited.append(timeout)
        raise filelock.Timeout(str(file))

    monkeypatch.setattr(filelock, "FileLock", lock)
    assert "cannot be noted" in (consent.note_suite(read(project)) or "")
    assert waited == [10.0]


@pytest.mark.parametrize(
    ("mode", "is_private"), [(0o700, True), (0o755, True), (0o711, True), (0o720, False), (0o702, False)]
)
def test_a_folder_that_others_may_only_read_is_private(state: Path, mode: int, is_private: bool) -> None:
    """Who can write there could allow anything."""
    state.mkdir(parents=True)
    state.chmod(mode)
    assert consent._is_private(state) == is_private
    assert not consent._is_private(state / "gone")


def test_a_folder_of_somebody_else_is_not_private(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it lets others do; where a system has no users, nobody else is there."""
    state.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: state.stat().st_uid + 1)
    assert not consent._is_private(state)
    monkeypatch.delattr(os, "getuid")
    assert consent._is_private(state)


def test_what_is_noted_is_what_the_suite_says(project: Path) -> None:
    """Without what it leaves out, so that a key that qbench gets later changes no note; a built-in counts where it has
    the user's own files."""
    models = "[resnet20, {name: digits-cnn, weights: net.pt}, {name: digits-lstm, int8: [int8.onnx]}, digits-cnn]"
    (project / "mine.yaml").write_text(BUILT_IN.replace("[digits-cnn]", models.replace(", digits-cnn]", "]")))
    named = list(consent._list_named(read(project)))
    assert [(each.part, each.kind, each.written.get("weights"), each.python) for each in named] == [
        ("models", "model digits-cnn", "net.pt", None), ("models", "model digits-lstm", None, None),
    ]  # fmt: skip
    assert set(named[0].written) == {"weights"}
    assert [file.name for file in named[1].files] == ["int8.onnx"]
    (project / "mine.yaml").write_text(TEXT)
    net, file, *_, score = consent._list_named(read(project))
    assert net.written == {"source": {"python": "net.py:build", "args": {"width": 3}}, "weights": "net.pt"}
    assert [each.name for each in file.files] == ["file.onnx", "int8.onnx"]
    assert score.written == {"python": "score.py:score", "percent": True}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"source": {"python": "a.py:b", "args": {}}, "weights": "w.pt"}, "python: a.py:b"),
        ({"python": "a.py:b", "percent": True}, "python: a.py:b"),
        ({"args": {"n": 1}}, "{'args': {'n': 1}}"),
        ({"npz": "d" * 200}, f"npz: {'d' * 115}"),
    ],
)
def test_a_source_is_named_in_few_words(written: dict[str, Any], said: str) -> None:
    """The texts that are written of it, at most 120 letters; what has no text as it is."""
    assert consent._describe(written) == said
