"""The cases of emulated hosts: what is asked of the emulator, and what is recorded of its answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.record.schema import HostFacts
from qbench.running import emulated_cases
from qbench.running.emulated_cases import complete_facts, emulate, is_emulated


@pytest.mark.parametrize(("answers", "emulated"), [("emulated", True), ("predicted", False), ("native", False)])
def test_a_case_is_emulated_where_its_host_answers_so_for_its_backend(
    monkeypatch: pytest.MonkeyPatch, answers: str, emulated: bool
) -> None:
    """One host may emulate one engine and predict another."""
    asked: list[tuple[str, str]] = []

    def load(kind: str, name: str) -> Any:
        return SimpleNamespace(answers=lambda backend: asked.append((name, backend)) or answers)

    monkeypatch.setattr(emulated_cases.registry, "load", load)
    case: Any = SimpleNamespace(host="cascadelake", variant=SimpleNamespace(backend="onednn"))
    assert is_emulated(case) is emulated
    assert asked == [("cascadelake", "onednn")]


@pytest.mark.parametrize(
    ("labels", "percent", "of_classes"),
    [
        (np.asarray([1, 2]), False, True),
        (np.asarray([1, 2], dtype=np.uint8), False, True),
        (np.asarray([0.5, 1.5]), True, False),
        (np.asarray([[1], [2]]), True, False),
        (None, True, True),
        (None, False, False),
    ],
)
def test_the_examples_are_chosen_by_class_where_there_are_classes(
    monkeypatch: pytest.MonkeyPatch, labels: Any, percent: bool, of_classes: bool
) -> None:
    """Labels that are one whole number each; without labels the metric tells."""
    asked: list[Any] = []
    notes: list[str] = []

    def predict(emulation: Any, file: Path, **options: Any) -> None:
        asked.extend((emulation, file, options))
        options["tell"]("it takes long")

    monkeypatch.setattr(emulated_cases, "predict_emulated", predict)
    context: Any = SimpleNamespace(
        emulated_samples=7, cache=Path("cache"), here=SimpleNamespace(slots="slots"), limits="limits",
        report_under=lambda name: f"under {name}", progress=SimpleNamespace(note=notes.append),
    )  # fmt: skip
    prepared: Any = SimpleNamespace(
        data=SimpleNamespace(evaluation_labels=lambda: labels),
        metric=SimpleNamespace(load=lambda: SimpleNamespace(percent=percent)),
    )
    case: Any = SimpleNamespace(host="cascadelake", batch_size=4)
    artifact: Any = "artifact"
    emulate(context, prepared, artifact, case, Path("native.npz"), Path("file.npz"), "net")
    emulation, file, options = asked
    assert (emulation.artifact, emulation.data, emulation.host, emulation.batch_size) == (
        "artifact", prepared.data, "cascadelake", 4,
    )  # fmt: skip
    assert (emulation.native, emulation.samples, emulation.of_classes) == (Path("native.npz"), 7, of_classes)
    assert (file, options["root"], options["slots"], options["limits"], options["progress"]) == (
        Path("file.npz"), Path("cache"), "slots", "limits", "under net",
    )  # fmt: skip
    assert notes == ["net: it takes long"]


def test_a_host_is_completed_with_what_its_kernels_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """And which examples the answers are of."""
    view = SimpleNamespace(torch_isa="AVX512", onednn_isa="Intel AVX-512", mkl_isa=None, int8_sums="32 bits")
    monkeypatch.setattr(emulated_cases, "read_emulated", lambda file: ((3, 5), view))
    host = complete_facts(HostFacts(kind="emulated", cpu="Cascade Lake"), Path("file.npz"))
    assert (host.kind, host.cpu, host.examples) == ("emulated", "Cascade Lake", (3, 5))
    assert (host.torch_isa, host.onednn_isa, host.mkl_isa, host.int8_sums) == (
        "AVX512",
        "Intel AVX-512",
        None,
        "32 bits",
    )
