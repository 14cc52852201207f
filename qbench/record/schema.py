"""The record of a case: all that is known of it, as one line of ``records.jsonl`` holds it.

History of the schema number:

    1  the first one (qbench 0.1); ``case.host`` and ``host`` came with qbench 0.2: a record without them is ``native``

A reader takes every number up to its own; a newer one is refused by name. Keys may be added within a number,
never renamed. Real files of every number are fixtures in tests/data/records/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from qbench.files.stored_name import require_digest, require_name, require_path
from qbench.foreign_text import join_lines
from qbench.modes import HALVES, WEIGHT_ONLY, precision_of
from qbench.stats.interval_type import LARGEST, Interval

SCHEMA = 1
NATIVE = "native"  # the host that every artifact is built on
Status = Literal["ok", "failed", "skipped"]
# What a reader takes; a record that someone else wrote may hold anything, and of a time of 0 or of 0 examples no ratio,
# logarithm or share exists.
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
_MOST = 10**18  # of anything counted: a table's column holds 64 bits
Count = Annotated[int, Field(ge=1, le=_MOST)]
Whole = Annotated[int, Field(ge=0, le=_MOST)]
Level = Annotated[float, Field(gt=0, lt=1)]
# A name or a setting, which somebody else may have made: none of them begins a line of its own where it is told.
Line = Annotated[str, AfterValidator(join_lines)]
# What becomes a part of a path.
FileName = Annotated[str, AfterValidator(require_name)]
FilePath = Annotated[str, AfterValidator(require_path)]  # below the run's folder
Digest = Annotated[str, AfterValidator(require_digest)]
Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


def _limit_change(change: Interval) -> Interval:
    if any(abs(number) > LARGEST for number in (change.value, change.low, change.high) if number is not None):
        raise ValueError(f"a change of a score must be at most {LARGEST:g} either way")
    return change


def _join_all(value: Any) -> Any:
    if isinstance(value, dict):
        return {join_lines(key): _join_all(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_join_all(part) for part in value]
    return join_lines(value) if isinstance(value, str) else value


# What a library or a suite may have said under any name; every text of it is one line.
Facts = Annotated[dict[str, Any], AfterValidator(_join_all)]
ScoreChange = Annotated[Interval, AfterValidator(_limit_change)]
_CASE_ID = re.compile(
    r"(?P<model>.+)/(?P<mode>[^/]+)/(?P<backend>[^/]+)/t(?P<threads>[1-9]\d{0,8})/b(?P<batch>[1-9]\d{0,8})"
    r"(?:/(?P<host>[A-Za-z0-9][\w.:-]*))?",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class CaseKey:
    """Which case: ``id`` is ``model/mode/backend/t<threads>/b<batch size>``, with ``mode@recipe`` where the recipe is
    not the default, and ``/<host>`` behind it where that is not this machine as it is (``native``)."""

    id: Line
    model: Line
    mode: Line
    backend: Line
    threads: Count
    batch_size: Count
    recipe: Line = "default"
    host: Line = NATIVE

    def __hash__(self) -> int:
        return hash(self.id)  # it says all the others, and a large plan looks its keys up many times

    @property
    def is_twin(self) -> bool:
        """Whether it is the fp32 twin of a QAT: nothing is compared with it as its like-for-like fp32."""
        return self.mode == "fp32" and self.recipe != "default"

    @property
    def variant(self) -> str:
        """The variant's name beside its model's: ``static · onednn``, ``static@eager · onednn``."""
        at = "" if self.recipe == "default" else f"@{self.recipe}"
        return f"{self.mode}{at} · {self.backend}"


def make_case_key(
    model: str, mode: str, backend: str, threads: int, batch_size: int, recipe: str = "default", host: str = NATIVE
) -> CaseKey:
    """The key of a case, with its id."""
    return CaseKey(
        id=setting_id(variant_id(model, mode, backend, recipe), threads, batch_size, host),
        model=model,
        mode=mode,
        backend=backend,
        threads=threads,
        batch_size=batch_size,
        recipe=recipe,
        host=host,
    )


def variant_id(model: str, mode: str, backend: str, recipe: str) -> str:
    """``model/mode/backend``, ``model/mode@recipe/backend`` for a recipe that is not the default."""
    return f"{model}/{mode}{'' if recipe == 'default' else f'@{recipe}'}/{backend}"


def setting_id(variant: str, threads: int, batch_size: int, host: str) -> str:
    """The id of a case from that of its variant: ``…/t<threads>/b<batch size>``, and ``/<host>`` but for ``native``."""
    return f"{variant}/t{threads}/b{batch_size}{'' if host == NATIVE else f'/{host}'}"


def place_on(key: CaseKey, host: str) -> CaseKey:
    """The case of the same variant, threads and batch size on another host."""
    return make_case_key(key.model, key.mode, key.backend, key.threads, key.batch_size, key.recipe, host)


def find_fp32(key: CaseKey, runtime: str, recipe: str = "default") -> CaseKey:
    """The fp32 of a case's network on a runtime, as its batch size, threads and host are; ``recipe``: of a twin."""
    return make_case_key(key.model, "fp32", runtime, key.threads, key.batch_size, recipe, key.host)


