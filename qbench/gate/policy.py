"""Which rules hold for a case: the suite's gate with its overrides put in, and where each is written; pure.

An override holds for the cases that agree with every key of a case that it names (model, mode, backend, threads,
batch_size, recipe). Where several give one rule for a case, the one that names more of the case counts; of two that
name as much, the later one.
"""

from __future__ import annotations

from collections.abc import Callable

from qbench.errors import UsageError
from qbench.record.schema import CaseKey
from qbench.suite import GateSpec
from qbench.suite.gate import GateOverride

Place = Callable[[str], str]
EXAMPLE = """gate:
  latency: {max_regression: 5%}   # against the baseline, both run again
  accuracy: {margin: 1.0}         # percentage points, against fp32 and against the baseline's int8
  size: {max_growth: 1%}"""


def require_rules(gate: GateSpec, place: str, *, written: bool) -> None:
    """Raises ``UsageError`` with what to write where a suite has no gate, or one without a rule."""
    if not gate.has_rules:
        what = "the gate has no rule" if written else "the suite has no gate section"
        raise UsageError(f"{place}: {what}, so there is nothing to judge by; write, for example:\n{EXAMPLE}")


def resolve(gate: GateSpec, case: CaseKey, place: Place) -> tuple[GateSpec, Place]:
    """The rules for a case, and the file:line of each of their keys (``gate.latency.max_regression``)."""
    written: dict[str, str] = {}
    for number, override in sorted(enumerate(gate.overrides), key=lambda item: len(item[1].selects)):
        if not _is_for(override, case):
            continue
        for section, key, value in override.given():
            inner = getattr(gate, section)
            gate = gate.model_copy(update={section: inner.model_copy(update={key: value})})
            written[f"gate.{section}.{key}"] = f"gate.overrides[{number}].{section}.{key}"
        if override.inconclusive is not None:
            gate = gate.model_copy(update={"inconclusive": override.inconclusive})
    return gate, lambda key: place(written.get(key, key))


def _is_for(override: GateOverride, case: CaseKey) -> bool:
    return all(getattr(case, key) == value for key, value in override.selects.items())
