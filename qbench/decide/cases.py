"""The settings of a run, and what the cases of one are; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench import registry
from qbench.compare import int8_share
from qbench.errors import UsageError
from qbench.hosts.base import Host
from qbench.plan.cases import PlannedCase
from qbench.record.schema import NATIVE, CaseKey, Record


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is decided apart: a model with a number of threads and a batch size, on one host."""

    model: str
    threads: int
    batch_size: int
    host: str = NATIVE


def settings(records: Iterable[Record], missing: Iterable[CaseKey] = ()) -> tuple[Setting, ...]:
    """Every setting, in the order of the records, then those of which no case has one; first those of this machine."""
    distinct = dict.fromkeys(setting_of(key) for key in (*(record.case for record in records), *missing))
    return tuple(sorted(distinct, key=lambda setting: setting.host != NATIVE))


def setting_of(case: CaseKey) -> Setting:
    """The setting that a case is decided in."""
    return Setting(model=case.model, threads=case.threads, batch_size=case.batch_size, host=case.host)


def group_by_setting(planned: Iterable[PlannedCase]) -> dict[Setting, list[PlannedCase]]:
    """The cases of a plan by their setting, over all runtimes: they race each other and are decided apart."""
    groups: dict[Setting, list[PlannedCase]] = {}
    for each in planned:
        groups.setdefault(setting_of(each.case.key), []).append(each)
    return groups


def of_setting(setting: Setting, records: Iterable[Record]) -> list[Record]:
    """The records of one setting."""
    return [record for record in records if is_of_setting(record.case, setting)]


def is_of_setting(case: CaseKey, setting: Setting) -> bool:
    """Whether a case is decided in a setting."""
    return setting_of(case) == setting


def setting_name(setting: Setting, between: str = ", ") -> str:
    """``digits-cnn, 1 thread, batch 1``, and ``, on avx2 (this chip, older instructions)`` where that is not this
    machine as it is."""
    threads = f"{setting.threads} thread{'' if setting.threads == 1 else 's'}"
    host = [] if setting.host == NATIVE else [f"on {describe_host(setting.host)}"]
    return between.join([setting.model, threads, f"batch {setting.batch_size}", *host])


def describe_host(name: str) -> str:
    """``avx2 (this chip, older instructions)``; the name alone where its plug-in is not installed here."""
    try:
        host: Host = registry.load("host", name)
    except UsageError:
        return name
    return f"{name} ({host.title})"


def variant(record: Record) -> str:
    """``static · onednn``."""
    return record.case.variant


def is_contender(record: Record) -> bool:
    """Whether the case has answers and is of another mode than fp32."""
    return record.status == "ok" and record.case.mode != "fp32"


def is_unmeasured(record: Record) -> bool:
    """Whether its answers on its host were predicted or emulated, so that nothing was measured and nothing is
    chosen."""
    return record.host is not None and record.host.kind in ("predicted", "emulated")


def runs_as_named(record: Record) -> bool:
    """Whether any multiply-accumulate of the artifact is seen to run in the format that its mode names, and it is not
    practically fp32."""
    coverage = record.artifact.coverage if record.artifact else None
    if coverage is None or int8_share.is_fp32_in_effect(record):
        return False
    share = coverage.share_of(record.case.mode)
    return coverage.layers_of(record.case.mode) > 0 if share is None else share > 0


def list_unjudged(record: Record) -> tuple[str, ...]:
    """The outputs of the case that no metric judges, though the suite does not name the one that counts."""
    outputs = (record.accuracy.outputs if record.accuracy else None) or ()
    return tuple(output.name for output in outputs if output.judged is False)


def name_judged(record: Record) -> str:
    """Which of several outputs a case's score is of: ``the first of 2 outputs``, ``boxes, the worst of 2 outputs``;
    nothing where it returns one, or the suite names it."""
    outputs = (record.accuracy.outputs if record.accuracy else None) or ()
    judged = [output.name for output in outputs if output.judged]
    if record.accuracy is None or any(output.judged is None for output in outputs) or not judged:
        return ""
    if len(judged) == 1:
        return f"the first of {len(outputs)} outputs"
    if outputs[record.accuracy.judged].value is None:  # a function of the user's takes them together
        return ""
    name = outputs[record.accuracy.judged].name
    count = f"{len(judged)} outputs" if len(judged) == len(outputs) else f"the {len(judged)} outputs that are judged"
    return f"{'output ' if name.replace('.', '').isdigit() else ''}{name}, the worst of {count}"


def p50(record: Record) -> float | None:
    """The median call in seconds, the mean where there is no median."""
    if record.latency is None:
        return None
    return record.latency.p50_seconds or record.latency.mean_seconds


def mean(record: Record) -> float | None:
    """The mean call in seconds."""
    return None if record.latency is None else record.latency.mean_seconds


def resident_bytes(record: Record) -> int | None:
    """The largest resident set of the measuring process; that with the artifact loaded where no peak is known."""
    memory = record.memory
    if memory is None:
        return None
    return memory.loaded_rss_bytes if memory.peak_rss_bytes is None else memory.peak_rss_bytes


def is_sequential(record: Record) -> bool:
    """Whether its speed-up is a ratio of means, as protocol sequential measures."""
    return record.speedup is not None and record.speedup.protocol == "sequential"


def is_plain_fp32(record: Record) -> bool:
    """Whether the case is an fp32 as the suite has it; a twin is as fast, and has other weights."""
    return record.case.mode == "fp32" and not record.case.is_twin


def fastest_fp32(records: Sequence[Record]) -> Record | None:
    """The fastest fp32 of one setting, whatever its backend: what the run itself found out by measuring side by side,
    else the smallest p50."""
    measured = [record for record in records if record.status == "ok" and is_plain_fp32(record)]
    named = {record.speedup_fastest.baseline for record in records if record.speedup_fastest is not None}
    timed = [(seconds, record) for record in measured if (seconds := p50(record)) is not None]
    timed = [pair for pair in timed if pair[1].case.id in named] or timed
    return min(timed, key=lambda pair: pair[0])[1] if timed else None
