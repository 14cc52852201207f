"""Rules of qbench/bisect/open_suite.py: the case that is named, or what there is in its place."""

from __future__ import annotations

import pytest

from qbench import suite as suites
from qbench.bisect.open_suite import find_case
from qbench.errors import UsageError
from qbench.machine import fingerprint

CORES = len(fingerprint.allowed_cores())
SUITE = suites.parse(
    "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\n"
    f"matrix: {{modes: [fp32, static], backends: [fake], threads: [1, {CORES + 1}]}}\n"
)


def test_a_planned_case_is_found_with_its_reference() -> None:
    """By its id."""
    planned = find_case(SUITE, "digits-cnn/static/fake/t1/b1")
    assert planned.reference is not None
    assert planned.reference.id == "digits-cnn/fp32/fake/t1/b1"


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("digits-cnn/static/fake/t1/b2", r"demo has no such case; did you mean digits-cnn/static/fake/t1/b1\?"),
        ("nonsense", "demo has no such case; there are digits-cnn/fp32/fake/t1/b1"),
        (f"digits-cnn/static/fake/t{CORES + 1}/b1", "it is skipped here: .*core"),
    ],
)
def test_a_case_that_is_none_is_refused(case: str, told: str) -> None:
    """With the nearest, with those that there are, or with the reason why it is skipped."""
    with pytest.raises(UsageError, match=told):
        find_case(SUITE, case)
