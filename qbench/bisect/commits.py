"""Candidates: the commits from one to another, each built and run by its own code, as the gate's ``--against`` does it.

What is run of a commit is the artifact that its suite gives, under the libraries that it requires; its answers are
those of its run. Most commits change no artifact: one that gives an end's very files, under the same versions, is not
looked at further.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from qbench.backends.libraries import list_runtime_libraries
from qbench.bisect.candidates import Absent, Arm
from qbench.bisect.open_suite import OpenSuite
from qbench.bisect.question import Way
from qbench.cache import store
from qbench.environments.environment import Environment, find_present
from qbench.errors import CaseError, UsageError, first_names
from qbench.files import regular_file
from qbench.gating import against
from qbench.gating.against import Request, Side, build_side, compare_requirements
from qbench.gating.baseline import artifact_file
from qbench.gating.worktrees import Repository, find_repository
from qbench.record.locate import find_run
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, read_run

Build = Callable[[Side, Request], Path]
_LETTERS = 12  # of a commit's name


@dataclass(kw_only=True)
class Commits:
    """The commits ``names`` of a repository, in which the suite lies at ``path``; their runs are kept in ``home``."""

    opened: OpenSuite
    repository: Repository
    suite: Path
    names: tuple[str, ...]
    mended: bool
    home: Path
    quiet: bool
    build: Build = build_side
    of: str = "commit"
    way: Way = "commits"
    _environments: dict[str, Environment] = field(default_factory=dict)

    def open(self, place: int) -> Arm:
        """As ``Candidates``."""
        name = self.names[place]
        run, environment = self._run(name)
        record = run.by_id.get(self.opened.case.id)
        if record is None:
            raise Absent(f"its suite has no case {self.opened.case.id}")
        if record.status != "ok":
            kind = Absent if record.status == "skipped" else CaseError
            raise kind(f"its case is {record.status}: {record.reason}")
        file = artifact_file(record, beside=None)
        if file is None or record.artifact is None:
            raise Absent("its artifact is no longer in the cache; delete its run to build it again")
        versions = environment.list_versions(list_runtime_libraries(record.case.backend))
        return Arm(
            spec=self.opened.specify_worker(
                name, file, record.case.backend, record.case.mode, environment.worker_variables, versions
            ),
            predict=lambda target: _copy_predictions(run, record, target),
            digest=store.key_of({"artifact": record.artifact.sha256, "versions": versions, "data": run.info.digests}),
        )

    def _run(self, name: str) -> tuple[StoredRun, Environment]:
        """The run of a commit, from an earlier look or made now, and the libraries that it ran under."""
        path = regular_file.real_path(self.suite).relative_to(self.repository.top).as_posix()
        commit = self.repository.commit(name)
        if not self.repository.has(commit, path):
            raise Absent(f"{path} is not in it")
        out = self.home / name
        request = Request(suite=self.suite, ref=name, only=self.opened.case.id, quiet=self.quiet)
        with self.repository.checked_out([commit]) as (tree,):
            environment = self._find_environment(tree, name)
            side = Side(name=name, tree=tree, suite=tree / path, out=out.absolute(), environment=environment)
            folder = _find_finished(out)
            try:
                folder = folder or self.build(side, request)
            except UsageError as error:
                raise Absent(str(error)) from error
        return read_run(folder), environment

    def _find_environment(self, tree: Path, name: str) -> Environment:
        if name not in self._environments:
            differing = compare_requirements(tree, self.repository.top)
            if differing:
                self.opened.progress.note(f"{name}: {first_names(differing)} differ: making an environment")
            try:
                environment = against.make_environment(tree, self.opened.progress.note) if differing else find_present()
            except UsageError as error:
                raise Absent(str(error)) from error
            self._environments[name] = environment
        return self._environments[name]


def _find_finished(out: Path) -> Path | None:
    """The finished run below a folder; None where there is none."""
    for suite in sorted(out.iterdir()) if out.is_dir() else ():
        try:
            folder = find_run(str(suite))
        except UsageError:
            continue
        if read_run(folder).info.finished is not None:
            return folder
    return None


def _copy_predictions(run: StoredRun, record: Record, target: Path) -> None:
    if record.predictions is None:
        raise CaseError("its run has no predictions")
    shutil.copyfile(run.folder / record.predictions, target)


def list_commits(suite: Path, good: str, bad: str) -> tuple[Repository, tuple[str, ...], bool]:
    """The repository of a suite, the commits from the good one to the bad one, both with them, along first parents, and
    whether the good one is the newer.

    Raises ``UsageError`` where one is no commit, or neither comes before the other.
    """
    repository = find_repository(suite)
    ends = repository.commit(good), repository.commit(bad)
    if ends[0] == ends[1]:
        raise UsageError(f"--good {good} and --bad {bad}: the same commit, {ends[0][:_LETTERS]}")
    for mended, (older, newer) in ((False, ends), (True, ends[::-1])):
        if repository.is_ancestor(older, newer):
            commits = [older, *repository.list_between(older, newer)]
            names = tuple(commit[:_LETTERS] for commit in commits)
            return repository, names[::-1] if mended else names, mended
    raise UsageError(
        f"--good {good} and --bad {bad}: neither comes before the other; name the commit that they both come from "
        "as --good"
    )
