"""Rules of onnx/text: what a search says of layers that are not int8."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.onnx import text


def outcome(floats: tuple[str, ...], skipped: tuple[str, ...]) -> Any:
    """Of layers a, b and c."""
    layers = {name: SimpleNamespace(quant_enable=name not in (*floats, *skipped)) for name in "abc"}
    return SimpleNamespace(met=True, baseline=1.0, trials=(), ranking=(), config=SimpleNamespace(layers=layers),
                           best=SimpleNamespace(floats=floats, score=0.5))  # fmt: skip


@pytest.mark.parametrize(
    ("floats", "skipped", "said"),
    [
        ((), (), "with every layer in int8"),
        ((), ("b",), "with every other layer in int8, 1 skipped"),
        (("a",), (), "with 1 layer in float"),
        (("a", "c"), ("b",), "with 2 layers in float, 1 skipped"),
    ],
)
def test_layers_that_the_configuration_skips_are_no_int8(floats: Any, skipped: Any, said: str) -> None:
    """They are counted and named beside those that the search returned to float."""
    lines = list(text.searched(outcome(floats, skipped), Path("out")))
    assert lines[1].endswith(said)
    assert [line for line in lines if line.startswith("  skipped: ")] == [f"  skipped: {name}" for name in skipped]
