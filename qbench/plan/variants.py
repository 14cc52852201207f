"""The variants of a suite: which recipe each has, as its backend takes it, or why there is none; the fp32 twins. Pure.

What a QAT variant gains over its like-for-like fp32 may be the training's, since fp32 was trained less. Its twin, the
same network with the same training but without fake quantization, tells the two apart. Variants that are trained alike
have one twin on each runtime, whatever their engines and recipes: a recipe says how a network is quantized,
``quantize.qat`` how it is trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qbench import registry
from qbench.errors import UsageError
from qbench.models.base import FileFormat, OwnInt8
from qbench.modes import FLOATS, HALVES, WEIGHT_ONLY, is_int8
from qbench.plan.cases import Case, Variant
from qbench.quant.pytorch.torch_ao import ENGINES
from qbench.quant.recipe import AUTO, DEFAULT, FLOAT_JOINS, TRAINING, Recipe
from qbench.record.schema import CaseKey, find_fp32
from qbench.suite import Suite
from qbench.suite.recipes import RecipeChoice

if TYPE_CHECKING:  # its module imports numpy, which a plan does not need
    from qbench.backends.base import Backend


_RUNS: Mapping[FileFormat, str] = {
    "onnx": "an int8 ONNX file of your own runs on onnxruntime and openvino",
    "torchscript": f"an int8 TorchScript file of your own runs on the engines of torch: {', '.join(ENGINES)}",
    "openvino": "an int8 file in OpenVINO's own form runs on openvino",
}
TWIN = "twin"
VariantName = tuple[str, str, str, str]  # model, mode, backend, recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class CellVariant:
    """What the cells of one model, mode, backend and recipe measure. ``form``: what the int8 file of the user's is,
    None where qbench quantizes; ``twin``: the recipe of the fp32 twin."""

    variant: Variant
    backend: Backend
    form: FileFormat | None = None
    twin: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoVariant:
    """Cells that are no cases anywhere: ``reason`` says why their recipe has no meaning, None where their mode has none
    on the backend."""

    backend: Backend
    reason: str | None = None


Listed = dict[VariantName, CellVariant | NoVariant]


def name_variant(key: CaseKey) -> VariantName:
    """What of a cell names its variant."""
    return key.model, key.mode, key.backend, key.recipe


def list_variants(suite: Suite, backends: Mapping[str, Backend], cells: Iterable[CaseKey]) -> Listed:
    """What each of the cells measures, then their fp32 and their twins, each once, whatever cells it has.

    Raises ``UsageError`` for a recipe that the suite has not."""
    variants = Variants(suite, backends)
    listed = {name: variants.describe(*name) for name in dict.fromkeys(name_variant(key) for key in cells)}
    for (model, *_), cell in [*listed.items()]:
        for recipe in (DEFAULT, cell.twin) if isinstance(cell, CellVariant) else ():
            if recipe is not None:
                name = (model, "fp32", cell.backend.runtime, recipe)
                listed.setdefault(name, variants.describe(*name))
    return listed


class Variants:
    """The variants of one suite on these backends."""

    def __init__(self, suite: Suite, backends: Mapping[str, Backend]) -> None:
        self._models = {reference.name: reference for reference in suite.references()}
        self._files = {(model.name, file.recipe): file for model in self._models.values() for file in model.int8}
        self._suite = suite
        self._backends = backends
        self._choices = {choice.name: choice for choice in suite.recipe}
        self._twins = _name_twins(suite)

    def case(self, key: CaseKey) -> Case:
        """The case of a key."""
        variant = self._make_variant(*name_variant(key))
        return Case(variant=variant, threads=key.threads, batch_size=key.batch_size, host=key.host)

    def _make_variant(self, model: str, mode: str, backend: str, recipe: str) -> Variant:
        reference = self._models[model]
        file = self._files.get((model, recipe))
        read = self.recipe(mode, backend, recipe) if file is None else self.recipe_of_file(mode, backend, file)
        return Variant(model=reference, mode=mode, backend=backend, recipe=read)

    def describe(self, model: str, mode: str, name: str, recipe: str) -> CellVariant | NoVariant:
        """What the cells of a model, mode, backend and recipe measure."""
        backend, file = self._backends[name], self._files.get((model, recipe))
        # Floats are their runtime's, int8 nobody's that runs floats only.
        floats_only = mode not in backend.modes and not any(map(is_int8, backend.modes))
        if backend.runtime != name if mode in FLOATS else floats_only:
            return NoVariant(backend=backend)
        form = None if file is None else file.format
        if (reason := self._why_no_recipe(mode, name, recipe, form)) is not None:
            return NoVariant(backend=backend, reason=reason)
        variant = self._make_variant(model, mode, name, recipe)
        is_trained = mode == "qat" and recipe in self._choices
        twin = self._twins.get(_read_training(self._suite, name)) if is_trained else None
        return CellVariant(variant=variant, backend=backend, form=form, twin=twin)

    def find_fp32(self, key: CaseKey) -> CaseKey | None:
        """The like-for-like fp32 of a case, on the same host; None for that fp32 itself."""
        reference = find_fp32(key, self._backends[key.backend].runtime)
        return None if key == reference else reference

    def recipe(self, mode: str, backend: str, name: str, changed: Mapping[str, Any] = MappingProxyType({})) -> Recipe:
        """The recipe of that name as the backend takes it, without open choices; ``changed``: fields that it has in
        place of the suite's."""
        recipe = self._suite.quantize.recipe(mode, backend)
        if mode in HALVES:
            return replace(recipe, target=recipe.target if self._backends[backend].machine_code else ())
        if mode == "fp32":
            twin = next(
                (replace(training, name=twin) for training, twin in self._twins.items() if twin == name), recipe
            )
            return replace(twin, target=recipe.target if self._backends[backend].machine_code else ())
        least = recipe.min_coverage
        if (choice := self._choices.get(name)) is not None:
            recipe = choice.over(recipe)
        recipe = RecipeChoice(name=recipe.name, keys=tuple(changed.items())).over(recipe)
        if recipe.flow == AUTO:  # each backend's own
            recipe = replace(recipe, flow=None)
        if mode == "dynamic":  # what counts as int8 there is the suite's to say: no recipe builds another file by it
            recipe = replace(recipe, min_coverage=least)
        return replace(self._backends[backend].resolve(mode, recipe), name=recipe.name)

    def recipe_of_file(self, mode: str, backend: str, file: OwnInt8) -> Recipe:
        """The recipe of a file that the user brings: of what the suite says of its mode, only the least coverage."""
        least = self._suite.quantize.recipe(mode, backend).min_coverage
        recipe = Recipe(name=file.recipe, file=file.file, min_coverage=least, canonicalize=False, clip_ranges=False)
        return replace(self._backends[backend].resolve(mode, recipe), name=recipe.name)

    def _why_no_recipe(self, mode: str, backend: str, name: str, form: FileFormat | None) -> str | None:
        """Why a recipe has no meaning for a mode on a backend: another flow, or nothing that differs; None if it has.
        ``form``: what the int8 file is that it stands for, None where qbench quantizes.

        Raises ``UsageError`` for a name that the suite's ``recipe`` does not hold.
        """
        if mode in FLOATS:
            return None
        if form is not None:
            return None if form in self._backends[backend].int8_formats else _RUNS[form]
        if name not in self._choices:
            have = ", ".join(self._choices)
            place = self._suite.place("matrix.include")
            raise UsageError(f"{place}: matrix.include: no recipe named '{name}'; there are {have}")
        if self._choices[name].own_qconfig and not self._backends[backend].own_qconfig:
            return (
                "it cannot read the network's own qconfig, which is torch.ao's; fbgemm, x86, onednn and qnnpack can; "
                "add the recipe default for it"
            )
        flow, flows = self._choices[name].flow, self._backends[backend].flows
        if flow is not None and flow not in flows:
            return f"its flow is {' or '.join(flows) or 'its own'}"
        if name == FLOAT_JOINS and not self._backends[backend].float_joins:
            return "its framework cannot be told to join in float; add the recipe default for it"
        if keys := self._choices[name].find_unfit(mode, flows):
            return (
                f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'} for static on onnxruntime and openvino alone"
            )
        if (own := self._choices[name].of_weights) and mode != WEIGHT_ONLY:
            return f"{' and '.join(own)} {'is' if len(own) == 1 else 'are'} for weight_only alone"
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


