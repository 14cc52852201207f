"""The key ``recipe`` of a suite: one way to make models int8, or several to compare.

    recipe: framework-default
    recipe: [default, framework-default]
    recipe: {flow: [eager, fx]}
    recipe: [default, {calibrator: [minmax, percentile], reduce_range: false}]

A key with several values gives one recipe each; several such keys give every combination.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, ValidationInfo, WithJsonSchema

from qbench.models.base import OWN_FILE
from qbench.quant.recipe import (
    AUTO,
    DEFAULT,
    FLOAT_JOINS,
    FRAMEWORK_DEFAULT,
    OF_WEIGHTS,
    ONNX_STATIC,
    THREE_STATES,
    Recipe,
)
from qbench.quant.target import without_native
from qbench.suite import messages
from qbench.suite.targets import Target
from qbench.suite.types import CalibratorName, Names, Positive, Section, Share, Text, Yes, known, near, shown, wrong

Flow = Literal["auto", "eager", "fx", "pt2e", "onnx"]  # quant.recipe: AUTO and FLOWS
NAMED = (DEFAULT, FRAMEWORK_DEFAULT, FLOAT_JOINS)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
_LISTS = ("skip_layers", "target")  # keys whose one value may be a list
# What the network's own qconfig says in their place.
_SAID_BY_QCONFIG = (
    *("calibrator", "percentile", "per_channel", "symmetric", "reduce_range", "narrow_weights", "target"),
    *("clip_ranges", "embeddings"),
)
Percentile = Annotated[Positive, Field(gt=50, le=100)]


Bits = Literal[8, 4]
Group = Literal[16, 32, 64, 128, 256, "channel"]
Arithmetic = Literal["int8", "fp32"]


class RecipeKeys(Section):
    """What a recipe changes; a key that is left out is as `quantize` and the backend have it."""

    name: Text | None = Field(None, description="What cases are called; left out, its values.")
    flow: Flow | None = Field(None, description="How torch models become int8; auto: as each backend can.")
    calibrator: CalibratorName | None = Field(None, description="How activation ranges are chosen.")
    percentile: Percentile | None = Field(None, description="Per cent of the values inside the range.")
    per_channel: Yes | None = Field(None, description="Weights per channel.")
    symmetric: Yes | None = Field(None, description="Activations symmetric about zero.")
    reduce_range: Yes | None = Field(None, description="7 bits for activations, for kernels that add in 16 bits.")
    narrow_weights: Yes | None = Field(None, description="Wider steps for weights where a kernel adds in 16 bits.")
    target: Target | None = Field(None, description="Kinds of CPU that artifacts are made for, as quantize.target.")
    skip_layers: tuple[Text, ...] | None = Field(None, description="Names or patterns of layers that stay float.")
    first_layer_float: Yes | None = Field(None, description="The first layer stays float.")
    last_layer_float: Yes | None = Field(None, description="The last layer stays float.")
    clip_ranges: Yes | None = Field(None, description="A ReLU6 or Hardtanh cuts the range of the layer before it.")
    canonicalize: Yes | None = Field(None, description="Rewrite the network into an equal one that quantizers match.")
    min_coverage: Share | None = Field(None, description="Least share of multiply-accumulates in int8 (static, qat).")
    qconfig: Literal["own"] | None = Field(
        None, description="own: bits and observers are those of the network's own qconfig (torch engines)."
    )
    balance: Share | None = Field(
        None, description="static, flow onnx: exponent that moves difficulty from activations to weights (SmoothQuant)."
    )
    adaround: Yes | None = Field(None, description="static, flow onnx: weights rounded for their layer's outputs.")
    bias_correction: Yes | None = Field(
        None,
        description="static, flow onnx: biases give back the measured mean error (false: nothing, any flow).",
    )
    embeddings: Yes | None = Field(None, description="dynamic: tables of Embedding as bytes, as in `quantize`.")
    bits: Bits | None = Field(None, description="weight_only: bits of a weight.")
    group: Group | None = Field(None, description="weight_only: consecutive inputs that share a scale.")
    arithmetic: Arithmetic | None = Field(None, description="weight_only: what multiplies: bytes or floats.")


@dataclass(frozen=True, kw_only=True)
class RecipeChoice:
    """One recipe of a suite: its name, and what it sets over the recipe of a mode and backend."""

    name: str
    keys: tuple[tuple[str, Any], ...] = ()

    def over(self, recipe: Recipe) -> Recipe:
        """The recipe with what this choice sets."""
        if self.name in (FRAMEWORK_DEFAULT, FLOAT_JOINS):
            untouched = replace(recipe, name=self.name, framework_default=True, target=())
            floats = self.name == FLOAT_JOINS or bool(dict(self.keys).get("float_joins"))
            return replace(untouched, canonicalize=False, clip_ranges=False, float_joins=floats or None)
        # One that is switched off is left out: it is the same artifact, under the same key of the cache.
        keys: dict[str, Any] = {key: None if _is_off(key, value) else value for key, value in self.keys}
        chosen = replace(recipe, name=self.name, **keys)
        return chosen if chosen.target is None else replace(chosen, target=without_native(chosen.target))

    @property
    def flow(self) -> str | None:
        """The flow that it asks for; None where each backend may take its own."""
        flow: str | None = dict(self.keys).get("flow")
        return None if flow == AUTO else flow

    def find_unfit(self, mode: str, flows: Collection[str]) -> tuple[str, ...]:
        """The keys that it sets of static quantization to ONNX, where the mode and the flows of a backend have none of
        these. Biases stay as they are (``bias_correction: false``) in the flows of torch, too."""
        return tuple(
            key
            for key, value in self.keys
            if key in ONNX_STATIC
            and not _is_off(key, value)
            and (mode != "static" or not set(flows) & {"onnx", *(() if value else ("fx", "eager", "pt2e"))})
        )

    @property
    def of_weights(self) -> tuple[str, ...]:
        """The keys that it sets and that only weight_only has."""
        return tuple(key for key, _ in self.keys if key in OF_WEIGHTS)

    @property
    def own_qconfig(self) -> bool:
        """Whether it takes the network's own qconfig."""
        return dict(self.keys).get("qconfig") is not None


