"""What an upgrade is asked of: a suite or a run, the libraries of both sides, and the cases that these concern."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend
from qbench.environments.environment import Environment, list_present
from qbench.environments.making import Tell, make_environment
from qbench.environments.pins import Pin, parse_pin
from qbench.errors import NotComparable, UsageError, first_names
from qbench.machine import fingerprint
from qbench.modes import is_int8
from qbench.plan.planner import make_plan, measuring_cores
from qbench.record.locate import REPORTS
from qbench.record.stored_run import RUN, read_info
from qbench.running.stopped import read_stopped
from qbench.suite import Suite


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked: the suite, as it is run; ``run``, the run of it that is the old side (None: it is made); the
    packages of both sides; which cases; where runs land."""

    suite: Suite
    to: tuple[Pin, ...]
    since: tuple[Pin, ...]
    run: Path | None = None
    only: str | None = None
    out: Path = REPORTS
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The environments of both sides and the ids of the int8 cases that are looked at."""

    old: Environment
    new: Environment
    cases: tuple[str, ...]


def read_run_request(
    folder: Path, to: Sequence[Pin], since: Sequence[Pin], *, only: str | None, out: Path = REPORTS, quiet: bool = False
) -> Request:
    """What is asked of the run in a folder: its suite from this disk, its versions as the old side.

    Raises ``UsageError`` where its suite is not there or may not be executed, or where the old side that is asked for
    is not that of the run; ``NotComparable`` where the run does not tell which version it had.
    """
    info = read_info(folder / RUN)
    asked = read_stopped(folder)
    had = {
        pin.name: parse_pin(f"{pin.name}=={version}", f"{folder}:")  # who made the folder may have written anything
        for pin in to
        if (version := info.versions.get(pin.name)) is not None
    }
    if missing := [pin.name for pin in to if pin.name not in had]:
        raise NotComparable(f"{folder}: does not say in which version it had {first_names(missing)}; name the suite")
    for pin in since:
        if (version := info.versions.get(pin.name)) is not None and not pin.allows(version):
            raise UsageError(
                f"--from {pin}: the run in {folder} was made under {pin.name} {version}; leave it out, "
                f"or name the suite, {asked.suite.file}"
            )
    return Request(
        suite=asked.suite,
        to=tuple(to),
        since=tuple(sorted(({pin.name: pin for pin in since} | had).values())),
        run=folder,
        only=only or asked.only,
        out=out,
        quiet=quiet,
    )


def find_sides(request: Request, tell: Tell) -> Sides:
    """The environments, made where they are not there, and the cases; raises ``UsageError`` where nothing would differ
    or no case is concerned, before anything is fetched."""
    before = _complete(request)
    if all(pin.allows(before[pin.name]) for pin in request.to):
        names = ", ".join(f"{name} {version}" for name, version in before.items())
        raise UsageError(f"--to: both sides have {names}, so nothing can differ; name another version")
    cases = list_concerned(request)
    old = make_environment(_pins(before), tell)
    return Sides(old=old, new=make_environment(request.to, tell), cases=cases)


def _complete(request: Request) -> dict[str, str]:
    """What the old side has of every package that one of the sides names."""
    before = {pin.name: pin.version for pin in request.since}
    if surplus := sorted(set(before) - {pin.name for pin in request.to}):
        raise UsageError(f"--from {surplus[0]}=={before[surplus[0]]}: name it with --to as well, in the same version")
    for pin in request.to:
        if pin.name not in before:
            version = list_present().get(pin.name)
            if version is None:
                raise UsageError(f"--to {pin}: {pin.name} is not installed here; say with --from what it replaces")
            before[pin.name] = version
    return dict(sorted(before.items()))


def _pins(versions: dict[str, str]) -> list[Pin]:
    return [Pin(name=name, version=version) for name, version in versions.items()]


def list_concerned(request: Request) -> tuple[str, ...]:
    """The ids of the suite's int8 cases whose backend is made or run by one of the packages; raises ``UsageError`` that
    names the suite's packages where there is none."""
    suite, names = request.suite, {pin.name for pin in request.to}
    cores = measuring_cores(suite, fingerprint.allowed_cores())
    plan = make_plan(suite, cores=len(cores), only=request.only, memory_bytes=fingerprint.memory_bytes())
    planned = [each.case for each in plan.cases if is_int8(each.case.variant.mode)]
    globs = None if request.only is None else [part.strip() for part in request.only.split(",")]
    chosen = [case for case in planned if globs is None or any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)]
    concerned = [case.id for case in chosen if names & set(_list_libraries(case.variant.backend))]
    if not concerned:
        libraries = sorted({name for case in planned for name in _list_libraries(case.variant.backend)})
        raise UsageError(
            f"{suite.file}: no int8 case is made or run by {first_names(sorted(names))}; its cases are by "
            f"{first_names(libraries)}"
        )
    return tuple(concerned)


def _list_libraries(backend: str) -> Iterable[str]:
    loaded: Backend = registry.load("backend", backend)
    return (*loaded.libraries(), *loaded.runtime_libraries())
