"""What a bisection is asked, and what a look at a candidate gave: the raw facts, from which the rest follows; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from qbench.gating.sequential_test import ProcessPair

On = Literal["latency", "accuracy", "failure", "bits"]
Way = Literal["releases", "commits", "layers"]
Stop = Literal["absent", "fails"]
AnswersFile = Annotated[str, Field(pattern=r"^answers-\d+(-\d+)?\.npz$")]  # beside the journal


@dataclass(frozen=True, kw_only=True)
class Question:
    """``candidates``: from the good end to the bad one, both with them; ``of``: what they are candidates of, such as
    the package; ``mended``: the good end is the newer one, so that what is searched for is what mended it. ``digest``:
    of all that the answers depend on, so that looks of another question are not taken for this one's."""

    suite: str
    case: str
    on: On
    way: Way
    of: str
    candidates: tuple[str, ...]
    mended: bool
    digest: str

    @property
    def last(self) -> int:
        """The number of the bad end."""
        return len(self.candidates) - 1

    def name(self, place: int) -> str:
        """``onnxruntime 1.24.0``, ``commit 1a2b3c4d5e6f``, ``conv1 in int8``: a candidate in a sentence."""
        before = {"releases": f"{self.of} ", "commits": "commit ", "layers": ""}
        behind = " in int8" if self.way == "layers" and place else ""
        return f"{before[self.way]}{self.candidates[place]}{behind}"


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Why a candidate cannot be looked at: it cannot be had (``absent``: not installed, not built), or it ``fails``, as
    it loads the artifact or calls it."""

    kind: Stop
    reason: str


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One fact about a candidate, by its number: a process pair of it beside the good end; that it runs; the file with
    its answers, its name beside the journal; that what it runs is the ``same`` as an end of that number runs; or why
    there is none of these. ``digest``: of what it runs. ``seconds``: what it took."""

    candidate: int
    pair: ProcessPair | None = None
    runs: bool = False
    answers: AnswersFile | None = None
    same: int | None = None
    stopped: Stopped | None = None
    digest: str | None = None
    seconds: float = 0.0
