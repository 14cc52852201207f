"""What a plan is made of: variants, the cases that measure them, and what is skipped."""

from __future__ import annotations

from dataclasses import dataclass

from qbench.models.base import ModelReference
from qbench.plan.decision_rule import DecisionRule
from qbench.quant.recipe import Recipe
from qbench.record.schema import NATIVE, CaseKey, make_case_key, setting_id, variant_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """Model x recipe x backend: what is built."""

    model: ModelReference
    mode: str
    backend: str
    recipe: Recipe

    @property
    def id(self) -> str:
        """``model/mode/backend``, ``model/mode@recipe/backend`` for a recipe that is not the default."""
        return variant_id(self.model.name, self.mode, self.backend, self.recipe.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Variant x threads x batch size x host: what is measured."""

    variant: Variant
    threads: int
    batch_size: int
    host: str = NATIVE

    @property
    def id(self) -> str:
        """``model/mode/backend/t<threads>/b<batch size>``, with ``/<host>`` behind it where that is not ``native``."""
        return setting_id(self.variant.id, self.threads, self.batch_size, self.host)

    @property
    def key(self) -> CaseKey:
        """The case as records name it."""
        variant = self.variant
        return make_case_key(
            variant.model.name,
            variant.mode,
            variant.backend,
            self.threads,
            self.batch_size,
            variant.recipe.name,
            self.host,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCase:
    """A case to measure. ``reference`` is the like-for-like fp32 that it is compared with, None for that fp32 itself;
    ``added`` says that the plan added the case, as a reference that nobody asked for. ``twin`` is a QAT case's fp32
    twin, where the suite asks for twins."""

    case: Case
    reference: CaseKey | None
    added: bool = False
    twin: CaseKey | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """A case that cannot exist here, and a reason that a person can act on; ``too_wide``: that is its threads alone."""

    key: CaseKey
    reason: str
    too_wide: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a run will do. ``cases`` stand in the order in which they run: by model, threads and batch size,
    then by runtime with its fp32 first. ``decision`` is the rule by which one is shipped."""

    suite: str
    cases: tuple[PlannedCase, ...]
    skipped: tuple[Skip, ...]
    notes: tuple[str, ...]
    decision: DecisionRule | None = None
