"""The story of a replay: an environment from the run's record, the suite run again in it with an empty cache, and what
differs first.

The cache is empty so that every network is trained and every artifact is built again; from the cache they would be the
same without anybody having made them. The run's folder brings no code: the suite and all that it names come from this
disk, where the user has run them, or names them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import qbench
from qbench import installation
from qbench.backends.libraries import list_libraries
from qbench.cache import store
from qbench.cache.root import DOWNLOADS
from qbench.decide import decision
from qbench.environments.environment import Environment, list_needed
from qbench.environments.making import Tell, make_environment
from qbench.environments.pins import Pin, normalize_name, parse_pin
from qbench.errors import NotComparable, UsageError
from qbench.gating.suite_program import run_suite
from qbench.machine import fingerprint
from qbench.record.locate import REPORTS
from qbench.record.stored_run import RunInfo, StoredRun, read_run
from qbench.replay.comparison import Replayed, find_sha256, list_differences
from qbench.report import build as report
from qbench.running.stopped import Asked, read_stopped
from qbench.suite.quick import list_written

# (the suite as asked, the words of the command line, the environment, the cache) -> the run's folder
Run = Callable[[Asked, list[str], Environment, Path], Path]


def replay(folder: Path, tell: Tell, *, out: Path = REPORTS, quiet: bool = False, run: Run | None = None) -> Replayed:
    """The run in ``folder`` made again, and what differs.

    Raises ``UsageError`` where its suite is not on this disk, has changed, or may not be executed, and where a version
    cannot be had; ``NotComparable`` for a run that did not end.
    """
    before = read_run(folder)
    if before.info.finished is None:
        raise NotComparable(f"{folder}: did not end, so there is nothing to hold a replay against; go on with --resume")
    asked = read_stopped(folder)
    _require_same_suite(before, asked)
    with store.in_use(store.open_cache()):
        environment = make_environment(list_pins(before.info), tell)
        with _empty_cache() as cache:
            replay_folder = (run or _run(before.info, out.absolute(), quiet=quiet))(
                asked, _list_words(asked), environment, cache
            )
    after = read_run(replay_folder)
    decided = decision.decide(report.judge(before)), decision.decide(report.judge(after))
    ok = [record for record in before.records if record.status == "ok"]
    return Replayed(
        suite=before.info.suite.name,
        before=before,
        after=after,
        differences=list_differences(before, after, decided),
        artifacts=len({find_sha256(record) for record in ok} - {None}),
        answers=max((record.accuracy.n for record in ok if record.accuracy is not None), default=0),
        settings=len(decided[0]),
        reservations=tuple(list_reservations(before.info, after.info)),
    )


def list_pins(info: RunInfo) -> list[Pin]:
    """The packages of a run that are not here as it had them; those that it names itself where it is of former times
    and did not keep all that they need. qbench is the one that replays.

    Only packages that qbench's own libraries need here are taken: a folder can come from anybody, and must not name
    what is fetched and imported. Raises ``UsageError`` for what is no version.
    """
    recorded: Mapping[str, str | None] = info.locked or info.versions
    needed = list_needed(list_libraries())
    pins = []
    for name, version in recorded.items():
        known = needed.get(normalize_name(name))
        if version is not None and known not in (None, version) and normalize_name(name) != installation.NAME:
            pins.append(parse_pin(f"{name}=={version}", f"the versions of run {info.started}:"))
    return pins


def list_reservations(before: RunInfo, after: RunInfo) -> list[str]:
    """What the replay could not make as it was."""
    said = []
    field = fingerprint.comparable(before.environment, after.environment)
    if field is not None:
        said.append(f"{field} of this machine is another: {before.environment.get(field)}, here "
                    f"{after.environment.get(field)}")  # fmt: skip
    if (version := before.versions.get("qbench")) not in (None, qbench.__version__):
        said.append(f"the run was made by qbench {version}, this is {qbench.__version__}")
    python = before.environment.get("python")
    if python is not None and python != after.environment.get("python"):
        said.append(f"the run was made by Python {python}, this is {after.environment.get('python')}")
    if not before.locked:
        said.append("the run is of former times and does not tell the versions of all that its libraries need")
    if before.commit is not None and before.commit.changed:
        said.append(f"files had changed since commit {before.commit.sha[:9]} when the run was made")
    return said


def _require_same_suite(before: StoredRun, asked: Asked) -> None:
    if asked.suite.text != before.info.suite.text:
        commit = before.info.commit
        way = "" if commit is None else f": it is in commit {commit.sha[:9]}"
        raise UsageError(
            f"{before.folder}: its suite, {asked.suite.file}, has changed since; check out the one that it was made "
            f"from{way}"
        )


def _list_words(asked: Asked) -> list[str]:
    words = ["--filter", asked.only] if asked.only else []
    return [*words, *(["--quick"] if asked.suite.quick else [])]


def _run(info: RunInfo, out: Path, *, quiet: bool) -> Run:
    def run(asked: Asked, words: list[str], environment: Environment, cache: Path) -> Path:
        settings = list_written(info.suite.overrides, asked.suite.quick)
        return run_suite(
            asked.suite.file,
            words,
            name="the replay",
            out=out,
            settings=settings,
            environment=environment,
            quiet=quiet,
            from_here=False,
            variables={"QBENCH_CACHE": str(cache)},
        )

    return run


@contextlib.contextmanager
def _empty_cache() -> Iterator[Path]:
    """A cache in a folder beside this one that holds nothing but what data sets were fetched; gone afterwards."""
    root = store.open_cache()
    with tempfile.TemporaryDirectory(prefix=".qbench-replay-", dir=root.parent, ignore_cleanup_errors=True) as home:
        cache = store.open_cache(Path(home) / "cache")
        if (root / DOWNLOADS).is_dir():
            shutil.copytree(root / DOWNLOADS, cache / DOWNLOADS, copy_function=_link)
        yield cache


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
