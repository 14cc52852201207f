"""Which arms of a race are alive at once where memory does not hold them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbench.measure.race_rules import Arm

# Two thirds of the free memory may be held by the workers that are alive at once.
MEMORY_SHARE = 0.67
ARM_BASE_BYTES = 150 * 2**20  # a process of its own, measured: 61 MB forked, up to 150 MB once a runtime has run
ARM_FILE_FACTOR = 4  # weights as read, as unpacked, as prepacked by the kernels, and work space


def split_heats(
    arms: Sequence[Arm], fastest: str | None, sizes: Mapping[str, int], *, free_bytes: int, first: int = 0
) -> list[list[Arm]]:
    """The arms in as few heats as the free memory allows. Every heat holds the like-for-like fp32 of its int8 arms and
    the ``fastest`` fp32, twice (its copy is the control). ``sizes``: bytes of each case's artifact. ``first`` turns the
    order, so that other arms meet in the next generation."""
    by_case = {arm.case: arm for arm in arms}
    budget = free_bytes * MEMORY_SHARE
    shared = [] if fastest is None or fastest not in by_case else [fastest]
    heats: list[dict[str, None]] = []
    used = 0.0
    turn = first % len(arms) if arms else 0
    for arm in (*arms[turn:], *arms[:turn]):
        if arm.role == "fp32" and any(other.baseline == arm.case for other in arms):
            continue  # comes with its int8 arms
        wanted = [case for case in (arm.case, arm.baseline) if case is not None and case in by_case]
        extra = sum(_need(sizes[case]) for case in wanted if not heats or case not in heats[-1])
        if not heats or used + extra > budget:
            heats.append(dict.fromkeys(shared))
            used = 2.0 * sum(_need(sizes[case]) for case in shared)
            extra = sum(_need(sizes[case]) for case in wanted if case not in heats[-1])
        heats[-1].update(dict.fromkeys(wanted))
        used += extra
    return [[arm for arm in arms if arm.case in heat] for heat in heats]


def _need(file_bytes: int) -> float:
    return ARM_BASE_BYTES + ARM_FILE_FACTOR * file_bytes