def read_case_id(case: str) -> CaseKey | None:
    """The key that an id such as ``net/static@eager/onednn/t1/b8`` or ``net/fp32/torch/t1/b1/avx2`` says; None where it
    is no case's. Slashes before the mode belong to the model."""
    match = _CASE_ID.fullmatch(case)
    if match is None:
        return None
    mode, _, recipe = match["mode"].partition("@")
    return CaseKey(
        id=case,
        model=match["model"],
        mode=mode,
        backend=match["backend"],
        threads=int(match["threads"]),
        batch_size=int(match["batch"]),
        recipe=recipe or "default",
        host=match["host"] or NATIVE,
    )


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What really runs in int8: ``macs_int8`` is the share of multiply-accumulates, read from the artifact, null where
    not all of them can be counted: ``unknown`` then says why. ``macs_half`` and ``layers_half`` say the same of the
    format of a bf16 or fp16 case, ``macs_weights`` and ``layers_weights`` of the weights of a weight_only case that
    have ``weight_bits`` bits; null for others. ``float_layers`` are those in no format that the mode names, and
    ``float_reasons`` says why, where that is known."""

    macs_int8: Share | None
    layers_int8: Whole
    layers_total: Whole
    float_layers: tuple[Line, ...] = ()
    float_reasons: dict[Line, Line] = field(default_factory=dict)
    unknown: str | None = None
    macs_half: Share | None = None
    layers_half: Whole | None = None
    macs_weights: Share | None = None
    layers_weights: Whole | None = None
    weight_bits: Whole | None = None

    def share_of(self, mode: str) -> float | None:
        """The share of multiply-accumulates that are what a mode names; None where it is not known."""
        return self.macs_half if mode in HALVES else self.macs_weights if mode == WEIGHT_ONLY else self.macs_int8

    def layers_of(self, mode: str) -> int:
        """How many layers are what a mode names."""
        if mode in HALVES or mode == WEIGHT_ONLY:
            return (self.layers_half if mode in HALVES else self.layers_weights) or 0
        return self.layers_int8

    def describe_format(self, mode: str) -> str:
        """``in int8``, ``in bf16``, ``with weights of 4 bits (arithmetic in int8)``: what these are."""
        if mode != WEIGHT_ONLY:
            return f"in {precision_of(mode)}"
        in_int8 = (self.macs_int8 or 0) / (self.macs_weights or 1)
        arithmetic = "int8" if in_int8 == 1 else "fp32" if in_int8 == 0 else "int8 and fp32"
        return f"with weights of {self.weight_bits} bits (arithmetic in {arithmetic})"


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """The kinds of CPU that an artifact was made for beside the one that built it, and what was done for it: of
    ``layers`` whose sums were looked at ``layers_narrowed`` got wider steps in ``channels_narrowed`` channels of their
    weights; ``overflowing`` layers' sums can leave 16 bits all the same. ``compiled_for``: the CPU of machine code."""

    cpus: tuple[Line, ...]
    layers: Whole = 0
    layers_narrowed: Whole = 0
    channels_narrowed: Whole = 0
    overflowing: tuple[Line, ...] = ()
    compiled_for: Line | None = None


