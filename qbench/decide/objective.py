"""What a decision makes as small as it can be, as one number of a case, and how two cases compare in it; pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from qbench import formatting
from qbench.decide import cases
from qbench.decide.paired_times import NORMAL, Comparison, PairedTimes
from qbench.measure.paired_difference import PairedDifference
from qbench.record.schema import Record
from qbench.suite.settings import ObjectiveName

# Standard error of ln(one / other) where the records hold no limits: bytes are exact, the resident set of a process
# moves by about a per cent, and a cold start by about ten.
EXACT, MEMORY_SPREAD, COLD_SPREAD = 1e-9, 0.01, 0.1
WORDS = {
    "latency": ("faster", "slower", "a call"),
    "size": ("smaller", "larger", "in all"),
    "cold_start": ("faster to start", "slower to start", "to load and call once"),
    "memory": ("smaller in memory", "larger in memory", "resident"),
}


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is minimized in one setting: ``value`` of a case (None: not measured), and ``compare`` of two that have
    one."""

    name: ObjectiveName
    times: PairedTimes

    def value(self, record: Record) -> float | None:
        """Seconds or bytes."""
        return VALUES[self.name](record)

    def compare(self, record: Record, rival: Record) -> Comparison:
        """ln(record / rival) with its limits, of two that have a value."""
        if self.name == "latency":
            comparison = self.times.compare(record.case.id, rival.case.id)
            assert comparison is not None
            return comparison
        value, rival_value = self.value(record), self.value(rival)
        assert value is not None
        assert rival_value is not None
        error = {"size": EXACT, "memory": MEMORY_SPREAD}.get(self.name)
        if error is None:
            error = math.hypot(_cold_error(record), _cold_error(rival))
        difference = PairedDifference(
            value=math.log(value) - math.log(rival_value), error=error, freedom=NORMAL, generations=1, coarse=False
        )
        return Comparison(difference=difference, evidence="recorded")

    def show(self, record: Record) -> str:
        """``31.9 µs a call``, ``31.3 kB in all``; a dash where it was not measured."""
        value, words = self.value(record), WORDS[self.name][2]
        if value is None:
            return formatting.DASH
        in_bytes = self.name in ("size", "memory")
        return f"{formatting.size(int(value)) if in_bytes else formatting.duration(value)} {words}"

    @property
    def title(self) -> str:
        """``latency``, ``cold start``."""
        return self.name.replace("_", " ")

    @property
    def better(self) -> str:
        """``faster``, ``smaller``."""
        return WORDS[self.name][0]

    @property
    def worse(self) -> str:
        """``slower``, ``larger``."""
        return WORDS[self.name][1]


def size_of(record: Record) -> float | None:
    """Bytes of what is shipped."""
    return None if record.artifact is None else float(record.artifact.size_bytes)


def cold_start_of(record: Record) -> float | None:
    """Seconds from nothing loaded to the first answer."""
    cold = record.cold_start
    return None if cold is None else (cold.load_seconds + cold.first_call_seconds) or None


def memory_of(record: Record) -> float | None:
    """The largest resident set of the measuring process, bytes."""
    return float(cases.resident_bytes(record) or 0) or None


VALUES: dict[ObjectiveName, Callable[[Record], float | None]] = {
    "latency": cases.p50,
    "size": size_of,
    "cold_start": cold_start_of,
    "memory": memory_of,
}


def _cold_error(record: Record) -> float:
    """The standard error of ln(cold start): a quarter of its limits' width, where it has any."""
    cold, total = record.cold_start, cold_start_of(record)
    if cold is None or total is None:
        return COLD_SPREAD
    load_low, load_high, call_low, call_high = cold.load_low, cold.load_high, cold.first_call_low, cold.first_call_high
    if load_low is None or load_high is None or call_low is None or call_high is None:
        return COLD_SPREAD / math.sqrt(cold.processes)
    return max(EXACT, math.hypot(load_high - load_low, call_high - call_low) / 4 / total)
