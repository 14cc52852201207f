"""A suite as it is committed, held against the same suite at another commit.

Both commits are checked out into folders of their own and built there, each in a child process, the other commit in an
environment (``qbench.environments``) of its own where its requirements differ. Then the gate runs the artifacts of
both, interleaved, each under the libraries that built it: an upgrade is part of what is judged. What runs is the code
of both commits, which is what was asked for; artifacts that they bring along do not run, since both are built here.
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import installation
from qbench.environments.environment import Environment, find_present
from qbench.environments.making import Wanted, digest_tree, make_for
from qbench.environments.pip import Uninstallable, Unreachable
from qbench.errors import NotComparable, QbenchError, UsageError, first_names
from qbench.files import regular_file
from qbench.gating.baseline import write_baseline
from qbench.gating.gate import Gated, gate_run
from qbench.gating.live_case import BASELINE
from qbench.gating.rerun import Rerunner
from qbench.gating.suite_program import FIRST_LOOK, run_suite
from qbench.gating.worktrees import find_repository
from qbench.record.locate import REPORTS

Build = Callable[["Side", "Request"], Path]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked: the suite's file, the other commit, where the run of this one lands, which cases.
    ``same_environment``: whatever the requirements say, both sides are built in this one."""

    suite: Path
    ref: str
    out: Path | None = None
    only: str | None = None
    same_environment: bool = False
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Side:
    """One commit: its name, its folder, the suite's file in it, where its run lands, the libraries that build it."""

    name: str
    tree: Path
    suite: Path
    out: Path
    environment: Environment


def gate_against(request: Request, rerunner: Rerunner, *, build: Build | None = None) -> Gated:
    """The verdicts on the suite as committed, against the commit ``request.ref``.

    Raises ``UsageError`` where the suite lies in no repository or the other commit lacks it, ``NotComparable`` where a
    side has no case that is ok.
    """
    if not request.suite.is_file():
        raise UsageError(f"{request.suite}: no such suite; --against takes the file of a suite, not a run")
    repository = find_repository(request.suite)
    base, head = repository.commit(request.ref), repository.commit("HEAD")
    path = regular_file.real_path(request.suite).relative_to(repository.top).as_posix()
    for name, commit in ((request.ref, base), ("HEAD", head)):
        if not repository.has(commit, path):
            raise NotComparable(f"{path} is not in {name} ({commit[:12]}): there is nothing to hold it against")
    if changed := repository.uncommitted():
        rerunner.progress.note(f"not judged, since not committed: {first_names(changed)}")
    with repository.checked_out([base, head]) as trees, tempfile.TemporaryDirectory(prefix="qbench-against-") as home:
        here, out = find_present(), (request.out or REPORTS).absolute()
        old = Side(name=request.ref, tree=trees[0], suite=trees[0] / path, out=Path(home) / "runs", environment=here)
        new = Side(name="HEAD", tree=trees[1], suite=trees[1] / path, out=out, environment=here)
        old = replace(old, environment=_find_environment(request, old, new, rerunner))
        folders = [(build or build_side)(side, request) for side in (old, new)]
        rerunner = replace(rerunner, suite_file=new.suite, environments={BASELINE: old.environment})
        gated = _judge(folders, old, rerunner, Path(home), request)
    return replace(gated, baseline=Path(f"{request.ref}@{base[:12]}"))


def _find_environment(request: Request, old: Side, new: Side, rerunner: Rerunner) -> Environment:
    """That of the other commit, where its requirements differ and the present one does not hold them."""
    differing = compare_requirements(old.tree, new.tree)
    if not differing:
        return old.environment
    if request.same_environment:
        rerunner.progress.note(f"{first_names(differing)} differ, and both sides are built in this environment")
        return old.environment
    rerunner.progress.note(f"{first_names(differing)} differ: making an environment for {request.ref}")
    return make_environment(old.tree, rerunner.progress.note)


def build_side(side: Side, request: Request) -> Path:
    """The folder of a side's run, made by ``qbench run`` in a process of its own, in its own folder."""
    below = regular_file.real_path(Path.cwd())
    top = find_repository(request.suite).top
    here = side.tree / below.relative_to(top) if below.is_relative_to(top) else side.tree
    here = here if here.is_dir() else side.tree
    return run_suite(
        os.path.relpath(side.suite, here),
        ["--filter", request.only] if request.only is not None else [],
        name=side.name,
        out=side.out,
        settings=FIRST_LOOK,
        environment=side.environment,
        folder=here,
        quiet=request.quiet,
    )


def _judge(folders: Sequence[Path], old: Side, rerunner: Rerunner, home: Path, request: Request) -> Gated:
    try:
        baseline = write_baseline(folders[0], home / "baseline", allow_failed=True)
    except QbenchError as error:
        raise NotComparable(f"{old.name}: {error}") from error
    return gate_run(folders[1], baseline, rerun=rerunner, only=request.only, as_run=True, ref=request.ref)


# --- an environment for a commit whose requirements are others ------------------------------------------------------

# Files at the top of a repository that say what must be installed, and the keys of the project's own file that do.
_FILES = ("requirements*.txt", "setup.py", "setup.cfg", "*.lock")
_PROJECT, _KEYS = "pyproject.toml", ("dependencies", "optional-dependencies", "requires-python", "dynamic")


def compare_requirements(old: Path, new: Path) -> list[str]:
    """The files of two trees in which other things are required."""
    before, after = _read_requirements(old), _read_requirements(new)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _read_requirements(tree: Path) -> dict[str, object]:
    files = {file for pattern in _FILES for file in tree.glob(pattern) if file.is_file()}
    contents: dict[str, object] = {file.name: regular_file.read_bytes(file) for file in files}
    project = tree / _PROJECT
    if project.is_file():
        try:
            content = tomllib.loads(regular_file.read_text(project))
        except ValueError:
            return contents | {_PROJECT: regular_file.read_bytes(project)}
        table = content.get("project", {})
        required = {key: table[key] for key in _KEYS if key in table}
        contents[_PROJECT] = (required, content.get("tool", {}).get("poetry", {}).get("dependencies"))
    return contents


def make_environment(tree: Path, tell: Callable[[str], None]) -> Environment:
    """The environment that holds what the commit in ``tree`` requires; the present one where that does.

    Held are the lines of ``requirements.txt`` where there is one, else the project itself, together with what qbench
    requires, so that requirements that contradict qbench's are an error and not replaced. qbench is that of this
    process. Raises ``UsageError`` with pip's last words: without a network or a mirror nothing can be installed.
    """
    listed = tree / "requirements.txt"
    required = ["-r", str(listed)] if listed.is_file() else [str(tree)]
    wanted = Wanted(requirements=(*required, *_list_own_requirements()), folder=tree, content=digest_tree(tree))
    try:
        return make_for(wanted, tell, wheels_only=False)
    except (Uninstallable, Unreachable) as error:
        raise UsageError(
            f"the requirements of the other commit cannot be installed: {error}; --same-environment builds both sides "
            "in this one"
        ) from error


def _list_own_requirements() -> list[str]:
    """What qbench itself requires, without its extras; nothing where it is not installed but run from its source."""
    try:
        required = importlib.metadata.requires(installation.NAME) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [each for each in required if "extra ==" not in each]
