"""Where the time of an ExecuTorch program goes: the kernels of a call in order, and what kind of work each is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.quant.artifacts import executorch_profile, executorch_program
from qbench.quant.artifacts.executorch_program import Ran

KINDS = {
    "Convolution (NHWC, QC8) IGEMM": "int8 product",
    "Convolution (NHWC, F32) IGEMM": "float product",
    "native_call_mm.out": "float product",
    "Convert (NC)": "conversion",
    "native_call_quantize_per_tensor.out": "conversion",
    "Add (ND)": "other",
}


def test_a_kernel_has_the_median_of_its_place_over_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one name are two; the last call, which told one fewer, took nothing for it."""
    names = [*KINDS, "Add (ND)"]
    calls = [[Ran(name=name, seconds=factor * place) for place, name in enumerate(names)] for factor in (3, 1, 2)]
    calls[-1].pop()
    loaded = []

    def load(file: Path, *, watched: bool = False) -> Any:
        loaded.append((file, watched))
        return SimpleNamespace(forward=lambda example: None)

    monkeypatch.setattr(executorch_program, "load", load)
    monkeypatch.setattr(executorch_program, "watch_calls", lambda file, example, *, calls: watched[:calls])
    watched = calls
    profile = executorch_profile.time_nodes(Path("m.pte"), ("x",), calls=3)
    assert [(node.layer, node.operator, node.kind) for node in profile.nodes] == [
        *((name, name, kind) for name, kind in KINDS.items()),
        ("Add (ND)", "Add (ND)", "other"),
    ]
    assert [node.seconds for node in profile.nodes] == [0, 2, 4, 6, 8, 10, 6]
    assert loaded == [(Path("m.pte"), False), (Path("m.pte"), True)]
