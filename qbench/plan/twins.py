"""The fp32 twins of QAT variants: the same network with the same training, but without fake quantization. Pure.

What a QAT variant gains over its like-for-like fp32 may be the training's, since fp32 was trained less. Its twin tells
the two apart. Variants that are trained alike have one twin on each runtime, whatever their engines and recipes: a
recipe says how a network is quantized, ``quantize.qat`` how it is trained.
"""

from __future__ import annotations

from dataclasses import replace

from qbench.quant.recipe import TRAINING, Recipe
from qbench.suite import Suite

TWIN = "twin"


class Twins:
    """The twins' recipes of one suite, by name; none where ``quantize.qat.fp32_twin`` is off.

    ``twin`` is trained as ``quantize.qat`` says, ``twin-<backend>`` as ``quantize.qat.backends`` does where that is
    another training. The name depends on the suite alone, not on what a filter keeps.
    """

    def __init__(self, suite: Suite) -> None:
        self._quantize = suite.quantize
        self._choices = {choice.name for choice in suite.recipe}
        self._names: dict[Recipe, str] = {}
        self.recipes: dict[str, Recipe] = {}
        if suite.quantize.qat.fp32_twin:
            for backend in ("", *sorted(suite.quantize.qat.backends)):
                training = self._training(backend)
                name = f"{TWIN}-{backend}" if backend else TWIN
                if self._names.setdefault(training, name) == name:
                    self.recipes[name] = replace(training, name=name)

    def _training(self, backend: str) -> Recipe:
        """What of the QAT recipe of a backend decides the training of a network without fake quantization."""
        recipe = self._quantize.recipe("qat", backend)
        return Recipe(canonicalize=recipe.canonicalize, **{key: getattr(recipe, key) for key in TRAINING})

    def find(self, mode: str, backend: str, recipe: str) -> str | None:
        """The name of the twin's recipe of a variant; None where it has none: it is not trained here, or nobody asked
        for twins."""
        if mode != "qat" or not self.recipes or recipe not in self._choices:
            return None
        return self._names[self._training(backend)]
