"""Rules of qbench/check/runtimes.py: what the words of a runtime mean, and what is known of one that refuses a file."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.check import runtimes
from qbench.check.budget import open_budget
from qbench.errors import BuildError, WorkerError
from qbench.process.child_process import Limits, call
from qbench.quant.artifacts.coverage import Layer

NO_KERNEL = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for {} node with name 'c1'"


@pytest.mark.parametrize(
    ("words", "meaning", "advice"),
    [
        (
            NO_KERNEL.format("QLinearAdd(1)"),
            "it has no CPU kernel for the QLinearAdd of 'c1' (opset 1) with these types",
            "export QLinearAdd in another form, keep it in float, or use another runtime",
        ),
        (
            NO_KERNEL.format("ConvInteger(10)"),
            "it has no CPU kernel for the ConvInteger of 'c1' (opset 10) with these types",
            "dynamic quantization of convolutions: leave Conv out",
        ),
        (
            "Unsupported model IR version: 13, max supported IR version: 11",
            "the file has IR version 13, and this release reads up to 11",
            "upgrade onnxruntime, or set model.ir_version = 11",
        ),
        ("in ValidateOpsetForDomain: x", "the opset of the file is newer than this release supports", "upgrade"),
        ("No Op registered for Foo with domain_version of 3", "it does not know the operator Foo", "register the lib"),
        ("Fatal: Bar(-1) is not a registered function/op", "it does not know the operator Bar", "register the library"),
        ("open: No such file or directory", "weights that lie in a file of their own are not where", "put the data"),
        (
            "Type Error: Type 'tensor(int8)' of input parameter (b) of operator (Add) in node (n1) is invalid",
            "the Add 'n1' gets b as tensor(int8), which it does not take",
            "export again",
        ),
        (
            "Non-zero status code returned while running Conv node. Name:'c' Status Message: too small\nmore",
            "the Conv 'c' fails as it runs: too small",
            "look at its inputs",
        ),
        ("Failed to execute method forward, error: 0x12", "it refuses inputs of these shapes", "name the shapes"),
        ("it does not know Foo-7 as it stands there", "it does not know Foo as it stands there", "run it on ONNX"),
    ],
)
def test_words_of_a_runtime_in_plain_ones(words: str, meaning: str, advice: str) -> None:
    """With the node and what to do."""
    told = runtimes.explain_refusal(words)
    assert told[0].startswith(meaning)
    assert told[1].startswith(advice)


def test_words_that_nobody_knows_are_told_as_they_are() -> None:
    """Without an advice."""
    assert runtimes.explain_refusal("Failed to execute method forward, error: 0x13") == (
        "Failed to execute method forward, error: 0x13",
        "",
    )


def runtime(**facts: Any) -> Any:
    """A backend of that name and of these libraries."""
    libraries = facts.pop("libraries", ("numpy", "onnx"))
    return SimpleNamespace(missing=lambda: None, runtime_libraries=lambda: libraries, name="onnx", **facts)


def test_the_version_is_that_of_the_library_called_like_the_runtime() -> None:
    """Else of the first that is installed."""
    import onnx

    assert runtimes._version(runtime()) == onnx.__version__
    assert runtimes._version(runtime(libraries=("no-such-library", "numpy"))) == np.__version__
    assert runtimes._version(runtime(libraries=("no-such-library",))) is None


def test_a_runtime_refuses_runs_or_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is explained; a crash is an answer too."""
    layers = (Layer(name="a", operator="Conv", macs=1),)
    answers: list[Any] = [(layers, "profile", 30.0), BuildError("Failed to execute method forward, error: 0x10")]

    def answer(*_: Any, limits: Limits) -> Any:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(runtimes, "call", answer)
    plugin = runtime()
    monkeypatch.setattr(runtimes.registry, "load", lambda kind, name: plugin)
    asked = ("onnx", Path("m.onnx"), (np.zeros(1),), 1, open_budget(Path("m.onnx")))
    runs = runtimes.check_runtime(*asked)
    assert (runs.runtime, runs.layers, runs.profile, runs.refused) == ("onnx", layers, "profile", None)
    assert runs.known_batch_db == 30.0
    refuses = runtimes.check_runtime(*asked)
    assert (refuses.version, refuses.advice) == (
        runs.version,
        "name the shapes that the program was lowered for with --shape",
    )
    assert refuses.refused is not None
    plugin.missing = lambda: "is not installed"
    absent = runtimes.check_runtime(*asked)
    assert (absent.version, absent.refused, absent.layers) == (None, "is not installed", ())


def count_forever(*, progress: object) -> None:
    """A call that never ends."""
    for _ in itertools.count():
        pass


def test_a_call_that_does_not_end_is_no_matter_of_a_suite() -> None:
    """What a process is stopped for is told in words of a check, which has no ``limits`` to raise."""
    with pytest.raises(WorkerError) as stopped:
        call(count_forever, limits=Limits(seconds=0.2))
    meaning, advice = runtimes.explain_refusal(str(stopped.value))
    assert meaning == "a call of it did not end in 0.2 s, what a check has for a file of this size"
    assert "loop that never ends" in advice
    assert "(limits: {stage_seconds: …})" in advice


def test_a_file_is_watched_for_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes take no longer together than a call; the answers for a known batch are those of the same inputs."""
    asked: list[Any] = []
    profile = SimpleNamespace(fit_into_call=lambda: "fitted")

    def watch(file: Path, inputs: Any, *, threads: int, seconds: float) -> Any:
        asked.append((file, inputs, threads, seconds))
        return ("layer",), profile

    plugin = runtime(watch=watch, compare_known_batch=lambda file, inputs: (file, inputs))
    monkeypatch.setattr(runtimes.registry, "load", lambda kind, name: plugin)
    looked = runtimes.look_here("onnx", Path("m.onnx"), (), 2, progress=None)
    assert looked == (("layer",), "fitted", (Path("m.onnx"), ()))
    assert asked == [(Path("m.onnx"), (), 2, 0.5)]
