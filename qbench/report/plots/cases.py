"""What pictures read of a frame of cases, and which of them a picture shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from qbench.errors import UsageError, first_names
from qbench.modes import name_formats
from qbench.record.schema import NATIVE
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("id", "model", "mode", "backend", "threads", "batch_size", "setting", "variant")
CASES = (*(f"case.{key}" for key in _KEYS), "status")
CALLS = ("case.id", "process", "seconds")
LAYERS = ("case.id", "layer", "sqnr_db", "clipped", "is_float", "n")
MOST = 15  # rows of a picture; more are no longer read, and the table holds them all
SHIPPED = ("ship", "either")  # roles
RINGED = (*SHIPPED, "keep fp32")  # those with a ring around their mark
# Which cases come first where not all fit.
_NAMED = ("ship", "either", "keep fp32", "undecided")


@dataclass(frozen=True, kw_only=True)
class FrameColumns:
    """The columns of a frame as plain values, each read once and only if asked for."""

    frame: pd.DataFrame
    _known: dict[str, list[Any] | None] = field(default_factory=dict)

    def read(self, name: str) -> list[Any] | None:
        """The values of a column, None for what is missing; None where there is no such column."""
        if name not in self._known:
            self._known[name] = None
            if name in self.frame.columns:
                column = self.frame[name]
                pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
                self._known[name] = [None if is_missing else value for value, is_missing in pairs]
        return self._known[name]


@dataclass(frozen=True, kw_only=True)
class FrameCase:
    """One row of the frame as pictures read it; what is missing is None."""

    columns: FrameColumns
    row: int

    def __getitem__(self, column: str) -> Any:
        """The value of a column, None where it is missing or the frame has no such column."""
        values = self.columns.read(column)
        return None if values is None else values[self.row]

    def number(self, column: str) -> float | None:
        """A finite number, or None; raises ``UsageError`` for what is no number."""
        value = self[column]
        try:
            return float(value) if value is not None and math.isfinite(value) else None
        except TypeError as error:
            raise UsageError(f"{column}: {value!r} is no number; give the column as qbench.load has it") from error

    def interval(self, column: str, *, scale: float = 1.0) -> Interval | None:
        """``<column>.value`` with ``.low`` and ``.high``; None where there is no value."""
        value, low, high = (self.number(f"{column}.{part}") for part in ("value", "low", "high"))
        if value is None:
            return None
        return Interval(
            value=value * scale,
            low=None if low is None else low * scale,
            high=None if high is None else high * scale,
        )

    @property
    def key(self) -> str:
        """The id."""
        return str(self["case.id"])

    @property
    def setting(self) -> str:
        """``digits-cnn, 1 thread, batch 1``, with the run where the frame holds several."""
        name, runs = str(self["case.setting"]), set(self.columns.read("run") or ())
        return f"{name}, run {self['run']}" if len(runs) > 1 else name

    @property
    def variant(self) -> str:
        """``static · onednn``."""
        return str(self["case.variant"])

    @property
    def mode(self) -> str:
        """``static``."""
        return str(self["case.mode"])

    @property
    def backend(self) -> str:
        """``onednn``."""
        return str(self["case.backend"])

    @property
    def role(self) -> str:
        """What the decision says of it, empty where it does not name it."""
        return str(self["decision.role"] or "")

    @property
    def is_contender(self) -> bool:
        """Whether it is of another mode than fp32."""
        return self.mode != "fp32"

    @property
    def pace(self) -> float:
        """What cases are sorted by: time over the fastest fp32, else the median call."""
        return self.number("over_best_fp32.value") or self.seconds

    @property
    def seconds(self) -> float:
        """The median call, infinite where there is none."""
        return self.number("latency.p50_seconds") or self.number("latency.mean_seconds") or math.inf


def name_kind(cases: Iterable[FrameCase]) -> str:
    """``int8 variant``, ``int8 or bf16 variant``: what the cases other than fp32 are."""
    return f"{name_formats(case.mode for case in cases)} variant"


def limits_of(intervals: Iterable[Interval]) -> list[float]:
    """The limits that there are."""
    return [limit for each in intervals for limit in (each.low, each.high) if limit is not None]


def read_cases(frame: pd.DataFrame) -> list[FrameCase]:
    """The measured cases of a frame, in its order."""
    columns = FrameColumns(frame=frame)
    cases = [FrameCase(columns=columns, row=row) for row in range(len(frame))]
    return [case for case in cases if case["status"] == "ok"]


def list_settings(cases: Iterable[FrameCase]) -> list[str]:
    """Every setting, in the order of the cases; first those of this machine as it is."""
    hosts: dict[str, Any] = {}
    for case in cases:
        hosts.setdefault(case.setting, case["case.host"])
    return sorted(hosts, key=lambda name: hosts[name] not in (None, NATIVE))


def choose(
    cases: Sequence[FrameCase], most: int = MOST, best_first: Callable[[FrameCase], float] = lambda case: case.pace
) -> tuple[list[FrameCase], int]:
    """At most so many of the cases, and how many are left out: first those that a decision names, then those that tie,
    then the fastest fp32, then the others, the best of each setting in turn. Sorted by setting, the best first."""
    order = sorted(cases, key=lambda case: (best_first(case), case.key))
    settings = list_settings(cases)
    ranked: list[FrameCase] = []
    for rank in range(4):
        columns = [[case for case in order if _rank(case) == rank and case.setting == name] for name in settings]
        ranked += [case for turn in zip_longest(*columns) for case in turn if case is not None]
    chosen_ids = {id(case) for case in ranked[:most]}
    chosen = [case for name in settings for case in order if case.setting == name and id(case) in chosen_ids]
    return chosen, len(cases) - len(chosen)


def _rank(case: FrameCase) -> int:
    if case.role in _NAMED:
        return 0
    if case.role == "tied":
        return 1
    return 2 if case["decision.is_best_fp32"] else 3


# --- what a picture needs of the frames that it is given ------------------------------------------------------------


def measured_cases(frame: pd.DataFrame, most: int = 1) -> list[FrameCase]:
    """The measured cases of a frame of cases; raises ``UsageError`` where it is no such frame."""
    require_columns(frame, CASES, "qbench.load(run)")
    if not isinstance(most, int) or most < 1:
        raise UsageError(f"most: {most!r} is not a number of rows; take 1 or more")
    return read_cases(frame)


def require_columns(frame: pd.DataFrame, names: Iterable[str], source: str) -> None:
    """Raises ``UsageError`` where the frame is none, or lacks columns of what ``source`` gives."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise UsageError(f"a picture is drawn from a DataFrame as {source} gives it, not from {type(frame).__name__}")
    if missing := [name for name in names if name not in frame.columns]:
        raise UsageError(f"the frame lacks {first_names(missing)}; give it all columns of {source}")


def require_name(what: str, name: str, names: Collection[str]) -> None:
    """Raises ``UsageError`` where a name is none of those that there are."""
    if name not in list(names):
        raise UsageError(f"{what}: {name!r} is none of {first_names(names) or 'none'}")


def require_single_run(picture: str, *frames: pd.DataFrame) -> None:
    """Raises ``UsageError`` where a frame holds several runs: their cases have the same ids."""
    for frame in frames:
        names = list(dict.fromkeys(frame["run"])) if "run" in frame.columns else []
        if len(names) > 1:
            raise UsageError(
                f"{picture}: the frame holds {len(names)} runs ({first_names(names, 3)}); draw one of them: "
                f'frame[frame["run"] == "{names[0]}"]'
            )


def nothing_to_draw(picture: str, why: str) -> UsageError:
    """The error of a picture without anything on it."""
    return UsageError(f"{picture}: nothing to draw: {why}")
