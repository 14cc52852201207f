"""The answer of a report: per model, threads and batch size, which int8 variant to ship; pure.

A variant qualifies if int8 really runs in it (coverage above 0; of a dynamic one at least its ``min_coverage``) and
its accuracy is not inferior to its like-for-like fp32's within the suite's margin, by the same test as the gate's. Of
those that qualify the fastest is shipped. Where samples cannot tell, the answer says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from qbench import formatting
from qbench.compare import calibration_seeds, compare, int8_share, text
from qbench.compare.calibration_seeds import SeedSpread
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import noninferiority, thresholds
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Verdict = Literal["ship", "keep fp32", "undecided", "none qualifies", "no answer"]
# Absolute latency differs by 16 to 22 % from one process to the next, so a smaller lead of one p50 is no lead.
ABSOLUTE_SPREAD = 0.22


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is decided apart: a model with a number of threads and a batch size."""

    model: str
    threads: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to do in one setting: ``pick`` is the int8 variant meant, ``headline`` one sentence, ``notes`` what a
    decider should know besides."""

    setting: Setting
    verdict: Verdict
    headline: str
    pick: Record | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The records of a run with each int8 case's accuracy test (absent where there is none to make), and its
    spread over calibration seeds (where there are several)."""

    records: Sequence[Record]
    metric: MetricInfo | None
    margin: float | None
    tests: Mapping[str, noninferiority.NonInferiority] = field(default_factory=dict)
    seed_spreads: Mapping[str, SeedSpread] = field(default_factory=dict)

    def outcome(self, record: Record) -> thresholds.Outcome | None:
        """PASS, FAIL or INCONCLUSIVE of the case's accuracy; None where it was not tested."""
        test = self.tests.get(record.case.id)
        return None if test is None else test.outcome

    def warnings(self) -> tuple[str, ...]:
        """Verdicts that another draw of the calibration examples would change."""
        if self.metric is None:
            return ()
        cases = [(case, self.tests.get(case), spread) for case, spread in self.seed_spreads.items()]
        return calibration_seeds.find_warnings(cases, self.metric)


def variant(record: Record) -> str:
    """``static · onednn``."""
    return record.case.variant


def is_int8(record: Record) -> bool:
    """Whether the case is measured and of an int8 mode."""
    return record.status == "ok" and record.case.mode != "fp32"


def runs_in_int8(record: Record) -> bool:
    """Whether any multiply-accumulate of the artifact is seen to run in int8, and it is not fp32 in effect."""
    coverage = record.artifact.coverage if record.artifact else None
    if coverage is None or int8_share.is_fp32_in_effect(record):
        return False
    return coverage.layers_int8 > 0 if coverage.macs_int8 is None else coverage.macs_int8 > 0


def p50(record: Record) -> float | None:
    """The median call in seconds, the mean where there is no median."""
    if record.latency is None:
        return None
    return record.latency.p50_seconds or record.latency.mean_seconds


def settings(records: Sequence[Record]) -> tuple[Setting, ...]:
    """Every setting, in the order of the records."""
    keys = (record.case for record in records)
    return tuple(
        dict.fromkeys(Setting(model=key.model, threads=key.threads, batch_size=key.batch_size) for key in keys)
    )


def of_setting(setting: Setting, records: Sequence[Record]) -> list[Record]:
    """The records of one setting."""
    wanted = (setting.model, setting.threads, setting.batch_size)
    return [r for r in records if (r.case.model, r.case.threads, r.case.batch_size) == wanted]


def fastest_fp32(records: Sequence[Record]) -> Record | None:
    """The fp32 case with the smallest p50, whatever its backend."""
    return _fastest([record for record in records if record.status == "ok" and record.case.mode == "fp32"])


def _fastest(records: Sequence[Record]) -> Record | None:
    timed = [(seconds, record) for record in records if (seconds := p50(record)) is not None]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None


def answers(judged: Judged) -> tuple[Answer, ...]:
    """One answer for each setting."""
    return tuple(_answer(setting, judged) for setting in settings(judged.records))