@dataclass(frozen=True, kw_only=True)
class ArtifactFacts:
    """The files of a variant; ``size_bytes`` counts exactly what is shipped. ``coverage`` is null for fp32.
    ``flow``: which flow made it (null: fp32, or somebody else's file). ``rewrites``: what the network was rewritten
    into before it was quantized, and how far its outputs moved.
    ``target``: null where it was made for this machine alone."""

    format: Line
    sha256: Digest
    size_bytes: Count
    coverage: Coverage | None = None
    key: Digest | None = None
    cached: bool | None = None
    note: str | None = None
    flow: Line | None = None
    rewrites: tuple[Line, ...] = ()
    rewrite_difference: NotNegative | None = None
    target: TargetFacts | None = None


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Closed-loop service time of one call, seconds; percentiles and limits are null where ``n`` does not support
    them. ``effective_n``: how many independent calls the ``n`` are worth. ``p50_from``: p50 is that of the calls in
    ``undisturbed`` blocks, those in which nothing else used the core, or of ``all`` where they are too few (null: it
    was not watched, and p50 is that of all); ``p50_all_seconds`` is that of all calls. The rest is of all calls."""

    p50_seconds: Positive | None
    p50_low: Positive | None
    p50_high: Positive | None
    p90_seconds: Positive | None
    p99_seconds: Positive | None
    mean_seconds: Positive | None
    n: Whole
    p90_low: Positive | None = None
    p90_high: Positive | None = None
    p99_low: Positive | None = None
    p99_high: Positive | None = None
    effective_n: Positive | None = None
    p50_from: Literal["undisturbed", "all"] | None = None
    p50_all_seconds: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """What the literature's protocol says beside the paired one: mean seconds of ``n`` calls in a process of its own,
    and the baseline's mean over it. It has no interval."""

    mean_seconds: Positive
    n: Count
    speedup: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class Fastest:
    """Time of the run's fastest fp32 of any backend (same model, threads, batch) over this case's."""

    baseline: Line
    value: Positive
    low: Positive | None
    high: Positive | None


@dataclass(frozen=True, kw_only=True)
class Interference:
    """What the system did to the case's process while its blocks ran: totals over ``blocks`` (null: not told), and
    ``off_core``, the share of their time in which other processes of this machine had the core (null: not told, or
    several threads). And what the host did: ``shared`` is the share of readings of a canary at which something else
    used the core, ``undisturbed_blocks`` counts blocks without, ``calm_seconds`` is the canary's time on a core of its
    own that its readings were held against (null: not watched)."""

    blocks: Whole
    involuntary_switches: Whole | None
    page_faults: Whole | None
    shared: Share | None = None
    undisturbed_blocks: Whole | None = None
    calm_seconds: Positive | None = None
    off_core: Share | None = None


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Baseline time over this case's time, measured in one run; ``control`` is a second copy of the baseline
    measured the same way, whose true value is 1. ``stopped`` says what ended it: ``screened`` and ``left`` where it was
    shown slower than the fastest, after the first or a later generation of processes; ``decided``, ``tied``,
    ``precision``, ``processes`` or ``max_seconds`` where it was in to the end; ``fixed`` for the sequential protocol.
    Of fewer than 3 ``processes`` the limits hold what is known of processes in general. ``measured_seconds``: what its
    blocks took."""

    baseline: Line
    value: Positive
    low: Positive | None
    high: Positive | None
    level: Level = 0.95
    processes: Count = 1
    control: Interval | None = None
    protocol: Line = "paired"
    stopped: str | None = None
    steady: bool | None = None
    measured_seconds: NotNegative | None = None

    def __post_init__(self) -> None:
        """Raises ``ValueError`` where the control is no ratio of two times."""
        control = self.control
        numbers = () if control is None else (control.value, control.low, control.high)
        if any(number is not None and number <= 0 for number in numbers):
            raise ValueError("control: a ratio of two times must be above 0")


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Seconds to load the artifact in a fresh process (libraries imported), of the first call, and the median of calls
    2 to 5: medians over ``processes``, with order-statistic limits where these support them (6 at 95 %)."""

    load_seconds: NotNegative
    first_call_seconds: NotNegative
    next_calls_seconds: NotNegative | None = None
    processes: Count = 1
    load_low: NotNegative | None = None
    load_high: NotNegative | None = None
    first_call_low: NotNegative | None = None
    first_call_high: NotNegative | None = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Resident set of the measuring process, bytes: after loading, and its peak."""

    loaded_rss_bytes: Whole
    peak_rss_bytes: Whole | None


@dataclass(frozen=True, kw_only=True)
class Flips:
    """Examples whose correctness changed against fp32: right to wrong, and wrong to right."""

    harmful: Whole
    beneficial: Whole


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The values of one model input over many examples, preprocessed. ``channels``: the mean of each channel of images,
    ``channel_errors``: the standard error of its distance from the mean of all, over the examples."""

    least: float
    greatest: float
    mean: float
    deviation: float
    channels: tuple[float, ...] = ()
    channel_errors: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InputFit:
    """How the evaluation examples fit an int8 artifact, for one model input: ``low`` and ``high`` are what the artifact
    can represent and ``clipped`` is the share of values that it clips (null where it does not tell)."""

    evaluated: Spread
    calibrated: Spread
    low: float | None = None
    high: float | None = None
    clipped: Share | None = None


