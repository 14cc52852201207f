"""Each int8 artifact of a run on each of its hosts, held against what it answers where it was built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.decide.cases import p50
from qbench.decide.judged import Judged
from qbench.metrics.base import ANSWERS, list_outputs
from qbench.metrics.validation import choose_classes
from qbench.models.base import OWN_FILE
from qbench.models.postprocess import find_form, fit_answers
from qbench.quant.recipe import FRAMEWORK_DEFAULT
from qbench.quant.target import ADD_IN_16_BITS
from qbench.record.schema import NATIVE, CaseKey, HostFacts, Record, Status, TargetFacts
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.stats import noninferiority
from qbench.stats.noninferiority import NonInferiority
from qbench.stats.thresholds import Outcome

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class OutputChange:
    """The outputs of ``n`` examples against those on the native host: ``differing`` examples whose bits differ, the
    ``largest`` difference of one output, the share of examples with the same class (None: the outputs are none), and
    the ids of those with another."""

    n: int
    differing: int
    largest: float
    agreement: float | None
    other_class: tuple[str, ...] = ()

    @property
    def same_bits(self) -> bool:
        """Whether every output is the same, bit by bit."""
        return self.differing == 0


@dataclass(frozen=True, kw_only=True)
class HostAnswer:
    """What an artifact answers on one host. ``outputs`` and ``against_native``: against the native host, None where one
    of them is not known; ``against_fp32``: the verdict against the fp32 of the same host; ``margin`` in shown units.
    ``same_as``: of an emulated host the others that give the same bits; ``remedy``: where sums are added in 16 bits,
    how to build it so that none overflows; ``other_file``: what ran there is not the native host's file."""

    case: str
    host: str
    status: Status
    reason: str | None = None
    facts: HostFacts | None = None
    value: float | None = None
    outputs: OutputChange | None = None
    against_native: NonInferiority | None = None
    against_fp32: Outcome | None = None
    margin: float | None = None
    same_as: tuple[str, ...] = ()
    p50_seconds: float | None = None
    remedy: str | None = None
    other_file: bool = False


@dataclass(frozen=True, kw_only=True)
class ArtifactAnswers:
    """One int8 artifact: its first case on this machine, its name beside its model's, its answer on each host, the
    native one first, and the hosts of the run on which it has no case."""

    case: str
    model: str
    variant: str
    sha256: str | None
    target: TargetFacts | None = None
    hosts: tuple[HostAnswer, ...]
    missing: tuple[str, ...] = ()


def compare_hosts(run: StoredRun, judged: Judged) -> tuple[ArtifactAnswers, ...]:
    """Every int8 artifact of a run, in the order of the records; empty for a run on this machine alone."""
    if all(record.case.host == NATIVE for record in judged.records):
        return ()
    groups: dict[tuple[object, ...], dict[str, Record]] = {}
    for record in sorted(judged.records, key=lambda record: record.case.host != NATIVE):
        if record.case.mode != "fp32":
            groups.setdefault(_artifact_of(record.case), {}).setdefault(record.case.host, record)
    hosts = dict.fromkeys(record.case.host for record in judged.records)
    return tuple(
        replace(_compare_artifact(run, judged, by_host), missing=tuple(host for host in hosts if host not in by_host))
        for by_host in groups.values()
    )


def _artifact_of(case: CaseKey) -> tuple[object, ...]:
    """What cases of one artifact with one set of answers have in common; a dynamic one answers by the batch."""
    batch = case.batch_size if case.mode == "dynamic" else None
    return case.model, case.mode, case.recipe, case.backend, batch


def _compare_artifact(run: StoredRun, judged: Judged, by_host: Mapping[str, Record]) -> ArtifactAnswers:
    first = next(iter(by_host.values()))
    native = by_host.get(NATIVE)
    return ArtifactAnswers(
        case=first.case.id,
        model=first.case.model,
        variant=first.case.variant,
        sha256=None if first.artifact is None else first.artifact.sha256,
        target=None if first.artifact is None else first.artifact.target,
        hosts=tuple(
            replace(_describe_answer(run, judged, record, native), same_as=_list_same(run, record, by_host.values()))
            for record in by_host.values()
        ),
    )


