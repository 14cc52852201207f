"""Rules of qbench/gating/against.py and what it stands on: both commits built from their own folders, nothing left."""

from __future__ import annotations

import importlib.metadata
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kept_notes import Notes
from made_wheels import make_wheel, use_index

from qbench.environments.environment import Environment, find_present
from qbench.environments.making import Wanted
from qbench.environments.pip import Unreachable
from qbench.errors import NotComparable, UsageError
from qbench.gating import against
from qbench.gating.against import Request, Side, build_side, gate_against
from qbench.gating.gate import Gated
from qbench.gating.live_case import BASELINE
from qbench.gating.rerun import Rerunner
from qbench.gating.worktrees import find_repository
from qbench.progress.live import Silent

SUITE = """\
suite: small
models: [{name: net, source: {python: "network.py:perceptron"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static], backends: [fake]}
measure: {cold_starts: 1, processes: 1, max_seconds: 0.1}
gate:
  size: {max_ratio: 0.5}
  accuracy: {margin: 50.0}
"""
NETWORK = """\
from torch import nn

def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


def git(folder: Path, *words: str) -> str:
    """What git says."""
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, message: str) -> str:
    """A commit of all that is there; its sha."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a suite in a folder below its top, two commits, the first called ``before``."""
    top = tmp_path / "repository"
    (top / "ml").mkdir(parents=True)
    git(top.parent, "init", "-q", "-b", "main", str(top))
    rng = np.random.default_rng(0)
    arrays = {"train_inputs": rng.random((32, 1, 8, 8), dtype=np.float32), "train_labels": np.arange(32) % 10}
    arrays |= {"test_inputs": rng.random((20, 1, 8, 8), dtype=np.float32), "test_labels": np.arange(20) % 10}
    np.savez(top / "ml/data.npz", **arrays)
    (top / "ml/network.py").write_text(NETWORK)
    (top / "ml/small.yaml").write_text(SUITE)
    (top / "requirements.txt").write_text("numpy\n")
    (top / ".gitignore").write_text("reports/\n")
    commit(top, "a suite")
    git(top, "tag", "before")
    (top / "ml/network.py").write_text(f"# a comment\n{NETWORK}")
    commit(top, "a comment")
    monkeypatch.chdir(top)
    return top


def worktrees(top: Path) -> int:
    """How many folders the repository is checked out in."""
    return git(top, "worktree", "list").count("\n")


def test_a_harmless_commit_passes_and_leaves_nothing(repository: Path) -> None:
    """Both sides are built from what is committed, uncommitted files are named and not judged, places are those of the
    suite where it was called, and no worktree stays."""
    (repository / "ml/network.py").write_text("raise SystemError('not committed')\n")
    progress = Notes()
    gated = gate_against(Request(suite=Path("ml/small.yaml"), ref="before", quiet=True), Rerunner(progress=progress))
    assert gated.exit_code == 0, [verdict.reason for verdict in gated.verdicts]
    assert gated.baseline is not None
    assert gated.baseline.name.startswith("before@")
    assert {verdict.place.partition(":")[0] for verdict in gated.verdicts} == {"ml/small.yaml"}
    assert gated.folder.parent.parent == repository / "reports"
    assert progress.notes[0] == "not judged, since not committed: ml/network.py"
    assert worktrees(repository) == 1
    assert not list(Path(git(repository, "rev-parse", "--git-common-dir").strip()).glob("worktrees/*"))


def test_the_worktrees_go_after_an_error_too(repository: Path) -> None:
    """Also where building is interrupted: then nothing is judged."""
    built: list[Side] = []

    def interrupt(side: Side, request: Request) -> Path:
        assert (side.tree / "ml/network.py").read_text() == NETWORK
        built.append(side)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gate_against(Request(suite=Path("ml/small.yaml"), ref="before"), Rerunner(progress=Silent()), build=interrupt)
    assert [side.name for side in built] == ["before"]
    assert not built[0].tree.exists()
    assert worktrees(repository) == 1


