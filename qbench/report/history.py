"""The runs of a suite over time: what stayed, what changed, and with which commit."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from qbench import formatting
from qbench.compare import environment
from qbench.decide import cases
from qbench.errors import QbenchError, UsageError, first_names
from qbench.machine import fingerprint
from qbench.record import jsonl, run_files
from qbench.record.schema import Record
from qbench.record.stored_run import RUN, MetricInfo, RunInfo, StoredRun, read_run
from qbench.stats import change_points

State = Literal["whole", "files lost", "quick look", "unfinished", "no case ok", "damaged"]
FOLLOWED: tuple[State, ...] = ("whole", "files lost")  # what the lines go through
LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What is followed: ``read`` takes it from a record (None: not measured), ``write`` gives it with its unit,
    ``better`` is the sign of its gain, ``least_noise`` the smallest standard deviation of its logarithm that is
    believed."""

    key: str
    title: str
    better: float
    least_noise: float
    read: Callable[[Record], float | None]
    write: Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """One run of the suite; ``info`` is null where it cannot be read, ``note`` says why a run is not in the lines, or
    which of its cases lost files: their records hold what the lines show."""

    name: str
    state: State
    note: str = ""
    info: RunInfo | None = None
    records: Mapping[str, Record]

    @property
    def commit(self) -> str:
        """The commit that the suite was at, with its subject; empty where it is not known."""
        commit = None if self.info is None else self.info.commit
        return "" if commit is None else f"{commit.short} {commit.subject}".strip()

    @property
    def day(self) -> str:
        """``2026-01-31``; the run's name where no time is known."""
        return (self.info.started or "")[:10] if self.info is not None and self.info.started else self.name


