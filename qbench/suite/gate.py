"""What a suite's gate demands: rules for every case, and other values for some of them.

Docstrings and descriptions go to the JSON Schema that editors read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from qbench.suite.accuracy import AccuracyGate
from qbench.suite.types import (
    BackendName,
    Bytes,
    Count,
    HostName,
    ModelName,
    Number,
    Positive,
    Ratio,
    Seconds,
    Section,
    ShareOrZero,
    Text,
    wrong,
)

if TYPE_CHECKING:
    from qbench.record.schema import CaseKey

Treatment = Literal["hold", "fail", "skip", "pass"]
# The keys of an override that say which cases it is for.
CASE_KEYS = ("model", "mode", "backend", "threads", "batch_size", "recipe", "host")
RULES = ("latency", "accuracy", "size", "cold_start", "memory", "coverage", "portability")


class LatencyGate(Section):
    """What latency must hold."""

    max_regression: ShareOrZero | None = Field(
        0.05, description="Largest slowdown against the stored baseline; null: not gated."
    )
    min_speedup: Positive | None = Field(None, description="Smallest speed-up over fp32; null: not gated.")


class SizeGate(Section):
    """What size must hold."""

    max_ratio: Ratio | None = Field(None, description="Largest int8 bytes over fp32 bytes; null: not gated.")
    max_growth: ShareOrZero | None = Field(
        0.01, description="Largest growth in bytes against the stored baseline; null: not gated."
    )


class ColdStartGate(Section):
    """What loading an artifact in a fresh process, and its first call, must hold."""

    max_regression: Ratio | None = Field(
        None, description="Largest growth of the time against the stored baseline, both run again; null: not gated."
    )
    max_seconds: Seconds | None = Field(
        None, description="Longest load and first call, say `200 ms` (a number: seconds); null: not gated."
    )


class MemoryGate(Section):
    """What the resident set of the measuring process must hold."""

    max_regression: Ratio | None = Field(
        None, description="Largest growth of the peak against the stored baseline; null: not gated."
    )
    max_bytes: Bytes | None = Field(None, description="Largest peak, say `200 MB` (a number: bytes); null: not gated.")


class CoverageGate(Section):
    """What the share of multiply-accumulates in int8 must hold."""

    min_share: Ratio | None = Field(None, description="Smallest share in int8; null: not gated.")
    max_drop: ShareOrZero | None = Field(
        0.01, description="Largest drop against the stored baseline, in shares (0.01: one point); null: not gated."
    )


class PortabilityGate(Section):
    """What int8 artifacts must hold on other hosts than the one that built them."""

    hosts: tuple[HostName, ...] = Field(
        (),
        description="Hosts of the run on which no artifact may lose more than the margin.",
        json_schema_extra={"uniqueItems": True},
    )
    margin: Annotated[Number, Field(ge=0)] | None = Field(
        None, description="Largest loss against the artifact's own answers on native; null: that of accuracy."
    )


class MissingGate(Section):
    """What a case does that only the baseline has, or only the run: fail (exit code 3), or skip (a note)."""

    gone: Literal["fail", "skip"] = Field("fail", description="What a case does that only the baseline has.")
    new: Literal["fail", "skip"] = Field(
        "skip", description="What a case does that only the run has; rules without the baseline hold for it as well."
    )


class AccuracyOverride(Section):
    """Other margins for some cases; the metric is the suite's."""

    margin: Annotated[Number, Field(ge=0)] | None = Field(None, description="Largest loss against fp32.")
    max_regression: Annotated[Number, Field(ge=0)] | None = Field(
        None, description="Largest loss against the baseline's int8."
    )


class GateOverride(Section):
    """Other values for the cases that agree with every key given; what it leaves out stays as it is.

    Where several give the same key for a case, the one that names more of a case counts; of two that name as much, the
    later one.
    """

    model_config = ConfigDict(json_schema_extra={"minProperties": 2})

    model: ModelName | None = Field(None, description="One of the suite's models.")
    mode: Literal["bf16", "fp16", "weight_only", "dynamic", "static", "qat"] | None = Field(None, description="A mode.")
    backend: BackendName | None = Field(None, description="A backend.")
    threads: Count | None = Field(None, description="A number of threads.")
    batch_size: Count | None = Field(None, description="A batch size.")
    recipe: Text | None = Field(None, description="One of the suite's recipes, by name.")
    host: HostName | None = Field(None, description="A host.")
    latency: LatencyGate = Field(LatencyGate(), description="Latency.")
    accuracy: AccuracyOverride = Field(AccuracyOverride(), description="Accuracy.")
    size: SizeGate = Field(SizeGate(), description="Size.")
    cold_start: ColdStartGate = Field(ColdStartGate(), description="Loading and the first call.")
    memory: MemoryGate = Field(MemoryGate(), description="Resident set.")
    coverage: CoverageGate = Field(CoverageGate(), description="Share in int8.")
    portability: PortabilityGate = Field(PortabilityGate(), description="Other hosts.")
    inconclusive: Treatment | None = Field(None, description="What an INCONCLUSIVE does; null: as above.")

    @model_validator(mode="after")
    def _names_cases_and_a_rule(self) -> GateOverride:
        if not self.selects:
            raise wrong(f"expected at least one of {', '.join(CASE_KEYS)}, which say for which cases it is")
        if self.inconclusive is None and not any(True for _ in self.given()):
            raise wrong(f"expected at least one rule: {', '.join(RULES)}")
        return self

    @property
    def selects(self) -> dict[str, Any]:
        """The keys of a case that it names, with their values."""
        return {key: value for key in CASE_KEYS if (value := getattr(self, key)) is not None}

    def selects_case(self, case: CaseKey) -> bool:
        """Whether it is for a case: one that agrees with every key that it names."""
        return all(getattr(case, key) == value for key, value in self.selects.items())

    def given(self) -> Iterator[tuple[str, str, Any]]:
        """Section, key and value of each rule that it gives."""
        yield from _list_given(self)


