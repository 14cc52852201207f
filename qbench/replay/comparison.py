"""A run and its replay, held against each other in the order in which a run comes about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qbench.decide.cases import setting_name
from qbench.decide.decision_type import Decision
from qbench.portability.compare_hosts import compare_outputs
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as it was: ``what`` of ``where`` (an input, a case or a setting), before and now."""

    what: str
    where: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.what} of {self.where}: {self.before}, now {self.now}"


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay came to: ``differences`` in the order in which a run comes about, so that the first is the cause of
    those below it, as far as one can tell. ``artifacts`` and ``answers`` count what was compared, ``settings`` the
    decisions; ``reservations`` say what could not be made as it was (the machine, this qbench)."""

    suite: str
    before: StoredRun
    after: StoredRun
    differences: tuple[Difference, ...]
    artifacts: int
    answers: int
    settings: int
    reservations: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: the same; 1: something differs."""
        return 1 if self.differences else 0


def list_differences(
    before: StoredRun, after: StoredRun, decided: tuple[Sequence[Decision], Sequence[Decision]]
) -> tuple[Difference, ...]:
    """What goes in, then for all cases what was built, what it answers and scores, then what was decided."""
    return (
        *_compare_inputs(before.info.digests, after.info.digests),
        *_compare_records(before, after),
        *_compare_decisions(*decided),
    )


def _compare_inputs(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    for name, digest in before.items():
        if after.get(name) != digest:
            yield Difference(what="input", where=name, before=_short(digest), now=_short(after.get(name)))


def _compare_records(before: StoredRun, after: StoredRun) -> Iterator[Difference]:
    pairs = [(record, after.by_id.get(record.case.id)) for record in before.records]
    ran = [(old, new) for old, new in pairs if new is not None and old.status == new.status == "ok"]
    for old, new in pairs:
        if new is None or old.status != new.status:
            now = "no record" if new is None else f"{new.status}{f' ({new.reason})' if new.reason else ''}"
            yield Difference(what="status", where=old.case.id, before=old.status, now=now)
    fp32_first = sorted(ran, key=lambda pair: pair[0].case.mode != "fp32")
    for old, new in fp32_first:
        if find_sha256(old) != find_sha256(new):
            yield Difference(
                what="artifact", where=old.case.id, before=_short(find_sha256(old)), now=_short(find_sha256(new))
            )
    for old, new in fp32_first:
        change = compare_outputs(after, new, old, before)
        if change is not None and not change.same_bits:
            now = f"{change.differing:,} of {change.n:,} in other bits, by {change.largest:.3g} at most"
            yield Difference(what="answers", where=old.case.id, before=f"{change.n:,} examples", now=now)
    for old, new in fp32_first:
        scores = [None if record.accuracy is None else record.accuracy.value for record in (old, new)]
        if scores[0] != scores[1]:
            yield Difference(what="score", where=old.case.id, before=str(scores[0]), now=str(scores[1]))


def find_sha256(record: Record) -> str | None:
    """The digest of a record's artifact."""
    return None if record.artifact is None else record.artifact.sha256


def _compare_decisions(before: Sequence[Decision], after: Sequence[Decision]) -> Iterator[Difference]:
    now = {decision.setting: decision for decision in after}
    for decision in before:
        other = now.get(decision.setting)
        if other is None or _pick(other) != _pick(decision):
            where = setting_name(decision.setting)
            yield Difference(
                what="decision", where=where, before=_pick(decision), now="none" if other is None else _pick(other)
            )


def _pick(decision: Decision) -> str:
    return decision.verdict if decision.pick is None else f"{decision.verdict} {decision.pick.case.id}"


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:16]
