"""Where the decision depends on the machine: one line for each setting whose hosts are decided apart; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qbench.decide.cases import Setting, setting_name, variant
from qbench.decide.decision import Decision
from qbench.record.schema import NATIVE


def list_differences(decisions: Sequence[Decision]) -> Iterator[str]:
    """``net, 1 thread, batch 1: ship static · onednn on native, keep fp32 on ray:graviton.`` for each setting that was
    decided on several hosts, with answers that differ. Hosts where nothing was measured have none."""
    groups: dict[Setting, list[Decision]] = {}
    for decision in decisions:
        if decision.status != "no answer":
            groups.setdefault(replace(decision.setting, host=NATIVE), []).append(decision)
    for setting, of_hosts in groups.items():
        hosts: dict[str, list[str]] = {}
        for decision in of_hosts:
            hosts.setdefault(_say_answer(decision), []).append(decision.setting.host)
        if len(hosts) > 1:
            said = ", ".join(f"{answer} on {' and '.join(names)}" for answer, names in hosts.items())
            yield f"{setting_name(setting)}: it depends on the machine: {said}."


def _say_answer(decision: Decision) -> str:
    """What to do, in as few words as there are."""
    pick, other = decision.pick, decision.runner_up
    if decision.status == "ship" and pick is not None:
        return f"ship {variant(pick)}"
    if decision.status == "either" and pick is not None and other is not None:
        return f"either {variant(pick)} or {variant(other)}"
    return decision.status
