"""What would change the choice: another margin, a limit taken away, a runtime that is not there, time alone; pure.

Each is found by applying the same rule again to the changed question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from qbench import formatting
from qbench.decide.cases import variant
from qbench.decide.choose import Choice, choose
from qbench.decide.judged import Judged
from qbench.decide.limit_text import score_unit
from qbench.decide.limits import AccuracyFloor, AccuracyLimit, AccuracyMargin, CaseRules, LimitCheck, hold_promise
from qbench.decide.names import backend_name, name_formats_of
from qbench.decide.qualify import Checks
from qbench.decide.tie import Contest
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo

BOUNDS = (AccuracyMargin.key, AccuracyFloor.key)
PROMISE = "gate.latency.min_speedup"
LEAST_SHARE = 0.5  # of what fp32 scores: below it a network is broken
REMOVABLE = ("size", "speed-up", "latency", "memory")  # limits that a suite can be without


def list_changes(
    choice: Choice, records: Sequence[Record], judged: Judged, contest: Contest, runner_up: Record | None = None
) -> tuple[str, ...]:
    """``at a margin of 3.1 points: static · x86``, ``without onnxruntime: static · onednn``; only what changes it, and
    not that the ``runner_up``, which is told by itself, would be next."""
    checks = judged.checks
    return tuple(
        text
        for text in (
            _try_margins(choice, records, judged, contest, wider=True),
            _try_margins(choice, records, judged, contest, wider=False),
            _try_promise(choice, records, judged, contest),
            *_try_limits(choice, records, checks, contest),
            _try_without_runtime(choice, records, checks, contest, runner_up),
            _try_time_alone(choice, records, checks, contest),
        )
        if text is not None
    )


def _name(choice: Choice) -> str:
    """What another choice says, in two words."""
    if choice.pick is not None and choice.verdict == "ship":
        return variant(choice.pick)
    if choice.pick is not None and choice.verdict == "undecided":
        return f"undecided on {variant(choice.pick)}"
    return (
        f"no {name_formats_of(choice.measured)} variant"
        if choice.fp32 is None
        else f"fp32 on {choice.fp32.case.backend}"
    )


def _same(choice: Choice, other: Choice) -> bool:
    if choice.verdict in ("ship", "undecided") or other.verdict in ("ship", "undecided"):
        return choice.verdict == other.verdict and choice.pick is other.pick
    return True


def _try_margins(
    choice: Choice, records: Sequence[Record], judged: Judged, contest: Contest, *, wider: bool
) -> str | None:
    """The nearest margin on one side at which the rule says something else; what an override gives stays."""
    metric, bound = judged.metric, judged.bound
    if metric is None or bound is None:
        return None
    margin = bound.loss
    step = 0.1 if metric.percent else 10.0 ** (math.floor(math.log10(margin)) - 1) if margin > 0 else 0.1
    needed = set()
    for record in records:
        test = None if _is_broken(record, metric) else judged.test_of(record)
        if test is not None and test.delta.low is not None and any(map(_is_margin, judged.checks_of(record))):
            # A margin passes where the lower limit lies above it: the first whole step beyond, and the last one short.
            steps = math.floor(-test.delta.low * metric.scale / step + 1e-9)
            needed |= {round((steps + 1) * step, 9)} if wider else {round(steps * step, 9)}
    inside = sorted(value for value in needed if value > margin) if wider else sorted(
        (value for value in needed if 0 <= value < margin), reverse=True
    )  # fmt: skip
    for value in inside:
        changed = _change_bound(bound, value)
        changed_choice = choose(records, _at_margin(judged, value / metric.scale), replace(contest, bound=changed))
        if not _same(choice, changed_choice):
            return f"{_describe_bound(changed, metric)}: {_name(changed_choice)}"
    return None


def _is_broken(record: Record, metric: MetricInfo) -> bool:
    """Whether less than half of fp32's score is left: no margin that anybody wants allows that."""
    accuracy = record.accuracy
    if accuracy is None or accuracy.delta is None or not (metric.percent and metric.higher_is_better):
        return False
    return accuracy.value < (accuracy.value - accuracy.delta.value) * LEAST_SHARE


