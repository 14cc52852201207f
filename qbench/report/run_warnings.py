"""What to know of a run before any figure: every warning of a run is gathered, and most are worded, here; those on its
times in ``timing_warnings``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from qbench.compare import calibration_seeds
from qbench.decide.judged import Judged
from qbench.quant.analysis import input_drift
from qbench.quant.sqnr import MOST_DECIBELS
from qbench.record import run_files
from qbench.record.schema import InputFit, OtherRuntime, Record
from qbench.record.stored_run import StoredRun
from qbench.report.flips import CaseFlips
from qbench.report.timing_warnings import warn_of_impossible, warn_of_sharing

_NAMED = 3  # cases that are named where many lack the same
# Two answers of one file, in dB: wrong kernels left 0 to 9 (``simulation_gap``), roundings in Magika's LayerNorms 44.
_MOST_OF_A_FAULT = 30.0


def warnings(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> tuple[str, ...]:
    """One sentence each, the first is that of a quick look; what can change no answer comes last."""
    return (*find_doubts(run, judged, changes), *find_remarks(run))


def find_remarks(run: StoredRun) -> tuple[str, ...]:
    """What makes times longer on this machine than on one of its own: it changes no answer, whose ratios are of blocks
    that shared it."""
    return tuple(warn_of_sharing(run.records))


def find_doubts(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> tuple[str, ...]:
    """What may change an answer."""
    doubts = tuple(case.doubt for case in changes if case.doubt is not None)
    return (
        *([] if run.info.quick is None else [run.info.quick.text]),
        *run.info.notes,
        *warn_of_constant_answer(run.records),
        *warn_of_inputs(run.records),
        *warn_of_unknown_coverage(run.records),
        *warn_of_runtimes(run.records),
        *warn_of_impossible(run.records),
        *_warn_of_shared_examples(run),
        *_warn_of_seeds(judged),
        *doubts,
        *_warn_of_damage(run),
    )


def warn_of_constant_answer(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each model whose fp32 has a single answer."""
    sentences: dict[str, str] = {}
    for record in records:
        scores = record.accuracy
        if record.case.mode != "fp32" or scores is None or scores.only_answer is None:
            continue
        sentences.setdefault(record.case.model, _describe_constant(record.case.model, scores.only_answer, scores.n))
    return tuple(sentences.values())


def _describe_constant(model: str, answer: int, n: int) -> str:
    return (
        f"{model}: fp32 answers class {answer} on all {n:,} examples, so agreement with it, flips and a PASS prove "
        "nothing: almost any int8 would agree; are the right weights loaded, and do the inputs reach it as those that "
        "it was trained on (scale, mean and std, order of the channels)?"
    )


def warn_of_inputs(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each thing that is wrong with the inputs of a run's cases, each with the cases it concerns."""
    clipped: dict[str, list[str]] = {}
    differing: dict[str, None] = {}
    for record in records:
        inputs = record.accuracy.inputs if record.accuracy and record.accuracy.inputs else ()
        for position, fit in enumerate(inputs):
            if fit is None:
                continue
            where = "the inputs" if len(inputs) == 1 else f"input {position}"
            if fit.clipped is not None and fit.clipped > input_drift.CLIPPED:
                clipped.setdefault(_describe_clipping(where, fit), []).append(record.case.id)
            if (text := input_drift.describe_difference(where, fit.calibrated, fit.evaluated)) is not None:
                differing[text] = None
    return (*differing, *(f"{text} ({', '.join(dict.fromkeys(cases))})" for text, cases in clipped.items()))


def _describe_clipping(where: str, fit: InputFit) -> str:
    share = f"{(fit.clipped or 0):.1%}".replace("%", " %")
    return (
        f"{share} of the values of {where} are clipped: they reach from {fit.evaluated.least:.4g} to "
        f"{fit.evaluated.greatest:.4g}, and int8 takes {fit.low:.4g} to {fit.high:.4g}, as the calibration data had "
        f"{fit.calibrated.least:.4g} to {fit.calibrated.greatest:.4g}; calibrate on examples like those evaluated"
    )


def warn_of_unknown_coverage(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each reason for which coverage is not known, with the cases it concerns."""
    cases: dict[str, list[str]] = {}
    for record in records:
        coverage = record.artifact.coverage if record.artifact else None
        if coverage is not None and coverage.unknown is not None:
            cases.setdefault(coverage.unknown, []).append(record.case.id)
    return tuple(
        f"which share of the work runs in int8 is not known, so min_coverage judges nothing here: {reason} "
        f"({', '.join(names)})"
        for reason, names in cases.items()
    )


def warn_of_runtimes(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each two variants whose outputs differ by more than rounding explains."""
    sentences: dict[frozenset[str], str] = {}
    records = tuple(records)
    digests = {record.case.id: record.artifact.sha256 for record in records if record.artifact}
    for record in records:
        other = record.accuracy.other_runtime if record.accuracy else None
        if other is not None:
            own = f"{record.case.model}/{record.case.variant}"
            digest = digests.get(record.case.id)
            one_file = digest is not None and digest == digests.get(other.case)
            sentences.setdefault(frozenset((record.case.id, other.case)), _describe_runtimes(own, other, one_file))
    return tuple(dict.fromkeys(sentences.values()))


def _describe_runtimes(variant: str, other: OtherRuntime, one_file: bool) -> str:
    where = f"; the first layer that differs is {other.layer}" if other.layer else ""
    better = f"{other.better_db:.1f} dB of fp32"
    best = f", where the better of them keeps {better}" if other.better_db < MOST_DECIBELS else ""
    what = "are one file" if one_file else "are made of one network by one recipe"
    why = "One of the two runtimes computes something else"
    if other.between_db >= _MOST_OF_A_FAULT:
        why = (
            "Either one of the two runtimes computes something else, or the network makes much of roundings, as the "
            "normalization of nearly equal values does"
        )
    if not one_file:  # one recipe is not one set of weights: fbgemm and x86 add products in 16 bits on some CPUs
        why = (
            "Either one of the two runtimes computes something else, or one of them stores coarser numbers (narrower "
            "weights, or 7 bits for activations, where products are added in 16 bits)"
        )
    return (
        f"{variant} and {other.case} {what}, and their outputs differ by more than rounding explains: "
        f"{other.between_db:.1f} dB{best}{where}. {why}: ship the one whose score holds, or keep that layer float "
        "(skip_layers)"
    )


def _warn_of_seeds(judged: Judged) -> Iterator[str]:
    """Verdicts that another draw of the calibration examples would change."""
    tests = {record.case.id: judged.test_of(record) for record in judged.records}
    if judged.metric is None:
        return
    for case, spread in judged.seed_spreads.items():
        warning = calibration_seeds.find_warning(case, tests.get(case), spread, judged.metric)
        if warning is not None:
            yield warning


def _warn_of_shared_examples(run: StoredRun) -> Iterator[str]:
    """Scores on examples that calibration or training saw, which the suite allowed."""
    scores = [record.accuracy for record in run.records if record.accuracy is not None]
    counts = {(accuracy.shared_examples, accuracy.n) for accuracy in scores}
    for shared, n in sorted((shared, n) for shared, n in counts if shared):
        yield (
            f"{shared:,} of the {n:,} evaluation examples are calibration or training examples, too "
            "(data.overlap: allow): the score on them proves nothing"
        )


def _warn_of_damage(run: StoredRun) -> Iterator[str]:
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
