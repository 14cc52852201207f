"""What `qbench run --quick` changes in a suite: a first decision in the shortest honest time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

EXAMPLES = 500  # no loss among so many keeps a margin of one point: 3 / 500 is the upper limit of the share lost
OVERRIDES = (
    f"data.evaluate.at_most={EXAMPLES}",
    "data.calibrate.seeds=1",
    "evaluate.layers=false",
    "limits.train_qat=false",
    "measure.protocol=paired",
    "measure.spend=screening",
    "measure.processes=1",
    "measure.max_seconds=5.0",  # cuts the rounds of calls of more than 0.2 s
    "measure.cold_starts=1",
)


def list_written(overrides: Sequence[str], quick: bool) -> tuple[str, ...]:
    """Those of a suite's overrides that somebody wrote: of a quick run those behind its own."""
    return tuple(overrides[len(OVERRIDES) if quick else 0 :])
