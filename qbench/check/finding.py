"""What a check says of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qbench.check.data_change import DataChange
from qbench.quant.artifacts.coverage import Layer, compute_int8_share
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.stats.interval_type import Interval

Severity = Literal["fault", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "note")
LEAST_GAIN = 1.02  # of what is told as a cause: less is no reason to change a file


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
    as they ran; ``profile``: where the time of a call goes (None: it does not run); ``peak_share``: of a call, what its
    products alone would take at the core's own peak, each in the format in which it ran (None: not known).
    ``known_batch_db``: as ``Backend.compare_known_batch`` tells."""

    runtime: str
    version: str | None
    refused: str | None = None
    advice: str = ""
    layers: tuple[Layer, ...] = ()
    profile: CallProfile | None = None
    peak_share: float | None = None
    known_batch_db: float | None = None

    @property
    def call_seconds(self) -> float | None:
        """The median call."""
        return None if self.profile is None else self.profile.call_seconds

    @property
    def seconds(self) -> dict[str, float]:
        """Those of a call by kind of work, each kind that there is; none where the nodes do not show."""
        if self.profile is None:
            return {}
        kinds = dict.fromkeys(node.kind for node in self.profile.nodes)
        return {kind: self.profile.seconds_by_kind().get(kind, 0.0) for kind in kinds}

    @property
    def int8_share(self) -> float | None:
        """Of the multiply-accumulates; None where they cannot be counted, or none was seen."""
        return compute_int8_share(self.layers) if self.layers else None


@dataclass(frozen=True, kw_only=True)
class CauseTrial:
    """The file without a cause of ``explain``: ``text`` says what is done otherwise, ``title`` what is wrong where that
    gains. ``gain``: how many times as fast the file is then, in the race with its fp32, with limits that hold for all
    trials together (95 %); None with the ``reason`` where it was not tried."""

    cause: str
    title: str
    text: str
    gain: Interval | None = None
    reason: str | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the file is shown to be faster without it, by enough to be told."""
        if self.gain is None or self.gain.low is None:
            return False
        return self.gain.low > 1.0 and self.gain.value >= LEAST_GAIN


@dataclass(frozen=True, kw_only=True)
class Race:
    """How the file did beside an fp32 form: the ratio of their times (below 1: the file is faster) with its limits of
    95 %, from as many ``processes``; ``sqnr_db`` of its worst output on the random inputs; ``trials``: the causes that
    were tried with them, the one that gains most first."""

    runtime: str
    opponent: str
    ratio: float
    low: float
    high: float
    processes: int
    sqnr_db: float | None
    trials: tuple[CauseTrial, ...] = ()


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
