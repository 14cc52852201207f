"""fp32 that gives every example the same class: int8 agrees with it whatever int8 does; pure."""

from __future__ import annotations

from collections.abc import Iterable

from qbench.record.schema import Record


def warnings(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each model whose fp32 has a single answer."""
    sentences: dict[str, str] = {}
    for record in records:
        scores = record.accuracy
        if record.case.mode != "fp32" or scores is None or scores.only_answer is None:
            continue
        sentences.setdefault(record.case.model, _words(record.case.model, scores.only_answer, scores.n))
    return tuple(sentences.values())


def _words(model: str, answer: int, n: int) -> str:
    return (
        f"{model}: fp32 answers class {answer} on all {n:,} examples, so agreement with it, flips and a PASS prove "
        "nothing: almost any int8 would agree; are the right weights loaded, and do the inputs reach it as those that "
        "it was trained on (scale, mean and std, order of the channels)?"
    )
