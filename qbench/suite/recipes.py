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
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema

from qbench.models.base import OWN_FILE
from qbench.quant.recipe import DEFAULT, FRAMEWORK_DEFAULT, Recipe
from qbench.suite import words
from qbench.suite.values import Positive, Section, Share, Text, Yes, near, shown, wrong

# entropy, ifmr and hfmg are those of the ONNX flow; the torch flows have the others, and the ONNX flow all of them.
Calibrator = Literal["minmax", "moving_average", "histogram", "percentile", "mse", "entropy", "ifmr", "hfmg"]
Flow = Literal["eager", "fx", "pt2e", "onnx"]
NAMED = (DEFAULT, FRAMEWORK_DEFAULT)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
Percentile = Annotated[Positive, Field(gt=50, le=100)]


class RecipeKeys(Section):
    """What a recipe changes; a key that is left out is as `quantize` and the backend have it."""

    name: Text | None = Field(None, description="What cases are called; left out, its values.")
    flow: Flow | None = Field(None, description="How torch models become int8; null: the backend's own.")
    calibrator: Calibrator | None = Field(None, description="How activation ranges are chosen.")
    percentile: Percentile | None = Field(None, description="Per cent of the values inside the range.")
    per_channel: Yes | None = Field(None, description="Weights per channel.")
    symmetric: Yes | None = Field(None, description="Activations symmetric about zero.")
    reduce_range: Yes | None = Field(None, description="7 bits for activations, for kernels that add in 16 bits.")
    narrow_weights: Yes | None = Field(None, description="Wider steps for weights where a kernel adds in 16 bits.")
    skip_layers: tuple[Text, ...] | None = Field(None, description="Names or patterns of layers that stay float.")
    first_layer_float: Yes | None = Field(None, description="The first layer stays float.")
    last_layer_float: Yes | None = Field(None, description="The last layer stays float.")
    clip_ranges: Yes | None = Field(None, description="A ReLU6 or Hardtanh cuts the range of the layer before it.")
    canonicalize: Yes | None = Field(None, description="Rewrite the network into an equal one that quantizers match.")
    min_coverage: Share | None = Field(None, description="Least share of multiply-accumulates in int8.")
    embeddings: Yes | None = Field(None, description="dynamic on torch engines: tables of Embedding as quint8.")


@dataclass(frozen=True, kw_only=True)
class RecipeChoice:
    """One recipe of a suite: its name, and what it sets over the recipe of a mode and backend."""

    name: str
    keys: tuple[tuple[str, Any], ...] = ()

    def over(self, recipe: Recipe) -> Recipe:
        """The recipe with what this choice sets."""
        if self.name == FRAMEWORK_DEFAULT:
            return replace(recipe, name=self.name, framework_default=True, canonicalize=False, clip_ranges=False)
        return replace(recipe, name=self.name, **dict(self.keys))

    @property
    def flow(self) -> str | None:
        """The flow that it asks for, if any."""
        found: str | None = dict(self.keys).get("flow")
        return found


def _choices(value: Any) -> tuple[RecipeChoice, ...]:
    """The recipes that the key names; raises at the place of the first one that is none."""
    several = isinstance(value, list | tuple)
    if several and not value:
        raise wrong("expected at least one recipe, got an empty list")
    found: dict[str, RecipeChoice] = {}
    for index, item in enumerate(value if several else [value]):
        at = (index,) if several else ()
        for choice in _expanded(item, at):
            if choice.name in found:
                raise wrong(f"two recipes are called '{choice.name}'; give one a name of its own", *at)
            found[choice.name] = choice
    return tuple(found.values())


def _expanded(item: Any, at: tuple[str | int, ...]) -> list[RecipeChoice]:
    if isinstance(item, str):
        if item not in NAMED:
            raise wrong(f"no recipe named '{item}'{near(item, NAMED) or ';'} named ones: {', '.join(NAMED)}", *at)
        return [RecipeChoice(name=item)]
    if not isinstance(item, dict) or not item:
        raise wrong(f"expected a recipe's name or its keys (key: value), got {shown(item)}", *at)
    axes = [_axis(key, value, at) for key, value in item.items() if key != "name"]
    name = item.get("name")
    if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name) or name in NAMED):
        raise wrong(f"expected a short name of letters, digits, '.', '_', '+' and '-', got {shown(name)}", *at, "name")
    if name is not None and (name == OWN_FILE or name.startswith(f"{OWN_FILE}-")):
        raise wrong(
            f"names that begin with '{OWN_FILE}' are those of int8 files of your own; take another", *at, "name"
        )
    if not axes:
        raise wrong("a recipe with a name and no keys is the default; give it keys", *at)
    return [_choice(name, keys, [len(axis) > 1 for axis in axes]) for keys in itertools.product(*axes)]


def _axis(key: Any, value: Any, at: tuple[str | int, ...]) -> list[tuple[str, Any]]:
    """The values of one key, each checked; a list is several values (of ``skip_layers``, where it holds lists)."""
    options = sorted(RecipeKeys.model_fields)
    if key not in RecipeKeys.model_fields:
        raise wrong(
            f"unknown key '{key}'{near(str(key), options) or ';'} available: {', '.join(options)}", *at, str(key)
        )
    several = isinstance(value, list | tuple) and (key != "skip_layers" or any(isinstance(one, list) for one in value))
    found = []
    for index, one in enumerate(value if several else [value]):
        place = (*at, str(key), *((index,) if several else ()))
        if one is None:
            raise wrong("expected a value; leave the key out for its default", *place)
        try:
            found.append((str(key), getattr(RecipeKeys.model_validate({key: one}), key)))
        except ValidationError as error:
            raise wrong(words.what(error.errors()[0]), *place) from error
    if not found:
        raise wrong("expected at least one value, got an empty list", *at, str(key))
    return found


def _choice(name: Any, keys: tuple[tuple[str, Any], ...], varies: list[bool]) -> RecipeChoice:
    """Named by its values; where a name is given and several values, by the name and those that vary."""
    telling = [pair for pair, one in zip(keys, varies, strict=True) if one] if name and any(varies) else keys
    told = [str(name)] if name else []
    if not name or any(varies):
        told += [_word(key, value) for key, value in telling]
    return RecipeChoice(name="+".join(told)[:60], keys=keys)


def _word(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return key if value else f"no-{key}"
    if isinstance(value, tuple):
        return "skip-" + "-".join(re.sub(r"[^A-Za-z0-9._]+", "x", one) for one in value)
    return str(value) if isinstance(value, str) else f"{key}-{value:g}"


def _schema() -> dict[str, Any]:
    keys = RecipeKeys.model_json_schema()["properties"]
    several = {key: {"anyOf": [value, {"type": "array", "minItems": 1}]} for key, value in keys.items()}
    one = {
        "anyOf": [
            {"enum": list(NAMED)},
            {"type": "object", "properties": several, "additionalProperties": False, "minProperties": 1},
        ]
    }
    return {"anyOf": [*one["anyOf"], {"type": "array", "items": one, "minItems": 1}]}


RecipeChoices = Annotated[tuple[RecipeChoice, ...], PlainValidator(_choices), WithJsonSchema(_schema())]
DEFAULT_CHOICE = RecipeChoice(name=DEFAULT)
