"""Candidates: the releases of one package that the index offers for this Python and platform. The same artifact, built
by what is installed here, is run under each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from qbench.backends.libraries import list_runtime_libraries
from qbench.bisect.candidates import Absent, Arm
from qbench.bisect.open_suite import OpenSuite
from qbench.bisect.question import Way
from qbench.build import Artifact
from qbench.environments.environment import Environment
from qbench.environments.making import make_environment
from qbench.environments.pins import Pin, normalize_name
from qbench.environments.pip import Uninstallable
from qbench.environments.read_back import Unimportable
from qbench.environments.releases import find_nearest, list_releases
from qbench.errors import CaseError, UsageError

Make = Callable[[Sequence[Pin], Callable[[str], None]], Environment]


@dataclass(kw_only=True)
class Releases:
    """The releases ``names`` of a package, run as ``opened`` says."""

    opened: OpenSuite
    of: str
    names: tuple[str, ...]
    mended: bool
    make: Make = make_environment
    way: Way = "releases"
    _artifact: Artifact | None = field(default=None)

    def open(self, place: int) -> Arm:
        """As ``Candidates``."""
        pin, opened = Pin(name=self.of, version=self.names[place]), self.opened
        try:
            environment = self.make([pin], opened.progress.note)
        except Unimportable as error:
            raise CaseError(str(error)) from error
        except Uninstallable as error:
            raise Absent(str(error)) from error
        artifact, variables = self._build(), environment.worker_variables
        variant = opened.case.variant
        libraries = list_runtime_libraries(variant.backend)
        spec = opened.specify_worker(
            pin.version, artifact.file, variant.backend, variant.mode, variables, environment.list_versions(libraries)
        )
        return Arm(
            spec=spec,
            predict=lambda file: opened.predict(artifact, file, variables, own=environment.is_present),
            digest=f"{artifact.sha256}+{environment.digest}",
        )

    def _build(self) -> Artifact:
        if self._artifact is None:
            self._artifact = self.opened.build(self.opened.case.variant)
        return self._artifact


def list_candidates(
    good: Pin, bad: Pin, *, pre_releases: bool, list_all: Callable[..., Sequence[str]] = list_releases
) -> tuple[tuple[str, ...], bool]:
    """The releases from the good one to the bad one, both with them, and whether the good one is the newer.

    Raises ``UsageError`` where one does not exist here (with the nearest that do), or both are one; ``Unreachable``.
    """
    if good.name != bad.name:
        raise UsageError(f"--good {good} and --bad {bad}: of two packages; a search is over the releases of one")
    if good.allows(bad.version) or bad.allows(good.version):
        raise UsageError(f"--good {good} and --bad {bad}: the same release, so there is nothing between them")
    offered = list_all(good.name, pre_releases=True)
    places = []
    for option, pin in (("--good", good), ("--bad", bad)):
        allowed = [place for place, version in enumerate(offered) if pin.allows(version)]
        if not allowed:
            nearest = ", ".join(find_nearest(pin, offered))
            raise UsageError(
                f"{option} {pin}: it does not exist, or has no wheel for this Python and platform; nearest: {nearest}"
            )
        places.append(allowed[-1])
    first, last = sorted(places)
    between = [
        offered[place]
        for place in range(first, last + 1)
        if pre_releases or place in places or not Version(offered[place]).is_prerelease
    ]
    mended = places == [last, first]
    return tuple(reversed(between) if mended else between), mended


def require_runtime(package: str, opened_backend: str, case: str) -> None:
    """Raises ``UsageError`` where the releases of a package cannot matter to a case, since it does not run it."""
    libraries = [normalize_name(name) for name in list_runtime_libraries(opened_backend)]
    if package not in libraries:
        raise UsageError(
            f"--good {package}: {case} is run by {', '.join(libraries)}; search over releases of that, or name a case "
            f"that {package} runs"
        )
