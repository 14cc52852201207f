"""Where the decision depends on the machine: each setting whose hosts are decided apart; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from qbench.decide.cases import Setting, setting_name
from qbench.decide.decision_type import Decision
from qbench.decide.names import variant_name
from qbench.record.schema import NATIVE


@dataclass(frozen=True, kw_only=True)
class SharedAnswer:
    """What is decided on some hosts: ``text`` says it in as few words as there are, ``decisions`` has one of each."""

    text: str
    decisions: tuple[Decision, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(decision.setting.host for decision in self.decisions)


@dataclass(frozen=True, kw_only=True)
class HostDifference:
    """A setting that was decided on several hosts, with answers that differ; its own host is ``native``."""

    setting: Setting
    answers: tuple[SharedAnswer, ...]

    @property
    def text(self) -> str:
        """``net, 1 thread, batch 1: it depends on the machine: ship static int8 on OpenVINO on native, keep fp32
        on ray:graviton.``"""
        said = ", ".join(f"{answer.text} on {' and '.join(answer.hosts)}" for answer in self.answers)
        return f"{setting_name(self.setting)}: it depends on the machine: {said}."


def list_differences(decisions: Sequence[Decision]) -> Iterator[HostDifference]:
    """The settings whose hosts have different answers. Hosts where nothing was measured have none."""
    groups: dict[Setting, list[Decision]] = {}
    for decision in decisions:
        if decision.status != "no answer":
            groups.setdefault(replace(decision.setting, host=NATIVE), []).append(decision)
    for setting, of_hosts in groups.items():
        alike: dict[str, list[Decision]] = {}
        for decision in of_hosts:
            alike.setdefault(_say_answer(decision), []).append(decision)
        if len(alike) > 1:
            answers = (SharedAnswer(text=text, decisions=tuple(members)) for text, members in alike.items())
            yield HostDifference(setting=setting, answers=tuple(answers))


def _say_answer(decision: Decision) -> str:
    """What to do, in as few words as there are."""
    if decision.status not in ("ship", "either"):
        return decision.status
    pick, runner_up = decision.pick, decision.runner_up
    assert pick is not None
    if decision.status == "ship":
        return f"ship {variant_name(pick)}"
    assert runner_up is not None
    return f"either {variant_name(pick)} or {variant_name(runner_up)}"
