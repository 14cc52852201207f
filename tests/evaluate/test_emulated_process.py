"""A process on an emulated CPU: what it answers, and what its end means."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from qbench.build import Artifact
from qbench.cache.root import cache_folder
from qbench.errors import CaseError, EvaluateError
from qbench.evaluate.emulated_process import EmulatedProcess
from qbench.hosts.emulated import Emulated
from qbench.hosts.emulated_arm import EmulatedArm
from qbench.quant.recipe import Recipe

HASWELL, ARM = Emulated("Haswell"), EmulatedArm("cortex-a53")
# Read before a test has a cache of its own: what was fetched for ARM lies in the user's.
CACHE, NO_ARM = cache_folder(), ARM.missing()
emulates = pytest.mark.skipif(HASWELL.missing() is not None, reason=f"{HASWELL.missing()}")
emulates_arm = pytest.mark.skipif(NO_ARM is not None, reason=f"{NO_ARM}")


class Two:
    """Two evaluation examples of three values."""

    def evaluation(self, start, stop):
        """Some of them."""
        return (np.arange(6, dtype=np.float32).reshape(2, 3)[start:stop],)


@pytest.fixture
def start(tmp_path):
    """A function that starts a process for a file of ONNX Runtime's."""
    processes = []

    def start(file, host=HASWELL):
        (tmp_path / "folder").mkdir()
        processes.append(EmulatedProcess(host.name, describe(file), Two(), tmp_path / "folder"))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


def describe(file):
    """The artifact of a file."""
    return Artifact(
        mode="static", backend="onnxruntime", file=file, format="onnx", key="k", sha256="s", size_bytes=1, layers=(),
        recipe=Recipe(), fixed_batch=None, expected="", fresh=True,
    )  # fmt: skip


@pytest.fixture
def doubled(tmp_path):
    """An ONNX file that adds its input to itself."""
    from onnx import TensorProto, helper, save

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@emulates
def test_an_artifact_answers_there_and_an_illegal_instruction_is_a_verdict(start, doubled):
    """The kernels say that they add in 16 bits, an answer comes, and the signal of an instruction that the CPU does not
    have says that the artifact does not run there."""
    process = start(doubled)
    assert process.open().int8_sums == "16 bits"
    assert process.compute(1, 2).tolist() == [[6.0, 8.0, 10.0]]
    os.kill(process._process.pid, signal.SIGILL)
    with pytest.raises(CaseError, match=r"SIGILL \(it holds instructions that this CPU does not have"):
        process.compute(0, 1)


@emulates
def test_a_file_that_does_not_load_says_why(start):
    """The error is the library's, not that of the pipe."""
    process = start(Path("/no/such/file.onnx"))
    with pytest.raises(EvaluateError, match=r"file\.onnx"):
        process.open()


@emulates_arm
def test_an_artifact_answers_on_arm(start, doubled, monkeypatch):
    """By the engine of the same version, whose kernels add in 32 bits there."""
    monkeypatch.setenv("QBENCH_CACHE", str(CACHE))
    process = start(doubled, ARM)
    assert process.open().int8_sums == "32 bits"
    assert process.compute(0, 2).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