@pytest.mark.parametrize("code", [129, 130, 143])
def test_a_run_that_a_signal_ended_interrupts_the_gate(code: int, repository: Path, tmp_path: Path) -> None:
    """By the exit code of the process that makes it, as a shell says it; an error of the suite has another one."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    environment = Environment(digest="0" * 64, python=python)
    side = Side(
        name="before", tree=repository, suite=repository / "ml/small.yaml", out=tmp_path, environment=environment
    )
    with pytest.raises(KeyboardInterrupt):
        build_side(side, Request(suite=Path("ml/small.yaml"), ref="before"))
    python.write_text("#!/bin/sh\nexit 2\n")
    with pytest.raises(UsageError, match="before: its suite could not be run"):
        build_side(side, Request(suite=Path("ml/small.yaml"), ref="before"))


def test_an_unknown_ref_lists_those_there_are(repository: Path) -> None:
    """An option in place of a ref is none either."""
    for ref in ("nonsense", "--upload-pack=x", ""):
        with pytest.raises(UsageError, match="no such commit, branch or tag .* there are .*before"):
            gate_against(Request(suite=Path("ml/small.yaml"), ref=ref), Rerunner(progress=Silent()))


def test_a_suite_that_the_other_commit_lacks_is_not_comparable(repository: Path) -> None:
    """Exit code 3, and nothing is built."""
    (repository / "ml/other.yaml").write_text(SUITE)
    commit(repository, "another suite")
    with pytest.raises(NotComparable, match=r"ml/other\.yaml is not in before"):
        gate_against(Request(suite=Path("ml/other.yaml"), ref="before"), Rerunner(progress=Silent()))


def test_a_suite_outside_a_repository(tmp_path: Path) -> None:
    """The message says what is needed; so does that about a run in place of a suite."""
    file = tmp_path / "small.yaml"
    file.write_text(SUITE)
    with pytest.raises(UsageError, match="needs a git repository"):
        gate_against(Request(suite=file, ref="main"), Rerunner(progress=Silent()))
    with pytest.raises(UsageError, match="takes the file of a suite"):
        gate_against(Request(suite=tmp_path, ref="main"), Rerunner(progress=Silent()))


def test_a_commit_with_other_requirements_gets_its_own_environment(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commit is built under that environment, and the gate told to run its artifacts there, unless one asks
    for the same; where requirements are the same, nothing is made."""
    environment = Environment(digest="0" * 64, folder=Path("/of/that/commit"))
    judged: list[Environment] = []

    def judge(folders: list[Path], old: Side, rerunner: Rerunner, home: Path, request: Request) -> Gated:
        judged.append(rerunner.environments[BASELINE])
        return Gated(suite="small", folder=folders[1], baseline=None, verdicts=())

    def ask(*, same: bool = False) -> tuple[list[str], list[Environment]]:
        progress, built = Notes(), list[Environment]()
        request = Request(suite=Path("ml/small.yaml"), ref="before", same_environment=same)
        gate_against(
            request,
            Rerunner(progress=progress),
            build=lambda side, request: built.append(side.environment) or side.out,  # type: ignore[func-returns-value]
        )
        return progress.notes, [*built, judged.pop()]

    monkeypatch.setattr(against, "_judge", judge)
    monkeypatch.setattr(against, "make_environment", lambda tree, tell: environment)
    here = find_present()
    assert ask() == ([], [here, here, here])
    assert Request(suite=Path("s.yaml"), ref="before") == Request(
        suite=Path("s.yaml"), ref="before", out=None, only=None, same_environment=False, quiet=False
    )
    (repository / "requirements.txt").write_text("numpy\nscipy\n")
    commit(repository, "scipy")
    notes, environments = ask()
    assert "requirements.txt differ: making an environment for before" in notes[0]
    assert environments == [environment, here, environment]
    notes, environments = ask(same=True)
    assert "requirements.txt differ, and both sides are built in this environment" in notes[0]
    assert environments == [here, here, here]


@pytest.mark.parametrize(
    ("file", "old", "new", "differs"),
    [
        ("pyproject.toml", "[tool.ruff]\nx = 1\n", "[tool.ruff]\nx = 2\n", False),
        ("pyproject.toml", '[project]\ndependencies = ["a"]\n', '[project]\ndependencies = ["a>1"]\n', True),
        ("requirements-dev.txt", "a\n", "b\n", True),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.11"\n', "", True),
        ("pyproject.toml", '[project]\nname = "a"\n', '[project]\nname = "b"\n', False),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = "1"\n', '[tool.poetry.dependencies]\na = "2"\n', True),
        ("pyproject.toml", "not TOML", "not TOML either", True),
        ("pyproject.toml", "not TOML", "not TOML", False),
        ("uv.lock", "a", "b", True),
        ("notes.txt", "a", "b", False),
    ],
)
def test_only_what_must_be_installed_counts(tmp_path: Path, file: str, old: str, new: str, differs: bool) -> None:
    """A linter's setting needs no other environment."""
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    assert against.compare_requirements(tmp_path / "old", tmp_path / "new") == ([file] if differs else [])


