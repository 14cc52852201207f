"""What a check says of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from qbench.check.data_change import DataChange
from qbench.quant.artifacts.coverage import Layer, compute_int8_share

Severity = Literal["fault", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "note")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was seen: ``code`` for a program, ``text`` and ``advice`` for a person, ``layers`` concerned."""

    severity: Severity
    code: str
    text: str
    advice: str = ""
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RuntimeCheck:
    """What a runtime made of the file: ``refused`` says why it does not load or run. ``layers``: those that multiply,
    as they ran; ``seconds``: of a call, by kind of work; ``call_seconds``: the median call; ``peak_share``: of it, what
    its products alone would take at the core's own peak, each in the format in which it ran (None: not known)."""

    runtime: str
    version: str | None
    refused: str | None = None
    advice: str = ""
    layers: tuple[Layer, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    call_seconds: float | None = None
    peak_share: float | None = None

    @property
    def int8_share(self) -> float | None:
        """Of the multiply-accumulates; None where they cannot be counted, or none was seen."""
        return compute_int8_share(self.layers) if self.layers else None


@dataclass(frozen=True, kw_only=True)
class Race:
    """How the file did beside an fp32 form: the ratio of their times (below 1: the file is faster) with its limits of
    95 %, from as many ``processes``; ``sqnr_db`` of its worst output on the random inputs."""

    runtime: str
    opponent: str
    ratio: float
    low: float
    high: float
    processes: int
    sqnr_db: float | None


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """All that was found out of a file. ``data``: where the examples come from, None for random inputs; ``change``:
    what it answers on them beside its fp32."""

    file: str
    format: str
    bytes: int
    inputs: tuple[str, ...] = ()
    runtimes: tuple[RuntimeCheck, ...] = ()
    data: str | None = None
    change: DataChange | None = None
    race: Race | None = None
    no_race: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether no fault was found."""
        return not any(finding.severity == "fault" for finding in self.findings)
