"""What a backend, a mode and a verdict look like, the same in every picture and table of a report.

Colours: the hues of M. Okabe and K. Ito, Color Universal Design (2008), https://jfly.uni-koeln.de/color/, as far apart
as a search found them that a line of each has 3 : 1 on its page (WCAG 2.2, 1.4.11) and that readers without red,
green or blue cones tell any two apart. No meaning hangs on a colour alone: a backend's name, a mode's marker, a
verdict's symbol and word stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Marker = Literal["circle", "triangle", "square", "diamond", "pentagon", "cross", "star"]


@dataclass(frozen=True, kw_only=True)
class Color:
    """A colour on a light and on a dark page, ``#rrggbb``."""

    light: str
    dark: str


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A verdict as it is shown: a symbol, and words that say the same without it."""

    symbol: str
    word: str


BACKENDS: dict[str, Color] = {
    "torch": Color(light="#000000", dark="#f2f2f2"),
    "onnxruntime": Color(light="#2a57d8", dark="#2c74fa"),
    "fbgemm": Color(light="#ba744c", dark="#d15b00"),
    "x86": Color(light="#e35306", dark="#b26a4c"),
    "onednn": Color(light="#04553b", dark="#a4f59d"),
    "qnnpack": Color(light="#710260", dark="#d039b4"),
    "inductor": Color(light="#0c8cc9", dark="#32b7ff"),
    "openvino": Color(light="#4e4502", dark="#e0cb1c"),
    "executorch": Color(light="#0f0182", dark="#a7c3a5"),
}
OTHER = Color(light="#858585", dark="#868686")  # of a backend that a user's package adds

MARKERS: dict[str, Marker] = {
    "fp32": "circle",
    "bf16": "pentagon",
    "fp16": "cross",
    "weight_only": "star",
    "dynamic": "triangle",
    "static": "square",
    "qat": "diamond",
}
SYMBOLS: dict[Marker, str] = {
    "circle": "●",
    "triangle": "▲",
    "square": "■",
    "diamond": "◆",
    "pentagon": "⬟",
    "cross": "✚",
    "star": "★",
}

VERDICTS: dict[str, Sign] = {
    "ship": Sign(symbol="✓", word="ship"),
    "either": Sign(symbol="≈", word="either of two"),
    "keep fp32": Sign(symbol="=", word="keep fp32"),
    "incomplete": Sign(symbol="?", word="incomplete"),
    "best so far": Sign(symbol="?", word="best so far"),
    "undecided": Sign(symbol="?", word="undecided"),
    "none qualifies": Sign(symbol="✗", word="none may be shipped"),
    "PASS": Sign(symbol="✓", word="OK"),
    "INCONCLUSIVE": Sign(symbol="?", word="open"),
    "FAIL": Sign(symbol="✗", word="loses too much"),
    "failed": Sign(symbol="✗", word="failed"),
    "skipped": Sign(symbol="○", word="skipped"),
    "no record": Sign(symbol="?", word="no record"),
}


def color_of(backend: str) -> Color:
    """The backend's colour; one grey for all that are not built in."""
    return BACKENDS.get(backend, OTHER)


def variable_of(backend: str) -> str:
    """``var(--backend-onnxruntime)``: the backend's colour inside the page, which follows its colour scheme."""
    return f"var(--backend-{backend if backend in BACKENDS else 'other'})"


def marker_of(mode: str) -> Marker:
    """The mode's marker; a circle for what is not built in."""
    return MARKERS.get(mode, "circle")


def style() -> str:
    """The backends' colours as CSS variables, for light and dark pages and for paper."""
    named = {**BACKENDS, "other": OTHER}
    light = " ".join(f"--backend-{name}: {color.light};" for name, color in named.items())
    dark = " ".join(f"--backend-{name}: {color.dark};" for name, color in named.items())
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
