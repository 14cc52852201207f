"""qbench.errors: the tree of exceptions, its exit codes, and how problems read."""

from __future__ import annotations

import inspect
import pickle

import pytest

from qbench import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_docstring_draws_every_class(kind: type[Exception]) -> None:
    """The tree in the module's docstring is the tree in the code: no class is missing from it."""
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.UsageError, 2),
        (errors.UnknownName, 2),
        (errors.SuiteError, 2),
        (errors.CaseError, 1),
        (errors.WorkerError, 1),
        (errors.CaseSkipped, 0),
        (errors.NotComparable, 3),
    ],
)
def test_exit_codes_are_a_contract(kind: type[errors.QbenchError], code: int) -> None:
    """2 is usage, 1 a failed case, 0 a skip, 3 not comparable: scripts rely on them."""
    assert kind.exit_code == code


def test_every_class_is_one_that_the_command_line_catches() -> None:
    """Whatever qbench raises on purpose is shown as one message, so all derive from QbenchError."""
    assert all(issubclass(kind, errors.QbenchError) for kind in CLASSES)


def test_problems_read_as_file_line_column_in_the_order_of_the_file() -> None:
    """All problems are in the message, one a line, sorted by place; a problem of the whole file names no key."""
    second = errors.Problem(file="s.yaml", line=9, column=14, where="matrix.modes", what="expected a list")
    first = errors.Problem(file="s.yaml", line=5, column=1, where="", what="not YAML")
    option = errors.Problem(file="--set a", line=0, column=0, where="a", what="no such key")
    error = errors.SuiteError([second, first, option])
    lines = ("--set a: a: no such key", "s.yaml:5:1: not YAML", "s.yaml:9:14: matrix.modes: expected a list")
    assert str(error).split("\n") == [*lines]
    assert error.problems == (option, first, second)


def test_of_many_problems_the_first_are_told_and_the_others_counted() -> None:
    """Behind what they are of, each on a line; none is no error."""
    errors.refuse("s.yaml", [])
    for most, lines in ((2, ["s.yaml: a", "s.yaml: b c"]), (1, ["s.yaml: a", "s.yaml: and 1 more"])):
        with pytest.raises(errors.UsageError) as caught:
            errors.refuse("s.yaml", ["a", "b\nc"], most)
        assert str(caught.value).split("\n") == lines


@pytest.mark.parametrize(
    ("count", "lines", "more"), [(20, 20, ""), (21, 21, "s: and 1 more"), (30, 21, "s: and 10 more")]
)
def test_twenty_problems_are_told(count: int, lines: int, more: str) -> None:
    """Unless another number is wanted."""
    with pytest.raises(errors.UsageError) as caught:
        errors.refuse("s", [f"problem {number}" for number in range(count)])
    assert str(caught.value).count("\n") == lines - 1
    assert str(caught.value).endswith(more or "s: problem 19")


@pytest.mark.parametrize(
    "kind", [kind for kind in CLASSES if kind is not errors.SuiteError], ids=lambda kind: kind.__name__
)
def test_errors_travel_between_processes(kind: type[errors.QbenchError]) -> None:
    """A child process sends its error to the parent, so class and text survive pickling."""
    back = pickle.loads(pickle.dumps(kind("why, and what to do")))
    assert type(back) is kind
    assert str(back) == "why, and what to do"


def test_a_list_of_names_that_is_cut_says_how_many_are_missing() -> None:
    """Up to the limit all of them, beyond it the number of the rest; never a list that ends without a sign."""
    names = [f"layer{index}" for index in range(8)]
    assert errors.first_names(names) == ", ".join(names)
    assert errors.first_names([*names, "layer8", "layer9"]) == ", ".join(names) + " and 2 more"
    assert errors.first_names(range(7), 5) == "0, 1, 2, 3, 4 and 2 more"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("bad allocation"), True),
        (RuntimeError("Failed to allocate memory for requested buffer of size 1024"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("memory layout"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error, expected):
    """By type or by what the allocators say, whatever type carries it."""
    assert errors.out_of_memory(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("no kernel"), errors.BuildError),
        (errors.ModelError("no model"), errors.ModelError),
        (RuntimeError("std::bad_alloc"), RuntimeError),
        (KeyError("x"), KeyError),
    ],
    ids=["a library's", "qbench's own", "memory ran out", "of another type"],
)
def test_only_a_librarys_error_of_the_named_types_becomes_one_of_qbenchs(error, expected):
    """Its text is made of the error, which stays the cause; all others pass as they are."""
    kinds = (RuntimeError, errors.QbenchError)
    with (
        pytest.raises(expected) as raised,
        errors.reraise(errors.BuildError, lambda error: f"refused ({error})", kinds),
    ):
        raise error
    if expected is errors.BuildError:
        assert str(raised.value) == "refused (no kernel)"
        assert raised.value.__cause__ is error
    else:
        assert raised.value is error
