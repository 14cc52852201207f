"""What accuracy must hold: the metric, one of qbench's or your own, and the largest loss.

Docstrings and descriptions go to the JSON Schema that editors read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, ValidationInfo, WithJsonSchema, model_validator

from qbench import registry
from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.suite import messages
from qbench.suite.types import Number, PythonTarget, Section, Yes, known, near, shown, wrong

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.metrics.spec import MetricSpec
    from qbench.record.schema import Record

# What judges without `metric:`, with labels in the data and without.
DEFAULTS = ("top1", "top1_agreement")
# What judges then where a network's outputs are no scores of classes, and the least of it: a share of 1 % of noise.
OF_ANY_OUTPUTS, LEAST_OF_ANY = "sqnr", 20.0
_FAMILIES = {name: pattern for name, (pattern, _) in registry.FAMILIES["metric"].items()}


class OwnKeys(Section):
    """A score of your own, and how it is shown."""

    python: PythonTarget = Field(
        description="`file.py:function`, called with outputs and labels of all examples; it returns one number, or "
        " an array of one number for each example, whose mean is the score."
    )
    percent: Yes = Field(False, description="It is a share between 0 and 1, shown in percent.")
    higher_is_better: Yes = Field(True, description="A higher score is better.")
    against: Literal["labels", "fp32"] = Field(
        "labels", description="What the function is given beside the outputs: the labels, or fp32's outputs."
    )
    unit: str = Field("", description="The unit of the score, where it is no share.", max_length=20)


class OwnMetric(str):
    """What records call a score of your own (``file.py:function``), and what the suite says of it in ``keys``."""

    keys: OwnKeys

    def __new__(cls, keys: OwnKeys) -> OwnMetric:
        """The name is that of the file, without its folders, and the function."""
        metric = super().__new__(cls, PurePath(keys.python).name)
        metric.keys = keys
        return metric

    def __reduce__(self) -> tuple[type[OwnMetric], tuple[OwnKeys]]:
        """How it travels between processes."""
        return OwnMetric, (self.keys,)

    def spec(self, base: Path) -> MetricSpec:
        """The metric with an absolute path; ``base`` is the suite's folder."""
        from qbench.metrics.spec import MetricSpec
        from qbench.metrics.user_metric import UserFunction

        file, _, attribute = self.keys.python.rpartition(":")
        function = UserFunction(
            file=regular_file.resolve_path(file, base),
            attribute=attribute,
            percent=self.keys.percent,
            higher_is_better=self.keys.higher_is_better,
            against=self.keys.against,
            unit=self.keys.unit,
        )
        return MetricSpec(name=str(self), function=function)


def _metric(value: Any, info: ValidationInfo) -> str:
    """A metric's name, or a mapping with the key python."""
    if isinstance(value, dict):
        return OwnMetric(_own_keys(value))
    options = known(info).of("metric")
    if not isinstance(value, str):
        raise wrong(f"expected the name of a metric, or {{python: file.py:function}}, got {shown(value)}")
    if value in options or any(re.fullmatch(pattern, value) for pattern in _FAMILIES.values()):
        return value
    raise wrong(registry.unknown("metric", value, (*options, *_FAMILIES, *registry.MAPPINGS["metric"])))


def _own_keys(value: dict[Any, Any]) -> OwnKeys:
    try:
        return OwnKeys.model_validate(value)
    except ValidationError as error:
        # An unknown key is said first: it may be the one that is missing, misspelt.
        first = sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden")[0]
        at = tuple(first["loc"])
        if first["type"] != "extra_forbidden":
            raise wrong(messages.what(first), *at) from error
        keys = sorted(OwnKeys.model_fields)
        unknown = f"unknown key '{at[-1]}'{near(str(at[-1]), keys) or ';'} available: {', '.join(keys)}"
        raise wrong(unknown, *at) from error


MetricKey = Annotated[
    str,
    PlainValidator(_metric),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": sorted(registry.BUILT_IN["metric"])},
                {"type": "string", "pattern": "|".join(f"^{pattern}$" for pattern in _FAMILIES.values())},
                {"type": "string"},
                OwnKeys.model_json_schema(),
            ]
        }
    ),
]


