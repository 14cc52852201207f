"""A run as it lies on disk, read back: what ``run.json`` says, the records, samples and predictions.

Folders are read as they are: a run that was killed, one without a record, one whose files were pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from qbench import formatting
from qbench.errors import UsageError
from qbench.files import regular_file, strict_json
from qbench.foreign_text import join_lines
from qbench.record import jsonl, run_files
from qbench.record.commit import Commit
from qbench.record.example_scores import ExampleScores, example_scores
from qbench.record.layer_numbers import LayerNumbers
from qbench.record.schema import Facts, FileName, Line, Record, Whole
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qbench.metrics.base import Metric
    from qbench.stats.jackknife import FactScore

    Array = NDArray[Any]

T = TypeVar("T")
SCHEMA = 1
RUN = "run.json"
QUICK = "quick look"


@dataclass(frozen=True, kw_only=True)
class SuiteInfo:
    """The suite as it was read: its name, file, YAML text and ``KEY=VALUE`` overrides."""

    name: FileName
    file: Line = "<text>"
    text: str = ""
    overrides: tuple[Line, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SkipInfo:
    """A case that the plan left out, and why."""

    id: Line
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlanInfo:
    """The ids of the planned cases, those skipped, and what the plan had to say."""

    cases: tuple[Line, ...] = ()
    skipped: tuple[SkipInfo, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QuickInfo:
    """That a run was a quick look: it scored ``examples`` of the suite's ``of`` (null: not known yet)."""

    examples: int | None = None
    of: int | None = None

    @property
    def text(self) -> str:
        """What the look left out, in one sentence, and what to do for more."""
        if self.examples is None:
            scored = "few evaluation examples"
        elif self.of is None or self.examples >= self.of:
            scored = f"all {self.examples:,} evaluation examples"
        else:
            scored = f"{self.examples:,} of {self.of:,} evaluation examples"
        return f"{QUICK}: coarse timing in one process, {scored}, nothing trained; run it without --quick to decide"


# Of metrics that are no shares. An output that is as wrong as zeros has 0 dB.
BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "cosine": (-1.0, 1.0),
    "sqnr": (0.0, 100.0),
    "kl": (None, 0.0),
    "mae": (None, 0.0),
}


