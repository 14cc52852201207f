"""What ``qbench explain`` has said of a run's cases: ``explained.jsonl`` in its folder, one line for each case."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from qbench.files import atomic, strict_json
from qbench.record.run_files import Damaged, find
from qbench.record.schema import NotNegative
from qbench.stats.interval_type import Interval

FILE = "explained.jsonl"
MOST_BYTES = 10_000_000  # a few thousand cases; more is none of qbench's


@dataclass(frozen=True, kw_only=True)
class ExplainedCause:
    """A confirmed cause: ``change`` took it away, after those before it, and saved ``seconds`` for one example;
    ``gain``: how many times as fast the case is without it alone; ``share`` of the gap (null: no gap is known)."""

    title: str
    change: str
    gain: Interval | None
    seconds: float
    share: float | None


@dataclass(frozen=True, kw_only=True)
class ExplainedCase:
    """Why a case is not faster, seconds for one example. ``best_seconds``: what it could take, ``best`` by what that is
    known; ``unexplained``: the share of the gap that no cause closes; ``suite``: the keys that take all causes away,
    and ``environment`` what to set for the process; ``accuracy``: what that changes, in words."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, extra="ignore")

    case: str
    seconds: NotNegative
    fp32_seconds: NotNegative | None
    best_seconds: NotNegative
    best: str
    causes: tuple[ExplainedCause, ...] = ()
    unexplained: float | None = None
    suite: str | None = None
    environment: tuple[str, ...] = ()
    accuracy: str | None = None


_CASE: TypeAdapter[ExplainedCase] = TypeAdapter(ExplainedCase)


def read_explained(folder: Path) -> tuple[ExplainedCase, ...]:
    """What is known of the cases of a run; none where nothing was explained. Raises ``Damaged`` where the file holds
    something else."""
    file = find(folder, FILE)
    if file is None:
        return ()
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ValueError("it is larger than any that qbench writes")
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        return tuple(_CASE.validate_python(strict_json.parse(line)) for line in lines)
    except (OSError, ValueError, ValidationError) as error:
        raise Damaged(file, "cannot be read as explanations", "delete it to go on without") from error


def keep_explained(folder: Path, explained: ExplainedCase) -> None:
    """Adds a case to those of the run, in place of what was known of it."""
    others = [known for known in read_explained(folder) if known.case != explained.case]
    lines = [json.dumps(asdict(known), ensure_ascii=False, allow_nan=False) for known in (*others, explained)]
    atomic.write_text(folder / FILE, "".join(f"{line}\n" for line in lines))
