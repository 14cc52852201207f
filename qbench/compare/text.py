"""Comparisons in words: of two runs for a program (their table for a reader is in ``report.comparison``), and what a
paired test found. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from qbench.compare.compare import Delta
from qbench.record.schema import Flips
from qbench.stats import examples_needed, mcnemar
from qbench.stats.noninferiority import NonInferiority

SCHEMA = 1


def as_json(
    base: str, contender: str, deltas: Sequence[Delta], *, incomparable: str | None, same_run: bool = False
) -> str:
    """Every delta with both records, numbers raw; ``incomparable`` is the field in which the machines differ,
    ``same_run`` that both sides are one run."""
    data = {
        "schema": SCHEMA,
        "base": base,
        "contender": contender,
        "incomparable": incomparable,
        "same_run": same_run,
        "deltas": [asdict(delta) for delta in deltas],
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def unpaired(deltas: Iterable[Delta], baseline_keeps: bool | None = None) -> str | None:
    """That the accuracy of some cases is compared as of different examples, and why; None where none is.

    ``baseline_keeps``: whether the base is a baseline that keeps examples; None: it is a run.
    """
    cases = [delta.case for delta in deltas if delta.accuracy is not None and delta.paired is None]
    if not cases:
        return None
    why = {
        None: "not both runs keep predictions of them, or they share no example",
        True: "this run and the baseline share no example of them",
        False: "this baseline keeps no examples: write it again with `qbench baseline RUN`",
    }
    which = cases[0] if len(cases) == 1 else f"{len(cases):,} cases"
    return (
        f"accuracy of {which}: two scores, their examples not paired, so the intervals are wide ({why[baseline_keeps]})"
    )


def would_decide(test: NonInferiority, n: int) -> str | None:
    """``about 1,782 examples``, ``many more examples``: how many would decide a test on n examples; None where it is
    decided or nothing is known."""
    return None if test.examples is None else count_examples(test.examples, n)


def count_examples(needed: int | None, n: int) -> str:
    """``about 1,800 examples``: a number that would decide where there are ``n``, two digits of it, up: it is known no
    better."""
    if needed is None or examples_needed.are_many(needed, n):
        return "many more examples"
    step = 10 ** max(0, len(str(needed)) - 2)
    return f"about {-(-needed // step) * step:,} examples"


def p_value(p: float) -> str:
    """``p = 0.039``, ``p < 0.001``: two significant digits, at most three after the point."""
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.0995 else f"p = {p:.2f}"


def flips(counts: Flips) -> str:
    """``13 / 2, mid-p = 0.007``: right to wrong, wrong to right, and the mid-p value of "no change"."""
    return f"{counts.harmful} / {counts.beneficial}, mid-{p_value(mcnemar.midp(counts.harmful, counts.beneficial))}"
