"""How many settings of a run have which answer, and how many int8 variants beat plain fp32; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from qbench.decide import cases
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.decide.names import backend_name, name_formats_of
from qbench.record.stored_run import StoredRun
from qbench.report.ruling import Rulings

_DONE = {
    "ship": "ship int8",
    "either": "ship either of two",
    "incomplete": "incomplete",
    "undecided": "undecided",
    "keep fp32": "keep fp32",
    "none qualifies": "no int8 qualifies",
    "no answer": "no answer",
}


def count_answers(decisions: Sequence[Decision]) -> str:
    """How many settings have which answer."""
    counts = Counter(decision.status for decision in decisions)
    answers = ", ".join(f"{_DONE[verdict]} in {count}" for verdict, count in counts.items())
    return f"Of {len(decisions):,} settings: {answers}."


def describe_state(run: StoredRun) -> str:
    """How much of a run is still missing; empty of a whole one."""
    planned = run.info.plan.cases
    missing = sum(case not in run.by_id for case in planned)
    if run.info.finished and not missing:
        return ""
    return f"This run is not complete: {missing:,} of {len(planned):,} planned cases have no record yet."


def overview(judged: Judged, decisions: Sequence[Decision], rulings: Rulings) -> str:
    """``15 of 20 int8 variants are slower than plain fp32 on ONNX Runtime, 4 are faster, 1 is too close to call.``;
    empty where no int8 case was held against an fp32."""
    ruled = [rulings[record.case.id] for record in judged.records if cases.is_contender(record)]
    ruled = [ruling for ruling in ruled if ruling.over_fp32 is not None]
    if not ruled:
        return ""
    slower, faster = sum(ruling.slower for ruling in ruled), sum(ruling.faster for ruling in ruled)
    counted = [(slower, "slower"), (faster, "faster"), (len(ruled) - slower - faster, "too close to call")]
    said = sorted(((count, word) for count, word in counted if count), reverse=True, key=lambda pair: pair[0])
    (first, word), rest = said[0], said[1:]
    every = {1: "The", 2: "Both"}.get(len(ruled), f"All {len(ruled)}")
    whole = every if first == len(ruled) else f"{first} of {len(ruled)}"
    kind = _name_cases(judged, len(ruled))
    than = _name_fp32(judged, decisions)
    beginning = f"{whole} {kind} {_be(first)} {word} {'against' if word.startswith('too') else 'than'} {than}"
    return "".join((beginning, *(f", {count} {_be(count)} {word}" for count, word in rest), "."))


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _name_cases(judged: Judged, count: int) -> str:
    """Variants, or cases where a variant is measured with several threads or batch sizes."""
    settings = cases.settings(judged.records)
    several = max(Counter(setting.model for setting in settings).values()) > 1
    formats = name_formats_of(record for record in judged.records if cases.is_contender(record))
    return f"{formats} {'case' if several else 'variant'}{'' if count == 1 else 's'}"


def _name_fp32(judged: Judged, decisions: Sequence[Decision]) -> str:
    """Plain fp32 on its one runtime, or the fastest fp32 where that differs from setting to setting."""
    fastest = [cases.fastest_fp32(cases.of_setting(decision.setting, judged.records)) for decision in decisions]
    backends = {record.case.backend for record in fastest if record is not None}
    return f"plain fp32 on {backend_name(backends.pop())}" if len(backends) == 1 else "the fastest plain fp32"
