"""Rules of qbench/report/plots/layer_errors.py: which layers are shown, of which case, and what is said of them."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd

from qbench.report.plots.cases import MOST
from qbench.report.plots.layer_errors import (
    LayerError,
    choose_layers,
    list_drawings,
    list_layers,
    pick_case,
    show_layer,
)


def layer(
    name: str, sqnr_db: float | None, clipped: float | None = None, *, is_float: bool = False, n: int = 8
) -> LayerError:
    """A layer of a case."""
    return LayerError(case="net", name=name, sqnr_db=sqnr_db, clipped=clipped, is_float=is_float, n=n)


def test_the_layers_that_are_farthest_are_shown_in_the_order_of_the_network() -> None:
    """What clips counts as far, what was not compared as nearest."""
    layers = [
        layer("unknown", None),
        layer("near", 50.0),
        layer("clipping", 30.0, 0.3),
        layer("far", 5.0),
        layer("last", 40.0),
    ]
    shown = {most: [each.name for each in choose_layers(layers, most)[0]] for most in (1, 2, 3, 4)}
    assert shown == {
        1: ["clipping"],
        2: ["clipping", "far"],
        3: ["clipping", "far", "last"],
        4: ["near", "clipping", "far", "last"],
    }
    assert [choose_layers(layers, most)[1] for most in (1, 5, 6)] == [4, 0, 0]


class Case:
    """A measured case, as pictures read it."""

    def __init__(self, key: str, role: str, seconds: float) -> None:
        self.key, self.role, self.seconds = key, role, seconds


def frame(*layers: LayerError, case: str = "net") -> pd.DataFrame:
    """The layers of a case as a run's frame has them."""
    rows = [(case, each.name, each.sqnr_db, each.clipped, each.is_float, each.n) for each in layers]
    return pd.DataFrame(rows, columns=["case.id", "layer", "sqnr_db", "clipped", "is_float", "n"])


def test_the_case_to_ship_is_shown_else_one_that_ties_else_the_fastest() -> None:
    """Of those that have numbers; either of two is to be shipped."""
    numbers = pd.concat([frame(layer("a", 1.0), case=key) for key in ("slow", "tied", "open", "either", "ship")])
    fastest = Case("without", "ship", 0.1)
    slow, tied, undecided = Case("slow", "", 1.0), Case("tied", "tied", 3.0), Case("open", "undecided", 2.0)
    either, ship = Case("either", "either", 5.0), Case("ship", "ship", 4.0)

    def pick(*cases: Case) -> str | None:
        return pick_case(cast("Any", cases), numbers)

    assert pick(fastest) is None
    assert pick(fastest, slow) == "slow"
    assert pick(slow, tied) == "tied"
    assert pick(slow, tied, undecided) == "open"
    assert pick(slow, tied, undecided, either) == "either"
    assert pick(slow, either, ship) == "ship"


def say(*layers: LayerError) -> str:
    """The caption of the picture of these layers."""
    (drawing,) = list_drawings(pd.DataFrame(), cast("Any", [Case("net", "ship", 1.0)]), frame(*layers))
    return drawing.caption


def test_a_caption_says_what_is_farthest_what_clips_and_what_is_in_float() -> None:
    """And how many are shown, where that is not all."""
    bars = "Compared are n = 8 values a layer, on evaluation examples; without intervals; red: share clipped."
    assert say(layer("a", -3.0, 0.0), layer("b", 20.0, is_float=True)) == (
        "Farthest from fp32 is a, with an SQNR of \N{MINUS SIGN}3.0 dB; no layer clips; 1 of 2 layers stays in float "
        f"(hatched). {bars}"
    )
    assert say(layer("a", None, 0.1), layer("b", None, 0.2)) == (
        f"B clips most, 20.0 % of its values; 0 of 2 layers stay in float (hatched). {bars}"
    )
    many = [layer(f"l{number}", 10.0 + number) for number in range(MOST + 1)]
    assert say(*many[:-1]).endswith(bars)
    assert say(*many).endswith(f"{bars} The {MOST} that are farthest are shown.")
    assert say(layer("a", 10.0)).startswith("Farthest from fp32 is a, with an SQNR of 10.0 dB; 0 of 1 layer stay in")


def test_numbers_that_are_not_known_are_none() -> None:
    """A frame has NaN there; each layer is told in a few words."""
    listed = list_layers(frame(layer("a", None, 0.25), layer("b", 31.25, is_float=True), layer("c", None)), "net")
    assert [(each.sqnr_db, each.clipped) for each in listed] == [(None, 0.25), (31.25, None), (None, None)]
    assert [show_layer(each) for each in listed] == ["25.0 % clipped", "float, 31.2 dB", "—"]
