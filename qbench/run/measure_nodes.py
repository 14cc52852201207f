"""The settings of a run measured on the nodes of a cluster: each alone on its machine, on all machines at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import CaseError
from qbench.files import atomic
from qbench.files.stored_name import name_of, require_name
from qbench.fleet.fleet import Fleet
from qbench.machine.peak import Peak
from qbench.measure.measure import CaseLatency
from qbench.measure.race_rules import Arm
from qbench.measure.setting import SettingJob
from qbench.plan.planner import PlannedCase
from qbench.run.context import RunContext

Settings = Sequence[tuple[str, Sequence[PlannedCase]]]  # by what progress calls them


@dataclass(frozen=True, kw_only=True)
class MeasuredSetting:
    """The latencies of a setting's cases by id, the peak of the core that they were measured on, the seconds that it
    took; on which ``node`` of a cluster, and what Ray's own processes took of it (None: on this machine)."""

    planned: Sequence[PlannedCase]
    latencies: Mapping[str, CaseLatency]
    peak: Peak | None
    seconds: float
    node: str | None = None
    cluster_load: float | None = None


def measure_on_nodes(
    context: RunContext,
    fleet: Fleet,
    data: Data,
    settings: Settings,
    artifacts: Mapping[str, Artifact],
    enter: Callable[[Sequence[PlannedCase]], list[Arm]],
) -> Iterator[MeasuredSetting]:
    """Each setting as soon as it is measured, on a node of the class of its host. One whose nodes are all lost has
    latencies that say why there is none."""
    machines = sum(fleet.schedule.machines(each.label) for each in fleet.classes)
    with ThreadPoolExecutor(max_workers=max(1, machines), thread_name_prefix="measure") as pool:
        futures: dict[Future[MeasuredSetting], str] = {
            pool.submit(_measure, context, fleet, data, planned, artifacts, enter): name for name, planned in settings
        }
        try:
            for future in as_completed(futures):
                yield future.result()
                context.progress.advance(futures[future])
        except BaseException:
            context.tracker.stopping = True
            fleet.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _measure(
    context: RunContext,
    fleet: Fleet,
    data: Data,
    planned: Sequence[PlannedCase],
    artifacts: Mapping[str, Artifact],
    enter: Callable[[Sequence[PlannedCase]], list[Arm]],
) -> MeasuredSetting:
    started = time.monotonic()
    job = SettingJob(
        suite=context.suite,
        data=data,
        arms=tuple(enter(planned)),
        cases={each.case.id: each.case for each in planned},
        artifacts={each.case.id: artifacts[each.case.variant.id] for each in planned},
        done=frozenset(context.tracker.done),
        stored=_read_stored(context, planned),
        limits=context.limits,
    )
    of_host = fleet.find_class(planned[0].case.host)
    assert of_host is not None  # what has no class is measured here
    try:
        measured = fleet.measure(of_host.label, job)
    except CaseError as error:
        reason = CaseLatency(reason=str(error))
        unknown = {each.case.id: reason for each in planned if each.case.id not in context.tracker.done}
        return MeasuredSetting(planned=planned, latencies=unknown, peak=None, seconds=time.monotonic() - started)
    for name, content in measured.samples.items():
        with atomic.replace_file(context.directory.path / "samples" / require_name(name)) as part:
            part.write_bytes(content)
    if measured.done.unknown_peak is not None:
        context.progress.note(f"the peak of {measured.node.title} is not known: {measured.done.unknown_peak}")
    return MeasuredSetting(
        planned=planned,
        latencies=measured.done.latencies,
        peak=measured.done.peak,
        seconds=time.monotonic() - started,
        node=measured.node.title,
        cluster_load=measured.load.cores,
    )


def _read_stored(context: RunContext, planned: Sequence[PlannedCase]) -> dict[str, bytes]:
    """The samples that an earlier part of the run has of these cases: later processes are numbered behind theirs."""
    folder = context.directory.path / "samples"
    names = (f"{name_of(each.case.id)}.npz" for each in planned)
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
