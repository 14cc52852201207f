"""What is decided of one setting; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qbench.decide.cases import Setting
from qbench.decide.choose import Verdict
from qbench.decide.limits import LimitCheck
from qbench.decide.paired_times import Comparison
from qbench.record.schema import Record
from qbench.suite.settings import ObjectiveName


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do in one setting.

    ``pick`` is the int8 variant meant (also where fp32 stays), ``headline`` what to do, ``sentence`` the same with the
    setting, figures and how sure it is: what is said first, everywhere. ``fp32`` is what the pick was held against, and
    ``over_fp32`` how it compares in what is minimized; ``fastest`` is the fastest fp32, and ``over_fastest`` how the
    pick's time compares with it. ``tied``: case ids that tie with the best in what is minimized, ``deciding_step`` what
    told the pick from them. ``probability``: how often the same would be chosen again, ``capped``: why no oftener; null
    where nothing is shipped or kept, and where planned cases (``missing``) have no record. ``would_change``: what else
    would be shipped if. ``not_it``: a reason, and the case ids that it holds for. ``checks``: the limits held against
    each int8 case, by id. ``notes``: what a decider should know besides.
    ``next_step``: what would decide what is open, or that nothing is.
    """

    setting: Setting
    verdict: Verdict
    headline: str
    sentence: str = ""
    objective: ObjectiveName = "latency"
    pick: Record | None = None
    runner_up: Record | None = None
    fp32: Record | None = None
    over_fp32: Comparison | None = None
    fastest: Record | None = None
    over_fastest: Comparison | None = None
    tied: tuple[str, ...] = ()
    tie: str | None = None
    deciding_step: str | None = None
    probability: float | None = None
    capped: str | None = None
    behind: str | None = None
    would_change: tuple[str, ...] = ()
    not_it: tuple[tuple[str, tuple[str, ...]], ...] = ()
    checks: Mapping[str, tuple[LimitCheck, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    next_step: str = ""
    missing: tuple[str, ...] = ()

    @property
    def status(self) -> Verdict | Literal["incomplete"]:
        """The verdict, or that it is ``incomplete``: planned cases are missing, one of which may be better than what it
        names to be shipped or kept."""
        decided = self.verdict in ("ship", "either", "keep fp32", "none qualifies")
        return "incomplete" if self.missing and decided else self.verdict
