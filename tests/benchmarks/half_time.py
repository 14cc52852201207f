"""How often the answer at half time of a race is the final one.

    python tests/benchmarks/half_time.py [RUNS]              # simulation over recorded noise, as race_error.py
    python tests/benchmarks/half_time.py --real RUN ...      # folders of runs, each setting by the decision's own rule

Half time is the end of the first generation of processes by which half of the race's seconds (of real runs: of its
generations, the screening among them) are over. Of simulated races also: how often what led then may be shipped at the
end. With Clopper-Pearson limits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from race_error import FIELDS, say
from simulated_race import recorded_noises, simulate

from qbench.decide.cases import of_setting, settings
from qbench.decide.choose import choose
from qbench.decide.decision import make_contest
from qbench.decide.judged import Judged
from qbench.measure import samples
from qbench.measure.race_rules import RaceRules
from qbench.measure.samples import Samples
from qbench.record.schema import Record
from qbench.record.stored_run import read_run
from qbench.report.build import judge


def simulate_all(runs: int) -> None:
    """Prints the rows of every field of arms under every noise."""
    for noise in recorded_noises():
        for name, seconds in FIELDS.items():
            random = np.random.default_rng(0)
            raced = [simulate(seconds, noise, RaceRules(), random) for _ in range(runs)]
            print(f"{noise.name}, {name}")
            say("the leader at half time is the final one", sum(r.half_time == r.leader for r in raced), runs, "-")
            say("the leader at half time may be shipped", sum(r.half_time in r.tied for r in raced), runs, "-")


def count_real(folders: Sequence[Path]) -> None:
    """Prints how many settings of stored runs had the final pick, and the final verdict, at half time."""
    picks, verdicts, count = 0, 0, 0
    for folder in folders:
        judged = judge(read_run(folder))
        for setting in settings(judged.records):
            records = of_setting(setting, judged.records)
            known = {each.case.id: samples.load(folder / each.samples) for each in records if each.samples}
            last = max((int(each.process.max()) for each in known.values() if len(each.process)), default=0)
            if not last:
                continue
            half = {case: _cut(each, (last + 1) // 2) for case, each in known.items()}
            (pick, verdict), (final, final_verdict) = (_decide(judged, records, each) for each in (half, known))
            picks, verdicts, count = picks + (pick == final), verdicts + (verdict == final_verdict), count + 1
            print(f"{folder.name} {setting.model}: {verdict} {pick} -> {final_verdict} {final}")
    say("the pick at half time is the final one", picks, count, "-")
    say("the verdict at half time is the final one", verdicts, count, "-")


def _cut(known: Samples, last: int) -> Samples:
    """The samples of generations before ``last``."""
    kept = np.flatnonzero(known.process < last)
    calls = np.isin(known.block, kept)
    return replace(
        known,
        calls_ns=known.calls_ns[calls],
        block=np.searchsorted(kept, known.block[calls]),
        process=known.process[kept],
        round=known.round[kept],
    )


def _decide(judged: Judged, records: Sequence[Record], known: dict[str, Samples]) -> tuple[str | None, str]:
    """The pick and the verdict of what is known; the limits are those of the whole run."""
    partial = replace(judged, samples=lambda record: vars(known[record.case.id]))
    without = [replace(record, speedup=None, speedup_fastest=None) for record in records]
    choice = choose(without, judged.checks, make_contest(partial, without))
    return None if choice.pick is None else choice.pick.case.id, choice.verdict


def main() -> None:
    """Prints one of the two."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=300)
    parser.add_argument("--real", nargs="+", type=Path)
    asked = parser.parse_args()
    if asked.real:
        count_real(asked.real)
    else:
        simulate_all(asked.runs)


if __name__ == "__main__":
    main()