@dataclass(frozen=True, kw_only=True)
class CalibrationSeeds:
    """The same variant, calibrated on the subset of each of several ``seeds``: its score (``values``) and its file of
    predictions. The first is what was measured and is shipped. A seed whose variant could not be built or evaluated
    has a null value, and its reason in ``reasons``."""

    seeds: tuple[int, ...]
    values: tuple[Score | None, ...]
    predictions: tuple[FilePath | None, ...] = ()
    reasons: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        """Raises ``ValueError`` where a seed lacks something."""
        sizes = {len(self.seeds), len(self.values), len(self.predictions), len(self.reasons)} - {0}
        if len(sizes) != 1 or len(self.seeds) != len(self.values):
            raise ValueError("seeds, values, predictions and reasons differ in length")


@dataclass(frozen=True, kw_only=True)
class OtherRuntime:
    """Another case of the same network (one file, or one recipe) on another backend whose outputs differ by more than
    rounding explains: the SQNR of one against the other and that of the better one against its fp32, in dB, and the
    first layer that differs (null: not found)."""

    case: Line
    between_db: float
    better_db: float
    layer: Line | None = None


@dataclass(frozen=True, kw_only=True)
class TwinChange:
    """The paired change of a QAT case against its fp32 twin, the case ``baseline``, on the same examples: what int8
    itself costs, without what the training gained."""

    baseline: Line
    delta: ScoreChange | None = None
    flips: Flips | None = None
    agreement: Share | None = None


@dataclass(frozen=True, kw_only=True)
class AsCalled:
    """An fp32 case beside the network as its author calls it, one example a call: ``compared`` of the ``of`` evaluation
    examples, ``differing`` ones, and the largest difference as a share of the largest output."""

    compared: Count
    of: Count
    differing: Whole
    worst: NotNegative


