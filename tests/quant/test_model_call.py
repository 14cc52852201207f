"""A user's forward: its errors told in one line, a batch of 1 required."""

from __future__ import annotations

import functools

import pytest
import torch
from networks import Forgetful, NeverAlone, perceptron

from qbench.errors import BuildError
from qbench.quant import model_call

IMAGE = (torch.zeros(1, 1, 8, 8),)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (KeyError(), "KeyError"),
        (RuntimeError("\x1b[1mbold\x1b[0m text"), "RuntimeError: bold text"),
        (
            RuntimeError("The following operation failed in the TorchScript interpreter.\nTrace\nRuntimeError: shapes"),
            "RuntimeError: shapes",
        ),
        (
            RuntimeError(
                "Exception from src/infer.cpp:224:\nCheck 'a(b())' failed at src/c.cpp:3:\nIt does not fit\n\n"
            ),
            "RuntimeError: It does not fit",
        ),
        (RuntimeError("Exception from src/infer.cpp:224:\n"), "RuntimeError: Exception from src/infer.cpp:224:"),
    ],
)
def test_a_reason_is_one_line(error, expected):
    """The line that holds the cause, without escape codes."""
    assert model_call.reason(error) == expected


def test_a_network_that_needs_several_examples_is_refused():
    """The message names the batch of 1, the user's own words and the user's line."""
    message = r"does not take a batch of 1 \(ValueError: expected several examples at networks\.py:\d+\)"
    with pytest.raises(BuildError, match=message):
        model_call.of_one_example(NeverAlone().eval(), IMAGE)


def test_one_example_gives_the_first_output():
    """A tensor of one row."""
    assert model_call.of_one_example(perceptron(), IMAGE).shape == (1, 10)


def test_a_network_that_changes_by_itself_is_told_apart():
    """Asked only when outputs were not as expected."""
    image = (torch.ones(1, 1, 8, 8),)
    model_call.require_repeatable(perceptron(), example=image)
    with pytest.raises(BuildError, match=r"dropout at networks\.py:\d+ .* draws at random"):
        model_call.require_repeatable(perceptron(), Forgetful().eval(), example=image)


def test_a_reason_names_the_users_line_and_no_other(tmp_path):
    """The innermost frame in a file of the user's: neither a library's, nor qbench's, nor that of code without one."""

    def write(name, text):
        scope = {}
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        exec(compile(text, str(tmp_path / name), "exec"), scope)
        return scope["call"]

    mine = write("mine.py", "def call(inner):\n\n    return inner()\n")
    library = write("site-packages/library.py", "def call(inner):\n    return inner()\n")
    unwritten = {}
    exec("def call():\n    raise ValueError('no')", unwritten)
    with pytest.raises(ValueError, match="no") as caught:
        mine(lambda: None) or library(lambda: mine(unwritten["call"]))
    assert model_call.reason(caught.value) == "ValueError: no at mine.py:3"
    with pytest.raises(AttributeError) as caught:  # in a line of qbench's
        mine(functools.partial(model_call.require_repeatable, lambda: None, example=()))
    assert model_call.reason(caught.value).endswith(" at mine.py:3")
    assert model_call.reason(ValueError("no")) == "ValueError: no"
