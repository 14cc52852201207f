"""Stage 9, running: the baseline's artifact and the run's, again, in the same session on the same machine.

What is decided early leaves; the time that may be spent goes to the rules that are still open (``live_case``,
``sequential_test``): all open cases get process pairs up to the next interim analysis, then those that are still open.
A stored latency is for trends only: it differs by 16 to 22 % from one process to the next.

A case whose artifact is the baseline's, byte by byte, has nothing to be measured, unless each side has versions of its
own that run it (``environments``). One whose baseline artifact is gone,
or that another kind of machine built, is not run: the stored speed-ups are then compared, and the verdict says so. A
process that dies makes its case INVALID; the others go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench import registry
from qbench.backends.libraries import list_runtime_libraries
from qbench.cache import store
from qbench.compare import compare
from qbench.data import Data, request_of
from qbench.data_preparation import prepare_data
from qbench.decide.cases import is_contender, is_unmeasured
from qbench.environments.environment import Environment
from qbench.errors import CaseError
from qbench.gating.baseline import Baseline, artifact_file
from qbench.gating.evidence import differing_host, is_same_file, list_updates
from qbench.gating.live_case import BASELINE, CONTENDER, FP32, KEPT, LiveCase, LiveRules
from qbench.gating.sequential_test import ANALYSES, NotRun, Rerun
from qbench.gating.timed_postprocess import find_timed
from qbench.gating.trusted_suite import suite_to_open
from qbench.machine import fingerprint
from qbench.measure.group import RemoteWorker
from qbench.measure.worker import INPUTS, WorkerSpec
from qbench.models.postprocess import Postprocess
from qbench.modes import float_of
from qbench.plan.planner import measuring_cores
from qbench.process.child_process import Limits, call
from qbench.progress.live import Silent
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.suite import Suite
from qbench.suite.gate import resolve_overrides


@dataclass(frozen=True, kw_only=True)
class Rerunner:
    """Runs again every case that the baseline and the run have as different artifacts; the gate calls it with what it
    read. ``most_seconds`` of measuring for all of them together."""

    progress: Silent
    open_remote: Callable[..., Any] = RemoteWorker
    clock: Callable[[], float] = time.monotonic
    most_seconds: float = math.inf
    trust_beside: bool = False  # whether artifacts that lie beside the baseline are run: they are native code
    suite_file: Path | None = None  # where the user says that the run's suite is
    # The libraries under which an arm's artifacts run: those that built them, where these are not the present ones.
    environments: Mapping[str, Environment] = field(default_factory=dict)

    def __call__(self, run: StoredRun, suite: Suite, baseline: Baseline) -> dict[str, Rerun | NotRun]:
        """By case, what running it again gave, or why it could not be run."""
        return self.run_arms(run, suite, baseline)[0]

    def run_arms(
        self, run: StoredRun, suite: Suite, baseline: Baseline, kept: StoredRun | None = None
    ) -> tuple[dict[str, Rerun | NotRun], dict[str, Rerun | NotRun]]:
        """By case what running it again gave, and the same of the baseline's artifact under the run's libraries, in the
        same rounds, for the cases that are ok in ``kept``, the run of those; one that the run has byte by byte is that
        one."""
        cases = [
            (old, new)
            for old, new in _pair_cases(run, baseline)
            if (not is_same_file(old, new) or self._has_own_versions(run, baseline, new))
            and _list_rules(suite, new).asks
        ]
        if not cases:
            return {}, {}
        with store.in_use(store.open_cache()):
            prepared = self._prepare_all(cases, run, suite, baseline, kept)
            self._run_open([live for live in prepared.values() if isinstance(live, LiveCase)])
        reruns: dict[str, Rerun | NotRun] = {}
        of_kept: dict[str, Rerun | NotRun] = {}
        same = {new.case.id for old, new in cases if is_same_file(old, new)}
        for case, live in prepared.items():
            if isinstance(live, NotRun):
                reruns[case] = live
                continue
            reruns[case] = replace(live.conclude(), own_versions=self._differ)
            if KEPT in live.specs:
                of_kept[case] = replace(live.conclude_kept(), own_versions=self._differ)
            elif case in same:
                of_kept[case] = reruns[case]
        return reruns, of_kept

    def _prepare_all(
        self,
        cases: Sequence[tuple[Record, Record]],
        run: StoredRun,
        suite: Suite,
        baseline: Baseline,
        kept: StoredRun | None,
    ) -> dict[str, LiveCase | NotRun]:
        """Each case, ready to be run, or why it cannot be."""
        cores = measuring_cores(suite, fingerprint.allowed_cores())
        opened = suite_to_open(run, suite, self.suite_file)
        data = prepare_run_data(run, opened)
        self.progress.stage("gate", len(cases))
        prepared: dict[str, LiveCase | NotRun] = {}
        for old, new in cases:
            files = _find_files(old, new, baseline, trust_beside=self.trust_beside)
            timed = opened if isinstance(opened, NotRun) else find_timed(opened, run, new)
            obstacle = next((part for part in (files, data, timed) if isinstance(part, NotRun)), None)
            live: LiveCase | NotRun
            if obstacle is not None:
                live = obstacle
            else:
                live = self._prepare(new, files, run, baseline, data, timed, cores, suite)  # type: ignore[arg-type]
            if isinstance(live, LiveCase) and kept is not None and not is_same_file(old, new):
                live = self._with_kept(live, kept)
            prepared[new.case.id] = live
            if isinstance(live, NotRun):
                self.progress.note(f"{new.case.id}: not run again: {live.reason}")
                self.progress.advance(new.case.id)
        return prepared

    def _with_kept(self, live: LiveCase, kept: StoredRun) -> LiveCase:
        """The case with one more arm, where the baseline's artifact ran under the run's libraries at all."""
        record = kept.by_id.get(live.case)
        if record is None or record.status != "ok":
            return live
        bare = replace(live.specs[BASELINE], case=KEPT, environment=live.specs[CONTENDER].environment)
        return replace(live, specs={**live.specs, KEPT: self._use_own_versions(CONTENDER, bare, kept.info.versions)})

    @property
    def _differ(self) -> bool:
        """Whether the arms run under different libraries."""
        present = [environment.is_present for environment in self.environments.values()]
        return not all(present)

    def _use_own_versions(self, arm: str, spec: WorkerSpec, versions: Mapping[str, str | None]) -> WorkerSpec:
        """The worker of an arm's artifact, under the versions that built it; they are read back from the process."""
        if not self._differ:
            return spec
        environment = self.environments.get(arm)
        variables = {} if environment is None else environment.worker_variables
        return replace(
            spec,
            environment={**spec.environment, **variables},
            versions={name: versions.get(name) for name in list_runtime_libraries(spec.backend)},
        )

    def _has_own_versions(self, run: StoredRun, baseline: Baseline, new: Record) -> bool:
        """Whether the two sides of a case can run, and do, under different versions."""
        changed = list_updates(baseline.info.versions, run.info.versions, new.case.backend)
        return bool(self._differ and changed)

    def rerun_case(self, case: str, baseline: WorkerSpec, contender: WorkerSpec, *, suite: Suite) -> Rerun:
        """Process pairs of one case until an interim analysis decides its time, or until a process dies."""
        live = LiveCase(
            case=case,
            specs={BASELINE: baseline, CONTENDER: contender},
            rules=LiveRules(tolerance=suite.gate.latency.max_regression),
            limits=_limit(suite),
            seed=suite.measure.seed,
            open_remote=self.open_remote,
            clock=self.clock,
        )
        self._run_open([live])
        return live.conclude()

    def _run_open(self, cases: Sequence[LiveCase]) -> None:
        """Process pairs for all cases up to each interim analysis in turn, until none is open or the time is over."""
        started = self.clock()
        for most in ANALYSES:
            for live in [live for live in cases if live.is_open]:
                while live.is_open and len(live.pairs) < most:
                    if self.clock() - started + live.seconds_per_pair > self.most_seconds:
                        break  # another case may take less
                    self.progress.advance(
                        f"{live.case}: process pair {len(live.pairs) + 1}", len(live.pairs) / ANALYSES[-1]
                    )
                    live.run_pair()
                if not live.is_open:
                    self.progress.advance(live.case)

    def _prepare(
        self,
        new: Record,
        files: tuple[Path, Path],
        run: StoredRun,
        baseline: Baseline,
        data: Data,
        timed: Postprocess | None,
        cores: tuple[int, ...],
        suite: Suite,
    ) -> LiveCase | NotRun:
        """The case, ready to be run; the reason where it cannot be."""
        reason = _explain_obstacle(new, run, baseline, cores)
        if reason is not None:
            return NotRun(reason=reason)
        rules = _list_rules(suite, new)
        specs = {
            BASELINE: self._use_own_versions(
                BASELINE, _describe_worker(new, BASELINE, files[0], cores, data, timed), baseline.info.versions
            ),
            CONTENDER: self._use_own_versions(
                CONTENDER, _describe_worker(new, CONTENDER, files[1], cores, data, timed), run.info.versions
            ),
        }
        fp32 = None if rules.promise is None else compare.like_for_like(new, run.records)
        if fp32 is not None and (file := artifact_file(fp32, beside=None)) is not None:
            described = _describe_worker(fp32, FP32, file, cores, data, timed)
            specs[FP32] = self._use_own_versions(CONTENDER, described, run.info.versions)
        else:
            rules = replace(rules, promise=None)  # the run's own figure is judged
        return LiveCase(
            case=new.case.id,
            specs=specs,
            rules=rules,
            limits=_limit(suite),
            seed=suite.measure.seed,
            open_remote=self.open_remote,
            clock=self.clock,
        )


