"""The contract of a host: where artifacts are evaluated and measured, and how that is known to hold.

An artifact is built on this machine and carried to each host as it is. What a host asks for is read back from the
kernels (``read_back``): a variable that is set and changes no kernel limits nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from qbench.errors import CaseSkipped, UsageError
from qbench.record.schema import NATIVE

__all__ = ["NATIVE", "EmulatedPython", "Host", "KernelView"]

Kind = Literal["native", "limited", "node", "emulated"]
Sums = Literal["16 bits", "32 bits"]
Answers = Literal["runs", "predicted", "emulated"]


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """What the kernels of one backend say in a process: ``torch_isa``, ``onednn_isa`` and ``mkl_isa`` in the
    libraries' own words, ``int8_sums`` in how many bits they add two products of bytes, shown by an answer; None
    where nothing tells."""

    torch_isa: str | None = None
    onednn_isa: str | None = None
    mkl_isa: str | None = None
    int8_sums: Sums | None = None


@dataclass(frozen=True, kw_only=True)
class EmulatedPython:
    """How Python starts on an emulated CPU: the command, and the variables that it needs beside this process' own."""

    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


class Host(ABC):
    """Where artifacts are evaluated, and measured but where ``answers`` says otherwise. ``title`` is what a report
    calls it."""

    name: str
    title: str
    kind: Kind

    @abstractmethod
    def missing(self) -> str | None:
        """Why this machine cannot be that host and what to do; None if it can."""

    @abstractmethod
    def why_not(self, backend: str) -> str | None:
        """Why a backend has no answers there as on such a machine; None if it does."""

    def answers(self, backend: str) -> Answers:
        """How the answers of a backend without a ``why_not`` come about: ``predicted`` ones are computed from its file
        on this machine, ``emulated`` ones by a process that ``start_python`` starts, for a few examples. Neither is
        measured there."""
        return "runs"

    def caution(self, backend: str) -> str | None:
        """In what a backend that runs there is unlike such a machine; None where nothing is known."""
        return None

    def environment(self) -> Mapping[str, str]:
        """The variables of a child process, set before it imports anything."""
        return {}

    def start_python(self, folder: Path) -> EmulatedPython:
        """How Python starts on an emulated CPU; what else that needs goes into an empty folder. Raises ``CaseSkipped``
        where it does not run."""
        raise CaseSkipped(f"{self.name} emulates nothing")

    def prepare(self, root: Path, tell: Callable[[str], None]) -> str:
        """Fetches into the open cache ``root`` what this machine lacks to be that host; ``tell`` hears each step.
        Returns what is there, in words; raises ``UsageError`` where nothing can be prepared."""
        raise UsageError(f"{self.name}: nothing is to be prepared for this host")

    def describe(self) -> str | None:
        """The CPU of a host that is not this machine's, in its own words; raises ``CaseSkipped`` where nothing runs."""
        return None

    def contradict(self, backend: str, view: KernelView) -> str | None:
        """Why what the kernels of a backend say is not this host; None where it is."""
        return None