@dataclass(frozen=True, kw_only=True)
class EnvironmentMark:
    """Between run ``position`` - 1 and ``position`` the environment or the suite changed: ``texts`` say what."""

    position: int
    number: int
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HistoryLine:
    """One quantity of one case over the runs of a panel; None where it has no value. ``first`` is its first level,
    ``changes`` the runs at which a new one begins."""

    record: Record
    quantity: Quantity
    values: tuple[float | None, ...]
    first: float
    changes: tuple[int, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """The values over the first level."""
        return tuple(None if value is None else value / self.first for value in self.values)

    @property
    def latest(self) -> float:
        """The last value that there is."""
        return next(value for value in reversed(self.values) if value is not None)


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """A new level from run ``position`` on: ``ratio`` is that level over the one before."""

    series: HistoryLine
    position: int
    ratio: float

    @property
    def for_better(self) -> bool:
        """Whether the quantity gained."""
        return (self.ratio - 1) * self.series.quantity.better > 0


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The runs of one machine, in order; ``aside`` are its runs that no line goes through."""

    machine: str
    runs: tuple[PastRun, ...]
    aside: tuple[PastRun, ...]
    marks: tuple[EnvironmentMark, ...]
    quantities: tuple[Quantity, ...]
    series: tuple[HistoryLine, ...]
    changes: tuple[LevelChange, ...]


@dataclass(frozen=True, kw_only=True)
class History:
    """All runs of a suite, a panel for each machine; ``lost`` are those of which not even the machine is known."""

    suite: str
    panels: tuple[Panel, ...]
    lost: tuple[PastRun, ...]

    @property
    def runs(self) -> int:
        """How many there are, readable or not."""
        return len(self.lost) + sum(len(panel.runs) + len(panel.aside) for panel in self.panels)


def read_history(folder: Path) -> History:
    """The history of the runs in a suite's folder; raises ``UsageError`` where there is none."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; --history takes a suite's, reports/<suite>")
    files = [path for name in (RUN, jsonl.RECORDS) for path in folder.glob(f"*/{name}")]
    names = {path.parent.name for path in files} - {LATEST}
    runs = sorted((_read_run(folder / name) for name in names), key=_order)
    if not runs:
        raise UsageError(f"{folder}: no run is there; --history takes a suite's folder, reports/<suite>")
    machines: dict[str, list[PastRun]] = {}
    for run in runs:
        if run.info is not None:
            machines.setdefault(_machine_key(run.info), []).append(run)
    suites = [run.info.suite.name for run in runs if run.info is not None]
    return History(
        suite=suites[-1] if suites else folder.name,
        panels=tuple(_make_panel(runs_of_machine, list(machines.values())) for runs_of_machine in machines.values()),
        lost=tuple(run for run in runs if run.info is None),
    )


def _order(run: PastRun) -> tuple[str, str]:
    return (run.info.started or "") if run.info is not None else "", run.name


def _read_run(folder: Path) -> PastRun:
    try:
        run = read_run(folder, lenient=True)
    except QbenchError as error:
        return PastRun(name=folder.name, state="damaged", note=str(error).replace(f"{folder.parent}/", ""), records={})
    info = run.info
    records = {record.case.id: record for record in run.records if record.status == "ok"}
    missing = sum(case not in run.by_id for case in info.plan.cases)
    state: State = "whole"
    note = ""
    if info.quick is not None:
        state, note = "quick look", info.quick.text
    elif not records:
        state, note = "no case ok", "; ".join(_list_reasons(run.records)) or "no case was recorded"
    elif missing:
        note = f"{missing:,} of {len(info.plan.cases):,} planned cases have no record"
        cut = f"{note}, though the run ended: {jsonl.RECORDS} is cut"
        state, note = ("unfinished", note) if info.finished is None else ("damaged", cut)
    elif info.finished is None:
        state, note = "unfinished", "every case has a record, but the run did not end"
    elif lost := _list_lost(run):
        names = first_names(lost, 3)
        state, note = "files lost", f"samples or predictions are gone or cut, the records are whole: {names}"
    return PastRun(name=folder.name, state=state, note=note, info=info, records=records)


def _list_lost(run: StoredRun) -> list[str]:
    """The cases whose samples or predictions are gone or cut."""
    return [
        record.case.id
        for record in run.records
        if any(name and not run_files.is_whole(run.folder, name) for name in (record.samples, record.predictions))
    ]


def _list_reasons(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(f"{record.status}: {record.reason}" for record in records if record.reason))[:3]


def _machine_key(info: RunInfo) -> str:
    return repr([info.environment.get(field) for field in fingerprint.COMPARED])


def _machine_name(info: RunInfo, machines: Sequence[RunInfo]) -> str:
    """The CPU, and what else tells this machine from the other ones."""
    environment = info.environment
    differing = {
        field
        for field in fingerprint.COMPARED
        for machine in machines
        if environment.get(field) != machine.environment.get(field)
    }
    fields = [field for field in fingerprint.COMPARED if field == "cpu" or field in differing]
    said = [_say_field(field, environment.get(field)) for field in fields]
    return ", ".join(part for part in said if part) or "a machine that is not named"


def _say_field(field: str, value: object) -> str:
    if value is None:
        return ""
    words = ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
    return words if field == "cpu" else f"{field.replace('_', ' ')} {words}"


# --- one machine -----------------------------------------------------------------------------------------------


def _make_panel(runs: Sequence[PastRun], machines: Sequence[Sequence[PastRun]]) -> Panel:
    whole = tuple(run for run in runs if run.state in FOLLOWED)
    infos = [of_machine[-1].info for of_machine in machines if of_machine[-1].info is not None]
    last = runs[-1].info
    assert last is not None
    followed = quantities(last.metric)
    series = tuple(_make_series(whole, followed))
    return Panel(
        machine=_machine_name(last, infos),
        runs=whole,
        aside=tuple(run for run in runs if run.state not in FOLLOWED),
        marks=tuple(_find_marks(whole)),
        quantities=followed,
        series=series,
        changes=tuple(sorted(_list_changes(series), key=lambda change: -change.position)),
    )


def quantities(metric: MetricInfo | None) -> tuple[Quantity, ...]:
    """What is followed over the runs of a suite with this metric."""
    name, sign = ("accuracy", 1.0) if metric is None else (metric.name, metric.sign)
    return (
        Quantity(key="speedup", title="speed-up over fp32", better=1.0, least_noise=0.005,
                 read=lambda record: record.speedup.value if record.speedup else None,
                 write=lambda value: f"{value:.2f}\N{MULTIPLICATION SIGN}"),
        Quantity(key="p50", title="time of a call (p50)", better=-1.0, least_noise=0.01, read=cases.p50,
                 write=formatting.duration),
        Quantity(key="accuracy", title=f"accuracy ({name})", better=sign, least_noise=0.0005,
                 read=lambda record: record.accuracy.value if record.accuracy else None,
                 write=partial(_write_score, metric)),
        Quantity(key="size", title="size", better=-1.0, least_noise=0.001,
                 read=lambda record: record.artifact.size_bytes if record.artifact else None,
                 write=formatting.size),
        Quantity(key="memory", title="memory (peak)", better=-1.0, least_noise=0.005,
                 read=lambda record: record.memory.peak_rss_bytes if record.memory else None,
                 write=formatting.size),
    )  # fmt: skip


def _write_score(metric: MetricInfo | None, score: float) -> str:
    if metric is None or metric.percent:
        return f"{score * 100:.2f} %"
    return f"{score:.4g} {metric.own_unit}".rstrip()


def _find_marks(runs: Sequence[PastRun]) -> Iterator[EnvironmentMark]:
    number = 0
    for position in range(1, len(runs)):
        old, new = runs[position - 1].info, runs[position].info
        assert old is not None
        assert new is not None
        differing = [each for each in environment.differences(old, new) if each[0] != "commit"]
        texts = [f"{name}: {before} → {now}" for name, before, now in differing]
        changed = len([line for line in environment.suite_changes(old, new) if line[:1] in "+-"])
        texts += [f"the suite's text: {changed} lines"] if changed else []
        if texts:
            number += 1
            yield EnvironmentMark(position=position, number=number, texts=tuple(texts))


def _make_series(runs: Sequence[PastRun], followed: Sequence[Quantity]) -> Iterator[HistoryLine]:
    """Every series with more than one value; those of a quantity share their noise, all of the panel one error."""
    ids = dict.fromkeys(case for run in reversed(runs) for case in run.records)
    latest = {case: next(run.records[case] for run in reversed(runs) if case in run.records) for case in ids}
    for quantity in followed:
        values_by_case = {case: tuple(_read(quantity, run.records.get(case)) for run in runs) for case in ids}
        values_by_case = {
            case: values for case, values in values_by_case.items() if sum(value is not None for value in values) > 1
        }
        logs = [[math.log(value) for value in values if value is not None] for values in values_by_case.values()]
        positions_by_case = change_points.find_change_points(
            logs, least_noise=quantity.least_noise, families=len(followed)
        )
        for (case, values), positions in zip(values_by_case.items(), positions_by_case, strict=True):
            present = [position for position, value in enumerate(values) if value is not None]
            changes = tuple(present[position] for position in positions)
            first = statistics.median(value for value in values[: changes[0] if changes else None] if value is not None)
            yield HistoryLine(record=latest[case], quantity=quantity, values=values, first=first, changes=changes)


def _read(quantity: Quantity, record: Record | None) -> float | None:
    """A value that has a logarithm."""
    value = None if record is None else quantity.read(record)
    return value if value is not None and value > 0 else None


def _list_changes(series: Sequence[HistoryLine]) -> Iterator[LevelChange]:
    for line in series:
        ends = (0, *line.changes, len(line.ratios))
        levels = [
            statistics.median(ratio for ratio in line.ratios[start:end] if ratio is not None)
            for start, end in itertools.pairwise(ends)
        ]
        for position, before, after in zip(line.changes, levels, levels[1:], strict=False):
            yield LevelChange(series=line, position=position, ratio=after / before)
