"""Rules of qbench/report/palette.py: one look for each backend, mode and verdict."""

from __future__ import annotations

from qbench import registry
from qbench.report import palette


def test_every_backend_has_its_own_colour() -> None:
    """No two built-in backends share a colour on a light or a dark page; one from elsewhere is grey."""
    built_in = set(registry.BUILT_IN["backend"]) - {"fake"}
    assert built_in <= set(palette.BACKENDS)
    for scheme in ("light", "dark"):
        colors = [getattr(color, scheme) for color in (*palette.BACKENDS.values(), palette.OTHER)]
        assert len(set(colors)) == len(colors)
    assert palette.variable_of("mine<script>") == "var(--backend-other)"


def test_every_mode_has_its_own_marker() -> None:
    """A mode is told by a shape, also in text."""
    assert len(set(palette.MARKERS.values())) == len(palette.MARKERS)
    assert {palette.marker_of(mode) for mode in ("fp32", "dynamic", "static", "qat")} == set(palette.SYMBOLS)


def test_paper_has_the_light_colours() -> None:
    """Dark colours are for a screen alone, so that a page printed from a dark screen is as dark on white as any."""
    light, dark = palette.style().splitlines()
    assert "--backend-torch: #000000" in light
    assert dark.startswith("@media screen and (prefers-color-scheme: dark)")