def _answer(setting: Setting, judged: Judged) -> Answer:
    records = of_setting(setting, judged.records)
    candidates = [record for record in records if is_int8(record) and p50(record) is not None]
    if not candidates:
        return Answer(setting=setting, verdict="no answer", headline=_explain_nothing(records))
    real = [record for record in candidates if runs_in_int8(record)]
    good = [record for record in real if judged.outcome(record) == "PASS"]
    open_ = [record for record in real if judged.outcome(record) in ("INCONCLUSIVE", None)]
    pick = _fastest(good)
    if pick is not None:
        return _answer_ship(setting, pick, records, good, judged)
    if (hope := _fastest(open_)) is not None:
        if (kept := _keep_fp32(hope, records)) is not None:
            return Answer(
                setting=setting, verdict="keep fp32", headline=kept, pick=hope, notes=tuple(_note_noise(hope))
            )
        return Answer(
            setting=setting,
            verdict="undecided",
            headline=f"Undecided on {variant(hope)}, the fastest candidate.",
            pick=hope,
            notes=(f"It {_explain_open(hope, judged)}.", *_note_doubts(hope, judged)),
        )
    return Answer(setting=setting, verdict="none qualifies", headline=_explain_none(real, judged))


def _keep_fp32(hope: Record, records: Sequence[Record]) -> str | None:
    """The headline where accuracy need not be decided, since the case is slower than fp32; else None. Shown by the
    interval, and where there is none by a ratio further from 1 than processes differ."""
    fp32, speedup = fastest_fp32(records), hope.speedup_fastest or hope.speedup
    own, full = p50(hope), None if fp32 is None else p50(fp32)
    if fp32 is None or own is None or full is None or speedup is None:
        return None
    if (speedup.value * (1 + ABSOLUTE_SPREAD) if speedup.high is None else speedup.high) >= 1:
        return None
    return (
        f"Keep fp32 on {fp32.case.backend} ({formatting.duration(full)} a call) unless size decides: the fastest int8 "
        f"that may hold its accuracy, {variant(hope)}, takes {formatting.duration(own)}."
    )


def _explain_nothing(records: Sequence[Record]) -> str:
    counts = {status: sum(record.status == status for record in records) for status in ("failed", "skipped")}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"No answer: no int8 case was measured ({said})." if said else "No answer: no int8 case was measured."


def _explain_open(record: Record, judged: Judged) -> str:
    test = judged.tests.get(record.case.id)
    if judged.margin is None:
        return "cannot be judged, since the run's suite, which holds the margin, cannot be read"
    if test is None:
        return "has no accuracy to compare with its fp32's"
    needed = None if record.accuracy is None else text.would_decide(test, record.accuracy.n)
    if needed is None or record.accuracy is None:
        return "may or may not lose more accuracy than the margin"
    return f"may or may not lose more accuracy than the margin: {needed} would decide, there are {record.accuracy.n:,}"


def _explain_none(real: Sequence[Record], judged: Judged) -> str:
    if not real:
        return "None qualifies: no candidate runs in int8."
    lossy = f"all {len(real)} candidates lose" if len(real) > 1 else f"{variant(real[0])} loses"
    return f"None qualifies: {lossy} more accuracy than the margin of {_margin(judged)}."


def _margin(judged: Judged) -> str:
    if judged.metric is None or judged.margin is None:
        return formatting.DASH
    return f"{judged.margin:g} {judged.metric.unit}".strip()


def _answer_ship(
    setting: Setting, pick: Record, records: Sequence[Record], good: Sequence[Record], judged: Judged
) -> Answer:
    fp32 = fastest_fp32(records)
    notes = [*_note_rivals(pick, good), *_note_passed_over(pick, records, judged), *_note_doubts(pick, judged)]
    own, full = p50(pick), None if fp32 is None else p50(fp32)
    if own is not None and fp32 is not None and full is not None and own >= full:
        headline = (
            f"Keep fp32 on {fp32.case.backend} ({formatting.duration(full)} a call) unless size decides: the fastest "
            f"int8 that holds its accuracy, {variant(pick)}, takes {formatting.duration(own)}."
        )
        return Answer(setting=setting, verdict="keep fp32", headline=headline, pick=pick, notes=tuple(notes))
    if (doubt := _find_speed_doubt(pick)) is not None:
        return Answer(setting=setting, verdict="undecided", headline=doubt, pick=pick, notes=tuple(notes))
    return Answer(setting=setting, verdict="ship", headline=f"Ship {variant(pick)}.", pick=pick, notes=tuple(notes))


def _find_speed_doubt(pick: Record) -> str | None:
    """Why the pick cannot be shipped for its speed: the interval on its speed-up over the fastest fp32 holds 1."""
    fastest = pick.speedup_fastest
    if fastest is None or fastest.low is None or fastest.high is None or fastest.low > 1:
        return None
    speedup = Interval(value=fastest.value, low=fastest.low, high=fastest.high)
    return (
        f"Undecided on {variant(pick)}, which holds its accuracy: {formatting.with_limits(speedup)} times as fast as "
        "the fastest fp32 may be no gain. Measure longer (measure.max_seconds, measure.processes), or let size decide."
    )


