"""What a picture needs of the frames that it is given; an error that names what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from qbench.errors import UsageError, first_names
from qbench.report.plots.cases import FrameCase, read_cases

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("id", "model", "mode", "backend", "threads", "batch_size", "setting", "variant")
CASES = (*(f"case.{key}" for key in _KEYS), "status")
CALLS = ("case.id", "process", "seconds")
LAYERS = ("case.id", "layer", "sqnr_db", "clipped", "is_float", "n")


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