def _list_rules(suite: Suite, record: Record) -> LiveRules:
    """What the suite asks of a case that only running it again can tell."""
    gate, _ = resolve_overrides(suite.gate, record.case)
    return LiveRules(
        tolerance=gate.latency.max_regression,
        promise=gate.latency.min_speedup,
        start=gate.cold_start.max_regression,
    )


def _limit(suite: Suite) -> Limits:
    return Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes)


def _pair_cases(run: StoredRun, baseline: Baseline) -> list[tuple[Record, Record]]:
    """The int8 cases that are ok in both, the baseline's record first."""
    before = {record.case.id: record for record in baseline.records if record.status == "ok"}
    return [
        (before[record.case.id], record)
        for record in run.records
        if is_contender(record) and not is_unmeasured(record) and record.case.id in before
    ]


def prepare_run_data(run: StoredRun, suite: Suite | NotRun) -> Data | NotRun:
    """The suite's data, from the cache where the run left it: what is timed is called with real examples."""
    if isinstance(suite, NotRun):
        return suite
    request = request_of(suite.data, suite.base, train=any(record.case.mode == "qat" for record in run.records))
    try:
        data: Data = call(prepare_data, request, store.open_cache(), limits=_limit(suite))
    except CaseError as error:
        return NotRun(reason=f"the suite's data cannot be read: {error}")
    return data


