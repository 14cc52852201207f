"""A process on an emulated CPU: what it answers, and what its end means."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pretended_qemu
import pytest
from made_artifacts import make_artifact

from qbench.cache.root import cache_folder
from qbench.errors import CaseError, EvaluateError
from qbench.evaluate import emulated_process
from qbench.evaluate.emulated_process import EmulatedProcess
from qbench.hosts.emulated import Emulated
from qbench.hosts.emulated_arm import EmulatedArm

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
        processes.append(
            EmulatedProcess(host.name, make_artifact(file, backend="onnxruntime"), Two(), tmp_path / "folder")
        )
        return processes[-1]

    yield start
    for process in processes:
        process.close()


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
    assert process.compute(1, 2)[0].tolist() == [[6.0, 8.0, 10.0]]
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
    assert process.compute(0, 2)[0].tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


# --- composed without qemu: a program in its place runs this Python ----------------------------------------


# In place of qbench's program, with the two ends of the pipe: something, and then nothing more.
WAITING = "exec $1 -c 'import os, signal, sys; %s; signal.pause()' $5 $6"


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """A function that starts a process of the pretended backend, by a program in the place of qemu."""
    processes = []

    def start(instead="", **facts):
        pretended_qemu.install(tmp_path / "bin", monkeypatch, instead=instead)
        (tmp_path / "model.json").write_text('{"seconds": 0.0, "mode": "static"}')
        (tmp_path / "folder").mkdir()
        artifact = make_artifact(tmp_path / "model.json", **facts)
        processes.append(EmulatedProcess("qemu:Haswell", artifact, Two(), tmp_path / "folder"))
        return processes[-1]

    yield start
    for process in processes:
        process.close()
        assert process._process.returncode is not None, "it was waited for"


def test_of_a_process_two_ends_of_pipes_stay_open_here(pretended):
    """The other two are its own: who held them would wait for an answer of a process that is gone."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    process = pretended()
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    process.open()


def test_a_process_answers_for_the_examples_that_were_asked(pretended, tmp_path):
    """One row each, also where the artifact takes more of them at a time and the last is repeated."""
    process = pretended(fixed_batch=4)
    assert process.open().int8_sums is None
    both, second = process.compute(0, 2)[0], process.compute(1, 2)[0]
    assert (both.dtype, both.shape, second.shape) == (np.float32, (2, 10), (1, 10))
    assert np.array_equal(both[1:], second)
    assert not np.array_equal(both[0], both[1])
    assert (tmp_path / "folder" / "proc" / "cpuinfo").read_text().startswith("processor")


def test_outputs_with_a_row_for_each_example_are_kept_by_position(pretended, monkeypatch):
    """Without those of a filled batch; what counts something else, or is no floats, is no answer to compare."""
    process = pretended(fixed_batch=4)
    outputs = [np.ones((4, 2)), np.arange(4), np.ones((4, 3), np.float32), np.ones(7, np.float32)]
    monkeypatch.setattr(process, "_ask", lambda method, inputs: outputs)
    answered = process.compute(0, 2)
    assert {place: (rows.shape, str(rows.dtype)) for place, rows in answered.items()} == {
        0: ((2, 2), "float32"),
        2: ((2, 3), "float32"),
    }


def test_a_process_imports_this_qbench_behind_what_the_user_has_set(pretended, monkeypatch, tmp_path):
    """It may have no site-packages of this machine's, and a user's own file is found as it is here."""
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    process = pretended('echo "$PYTHONPATH"; exit 0')
    process._process.wait()
    place = Path(emulated_process.qbench.__file__).parent.parent
    assert (tmp_path / "folder" / "log").read_text() == f"/users/own{os.pathsep}{place}\n"


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ("kill -ILL $$", r"ended by SIGILL \(it holds instructions that this CPU does not have, so it does not run"),
        ("kill -KILL $$", r"ended by SIGKILL \(most often: the system ran out of memory\)$"),
        ("kill -TERM $$", "ended by SIGTERM$"),
        (
            'echo no room; echo; echo "warning: TCG doesn\'t support avx512f"; exit 3',
            "ended with exit code 3; its last words: no room$",
        ),
        ("exit 4", "ended with exit code 4$"),
        ("exit 0", "ended with exit code 0$"),
        ("head -c 400 /dev/zero | tr '\\0' x; exit 5", "ended with exit code 5; its last words: x{300}$"),
        (
            WAITING % 'os.write(int(sys.argv[2]), b"hello hello hello")',
            "what the emulated process sent is no answer of qbench's",
        ),
    ],
)
def test_an_end_is_told_with_its_cause(pretended, instead, told):
    """A signal by its name and what it means, an exit code with the last words that are not qemu's warnings."""
    process = pretended(instead)
    with pytest.raises(CaseError, match=told):
        process.open()


def test_a_process_that_lives_on_without_its_pipe_is_ended(pretended, monkeypatch):
    """It would run on behind the verdict."""
    monkeypatch.setattr(emulated_process, "_ENDING_SECONDS", 0.01)
    process = pretended(WAITING % "[os.close(int(pipe)) for pipe in sys.argv[1:]]")
    with pytest.raises(CaseError, match="closed its connection to qbench and was stopped"):
        process.open()
    assert process._process.wait() == -signal.SIGKILL


def test_no_memory_image_is_written_of_what_cannot_run(pretended, tmp_path):
    """An artifact with instructions that the CPU does not have ends by a signal, once for each try. Nor may it allow
    itself one, which tells the limit from that of a shell that writes none by itself."""
    pretended("ulimit -S -c; ulimit -H -c; exit 0")._process.wait()
    assert (tmp_path / "folder" / "log").read_text() == "0\n0\n"
