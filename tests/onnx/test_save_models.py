"""Rules of qbench/onnx/save_models.py: on how many examples models are compared, and what is never overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx_networks import residual_cnn

from qbench.errors import UsageError
from qbench.onnx import save_models
from qbench.quant.onnx.calibration.batches import declared
from qbench.quant.onnx.graph.graph import Graph


@pytest.mark.parametrize(("size", "batches"), [(4, 3), (5, 2), (9, 2), (10, 1), (11, 1)])
def test_the_first_batches_that_hold_enough_examples_are_compared(
    monkeypatch: pytest.MonkeyPatch, size: int, batches: int
) -> None:
    """No further one is even made; data may be given or made by a function."""
    monkeypatch.setattr(save_models, "EXAMPLES", 10)
    graph = Graph(residual_cnn())
    (value,) = declared(graph)
    numbers: list[int] = []

    def make() -> Iterator[dict[str, np.ndarray]]:
        for number in range(9):
            numbers.append(number)
            yield {value.name: np.zeros((size, *value.shape[1:]), np.float32)}

    assert len(list(save_models._first(graph, make))) == len(numbers) == batches
    assert len(list(save_models._first(graph, list(make())))) == batches
    assert len(list(save_models._first(graph, list(make())[: batches - 1]))) == batches - 1


def test_a_batch_without_an_axis_is_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its first input, which may be a number."""
    monkeypatch.setattr(save_models, "EXAMPLES", 3)
    monkeypatch.setattr(save_models, "declared", lambda graph: ())
    monkeypatch.setattr(save_models, "checked", lambda inputs, batch, number: batch)
    graph = Graph(residual_cnn())
    batches = [{"temperature": np.array(0.5), "image": np.zeros((9, 2))}] * 9
    assert len(list(save_models._first(graph, batches))) == 3


def test_each_target_is_made_once_and_must_be_one() -> None:
    """In the order that they are asked for."""
    assert save_models._known(["ascend", "onnxruntime", "ascend"]) == ("ascend", "onnxruntime")
    with pytest.raises(UsageError, match="no target named 'tflite'; available: onnxruntime, ascend"):
        save_models._known(["onnxruntime", "tflite"])


@pytest.mark.parametrize("read", [0, 1])
def test_what_is_read_is_never_overwritten(tmp_path: Path, read: int) -> None:
    """Under whatever name it is written."""
    files = [tmp_path / "model.onnx", tmp_path / "record.json"]
    save_models._apart(*files, [tmp_path / "other.onnx"])
    (tmp_path / "link").symlink_to(files[read])
    with pytest.raises(UsageError, match="link: would be overwritten while it is read; take another prefix"):
        save_models._apart(*files, [tmp_path / "other.onnx", tmp_path / "link"])


def test_a_record_of_other_weights_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not complete, and one whose weights were balanced."""
    model = SimpleNamespace(graph=lambda: None, sites=None, config=SimpleNamespace(batch_num=1))
    refused: list[str] = []

    def refuse(name: str) -> None:
        def look(*_: object, **__: object) -> None:
            if name in refused:
                raise UsageError(name)

        module = save_models.calibration_file if name == "require_same_balance" else save_models.record_file
        monkeypatch.setattr(module, name, look)

    monkeypatch.setattr(save_models.calibration_file, "read", lambda file: model)
    monkeypatch.setattr(save_models.record_file, "read", lambda file: {})
    monkeypatch.setattr(save_models, "_settle", lambda *_: pytest.fail("it was made"))
    for name in ("require_complete", "require_same_balance"):
        refuse(name)
    for name in ("require_complete", "require_same_balance"):
        refused[:] = [name]
        with pytest.raises(UsageError, match=f"^{name}$"):
            save_models.save(tmp_path / "c.onnx", tmp_path / "r.json", tmp_path / "p", ["ascend"])


@pytest.mark.parametrize("folder", [".", "/"])
def test_a_folder_alone_does_not_say_how_files_begin(folder: str) -> None:
    """It is refused with what would."""
    with pytest.raises(UsageError, match="a folder; name how the files begin, too: .*model$"):
        save_models.name_file(Path(folder), ".quant.json")
    assert save_models.name_file(Path(folder) / "a" / "net", ".quant.json") == Path(folder) / "a" / "net.quant.json"
