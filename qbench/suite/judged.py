"""The suite with its metric settled: what a run loads, once it knows where the suite lies and what the data holds."""

from __future__ import annotations

from qbench.suite.accuracy import DEFAULTS
from qbench.suite.file import Suite


def judged(suite: Suite, *, labelled: bool = True) -> tuple[Suite, str | None]:
    """The suite with a metric that ``registry.load`` takes, and what to tell where the data decided on it.

    ``labelled``: whether the evaluation examples have labels. Without, and where the suite names no metric, the
    agreement with fp32 judges.
    """
    accuracy = suite.gate.accuracy
    settled = accuracy.settled(base=suite.base, labelled=labelled)
    gate = suite.gate.model_copy(update={"accuracy": settled})
    note = None
    if not labelled and not accuracy.is_named:
        note = (
            f"the data has no labels: variants are judged by {DEFAULTS[1]}, the share of examples for which int8 "
            "chooses the class that fp32 chooses; `gate: {accuracy: {metric: ...}}` names another"
        )
    return suite.model_copy(update={"gate": gate}), note
