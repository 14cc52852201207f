"""Stage 9, running: the baseline's artifact and the run's, again, in the same session on the same machine.

Each case takes up to 12 generations of three fresh interpreters, one after the other: the baseline's artifact, the
run's, and a second copy of the baseline's as control (``sequential_test`` says when to stop). A stored latency is for
trends only: it differs by 16 to 22 % from one process to the next.

A case whose baseline artifact is gone, or that another kind of machine built, is not run: the stored speed-ups are
then compared, and the verdict says so. A process that dies makes its case INVALID; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.cache import store
from qbench.errors import CaseError
from qbench.gate.baseline import Baseline, artifact_file
from qbench.gate.latency import count_sampled_rules
from qbench.gate.sequential_test import ANALYSES, NotRun, ProcessPair, Rerun, analyze, is_analysis_due, process_pair
from qbench.gate.trusted_suite import suite_to_open
from qbench.machine import fingerprint
from qbench.measure.group import Measured, measure_group
from qbench.measure.paired import Paired
from qbench.measure.protocol import CONTROL
from qbench.measure.worker import INPUTS, WorkerSpec
from qbench.network import Data, prepare_data, request_of
from qbench.plan.planner import measuring_cores
from qbench.process.parent import Limits, call
from qbench.progress.live import Silent
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.suite import Suite

# An artifact is built for these; another CPU of the same kind runs both artifacts, so their ratio means something.
BUILT_FOR = ("arch", "isa", "isa_switches", "os")
# 20 rounds of 6 ms blocks take 0.7 s beside the 3 to 5 s that three fresh interpreters take to start, and leave
# 0.5 % of spread within a process beside the 1 to 1.5 % from one to the next.
ROUNDS = 20
# For long calls: 1.2 s for the contender and as much for the control keep 12 generations within 90 s at 50 ms a call.
MAX_SECONDS = 1.2
CONTENDER = "contender"
Measure = Callable[..., Mapping[str, Measured]]


@dataclass(frozen=True, kw_only=True)
class Rerunner:
    """Runs again every case that the baseline and the run have; the gate calls it with what it read."""

    progress: Silent
    measure: Measure = measure_group
    trust_beside: bool = False  # whether artifacts that lie beside the baseline are run: they are native code
    suite_file: Path | None = None  # where the user says that the run's suite is

    def __call__(self, run: StoredRun, suite: Suite, baseline: Baseline) -> dict[str, Rerun | NotRun]:
        """By case, what running it again gave, or why it could not be run."""
        cases = _pair_cases(run, baseline)
        if not cases:
            return {}
        with store.in_use(store.open_cache()):
            return self._rerun_all(cases, run, suite, baseline)

    def _rerun_all(
        self, cases: Sequence[tuple[Record, Record]], run: StoredRun, suite: Suite, baseline: Baseline
    ) -> dict[str, Rerun | NotRun]:
        cores = measuring_cores(suite, fingerprint.allowed_cores())
        data = _prepare_data(run, suite_to_open(run, suite, self.suite_file))
        self.progress.stage("gate", len(cases))
        rules = count_sampled_rules(run.records, suite.gate, baseline.records)
        reruns: dict[str, Rerun | NotRun] = {}
        for old, new in cases:
            files = _find_files(old, new, baseline, trust_beside=self.trust_beside)
            if isinstance(files, NotRun):
                workers: NotRun | tuple[WorkerSpec, WorkerSpec] = files
            else:
                workers = data if isinstance(data, NotRun) else _prepare_workers(new, files, run, baseline, data, cores)
            if isinstance(workers, NotRun):
                self.progress.note(f"{new.case.id}: not run again: {workers.reason}")
                reruns[new.case.id] = workers
            else:
                reruns[new.case.id] = self.rerun_case(new.case.id, *workers, suite=suite, rules=rules)
            self.progress.advance(new.case.id)
        return reruns

    def rerun_case(self, case: str, baseline: WorkerSpec, contender: WorkerSpec, *, suite: Suite, rules: int) -> Rerun:
        """Process pairs of one case until an interim analysis decides, or until a process dies."""
        limits = Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes)
        pairs: list[ProcessPair] = []
        analysis = None
        while analysis is None or not analysis.decided:
            self.progress.advance(f"{case}: process pair {len(pairs) + 1}", len(pairs) / ANALYSES[-1])
            try:
                pairs.append(self._run_pair(baseline, contender, limits=limits, seed=suite.measure.seed + len(pairs)))
            except CaseError as error:
                return Rerun(pairs=tuple(pairs), analysis=None, reason=str(error))
            if is_analysis_due(len(pairs)):
                analysis = analyze(pairs, suite.gate.latency.max_regression or 0.05, rules=rules)
        return Rerun(pairs=tuple(pairs), analysis=analysis)

    def _run_pair(self, baseline: WorkerSpec, contender: WorkerSpec, *, limits: Limits, seed: int) -> ProcessPair:
        """One generation of fresh processes; raises ``CaseError`` with the reason where one of them dies."""
        ended: list[str] = []  # the protocol tells of the control only when it dies
        measured = self.measure(
            baseline, [contender], protocol=_protocol(seed), limits=limits, fresh=True, watch=ended.append
        )
        result = measured[contender.case]
        if result.error is not None or result.samples is None:
            raise result.error or CaseError("nothing was measured")
        pair = process_pair(result.samples.log_ratios, result.samples.control_log_ratios)
        if pair is None or CONTROL in ended:
            raise CaseError("the control, a second copy of the baseline's artifact, died or gave no block")
        return pair


def _protocol(seed: int) -> Paired:
    """``ROUNDS`` rounds, or what ``MAX_SECONDS`` allow: the interim analyses decide the precision."""
    return Paired(
        precision=1.0,
        max_seconds=MAX_SECONDS,
        half_width=lambda log_ratios: 0.0,
        seconds=time.monotonic,
        least_rounds=ROUNDS,
        seed=seed,
    )


def _pair_cases(run: StoredRun, baseline: Baseline) -> list[tuple[Record, Record]]:
    """The int8 cases that are ok in both, the baseline's record first."""
    before = {record.case.id: record for record in baseline.records if record.status == "ok"}
    return [
        (before[record.case.id], record)
        for record in run.records
        if record.status == "ok" and record.case.mode != "fp32" and record.case.id in before
    ]


