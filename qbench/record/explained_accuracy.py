"""What ``qbench explain --of accuracy`` has said of a run's cases: ``explained-accuracy.jsonl`` in its folder, one line
for each case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from qbench.record.explained_file import read_file, write_file
from qbench.stats.interval_type import Interval

FILE = "explained-accuracy.jsonl"
_MOST = 1e9  # what a reader takes: whatever else stands there was written by somebody else
Number = Annotated[float, Field(ge=-_MOST, le=_MOST)]


def _require_sane(interval: Interval) -> Interval:
    """The interval; raises ``ValueError`` for a number that no metric has."""
    if any(value is not None and not abs(value) <= _MOST for value in (interval.value, interval.low, interval.high)):
        raise ValueError("a share or a change of a metric lies within a billion of 0")
    return interval


Limits = Annotated[Interval, AfterValidator(_require_sane)]


@dataclass(frozen=True, kw_only=True)
class ExplainedLoss:
    """A confirmed cause: ``change`` took it away; ``removed``: the share of the error that is gone, alone, and
    ``metric_change`` what that does to the metric, in its own scale; ``beyond``: the share beyond those before it."""

    title: str
    change: str
    removed: Limits
    metric_change: Limits | None
    beyond: Number


@dataclass(frozen=True, kw_only=True)
class ExplainedLayer:
    """A layer that was returned to float: ``removed`` and ``metric_change`` alone, ``together`` with those above it
    (null: not tried together)."""

    name: str
    removed: Limits
    metric_change: Limits | None
    together: Number | None


@dataclass(frozen=True, kw_only=True)
class ExplainedAccuracy:
    """Why a case loses accuracy, on ``n`` examples. ``sqnr_db``: the outputs against those of fp32; ``against_fp32``:
    the metric's change, in its own scale; ``left``: the share of the error that no cause takes away; ``suite``: the
    keys that take all causes away, ``metric_change`` what they do, and ``note`` what that does not promise."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, extra="ignore")

    case: str
    metric: str
    n: Annotated[int, Field(ge=0)]
    sqnr_db: Number | None
    against_fp32: Limits | None
    causes: tuple[ExplainedLoss, ...] = ()
    layers: tuple[ExplainedLayer, ...] = ()
    left: Number | None = None
    suite: str | None = None
    metric_change: Limits | None = None
    note: str | None = None


_CASE: TypeAdapter[ExplainedAccuracy] = TypeAdapter(ExplainedAccuracy)


def read_accuracy(folder: Path) -> tuple[ExplainedAccuracy, ...]:
    """What is known of the cases of a run; none where nothing was explained. Raises ``Damaged`` where the file holds
    something else."""
    return read_file(folder, FILE, _CASE)


def keep_accuracy(folder: Path, explained: ExplainedAccuracy) -> None:
    """Adds a case to those of the run, in place of what was known of it."""
    write_file(folder / FILE, read_accuracy(folder), explained)
