"""The settings of a run measured on the nodes of a cluster: each alone on its machine, on all machines at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from qbench.errors import CaseError
from qbench.files import atomic
from qbench.files.stored_name import name_of, require_name
from qbench.fleet.fleet import Fleet
from qbench.measure.setting import CaseLatency, MeasuredSetting, Setting
from qbench.plan.planner import PlannedCase
from qbench.running.context import RunContext

Settings = Sequence[tuple[str, Sequence[PlannedCase]]]  # by what progress calls them


def measure_on_nodes(
    context: RunContext,
    fleet: Fleet,
    settings: Settings,
    enter: Callable[[Sequence[PlannedCase]], Setting],
) -> Iterator[tuple[Sequence[PlannedCase], MeasuredSetting]]:
    """Each setting as soon as it is measured, on a node of the class of its host. One whose nodes are all lost has
    latencies that say why there is none."""
    machines = sum(fleet.schedule.machines(each.label) for each in fleet.classes)
    with ThreadPoolExecutor(max_workers=max(1, machines), thread_name_prefix="measure") as pool:
        futures = {pool.submit(_measure, context, fleet, planned, enter): (name, planned) for name, planned in settings}
        try:
            for future in as_completed(futures):
                name, planned = futures[future]
                yield planned, future.result()
                context.progress.advance(name)
        except BaseException:
            context.tracker.stopping = True
            fleet.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _measure(
    context: RunContext,
    fleet: Fleet,
    planned: Sequence[PlannedCase],
    enter: Callable[[Sequence[PlannedCase]], Setting],
) -> MeasuredSetting:
    setting = replace(enter(planned), stored=_read_stored(context, planned))
    of_host = fleet.find_class(planned[0].case.host)
    assert of_host is not None  # what has no class is measured here
    try:
        measured, files = fleet.measure(of_host.label, setting)
    except CaseError as error:
        reason = CaseLatency(reason=str(error))
        return MeasuredSetting(latencies={case: reason for case in setting.cases if case not in setting.done})
    for name, content in files.items():
        with atomic.replace_file(context.directory.path / "samples" / require_name(name)) as part:
            part.write_bytes(content)
    if measured.unknown_peak is not None:
        context.progress.note(f"the peak of {measured.node} is not known: {measured.unknown_peak}")
    return measured


def _read_stored(context: RunContext, planned: Sequence[PlannedCase]) -> dict[str, bytes]:
    """The samples that an earlier part of the run has of these cases: later processes are numbered behind theirs."""
    folder = context.directory.path / "samples"
    names = (f"{name_of(each.case.id)}.npz" for each in planned)
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