def _note_rivals(pick: Record, good: Sequence[Record]) -> list[str]:
    close = [variant(record) for record in good if record is not pick and not _clearly_faster(pick, record)]
    if not close:
        return []
    return [f"Too close to call on latency: {', '.join(close)}. Size, accuracy or deployment may decide between them."]


def _clearly_faster(pick: Record, other: Record) -> bool:
    """Apart by their speed-ups' intervals where both have the same fp32, else by more than processes differ."""
    a, b = pick.speedup, other.speedup
    if a is not None and b is not None and a.baseline == b.baseline and a.low is not None and b.high is not None:
        return a.low > b.high
    own, its = p50(pick), p50(other)
    return own is not None and its is not None and its > own * (1 + ABSOLUTE_SPREAD)


def _note_passed_over(pick: Record, records: Sequence[Record], judged: Judged) -> list[str]:
    """Faster variants that were passed over, and why."""
    own = p50(pick)
    why: list[tuple[str, Callable[[Record], bool]]] = [
        ("lose more accuracy than the margin", lambda r: runs_in_int8(r) and judged.outcome(r) == "FAIL"),
        ("are undecided on accuracy", lambda r: runs_in_int8(r) and judged.outcome(r) in ("INCONCLUSIVE", None)),
        (f"are {int8_share.FP32_IN_EFFECT}", int8_share.is_fp32_in_effect),
        ("run nothing in int8", lambda r: not runs_in_int8(r) and not int8_share.is_fp32_in_effect(r)),
    ]
    faster = [record for record in records if is_int8(record) and own is not None and (p50(record) or own) < own]
    by_reason = {reason: [variant(record) for record in faster if holds(record)] for reason, holds in why}
    return [
        f"Faster, but passed over since they {reason}: {', '.join(names)}."
        for reason, names in by_reason.items()
        if names
    ]


def _note_doubts(pick: Record, judged: Judged) -> list[str]:
    """What makes the pick's figures doubtful: noise, and the choice of its calibration examples."""
    spread = judged.seed_spreads.get(pick.case.id)
    if spread is None or judged.metric is None:
        return _note_noise(pick)
    drawn = calibration_seeds.find_warning("Its accuracy", judged.tests.get(pick.case.id), spread, judged.metric)
    return [*_note_noise(pick), *([] if drawn is None else [f"{drawn}."])]


def _note_noise(pick: Record) -> list[str]:
    speedup = pick.speedup
    if speedup is None:
        return ["Its speed-up was not measured."]
    if speedup.protocol != "paired":
        return [f"Measured with protocol {speedup.protocol}, which has no control: see how it was measured."]
    notes = []
    control = speedup.control
    if control is None or control.low is None or control.high is None:
        notes.append("Its control was not measured, so noise cannot be told from change.")
    elif not control.low <= 1 <= control.high:
        notes.append(f"Its control is {formatting.with_limits(control)} where 1 is true: measure on a quieter machine.")
    if speedup.steady is False:
        notes.append("Its series was not steady: measure longer or on a quieter machine.")
    return notes


def judge(
    records: Sequence[Record],
    metric: MetricInfo | None,
    margin: float | None,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> Judged:
    """The records with the accuracy test and the seed spread of each int8 case; ``pairs`` gives per-example values."""
    tests: dict[str, noninferiority.NonInferiority] = {}
    spreads: dict[str, SeedSpread] = {}
    for record in records:
        if metric is None or not is_int8(record):
            continue
        fp32 = compare.like_for_like(record, records)
        if margin is not None:
            read = functools.partial(_pair, pairs, record, fp32)
            test = compare.accuracy_test(record, metric, margin, read)
            tests |= {} if test is None else {record.case.id: test}
        spread = calibration_seeds.measure_spread(record, fp32, metric, margin, pairs)
        spreads |= {} if spread is None else {record.case.id: spread}
    return Judged(records=records, metric=metric, margin=margin, tests=tests, seed_spreads=spreads)


def _pair(pairs: compare.Pairs, record: Record, fp32: Record | None) -> tuple[ArrayLike, ArrayLike] | None:
    return None if fp32 is None else pairs(record, fp32)


def speedup_interval(record: Record) -> Interval | None:
    """The speed-up as a plain interval."""
    speedup = record.speedup
    return None if speedup is None else Interval(value=speedup.value, low=speedup.low, high=speedup.high)
