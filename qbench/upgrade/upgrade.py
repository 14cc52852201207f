"""The story of an upgrade: the old side is run, then its files under the new libraries, then files built anew by these;
all three are timed in one session, in the same rounds, and each way to upgrade is judged by the suite's gate.

The three arms tell three effects apart: what the runtime does to a file that stays as it is, what building anew adds,
and both together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.cache import store
from qbench.decide.names import variant_name
from qbench.environments.environment import Environment
from qbench.errors import NotComparable, QbenchError
from qbench.gating.baseline import write_baseline
from qbench.gating.exit_codes import EXIT_CODES, Outcome
from qbench.gating.gate import Gated, gate_run
from qbench.gating.live_case import BASELINE, CONTENDER
from qbench.gating.rerun import Rerunner, prepare_run_data
from qbench.gating.sequential_test import NotRun, Rerun
from qbench.gating.suite_program import FIRST_LOOK, run_suite
from qbench.gating.trusted_suite import suite_to_open
from qbench.measure.worker import INPUTS
from qbench.process.child_process import Limits
from qbench.process.offspring import offspring
from qbench.record.artifact_file import find_in_cache
from qbench.record.stored_run import StoredRun, read_run
from qbench.suite import Suite
from qbench.upgrade.asked import Request, Sides, find_sides
from qbench.upgrade.case_change import CaseChange, compare_files, describe_change
from qbench.upgrade.first_layer import find_first_layer

KEPT, ANEW = "kept", "anew"
_PREFERENCE = (0, 4, 1, 3)  # exit codes, the best first
# (suite, words, name of the side, environment) -> the run's folder
Build = Callable[[Sequence[str], str, Environment], Path]


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """What an upgrade comes to. ``before`` and ``after``: the versions of the packages that were named, ``along`` of
    what came with them (None: it was not there); ``gates`` by way; ``changes`` of each case that the old side has,
    way by way."""

    suite: str
    before: Mapping[str, str | None]
    after: Mapping[str, str | None]
    along: Mapping[str, tuple[str | None, str]]
    gates: Mapping[str, Gated]
    changes: tuple[CaseChange, ...]

    @property
    def way(self) -> str:
        """The better of the two ways; that of the files as they are where both are as good."""
        return min((KEPT, ANEW), key=lambda way: _PREFERENCE.index(self.gates[way].exit_code))

    @property
    def exit_code(self) -> int:
        """That of the gate of the better way."""
        return self.gates[self.way].exit_code

    @property
    def outcome(self) -> Outcome:
        """That of the gate of the better way."""
        return self.gates[self.way].outcome

    @property
    def joined(self) -> Gated:
        """Both gates as one, each rule with its way; what the other way breaks is noted where it is worse than what
        the better one comes to, so that the exit code is that of the better one."""
        best, verdicts = self.way, []
        for way, gated in self.gates.items():
            suffix = " (same file)" if way == KEPT else " (built anew)"
            for verdict in gated.verdicts:
                worse = _PREFERENCE.index(EXIT_CODES[verdict.effect]) > _PREFERENCE.index(self.exit_code)
                aside = way != best and worse
                renamed = replace(verdict, rule=f"{verdict.rule}{suffix}")
                verdicts.append(replace(renamed, settled="note") if aside else renamed)
        chosen = self.gates[best]
        notes = tuple(dict.fromkeys(note for gated in self.gates.values() for note in gated.notes))
        return replace(chosen, verdicts=tuple(verdicts), notes=notes)


def upgrade(request: Request, rerunner: Rerunner, *, build: Build | None = None) -> Upgraded:
    """What the new libraries do to the cases that they make or run.

    Raises ``UsageError`` where nothing differs, an environment cannot be made or the suite cannot be run,
    ``NotComparable`` where no case of the old side is ok.
    """
    with store.in_use(store.open_cache()):  # the environments are
        return _upgrade(request, rerunner, build)


def _upgrade(request: Request, rerunner: Rerunner, build: Build | None) -> Upgraded:
    progress = rerunner.progress
    sides = find_sides(request, progress.note)
    build = build or (lambda words, name, environment: _build(request, sides, words, name, environment))
    old = request.run or build([], "the old side", sides.old)
    kept = build(["--artifacts", str(old)], "the old files under the new libraries", sides.new)
    anew = build([], "files built anew", sides.new)
    runs = {KEPT: read_run(kept), ANEW: read_run(anew)}
    rerunner = replace(rerunner, environments={BASELINE: sides.old, CONTENDER: sides.new})
    with tempfile.TemporaryDirectory(dir=offspring().make_folder()) as home:
        gates, measured = _judge(old, runs, sides, rerunner, Path(home))
    return Upgraded(
        suite=request.suite.suite,
        before=sides.old.list_versions(pin.name for pin in request.to),
        after=sides.new.list_versions(pin.name for pin in request.to),
        along={
            locked.pin.name: (sides.old.version_of(locked.pin.name), locked.pin.version)
            for locked in sides.new.lock
            if locked.pin.name not in {pin.name for pin in request.to}
            and sides.old.version_of(locked.pin.name) != locked.pin.version
        },
        gates=gates,
        changes=tuple(_describe(read_run(old), runs, sides, measured, request.suite)),
    )


def _build(request: Request, sides: Sides, words: Sequence[str], name: str, environment: Environment) -> Path:
    """The folder of a run of the cases that are concerned."""
    return run_suite(
        request.suite.file,
        [*words, "--filter", ",".join(sides.cases)],
        name=name,
        out=request.out,
        settings=[*request.suite.overrides, *FIRST_LOOK],
        environment=environment,
        quiet=request.quiet,
        from_here=False,
    )


Measured = Mapping[str, Mapping[str, Rerun | NotRun]]


def _judge(
    old: Path, runs: Mapping[str, StoredRun], sides: Sides, rerunner: Rerunner, home: Path
) -> tuple[dict[str, Gated], Measured]:
    """The gate of each way, and what running the cases again gave, by way and case."""
    try:
        baseline = write_baseline(old, home / "baseline", allow_failed=True)
    except QbenchError as error:
        raise NotComparable(f"the old side: {error}") from error
    only = ",".join(sides.cases)
    measured: dict[str, dict[str, Rerun | NotRun]] = {KEPT: {}, ANEW: {}}

    def measure_anew(run: StoredRun, suite: Suite, held: object) -> Mapping[str, Rerun | NotRun]:
        measured[ANEW], measured[KEPT] = rerunner.run_arms(run, suite, held, runs[KEPT])  # type: ignore[arg-type]
        return measured[ANEW]

    def measure_kept(run: StoredRun, suite: Suite, held: object) -> Mapping[str, Rerun | NotRun]:
        waiting = tuple(record for record in run.records if record.case.id not in measured[KEPT])
        alone = rerunner.run_arms(replace(run, records=waiting), suite, held)[0]  # type: ignore[arg-type]
        measured[KEPT] = {**measured[KEPT], **alone}
        return measured[KEPT]

    gates = {
        way: replace(
            gate_run(runs[way].folder, baseline, rerun=measure, only=only, as_run=True, ref="the old side"),
            baseline=Path(old.name),
        )
        for way, measure in ((ANEW, measure_anew), (KEPT, measure_kept))
    }
    return {way: gates[way] for way in (KEPT, ANEW)}, measured


def _describe(
    old: StoredRun, runs: Mapping[str, StoredRun], sides: Sides, measured: Measured, suite: Suite
) -> list[CaseChange]:
    changes = []
    for case in sides.cases:
        before = old.by_id.get(case)
        if before is None or before.status != "ok":
            continue
        for way, run in runs.items():
            rerun = measured[way].get(case)
            rerun = rerun if isinstance(rerun, Rerun) else None
            change = describe_change(way, variant_name(before), (old, before), (run, run.by_id.get(case)), rerun)
            kept = measured[KEPT].get(case)
            if way == ANEW and rerun is not None and isinstance(kept, Rerun) and not change.same_file:
                change = replace(change, rebuilt=compare_files(rerun.pairs, kept.pairs))
            changes.append(_with_first_layer(change, old, sides, suite))
    return changes


def _with_first_layer(change: CaseChange, old: StoredRun, sides: Sides, suite: Suite) -> CaseChange:
    """The change with the layer from which on the bits of the same file differ, where that can be told."""
    record = old.by_id[change.case]
    same = change.outputs is None or change.outputs.same_bits
    if same or not change.same_file or record.artifact is None or record.artifact.format != "onnx":
        return change
    file, opened = find_in_cache(record), suite_to_open(old, suite, None)
    data = prepare_run_data(old, opened)
    if file is None or isinstance(data, NotRun):
        return change
    inputs = data.evaluation(0, min(data.evaluation_count, INPUTS))
    limits = Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes)
    return replace(change, first_layer=find_first_layer(file, inputs, sides.old, sides.new, limits))
