"""Scores of the user's own: what the function is given, what it may return, and what is said where it fails."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qbench import registry
from qbench.errors import EvaluateError
from qbench.evaluate import one_output, score
from qbench.record import stored_run
from qbench.record.schema import Accuracy, CaseKey, Record
from qbench.suite import parse

SUITE = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\ngate: {accuracy: {margin: 1, metric: "
SOURCE = """
import numpy as np

def right(outputs, labels):
    return (outputs.argmax(axis=1) == labels).astype(np.float64)

def share(outputs, labels):
    return right(outputs, labels).mean()

def farthest(outputs, fp32):
    return np.abs(outputs - fp32).max(axis=1)

def spoils(outputs, labels):
    outputs[:] = 0
    labels[:] = 0
    return 1.0

def pair(outputs, labels):
    return np.ones((len(outputs), 2))

def words(outputs, labels):
    return "good"

def nan(outputs, labels):
    return np.where(labels == 3, np.nan, 1.0)

def raises(outputs, labels):
    return outputs[0][99]

def overflows(outputs, labels):
    return np.where(labels == 5, 1e308, 0.0)

def infinite(outputs, labels):
    return float("inf")

def imaginary(outputs, labels):
    return np.ones(len(outputs)) * 1j

def days(outputs, labels):
    return np.full(len(outputs), np.datetime64("2020-01-01"))

def texts(outputs, labels):
    return ["1.0"] * len(outputs)

def ragged(outputs, labels):
    return [[1.0], [1.0, 2.0]]

def nothing(outputs, labels):
    return None

def masked(outputs, labels):
    return np.ma.masked_array(np.ones(len(outputs)), mask=labels == 2)

def huge(outputs, labels):
    return 10 ** 400

class Odd:
    def __array__(self, *args, **kwargs):
        raise SystemExit(4)

def odd(outputs, labels):
    return Odd()

def leaves(outputs, labels):
    raise SystemExit

def chatty(outputs, labels):
    raise ValueError("two\\n lines \\udcff " + 1000 * "y")

def changes_its_mind(outputs, labels):
    wrong = outputs.argmax(axis=1) != labels
    return wrong.mean() if wrong.any() else wrong * 1.0

def by_name(outputs, held):
    fields = held if isinstance(held, dict) else {"label": held}
    parts = enumerate([*outputs.values(), *fields.values()], 1)
    return sum(part.reshape(len(part), -1).sum(1) * n for n, part in parts)

NUMBER = 3
"""
LABELS = np.arange(40) % 8


@pytest.fixture
def metric(tmp_path):
    """The metric of a function in the user's file, as a run loads it."""
    (tmp_path / "my.py").write_text(SOURCE, encoding="utf-8")

    def loaded(function, **keys):
        return spec(tmp_path, function, **keys).load()

    return loaded


def spec(folder, function, **keys):
    words = ", ".join(f"{key}: {value}" for key, value in {"python": f"my.py:{function}", **keys}.items())
    suite = parse(f"{SUITE}{{{words}}}}}}}", file=str(folder / "s.yaml"))
    return suite.gate.accuracy.choose_metric(base=suite.base, labelled=True)


def outputs(wrong=4):
    classes = np.where(np.arange(40) < wrong, 0, LABELS)
    return np.eye(8, dtype=np.float32)[classes]


def test_a_function_of_numbers_for_each_example_is_paired(metric):
    """An array of one number for each example gives pairs, as qbench's own metrics do."""
    actual = metric("right", percent="true")
    assert (actual.name, actual.percent, actual.higher_is_better) == ("my.py:right", True, True)
    assert actual.per_example(outputs(), LABELS).tolist() == [1.0, 0.0, 0.0, 0.0] + [1.0] * 36
    ours = one_output.score_predictions(actual, {"outputs": outputs(), "labels": LABELS}, {"outputs": outputs(0)}, 8)
    top1 = registry.load("metric", "top1")
    theirs = one_output.score_predictions(top1, {"outputs": outputs(), "labels": LABELS}, {"outputs": outputs(0)}, 8)
    assert (ours.value, ours.delta, ours.interval) == (theirs.value, theirs.delta, "score")


def test_a_function_of_one_number_is_bootstrapped(metric):
    """One number for all examples has no pairs, so both arms are resampled together, and the record says so."""
    actual = metric("share")
    assert actual.per_example(outputs(), LABELS) is None
    scored = one_output.score_predictions(
        actual, {"outputs": outputs(12), "labels": LABELS}, {"outputs": outputs(0)}, 8
    )
    assert (scored.value, scored.interval) == (30 / 40, "paired bootstrap")  # examples 0 and 8 are of class 0
    assert -0.45 < scored.delta.low < scored.delta.value == -10 / 40 < scored.delta.high < -0.1


