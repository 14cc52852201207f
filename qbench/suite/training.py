"""How QAT trains: its optimizer, loss and schedule by name with their keys, or the user's own functions.

optimizer: sgd
optimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: true}
schedule: {name: step, every: 2, gamma: 0.1}
loss: {python: "losses.py:focal"}
train: {python: "loop.py:train"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PlainValidator, StrictFloat, ValidationError

from qbench.suite import messages
from qbench.suite.types import Count, Positive, PythonTarget, Section, ShareToOne, Yes, near, shown, wrong

NAMED = ("optimizer", "schedule", "loss", "train")  # the keys of `quantize.qat` that this module reads
LossName = Literal["cross_entropy", "binary_cross_entropy", "mse", "l1", "smooth_l1", "huber"]
LOSSES: tuple[str, ...] = get_args(LossName)
BelowOne = Annotated[StrictFloat, Field(ge=0, lt=1, allow_inf_nan=False)]
NotNegative = Annotated[StrictFloat, Field(ge=0, allow_inf_nan=False)]


class SgdKeys(Section):
    """Stochastic gradient descent."""

    name: Literal["sgd"] = Field(description="The optimizer.")
    lr: Positive | None = Field(None, description="Step size, as learning_rate.")
    momentum: BelowOne | None = Field(None, description="Share of the last step that goes on; torch's own: 0.")
    dampening: BelowOne | None = Field(None, description="Share of the gradient that momentum leaves out.")
    weight_decay: NotNegative | None = Field(None, description="L2 penalty.")
    nesterov: Yes | None = Field(None, description="Nesterov momentum.")


class AdamKeys(Section):
    """Adam, and AdamW, whose weight decay is apart from the gradient."""

    name: Literal["adam", "adamw"] = Field(description="The optimizer.")
    lr: Positive | None = Field(None, description="Step size, as learning_rate.")
    betas: tuple[BelowOne, BelowOne] | None = Field(None, description="Averaging of gradients and of their squares.")
    eps: Positive | None = Field(None, description="What keeps a division from 0.")
    weight_decay: NotNegative | None = Field(None, description="L2 penalty; AdamW: decay of the weights, 0.01.")
    amsgrad: Yes | None = Field(None, description="The largest average of squares so far.")


class ConstantKeys(Section):
    """The learning rate as it is."""

    name: Literal["constant"] = Field(description="The schedule.")
    warmup: NotNegative | None = Field(None, description="Epochs in which the rate rises from 0.")


class FallingKeys(Section):
    """The learning rate falls step by step to its end: along half a cosine, or a line."""

    name: Literal["cosine", "linear"] = Field(description="The schedule.")
    warmup: NotNegative | None = Field(None, description="Epochs in which the rate rises from 0.")
    end: ShareToOne | None = Field(None, description="Share of the rate at the end; left out, 0.")


class StepKeys(Section):
    """The learning rate falls by a factor every so many epochs."""

    name: Literal["step"] = Field(description="The schedule.")
    warmup: NotNegative | None = Field(None, description="Epochs in which the rate rises from 0.")
    every: Count = Field(description="Epochs between two falls.")
    gamma: Annotated[Positive, Field(le=1)] | None = Field(None, description="What a fall leaves; left out, 0.1.")


OPTIMIZERS: Mapping[str, type[Section]] = {"sgd": SgdKeys, "adam": AdamKeys, "adamw": AdamKeys}
SCHEDULES: Mapping[str, type[Section]] = {
    "constant": ConstantKeys, "cosine": FallingKeys, "linear": FallingKeys, "step": StepKeys,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Named:
    """An optimizer or a schedule: its name, and its keys that are given."""

    name: str
    keys: tuple[tuple[str, Any], ...] = ()

    def get(self, key: str) -> Any:
        """The value of a key; None where it is not given."""
        return dict(self.keys).get(key)


def _read_named(value: Any, *, kinds: Mapping[str, type[Section]], what: str) -> Named:
    """The choice that a name, or a mapping with a name, makes; raises at its place."""
    if isinstance(value, Named):
        return value
    if value is None:
        raise wrong(f"expected the name of {what}, got nothing; leave the key out for its default")
    keys: Mapping[str, Any] = value if isinstance(value, dict) else {"name": value}
    if "name" not in keys:
        example = next(iter(kinds))
        raise wrong(f"expected the name of {what} with its keys, such as {{name: {example}, …}}; name is missing")
    name, at = keys["name"], ("name",) if isinstance(value, dict) else ()
    if not isinstance(name, str) or name not in kinds:
        hint = near(name.lower(), kinds) if isinstance(name, str) else ""
        raise wrong(f"no {what.split()[-1]} named {shown(name)}{hint or ';'} available: {', '.join(kinds)}", *at)
    return Named(name=name, keys=_read_keys(keys, name, kinds[name]))


def _read_keys(written: Mapping[str, Any], name: str, kind: type[Section]) -> tuple[tuple[str, Any], ...]:
    try:
        section = kind.model_validate(written)
    except ValidationError as error:
        first = _first(error)
        key, options = str(first["loc"][0]), tuple(key for key in kind.model_fields if key != "name")
        if first["type"] == "extra_forbidden":
            hint = near(key, options) or ";"
            raise wrong(f"{name} has no key '{key}'{hint} it has {', '.join(options)}", key) from error
        if first["type"] == "missing" and len(first["loc"]) > 1:
            raise wrong("expected two numbers, such as [0.9, 0.999]", key) from error
        if first["type"] == "missing":
            raise wrong(f"{name} needs {key}, such as {{name: {name}, {key}: 2}}") from error
        raise wrong(messages.what(first), *first["loc"]) from error
    values = ((key, getattr(section, key)) for key in kind.model_fields if key != "name")
    keys = tuple((key, value) for key, value in values if value is not None)
    if dict(keys).get("nesterov") and (not dict(keys).get("momentum") or dict(keys).get("dampening")):
        raise wrong("Nesterov momentum needs a momentum above 0, and no dampening", "nesterov")
    return keys


def _first(error: ValidationError) -> Any:
    """The first error, a wrong key before one that is missing for it."""
    return min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")


def _read_loss(value: Any) -> str:
    """A loss by its name, or ``file.py:function``."""
    if isinstance(value, dict):
        return _read_python(value)
    if isinstance(value, str) and ":" in value and not value.startswith(":"):
        raise wrong(f"expected a name or {{python: {value}}}, got {shown(value)}")
    if value not in LOSSES:
        hint = near(value, LOSSES) if isinstance(value, str) else ""
        own = "; one of your own: {python: file.py:function}"
        raise wrong(f"no loss named {shown(value)}{hint or ';'} available: {', '.join(LOSSES)}{own}")
    return str(value)


class UserFunction(Section):
    """A function of the user's own."""

    python: PythonTarget = Field(description="`file.py:function`.")


