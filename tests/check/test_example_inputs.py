"""Rules of qbench/check/example_inputs.py: random inputs of the shapes that are declared, or that a person names."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from qbench.check import example_inputs
from qbench.check.example_inputs import Given, make_inputs, read_given
from qbench.errors import UsageError
from qbench.quant.artifacts.onnx_file import DeclaredInput


def take(*sizes: int | str | None, name: str = "x", dtype: str | None = "float32") -> DeclaredInput:
    """An input that a file declares."""
    return DeclaredInput(name=name, dtype=dtype, sizes=sizes)


def test_a_shape_is_that_of_a_name_or_of_the_only_input() -> None:
    """Of a scalar there is none; a name may hold what it likes."""
    given = read_given(["a:0=1x128", "3x224", "b=scalar"], [])
    assert given.shapes == {"a:0": (1, 128), None: (3, 224), "b": ()}


@pytest.mark.parametrize("text", ["", "0x3", "1x", "x=", "=1x3", "1x03"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    """With how to write it."""
    with pytest.raises(UsageError, match="write it as name=1x3x224x224"):
        read_given([text], [])


@pytest.mark.parametrize(
    ("entry", "shapes", "shape"),
    [
        (take(2, 3), {}, (2, 3)),
        (take("n", 3), {}, (1, 3)),
        (take(None, 3), {}, (1, 3)),
        (take(0, 3), {}, (1, 3)),
        (take(-1, 3), {}, (1, 3)),
        (take(), {}, ()),
        (take("n", 3), {"x": (4, 3)}, (4, 3)),
        (take("n", 3), {None: (4, 3)}, (4, 3)),
        (take("n", "m"), {"x": (4, 5)}, (4, 5)),
        (take(0, 3), {"x": (4, 3)}, (4, 3)),
    ],
)
def test_an_input_has_the_shape_that_is_declared_or_named(entry: DeclaredInput, shapes: dict, shape: tuple) -> None:
    """A free first axis is one example; a named shape fills what is free."""
    (array,) = make_inputs([entry], Given(shapes=shapes))
    assert (array.shape, array.dtype) == (shape, np.float32)


@pytest.mark.parametrize(
    ("entries", "shapes", "words"),
    [
        ([take("n", "m")], {}, r"the size of x \(n x m\) is not fixed in the file: say it, as in --shape x=1x128"),
        ([take(1, None)], {}, r"x \(1 x \?\)"),
        ([take(2, 3)], {"x": (2, 4)}, "--shape x: 2x4 does not fit 2 x 3"),
        ([take(2, 3)], {"x": (2, 3, 1)}, "2x3x1 does not fit 2 x 3"),
        ([take(2), take(2, name="y")], {None: (2,)}, "no input is called one without a name; the inputs are x, y"),
        ([take(2), take(2, name="y")], {"z": (2,)}, "no input is called z; the inputs are x, y"),
        ([take(2**28 + 1)], {}, "x would have 268435457 values; name a smaller one"),
        ([take(2, dtype="string")], {}, "x is a tensor of string, of which random values say nothing"),
        ([take(2, dtype=None)], {}, "x is no tensor"),
    ],
)
def test_what_cannot_be_made_is_refused(entries: list[DeclaredInput], shapes: dict, words: str) -> None:
    """With what to name."""
    with pytest.raises(UsageError, match=words):
        make_inputs(entries, Given(shapes=shapes))


def test_values_are_in_range_for_masks_and_ids() -> None:
    """Whole numbers are 0 or 1, floats of both signs; the same ones each time."""
    entries = [take(4, 50, name=kind, dtype=kind) for kind in ("float16", "float64", "bool", "uint8", "int64")]
    arrays = make_inputs(entries, Given())
    assert [str(array.dtype) for array in arrays] == [entry.dtype for entry in entries]
    for array in arrays[:2]:
        assert array.min() < -1 < 1 < array.max()
    for array in arrays[2:]:
        assert set(np.unique(array)) == {0, 1}
    assert all((before == again).all() for before, again in zip(arrays, make_inputs(entries, Given()), strict=True))


def test_an_input_that_takes_a_gigabyte_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value more is refused."""
    monkeypatch.setattr(example_inputs, "_MOST_VALUES", 6)
    assert make_inputs([take(2, 3)], Given())[0].shape == (2, 3)
    with pytest.raises(UsageError, match="x would have 7 values"):
        make_inputs([take(7)], Given())


@pytest.mark.parametrize("text", ["", "16000", "=1", "sr=", "sr=loud", "sr=nan", "sr=inf"])
def test_what_is_no_constant_is_refused(text: str) -> None:
    """With how to write it."""
    with pytest.raises(UsageError, match="write it as name=16000"):
        read_given([], [text])


def test_an_input_holds_the_number_that_is_named() -> None:
    """In its own type, wherever it has elements; no other input does."""
    entries = [take("n", 4), take(name="a=b", dtype="int64"), take(2, name="is_on", dtype="bool")]
    x, rate, is_on = make_inputs(entries, read_given([], ["a=b=16000", "is_on=1"]))
    assert (rate.shape, rate.dtype, int(rate)) == ((), np.int64, 16000)
    assert is_on.tolist() == [True, True]
    assert len(set(x.ravel())) == 4
    with pytest.raises(UsageError, match="--constant: no input is called z; the inputs are x, a=b, is_on"):
        make_inputs(entries, read_given([], ["z=1"]))
    with pytest.raises(UsageError, match="there are two of them"):
        read_given([], ["z=1", "z=2"])


def test_what_is_asked_for_is_taken() -> None:
    """Sizes of usual data, for every input that needs them; the command line as it stands there."""
    entries = [
        take("n", 3, None, None, name="photo"), take(None, 48, "w", 3), take("n", "t", name="my ids", dtype="int64"),
        take(2, "n", 64, name="state"),
    ]  # fmt: skip
    with pytest.raises(UsageError) as refusal:
        make_inputs(entries, Given())
    words = shlex.split(str(refusal.value).partition("say it, as in ")[2])
    assert words == ["--shape", "photo=1x3x224x224", "--shape", "x=1x48x224x3", "--shape", "my ids=1x128"]
    arrays = make_inputs(entries, read_given(words[1::2], []))
    assert arrays[-1].shape == (2, 1, 64)


@pytest.mark.parametrize(("dtype", "number"), [("uint8", "300"), ("int64", "0.5"), ("int64", "1e30"), ("bool", "2")])
def test_a_number_that_an_input_cannot_hold_is_refused(dtype: str, number: str) -> None:
    """It would become another one without a word."""
    with pytest.raises(UsageError, match=f"--constant x: .* is no value of its type, {dtype}"):
        make_inputs([take(2, dtype=dtype)], read_given([], [f"x={number}"]))
