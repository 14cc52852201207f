"""Which versions of a package can be installed here: those with a wheel for this Python and this platform."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.version import InvalidVersion, Version

from qbench.environments.pins import Pin, normalize_name
from qbench.environments.pip import Uninstallable, run_pip

_AVAILABLE = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def list_releases(package: str, *, pre_releases: bool = False) -> tuple[str, ...]:
    """The versions of a package that have a wheel for this Python and platform, the oldest first.

    Raises ``Uninstallable`` where there is none, ``Unreachable`` where the index does not answer.
    """
    name = normalize_name(package)
    words = ["index", "versions", "--only-binary", ":all:", *(["--pre"] if pre_releases else []), "--", name]
    try:
        said = run_pip(words)
    except Uninstallable as error:
        raise Uninstallable(f"{name}: no release can be installed on this Python and platform ({error})") from error
    listed = _AVAILABLE.search(said)
    return () if listed is None else tuple(sort_versions(each.strip() for each in listed[1].split(",")))


def sort_versions(versions: Iterable[str]) -> list[str]:
    """The versions in the order of PEP 440, the oldest first; what is none is left out."""
    read = {}
    for text in versions:
        try:
            read[text] = Version(text)
        except InvalidVersion:
            continue
    return sorted(read, key=read.__getitem__)


def find_nearest(pin: Pin, offered: Sequence[str], most: int = 2) -> tuple[str, ...]:
    """Of the versions that there are, those next to the one that is not: ``most`` below it and ``most`` above."""
    try:
        missing = Version(pin.version)
    except InvalidVersion:
        return tuple(sort_versions(offered)[-2 * most :])
    ordered = sort_versions(offered)
    below = [version for version in ordered if Version(version) < missing][-most:]
    above = [version for version in ordered if Version(version) > missing][:most]
    return (*below, *above)


def advise_nearest(pin: Pin) -> str:
    """What there is in place of a version that cannot be had; empty where nobody can tell."""
    try:
        offered = list_releases(pin.name, pre_releases=True)
    except Uninstallable:
        return f"pip finds no wheel of {pin.name} for this Python and platform"
    if any(map(pin.allows, offered)):
        return ""
    nearest = find_nearest(pin, offered)
    return f"{pin} does not exist, or has no wheel for this Python and platform; nearest: {', '.join(nearest)}"
