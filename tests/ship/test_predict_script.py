"""Rules of qbench/ship/predict_script.py: what the script does to examples, and how many it asks a call."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import int8
from onnx_networks import Draft, save
from optional_packages import needs_openvino

from qbench.backends.program import Program
from qbench.datasets.preprocessing import Preprocessing
from qbench.record.schema import Record, make_case_key
from qbench.record.stored_run import ExamplesInfo, RunInfo, SuiteInfo
from qbench.registry import load, names
from qbench.ship.predict_script import write_script

CALL = ("calls.append(len(arrays[0]))", "return arrays")
PROGRAM = Program(file="net.bin", libraries=("fake",), imports=(), load=("calls = []",), call=CALL)
CHANNELS = 3
numbers = st.floats(-4.0, 4.0, width=32).map(float)
positive = st.floats(0.125, 4.0, width=32).map(float)


def record(mode: str = "static", batch: int = 1) -> Record:
    """A case of a mode and a batch size."""
    return replace(int8(), case=make_case_key("net", mode, "onnxruntime", 1, batch))


def script(info: RunInfo, of: Record, fixed: int | None = None, program: Program = PROGRAM) -> dict[str, Any]:
    """What the script defines, as somebody who imports it finds it."""
    scope: dict[str, Any] = {"__name__": "predict", "__file__": "/there/predict.py"}
    exec(compile(write_script(program, info, of, fixed), "predict.py", "exec"), scope)
    return scope


def info(preprocessing: Preprocessing, shape: tuple[int, ...] = (CHANNELS, 2, 2)) -> RunInfo:
    """A run whose examples are of that shape and preprocessed so."""
    examples = ExamplesInfo(types=("uint8",), shapes=(shape,), **asdict(preprocessing))
    return RunInfo(suite=SuiteInfo(name="s"), examples=examples)


@given(
    scale=positive,
    mean=st.one_of(st.tuples(numbers), st.tuples(*[numbers] * CHANNELS)),
    std=st.one_of(st.tuples(positive), st.tuples(*[positive] * CHANNELS)),
    to_float=st.booleans(),
    reverse=st.booleans(),
    axis=st.sampled_from([1, -1, 3, -3]),
)
def test_examples_are_preprocessed_to_the_bit_as_in_the_suite(
    scale: float, mean: tuple[float, ...], std: tuple[float, ...], to_float: bool, reverse: bool, axis: int
) -> None:
    """Whatever the data set's scale, means, deviations, order and axis of channels are."""
    shape = (CHANNELS, 2, 2) if axis in (1, -3) else (2, 2, CHANNELS)
    preprocessing = Preprocessing(
        scale=scale, mean=mean, std=std, to_float=to_float, reverse_channels=reverse, channel_axis=axis
    )
    raw = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    (expected,) = preprocessing((raw,))
    (array,) = script(info(preprocessing, shape), record())["predict"](raw)
    assert array.dtype == expected.dtype
    assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    ("channels", "axis", "shape", "words"),
    [
        (1, 1, (3, 2, 2), "np.float32(0.5)"),
        (2, 1, (2, 7, 7), "np.float32([0.5, 0.5]).reshape(1, -1, 1, 1)"),
        (2, 1, (2, 7), "np.float32([0.5, 0.5]).reshape(1, -1, 1)"),
        (2, 2, (7, 2), "np.float32([0.5, 0.5]).reshape(1, 1, -1)"),
        (2, -1, (7, 7, 2), "np.float32([0.5, 0.5]).reshape(-1)"),
        (2, -3, (2, 7, 7), "np.float32([0.5, 0.5]).reshape(-1, 1, 1)"),
    ],
)
def test_one_number_for_each_channel_lies_along_the_channels_axis(
    channels: int, axis: int, shape: tuple[int, ...], words: str
) -> None:
    """However many dimensions the examples have; one for all needs no shape."""
    halves = Preprocessing(mean=(0.5,) * channels, std=(0.5,) * channels, channel_axis=axis)
    told = info(halves, shape)
    assert f"return (scaled - {words}) / {words}\n" in write_script(PROGRAM, told, record(), None)