@dataclass(frozen=True, kw_only=True)
class MetricInfo:
    """How the suite's metric is shown (``percent``, else ``own_unit``), which way is better, and what the outputs are
    held against: the labels, or fp32's outputs, which then score ``perfect`` (null: not told)."""

    name: Line
    percent: bool = True
    higher_is_better: bool = True
    against: Literal["labels", "fp32"] = "labels"
    own_unit: Line = ""
    perfect: float | None = None

    @property
    def scale(self) -> float:
        """What a stored value is multiplied by to be shown."""
        return 100.0 if self.percent else 1.0

    @property
    def sign(self) -> float:
        """1 where a higher value is better, else -1."""
        return 1.0 if self.higher_is_better else -1.0

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The lowest and the highest that the value of one example times ``sign`` may be; None: not known."""
        return (0.0, None) if self.percent and self.higher_is_better else BOUNDS.get(self.name, (None, None))

    @property
    def least(self) -> int:
        """Decimals that are always shown, so that a column of percentages reads evenly."""
        return 1 if self.percent else 0

    @property
    def unit(self) -> str:
        """The unit of a difference, in words; empty where the metric has none."""
        return "points" if self.percent else self.own_unit

    def show_change(self, change: Interval) -> str:
        """``-0.2 [-1.0, +0.5] points``: a change of the stored value, with the digits that its limits support."""
        limits = formatting.with_limits(change, scale=self.scale, signed=True, least=self.least)
        return f"{limits} {self.unit}".rstrip()

    def show_against_fp32(self, change: Interval) -> str:
        """A change against fp32, ``-0.2 [-1.0, +0.5] points``; the score itself, ``38.2 [37.9, 38.5] dB``, where fp32's
        outputs are what is held against and score ``perfect``, so that the change is the whole distance."""
        if self.against != "fp32" or self.perfect is None:
            return self.show_change(change)
        low, high = (None if end is None else self.perfect + end for end in (change.low, change.high))
        score = Interval(value=self.perfect + change.value, low=low, high=high)
        shown = formatting.with_limits(score, scale=self.scale, least=self.least)
        return f"{shown} {'%' if self.percent else self.own_unit}".rstrip()


@dataclass(frozen=True, kw_only=True)
class ExamplesInfo:
    """What the raw examples are, one entry for each input of the networks (``shapes`` without the axis of examples),
    and how they are preprocessed (``datasets.preprocessing.Preprocessing``)."""

    types: tuple[Line, ...]
    shapes: tuple[tuple[Whole, ...], ...]
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    to_float: bool = True
    channel_axis: int = 1
    reverse_channels: bool = False

    def __post_init__(self) -> None:
        """Raises ``ValueError`` where the facts do not belong together."""
        dimensions = 1 + max(map(len, self.shapes), default=0)
        if len(self.types) != len(self.shapes):
            raise ValueError("types and shapes differ in length")
        channels = max(len(self.mean), len(self.std))
        if not {len(self.mean), len(self.std)} <= {1, channels} or 0 in (len(self.mean), len(self.std)):
            raise ValueError("mean and std must hold one number each, or one for each channel")
        if channels > 1 and not -dimensions <= self.channel_axis < dimensions:
            raise ValueError("channel_axis lies outside the examples")


# What the digests of the user's own code are called: of a score, by its file, and of a model's postprocess.
SCORE, POSTPROCESS = "the score in ", "the postprocess of "


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """``run.json``: all that concerns the whole run. ``finished`` is null while it runs or once it was killed.
    ``digests``: of the data and of each network, so that a resumed run has the same. ``quick`` is null but for a quick
    look, ``commit`` where the suite lies in no git repository. ``filter``: what ``--filter`` kept (null: all).
    ``locked``: the versions of all that the libraries of ``versions`` need, which make its environment again (empty:
    a run of former times). ``notes``: what its stages said that touches the answer. ``examples``: null until the data
    is read."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False)

    suite: SuiteInfo
    schema: int = SCHEMA
    started: str | None = None
    finished: str | None = None
    environment: Facts = field(default_factory=dict)
    versions: dict[Line, Line | None] = field(default_factory=dict)
    locked: dict[Line, Line] = field(default_factory=dict)
    plan: PlanInfo = PlanInfo()
    elapsed_seconds: dict[Line, float] = field(default_factory=dict)
    metric: MetricInfo | None = None
    digests: dict[Line, Line] = field(default_factory=dict)
    quick: QuickInfo | None = None
    commit: Commit | None = None
    filter: Line | None = None
    notes: tuple[str, ...] = ()
    examples: ExamplesInfo | None = None


