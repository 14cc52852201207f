"""How each case of a run enters the race: before anything is measured it is known what cannot be shipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qbench.decide import qualify
from qbench.errors import QbenchError
from qbench.measure.race_rules import Arm, Role
from qbench.plan.planner import PlannedCase
from qbench.record.schema import Record
from qbench.record.stored_run import read_run
from qbench.suite import Suite


def enter_race(planned: Sequence[PlannedCase], records: Sequence[Record], suite: Suite, folder: Path) -> list[Arm]:
    """An arm for each case. ``records``: what is known of them, built and evaluated; ``folder``: the run's, with their
    predictions. An int8 case that FAILs a limit already is screened and no more."""
    failed = _list_failed(records, suite, folder)
    return [
        Arm(
            case=each.case.id,
            role=_find_role(each, failed),
            baseline=None if each.reference is None else each.reference.id,
        )
        for each in sorted(planned, key=lambda each: each.reference is not None)
    ]


def _find_role(planned: PlannedCase, failed: set[str]) -> Role:
    if planned.reference is None:
        return "fp32"
    # An fp32 with a reference is the twin of a QAT case: for its accuracy, not to be shipped.
    is_twin = planned.case.variant.mode == "fp32"
    return "screened_only" if is_twin or planned.case.id in failed else "candidate"


def _list_failed(records: Sequence[Record], suite: Suite, folder: Path) -> set[str]:
    """The int8 cases that cannot be shipped, whatever their latency; none where what is stored cannot be read, which
    the report will say."""
    try:
        run = replace(read_run(folder), records=tuple(records))
        gate = suite.gate.settle_metric(None if run.info.metric is None else run.info.metric.name)
        checks = qualify.qualify(records, metric=run.info.metric, gate=gate, decide=suite.decide, pairs=run.pairs)
    except QbenchError:
        return set()
    return {case for case, of_case in checks.items() if not qualify.may_be_shipped(of_case)}
