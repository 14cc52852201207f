"""What a suite asks for: the matrix, how to quantize, how to measure, what to gate; every key with its default.

Docstrings and descriptions go to the JSON Schema that editors read.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import ConfigDict, Field, JsonValue, model_validator

from qbench import registry
from qbench.modes import ASKED, FLOATS, WEIGHT_ONLY, Mode
from qbench.quant.recipe import DYNAMIC_MIN_COVERAGE, Recipe
from qbench.quant.target import without_native
from qbench.suite import training
from qbench.suite.recipes import Arithmetic, Bits, Flow, Group, Percentile
from qbench.suite.targets import Target
from qbench.suite.training import Loss, Optimizer, OwnLoop, Schedule
from qbench.suite.types import (
    BackendName,
    Bytes,
    CalibratorName,
    Count,
    HostName,
    ModelName,
    Positive,
    Seconds,
    Section,
    Seed,
    Share,
    ShareOrZero,
    ShareToOne,
    Text,
    Whole,
    Yes,
    wrong,
)

ObjectiveName = Literal["latency", "size", "cold_start", "memory"]
Preference = Literal["accuracy", "no_training", "no_calibration", "size", "cold_start"]
PREFERENCES: tuple[Preference, ...] = get_args(Preference)
UNIQUE: dict[str, JsonValue] = {"uniqueItems": True}


class IncludeCell(Section):
    """Cells to add to the matrix; a key left out means every value that the suite names."""

    model: ModelName | None = Field(None, description="One of the suite's models; null: each of them.")
    mode: Mode = Field(description="The mode.")
    backend: BackendName = Field(description="The backend.")
    threads: Count | None = Field(None, description="Threads; null: each number in matrix.threads.")
    batch_size: Count | None = Field(None, description="Batch size; null: each number in matrix.batch_sizes.")
    recipe: Text | None = Field(None, description="One of the suite's recipes, by name; null: each of them.")
    host: HostName | None = Field(None, description="A host; null: each in hosts.")


class ExcludeCell(Section):
    """Cells to take out of the matrix: those that agree with every key given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    model: ModelName | None = Field(None, description="One of the suite's models.")
    mode: Mode | None = Field(None, description="A mode.")
    backend: BackendName | None = Field(None, description="A backend.")
    threads: Count | None = Field(None, description="A number of threads.")
    batch_size: Count | None = Field(None, description="A batch size.")
    recipe: Text | None = Field(None, description="One of the suite's recipes, by name.")
    host: HostName | None = Field(None, description="A host.")

    @model_validator(mode="after")
    def _names_something(self) -> ExcludeCell:
        if all(value is None for _, value in self):
            raise wrong("expected at least one of model, mode, backend, threads, batch_size, recipe and host")
        return self


class Matrix(Section):
    """What is crossed with the models: modes x backends x threads x batch sizes, as in CI matrices."""

    modes: tuple[Mode, ...] = Field(
        ASKED,
        min_length=1,
        description="Numeric modes; bf16 and fp16, floats of 16 bits that few CPUs multiply, run where they are named.",
        json_schema_extra=UNIQUE,
    )
    backends: tuple[BackendName, ...] = Field(
        tuple(name for name in registry.BUILT_IN["backend"] if name != "fake"),
        min_length=1,
        description="What runs the models; one that is missing here is skipped with the reason.",
        json_schema_extra=UNIQUE,
    )
    threads: tuple[Count, ...] = Field(
        (1,),
        min_length=1,
        description="Threads of one inference; more than this machine has cores are skipped, with the reason.",
        json_schema_extra=UNIQUE,
    )
    batch_sizes: tuple[Count, ...] = Field(
        (1,), min_length=1, description="Examples in one call.", json_schema_extra=UNIQUE
    )
    include: tuple[IncludeCell, ...] = Field((), description="Cells to add; `exclude` does not touch them.")
    exclude: tuple[ExcludeCell, ...] = Field((), description="Cells to take out.")


