"""Stage 7: the records of two runs -> one ``Delta`` per case, with intervals; pure.

Latency is compared through each run's own speed-up over its own fp32, since a stored latency moves by 16 to 22 %
from one process to the next and a ratio by about 1.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from qbench.machine.process_spread import RATIO_SPREAD
from qbench.record.schema import Accuracy, Flips, Record, Speedup
from qbench.stats import intervals, noninferiority
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from qbench.record.stored_run import MetricInfo

# The metric of each example of a case and of its fp32, in one order; None where predictions are not stored.
Pairs = Callable[[Record, Record], "tuple[ArrayLike, ArrayLike] | None"]
Change = Literal["compared", "new", "gone", "now failed", "now skipped", "now ok", "not ok in either"]


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What changed for one case. ``slowdown`` is contender time over base time, each in units of its own run's
    fp32 (above 1: slower); ``accuracy`` is contender - base in the metric's own scale; ``notes`` say what limits
    these. ``invalid`` names the field that makes latency incomparable. ``paired``: on how many examples that both runs
    have the accuracy was compared (null: as two scores of different examples), ``accuracy_p`` the two-sided p-value of
    "no change" on them."""

    case: str
    change: Change
    base: Record | None
    contender: Record | None
    slowdown: Interval | None = None
    level: float = 0.95
    freedom: int | None = None
    invalid: str | None = None
    size_ratio: float | None = None
    accuracy: Interval | None = None
    paired: int | None = None
    accuracy_p: float | None = None
    notes: tuple[str, ...] = ()


def compare(
    base: Sequence[Record], contender: Sequence[Record], *, incomparable: str | None = None
) -> tuple[Delta, ...]:
    """One delta for each case of either side, contender's order first.

    ``incomparable``: what ``machine.comparable`` says of the two fingerprints, the differing field or None.
    """
    before = {record.case.id: record for record in base}
    after = {record.case.id: record for record in contender}
    return tuple(_delta(case, before.get(case), after.get(case), incomparable) for case in {**after, **before})


def _delta(case: str, base: Record | None, contender: Record | None, incomparable: str | None) -> Delta:
    change = _change(base, contender)
    plain = Delta(case=case, change=change, base=base, contender=contender)
    if change != "compared":
        return plain
    assert base is not None
    assert contender is not None
    sized = replace(plain, size_ratio=size_ratio(base, contender))
    return _with_accuracy(_with_latency(sized, base, contender, incomparable), base, contender)


def _change(base: Record | None, contender: Record | None) -> Change:
    if base is None:
        return "new"
    if contender is None:
        return "gone"
    if contender.status == "ok":
        return "compared" if base.status == "ok" else "now ok"
    if base.status != "ok":
        return "not ok in either"
    return "now failed" if contender.status == "failed" else "now skipped"


def size_ratio(base: Record | None, contender: Record) -> float | None:
    """Bytes of the contender over those of the base; None where one has no artifact."""
    if base is None or base.artifact is None or contender.artifact is None:
        return None
    return contender.artifact.size_bytes / base.artifact.size_bytes


def _with_latency(delta: Delta, base: Record, contender: Record, incomparable: str | None) -> Delta:
    old, new = base.speedup, contender.speedup
    if old is None or new is None:
        return delta
    invalid = incomparable or _differing(old, new)
    if invalid is not None:
        return replace(delta, invalid=invalid, notes=(f"latency is not comparable: {invalid} differs",))
    single = _knows_one_process(old) + _knows_one_process(new)
    notes: tuple[str, ...] = ()
    if single:
        notes = (
            f"measured in one process only on {single} of 2 sides, so its interval is widened by "
            f"{RATIO_SPREAD * 100:g} % for each",
        )
    if new.protocol == "sequential":
        notes += ("protocol sequential has no control: measured one after the other, 58 % of A/A pairs look changed",)
    several = [speedup.processes - 1 for speedup in (old, new) if speedup.processes > 1]
    freedom = min(several) if several else None
    return replace(delta, slowdown=slowdown(old, new), level=new.level, freedom=freedom, notes=notes)


def _differing(old: Speedup, new: Speedup) -> str | None:
    """The first field that makes two speed-ups incomparable."""
    return next((name for name in ("baseline", "protocol", "level") if getattr(old, name) != getattr(new, name)), None)


def slowdown(base: Speedup, contender: Speedup) -> Interval:
    """R = base's speed-up / contender's: how many times slower the contender is, with limits at their level.

    Limits combine in log space; limits that hold for one process only are widened by what processes differ by.
    """
    log = intervals.difference(_log(base), _log(contender))
    return intervals.exp(log)


def _knows_one_process(speedup: Speedup) -> bool:
    """Whether its limits say nothing of other processes: those of records from before the race, which alone knows what
    its blocks took."""
    return speedup.processes < 2 and speedup.measured_seconds is None