@dataclass(frozen=True, kw_only=True)
class OutputScore:
    """What one of several outputs scores by ``metric``: with its limits where it was ``judged``, which is null where
    the suite names the output that is; else its distance from fp32's outputs, null of fp32 itself and of outputs
    without a row of numbers for each example."""

    name: Line
    judged: bool | None
    metric: Line | None = None
    value: Score | None = None
    low: Score | None = None
    high: Score | None = None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The score on ``n`` evaluation examples, and its paired change against the like-for-like fp32. ``inputs``: how
    each model input fits a static or QAT artifact (null for others, and for inputs of whole numbers). ``calibration``:
    how much the subset that a static variant was calibrated on matters (null where only one was drawn).
    ``shared_examples``: how many evaluation examples calibration or training saw, too (null: not counted).
    ``interval``: how the limits come about, ``score`` (Wilson's, Tango's) for right or wrong, ``weighted mean``
    (Gaffke's; in older records ``t``) for other means, ``jackknife`` for metrics that no example has alone, ``paired
    bootstrap`` for such ones of the user's own (null: not told). ``only_answer``: the class that every
    example is given (null: there are several, or the outputs are no classes). ``other_runtime``: null where no other
    backend runs the same network, and where its outputs are the same but for rounding. ``twin``: null for all but QAT
    cases whose suite asks for fp32 twins. ``as_called``: null for all but fp32 cases of networks of torch's.
    ``outputs``: each output of a network that returns several, in the order of its predictions (null: it returns one,
    or not told); ``judged``: the place among them of the one that this score is of, the worst where all are judged (0:
    the first)."""

    metric: Line
    value: Score
    low: Score | None
    high: Score | None
    n: Count
    delta: ScoreChange | None = None
    agreement: Share | None = None
    flips: Flips | None = None
    inputs: tuple[InputFit | None, ...] | None = None
    calibration: CalibrationSeeds | None = None
    shared_examples: Whole | None = None
    interval: Literal["score", "t", "weighted mean", "jackknife", "paired bootstrap"] | None = None
    only_answer: Whole | None = None
    other_runtime: OtherRuntime | None = None
    twin: TwinChange | None = None
    as_called: AsCalled | None = None
    outputs: tuple[OutputScore, ...] | None = None
    judged: Whole = 0


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Multiply-accumulates of one call (null: not all can be counted), and the share of this core's measured peak
    (null: not measured). ``peak_shared``: the host shared the core all the while when the peak was measured, so that
    the peak is too low and the share too high (null: not watched)."""

    macs: Whole | None
    peak_fraction: NotNegative | None = None
    peak_shared: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SaturatingLayer:
    """A layer that adds products of bytes in 16 bits: how many ``sums`` it made over the examples that were counted,
    and how many of them were ``saturated``."""

    name: Line
    sums: Count
    saturated: Whole


@dataclass(frozen=True, kw_only=True)
class EmulatedExamples:
    """Which evaluation examples an emulated CPU answered: ``n`` of ``of``, and how they were ``chosen``: those
    ``nearest to flipping`` natively, or those with the ``largest outputs``. They are no sample: no accuracy follows."""

    n: Count
    of: Count
    chosen: Line


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Where a case ran, in a run of several hosts: the ``kind`` (``native``, ``limited``, ``node``: one of a class of
    nodes of a Ray cluster, ``predicted``: its answers were computed here and nothing was measured, or ``emulated``: a
    CPU in software answered some of the examples, and nothing was measured), the CPU, the ``switches`` that were set
    (``NAME=value``), and what the kernels themselves said: the instruction sets of torch, oneDNN and MKL in their
    own words, and in how many bits int8 kernels add two products (null: not told).
    ``note``: in what it is unlike such a machine. ``saturating``: the layers with a saturated sum, the largest share
    first, over ``counted_examples``: all where it was predicted, else a sample (null: not counted); ``uncounted``: why
    layers were not. ``node``: which machine of a cluster measured it,
    ``cluster_load``: the processor time that Ray's own processes took there meanwhile, as a share of one core (null: in
    no cluster). ``examples``: where the CPU was emulated, which examples it answered (null: all)."""

    kind: Literal["native", "limited", "node", "predicted", "emulated"]
    cpu: Line | None = None
    switches: tuple[Line, ...] = ()
    torch_isa: Line | None = None
    onednn_isa: Line | None = None
    mkl_isa: Line | None = None
    int8_sums: Literal["16 bits", "32 bits"] | None = None
    note: str | None = None
    saturating: tuple[SaturatingLayer, ...] | None = None
    counted_examples: Whole | None = None
    uncounted: str | None = None
    node: Line | None = None
    cluster_load: NotNegative | None = None
    examples: EmulatedExamples | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that is known of one case; failures and skips are records too."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False)  # of every part, too

    case: CaseKey
    status: Status
    schema: int = SCHEMA
    stage: Line | None = None
    reason: str | None = None
    reference: bool = False
    recipe: Facts | None = None
    artifact: ArtifactFacts | None = None
    host: HostFacts | None = None
    observed: Facts | None = None
    latency: Latency | None = None
    speedup: Speedup | None = None
    speedup_fastest: Fastest | None = None
    sequential: Sequential | None = None
    interference: Interference | None = None
    throughput_per_second: Positive | None = None
    cold_start: ColdStart | None = None
    memory: Memory | None = None
    accuracy: Accuracy | None = None
    roofline: Roofline | None = None
    samples: FilePath | None = None
    predictions: FilePath | None = None
    layers: FilePath | None = None
    started: Line | None = None
    elapsed_seconds: dict[Line, float] = field(default_factory=dict)


def flatten(record: Record) -> Iterator[tuple[str, Any]]:
    """Dotted key and value of every leaf, for tables: ``("latency.p50_seconds", 0.0013)``."""
    yield from _leaves("", asdict(record))


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), child)
    else:
        yield prefix, value
