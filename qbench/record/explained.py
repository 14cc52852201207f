"""What ``qbench explain`` has said of a run's cases: a file for time and one for accuracy in its folder, one line of
JSON for each case, which anybody may have written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from qbench.files import atomic, regular_file, strict_json
from qbench.record.run_files import DamagedFile, find
from qbench.stats.interval_type import Interval

MOST_BYTES = 10_000_000  # a few thousand cases; more is none of qbench's
# What a reader takes: whatever else stands there was written by somebody else.
_MOST = 1e9
Seconds = Annotated[float, Field(ge=0, le=_MOST)]
Number = Annotated[float, Field(ge=-_MOST, le=_MOST)]
# How the process that calls has denormals taken as zero.
FLUSH_IN_TORCH = "torch.set_flush_denormal(True)"
FLUSHING = {
    "onnxruntime": 'options.add_session_config_entry("session.set_denormal_as_zero", "1")',
    "openvino": "# in the thread that calls: denormals as zero (FTZ and DAZ)",
}
# On how many cores the process that calls imports ONNX Runtime.
IMPORT_ON_ONE = "pin the process to one core before it imports onnxruntime (taskset -c CORE, or os.sched_setaffinity)"
IMPORT_ON_SEVERAL = (
    "import onnxruntime while the process may use two cores or more, and pin it afterwards "
    "(os.sched_setaffinity; a container needs a cpuset of two)"
)
# Variables that hide instructions, and those of malloc: no advice of qbench sets another one.
_VARIABLE = r"(unset|export) (ONEDNN|DNNL|ATEN|MKL|FBGEMM|OV|MALLOC)_[A-Z0-9_]{1,40}(=[A-Za-z0-9_]{1,20})?"
_SENTENCES = (FLUSH_IN_TORCH, *FLUSHING.values(), IMPORT_ON_ONE, IMPORT_ON_SEVERAL)
_SETTINGS = "|".join([_VARIABLE, *(re.escape(line) for line in _SENTENCES)])
Setting = Annotated[str, Field(pattern=f"^({_SETTINGS})$")]


def _require_sane(interval: Interval) -> Interval:
    """The interval; raises ``ValueError`` for a number that was never measured."""
    if any(value is not None and not abs(value) <= _MOST for value in (interval.value, interval.low, interval.high)):
        raise ValueError("a ratio, a share or a change of a metric lies within a billion of 0")
    return interval


def _require_positive(ratio: Interval) -> Interval:
    """The same of a ratio of times."""
    if any(value is not None and not value > 0 for value in (ratio.value, ratio.low, ratio.high)):
        raise ValueError("a ratio of times is above 0")
    return ratio


Limits = Annotated[Interval, AfterValidator(_require_sane)]
Ratio = Annotated[Limits, AfterValidator(_require_positive)]


@dataclass(frozen=True, kw_only=True)
class ExplainedCause:
    """A confirmed cause: ``change`` took it away. ``saving``: how many times as fast that made the case, or the share
    of the error that is gone alone; ``share``: of the gap, or of the error, beyond those before it (null: no gap is
    known). ``seconds``: what it saves for one example; ``metric_change``: what it does to the metric, in its own
    scale."""

    title: str
    change: str
    saving: Limits | None
    share: Number | None
    seconds: Number | None = None
    metric_change: Limits | None = None


@dataclass(frozen=True, kw_only=True)
class ExplainedLayer:
    """A layer that was returned to float: ``saving`` and ``metric_change`` alone, ``together`` with those above it
    (null: not tried together)."""

    name: str
    saving: Limits
    metric_change: Limits | None
    together: Number | None


@dataclass(frozen=True, kw_only=True)
class TimeFigures:
    """Of time, seconds for one example. ``best_seconds``: what the case could take, ``best`` by what that is known;
    ``environment``: what to set for the process; ``over_fp32``: how many times as long as fp32 it takes; ``off_core``:
    the share of the time in which other processes had the core; ``overlapping``: causes that gain alone, but nothing
    beyond the confirmed ones, each with what it saves alone."""

    file: ClassVar[str] = "explained.jsonl"
    keys: ClassVar[Mapping[str, str]] = {"saving": "gain", "note": "accuracy"}
    not_of_cause: ClassVar[str] = "metric_change"

    seconds: Seconds
    fp32_seconds: Seconds | None
    best_seconds: Seconds
    best: str
    environment: tuple[Setting, ...] = ()
    over_fp32: Ratio | None = None
    off_core: Annotated[float, Field(ge=0, le=1)] | None = None
    overlapping: tuple[ExplainedCause, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ErrorFigures:
    """Of accuracy, on ``n`` examples. ``sqnr_db``: the outputs against those of fp32; ``against_fp32``: the metric's
    change, in its own scale; ``metric_change``: what taking all causes away does."""

    file: ClassVar[str] = "explained-accuracy.jsonl"
    keys: ClassVar[Mapping[str, str]] = {"saving": "removed", "share": "beyond", "unexplained": "left"}
    not_of_cause: ClassVar[str] = "seconds"

    metric: str
    n: Annotated[int, Field(ge=0)]
    sqnr_db: Number | None
    against_fp32: Limits | None
    metric_change: Limits | None = None
    layers: tuple[ExplainedLayer, ...] = ()


Figures = TypeVar("Figures", bound=TimeFigures | ErrorFigures)


@dataclass(frozen=True, kw_only=True)
class ExplainedCase(Generic[Figures]):
    """Why a case is not faster, or not right. ``unexplained``: the share of the gap, or of the error, that no cause
    closes; ``suite``: the keys that take all causes away; ``note``: what that changes in accuracy, or what it does not
    promise, in words."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, extra="ignore")

    case: str
    figures: Figures
    causes: tuple[ExplainedCause, ...] = ()
    unexplained: Number | None = None
    suite: str | None = None
    note: str | None = None