_INFO: TypeAdapter[RunInfo] = TypeAdapter(RunInfo)


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run's folder with what was read of it; arrays are read when asked for.

    ``damage``: where given, a file that cannot be read counts as absent, and is noted here under its name with the
    reason, also one that a record names and that is gone; else it is a ``UsageError``.
    """

    folder: Path
    info: RunInfo
    records: tuple[Record, ...]
    damage: dict[str, str] | None = None
    _intact: set[str] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def by_id(self) -> Mapping[str, Record]:
        """The records by case id."""
        return {record.case.id: record for record in self.records}

    def samples(self, record: Record) -> dict[str, Array]:
        """The timing arrays of a case (``calls_ns``, ``log_ratios``, …); empty where none are stored."""
        return self._arrays(record.samples)

    def predictions(self, record: Record) -> dict[str, Array]:
        """``outputs`` (n x …) and ``labels`` (n) of a case; empty where none are stored."""
        return self._arrays(record.predictions)

    def judged_predictions(self, record: Record, *, of: Record | None = None) -> dict[str, Array]:
        """``predictions`` with what the score of ``of`` (default: of the case itself) is of as ``outputs``: where a
        network returns several, the worst may be another than the first; the answers where a postprocess made some."""
        from qbench.metrics.base import name_outputs, take_answers

        scored, stored = of or record, take_answers(self.predictions(record))
        name = name_outputs(scored.accuracy.judged if scored.accuracy else 0)
        return stored if name == "outputs" or name not in stored else {**stored, "outputs": stored[name]}

    def layer_numbers(self, record: Record) -> tuple[LayerNumbers, ...]:
        """SQNR and cosine of each layer of a case; empty where none are stored."""
        return self._without_damage(record.layers, run_files.read_layers, ())

    def find_damage(self) -> Mapping[str, str]:
        """``damage`` once every file that a record names was read; empty where damage is not noted."""
        if self.damage is None:
            return {}
        for record in self.records:
            arrays = {record.samples, record.predictions} - self._intact
            for name in arrays:
                self._arrays(name)
            if record.layers not in self._intact:
                self.layer_numbers(record)
        return self.damage

    def _arrays(self, name: str | None) -> dict[str, Array]:
        return self._without_damage(name, run_files.read_arrays, {})

    def _without_damage(self, name: str | None, read: Callable[[Path, str], T], nothing: T) -> T:
        """What a file holds; ``nothing`` where there is none, or where it is damaged and that is noted."""
        if name is None:
            return nothing
        if self.damage is None:
            return read(self.folder, name)
        if name in self.damage:
            return nothing
        if run_files.find(self.folder, name) is None:
            self.damage[name] = run_files.GONE
            return nothing
        try:
            content = read(self.folder, name)
        except run_files.DamagedFile as error:
            self.damage[name] = error.reason
            return nothing
        self._intact.add(name)
        return content

    def values(self, record: Record, fp32: Record | None = None, *, of: Record | None = None) -> Array | None:
        """The metric of each example (length n), or None where it has none or no predictions are stored.

        ``fp32``: whose outputs stand where labels stand, for a metric that is held against them; ``of``: whose score
        says which of several outputs (default: the record's own).
        """
        of = of or record
        metric, stored = self._metric, self.as_judged(record, fp32, of)
        if metric is None:
            return self._kept_values(record, len(stored.get("outputs", ())))
        held = stored if metric.against == "labels" or fp32 is None else self.judged_predictions(fp32, of=of)
        reference = held.get("labels" if metric.against == "labels" else "outputs")
        if "outputs" not in stored or reference is None or _unfit(metric, stored["outputs"], reference):
            return None
        values: Array | None = metric.per_example(stored["outputs"], reference)
        return values

    def examples(self, record: Record, fp32: Record | None = None) -> ExampleScores | None:
        """What the record's score rests on, example by example; None where no predictions are stored or the score is
        one that no example has a part in (a number for all, of a score of the user's own)."""
        stored = self.as_judged(record, fp32, record)
        n, values = len(stored.get("outputs", ())), self.values(record, fp32)
        if not n:
            return None
        if values is not None:
            scores = self._with_keys(values, stored)
            if scores is not None:
                return scores
        facts = self._facts(record, stored, fp32)
        return None if facts is None else self._with_keys(facts, stored, facts=True)

    def as_judged(self, record: Record, fp32: Record | None, of: Record) -> dict[str, Array]:
        """``judged_predictions``, of which those that are fp32's whatever the variant are taken from there; none where
        that cannot be."""
        from qbench.metrics.base import keep_fixed

        stored = self.judged_predictions(record, of=of)
        labels = stored.get("labels")
        if self._metric is None or labels is None or "outputs" not in stored:
            return stored
        if not len(self._metric.find_fixed(labels)) or record.case.mode == "fp32":
            return stored
        exact = {} if fp32 is None else self.judged_predictions(fp32, of=of)
        try:
            return {**stored, "outputs": keep_fixed(self._metric, stored["outputs"], labels, exact["outputs"])}
        except (KeyError, ValueError):
            return {}

    def _with_keys(self, rows: Array, stored: Mapping[str, Array], *, facts: bool = False) -> ExampleScores | None:
        """Values, or facts, with the keys of what they are of; None where that is not known, as of values of a part of
        the examples."""
        metric, units = self._metric, None
        if metric is not None:
            units = metric.units(stored["labels" if metric.against == "labels" else "outputs"])
        count = len(stored["outputs"]) if units is None else len(units.members)
        return example_scores(rows, stored, facts=facts, units=units) if len(rows) == count else None

    def _facts(self, record: Record, stored: Mapping[str, Array], fp32: Record | None) -> Array | None:
        """What a metric that no example has alone is made from, one row an example; None where it has no such form."""
        metric = self._metric
        if metric is None or (metric.against == "fp32" and fp32 is None):
            return None
        held = stored if metric.against == "labels" or fp32 is None else self.judged_predictions(fp32, of=record)
        reference = held.get("labels" if metric.against == "labels" else "outputs")
        if reference is None or _unfit(metric, stored["outputs"], reference):
            return None
        return metric.facts(stored["outputs"], reference)

    @property
    def score_of_facts(self) -> FactScore | None:
        """The run's metric as a function of examples' facts (``ExampleScores.facts``); None where it is not known."""
        return None if self._metric is None else self._metric.fact_score

    def _kept_values(self, record: Record, n: int) -> Array | None:
        """What a score of the user's own said of each example, as the run kept it; None where it did not."""
        from qbench.metrics.base import values_file

        if record.predictions is None:
            return None
        name = str(values_file(Path(record.predictions)))
        stored = None if run_files.find(self.folder, name) is None else self._arrays(name).get("values")
        return stored if stored is not None and stored.shape == (n,) else None

    @cached_property
    def _metric(self) -> Metric | None:
        """The run's metric; None where it is the user's own, or the plug-in that measured it is not installed here."""
        from qbench import registry

        # A folder that someone else made must not name code to run.
        if self.info.metric is None or self.info.metric.name.startswith("python:"):
            return None
        try:
            metric: Metric = registry.load("metric", self.info.metric.name)
        except UsageError:
            return None  # the stored interval still stands
        return metric

    @property
    def judged_by_agreement(self) -> bool:
        """Whether the metric is a share of answers that are fp32's: without labels, outputs are classes then."""
        metric = self.info.metric
        against = None if metric is None else self._metric.against if self._metric is not None else metric.against
        return metric is not None and metric.percent and against == "fp32"

    def pairs(self, record: Record, fp32: Record) -> tuple[Array, Array] | None:
        """The metric of each example for a case and for its fp32, or None where not both are stored.

        None, too, where both say the same of every example and it is more than right or wrong: no spread is left to
        judge by then, and the stored limits say how much so few examples may hide.
        """
        new, old = self.values(record, fp32), self.values(fp32, fp32, of=record)
        if new is None or old is None or len(new) != len(old):
            return None
        return None if (new == old).all() and not ((new == 0) | (new == 1)).all() else (new, old)


_AGAIN = "take it from a copy, or make a new run with `qbench run SUITE`"


def read_info(file: Path) -> RunInfo:
    """What a ``run.json`` says; raises ``UsageError`` naming the file and the field."""
    try:
        text = regular_file.read_text(file)
        content = strict_json.parse(text)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{file}: cannot be read: {why}; is {file.parent} the folder of a run?") from error
    except ValueError as error:  # bytes that are no UTF-8, or no JSON
        raise UsageError(f"{file}: not the description of a run: {error}; {_AGAIN}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file}: not the description of a run: it holds no mapping; {_AGAIN}")
    schema = content.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(f"{file}: has schema {schema}, this qbench reads up to {SCHEMA}; install a newer qbench")
    try:
        return _INFO.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = join_lines(".".join(str(part) for part in first["loc"]))
        raise UsageError(f"{file}: {where}: {first['msg'].removeprefix('Value error, ')}; {_AGAIN}") from error


def read_run(folder: Path, *, lenient: bool = False) -> StoredRun:
    """The run in a folder; one without any record yet has none. Raises ``UsageError`` where it is no run.

    ``lenient``: damaged files beside the records are noted in ``damage``, not refused.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; a run lies in reports/<suite>/<time>-<id>/ or …/latest")
    info = read_info(folder / RUN)
    has_records = (folder / jsonl.RECORDS).exists()
    records = _drop_lost_references(tuple(jsonl.read(folder)) if has_records else ())
    return StoredRun(folder=folder, info=info, records=records, damage={} if lenient else None)


def _unfit(metric: Metric, outputs: Array, reference: Array) -> bool:
    """Whether the metric has no value for these: the arrays are of a file that anyone may have written."""
    if len(outputs) != len(reference):
        return True
    if metric.against == "labels":
        return metric.problem(outputs, reference, None) is not None
    shapes = outputs.shape != reference.shape
    return shapes or any(metric.problem(array, None, None) is not None for array in (outputs, reference))


def _drop_lost_references(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """The records; a ratio over the fastest fp32 is left out where that has no record: another is the fastest now."""
    ids = {record.case.id for record in records}
    return tuple(
        replace(record, speedup_fastest=None)
        if record.speedup_fastest is not None and record.speedup_fastest.baseline not in ids
        else record
        for record in records
    )
