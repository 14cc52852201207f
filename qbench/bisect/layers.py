"""Candidates: the case with its first layers in int8 and all behind them in float, one more from each to the next. The
good end is its like-for-like fp32, the bad one the case itself; what is named is the layer with which the change comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from qbench.bisect.candidates import Absent, Arm
from qbench.bisect.open_suite import OpenSuite
from qbench.bisect.question import Way
from qbench.build import Artifact
from qbench.errors import CaseError, CaseSkipped, UsageError
from qbench.explain.causes.base import skip_more
from qbench.explain.change import Change
from qbench.modes import is_int8
from qbench.plan.cases import Case

FLOAT, INT8 = "float", "int8"  # as --good and --bad name the ends
START = "all in float"


@dataclass(kw_only=True)
class Layers:
    """The int8 layers of a case, ``names`` in the order of the network behind ``START``."""

    opened: OpenSuite
    artifact: Artifact
    names: tuple[str, ...]
    of: str = "layers"
    mended: bool = False
    way: Way = "layers"

    def open(self, place: int) -> Arm:
        """As ``Candidates``."""
        case = self._choose_case(place)
        try:
            artifact = self.opened.build(case.variant)
        except (CaseError, CaseSkipped) as error:
            raise Absent(str(error)) from error
        variant = case.variant
        return Arm(
            spec=self.opened.specify_worker(self.names[place], artifact.file, variant.backend, variant.mode),
            predict=lambda file: self.opened.predict(artifact, file),
            digest=artifact.sha256,
        )

    def _choose_case(self, place: int) -> Case:
        if place == 0:
            return self.opened.fp32
        if place == len(self.names) - 1:
            return self.opened.case
        case = self.opened.case
        fields = skip_more(case.variant, self.artifact.built.layers, self.names[place + 1 :])
        return Change(recipe=fields).apply(case, self.opened.variants)


def find_layers(opened: OpenSuite) -> Layers:
    """The int8 layers of a case; raises ``UsageError`` where it is not int8, is a file of the user's, or has one."""
    variant = opened.case.variant
    if not is_int8(variant.mode):
        raise UsageError(f"--bad {INT8}: {opened.case.id} is {variant.mode}; name an int8 case")
    if variant.recipe.file is not None or variant.mode == "qat":
        why = "it would have to be trained for each layer" if variant.mode == "qat" else "it is a file of your own"
        raise UsageError(f"--bad {INT8}: {opened.case.id}: its layers cannot be put in float one by one: {why}")
    artifact = opened.build(variant)
    names = tuple(dict.fromkeys(layer.name for layer in artifact.built.layers if layer.int8))
    if len(names) < 2:
        raise UsageError(f"--bad {INT8}: {opened.case.id} has {len(names)} layers in int8; there is nothing to halve")
    return Layers(opened=opened, artifact=artifact, names=(START, *names))