class ModeKeys(Section):
    """How one mode makes a model int8."""

    flow: Flow | None = Field(
        None,
        description="fx, eager, pt2e or onnx; auto (the default): as each backend can, on the engines of torch by fx, "
        "else by eager.",
    )
    per_channel: Yes | None = Field(None, description="Weights per channel; null takes the backend's best.")
    skip_layers: tuple[Text, ...] = Field(
        (), description="Names or patterns (block.*) of layers that stay in floating point.", json_schema_extra=UNIQUE
    )
    first_layer_float: Yes | None = Field(
        None,
        description="The first layer stays in floating point. Left out: on onnxruntime where that is faster (a "
        "convolution of few channels), on the other backends not.",
    )
    last_layer_float: Yes = Field(False, description="The last layer stays in floating point.")
    target: Target | None = Field(None, description="As quantize.target, for this mode; null: that.")


class DynamicKeys(ModeKeys):
    """How dynamic quantization makes a model int8."""

    embeddings: Yes | None = Field(
        None,
        description="Tables of Embedding as bytes, too: on the torch engines quint8 per row (left out: they stay "
        "float), on onnxruntime with one scale (left out: they are bytes).",
    )
    min_coverage: ShareOrZero = Field(
        DYNAMIC_MIN_COVERAGE,
        description="A variant with a smaller share of its multiply-accumulates in int8 is practically fp32: built, "
        "measured and shown, but nothing to ship as int8.",
    )


class RangeKeys(ModeKeys):
    """How activations become int8 ahead of time."""

    symmetric: Yes | None = Field(None, description="Activations symmetric about zero; null: the backend's best.")
    reduce_range: Yes | None = Field(
        None, description="7 bits for activations, with which no sum overflows 16 bits; null: 8 bits."
    )
    narrow_weights: Yes | None = Field(
        None,
        description="Where a kernel adds products in 16 bits on this CPU, wider steps for weights, so that no sum "
        "overflows; null: yes, unless reduce_range is given.",
    )
    clip_ranges: Yes = Field(True, description="A ReLU6 or Hardtanh cuts the range of the layer before it.")
    min_coverage: Share = Field(
        0.5,
        description="A variant with a smaller share of its multiply-accumulates in int8 fails; one whose share cannot "
        "be known is told in a warning and does not.",
    )


class StaticKeys(RangeKeys):
    """How static quantization makes a model int8."""

    calibrator: CalibratorName | None = Field(
        None, description="How activation ranges are chosen; null: the backend's best."
    )
    percentile: Percentile = Field(99.99, description="Per cent of the values inside the range (percentile).")


class WeightOnlyKeys(Section):
    """How weights alone get few bits; activations stay floats in the file."""

    bits: Bits = Field(8, description="Bits of a weight: 8 or 4.")
    group: Group = Field(
        128, description="Consecutive inputs that share a scale: 16, 32, 64, 128, 256, or channel: all of an output."
    )
    symmetric: Yes = Field(False, description="The middle level is zero; else each group has a zero point.")
    arithmetic: Arithmetic = Field(
        "int8",
        description="int8: the runtime makes bytes of activations as it runs, where it can (ONNX Runtime's "
        "accuracy_level 4, OpenVINO's dynamic quantization); fp32: it makes floats of weights.",
    )
    skip_layers: tuple[Text, ...] = Field(
        (), description="Names or patterns of layers that keep their floats.", json_schema_extra=UNIQUE
    )


class WeightOnlyRecipe(WeightOnlyKeys):
    """Weights of few bits, and what single backends do otherwise."""

    backends: dict[BackendName, WeightOnlyKeys] = Field({}, description="Other values for single backends.")


