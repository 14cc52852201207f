"""What ``qbench explain`` has said of a run's cases: ``explained.jsonl`` in its folder, one line for each case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from qbench.record.explained_file import read_file, write_file
from qbench.stats.interval_type import Interval

FILE = "explained.jsonl"
# What a reader takes: whatever else stands there was written by somebody else.
_MOST = 1e9
Seconds = Annotated[float, Field(ge=0, le=_MOST)]
Saved = Annotated[float, Field(ge=-_MOST, le=_MOST)]
Share = Annotated[float, Field(ge=-_MOST, le=_MOST)]
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


def _require_sane(gain: Interval) -> Interval:
    """The interval; raises ``ValueError`` where a ratio of times is beyond what was ever measured."""
    if any(value is not None and not 0 < value <= _MOST for value in (gain.value, gain.low, gain.high)):
        raise ValueError("a ratio of times lies between 0 and a billion")
    return gain


Gain = Annotated[Interval, AfterValidator(_require_sane)]


@dataclass(frozen=True, kw_only=True)
class ExplainedCause:
    """A confirmed cause: ``change`` took it away, after those before it, and saved ``seconds`` for one example;
    ``gain``: how many times as fast that made it; ``share`` of the gap (null: no gap is known)."""

    title: str
    change: str
    gain: Gain | None
    seconds: Saved
    share: Share | None


@dataclass(frozen=True, kw_only=True)
class ExplainedCase:
    """Why a case is not faster, seconds for one example. ``best_seconds``: what it could take, ``best`` by what that is
    known; ``unexplained``: the share of the gap that no cause closes; ``suite``: the keys that take all causes away,
    and ``environment`` what to set for the process; ``accuracy``: what that changes, in words. ``over_fp32``: how many
    times as long as fp32 it takes; ``off_core``: the share of the time in which other processes had the core;
    ``overlapping``: causes that gain alone, but nothing beyond ``causes``, each with what it saves alone."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, extra="ignore")

    case: str
    seconds: Seconds
    fp32_seconds: Seconds | None
    best_seconds: Seconds
    best: str
    causes: tuple[ExplainedCause, ...] = ()
    unexplained: Share | None = None
    suite: str | None = None
    environment: tuple[Setting, ...] = ()
    accuracy: str | None = None
    over_fp32: Gain | None = None
    off_core: Annotated[float, Field(ge=0, le=1)] | None = None
    overlapping: tuple[ExplainedCause, ...] = ()


_CASE: TypeAdapter[ExplainedCase] = TypeAdapter(ExplainedCase)


def read_explained(folder: Path) -> tuple[ExplainedCase, ...]:
    """What is known of the cases of a run; none where nothing was explained. Raises ``Damaged`` where the file holds
    something else."""
    return read_file(folder, FILE, _CASE)


def keep_explained(folder: Path, explained: ExplainedCase) -> None:
    """Adds a case to those of the run, in place of what was known of it."""
    write_file(folder / FILE, read_explained(folder), explained)
