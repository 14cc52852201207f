"""Rules of backends/libraries: what a run keeps the versions of is what its backends name."""

from __future__ import annotations

from typing import Any

import pytest

from qbench import registry
from qbench.backends.libraries import list_libraries, list_runtime_libraries
from qbench.errors import UsageError


def test_every_built_in_backend_names_what_runs_it() -> None:
    """Exporters and quantizers build a file; what runs it is one library of each, but for ExecuTorch."""
    runtimes = {name: list_runtime_libraries(name) for name in registry.BUILT_IN["backend"] if name != "fake"}
    assert runtimes.pop("onnxruntime") == ("onnxruntime",)
    assert runtimes.pop("openvino") == ("openvino",)
    assert runtimes.pop("executorch") == ("torch", "executorch")  # the second is linked against the first
    assert set(runtimes.values()) == {("torch",)}


def test_a_run_keeps_the_versions_of_all_that_builds_and_runs() -> None:
    """Each once; qbench's own first."""
    libraries = list_libraries()
    assert libraries[0] == "qbench"
    assert len(libraries) == len(set(libraries))
    named = {"torch", "torchao", "onnx", "onnxscript", "onnxruntime", "openvino", "nncf", "numpy", "scipy"}
    assert named <= set(libraries)


def test_a_plug_ins_runtime_is_kept_and_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its upgrade is an upgrade of the runtime as any other; a plug-in that cannot be loaded stops nobody."""

    class Mine:
        modules = ("my_runtime.session",)

        def libraries(self) -> tuple[str, ...]:
            return ("my-exporter", "my-runtime")

    plain = registry.load

    def load(kind: str, name: str) -> Any:
        if name == "broken":
            raise UsageError("backend 'broken' cannot be loaded")
        if name != "mine":
            return plain(kind, name)
        mine = type("Plugin", (Mine, type(plain("backend", "fake"))), {})
        return mine()

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(registry, "names", lambda kind: ("broken", "mine", "torch"))
    assert list_runtime_libraries("mine") == ("my-runtime",)
    assert {"my-exporter", "my-runtime", "torch"} <= set(list_libraries())
    assert list_runtime_libraries("broken") == ("my-runtime", "torch")