def _describe_answer(run: StoredRun, judged: Judged, record: Record, native: Record | None) -> HostAnswer:
    """A record on its host, against the native record of the same artifact."""
    other_file = native is not None and is_other_file(record, native)
    compared = native is not None and native is not record and record.status == native.status == "ok" and not other_file
    return HostAnswer(
        case=record.case.id,
        host=record.case.host,
        status=record.status,
        reason=record.reason,
        facts=record.host,
        value=None if record.accuracy is None else record.accuracy.value,
        outputs=compare_outputs(run, record, native) if compared and native is not None else None,
        against_native=_test_change(run, judged, record, native) if compared and native is not None else None,
        against_fp32=judged.outcome(record),
        margin=None if (bound := judged.bound_of(record)) is None else bound.loss,
        p50_seconds=p50(record),
        remedy=find_remedy(record),
        other_file=other_file,
    )


def is_other_file(record: Record, native: Record) -> bool:
    """Whether two records are known to be of different files, so that neither tells of the other."""
    files = [None if each.artifact is None else each.artifact.sha256 for each in (record, native)]
    return None not in files and files[0] != files[1]


def find_remedy(record: Record) -> str | None:
    """How an artifact is built whose sums stay within 16 bits where a record's kernels add in them; None where they do
    not, or where it was built so."""
    facts, artifact = record.host, record.artifact
    if facts is None or facts.int8_sums != "16 bits" or record.status != "ok":
        return None
    cpu = record.case.host if record.case.host in ADD_IN_16_BITS else ADD_IN_16_BITS[0]
    if artifact is not None and artifact.target is not None and cpu in artifact.target.cpus:
        return None
    key = f"`quantize.target: [{cpu}]`"
    if record.case.recipe == OWN_FILE or (record.case.recipe or "").startswith(f"{OWN_FILE}-"):
        return f"int8 built by qbench from the fp32 network, with {key}"
    return f"qbench's own recipe with {key}" if record.case.recipe == FRAMEWORK_DEFAULT else key


def compare_outputs(
    run: StoredRun, record: Record, native: Record, native_run: StoredRun | None = None
) -> OutputChange | None:
    """The stored outputs of two hosts, or of two runs where ``native`` is of another one; None where not both are
    there."""
    pairs = _pair_outputs(run, record, native, native_run)
    if not pairs or any(new.shape != old.shape or not new.size for new, old in pairs):
        return None
    new, old = pairs[0]
    same = np.concatenate([_same_bits(*pair).reshape(len(new), -1) for pair in pairs], axis=1)
    by_example = same.all(axis=1)
    classes = native.accuracy is not None and native.accuracy.flips is not None
    same_class = choose_classes(new) == choose_classes(old) if classes else None
    return OutputChange(
        n=len(new),
        differing=int((~by_example).sum()),
        largest=max(_find_largest(*pair) for pair in pairs),
        agreement=None if same_class is None else float(same_class.mean()),
        other_class=() if same_class is None else _list_ids(run, record, ~same_class),
    )


def _pair_outputs(
    run: StoredRun, record: Record, base: Record, base_run: StoredRun | None = None
) -> list[tuple[Array, Array]]:
    """The stored outputs of two hosts for the examples that the first one answered, the first output first; nothing
    where one lacks them."""
    ours, theirs = run.predictions(record), (base_run or run).predictions(base)
    positions = ours.get("positions")
    if "outputs" not in ours or "outputs" not in theirs:
        return []
    if positions is None:
        if any(ANSWERS in part and len(part["outputs"]) < len(part[ANSWERS]) for part in (ours, theirs)):
            return _pair_answers(ours, theirs)
        return [(ours[name], theirs[name]) for name in list_outputs(ours) if name in theirs]
    if not positions.size or positions.max() >= len(theirs["outputs"]):
        return []
    return [(ours[name], theirs[name][positions]) for name in list_outputs(ours) if name in theirs]