class AccuracyGate(Section):
    """What accuracy must hold, as non-inferiority to fp32."""

    metric: MetricKey = Field(
        DEFAULTS[0],
        description="The suite's metric: a name, `top<k>` for any k, `recall:<class>` (f1, precision) of one class, or "
        "`{python: file.py:function}`. Left out, data without labels is judged by top1_agreement, "
        "outputs that are no classes by sqnr.",
    )
    margin: Annotated[Number, Field(ge=0)] = Field(
        1.0,
        description="Largest loss: percentage points for a metric in percent, else the metric's own unit, and then to "
        "be given.",
    )
    max_regression: Annotated[Number, Field(ge=0)] | None = Field(
        None,
        description="Largest loss of int8 against the int8 of the stored baseline, in the unit of the margin; null: as "
        "much as the margin, and with at_least not gated.",
    )
    at_least: Number | None = Field(
        None,
        description="Smallest score, as shown, in place of a margin; for metrics against fp32 (sqnr: dB), whose own "
        "score is known.",
    )

    @model_validator(mode="before")
    @classmethod
    def _margin_from_least(cls, data: Any) -> Any:
        """fp32's score is known for a metric against it, so that a smallest score is a margin below that."""
        if not isinstance(data, dict) or "margin" in data:
            return data
        least, metric = data.get("at_least"), data.get("metric", DEFAULTS[0])
        if isinstance(least, bool) or not isinstance(least, int | float) or not isinstance(metric, str):
            return data
        perfect = _perfect_score(metric)
        return data if perfect is None or not 0 <= perfect - least < math.inf else {**data, "margin": perfect - least}

    @model_validator(mode="after")
    def _says_the_largest_loss(self) -> AccuracyGate:
        given = self.model_fields_set
        if self.at_least is not None:
            perfect = _perfect_score(self.metric)
            if perfect is None:
                raise wrong(f"fp32 has no known score of {self.metric}, so write a margin in place of this", "at_least")
            if self.at_least > perfect:
                raise wrong(f"{self.metric} is at most {perfect:g}, got {shown(self.at_least)}", "at_least")
            if self.margin != perfect - self.at_least:
                raise wrong("margin and at_least say the same in two ways; remove one", "at_least")
        if "margin" not in given and not _in_percent(self.metric):
            hint = " (or `percent: true` beside python)" if isinstance(self.metric, OwnMetric) else ""
            raise wrong(f"{self.metric} is not in percent; write the largest loss, in its own unit{hint}", "margin")
        return self

    @property
    def allowed_regression(self) -> float | None:
        """The largest loss against the baseline's int8, as shown; None where the suite gates a smallest score instead,
        which says nothing about a loss."""
        if self.max_regression is not None:
            return self.max_regression
        return None if self.at_least is not None else self.margin

    @property
    def floor(self) -> float | None:
        """``at_least``, but where an override gives a case a margin in its place."""
        if self.at_least is None:
            return None
        perfect = _perfect_score(self.metric)
        return self.at_least if perfect is not None and self.margin == perfect - self.at_least else None

    @property
    def in_percent(self) -> bool:
        """Whether the metric is a share, so that the margin is in percentage points."""
        return _in_percent(self.metric)

    @property
    def is_named(self) -> bool:
        """Whether the suite names a metric; else the data decides between those of ``DEFAULTS``."""
        return "metric" in self.model_fields_set

    def judge_any_outputs(self, metric: str | None) -> AccuracyGate:
        """What holds for a run that ``metric`` judges (None: not known yet): these rules, or, where the suite says
        nothing of accuracy and the networks' outputs left no other choice, the least of ``OF_ANY_OUTPUTS``."""
        if metric != OF_ANY_OUTPUTS or self.model_fields_set:
            return self
        chosen = AccuracyGate(metric=OF_ANY_OUTPUTS, at_least=LEAST_OF_ANY)
        return AccuracyGate.model_construct(_fields_set=set(), **dict(chosen))  # nobody has written them

    def choose_metric(self, *, base: Path, labelled: bool) -> MetricSpec:
        """The metric that scores a run on data with labels or without; ``base`` is the suite's folder.

        Without labels, and where the suite names no metric, it is the agreement with fp32.
        """
        from qbench.metrics.spec import MetricSpec

        if isinstance(self.metric, OwnMetric):
            return self.metric.spec(base)
        return MetricSpec(name=DEFAULTS[1] if not labelled and not self.is_named else self.metric)

    def recall_metric(self, records: Iterable[Record], base: Path) -> MetricSpec:
        """The metric of the part of the run that these records come from; before any, that of data with labels."""
        from qbench.metrics.spec import MetricSpec

        metrics = {record.accuracy.metric for record in records if record.accuracy is not None}
        if metrics == {OF_ANY_OUTPUTS} and not self.model_fields_set:
            return MetricSpec(name=OF_ANY_OUTPUTS)
        return self.choose_metric(base=base, labelled=metrics != {DEFAULTS[1]})


def _perfect_score(metric: str) -> float | None:
    """The score that fp32 has by definition, as shown, where more is better; None where there is none."""
    loaded = _load(metric)
    if loaded is None or loaded.perfect is None or not loaded.higher_is_better:
        return None
    return float(loaded.perfect * (100 if loaded.percent else 1))


def _in_percent(metric: str) -> bool:
    if isinstance(metric, OwnMetric):
        return metric.keys.percent
    loaded = None if metric in DEFAULTS else _load(metric)  # loading it imports numpy, which a plan does not need
    return loaded is None or bool(loaded.percent)


def _load(metric: str) -> Any:
    """The metric of a name; None for a score of the suite's own and for a name that cannot be loaded (said later)."""
    try:
        return None if isinstance(metric, OwnMetric) else registry.load("metric", metric)
    except UsageError:
        return None
