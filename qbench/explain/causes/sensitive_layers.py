"""Cause: layers whose int8 costs accuracy."""

from __future__ import annotations

import itertools
from dataclasses import replace

from qbench.explain.causes.base import Cause, Counterfactual, Situation, put_in_float

MOST = 12  # layers that are tried, each by a build of its own


class SensitiveLayers(Cause):
    """A few layers often make most of the error: the first and the last one, or one whose values lie far apart."""

    name = "sensitive-layers"
    title = "a layer loses more in int8 than others"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Each int8 layer back to float alone, whatever ``min_coverage`` the suite has; of many, those
        behind which the signal falls most, else the first and the last."""
        variant = situation.case.variant
        if variant.recipe.framework_default or variant.recipe.file is not None:
            return ()
        names = list(dict.fromkeys(layer.name for layer in situation.layers if layer.int8))
        return tuple(
            replace(put_in_float(self.name, situation, (name,)), text=f"{name} in float", part=name)
            for name in _choose(names, situation)
        )


def _choose(names: list[str], situation: Situation) -> list[str]:
    if len(names) <= MOST:
        return names
    signal = {str(numbers["name"]): numbers.get("sqnr_db") for numbers in situation.layer_numbers}
    known = [(name, value) for name in names if (value := signal.get(name)) is not None]
    falls = {name: before - value for (_, before), (name, value) in itertools.pairwise(known)}
    if len(falls) < MOST:
        return [*names[: MOST // 2], *names[-(MOST // 2) :]]
    worst = sorted(falls, key=lambda name: -falls[name])[: MOST - 2]
    return [name for name in names if name in {*worst, names[0], names[-1]}]


CAUSE = SensitiveLayers()
