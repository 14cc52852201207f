"""qbench.compare.text: a comparison for a program."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from qbench.compare.compare import Delta
from qbench.compare.text import as_json, count_examples, flips, p_value, unpaired, would_decide
from qbench.record.schema import Flips
from qbench.stats.interval_type import Interval
from qbench.stats.noninferiority import assess_counts


def test_json_holds_every_delta_raw_and_null_where_nothing_is_known() -> None:
    """Names of both sides, the field in which the machines differ, and each delta's numbers as they are."""
    delta = Delta(
        case="m/static/x86/t1/b1",
        change="compared",
        base=None,
        contender=None,
        slowdown=Interval(value=1.0123, low=0.99, high=1.03),
    )
    data = json.loads(as_json("old", "new", [delta], incomparable="isa"))
    assert (data["schema"], data["base"], data["contender"], data["incomparable"]) == (1, "old", "new", "isa")
    (message,) = data["deltas"]
    assert message["slowdown"] == {"value": 1.0123, "low": 0.99, "high": 1.03}
    assert message["size_ratio"] is None


def test_json_is_strict_and_keeps_names_readable() -> None:
    """Letters are letters; a number that JSON does not have is an error, not another format."""
    delta = Delta(case="é/x", change="compared", base=None, contender=None)
    assert '"case": "é/x"' in as_json("old", "new", [delta], incomparable=None)
    assert json.loads(as_json("old", "new", [], incomparable=None))["same_run"] is False
    assert json.loads(as_json("old", "new", [], incomparable=None, same_run=True))["same_run"] is True
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json("old", "new", [replace(delta, size_ratio=float("nan"))], incomparable=None)


@pytest.mark.parametrize(
    ("p", "told"),
    [(0.00099, "p < 0.001"), (0.001, "p = 0.001"), (0.0391, "p = 0.039"), (0.0994, "p = 0.099"), (0.0995, "p = 0.10")],
)
def test_a_p_value_has_two_digits_and_no_more_than_three_places(p: float, told: str) -> None:
    """From 0.001 on the number itself is told."""
    assert p_value(p) == told


@pytest.mark.parametrize(
    ("needed", "told"),
    [(1, "1"), (99, "99"), (100, "100"), (101, "110"), (1782, "1,800"), (1800, "1,800"), (12_001, "13,000")],
)
def test_what_would_decide_is_rounded_up_to_two_digits(needed: int, told: str) -> None:
    """It is known no better; what cannot be counted is only said to be many."""
    assert count_examples(needed, 5000) == f"about {told} examples"
    assert count_examples(None, 5000) == "many more examples"


def test_what_is_not_paired_is_said_with_what_pairs_it() -> None:
    """Whoever reads an interval on accuracy learns that examples were not paired, and why, say since an old baseline
    has to be written again; nothing is said of what was paired or has no accuracy."""
    bare = Delta(case="m/static/x86/t1/b1", change="compared", base=None, contender=None)
    assert unpaired([bare], False) is None
    scored = replace(bare, accuracy=Interval(value=0.0, low=-0.02, high=0.02))
    assert unpaired([replace(scored, paired=100)]) is None
    for keeps, why in ((None, "not both runs keep predictions"), (True, "share no example"),
                       (False, "write it again with `qbench baseline RUN`")):  # fmt: skip
        text = unpaired([bare, scored], keeps)
        assert text is not None
        assert text.startswith("accuracy of m/static/x86/t1/b1: two scores, their examples not paired")
        assert why in text
    assert str(unpaired([scored, bare, scored], None)).startswith("accuracy of 2 cases: two scores")


def test_two_suites_are_not_compared() -> None:
    """What differs between suites is no change: exit code 3, naming both."""
    records = Path(__file__).parent.parent / "data/records"
    command = [sys.executable, "-m", "qbench", "compare", str(records / "v1"), str(records / "v1-ci")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert "compare two runs of one suite" in done.stderr


def test_json_is_a_key_a_line_and_ends_its_last_line() -> None:
    """So that versions of it are compared line by line."""
    text = as_json("old", "new", [], incomparable=None)
    assert text.startswith('{\n "schema": 1,\n "base": "old",\n')
    assert text.endswith(' "deltas": []\n}\n')


def test_a_decided_test_needs_no_more_examples() -> None:
    """One that is not says how many, where that is known."""
    undecided = assess_counts(0, 6, 1000, 0.01)
    assert would_decide(undecided, 1000) == count_examples(undecided.examples, 1000)
    assert str(would_decide(undecided, 1000)).startswith("about ")
    assert would_decide(replace(undecided, examples=100_001), 1000) == "many more examples"
    assert would_decide(replace(undecided, examples=100_000), 1000) == "about 100,000 examples"
    assert would_decide(assess_counts(0, 0, 1000, 0.01), 1000) is None


def test_flips_are_told_in_both_directions_with_their_p_value() -> None:
    """Right to wrong first."""
    assert flips(Flips(harmful=13, beneficial=2)) == "13 / 2, mid-p = 0.004"
    assert flips(Flips(harmful=0, beneficial=1)) == "0 / 1, mid-p = 0.50"