def test_against_fp32_it_is_given_fp32s_outputs(metric):
    """Beside the outputs it gets those of fp32, needs no labels, and its unit and direction are what the suite says."""
    actual = metric("farthest", against="fp32", higher_is_better="false", unit="V")
    assert (actual.against, actual.higher_is_better, actual.unit, actual.percent) == ("fp32", False, "V", False)
    assert actual.problem(outputs(), None, None) is None
    scored = one_output.score_predictions(actual, {"outputs": outputs()}, {"outputs": outputs(0)}, None)
    assert (scored.value, scored.delta.value) == (3 / 40, 3 / 40)
    assert one_output.score_predictions(actual, {"outputs": outputs()}, None, None).value == 0.0


def test_several_outputs_are_given_by_name(metric):
    """Of a row that holds them beside each other each has its part, in its shape; so have those of fp32."""
    rows = np.arange(14.0).reshape(2, 7)
    layout = {"boxes": (2, 2), "scores": (3,)}
    of_labels = metric("by_name").of_outputs(layout)
    boxes, scores = rows[:, :4].sum(1), rows[:, 4:].sum(1)
    assert of_labels.per_example(rows, np.array([7, 8])).tolist() == (boxes + 2 * scores + [21, 24]).tolist()
    of_fp32 = metric("by_name", against="fp32").of_outputs(layout)
    assert (
        of_fp32.per_example(rows, rows[::-1]).tolist()
        == (boxes + 2 * scores + 3 * boxes[::-1] + 4 * scores[::-1]).tolist()
    )


def test_missing_labels_are_told_with_the_way_out(metric):
    """A function that takes labels cannot judge data without them."""
    assert "write `against: fp32` beside python" in str(metric("right").problem(outputs(), None, 8))
    assert metric("right").problem(outputs(), LABELS, 8) is None
    assert "39 outputs for 40 labels" in str(metric("right").problem(outputs()[1:], LABELS, 8))


def test_a_function_that_writes_into_its_arguments_spoils_nothing(metric):
    """It works on copies: the next variant is scored on the labels as they are."""
    arguments, labels = outputs(), LABELS.copy()
    assert metric("spoils").value(arguments, labels) == 1.0
    assert (arguments == outputs()).all()
    assert (labels == LABELS).all()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("pair", r"my.py: pair\(\) returned the shape \(40, 2\) for 40 examples; expected one number, or one for each"),
        ("words", r"my.py: words\(\) returned str; expected one number"),
        ("nan", r"nan\(\) returned nan for example 3, and no score for 4 more; a score must be a finite number"),
        ("raises", r"my.py:28: IndexError: index 99 is out of bounds"),
        ("overflows", r"overflows\(\) returned 1e\+308 for example 5, .* a finite number, at most 1e\+100 either way"),
        ("infinite", r"my.py: infinite\(\) returned inf; a score must be a finite number"),
        ("imaginary", r"my.py: imaginary\(\) returned an array of complex128; expected one number"),
        ("days", r"my.py: days\(\) returned an array of datetime64\[D\]; expected one number"),
        ("texts", r"my.py: texts\(\) returned an array of <U3; expected one number"),
        ("ragged", r"my.py: ragged\(\) returned list; expected one number"),
        ("nothing", r"my.py: nothing\(\) returned NoneType; expected one number"),
        ("masked", r"my.py: masked\(\) returned nan for example 2"),
        ("huge", r"my.py: OverflowError: int too large"),
        ("odd", r"my.py:\d+: SystemExit: 4$"),
        ("leaves", r"my.py:\d+: SystemExit$"),
        ("chatty", r"my.py:\d+: ValueError: two lines \\udcff y{470,490}$"),
        ("NUMBER", r"my.py: 'NUMBER' is int, not a function"),
        ("gone", r"my.py: no 'gone' in this file; it has Odd, by_name, changes_its_mind, "),
    ],
)
def test_what_a_function_does_wrong_is_told_at_its_place(metric, function, said):
    """One line with the user's file, the function, and what was expected."""
    with pytest.raises(EvaluateError, match=said):
        metric(function).value(outputs(), LABELS)


