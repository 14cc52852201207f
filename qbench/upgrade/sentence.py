"""What an upgrade comes to, in one sentence: ``Upgrade: static int8 on ONNX Runtime is 4 % faster, answers the same on
all 450 examples``; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.decide.names import name_variant
from qbench.gating.text import worst_first
from qbench.gating.verdict import Verdict
from qbench.record.schema import read_case_id
from qbench.stats.interval_type import Interval
from qbench.upgrade.case_change import CaseChange
from qbench.upgrade.upgrade import ANEW, KEPT, Upgraded

_TELLING = 0.05  # limits that reach further say little
_WAYS = {KEPT: "the files as they are", ANEW: "files built anew"}


def write_sentence(upgraded: Upgraded) -> str:
    """The whole sentence, without a full stop."""
    best = upgraded.way
    other = ANEW if best == KEPT else KEPT
    code, other_code = (upgraded.gates[way].exit_code for way in (best, other))
    if code == 0:
        good = _say_good([change for change in upgraded.changes if change.way == best])
        if other_code == 0:
            return f"Upgrade: {good}"
        how = "keep the files as they are" if best == KEPT else "build the files anew"
        return f"Upgrade, and {how}: {good}; with {_WAYS[other]}, {_say_problem(upgraded, other)}"
    verb = "Undecided" if code == 4 else "Do not"
    return f"{verb}: {_say_problem(upgraded, best)}"


def _say_good(changes: Sequence[CaseChange]) -> str:
    """The times and the answers of cases without a problem."""
    answers = say_answers(changes)
    timed = [(change, change.time) for change in changes if change.time is not None]
    if not timed:
        return f"{_count(changes)} {_verb(changes, 'was', 'were')} not timed again; {answers}"
    if len(timed) == 1:
        change, time = timed[0]
        return f"{change.name} is {say_time(time)}, {answers}"
    ordered = sorted(timed, key=lambda pair: pair[1].value)
    (fast, least), (slow, most) = ordered[0], ordered[-1]
    return (
        f"{_count(changes)}, from {say_time(least)} ({fast.name}, {fast.model}) to {say_time(most)} ({slow.name}, "
        f"{slow.model}); {answers}"
    )


def _count(changes: Sequence[CaseChange]) -> str:
    return f"{len(changes)} int8 case{_verb(changes, '', 's')}"


def _verb(changes: Sequence[CaseChange], singular: str, plural: str) -> str:
    return singular if len(changes) == 1 else plural


def say_time(ratio: Interval) -> str:
    """``4 % faster``, ``1.3 times as long``, ``as fast as before``: the last where the limits hold no change, with how
    far they reach where that is more than a gate usually lets pass."""
    if ratio.low is None or ratio.high is None:
        return "as fast as before"
    if ratio.low <= 1 <= ratio.high:
        reach = max(1 / ratio.low, ratio.high) - 1
        return "as fast as before" if reach <= _TELLING else f"as fast as before within {_say_share(reach)}"
    if ratio.value < 1:
        return f"{_say_share(1 / ratio.value - 1)} faster"
    return f"{_say_share(ratio.value - 1)} slower" if ratio.value < 1.2 else f"{ratio.value:.2g} times as slow"


def _say_share(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.095 else f"{100 * share:.0f} %"


def say_answers(changes: Sequence[CaseChange]) -> str:
    """``gives the same bits on all 450 examples``, or how many answers changed; of all cases together."""
    s = "s" if len(changes) == 1 else ""
    compared = [change for change in changes if change.outputs is not None]
    if not compared:
        return "answers were not compared"
    most = max(change.outputs.n for change in compared if change.outputs is not None)
    if all(change.outputs is not None and change.outputs.same_bits for change in compared):
        return f"answer{s} the same on all {most:,} examples, bit for bit"
    flips = [change.flips for change in compared if change.flips is not None]
    harmful, beneficial = sum(each.harmful for each in flips), sum(each.beneficial for each in flips)
    if len(flips) == len(compared) and not harmful + beneficial:
        return f"answer{s} the same on all {most:,} examples{_say_layer(compared)}"
    if len(flips) == len(compared):
        total = sum(change.outputs.n for change in compared if change.outputs is not None)
        return (
            f"answer{s} otherwise on {harmful + beneficial:,} of {total:,} ({harmful:,} worse, {beneficial:,} better)"
        )
    return f"give{s} other bits{_say_layer(compared)}"


def _say_layer(changes: Sequence[CaseChange]) -> str:
    layer = next((change.first_layer for change in changes if change.first_layer is not None), None)
    return "" if layer is None else f" (in other bits, from {layer} on)"


def _say_problem(upgraded: Upgraded, way: str) -> str:
    """The worst verdict of a way's gate, with what the case's layers tell of it."""
    verdict = worst_first(upgraded.gates[way].verdicts)[0]
    change = next((each for each in upgraded.changes if each.way == way and each.case == verdict.case), None)
    if change is None:
        return _say_other_case(verdict)
    if change.reason is not None:
        return f"{change.name} ({change.model}) does not run: {formatting.one_line(change.reason)}"
    said = _say_rule(change, verdict)
    if change.now_float:
        layers = ", ".join(change.now_float[:3]) + (
            f" and {len(change.now_float) - 3} more layers" if len(change.now_float) > 3 else ""
        )
        several = "run" if len(change.now_float) > 1 else "runs"
        return f"{layers} of {change.name} ({change.model}) now {several} in float, {said}"
    return f"{change.name} ({change.model}): {said}"


def _say_other_case(verdict: Verdict) -> str:
    """A verdict on a case that is no int8 one of both sides: the fp32 that they are compared with, or one that is not
    there."""
    key, why = read_case_id(verdict.case), formatting.one_line(verdict.reason or verdict.text)
    if key is None or verdict.kind != "case" or verdict.outcome != "FAIL":
        return f"{verdict.case}: {why}"
    return f"{name_variant(key.mode, key.recipe, key.backend)} ({key.model}) does not run: {why}"


def _say_rule(change: CaseChange, verdict: Verdict) -> str:
    if verdict.kind == "time" and change.time is not None:
        time = f"{formatting.with_limits(change.time)} times as long"
        return time if verdict.outcome == "FAIL" else f"{time}, {verdict.reason}"
    return "  ".join(filter(None, (verdict.rule, verdict.text, verdict.reason)))
