"""Rules of qbench/backends/torch_runner.py: arrays and tensors, one example a call, and how a file is deployed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qbench.backends import torch_runner
from qbench.backends.base import BuildJob
from qbench.backends.torch_runner import SingleExampleRunner, TorchScriptBackend, TorchScriptRunner
from qbench.errors import BuildError
from qbench.models.base import Network
from qbench.quant.artifacts import torchscript, tracing
from qbench.quant.recipe import Recipe

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def job(labels: Any = None) -> BuildJob:
    """A job that trains on three examples."""
    return BuildJob(network=Network(module=None, kind="module"), mode="qat", recipe=Recipe(), calibration=(ROWS, ROWS),
                    training=((ROWS,), labels), folder=Path())  # fmt: skip


def test_tensors_have_memory_of_their_own() -> None:
    """A memory-mapped array may not be written to."""
    array = ROWS.copy()
    array.flags.writeable = False
    (tensor,) = torch_runner.tensors((array,))
    tensor += 1
    assert np.array_equal(array, ROWS)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.zeros(3, np.uint8), torch.int64),
        (np.zeros(3, np.float64), torch.float32),
        (np.zeros(3, bool), torch.int64),
    ],
)
def test_labels_are_as_losses_take_them(labels: Any, kind: torch.dtype) -> None:
    """Whole numbers as 64 bits, others as 32."""
    inputs, given = torch_runner.training_tensors(job(labels))
    assert (given.dtype, len(inputs)) == (kind, 1)
    assert torch_runner.training_tensors(job())[1] is None


def test_calibration_examples_are_listed_one_by_one() -> None:
    """Each as a batch of 1 of every input."""
    listed = list(torch_runner.list_examples(job()))
    assert [[tensor.tolist() for tensor in example] for example in listed] == [[[row]] * 2 for row in ROWS.tolist()]
    assert len(list(torch_runner.list_examples(replace(job(), calibration=(ROWS,))))) == len(ROWS)


def test_examples_that_are_called_one_by_one_are_answered_together() -> None:
    """An output that has no row for its example is left out of all of them."""
    calls: list[list[Any]] = []

    def run(example: list[Any]) -> tuple[Any, ...]:
        calls.append(example)
        return example[0] * 2, torch.zeros(5, 2), (example[0] + 1,)

    class Read(SingleExampleRunner):
        def observed(self) -> dict[str, Any]:
            return {}

    runner = Read(run)
    result = runner(runner.prepare((ROWS, ROWS)))
    assert [len(example) for example in calls] == [2, 2, 2]
    assert all(tensor.shape == (1, 2) for example in calls for tensor in example)
    assert np.array_equal(runner.outputs(result), ROWS * 2)
    assert [output.tolist() for output in runner.all_outputs(result)] == [(ROWS * 2).tolist(), (ROWS + 1).tolist()]


class Two(torch.nn.Module):
    """Two outputs, or one."""

    def __init__(self, several: bool) -> None:
        super().__init__()
        self.several = several

    def forward(self, x: torch.Tensor) -> Any:
        """By what it was told."""
        return (x * 2, x + 1) if self.several else x * 2


@pytest.mark.usefixtures("two_threads", "engine_put_back")
@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("engine", [None, "qnnpack"])
def test_a_file_runs_on_its_engine(several: bool, engine: str | None, tmp_path: Path) -> None:
    """The first output, and all; on as many threads as it is told, which are read back with the engine."""
    with tracing.known_warnings():
        torch.jit.save(torch.jit.trace(Two(several), torch.zeros(1, 2)), str(tmp_path / "m.pt"))
    runner = TorchScriptRunner(tmp_path / "m.pt", threads=1, engine=engine)
    with runner.context():
        assert torch.is_inference_mode_enabled()
        result = runner(runner.prepare((ROWS,)))
    assert np.array_equal(runner.outputs(result), ROWS * 2)
    assert len(runner.all_outputs(result)) == 1 + several
    told = runner.observed()
    assert (told["threads"], told["engine"]) == (1, engine)


@pytest.mark.parametrize("engine", [None, "x86"])
def test_a_deployed_file_sets_its_engine_before_it_is_loaded(engine: str | None, tmp_path: Path) -> None:
    """fp32 needs none, and warns of nothing."""

    class Of(TorchScriptBackend):
        pass

    Of.engine, Of.__abstractmethods__ = engine, frozenset()  # type: ignore[attr-defined]
    (tmp_path / "model.pt").write_bytes(b"model")
    program = Of().deploy(tmp_path / "model.pt", tmp_path, "net")  # type: ignore[abstract]
    packed = ['torch.backends.quantized.engine = "x86"'] if engine else []
    assert list(program.load) == ["torch.set_num_threads(THREADS)", *packed, "model = torch.jit.load(FILE)"]
    assert program.imports == (
        (*("import os", 'os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")'), "import torch")
        if engine
        else ("import torch",)
    )
    assert (program.file, (tmp_path / "net.pt").read_bytes(), program.single) == ("net.pt", b"model", False)


def test_a_backend_of_torch_says_how_torch_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without importing it."""
    assert torch_runner.torch_missing() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert torch_runner.torch_missing() == torch_runner.MISSING


class Random(torch.nn.Module):
    """Another answer at each call, also in eval mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(())


class Pairs(torch.nn.Module):
    """Takes two examples at a time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 2, 2)


@pytest.mark.parametrize(
    ("module", "said"), [(Random(), "differ from call to call"), (Pairs(), "batch of 1|single|one example")]
)
def test_a_network_answers_one_example_and_the_same_each_time(module: torch.nn.Module, said: str) -> None:
    """What does not is refused before anything is built."""
    with pytest.raises(BuildError, match=said):
        torch_runner.one_example(replace(job(), network=Network(module=module, kind="torch"), calibration=(ROWS,)))
    plain = replace(job(), network=Network(module=torch.nn.Identity(), kind="torch"), calibration=(ROWS,))
    assert [tensor.tolist() for tensor in torch_runner.one_example(plain)] == [ROWS[:1].tolist()]


@pytest.mark.parametrize(("tolerance", "allowed"), [(None, torchscript.FREEZE_TOLERANCE), (0.25, 0.25)])
def test_a_file_is_proven_on_probes_and_tried_on_examples(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tolerance: float | None, allowed: float
) -> None:
    """To the tolerance of fp32 and int8 unless another one is asked for."""
    calls: list[Any] = []

    def save(module: Any, probes: Any, file: Path, examples: Any, *, tolerance: float) -> str:
        calls.append((module, len(probes), file, len(list(examples)), tolerance))
        return "a note"

    monkeypatch.setattr(torchscript, "save", save)
    assert torch_runner.save("module", job(), tmp_path / "m.pt", tolerance=tolerance) == "a note"
    assert calls == [("module", 2, tmp_path / "m.pt", 3, allowed)]
