"""What a verdict can come to, what that does, and the exit code of the gate: one table each, the worst first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

Outcome = Literal["PASS", "IMPROVED", "INCONCLUSIVE", "MISSING", "INVALID", "FAIL"]
# What a verdict does to the exit code of the gate.
Effect = Literal["pass", "note", "skip", "hold", "invalid", "fail"]

# A failure is certain, an invalid verdict says that nothing is known. Each does what stands beside it, but for an
# INCONCLUSIVE or MISSING that the suite treats otherwise (``Verdict.settled``).
OUTCOMES: dict[Outcome, tuple[Effect, str]] = {
    "FAIL": ("fail", "a rule is broken"),
    "INVALID": ("invalid", "the run cannot be compared with the baseline"),
    "MISSING": ("invalid", "something that was asked for is not there"),
    "INCONCLUSIVE": ("hold", "the samples cannot tell"),
    "IMPROVED": ("pass", "every rule holds, and something is better than in the baseline"),
    "PASS": ("pass", "every rule holds"),
}
EXIT_CODES: dict[Effect, int] = {"fail": 1, "invalid": 3, "hold": 4, "skip": 0, "note": 0, "pass": 0}

_RANKS = {outcome: rank for rank, outcome in enumerate(OUTCOMES)}
_EFFECT_RANKS = {effect: rank for rank, effect in enumerate(EXIT_CODES)}


def find_exit_code(effects: Collection[Effect]) -> int:
    """The exit code of the worst effect; where nothing was judged that of invalid."""
    worst: Effect = min(effects, key=_EFFECT_RANKS.__getitem__, default="invalid")
    return EXIT_CODES[worst]


def find_outcome(settled: Iterable[tuple[Effect, Outcome]]) -> Outcome:
    """What a gate comes to, by the effect and the outcome of each of its verdicts: the worst outcome of those that
    decide its exit code; with exit code 0 IMPROVED where something is, else PASS."""
    by_effect: dict[Effect, set[Outcome]] = {}
    for effect, outcome in settled:
        by_effect.setdefault(effect, set()).add(outcome)
    if not by_effect:
        return "MISSING"
    if "fail" in by_effect:
        return "FAIL"
    if "invalid" in by_effect:
        return min(by_effect["invalid"], key=_RANKS.__getitem__)
    if "hold" in by_effect:
        return "INCONCLUSIVE"
    return "IMPROVED" if any("IMPROVED" in outcomes for outcomes in by_effect.values()) else "PASS"


def rank(effect: Effect, outcome: Outcome) -> tuple[int, int]:
    """A sort key: first what weighs most on the exit code, then the worst outcome."""
    return _EFFECT_RANKS[effect], _RANKS[outcome]