@pytest.mark.parametrize(
    ("function", "kind"), [("decimal", "one"), ("whole", "one"), ("tensor", "each"), ("flags", "each")]
)
def test_any_form_of_numbers_is_a_score(metric, tmp_path, function, kind):
    """Decimals, whole numbers, tensors and flags are numbers, too."""
    metric("right")
    with (tmp_path / "my.py").open("a") as file:
        file.write(
            "def decimal(outputs, labels):\n    import decimal\n    return decimal.Decimal('0.5')\n"
            "def whole(outputs, labels):\n    return 10**30\n"
            "def tensor(outputs, labels):\n    import torch\n    return torch.ones(len(outputs))\n"
            "def flags(outputs, labels):\n    return outputs.argmax(axis=1) == labels\n"
        )
    values = spec(tmp_path, function).load().per_example(outputs(), LABELS)
    assert (values is None) is (kind == "one")


def test_a_score_that_changes_its_form_is_refused(metric):
    """One number for one variant and one for each example for another have no pairs; the text says which score."""
    with pytest.raises(EvaluateError, match=r"^my.py:changes_its_mind gives one number for all examples at one time"):
        one_output.score_predictions(
            metric("changes_its_mind"), {"outputs": outputs(), "labels": LABELS}, {"outputs": outputs(0)}, 8
        )


def test_values_are_kept_so_that_a_reader_runs_no_code_of_the_users(tmp_path, metric):
    """What a report pairs is read back, with the user's file long gone."""
    metric("right")
    (tmp_path / "predictions").mkdir()
    files = {name: tmp_path / "predictions" / f"{name}.npz" for name in ("fp32", "int8")}
    for (name, file), wrong in zip(files.items(), (0, 4), strict=True):
        np.savez(file, outputs=outputs(wrong), labels=LABELS, ids=np.arange(40).astype(str))
        base = None if name == "fp32" else files["fp32"]
        accuracy = score.score_here(
            spec(tmp_path, "right", percent="true"), file, base, 8, progress=lambda text, share: None
        )
        assert accuracy.metric == "my.py:right"
    (tmp_path / "my.py").unlink()
    info = stored_run.RunInfo(suite=stored_run.SuiteInfo(name="s"), metric=stored_run.MetricInfo(name="my.py:right"))
    records = [record(name) for name in files]
    run = stored_run.StoredRun(folder=tmp_path, info=info, records=tuple(records))
    new, old = run.pairs(records[1], records[0])
    assert (new.tolist(), old.tolist()) == ([1.0, 0.0, 0.0, 0.0] + [1.0] * 36, [1.0] * 40)


def test_a_run_folder_cannot_name_code_to_run(tmp_path, metric):
    """A run.json from elsewhere whose metric describes a function is read without calling it."""
    metric("raises")
    (tmp_path / "predictions").mkdir()
    np.savez(tmp_path / "predictions" / "int8.npz", outputs=outputs(), labels=LABELS)
    described = {"name": "my.py:raises", "file": str(tmp_path / "my.py"), "attribute": "raises", "percent": False}
    described |= {"higher_is_better": True, "against": "labels", "unit": ""}
    name = f"python:{json.dumps(described)}"
    info = stored_run.RunInfo(suite=stored_run.SuiteInfo(name="s"), metric=stored_run.MetricInfo(name=name))
    run = stored_run.StoredRun(folder=tmp_path, info=info, records=(record("int8"),))
    assert run.values(run.records[0]) is None


def record(name):
    key = CaseKey(id=name, model="m", mode=name, backend="fake", threads=1, batch_size=1)
    accuracy = Accuracy(metric="my.py:right", value=1.0, low=None, high=None, n=40)
    return Record(case=key, status="ok", accuracy=accuracy, predictions=f"predictions/{name}.npz")


def test_paths_start_at_the_suites_folder(tmp_path):
    """`python: metrics/my.py:f` lies beside the suite wherever qbench is started; the record has the short name."""
    text = f"{SUITE}{{python: 'metrics/my.py:f'}}}}}}"
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "my.py").write_text("def f(outputs, labels):\n    return 1.0\n", encoding="utf-8")
    suite = parse(text, file=str(tmp_path / "s.yaml"))
    assert suite.gate.accuracy.metric == "my.py:f"
    chosen_metric = suite.gate.accuracy.choose_metric(base=suite.base, labelled=True)
    assert (chosen_metric.name, chosen_metric.function.file) == ("my.py:f", tmp_path / "metrics" / "my.py")
    assert chosen_metric.load().value(outputs(), LABELS) == 1.0