def _prepare_data(run: StoredRun, suite: Suite | NotRun) -> Data | NotRun:
    """The suite's data, from the cache where the run left it: what is timed is called with real examples."""
    if isinstance(suite, NotRun):
        return suite
    request = request_of(suite.data, suite.base, train=any(record.case.mode == "qat" for record in run.records))
    limits = Limits(seconds=suite.limits.stage_seconds, memory_bytes=suite.limits.memory_bytes)
    try:
        data: Data = call(prepare_data, request, store.open_cache(), limits=limits)
    except CaseError as error:
        return NotRun(reason=f"the suite's data cannot be read: {error}")
    return data


def _find_files(old: Record, new: Record, baseline: Baseline, *, trust_beside: bool) -> tuple[Path, Path] | NotRun:
    """The baseline's artifact and the run's. One that lies beside the baseline came with a commit, whose author would
    own this machine; one in the cache was built here."""
    old_file = artifact_file(old, beside=baseline.file if trust_beside else None)
    if old_file is None and not trust_beside and artifact_file(old, beside=baseline.file) is not None:
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


def _prepare_workers(
    new: Record, files: tuple[Path, Path], run: StoredRun, baseline: Baseline, data: Data, cores: tuple[int, ...]
) -> tuple[WorkerSpec, WorkerSpec] | NotRun:
    """The two artifacts, ready to be loaded on the same cores with the same examples."""
    here = fingerprint.fingerprint()
    for whose, environment in (
        ("the baseline's artifact", baseline.info.environment),
        ("this run", run.info.environment),
    ):
        field = next((name for name in BUILT_FOR if environment.get(name) != here.get(name)), None)
        if field is not None:
            return NotRun(reason=f"{whose} was built on another kind of machine ({field} differs)")
    if new.case.threads > len(cores):
        return NotRun(reason=f"it takes {new.case.threads} cores, {len(cores)} may be used here")
    return _describe_worker(new, "baseline", files[0], cores, data), _describe_worker(
        new, CONTENDER, files[1], cores, data
    )


def _describe_worker(record: Record, name: str, file: Path, cores: tuple[int, ...], data: Data) -> WorkerSpec:
    key = record.case
    return WorkerSpec(
        case=name,
        backend=key.backend,
        file=file,
        threads=key.threads,
        batch_size=key.batch_size,
        cores=cores[-key.threads :],  # as a run chooses them: the first core serves interrupts and the coordinator
        inputs=data.evaluation(0, min(data.evaluation_count, INPUTS * key.batch_size)),
    )