def _log(speedup: Speedup) -> Interval:
    value = math.log(speedup.value)
    if speedup.low is None or speedup.high is None:
        return Interval(value=value)
    extra = intervals.normal_quantile(speedup.level) * RATIO_SPREAD if _knows_one_process(speedup) else 0.0
    return Interval(
        value=value,
        low=value - math.hypot(value - math.log(speedup.low), extra),
        high=value + math.hypot(math.log(speedup.high) - value, extra),
    )


def _with_accuracy(delta: Delta, base: Record, contender: Record) -> Delta:
    old, new = base.accuracy, contender.accuracy
    if old is None or new is None:
        return delta
    if old.metric != new.metric:
        return replace(delta, notes=(*delta.notes, f"accuracy is not comparable: {old.metric} and {new.metric}"))
    change = intervals.difference(
        Interval(value=new.value, low=new.low, high=new.high),
        Interval(value=old.value, low=old.low, high=old.high),
    )
    notes = delta.notes if old.n == new.n else (*delta.notes, f"scored on {old.n} and {new.n} examples")
    return replace(delta, accuracy=change, notes=notes)


# --- within one run: a contender and its like-for-like fp32 -------------------------------------------------


def like_for_like(record: Record, records: Iterable[Record]) -> Record | None:
    """The fp32 record that a case is compared with: the one its speed-up names, else the same model, threads and
    batch size on its own backend, else on ``torch`` (the runtime of the torch.ao engines)."""
    key = record.case
    candidates = {
        fp32.case.backend: fp32
        for fp32 in records
        if fp32.case.mode == "fp32"
        and not fp32.case.is_twin
        and (fp32.case.model, fp32.case.threads, fp32.case.batch_size, fp32.case.host)
        == (key.model, key.threads, key.batch_size, key.host)
    }
    if record.speedup is not None:
        reference = next((fp32 for fp32 in candidates.values() if fp32.case.id == record.speedup.baseline), None)
        if reference is not None:
            return reference
    return candidates.get(key.backend) or candidates.get("torch")


def accuracy_test(
    record: Record,
    metric: MetricInfo,
    margin: float,
    values: Callable[[], tuple[ArrayLike, ArrayLike] | None] = lambda: None,
) -> noninferiority.NonInferiority | None:
    """Is the case's accuracy within ``margin`` (shown units: points for a metric in percent) of its fp32's?

    The strongest evidence that is there decides: the flips, where they are the whole change (top-1); else the
    metric of each example of contender and baseline, which ``values`` reads; else the stored interval. The change is
    oriented: better is positive. None where no change was recorded.
    """
    accuracy = record.accuracy
    if accuracy is None or accuracy.delta is None:
        return None
    allowed = margin / metric.scale
    sign = metric.sign
    if (flips := whole_change(accuracy)) is not None:
        return noninferiority.assess_counts(flips.beneficial, flips.harmful, accuracy.n, allowed)
    if (pair := values()) is not None:
        return judge_examples(*pair, metric, allowed)
    return noninferiority.assess_interval(oriented(accuracy.delta, sign), allowed, n=accuracy.n)


def judge_examples(
    contender: ArrayLike, fp32: ArrayLike, metric: MetricInfo, allowed: float
) -> noninferiority.NonInferiority:
    """The test on the metric of each example of a case and of its fp32; ``allowed`` in the metric's own scale.

    Where fp32 agrees with itself on every example by definition, the share of the case's alone is tested."""
    import numpy as np

    new, old = (metric.sign * np.asarray(values, dtype=np.float64) for values in (contender, fp32))
    by_definition = metric.against == "fp32" and metric.perfect == 1.0 and bool((old == 1).all())
    if by_definition and intervals.is_binary(new):
        return noninferiority.assess_share(int(new.sum()), new.size, allowed)
    return noninferiority.assess_examples(new, old, allowed, bounds=metric.bounds)


def whole_change(accuracy: Accuracy) -> Flips | None:
    """The flips, where they are all there is to the change: the metric is the share of correct examples."""
    flips, delta, n = accuracy.flips, accuracy.delta, accuracy.n
    if flips is None or delta is None or not math.isclose(accuracy.value * n, round(accuracy.value * n), abs_tol=1e-6):
        return None
    return flips if math.isclose((flips.beneficial - flips.harmful) / n, delta.value, abs_tol=1e-9) else None


def oriented(delta: Interval, sign: float) -> Interval:
    """The interval times 1 or -1, its limits swapped for -1."""
    if sign > 0:
        return delta
    flipped = (None if limit is None else -limit for limit in (delta.high, delta.low))
    low, high = flipped
    return Interval(value=-delta.value, low=low, high=high)