def _change_bound(bound: AccuracyLimit, loss: float) -> AccuracyLimit:
    """What would allow such a loss, in shown units."""
    if isinstance(bound, AccuracyFloor):
        return replace(bound, value=round(bound.perfect - loss, 9))
    return replace(bound, loss=loss)


def _describe_bound(bound: AccuracyLimit, metric: MetricInfo) -> str:
    """``at a margin of 3.1 points``, ``if sqnr must be at least 49 dB``."""
    if isinstance(bound, AccuracyFloor):
        return f"if {metric.name} must be at least {bound.value:g}{score_unit(metric)}"
    return f"at a margin of {bound.loss:g} {metric.unit}".rstrip()


def _at_margin(judged: Judged, margin: float) -> Checks:
    """The checks with accuracy held against another margin (in the metric's own scale)."""

    def redo(check: LimitCheck) -> LimitCheck:
        if not _is_margin(check) or check.test is None:
            return check
        return replace(check, threshold=-margin).hold_interval(check.test.delta, check.test.level)

    return {case: tuple(redo(check) for check in checks) for case, checks in judged.checks.items()}


def _is_margin(check: LimitCheck) -> bool:
    return check.key in BOUNDS


def _try_promise(choice: Choice, records: Sequence[Record], judged: Judged, contest: Contest) -> str | None:
    """Where the suite promises a speed-up: the first one (over the like-for-like fp32, as the gate holds it) that the
    pick does not hold for certain, where another variant does."""
    pick, checks = choice.pick, judged.checks
    if judged.rules is None or judged.rules.gate.latency.min_speedup is None:
        return None
    if choice.verdict != "ship" or pick is None or pick.speedup is None or pick.speedup.low is None:
        return None
    promise = (math.floor(pick.speedup.low * 10 + 1e-9) + 1) / 10
    rules = CaseRules()
    held = {
        record.case.id: (*checks.get(record.case.id, ()), hold_promise(record, rules, promise)) for record in records
    }
    changed_choice = choose(records, held, contest)
    if changed_choice.verdict != "ship" or changed_choice.pick is pick:
        return None
    return f"at a promised speed-up of {promise:g} over its own fp32 ({PROMISE}): {_name(changed_choice)}"


def _try_limits(choice: Choice, records: Sequence[Record], checks: Checks, contest: Contest) -> Iterator[str | None]:
    """Each limit of the suite that rules a case out, taken away; one that an override gives by itself."""
    held = [check for record in records for check in checks.get(record.case.id, ())]
    ruling_out = (check for check in held if check.limit in REMOVABLE and check.outcome != "PASS")
    for key in sorted({check.key for check in ruling_out if check.key is not None}):
        without = {case: tuple(check for check in of_case if check.key != key) for case, of_case in checks.items()}
        ceilings = {key.removeprefix("decide."): None} if key.startswith("decide.") else {}
        changed_choice = choose(records, without, replace(contest, spec=contest.spec.model_copy(update=ceilings)))
        yield None if _same(choice, changed_choice) else f"without {key}: {_name(changed_choice)}"


def _try_without_runtime(
    choice: Choice, records: Sequence[Record], checks: Checks, contest: Contest, runner_up: Record | None
) -> str | None:
    if choice.pick is None or choice.verdict not in ("ship", "undecided"):
        return None
    backend = choice.pick.case.backend
    left = [record for record in records if record.case.backend != backend]
    if all(record.status != "ok" for record in left):
        return None
    changed_choice = choose(left, checks, contest)
    told = choice.verdict == changed_choice.verdict == "ship" and changed_choice.pick is runner_up
    return None if told else f"without {backend_name(backend)}: {_name(changed_choice)}"


def _try_time_alone(choice: Choice, records: Sequence[Record], checks: Checks, contest: Contest) -> str | None:
    """What the preferences decided against: the best by its estimate alone."""
    if choice.ranking is None or choice.ranking.order[0] is choice.pick:
        return None
    first = choice.ranking.order[0]
    share = formatting.share(contest.spec.tie, 0)
    return f"by {contest.objective.name} alone, without a tie of {share}: {variant(first)}"
