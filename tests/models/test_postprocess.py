"""What makes answers of outputs: the user's function or the built-in's, read, filled up, and what is said of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench.errors import EvaluateError
from qbench.models.postprocess import FILL, Postprocess, fill_up, find_form, fit_answers, join_answers


def own(folder: Path, text: str, **facts: object) -> Postprocess:
    """A user's file with a function ``fn``."""
    (folder / "mine.py").write_text("import numpy as np\n" + text)
    return Postprocess(file=folder / "mine.py", attribute="fn", **facts)  # type: ignore[arg-type]


def answers(folder: Path, text: str, *outputs: np.ndarray, **facts: object) -> np.ndarray:
    """What it makes of the outputs of a batch."""
    result: np.ndarray = own(folder, text, **facts).load()(outputs, None)
    return result


ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_one_output_is_an_array_and_several_a_dict(tmp_path: Path) -> None:
    """By their names, in the order in which the network returns them."""
    assert answers(tmp_path, "def fn(outputs): return outputs * 2", ROWS).tolist() == (ROWS * 2).tolist()
    text = "def fn(outputs): return outputs['scores'] + outputs['boxes']"
    assert answers(tmp_path, text, ROWS, ROWS, names=("boxes", "scores")).tolist() == (ROWS * 2).tolist()


def test_answers_of_different_lengths_are_filled_up(tmp_path: Path) -> None:
    """Behind their end with -1; an image without an answer has such rows alone."""
    text = "def fn(outputs): return [np.ones((3, 6)), np.zeros((0, 6))]"
    rows = answers(tmp_path, text, ROWS)
    assert (rows.dtype, rows.shape) == (np.dtype(np.float32), (2, 3, 6))
    assert (rows[1] == FILL).all()
    assert answers(tmp_path, "def fn(outputs): return [[7, 8], []]", ROWS).tolist() == [[7, 8], [-1, -1]]
    assert answers(tmp_path, "def fn(outputs): return [1.5, 2]", ROWS).tolist() == [1.5, 2.0]
    assert answers(tmp_path, "def fn(outputs): return ['ab', '']", ROWS).tolist() == [[97, 98], [-1, -1]]


def test_batches_are_joined_to_the_longest() -> None:
    """Also where one found nothing."""
    joined = join_answers([fill_up([np.ones((2, 6))], "fn"), fill_up([np.zeros((0, 6))] * 2, "fn")])
    assert joined.shape == (3, 2, 6)
    assert (joined[0] == 1).all()
    assert (joined[1:] == FILL).all()
    assert join_answers([np.ones(2), np.zeros(1)]).tolist() == [1, 1, 0]


def test_batches_without_any_answer_take_the_form_of_the_others() -> None:
    """Empty lists do not tell that they would hold boxes."""
    nothing, boxes = fill_up([np.array([])] * 2, "fn"), fill_up([np.ones((2, 6))], "fn")
    joined = join_answers([nothing, boxes])
    assert joined.shape == (3, 2, 6)
    assert (joined[:2] == FILL).all()
    assert fit_answers(nothing, find_form([nothing, boxes])).shape == (2, 2, 6)
    assert join_answers([nothing, nothing]).shape == (4, 1)
    for other in (np.ones((2, 5)), np.ones((2, 1, 5)), np.full((2, 1, 5), -1.0), np.ones(2)):
        assert fit_answers(other, (2, 6)) is other, "what is no empty answer is left to the metric to refuse"


