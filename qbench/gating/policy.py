"""Which rules hold for a case: the suite's gate with its overrides put in, and where each is written; pure."""

from __future__ import annotations

from collections.abc import Callable

from qbench.errors import UsageError
from qbench.record.schema import CaseKey
from qbench.suite import GateSpec
from qbench.suite.accuracy import LEAST_OF_ANY, OF_ANY_OUTPUTS
from qbench.suite.gate import resolve_overrides

Place = Callable[[str], str]
EXAMPLE = """gate:
  latency: {max_regression: 5%}   # against the baseline, both run again
  accuracy: {margin: 1.0}         # percentage points, against fp32 and against the baseline's int8
  size: {max_growth: 1%}"""
_MARGIN = next(line for line in EXAMPLE.splitlines() if "accuracy:" in line)
_LEAST = f"  accuracy: {{metric: {OF_ANY_OUTPUTS}, at_least: {LEAST_OF_ANY:g}}}   # dB, against fp32's outputs"


def require_rules(gate: GateSpec, place: str, *, written: bool, metric: str | None = None) -> None:
    """Raises ``UsageError`` with what to write where a suite has no gate, or one without a rule; ``metric`` is what
    the run was judged by, None: not known."""
    if not gate.has_rules:
        what = "the gate has no rule" if written else "the suite has no gate section"
        example = EXAMPLE.replace(_MARGIN, _LEAST) if metric == OF_ANY_OUTPUTS else EXAMPLE
        raise UsageError(f"{place}: {what}, so there is nothing to judge by; write, for example:\n{example}")


def resolve(gate: GateSpec, case: CaseKey, place: Place) -> tuple[GateSpec, Place]:
    """The rules for a case, and the file:line of each of their keys (``gate.latency.max_regression``)."""
    resolved, keys = resolve_overrides(gate, case)
    return resolved, lambda key: place(keys.get(key, key))
