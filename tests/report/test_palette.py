"""Rules of qbench/report/palette.py: one look for each backend, mode and verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.modes import MODES
from qbench.report import palette
from qbench.report.plots import canvas

# What is left of linear red, green and blue without one kind of cone: G. M. Machado, M. M. Oliveira, L. A. F.
# Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency (2009), severity 1.
SEEN = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])
APART = 18.0  # of CIE 1976 Lab; about 2 is just seen side by side
SCHEMES = ("light", "dark")


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
    assert {palette.marker_of(mode) for mode in MODES} == set(palette.SYMBOLS)


def test_paper_has_the_light_colours() -> None:
    """Dark colours are for a screen alone, so that a page printed from a dark screen is as dark on white as any."""
    light, dark = palette.style().splitlines()
    assert "--backend-torch: #000000" in light
    assert dark.startswith("@media screen and (prefers-color-scheme: dark)")


def colors_of(scheme: str) -> dict[str, str]:
    """Every backend's colour, and that of all others."""
    named = {**palette.BACKENDS, "other": palette.OTHER}
    return {name: getattr(color, scheme) for name, color in named.items()}


def read_linear(color: str) -> Any:
    """Linear red, green and blue of ``#rrggbb``."""
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(color: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    low, high = sorted(float(XYZ[1] @ read_linear(each)) for each in (color, other))
    return (high + 0.05) / (low + 0.05)


def read_lab(linear: Any) -> Any:
    """CIE 1976 L*a*b*, D65."""
    x, y, z = np.cbrt(np.maximum(XYZ @ np.clip(linear, 0, 1) / XYZ.sum(axis=1), 1e-4))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def wash(color: str, ground: str) -> str:
    """A ground that is coloured as strong as pictures do it."""
    pairs = [(int(color[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(canvas.WASH * a + (1 - canvas.WASH) * b):02x}" for a, b in pairs)


def grounds(scheme: str) -> Iterator[str]:
    """All that a mark may stand on: the page's grounds, and those of saved pictures."""
    css = (Path(palette.__file__).parent / "page.css").read_text("utf-8")
    block = css.split(":root {")[1 if scheme == "light" else 2].split("}")[0]
    page = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    yield from (page[name] for name in ("page", "card", "sunk", "good-wash"))
    for roles in (page, canvas.ROLES) if scheme == "light" else (page,):
        yield from (wash(roles[name], roles["card"]) for name in ("good", "bad"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_line_of_every_colour_is_seen_on_every_ground(scheme: str) -> None:
    """3 : 1 as WCAG asks of what a picture is made of, also where the ground is coloured."""
    low = {
        (name, ground): ratio
        for name, color in colors_of(scheme).items()
        for ground in grounds(scheme)
        if (ratio := contrast(color, ground)) < 3
    }
    assert low == {}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", SEEN)
def test_any_two_colours_are_told_apart(scheme: str, kind: str) -> None:
    """Whatever cones a reader has, so that any two backends may stand in one picture."""
    colors = {name: read_lab(np.array(SEEN[kind]) @ read_linear(color)) for name, color in colors_of(scheme).items()}
    distances = {(a, b): float(np.linalg.norm(colors[a] - colors[b])) for a, b in combinations(colors, 2)}
    assert {pair: distance for pair, distance in distances.items() if distance < APART} == {}
