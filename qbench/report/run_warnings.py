"""What to know of a run before any figure: data that does not fit, verdicts that a seed decides; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qbench.compare import above_peak, host_share
from qbench.decide.judged import Judged
from qbench.evaluate import constant_answer, runtime_difference
from qbench.quant.analysis import input_drift
from qbench.quant.artifacts import coverage
from qbench.record import run_files
from qbench.record.stored_run import StoredRun
from qbench.report.flips import CaseFlips

_NAMED = 3  # cases that are named where many lack the same


def warnings(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> tuple[str, ...]:
    """One sentence each, the first is that of a quick look."""
    doubts = tuple(case.doubt for case in changes if case.doubt is not None)
    return (
        *([] if run.info.quick is None else [run.info.quick.text]),
        *run.info.notes,
        *constant_answer.warnings(run.records),
        *input_drift.warnings(run.records),
        *coverage.warnings(run.records),
        *runtime_difference.warnings(run.records),
        *above_peak.warnings(run.records),
        *host_share.warnings(run.records),
        *_describe_shared(run),
        *judged.warnings(),
        *doubts,
        *_describe_damage(run),
    )


def _describe_shared(run: StoredRun) -> Iterator[str]:
    """Scores on examples that calibration or training saw, which the suite allowed."""
    scores = [record.accuracy for record in run.records if record.accuracy is not None]
    counts = {(accuracy.shared_examples, accuracy.n) for accuracy in scores}
    for shared, n in sorted((shared, n) for shared, n in counts if shared):
        yield (
            f"{shared:,} of the {n:,} evaluation examples are calibration or training examples, too "
            "(data.overlap: allow): the score on them proves nothing"
        )


def _describe_damage(run: StoredRun) -> Iterator[str]:
    """Each file beside the records that could not be read, with its case, and how many are gone."""
    gone: dict[str, None] = {}
    damage = run.find_damage()
    for record in run.records:
        for kind in ("samples", "predictions", "layers"):
            name = getattr(record, kind)
            reason = damage.get(name or "")
            if reason is None:
                continue
            if reason == run_files.GONE:
                gone[record.case.id] = None
            else:
                yield f"{record.case.id}: its {kind}, {name}, {reason}; shown is what its record says, limits included"
    if gone:
        named = ", ".join(list(gone)[:_NAMED])
        more = f" and {len(gone) - _NAMED:,} more" if len(gone) > _NAMED else ""
        gone_of = f"files that records name are not there (any more), of {named}{more}"
        yield f"{gone_of}; shown is what their records say, limits included"
