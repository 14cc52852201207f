"""One case's growing observations while it is measured, and the samples that are stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import CaseError
from qbench.measure.block_size import Block
from qbench.measure.samples import (
    BlockTiming,
    Samples,
    canary_rows,
    counts,
    join_processor_times,
    joined,
    list_blocks,
    shares,
)


@dataclass(kw_only=True)
class Series:
    """The blocks of one case in the order in which they ran, each with its process and round; ``seconds`` of them all.

    ``block``: how its blocks are made, once it has been warm (with ``call_seconds``); ``error``: what ended its worker.
    """

    case: str
    timings: list[BlockTiming] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    round: list[int] = field(default_factory=list)
    seconds: float = 0.0
    block: Block | None = None
    call_seconds: float = 0.0
    discarded: int = 0
    error: CaseError | None = None

    def keep(self, timing: BlockTiming, *, process: int, number: int) -> None:
        """Takes in a block of round ``number``, without the calls that are discarded at its start."""
        self.timings.append(timing)
        self.process.append(process)
        self.round.append(number)

    def list_keys(self) -> list[tuple[int, int]]:
        """The process and the round of each block."""
        return list(zip(self.process, self.round, strict=True))

    def list_canary(self) -> NDArray[np.int64]:
        """The canary's readings, one row a block; none where one of the blocks has none."""
        return canary_rows([timing.canary_ns for timing in self.timings])

    def samples(self, protocol: str, stopped: str, controls: Mapping[int, NDArray[np.float64]]) -> Samples:
        """What is stored; ``controls``: the control's log ratios, by process; those of its own processes are kept."""
        calls, block = joined([timing.calls_ns for timing in self.timings])
        own = {number: ratios for number, ratios in controls.items() if number in set(self.process)}
        return Samples(
            protocol=protocol,
            stopped=stopped,
            calls_ns=calls,
            processor_ns=join_processor_times(self.timings),
            block=block,
            process=np.asarray(self.process, dtype=np.int64),
            round=np.asarray(self.round, dtype=np.int64),
            involuntary=counts([timing.involuntary for timing in self.timings]),
            faults=counts([timing.faults for timing in self.timings]),
            off_core=shares([timing.off_core for timing in self.timings]),
            canary_ns=self.list_canary(),
            discarded=self.block.discard if self.block else self.discarded,
            seconds=self.seconds,
            **join_controls(own),
        )


def join_controls(controls: Mapping[int, NDArray[np.float64]]) -> dict[str, Any]:
    """The control's fields of ``Samples``."""
    sizes = [len(ratios) for ratios in controls.values()]
    return {
        "control_log_ratios": np.concatenate([*controls.values(), np.empty(0)]),
        "control_process": np.repeat(np.asarray(list(controls), dtype=np.int64), sizes),
    }


def split_controls(samples: Samples) -> dict[int, NDArray[np.float64]]:
    """What ``join_controls`` was given."""
    numbers = samples.control_process
    return {int(number): samples.control_log_ratios[numbers == number] for number in np.unique(numbers)}


def resume_series(case: str, kept: Samples | None) -> Series:
    """A series that is empty, or that goes on where a killed run was."""
    if kept is None:
        return Series(case=case)
    return Series(
        case=case,
        timings=list_blocks(kept),
        process=kept.process.tolist(),
        round=kept.round.tolist(),
        seconds=kept.seconds,
        discarded=kept.discarded,
    )
