"""Rules of qbench/suite/cross_checks.py: what several keys say together, also where one of them says nothing."""

from __future__ import annotations

import pytest

from qbench.errors import SuiteError
from qbench.suite.suite import parse


@pytest.mark.parametrize("data", ["", "data: digits\n", "data: []\n", "data: 3\n", "data:\n"])
def test_a_suite_without_data_is_told_so_and_nothing_else(data: str) -> None:
    """What compares the splits of its data says nothing: there are none."""
    with pytest.raises(SuiteError) as raised:
        parse(f"suite: s\nmodels: [digits-cnn]\n{data}matrix: {{}}\n", file="s.yaml")
    (problem,) = raised.value.problems
    assert "data" in str(problem)