def _pair_answers(ours: dict[str, Array], theirs: dict[str, Array]) -> list[tuple[Array, Array]]:
    """The answers of all examples, where large outputs are kept of the first ones alone; where one host has no answers,
    the outputs that both have."""
    new, old = ours.get(ANSWERS), theirs.get(ANSWERS)
    if new is None or old is None:
        count = min(len(ours["outputs"]), len(theirs["outputs"]))
        return [(ours["outputs"][:count], theirs["outputs"][:count])]
    form = find_form((new, old))
    return [(fit_answers(new, form), fit_answers(old, form))]


def _find_largest(new: Array, old: Array) -> float:
    """The largest absolute difference of values that are no equal bits."""
    distance = np.abs(new.astype(np.float64) - old.astype(np.float64))
    return float(np.nanmax(np.where(_same_bits(new, old), 0.0, distance)))


def _same_bits(new: Array, old: Array) -> Array:
    same: Array = (new == old) | (np.isnan(new) & np.isnan(old))
    return same


def _list_same(run: StoredRun, record: Record, hosts: Iterable[Record]) -> tuple[str, ...]:
    """The other hosts that give the bits of an emulated one, for the examples that this one answered."""
    if not is_emulated(record.host):
        return ()
    pairs = [
        (other, _pair_outputs(run, record, other))
        for other in hosts
        if other.case.host not in (NATIVE, record.case.host) and other.status == "ok" and not is_emulated(other.host)
    ]
    return tuple(
        other.case.host
        for other, arrays in pairs
        if arrays and all(new.shape == old.shape and _same_bits(new, old).all() for new, old in arrays)
    )


def is_emulated(facts: HostFacts | None) -> bool:
    """Whether a CPU in software gave the answers, of a few examples that are no sample."""
    return facts is not None and facts.kind == "emulated"


def _list_ids(run: StoredRun, record: Record, which: Array) -> tuple[str, ...]:
    """The ids of some of the examples that a record has outputs of; their places where it has no ids."""
    stored, places = run.predictions(record), np.flatnonzero(which)
    ids = stored.get("ids", np.zeros(0))
    if (positions := stored.get("positions")) is not None and len(ids) != len(which):
        places = positions[places]
    return tuple(str(ids[place] if place < len(ids) else place) for place in places)


def _test_change(run: StoredRun, judged: Judged, record: Record, native: Record) -> NonInferiority | None:
    """Whether the artifact loses less than the margin against itself on the native host; None where the metric of each
    example is not known."""
    metric, bound = judged.metric, judged.bound_of(record)
    if is_emulated(record.host):
        return None
    native_fp32 = _find_fp32(judged.records, native)
    fp32 = _find_fp32(judged.records, record) or native_fp32, native_fp32
    new, old = (run.values(each, base) for each, base in zip((record, native), fp32, strict=True))
    if metric is None or bound is None or new is None or old is None or len(new) != len(old):
        return None
    return judge_change(new, old, metric, bound.loss)


def judge_change(new: Array, old: Array, metric: MetricInfo, margin: float) -> NonInferiority:
    """Whether the metric of the same examples loses less than ``margin`` (in shown units) from ``old`` to ``new``."""
    allowed = margin / metric.scale
    if np.isin(new, (0, 1)).all() and np.isin(old, (0, 1)).all():
        gained, lost = (int((metric.sign * (new - old) == change).sum()) for change in (1, -1))
        return noninferiority.assess_counts(gained, lost, len(new), allowed)
    return noninferiority.assess_examples(metric.sign * new, metric.sign * old, allowed, bounds=metric.bounds)


def _find_fp32(records: Sequence[Record], record: Record) -> Record | None:
    """The fp32 of a case on its host."""
    from qbench.compare import compare

    return compare.like_for_like(record, records)