class QatKeys(RangeKeys):
    """How quantization-aware training makes a model int8; it tracks ranges itself, so it has no calibrator."""

    epochs: Count = Field(1, description="Passes over the training split.")
    learning_rate: Positive = Field(1e-3, description="Step size of the optimizer.")
    batch_size: Count = Field(64, description="Examples of one training step.")
    samples: Count | None = Field(None, description="Most examples to train on, drawn by the seed; null: all.")
    seed: Seed = Field(0, description="Seed of the order of examples.")
    optimizer: Optimizer | None = Field(
        None, description="sgd, adam or adamw, or `{name: sgd, lr: 0.05, momentum: 0.9}` with its keys; null: adam."
    )
    schedule: Schedule = Field(
        "cosine",
        description="How the learning rate goes: constant, cosine, linear, or `{name: step, every: 2, gamma: 0.1}`.",
    )
    loss: Loss | None = Field(
        None, description="By name, or `{python: file.py:function}`; null: the one that fits outputs and labels."
    )
    train: OwnLoop | None = Field(
        None,
        description="`{python: file.py:train}`: a training loop of your own, train(model, batches, settings), which "
        "returns the model.",
    )
    distill: ShareToOne | None = Field(
        None,
        description="Share of the loss that is the distance to the fp32 network's outputs, 0 to 1; null: 0, or 1 where "
        "the data has no labels.",
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> QatKeys:
        training.check_section(self)
        return self


class DynamicRecipe(DynamicKeys):
    """The mode `dynamic`: weights int8 ahead of time, activations quantized on the fly."""

    backends: dict[BackendName, DynamicKeys] = Field({}, description="Other values for single backends.")


class StaticRecipe(StaticKeys):
    """The mode `static`: weights and activations int8, ranges from calibration."""

    backends: dict[BackendName, StaticKeys] = Field({}, description="Other values for single backends.")


class QatRecipe(QatKeys):
    """The mode `qat`: a short training with fake quantization, then as static."""

    fp32_twin: Yes = Field(
        False,
        description="Beside each qat variant the fair reference: the same network with the same training, but without "
        "fake quantization, as a further fp32 case. What int8 itself costs is the change against it.",
    )
    backends: dict[BackendName, QatKeys] = Field({}, description="Other values for single backends.")

    @model_validator(mode="after")
    def _schedules_fit(self) -> QatRecipe:
        training.check_schedule(self.schedule, self.epochs)
        for name, keys in self.backends.items():
            given = keys.model_fields_set
            if given & {"schedule", "epochs"}:
                schedule, epochs = ((keys if key in given else self) for key in ("schedule", "epochs"))
                training.check_schedule(schedule.schedule, epochs.epochs, "backends", name)
        return self


class Quantize(Section):
    """How a model becomes int8, by mode; every key has a good default."""

    canonicalize: Yes = Field(
        True, description="First rewrite the network into an equal one that quantizers match (fold BatchNorm, ...)."
    )
    target: Target | None = Field(
        None,
        description="Kinds of CPU whose kernels must give right answers from the artifact: avx2 and avx512 (both "
        "without VNNI), vnni, arm; native is this machine alone, which is always one of them. null: avx2, avx512 and "
        "vnni for static and qat on x86; native for dynamic, for inductor, and where a recipe lets sums overflow.",
    )

    dynamic: DynamicRecipe = Field(DynamicRecipe(), description="Dynamic quantization.")
    static: StaticRecipe = Field(StaticRecipe(), description="Static quantization.")
    qat: QatRecipe = Field(QatRecipe(), description="Quantization-aware training.")
    weight_only: WeightOnlyRecipe = Field(WeightOnlyRecipe(), description="Weights of few bits alone.")

    def recipe(self, mode: str, backend: str) -> Recipe:
        """The recipe of a mode on a backend: the mode's keys, then those given for that backend."""
        if mode in FLOATS:
            return Recipe(canonicalize=self.canonicalize, target=without_native(self.target or ()))
        if mode == WEIGHT_ONLY:
            weights = _read_values(self.weight_only, only_set=False)
            if (own := self.weight_only.backends.get(backend)) is not None:
                weights |= _read_values(own, only_set=True)
            return Recipe(**weights, canonicalize=False, clip_ranges=False)
        keys: DynamicRecipe | StaticRecipe | QatRecipe = getattr(self, mode)
        values = _read_values(keys, only_set=False) | {"canonicalize": self.canonicalize}
        if (override := keys.backends.get(backend)) is not None:
            values |= _read_values(override, only_set=True)
        values = training.without_idle(values)
        target = self.target if values["target"] is None else values["target"]
        return Recipe(**{**values, "target": None if target is None else without_native(target)})


def _read_values(keys: ModeKeys | WeightOnlyKeys, *, only_set: bool) -> dict[str, Any]:
    """What a section says of a recipe; ``only_set``: what is given there."""
    values = keys.model_dump(exclude={"backends", "fp32_twin", *training.NAMED}, exclude_unset=only_set)
    return values | (training.read_recipe(keys, only_set=only_set) if isinstance(keys, QatKeys) else {})


class MeasureSpec(Section):
    """How latency is measured."""

    protocol: Literal["paired", "sequential", "both"] = Field(
        "paired",
        description="paired: all cases of a setting in turn, until it is decided (spend); sequential: warm-up "
        "calls, then a fixed number of calls, as in the literature; both: paired, and sequential beside it.",
    )
    spend: Literal["decision", "all", "screening"] = Field(
        "decision",
        description="decision: every case is screened, and those that may be shipped are measured until it is decided; "
        "all: every case is measured to the precision, for a table of equal precision; screening: a first, coarse look "
        "at every case and no more, as `qbench run --quick` takes.",
    )
    precision: Share = Field(0.02, description="Half width of the speed-up's interval at which to stop.")
    max_seconds: Positive = Field(30.0, description="Most seconds of measuring for one case.")
    processes: Count = Field(
        3,
        description="Least processes of a case that is measured to the end, beside the screening: ratios differ by "
        "some per cent from one to the next.",
    )
    cores: tuple[Whole, ...] | None = Field(
        None,
        min_length=1,
        description="Cores to measure on, by number (say those that the system isolates); a case takes the last ones. "
        "null: all that this process may use.",
        json_schema_extra=UNIQUE,
    )
    warmup_calls: Whole = Field(
        10,
        description="Calls before the timed ones; fewer where a call takes 5 ms or more and is steady before "
        "(protocol paired).",
    )
    calls: Count = Field(100, description="Timed calls (protocol sequential).")
    cold_starts: Count = Field(6, description="Least processes in which loading and the first calls are timed.")
    seed: Seed = Field(0, description="Seed of the order of blocks.")


class EvaluateKeys(Section):
    """What is evaluated beside predictions and scores."""

    layers: Yes = Field(
        False,
        description="SQNR and cosine of each layer's output against fp32, on calibration examples, and the share of "
        "values on evaluation examples that it clips.",
    )
    emulated_samples: Count = Field(
        20,
        description="How many evaluation examples an emulated host (qemu:<CPU>) answers: those nearest to flipping on "
        "native first.",
    )


class DecideSpec(Section):
    """What is shipped: the best of what holds every limit, those of `gate` included."""

    minimize: ObjectiveName = Field("latency", description="What is made as small as it can be.")
    tie: ShareOrZero = Field(
        0.03, description="A difference that nobody should ship for: what is not shown to be further off is tied."
    )
    prefer: tuple[Preference, ...] = Field(
        PREFERENCES,
        description="What decides among the tied, the first that tells them apart: fewer lost examples, no training, "
        "no calibration, fewer bytes, a faster start.",
        json_schema_extra=UNIQUE,
    )
    max_latency: Seconds | None = Field(None, description="Longest typical call, say `5 ms`; null: no limit.")
    max_memory: Bytes | None = Field(
        None, description="Largest resident set of the process, say `200 MB`; null: no limit."
    )


class Limits(Section):
    """What one case may take before it is stopped."""

    stage_seconds: Positive = Field(
        600.0, description="A build, evaluation or measurement that takes longer is stopped and fails."
    )
    memory_bytes: Count | None = Field(None, description="Most memory of a worker; null: no limit.")
    train_qat: Yes = Field(True, description="false: QAT (and its fp32 twin) that the cache does not hold is skipped.")
