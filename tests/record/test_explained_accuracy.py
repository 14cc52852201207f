"""What a run keeps of lost accuracy, and what is refused of a file that somebody else wrote."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from made_explanations import ACCURACY

from qbench.record.explained_accuracy import FILE, keep_accuracy, read_accuracy
from qbench.record.run_files import Damaged
from qbench.stats.interval_type import Interval


def test_an_explanation_is_read_as_it_was_kept(tmp_path):
    """And a later one of the same case takes its place."""
    other = replace(ACCURACY, case="net/static/fbgemm/t1/b1", causes=(), layers=())
    for explained in (ACCURACY, other, replace(ACCURACY, left=0.25)):
        keep_accuracy(tmp_path, explained)
    assert read_accuracy(tmp_path) == (other, replace(ACCURACY, left=0.25))


@pytest.mark.parametrize("wrong", [replace(ACCURACY, n=-1), replace(ACCURACY, against_fp32=Interval(value=1e308))])
def test_numbers_that_qbench_never_writes_are_refused(tmp_path, wrong):
    """By name, with what to do."""
    (tmp_path / FILE).write_text(json.dumps(asdict(wrong)), encoding="utf-8")
    with pytest.raises(Damaged, match="explained-accuracy.jsonl: cannot be read as explanations; delete it"):
        read_accuracy(tmp_path)