def test_the_form_is_that_of_the_longest_with_the_most_axes() -> None:
    """Answers of fewer axes tell nothing of it."""
    shapes = ((1, 9), (1, 2, 6), (4, 3, 6))
    assert find_form([np.zeros(shape) for shape in shapes]) == (3, 6)
    assert find_form([np.zeros((1, 9)), np.zeros((2, 4))]) == (9,)
    assert find_form([np.zeros(3)]) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def fn(outputs): return [outputs[0]]",
            r"mine\.py: fn\(\) returned 1 answers for 2 examples; expected an array",
        ),
        ("def fn(outputs): return ['a', b'b']", r"returned an array of <U1; expected an array of 2 examples"),
        ("def fn(outputs): return [np.ones((1, 6)), np.ones((1, 5))]", "differ in more than their number of rows"),
        ("def fn(outputs): return [np.ones((1, 6)), np.ones(6)]", "differ in more than their number of rows"),
        ("def fn(outputs): return [1.0, np.ones(2)]", r"differ in more than their number of rows: \[2\], \[\]"),
        ("def fn(outputs): return outputs['boxes']", r"mine\.py:2: IndexError"),
        ("def fn(outputs): return 1 / 0", r"mine\.py:2: ZeroDivisionError"),
        ("fn = 3", r"mine\.py: 'fn' is int, not a function"),
        ("def other(outputs): return outputs", "no 'fn' in this file"),
    ],
)
def test_what_it_cannot_do_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    """The user's file and line; what is expected."""
    with pytest.raises(EvaluateError, match=words):
        answers(tmp_path, text, ROWS)


def test_a_runtime_that_gives_fewer_outputs_is_told(tmp_path: Path) -> None:
    """An emulated CPU answers the first one alone."""
    with pytest.raises(EvaluateError, match=r"fn\(\) takes 2 outputs, and there are 1 of them"):
        answers(tmp_path, "def fn(outputs): return outputs['a']", ROWS, names=("a", "b"))


def test_it_is_named_by_its_code(tmp_path: Path) -> None:
    """And that of what it imports from beside it; the built-in's by its name."""
    (tmp_path / "beside.py").write_text("LEAST = 1\n")
    first = own(tmp_path, "import beside\ndef fn(outputs): return outputs").digest()
    (tmp_path / "beside.py").write_text("LEAST = 2\n")
    assert own(tmp_path, "import beside\ndef fn(outputs): return outputs").digest() != first
    assert Postprocess(attribute="shapes-detector").digest() == "shapes-detector, built in"


def test_a_built_in_has_its_own() -> None:
    """Boxes of a detector: rows of six, the best first, at most a hundred."""
    outputs = np.zeros((2, 4 + 3, 180), dtype=np.float32)
    outputs[0, :4, 5], outputs[0, 5, 5] = (20, 30, 10, 8), 0.9
    outputs[0, :4, 6], outputs[0, 5, 6] = (21, 30, 10, 8), 0.8  # of the same object
    outputs[0, :4, 7], outputs[0, 4, 7] = (21, 30, 10, 8), 0.7  # of another class
    boxes = Postprocess(attribute="shapes-detector").load()((outputs,), None)
    assert boxes[0].tolist() == [[15, 26, 25, 34, pytest.approx(0.9), 1], [16, 26, 26, 34, pytest.approx(0.7), 0]]
    assert (boxes[1] == FILL).all()


@pytest.mark.parametrize("width", range(1, 7))
def test_an_answer_of_nothing_takes_the_rows_of_the_others(width: int) -> None:
    """Whatever form it has, and wherever it stands."""
    nothing, something = np.zeros(0, np.float32), np.ones((2, width), np.float32)
    for parts in ([nothing, something], [something, np.zeros((0, 9), np.float32)]):
        answers = fill_up(parts, "f")
        assert answers.shape == (2, 2, width)
        assert sorted(answers[:, 0, 0].tolist()) == sorted([1.0, FILL])


def test_texts_of_batches_are_as_long_as_the_longest() -> None:
    """As are rows; numbers have no length."""
    short, long = np.ones((1, 2), np.float32), np.ones((2, 4), np.float32)
    assert join_answers([short, long]).tolist() == [[1, 1, *[FILL] * 2], [1] * 4, [1] * 4]
    rows = [np.ones((1, count, 3), np.float32) for count in (1, 2)]
    assert join_answers(rows)[:, :, 0].tolist() == [[1, FILL], [1, 1]]
    numbers = np.arange(3.0)
    assert join_answers([numbers, numbers]).tolist() == [0, 1, 2, 0, 1, 2]
