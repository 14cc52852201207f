"""``onnxruntime==1.20.0``: one package in one version, as a command line or a record names it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from qbench.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
# PEP 440's versions are of these letters; what pip would take for an option, a path or an address is not.
_VERSION = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.!+_-]*[0-9A-Za-z])?")


@dataclass(frozen=True, kw_only=True, order=True)
class Pin:
    """A distribution by its normalized name (PEP 503), and the one version of it that is meant."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    def allows(self, version: str | None) -> bool:
        """Whether pip takes a version for the one that is meant (PEP 440): 1.30 and 1.30.0 are the same, 2.13.0 allows
        2.13.0+cpu, and 2.13.0+cpu no other build; False for None."""
        try:
            return version is not None and SpecifierSet(f"=={self.version}").contains(version, prereleases=True)
        except InvalidSpecifier:
            return version == self.version


def normalize_name(name: str) -> str:
    """The name by which the index knows a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_pin(text: str, where: str = "") -> Pin:
    """What ``name==version`` names; raises ``UsageError`` for anything else. ``where``: the option it was given to."""
    name, equals, version = (part.strip() for part in text.partition("=="))
    if not equals or not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        before = f"{where} " if where else ""
        raise UsageError(f"{before}{text}: not one package in one version; write it as onnxruntime==1.20.0")
    return Pin(name=normalize_name(name), version=version)


def parse_pins(texts: Iterable[str], where: str = "") -> tuple[Pin, ...]:
    """One pin for each package; raises ``UsageError`` where a package is named in two versions."""
    pins: dict[str, Pin] = {}
    for text in texts:
        pin = parse_pin(text, where)
        if pins.setdefault(pin.name, pin) != pin:
            raise UsageError(f"{where} {pin}: {pins[pin.name]} was named as well; name each package once".strip())
    return tuple(pins[name] for name in sorted(pins))
