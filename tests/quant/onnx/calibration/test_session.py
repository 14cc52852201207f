"""The session of the user's own loop: it runs as ONNX Runtime's own does, and leaves a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from calibration_models import cnn, config, images, written

from qbench.errors import BuildError, DataError, UsageError
from qbench.quant.onnx.calibration.batches import Declared, checked
from qbench.quant.onnx.calibration.session import CalibrationSession
from qbench.quant.onnx.formats import calibration_file

FEEDS = [{"x": images(3, seed=number)} for number in range(4)]


def write_model(folder: Path, **others: Any) -> Path:
    """The calibration model of the residual network."""
    network = cnn()
    return written(folder / "c.onnx", network, config(network, tensors=[("sum", 0)], batch_num=4, **others))


def test_a_loop_of_ones_own_gives_the_record_of_calibrate(tmp_path: Path) -> None:
    """batch_num calls of run write the record that calibrate writes for the same batches, byte for byte; later
    calls change nothing."""
    file = write_model(tmp_path)
    session = CalibrationSession(file, record=tmp_path / "loop.txt")
    for number, feed in enumerate(FEEDS):
        assert (tmp_path / "loop.txt").exists() is False, number
        session.run(None, feed)
    calibration_file.run(file, FEEDS, tmp_path / "run.txt")
    written_once = (tmp_path / "loop.txt").read_bytes()
    assert written_once == (tmp_path / "run.txt").read_bytes()
    session.run(None, {"x": images(3) * 100})
    assert (tmp_path / "loop.txt").read_bytes() == written_once


@pytest.mark.parametrize("names", [None, [], ["y"], ["b", "y"]])
def test_run_gives_what_an_ordinary_session_gives(tmp_path: Path, names: list[str] | None) -> None:
    """Outputs, their order and their number are those of the model, during calibration and after it."""
    file = write_model(tmp_path)
    session = CalibrationSession(str(file), record=str(tmp_path / "r.txt"))
    ordinary = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for feed in (*FEEDS, FEEDS[0]):
        actual, expected = session.run(names, feed), ordinary.run(names or ["y"], feed)
        assert len(actual) == len(expected)
        for mine, theirs in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert [output.name for output in session.get_outputs()] == ["y"]
    assert [output.name for output in session.get_inputs()] == ["x"]
    assert isinstance(session, onnxruntime.InferenceSession)


def test_what_the_caller_does_with_its_arrays_does_not_matter(tmp_path: Path) -> None:
    """A caller that reuses its input buffer and writes into its outputs gets the same record."""
    file = write_model(tmp_path)
    calibration_file.run(file, FEEDS, tmp_path / "run.txt")
    session = CalibrationSession(file, record=tmp_path / "loop.txt")
    buffer = np.empty_like(FEEDS[0]["x"])
    for feed in FEEDS:
        buffer[:] = feed["x"]
        for output in session.run(["y", "b"], {"x": buffer}):
            output[:] = 1e6
        buffer[:] = 1e6
    assert (tmp_path / "loop.txt").read_bytes() == (tmp_path / "run.txt").read_bytes()


def test_too_few_calls_are_an_error_at_the_end(tmp_path: Path) -> None:
    """As a context manager the session says at its end how many calls are missing, and writes nothing; an error of the
    loop itself goes before."""
    file = write_model(tmp_path)
    with (
        pytest.raises(DataError, match="calibration saw fewer than batch_num batches: 1 of 4"),
        CalibrationSession(file, record=tmp_path / "r.txt") as session,
    ):
        session.run(None, FEEDS[0])
    with pytest.raises(KeyError, match="mine"), CalibrationSession(file, record=tmp_path / "r.txt"):
        raise KeyError("mine")
    assert not (tmp_path / "r.txt").exists()


def test_a_bad_batch_is_named_and_does_not_count(tmp_path: Path) -> None:
    """Input that does not fit and activations that overflow name their batch; the call can be made again."""
    session = CalibrationSession(write_model(tmp_path), record=tmp_path / "r.txt")
    session.run(None, FEEDS[0])
    with pytest.raises(DataError, match=r"batch 2: input x takes float32, got float64"):
        session.run(None, {"x": FEEDS[1]["x"].astype(float)})
    with pytest.raises(BuildError, match=r"^deep: its input b in batch 2: \d+ values are NaN or inf"):
        session.run(None, {"x": np.full_like(FEEDS[1]["x"], 3e38)})
    assert session.batches_seen == 1


def test_steps_that_change_weights_are_refused(tmp_path: Path) -> None:
    """Balance and bias correction rewrite the model that the session runs: it says what to use instead."""
    file = write_model(tmp_path, balance=0.5, bias_correction=True)
    with pytest.raises(UsageError, match="balance and bias_correction change weights; use qbench.onnx.calibrate"):
        CalibrationSession(file, record=tmp_path / "r.txt")


def test_the_callers_options_are_used(tmp_path: Path) -> None:
    """Session options and providers are those that the caller gave."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = CalibrationSession(write_model(tmp_path), options, ["CPUExecutionProvider"], record=tmp_path / "r.txt")
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_sizes_of_one_name_are_equal_and_unknown_ones_are_free() -> None:
    """A symbol has one size in all inputs; a question mark, which Paddle writes for every size that it does not know,
    is no symbol."""
    shape = ("batch", 3, "side", "side")
    expected = [Declared(name="x", shape=shape, type="tensor(float)")]
    with pytest.raises(DataError, match="side is 48 in input x and 192 in input x"):
        checked(expected, np.zeros((1, 3, 48, 192), np.float32), 1)
    free = [replace(expected[0], shape=("?", 3, "?", "?"))]
    assert checked(free, np.zeros((1, 3, 48, 192), np.float32), 1)["x"].shape == (1, 3, 48, 192)
