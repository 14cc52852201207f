"""A change to a case: what a counterfactual does otherwise. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qbench.plan.cases import Case, Variant
from qbench.plan.variants import Variants
from qbench.quant.recipe import DEFAULT, FLOAT_JOINS, Recipe
from qbench.quant.target import NATIVE

_OF_ALL_MODES = ("canonicalize",)  # keys of a suite's `quantize` itself


@dataclass(frozen=True, kw_only=True)
class Change:
    """What differs from a case; None and empty: nothing. ``recipe``: fields of ``quant.recipe.Recipe``, as a suite
    gives them; ``own_recipe``: qbench's default recipe in place of the case's. ``calibrate``: the split that ranges are
    calibrated on, and how many examples of it. ``environment``: variables of the process. ``flush_denormals``: its
    arithmetic takes denormals as zero."""

    mode: str | None = None
    backend: str | None = None
    own_recipe: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    batch_size: int | None = None
    calibrate: tuple[str, int] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    flush_denormals: bool = False

    def then(self, other: Change) -> Change:
        """Both changes; where both say something of the same thing, the other one, but layers to skip are joined,
        and the lower ``min_coverage`` is kept."""
        recipe = {**self.recipe, **other.recipe}
        if "skip_layers" in self.recipe and other.recipe.get("skip_layers"):
            recipe["skip_layers"] = tuple(dict.fromkeys([*self.recipe["skip_layers"], *other.recipe["skip_layers"]]))
        if "min_coverage" in self.recipe and "min_coverage" in other.recipe:
            recipe["min_coverage"] = min(self.recipe["min_coverage"], other.recipe["min_coverage"])
        return Change(
            mode=other.mode or self.mode,
            backend=other.backend or self.backend,
            own_recipe=self.own_recipe or other.own_recipe,
            recipe=recipe,
            threads=other.threads or self.threads,
            batch_size=other.batch_size or self.batch_size,
            calibrate=other.calibrate or self.calibrate,
            environment={**self.environment, **other.environment},
            flush_denormals=self.flush_denormals or other.flush_denormals,
        )

    def takes_back(self, other: Change, recipe: Recipe) -> bool:
        """Whether it gives a field that another change has set the value of the ``recipe`` before both."""
        return any(name in other.recipe and value == getattr(recipe, name) for name, value in self.recipe.items())

    @property
    def rebuilds(self) -> bool:
        """Whether it takes another artifact."""
        return bool(self.mode or self.backend or self.own_recipe or self.recipe or self.calibrate)

    def apply(self, case: Case, variants: Variants) -> Case:
        """The case with the change, as its suite (whose ``variants`` these are) has it with ``suite_keys``."""
        variant = case.variant
        if self.mode or self.backend or self.own_recipe or self.recipe:
            mode, backend = self.mode or variant.mode, self.backend or variant.backend
            name = DEFAULT if self._leaves_recipe else variant.recipe.name
            recipe = variants.recipe(mode, backend, name, self.recipe)
            own = variant.model.own_int8(name)
            if own is not None and not self.recipe:  # the same file of the user's on another backend
                recipe = variants.recipe_of_file(mode, backend, own)
            variant = Variant(model=variant.model, mode=mode, backend=backend, recipe=recipe)
        return replace(
            case,
            variant=variant,
            threads=self.threads or case.threads,
            batch_size=self.batch_size or case.batch_size,
        )

    @property
    def _leaves_recipe(self) -> bool:
        """Whether qbench's default recipe takes the place of the case's."""
        return self.own_recipe or self.mode is not None

    def suite_keys(self, case: Case, of_recipe: Mapping[str, Any], listed: Collection[str] = ()) -> dict[str, Any]:
        """What to write into a suite to have it, as its keys; ``of_recipe``: what the suite says in the case's recipe,
        which stands there again, ``listed`` its recipes by name. Variables of the process are no part of a suite."""
        mode = self.mode or case.variant.mode
        keys: dict[str, Any] = {}
        matrix = {
            "modes": [self.mode] if self.mode else None,
            "backends": [self.backend] if self.backend else None,
            "threads": [self.threads] if self.threads else None,
            "batch_sizes": [self.batch_size] if self.batch_size else None,
        }
        if any(matrix.values()):
            keys["matrix"] = {name: value for name, value in matrix.items() if value}
        if self.calibrate is not None:
            split, samples = self.calibrate
            keys["data"] = {"calibrate": {"split": split, "samples": samples}, "overlap": "allow"}
        values, named = _list_values(self.recipe), case.variant.recipe.name
        if values.pop("float_joins", False) and not self._leaves_recipe:
            return {**keys, "recipe": [FLOAT_JOINS]}
        if self._leaves_recipe and named != DEFAULT:
            keys |= {} if DEFAULT in listed else {"recipe": [DEFAULT]}
        elif values and named != DEFAULT:  # its keys go before those of quantize
            return {**keys, "recipe": [{"name": named, **_list_values(of_recipe), **values}]}
        whole = {name: values.pop(name) for name in _OF_ALL_MODES if name in values}
        if values:  # those of the backend go before those of the mode
            whole[mode] = {"backends": {self.backend or case.variant.backend: values}}
        if whole:
            keys["quantize"] = whole
        return keys


def _list_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    if "target" in values:  # for no other CPU
        values["target"] = values["target"] or [NATIVE]
    return values