def _find_files(old: Record, new: Record, baseline: Baseline, *, trust_beside: bool) -> tuple[Path, Path] | NotRun:
    """The baseline's artifact and the run's. One that lies beside the baseline came with a commit, whose author would
    own this machine; one in the cache was built here."""
    old_file = artifact_file(old, beside=baseline.file if trust_beside else None)
    if old_file is None and artifact_file(old, beside=baseline.file) is not None:
        return NotRun(
            reason="the baseline's artifact is not in the cache, only beside the baseline, and it is native code: "
            "--trust-baseline-artifacts runs it, where you know who committed it"
        )
    if old_file is None:
        return NotRun(reason="the baseline's artifact is neither beside the baseline nor in the cache")
    new_file = artifact_file(new, beside=None)
    return (
        NotRun(reason="the artifact of this run is no longer in the cache")
        if new_file is None
        else (old_file, new_file)
    )


def _explain_obstacle(new: Record, run: StoredRun, baseline: Baseline, cores: tuple[int, ...]) -> str | None:
    """Why the two artifacts cannot be run on these cores; None where they can."""
    here = fingerprint.fingerprint()
    for whose, environment in (
        ("the baseline's artifact", baseline.info.environment),
        ("this run", run.info.environment),
    ):
        field = differing_host(environment, here)
        if field is not None:
            return f"{whose} was built on another kind of machine ({field} differs)"
    return (
        None if new.case.threads <= len(cores) else f"it takes {new.case.threads} cores, {len(cores)} may be used here"
    )


def _describe_worker(
    record: Record, name: str, file: Path, cores: tuple[int, ...], data: Data, timed: Postprocess | None
) -> WorkerSpec:
    key = record.case
    return WorkerSpec(
        case=name,
        backend=key.backend,
        file=file,
        threads=key.threads,
        batch_size=key.batch_size,
        cores=cores[-key.threads :],  # as a run chooses them: the first core serves interrupts and the coordinator
        inputs=data.evaluation(0, min(data.evaluation_count, INPUTS * key.batch_size)),
        environment=registry.load("host", key.host).environment(),
        precision=float_of(key.mode),
        postprocess=timed,
    )
