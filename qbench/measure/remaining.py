"""What is being measured and what is left, for whoever watches; pure."""

from __future__ import annotations

from collections.abc import Sequence

# Drawing costs the coordinator time that the workers would notice.
SAY_SECONDS = 1.0


def starting(case: str, number: int, processes: int, count: int) -> tuple[str, float]:
    """The text and the share done (0 to 1) where ``count`` processes of generation ``number`` start."""
    return f"{_where(case, number, processes)}: {count} processes start", number / processes


def measuring(case: str, number: int, processes: int, spent: Sequence[float], most: float) -> tuple[str, float]:
    """The same while cases are called: ``spent`` seconds of each open case in this generation, the first of them
    ``case``'s, of at most ``most``."""
    later = processes - number - 1
    left = sum(max(0.0, most - seconds) + later * most for seconds in spent)
    cases = "1 case" if len(spent) == 1 else f"{len(spent)} cases"
    share = (number + min(1.0, spent[0] / most)) / processes
    return f"{_where(case, number, processes)}: {cases} open here, at most {left:.0f} s left", share


def _where(case: str, number: int, processes: int) -> str:
    return f"{case}, process {number + 1} of {processes}"