@pytest.mark.parametrize(
    ("mode", "batch", "fixed", "single", "calls"),
    [
        ("static", 1, None, False, [5]),  # up to 8, as evaluation calls it: torch's kernels for 16 round otherwise
        ("dynamic", 1, None, False, [1] * 5),  # ranges are of the whole call
        ("dynamic", 2, None, False, [2, 2, 1]),
        ("static", 1, 5, False, [5]),
        ("static", 4, 4, False, [4, 4]),  # the last is filled: a model of a fixed batch takes no fewer
        ("static", 8, None, True, [1] * 5),
    ],
)
def test_a_call_has_as_many_examples_as_its_answers_need(
    mode: str, batch: int, fixed: int | None, single: bool, calls: list[int]
) -> None:
    """As evaluation gave it, but for dynamic ranges, models of a fixed batch, and files that answer one a call."""
    scope = script(info(Preprocessing()), record(mode, batch), fixed, replace(PROGRAM, single=single))
    (answers,) = scope["predict"](np.arange(5 * CHANNELS * 4, dtype=np.uint8).reshape(5, CHANNELS, 2, 2))
    assert (scope["calls"], len(answers)) == (calls, 5)


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=[needs_openvino] if name == "openvino" else [])  # it reads the file
        for name in sorted(names("backend"))
        if name != "fake"
    ],
)
@pytest.mark.parametrize(("mode", "fixed"), [("dynamic", None), ("static", 16)])
def test_a_script_has_at_most_thirty_lines(tmp_path: Path, backend: str, mode: str, fixed: int | None) -> None:
    """Of every backend, with all that a suite can ask of the examples; it is Python of at most 160 columns."""
    draft = Draft()
    y = draft.add("Relu", ["x"], "relu")
    file = save(draft.model({"x": ["n", 4]}, {y: ["n", 4]}), tmp_path)  # OpenVINO's is read
    program = load("backend", backend).deploy(file, tmp_path, "net")
    three = Preprocessing(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), reverse_channels=True)
    text = write_script(program, info(three), record(mode, 16), fixed)
    compile(text, "predict.py", "exec")
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 160


@pytest.mark.parametrize("arguments", [[], ["examples.npz"], ["1.npz", "2.npz", "3.npz"]])
def test_other_than_two_arguments_are_answered_with_one_line(tmp_path: Path, arguments: list[str]) -> None:
    """How it is called, no traceback."""
    (tmp_path / "predict.py").write_text(write_script(PROGRAM, info(Preprocessing()), record(), None))
    command = [sys.executable, str(tmp_path / "predict.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines() == ["usage: python predict.py EXAMPLES.npz ANSWERS.npz"]


def test_many_examples_are_not_called_at_once() -> None:
    """fp32 of digits-cnn on torch answered 450 at once by 8e-6 otherwise than evaluation, which called it by 8."""
    scope = script(info(Preprocessing()), record())
    scope["predict"](np.zeros((20, CHANNELS, 2, 2), np.uint8))
    assert scope["calls"] == [8, 8, 4]


def test_a_run_that_does_not_tell_its_preprocessing_leaves_it_to_the_reader() -> None:
    """Runs of before: the script says that it changes nothing."""
    old = RunInfo(suite=SuiteInfo(name="s"))
    assert "does not tell the suite's preprocessing" in write_script(PROGRAM, old, record(), None)
    raw = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert script(old, record())["predict"](raw)[0].dtype == np.uint8


def test_a_case_of_any_name_ends_no_text_of_the_script() -> None:
    """A name is data: quotes and backslashes in it are no Python."""
    hostile = replace(int8(), case=make_case_key('"""; import os; x = "\\', "static", "onnxruntime", 1, 1))
    scope = script(info(Preprocessing()), hostile)
    assert "os" not in scope
    assert scope["predict"](np.zeros((1, CHANNELS, 2, 2), np.uint8))


def test_a_call_that_was_filled_answers_the_examples_alone() -> None:
    """As many answers as examples, in their order."""
    raw = np.arange(5, dtype=np.uint8).reshape(5, 1)
    scope = script(RunInfo(suite=SuiteInfo(name="s")), record("static", 4), 4)
    assert np.array_equal(scope["predict"](raw)[0], raw)


@pytest.mark.parametrize(
    "facts",
    [
        {"types": ("uint8", "uint8")},
        {"mean": ()},
        {"mean": (1.0, 2.0), "std": (1.0, 2.0, 3.0)},
        {"mean": (1.0, 2.0), "channel_axis": 5},
        {"mean": (1.0, 2.0), "channel_axis": -(10**9)},
    ],
)
def test_facts_that_do_not_belong_together_are_refused(facts: dict[str, Any]) -> None:
    """A run may be somebody else's: nothing of it makes a script that cannot run, or one without end."""
    with pytest.raises(ValueError, match=r"differ in length|one number each|outside the examples"):
        ExamplesInfo(**{"types": ("uint8",), "shapes": ((1, 8, 8),), **facts})
