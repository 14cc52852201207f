"""What every rule of the gate may read of a run and of its baseline, and whether there is anything to measure: the
baseline's artifact, byte by byte, run by the same versions on the same kind of host, has not changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from qbench.backends.libraries import list_runtime_libraries
from qbench.compare import compare
from qbench.decide.limits import CaseRules, LimitCheck
from qbench.gating.sequential_test import NotRun, Rerun
from qbench.gating.verdict import GateRule, Kind, Verdict, advise_improved
from qbench.portability.compare_hosts import OutputChange
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import CaseKey, Record
from qbench.record.stored_run import RunInfo
from qbench.suite.gate import resolve_overrides

if TYPE_CHECKING:
    from qbench.gating.baseline import Baseline
    from qbench.stats.jackknife import FactScore
    from qbench.suite import GateSpec


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What every rule may read. ``deltas`` are against the stored baseline, by case; ``pairs`` gives the metric of each
    example for a record and its fp32, where predictions are stored; ``examples`` what the record's score rests on,
    example by example, ``change`` its outputs against those of another, and ``score_of_facts`` the metric of what it
    has no value of for each; ``reruns`` what running the artifacts of a case again gave, empty where that was not asked
    for; ``ref`` the commit that the baseline was built from, None where it is a committed file."""

    records: Sequence[Record]
    info: RunInfo
    policy: GateSpec
    place: Callable[[str], str]
    baseline: Baseline | None
    deltas: dict[str, compare.Delta]
    pairs: compare.Pairs
    examples: Callable[[Record], ExampleScores | None] = lambda record: None
    score_of_facts: FactScore | None = None
    change: Callable[[Record, Record], OutputChange | None] = lambda record, native: None
    reruns: Mapping[str, Rerun | NotRun] = field(default_factory=dict)
    ref: str | None = None

    @property
    def advice(self) -> str:
        """What to do about something that is better than in the baseline."""
        return advise_improved(self.ref)

    @cached_property
    def changed_cases(self) -> int:
        """How many int8 cases are there whose artifact is not the baseline's, or is run by other versions."""
        int8 = (record for record in self.records if record.status == "ok" and record.case.mode != "fp32")
        return sum(not self.is_unchanged(record) for record in int8)

    def of_case(self, case: CaseKey) -> Evidence:
        """The same with the rules that hold for the case, overrides put in."""
        policy, keys = resolve_overrides(self.policy, case)
        return replace(self, policy=policy, place=lambda key: self.place(keys.get(key, key)))

    @property
    def limits(self) -> CaseRules:
        """The suite's limits, as what is held against them takes them."""
        return CaseRules(gate=self.policy, place=self.place)

    def limit(self, record: Record, name: str, key: str, threshold: float | None = None) -> LimitCheck:
        """A limit that a key of the suite (``gate.size.max_growth``) sets for a case, nothing held against it yet."""
        return self.limits.limit(record, name, key, threshold)

    def rule(self, check: LimitCheck, kind: Kind, *, way: Literal["live", "stored"] | None = None) -> GateRule:
        """What is said of a limit of the suite, with where that is written; its default where it is not."""
        assert check.key is not None
        assert check.place is not None
        _, section, field = check.key.split(".")
        written = field in getattr(self.policy, section).model_fields_set
        return GateRule(
            name=check.limit,
            kind=kind,
            case=check.record.case.id,
            place=check.place,
            default=None if written else check.key,
            threshold=check.threshold,
            way=way,
        )

    def base_of(self, case: str) -> Record | None:
        """The baseline's record of a case, where it is ok."""
        delta = self.deltas.get(case)
        base = None if delta is None else delta.base
        return base if base is not None and base.status == "ok" else None

    def is_same_file(self, record: Record) -> bool:
        """Whether the artifact is the baseline's, byte by byte."""
        return is_same_file(self.base_of(record.case.id), record)

    def is_unchanged(self, record: Record) -> bool:
        """Whether the artifact is the baseline's, byte by byte, and run by the same versions."""
        return self.is_same_file(record) and not self.list_updates(record)

    def list_updates(self, record: Record) -> list[str]:
        """The runtimes of the case that the baseline had in another version."""
        if self.baseline is None:
            return []
        return list_updates(self.baseline.info.versions, self.info.versions, record.case.backend)

    def name_updates(self, record: Record) -> str:
        """``onnxruntime 1.20.0 -> 1.32.0``: the same with both versions; empty where there are none."""
        if self.baseline is None:
            return ""
        old, new = self.baseline.info.versions, self.info.versions
        return ", ".join(f"{name} {old[name]} -> {new.get(name)}" for name in self.list_updates(record))

    def judge_unchanged(self, rule: GateRule, record: Record) -> Verdict | None:
        """The verdict where nothing that was built has changed, so that nothing is to be measured; None where it has.

        PASS on the same kind of host. What the same file takes on another kind than the baseline's, no figure of the
        baseline tells: INCONCLUSIVE, which holds no change (``settle``).
        """
        if self.baseline is None or not self.is_unchanged(record):
            return None
        field = differing_host(self.baseline.info.environment, self.info.environment)
        if field is None:
            verdict = rule.verdict("PASS", "identical: the baseline's artifact, byte by byte")
            return replace(verdict, identical=True)
        reason = (
            f"the baseline was measured on another kind of host ({field} differs), which tells nothing of this one; "
            "`--against REF` measures both sides here"
        )
        return rule.verdict("INCONCLUSIVE", "the baseline's artifact, byte by byte, by the same versions", reason)


# An artifact is built for these; another CPU of the same kind runs it alike, so a ratio of two means something.
BUILT_FOR = ("arch", "isa", "isa_switches", "os")


def is_same_file(old: Record | None, new: Record) -> bool:
    """Whether both records have an artifact, of one sha256."""
    if old is None or old.artifact is None or new.artifact is None:
        return False
    return old.artifact.sha256 == new.artifact.sha256


def list_updates(old: Mapping[str, str | None], new: Mapping[str, str | None], backend: str) -> list[str]:
    """What runs the artifacts of a backend, and is here in another version than in the baseline."""
    recorded = [name for name in list_runtime_libraries(backend) if old.get(name) is not None]
    return [name for name in recorded if old[name] != new.get(name)]


def differing_host(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first field by which two machines are not of one kind; None where they are."""
    return next((field for field in BUILT_FOR if old.get(field) != new.get(field)), None)