def _read_python(value: Any) -> str:
    """``file.py:function`` of ``{python: file.py:function}``."""
    if not isinstance(value, dict):
        raise wrong(f"expected {{python: file.py:function}}, got {shown(value)}")
    try:
        return UserFunction.model_validate(value).python
    except ValidationError as error:
        first = _first(error)
        if first["type"] == "extra_forbidden":
            raise wrong(f"unknown key '{first['loc'][0]}'; available: python", *first["loc"]) from error
        if first["type"] == "missing":
            raise wrong("expected {python: file.py:function}; python is missing") from error
        raise wrong(messages.what(first), *first["loc"]) from error


Optimizer = Annotated[
    Any,
    PlainValidator(
        partial(_read_named, kinds=OPTIMIZERS, what="an optimizer"),
        json_schema_input_type=Literal["sgd", "adam", "adamw"] | SgdKeys | AdamKeys,
    ),
]
Schedule = Annotated[
    Any,
    PlainValidator(
        partial(_read_named, kinds=SCHEDULES, what="a schedule"),
        json_schema_input_type=Literal["constant", "cosine", "linear"] | ConstantKeys | FallingKeys | StepKeys,
    ),
]
Loss = Annotated[str, PlainValidator(_read_loss, json_schema_input_type=LossName | UserFunction)]
OwnLoop = Annotated[str, PlainValidator(_read_python, json_schema_input_type=UserFunction)]


def read_recipe(keys: Any, *, only_set: bool) -> dict[str, Any]:
    """What the keys of this module in a section ``QatKeys`` say, as a recipe has them; ``only_set``: those given."""
    said: dict[str, Any] = {}
    for name in NAMED:
        if only_set and name not in keys.model_fields_set:
            continue
        value = getattr(keys, name)
        if not isinstance(value, Named):
            said |= {name: value} | ({f"{name}_keys": ()} if name in ("optimizer", "schedule") else {})
            continue
        said |= {name: value.name, f"{name}_keys": tuple(pair for pair in value.keys if pair[0] != "lr")}
        if value.get("lr") is not None:
            said["learning_rate"] = value.get("lr")
    return said


def without_idle(values: dict[str, Any]) -> dict[str, Any]:
    """A QAT recipe's values without what a loop of the user's own decides itself."""
    if values.get("train") is None:
        return values
    idle = {"optimizer": None, "schedule": None, "loss": None, "distill": None}
    return {**values, **idle, "optimizer_keys": (), "schedule_keys": ()}


def check_section(keys: Any) -> None:
    """Raises where keys of one section say two things."""
    given = keys.model_fields_set
    if "learning_rate" in given and isinstance(keys.optimizer, Named) and keys.optimizer.get("lr") is not None:
        raise wrong("learning_rate says this, too; remove one of the two", "optimizer", "lr")
    if keys.train is not None:
        for name in ("optimizer", "schedule", "loss", "distill"):
            if name in given and getattr(keys, name) is not None:
                raise wrong("a training loop of your own (train) decides this itself; remove one of the two", name)


def check_schedule(schedule: Any, epochs: int, *at: str) -> None:
    """Raises where a schedule needs more epochs than there are."""
    if not isinstance(schedule, Named):
        return
    every, warmup = schedule.get("every"), schedule.get("warmup") or 0
    there = f"there {'is 1 epoch' if epochs == 1 else f'are {epochs} epochs'}; raise epochs"
    if every is not None and warmup + every >= epochs:
        raise wrong(f"the rate would never fall: {there}, or take another schedule", *at, "schedule", "every")
    if warmup >= epochs:
        raise wrong(f"all epochs would be warm-up: {there}, or warm up for fewer", *at, "schedule", "warmup")