def read_explained(folder: Path, kind: type[Figures]) -> tuple[ExplainedCase[Figures], ...]:
    """What is known of the cases of a run; none where nothing was explained. Raises ``DamagedFile`` where the file
    holds something else."""
    file = find(folder, kind.file)
    if file is None:
        return ()
    names = {key: name for name, key in kind.keys.items()}
    adapter: TypeAdapter[ExplainedCase[Figures]] = TypeAdapter(ExplainedCase[kind])  # type: ignore[valid-type]
    try:
        lines = [line for line in regular_file.read_text(file, MOST_BYTES).splitlines() if line.strip()]
        fields = [_rename(strict_json.parse(line), names) for line in lines]
        return tuple(adapter.validate_python({**each, "figures": each}) for each in fields)
    except (OSError, ValueError, TypeError, ValidationError) as error:
        raise DamagedFile(file, "cannot be read as explanations", "delete it to go on without") from error


def keep_explained(folder: Path, explained: ExplainedCase[Figures]) -> None:
    """Adds a case to those of the run, in place of what was known of it."""
    kind = type(explained.figures)
    remaining = [each for each in read_explained(folder, kind) if each.case != explained.case]
    lines = [json.dumps(to_stored(each), ensure_ascii=False, allow_nan=False) for each in (*remaining, explained)]
    atomic.write_text(folder / kind.file, "".join(f"{line}\n" for line in lines))


def to_stored(explained: ExplainedCase[Figures]) -> dict[str, Any]:
    """A case as its line holds it: the figures beside the rest, keys by what they are of."""
    fields = asdict(explained)
    figures = fields.pop("figures")
    for cause in (*fields["causes"], *figures.get("overlapping", ())):
        del cause[explained.figures.not_of_cause]
    stored: dict[str, Any] = _rename({**fields, **figures}, explained.figures.keys)
    return stored


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    """A value of JSON with other keys, wherever they stand."""
    if isinstance(value, dict):
        return {names.get(key, key): _rename(each, names) for key, each in value.items()}
    return [_rename(each, names) for each in value] if isinstance(value, list | tuple) else value