class GateSpec(Section):
    """What `qbench gate` demands."""

    latency: LatencyGate = Field(LatencyGate(), description="Latency.")
    accuracy: AccuracyGate = Field(AccuracyGate(), description="Accuracy.")
    size: SizeGate = Field(SizeGate(), description="Size.")
    cold_start: ColdStartGate = Field(ColdStartGate(), description="Loading and the first call.")
    memory: MemoryGate = Field(MemoryGate(), description="Resident set.")
    coverage: CoverageGate = Field(CoverageGate(), description="Share in int8.")
    portability: PortabilityGate = Field(PortabilityGate(), description="Other hosts.")
    missing: MissingGate = Field(MissingGate(), description="Cases of one side only.")
    inconclusive: Treatment = Field(
        "hold",
        description="What an INCONCLUSIVE does. hold: exit code 4 where the samples point to a change for the worse "
        "(p < 0.05), else it passes with a note; fail: exit code 1; skip: it counts as not judged; pass: a note.",
    )
    overrides: tuple[GateOverride, ...] = Field(
        (), description="Other values for some cases, in `qbench gate` and in the decision what to ship."
    )

    def given(self) -> Iterator[tuple[str, str, Any]]:
        """Section, key and value of each rule that is written for every case."""
        yield from _list_given(self)

    def settle_metric(self, metric: str | None) -> GateSpec:
        """The rules as they hold for a run that this metric judges (None: not known yet)."""
        accuracy = self.accuracy.judge_any_outputs(metric)
        if accuracy is self.accuracy:
            return self
        return GateSpec.model_construct(_fields_set=self.model_fields_set, **{**dict(self), "accuracy": accuracy})

    @property
    def has_rules(self) -> bool:
        """Whether a rule is written at all; a gate without one would demand only what qbench thinks of."""
        own = any(value is not None for _, _, value in self.given())
        return own or any(value is not None for override in self.overrides for _, _, value in override.given())


def resolve_overrides(gate: GateSpec, case: CaseKey) -> tuple[GateSpec, Mapping[str, str]]:
    """The rules for a case, and for each of their keys that an override gives (``gate.size.max_ratio``), where that
    stands (``gate.overrides[0].size.max_ratio``).

    An override holds for the cases that agree with every key of a case that it names. Where several give one rule for a
    case, the one that names more of the case counts; of two that name as much, the later one.
    """
    keys: dict[str, str] = {}
    for number, override in sorted(enumerate(gate.overrides), key=lambda item: len(item[1].selects)):
        if not override.selects_case(case):
            continue
        for section, key, value in override.given():
            if (section, key, value) == ("accuracy", "margin", None):
                continue  # there is always a margin
            inner = getattr(gate, section)
            gate = gate.model_copy(update={section: inner.model_copy(update={key: value})})
            keys[f"gate.{section}.{key}"] = f"gate.overrides[{number}].{section}.{key}"
        if override.inconclusive is not None:
            gate = gate.model_copy(update={"inconclusive": override.inconclusive})
    return gate, keys


def note_idle_overrides(gate: GateSpec, cases: Iterable[CaseKey], place: Callable[[str], str], *, of: str) -> list[str]:
    """A note for each override that none of the cases agrees with: most likely a slip. ``place``
    turns a key of the suite into file:line; ``of`` says in words whose cases they are."""
    listed = [*cases]
    return [
        f"{place(f'gate.overrides[{number}]')}: gate.overrides[{number}] is for no case of {of}"
        for number, override in enumerate(gate.overrides)
        if not any(override.selects_case(case) for case in listed)
    ]


def _list_given(section: GateSpec | GateOverride) -> Iterator[tuple[str, str, Any]]:
    for name in RULES:
        inner = getattr(section, name)
        for key in type(inner).model_fields:  # in the order of the schema
            if key in inner.model_fields_set:
                yield name, key, getattr(inner, key)