def test_an_environment_holds_the_requirements_and_what_qbench_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip is asked for both at once, so that it refuses what contradicts; what the present one holds is not fetched.
    A checkout in another folder has the same environment, one with other requirements another."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    make_wheel(tmp_path / "index", "qbt-alpha", "1.0")
    make_wheel(tmp_path / "index", "numpy", "1.0")
    use_index(tmp_path / "index", monkeypatch)
    for name, text in (("a", "qbt-alpha\nnumpy\n"), ("b", "qbt-alpha\nnumpy\n"), ("c", "numpy==1.0"), ("d", "numpy")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text(text)
    told: list[str] = []
    environment = against.make_environment(tmp_path / "a", told.append)
    assert environment.text == "qbt-alpha 1.0"
    assert against.make_environment(tmp_path / "b", lambda text: pytest.fail("made again")) == environment
    with pytest.raises(UsageError, match="numpy.*; --same-environment builds both sides in this one"):
        against.make_environment(tmp_path / "c", told.append)
    assert against.make_environment(tmp_path / "d", told.append) == find_present()


def test_a_side_is_built_under_its_libraries(repository: Path, tmp_path: Path) -> None:
    """The process that builds finds them before the present ones."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $PYTHONPATH > {tmp_path}/path\nexit 130\n")
    python.chmod(0o755)
    environment = Environment(digest="0" * 64, folder=tmp_path / "packages", python=python)
    side = Side(
        name="before",
        tree=repository,
        suite=repository / "ml/small.yaml",
        out=tmp_path,
        environment=environment,
    )
    with pytest.raises(KeyboardInterrupt):
        build_side(side, Request(suite=Path("ml/small.yaml"), ref="before"))
    assert (tmp_path / "path").read_text().strip().split(":")[0] == str(tmp_path / "packages")


def test_hooks_of_the_repository_do_not_run(repository: Path) -> None:
    """Checking out runs nothing."""
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    opened = find_repository(repository / "ml/small.yaml")
    with opened.checked_out([opened.commit("before")]) as (folder,):
        assert (folder / "ml/small.yaml").is_file()
        assert not list(folder.glob("**/ran"))
    assert not folder.exists()


def test_what_is_judged_is_named_and_lands_where_that_is_asked(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commit by its ref and the first 12 signs of its sha; its own run goes with it, that of HEAD stays."""
    outs: list[Path] = []

    def judge(folders: list[Path], old: Side, rerunner: Rerunner, home: Path, request: Request) -> Gated:
        assert outs[0].is_relative_to(home)
        assert rerunner.suite_file is not None
        assert rerunner.suite_file.name == "small.yaml"
        return Gated(suite="small", folder=folders[1], baseline=None, verdicts=())

    monkeypatch.setattr(against, "_judge", judge)
    for out, lands in ((None, repository / "reports"), (tmp_path / "out", tmp_path / "out")):
        outs.clear()
        request = Request(suite=Path("ml/small.yaml"), ref="before", out=out)
        gated = gate_against(
            request,
            Rerunner(progress=Silent()),
            build=lambda side, request: outs.append(side.out) or side.out,  # type: ignore[func-returns-value]
        )
        assert (outs[1], gated.folder) == (lands, lands)
        assert gated.baseline == Path(f"before@{git(repository, 'rev-parse', 'before')[:12]}")


@pytest.mark.parametrize(
    ("where", "works", "names"), [("", "", "ml/small.yaml"), ("ml", "ml", "small.yaml"), ("new", "", "ml/small.yaml")]
)
def test_a_side_is_built_in_the_folder_where_the_gate_was_called(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, works: str, names: str
) -> None:
    """That of its own commit, or its top where it has no such folder; with the cases that are asked for."""
    (tree := tmp_path / "tree").joinpath("ml").mkdir(parents=True)
    (repository / where).mkdir(exist_ok=True)
    monkeypatch.chdir(repository / where)
    environment = _listen(tmp_path)
    side = Side(name="before", tree=tree, suite=tree / "ml/small.yaml", out=tmp_path, environment=environment)
    asked = Request(suite=repository / "ml/small.yaml", ref="before")
    assert build_side(side, asked) == Path("/a/run")
    folder, words = (tmp_path / "heard").read_text().splitlines()
    assert Path(folder) == tree / works
    assert words.startswith(f"-m qbench run {names} --out {tmp_path} --set ")
    assert "--quiet" not in words
    build_side(side, replace(asked, only="*/static/*", quiet=True))
    folder, words = (tmp_path / "heard").read_text().splitlines()
    assert " --filter */static/* --set " in words
    assert words.endswith(" --quiet")


def test_a_side_is_built_at_the_top_where_the_gate_is_called_from_elsewhere(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder outside the repository has no place in a commit."""
    monkeypatch.chdir(tmp_path)
    side = Side(
        name="before", tree=repository, suite=repository / "ml/small.yaml", out=tmp_path, environment=_listen(tmp_path)
    )
    build_side(side, Request(suite=repository / "ml/small.yaml", ref="before"))
    assert Path((tmp_path / "heard").read_text().splitlines()[0]) == repository


def _listen(folder: Path) -> Environment:
    """An environment whose Python notes where it works and what it is told, and says that it made a run."""
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\npwd > {folder}/heard\necho "$@" >> {folder}/heard\necho \'{{"folder": "/a/run"}}\'\n'
    )
    python.chmod(0o755)
    return Environment(digest="0" * 64, python=python)


def test_the_run_of_head_is_judged_by_its_own_rules_against_that_of_the_other_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases of the other commit that failed are no error; a side without a case that is ok is not comparable."""
    asked: list[object] = []
    gated = Gated(suite="small", folder=tmp_path, baseline=None, verdicts=())

    def write(folder: Path, target: Path, *, allow_failed: bool) -> Path:
        asked.append((folder, target, allow_failed))
        return target / "small.jsonl"

    def judge(folder: Path, baseline: Path, **options: object) -> Gated:
        asked.append((folder, baseline, options))
        return gated

    monkeypatch.setattr(against, "write_baseline", write)
    monkeypatch.setattr(against, "gate_run", judge)
    side = Side(name="before", tree=tmp_path, suite=tmp_path, out=tmp_path, environment=find_present())
    request, rerunner = Request(suite=Path("s.yaml"), ref="main", only="a/*"), Rerunner(progress=Silent())
    folders = [tmp_path / "old", tmp_path / "new"]
    assert against._judge(folders, side, rerunner, tmp_path, request) is gated
    assert asked == [
        (folders[0], tmp_path / "baseline", True),
        (
            folders[1],
            tmp_path / "baseline" / "small.jsonl",
            {"rerun": rerunner, "only": "a/*", "as_run": True, "ref": "main"},
        ),
    ]

    def refuse(folder: Path, target: Path, *, allow_failed: bool) -> Path:
        raise UsageError("no case of this run is ok")

    monkeypatch.setattr(against, "write_baseline", refuse)
    with pytest.raises(NotComparable, match="before: no case of this run is ok"):
        against._judge(folders, side, rerunner, tmp_path, request)


def test_a_project_without_a_list_of_requirements_is_installed_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with what qbench requires, of which extras are no part, nor anything where it is not installed; what
    has no wheel is built."""
    asked: list[tuple[Wanted, bool]] = []
    here = find_present()

    def make(wanted: Wanted, tell: object, *, wheels_only: bool) -> Environment:
        asked.append((wanted, wheels_only))
        return here

    monkeypatch.setattr(against, "make_for", make)
    for required, own in ((["numpy>=1", "ray ; extra == 'ray'"], ("numpy>=1",)), (None, ())):
        monkeypatch.setattr(importlib.metadata, "requires", lambda name, required=required: required)
        assert against.make_environment(tmp_path, print) is here
        wanted, wheels_only = asked.pop()
        assert (wanted.requirements, wanted.folder, wheels_only) == ((str(tmp_path), *own), tmp_path, False)

    def not_installed(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", not_installed)
    (tmp_path / "requirements.txt").write_text("numpy\n")
    against.make_environment(tmp_path, print)
    assert asked[0][0].requirements == ("-r", str(tmp_path / "requirements.txt"))

    def unreachable(wanted: Wanted, tell: object, *, wheels_only: bool) -> Environment:
        raise Unreachable("nobody answers")

    monkeypatch.setattr(against, "make_for", unreachable)
    with pytest.raises(UsageError, match="cannot be installed: nobody answers; --same-environment builds both sides"):
        against.make_environment(tmp_path, print)