def _is_off(key: str, value: Any) -> bool:
    """Whether a key of static quantization to ONNX is set to what it is without."""
    return key in ONNX_STATIC and not value and (value is None or key not in THREE_STATES)


def _read_choices(value: Any, info: ValidationInfo) -> tuple[RecipeChoice, ...]:
    """The recipes that the key names; raises at the place of the first one that is none."""
    several = isinstance(value, list | tuple)
    if several and not value:
        raise wrong("expected at least one recipe, got an empty list")
    choices: dict[str, RecipeChoice] = {}
    for index, item in enumerate(value if several else [value]):
        at = (index,) if several else ()
        for choice in _expand_item(item, at, known(info)):
            if choice.name in choices:
                raise wrong(f"two recipes are called '{choice.name}'; give one a name of its own", *at)
            choices[choice.name] = choice
    return tuple(choices.values())


def _expand_item(item: Any, at: tuple[str | int, ...], registered: Names) -> list[RecipeChoice]:
    """The recipes of one item of the list: one for each combination of its keys' values."""
    if isinstance(item, str):
        if item not in NAMED:
            raise wrong(f"no recipe named '{item}'{near(item, NAMED) or ';'} named ones: {', '.join(NAMED)}", *at)
        return [RecipeChoice(name=item)]
    if not isinstance(item, dict) or not item:
        raise wrong(f"expected a recipe's name or its keys (key: value), got {shown(item)}", *at)
    axes = [_read_axis(key, value, at, registered) for key, value in item.items() if key != "name"]
    if item.get("qconfig") is not None and (idle := next((key for key in item if key in _SAID_BY_QCONFIG), None)):
        raise wrong("the network's own qconfig says this (qconfig: own); remove one of the two", *at, idle)
    name = item.get("name")
    if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name) or name in NAMED):
        raise wrong(f"expected a short name of letters, digits, '.', '_', '+' and '-', got {shown(name)}", *at, "name")
    if name is not None and (name == OWN_FILE or name.startswith(f"{OWN_FILE}-")):
        raise wrong(
            f"names that begin with '{OWN_FILE}' are those of int8 files of your own; take another", *at, "name"
        )
    if not axes:
        raise wrong("a recipe with a name and no keys is the default; give it keys", *at)
    return [_name_choice(name, keys, [len(axis) > 1 for axis in axes]) for keys in itertools.product(*axes)]


def _read_axis(key: Any, value: Any, at: tuple[str | int, ...], registered: Names) -> list[tuple[str, Any]]:
    """The values of one key, each checked; a list is several values (of ``_LISTS``, where it holds lists)."""
    options = sorted(RecipeKeys.model_fields)
    if key not in RecipeKeys.model_fields:
        raise wrong(
            f"unknown key '{key}'{near(str(key), options) or ';'} available: {', '.join(options)}", *at, str(key)
        )
    several = isinstance(value, list | tuple) and (key not in _LISTS or any(isinstance(item, list) for item in value))
    axis = []
    for index, item in enumerate(value if several else [value]):
        place = (*at, str(key), *((index,) if several else ()))
        if item is None:
            raise wrong("expected a value; leave the key out for its default", *place)
        try:
            axis.append((str(key), getattr(RecipeKeys.model_validate({key: item}, context=registered), key)))
        except ValidationError as error:
            raise wrong(messages.what(error.errors()[0]), *place) from error
    if not axis:
        raise wrong("expected at least one value, got an empty list", *at, str(key))
    return axis


def _name_choice(name: Any, keys: tuple[tuple[str, Any], ...], varies: list[bool]) -> RecipeChoice:
    """The choice, named by its values; where a name is given and several values, by the name and those that vary."""
    naming = [pair for pair, varying in zip(keys, varies, strict=True) if varying] if name and any(varies) else keys
    words = [str(name)] if name else []
    if not name or any(varies):
        words += [_describe_value(key, value) for key, value in naming]
    return RecipeChoice(name="+".join(words)[:60], keys=keys)


def _describe_value(key: str, value: Any) -> str:
    """What a recipe's name says of a key's value."""
    if key == "qconfig":
        return f"{value}-{key}"
    if isinstance(value, bool):
        return key if value else f"no-{key}"
    if key == "target":
        return "-".join(("for", *value))
    if isinstance(value, tuple):
        return "skip-" + "-".join(re.sub(r"[^A-Za-z0-9._]+", "x", layer) for layer in value)
    return str(value) if isinstance(value, str) else f"{key}-{value:g}"


def _make_schema() -> dict[str, Any]:
    keys = RecipeKeys.model_json_schema()["properties"]
    several = {key: {"anyOf": [value, {"type": "array", "minItems": 1}]} for key, value in keys.items()}
    item = {
        "anyOf": [
            {"enum": list(NAMED)},
            {"type": "object", "properties": several, "additionalProperties": False, "minProperties": 1},
        ]
    }
    return {"anyOf": [*item["anyOf"], {"type": "array", "items": item, "minItems": 1}]}


RecipeChoices = Annotated[tuple[RecipeChoice, ...], PlainValidator(_read_choices), WithJsonSchema(_make_schema())]
DEFAULT_CHOICE = RecipeChoice(name=DEFAULT)
