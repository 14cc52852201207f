"""Rules of qbench/suite/models_and_data.py: what a model and a data set may say, and what the stages make of it."""

from __future__ import annotations

import pytest

from qbench.errors import SuiteError
from qbench.models.base import InputForm
from qbench.suite import Suite, parse

OWN = "{name: mine, source: {onnx: m.onnx}"


def read(model: str, data: str = "{dataset: digits}") -> Suite:
    """A suite of one model."""
    return parse(f"suite: s\nmodels: [{model}]\ndata: {data}\nmatrix: {{}}\n")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("{name: mine}", "models[0].name: no model named 'mine'"),
        (f"{OWN}, weights: w.pt}}", "models[0].weights: an onnx file holds its own weights; remove this key"),
        ("{name: m, source: {python: 'a.py:f'}, weights: w.bin}", "models[0].weights: expected a .safetensors, .pt or"),
        ("{name: digits-cnn, inputs: {a: {axis: 1}}}", "models[0].inputs: only a model of your own is called in anot"),
        ("{name: digits-cnn, output: 1}", "models[0].output: only a model of your own is called in another way"),
        ("{name: digits-cnn, postprocess: {python: 'a.py:f'}}", "models[0].postprocess: only a model of your own is"),
        (f"{OWN}, output: true}}", "models[0].output: expected a mapping"),
        (f"{OWN}, inputs: {{a: {{constant: []}}}}}}", "expected a number, true, false or a list of them, got a list"),
        (f"{OWN}, inputs: {{a: {{constant: [1, [2]]}}}}}}", "expected lists of one length at each level"),
        (f"{OWN}, inputs: {{a: {{constant: [[1], 2]}}}}}}", "expected lists of one length at each level"),
        (f"{OWN}, inputs: {{a: {{constant: [[[1], 2]]}}}}}}", "expected lists of one length at each level"),
        (f"{OWN}, inputs: {{a: {{constant: [1, x]}}}}}}", "expected a number, true, false or a list of them"),
    ],
)
def test_what_no_model_can_be_is_refused_once(model: str, told: str) -> None:
    """At its key, with what to do."""
    with pytest.raises(SuiteError) as raised:
        read(model)
    (problem,) = raised.value.problems
    assert told in str(problem)


def test_a_network_of_ones_own_is_called_as_the_suite_says() -> None:
    """Weights for a module, inputs that lie along an axis or never change, the output that counts, and what follows
    it; of a built-in, nothing of that."""
    (mine,) = read(
        "{name: m, source: {python: 'sub/a.py:f'}, weights: w.PT, inputs: {a: {axis: 2}, b: {axis: 0}, c: {constant: "
        "null}, d: {constant: [[1, 2], [3, 4]]}, e: {constant: true}}, output: 0, postprocess: {python: 'b.py:g', "
        "timed: true}}".replace("w.PT", "w.pt")
    ).references()
    assert mine.inputs == {
        "a": InputForm(axis=2),
        "b": InputForm(axis=0),
        "c": InputForm(constant=None),
        "d": InputForm(constant=[[1, 2], [3, 4]]),
        "e": InputForm(constant=True),
    }
    assert (mine.output, mine.output_axis, mine.attribute) == (0, 0, "f")
    assert mine.own_postprocess is not None
    assert (mine.own_postprocess.attribute, mine.own_postprocess.timed) == ("g", True)
    (built_in,) = read("digits-cnn").references()
    assert (built_in.source, built_in.weights, built_in.output, built_in.own_postprocess) == (None, None, None, None)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("{dataset: {digits: 3}}", "data.dataset.digits: takes nothing, got 3"),
        ("{dataset: {npz: ' '}}", "data.dataset.npz: expected a path, got ' '"),
        ("{dataset: {npz: 3}}", "data.dataset.npz: expected a path, got 3"),
        ("{dataset: {python: 'a.py:3x'}}", "data.dataset.python: expected file.py:function, got 'a.py:3x'"),
        ("{dataset: {python: ':f'}}", "data.dataset.python: expected file.py:function, got ':f'"),
        ("{dataset: {some: 1, other: 2}}", "data.dataset: none of the keys is a data set; available: "),
        ("{dataset: {some: 1, digitz: 2}}", "data.dataset: none of the keys is a data set; did you mean 'digits'?"),
    ],
)
def test_what_no_data_set_can_be_is_refused_once(data: str, told: str) -> None:
    """At its key."""
    with pytest.raises(SuiteError) as raised:
        read("digits-cnn", data)
    (problem,) = raised.value.problems
    assert told in str(problem)


def test_a_data_set_with_nothing_behind_its_name_is_the_name() -> None:
    """As it is where it stands alone."""
    assert read("digits-cnn", "{dataset: {digits: }}").data.loader == "digits"
