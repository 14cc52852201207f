"""Rules of qbench/report/plots/legend.py: signs with their words, set like a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from qbench.report.plots import canvas
from qbench.report.plots.legend import arrange


def case(backend: str, mode: str = "static", role: str = "") -> Any:
    """A case that a picture shows."""
    return SimpleNamespace(backend=backend, mode=mode, role=role)


def test_backends_stand_above_modes_each_in_their_order() -> None:
    """What is not built in stands last; a ring is explained where there is one."""
    cases = [case("zeta"), case("alpha", "qat"), case("onednn", "fp32"), case("torch", "dynamic", "keep fp32")]
    legend = arrange(cases, 1000.0)
    assert [(item.kind, item.word, item.line) for item in legend.items] == [
        *(("backend", word, 0) for word in ("torch", "onednn", "alpha", "zeta")),
        *(("mode", word, 1) for word in ("fp32", "dynamic", "static", "qat")),
        ("ring", "to ship", 1),
    ]
    assert legend.height == 34.0
    assert [item.kind for item in arrange([case("torch")], 1000.0).items] == ["backend", "mode"]


def test_a_word_that_does_not_fit_begins_a_line() -> None:
    """One that just fits stays; the first of a line stands there however wide it is."""
    first, second = (14.0 + canvas.text_width(word) for word in ("torch", "onednn"))
    cases = [case("torch"), case("onednn")]
    for width, places in (
        (first + 12.0 + second, [(0.0, 0), (first + 12.0, 0)]),
        (first + 12.0 + second - 0.01, [(0.0, 0), (0.0, 1)]),
        (1.0, [(0.0, 0), (0.0, 1)]),
    ):
        legend = arrange(cases, width)
        assert [(item.x, item.line) for item in legend.items if item.kind == "backend"] == places
        assert [item.line for item in legend.items if item.kind == "mode"] == [places[-1][1] + 1]
