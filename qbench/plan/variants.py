"""The variants of a suite: which recipe each has, as its backend takes it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qbench import registry
from qbench.errors import UsageError
from qbench.models.base import FileFormat, OwnInt8
from qbench.plan.cases import Case, Variant
from qbench.plan.twins import Twins
from qbench.quant.pytorch.torch_ao import ENGINES
from qbench.quant.recipe import DEFAULT, Recipe
from qbench.record.schema import CaseKey, make_case_key
from qbench.suite import Suite
from qbench.suite.recipes import RecipeChoice

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend


_RUNS: Mapping[FileFormat, str] = {
    "onnx": "an int8 ONNX file of your own runs on onnxruntime and openvino",
    "torchscript": f"an int8 TorchScript file of your own runs on the engines of torch: {', '.join(ENGINES)}",
    "openvino": "an int8 file in OpenVINO's own form runs on openvino",
}


class Variants:
    """The variants of one suite on these backends; each is made once, whatever cases measure it."""

    def __init__(self, suite: Suite, backends: Mapping[str, Backend]) -> None:
        self.twins = Twins(suite)
        self.models = {reference.name: reference for reference in suite.references()}
        self._suite = suite
        self._backends = backends
        self._choices = {choice.name: choice for choice in suite.recipe}
        self._variants: dict[tuple[str, str, str, str], Variant] = {}

    def backend(self, name: str) -> Backend:
        """The backend of that name."""
        if name not in self._backends:
            raise UsageError(registry.unknown("backend", name, self._backends))
        return self._backends[name]

    def case(self, key: CaseKey) -> Case:
        """The case of a key; cases of one variant share it."""
        return Case(variant=self.variant(key), threads=key.threads, batch_size=key.batch_size, host=key.host)

    def variant(self, key: CaseKey) -> Variant:
        """The variant that a case measures."""
        named = (key.model, key.mode, key.backend, key.recipe)
        if named not in self._variants:
            model = self.models[key.model]
            file = model.own_int8(key.recipe)
            recipe = (
                self.recipe(key.mode, key.backend, key.recipe)
                if file is None
                else self.recipe_of_file(key.mode, key.backend, file)
            )
            self._variants[named] = Variant(model=model, mode=key.mode, backend=key.backend, recipe=recipe)
        return self._variants[named]

    def find_fp32(self, key: CaseKey) -> CaseKey | None:
        """The like-for-like fp32 of a case, on the same host; None for that fp32 itself."""
        runtime = self.backend(key.backend).runtime
        reference = make_case_key(key.model, "fp32", runtime, key.threads, key.batch_size, host=key.host)
        return None if key == reference else reference

    def find_format(self, key: CaseKey) -> FileFormat | None:
        """What the int8 file of the user's is that a case's recipe stands for; None where qbench quantizes."""
        file = self.models[key.model].own_int8(key.recipe)
        return None if file is None else file.format

    def recipe(self, mode: str, backend: str, name: str, changed: Mapping[str, Any] = MappingProxyType({})) -> Recipe:
        """The recipe of that name as the backend takes it, without open choices; ``changed``: fields that it has in
        place of the suite's."""
        recipe = self.twins.recipes.get(name) if mode == "fp32" else None
        recipe = recipe or self._suite.quantize.recipe(mode, backend)
        if mode == "fp32":
            target = self._suite.quantize.recipe(mode, backend).target if self.backend(backend).machine_code else ()
            return replace(recipe, target=target)
        least = recipe.min_coverage
        if (choice := self._choices.get(name)) is not None:
            recipe = choice.over(recipe)
        recipe = RecipeChoice(name=recipe.name, keys=tuple(changed.items())).over(recipe)
        if (
            mode == "dynamic"
        ):  # what counts as int8 there is the suite's to say: no recipe builds another artifact by it
            recipe = replace(recipe, min_coverage=least)
        return replace(self.backend(backend).resolve(mode, recipe), name=recipe.name)

    def recipe_of_file(self, mode: str, backend: str, file: OwnInt8) -> Recipe:
        """The recipe of a file that the user brings: of what the suite says of its mode, only the least coverage."""
        least = self._suite.quantize.recipe(mode, backend).min_coverage
        recipe = Recipe(name=file.recipe, file=file.file, min_coverage=least, canonicalize=False, clip_ranges=False)
        return replace(self.backend(backend).resolve(mode, recipe), name=recipe.name)

    def why_no_recipe(self, mode: str, backend: str, name: str, form: FileFormat | None = None) -> str | None:
        """Why a recipe has no meaning for a mode on a backend: another flow, or nothing that differs; None if it has.
        ``form``: what the int8 file is that it stands for, None where qbench quantizes.

        Raises ``UsageError`` for a name that the suite's ``recipe`` does not hold.
        """
        if mode == "fp32":
            return None
        if form is not None:
            return None if form in self.backend(backend).int8_formats else _RUNS[form]
        if name not in self._choices:
            have = ", ".join(self._choices)
            place = self._suite.place("matrix.include")
            raise UsageError(f"{place}: matrix.include: no recipe named '{name}'; there are {have}")
        if self._choices[name].own_qconfig and not self.backend(backend).own_qconfig:
            return (
                "it cannot read the network's own qconfig, which is torch.ao's; fbgemm, x86, onednn and qnnpack can; "
                "add the recipe default for it"
            )
        flow, flows = self._choices[name].flow, self.backend(backend).flows
        if flow is not None and flow not in flows:
            return f"its flow is {' or '.join(flows) or 'its own'}"
        recipe = replace(self.recipe(mode, backend, name), name=DEFAULT)
        if (reason := _why_not_calibrator(recipe)) is not None:
            return reason
        for earlier in itertools.takewhile(lambda choice: choice != name, self._choices):
            asked = self._choices[earlier].flow
            if asked is not None and asked not in flows:
                continue
            if recipe == replace(self.recipe(mode, backend, earlier), name=DEFAULT):
                return f"it is the same as {earlier}"
        return None


def _why_not_calibrator(recipe: Recipe) -> str | None:
    """Why the flow of a recipe cannot use its calibrator; None if it can."""
    name = recipe.calibrator
    if name is None or name in registry.BUILT_IN["calibrator"]:  # they serve every flow, and loading one imports numpy
        return None
    flows = registry.load("calibrator", name).flows
    return None if recipe.flow in flows else f"its calibrator {name} is for the flow {' or '.join(flows)}"
