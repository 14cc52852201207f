"""Rules of qbench/gating/live_case.py that need no process; what comes of its process pairs: test_rerun.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qbench.errors import CaseError
from qbench.gating import live_case
from qbench.gating.live_case import LiveCase, LiveRules
from qbench.measure.generation import Pace
from qbench.measure.worker import WorkerSpec
from qbench.process.child_process import Limits


@pytest.mark.parametrize("seed", [None, 5])
def test_a_process_pair_is_a_generation_of_short_rounds(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    """20 rounds, at most 1.2 s of blocks for each arm, 10 calls and 0.2 s to warm up; the order of a round is that of
    the seed, 0 where none is given, and of the pair's number."""
    asked: list[dict[str, Any]] = []

    class Stopped:
        """Stands for a generation that does not run."""

        def __init__(self, **options: Any) -> None:
            asked.append(options)

        def run(self) -> None:
            """Ends the case."""
            raise CaseError("it does not run")

    monkeypatch.setattr(live_case, "Generation", Stopped)
    specs = {
        arm: WorkerSpec(case=arm, backend="onednn", file=None, threads=1, batch_size=1, cores=(0,), inputs=())
        for arm in ("baseline", "contender")
    }
    more: dict[str, Any] = {} if seed is None else {"seed": seed}
    live = LiveCase(
        case="case", specs=specs, rules=LiveRules(tolerance=0.05), limits=Limits(), clock=lambda: 5.0, **more
    )
    with pytest.raises(CaseError, match="it does not run"):
        live.measure_pair(3)
    (options,) = asked
    pace = Pace(rounds=20, most_seconds=1.2, warmup_calls=10, warmup_seconds=0.2, clock=live.clock)
    assert (options["number"], options["pace"]) == (3, pace)
    assert [(series.case, case) for series, case in options["entries"]] == [
        ("baseline", "baseline"),
        ("contender", "contender"),
        ("control", "baseline"),
    ]
    assert options["shuffle"].random() == random.Random(f"{seed or 0}/3").random()
