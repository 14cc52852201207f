"""The gate's rule on the baseline itself: it does not contradict itself, and what one artifact cannot have twice is the
same in both records of it.

The bytes of a file decide its size. Under the same versions on the same kind of machine they decide what runs in int8,
too, and with the same data the score, which is computed on one thread. Times and memory move from run to run, so that a
change of them in the baseline's file cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from qbench.compare import compare
from qbench.gating.evidence import Evidence
from qbench.gating.verdict import GateRule, Verdict
from qbench.machine import fingerprint
from qbench.record.schema import NATIVE, Accuracy, Record
from qbench.record.stored_run import POSTPROCESS, SCORE, MetricInfo, RunInfo

# A baseline keeps 6 significant digits of a score or a share.
_ROUNDED = 1e-5
_NEAR_ZERO = 1e-9  # where a share says nothing
_RENEW = "take the baseline from where it was committed, or write it again with `qbench baseline RUN`"


def check_figures(evidence: Evidence, record: Record) -> Verdict | None:
    """INVALID where the baseline contradicts itself, or has the very artifact with figures that it cannot have; None
    where it does not."""
    if evidence.baseline is not None and record.case.id in evidence.baseline.contradictions:
        return report_contradiction(evidence, record.case.id, evidence.baseline.contradictions[record.case.id])
    old = evidence.base_of(record.case.id)
    if old is None or not evidence.is_same_file(record):
        return None
    differing = [*_compare_sizes(old, record)]
    edited = bool(differing)
    differing += _compare_computed(evidence, old, record)
    if not differing:
        return None
    cause = "the baseline was edited" if edited else "the baseline was edited, or it is computed otherwise here"
    return _refuse(evidence, record.case.id, f"the same artifact, other figures: {', '.join(differing)}", cause)


def report_contradiction(evidence: Evidence, case: str, contradiction: str) -> Verdict:
    """INVALID: what the baseline keeps of a case's examples is of another run than its record."""
    return _refuse(evidence, case, contradiction, "they are of two runs, or the baseline was edited")


def _refuse(evidence: Evidence, case: str, text: str, cause: str) -> Verdict:
    rule = GateRule(name="baseline", kind="case", case=case, place=evidence.place("matrix"))
    return rule.verdict("INVALID", text, f"{cause}; {_RENEW}")


def without_base(evidence: Evidence, record: Record) -> Evidence:
    """The evidence with nothing of the baseline to hold the case against."""
    alone = compare.Delta(case=record.case.id, change="new", base=None, contender=record)
    return replace(evidence, deltas={**evidence.deltas, record.case.id: alone})


def _compare_sizes(old: Record, new: Record) -> Iterator[str]:
    assert old.artifact is not None
    assert new.artifact is not None
    before, now = old.artifact.size_bytes, new.artifact.size_bytes
    if before != now:
        yield f"{before:,} bytes in the baseline, {now:,} in this run"


def _compare_computed(evidence: Evidence, old: Record, new: Record) -> Iterator[str]:
    """Coverage and score, where both runs must compute the same."""
    assert evidence.baseline is not None
    held, run = evidence.baseline.info, evidence.info
    if held.versions != run.versions or fingerprint.comparable(held.environment, run.environment) is not None:
        return
    if new.case.host != NATIVE or _name_cpu(old) != _name_cpu(new):
        return
    yield from _compare_coverage(old, new)
    same_data = "data" in run.digests and held.digests.get("data") == run.digests["data"]
    if run.metric is not None and same_data and held.metric == run.metric and _is_scored_alike(evidence, new):
        yield from _compare_scores(run.metric, old.accuracy, new.accuracy)


def _name_cpu(record: Record) -> str | None:
    """The CPU of a node of a cluster, where the case ran on one."""
    return None if record.host is None else record.host.cpu


def _is_scored_alike(evidence: Evidence, record: Record) -> bool:
    """Whether the outputs are scored by the same code of the user's, and what they are held against is the same: labels
    of the same data, or the outputs of one fp32."""
    assert evidence.baseline is not None
    if _list_code(evidence.baseline.info, record) != _list_code(evidence.info, record):
        return False
    assert evidence.info.metric is not None
    if evidence.info.metric.against == "labels":
        return True
    fp32 = compare.like_for_like(record, evidence.records)
    return fp32 is not None and evidence.is_same_file(fp32)


def _list_code(info: RunInfo, record: Record) -> dict[str, str]:
    """The digests of the user's code that makes answers of a case's outputs, and that scores them."""
    own = f"{POSTPROCESS}{record.case.model}"
    return {name: digest for name, digest in info.digests.items() if name == own or name.startswith(SCORE)}


def _compare_coverage(old: Record, new: Record) -> Iterator[str]:
    before, now = (None if record.artifact is None else record.artifact.coverage for record in (old, new))
    if before is None or now is None:
        return
    mode, format_ = new.case.mode, now.describe_format(new.case.mode)
    share, own = (each.share_of(mode) for each in (before, now))
    if share is not None and own is not None and not _is_close(share, own):
        yield f"{share * 100:.6g} % {format_} in the baseline, {own * 100:.6g} % in this run"
    counts = [(each.layers_of(mode), each.layers_total) for each in (before, now)]
    if counts[0] != counts[1]:
        texts = [f"{layers} of {total}" for layers, total in counts]
        yield f"{texts[0]} layers {format_} in the baseline, {texts[1]} in this run"


def _compare_scores(metric: MetricInfo, before: Accuracy | None, now: Accuracy | None) -> Iterator[str]:
    if before is None or now is None or before.metric != now.metric:
        return
    if before.n != now.n:
        yield f"{before.n:,} examples in the baseline, {now.n:,} in this run"
    if not _is_close(before.value, now.value):
        old, new = (f"{each.value * metric.scale:.6g}{' %' if metric.percent else ''}" for each in (before, now))
        yield f"{now.metric} {old} in the baseline, {new} in this run"


def _is_close(before: float, now: float) -> bool:
    return math.isclose(before, now, rel_tol=_ROUNDED, abs_tol=_NEAR_ZERO)
