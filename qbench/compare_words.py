"""Comparisons in words: of two runs for a program (their table for a reader is in ``report.text``), and what a paired
test found. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from qbench import decide
from qbench.compare import Delta
from qbench.decide import NonInferiority
from qbench.record import Flips

SCHEMA = 1
# Beyond it the change sits on the margin, and no number of examples that anybody has would decide.
MOST_EXAMPLES = 10_000_000


def as_json(base: str, contender: str, deltas: Sequence[Delta], *, incomparable: str | None) -> str:
    """Every delta with both records, numbers raw; ``incomparable`` is the field in which the machines differ."""
    data = {
        "schema": SCHEMA,
        "base": base,
        "contender": contender,
        "incomparable": incomparable,
        "deltas": [asdict(delta) for delta in deltas],
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def would_decide(test: NonInferiority, n: int) -> str | None:
    """``about 1,782 examples``: how many would decide a test on n examples; None where it is decided or nothing is
    known."""
    if test.examples is None:
        return None
    needed = max(test.examples, n + 1)
    return f"about {needed:,} examples" if needed <= MOST_EXAMPLES else f"more than {MOST_EXAMPLES:,} examples"


def p_value(p: float) -> str:
    """``p = 0.039``, ``p < 0.001``: two significant digits, at most three after the point."""
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.0995 else f"p = {p:.2f}"


def flips(found: Flips) -> str:
    """``13 / 2, mid-p = 0.007``: right to wrong, wrong to right, and the mid-p value of "no change"."""
    return f"{found.harmful} / {found.beneficial}, mid-{p_value(decide.mcnemar_midp(found.harmful, found.beneficial))}"