def _name_twins(suite: Suite) -> dict[Recipe, str]:
    """The twins' recipes by their training, none where ``quantize.qat.fp32_twin`` is off: ``twin`` is trained as
    ``quantize.qat`` says, ``twin-<backend>`` as ``quantize.qat.backends`` does where that is another training. The
    names depend on the suite alone, not on what a filter keeps."""
    names: dict[Recipe, str] = {}
    if suite.quantize.qat.fp32_twin:
        for backend in ("", *sorted(suite.quantize.qat.backends)):
            names.setdefault(_read_training(suite, backend), f"{TWIN}-{backend}" if backend else TWIN)
    return names


def _read_training(suite: Suite, backend: str) -> Recipe:
    """What of the QAT recipe of a backend decides the training of a network without fake quantization."""
    recipe = suite.quantize.recipe("qat", backend)
    return Recipe(canonicalize=recipe.canonicalize, **{key: getattr(recipe, key) for key in TRAINING})


def _why_not_calibrator(recipe: Recipe) -> str | None:
    """Why the flow of a recipe cannot use its calibrator; None if it can."""
    name = recipe.calibrator
    if name is None or name in registry.BUILT_IN["calibrator"]:  # they serve every flow, and loading one imports numpy
        return None
    flows = registry.load("calibrator", name).flows
    return None if set(recipe.flows) & set(flows) else f"its calibrator {name} is for the flow {' or '.join(flows)}"
