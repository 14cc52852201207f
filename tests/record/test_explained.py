"""What a run keeps of explanations, and what is refused of a file that somebody else wrote."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from qbench.record.explained import FILE, ExplainedCase, ExplainedCause, keep_explained, read_explained
from qbench.record.run_files import Damaged
from qbench.stats.interval_type import Interval

CAUSE = ExplainedCause(
    title="too little work", change="batches of 8", gain=Interval(value=2.0, low=1.9, high=2.1), seconds=1e-5, share=0.5
)
CASE = ExplainedCase(
    case="net/static/onednn/t1/b1", seconds=3e-5, fp32_seconds=None, best_seconds=1e-5, best="fp32", causes=(CAUSE,),
    unexplained=0.5, environment=("unset ONEDNN_MAX_CPU_ISA",),
)  # fmt: skip


def test_an_explanation_is_read_as_it_was_kept(tmp_path):
    """And a later one of the same case takes its place."""
    other = replace(CASE, case="net/static/fbgemm/t1/b1", causes=())
    for explained in (CASE, other, replace(CASE, unexplained=0.25)):
        keep_explained(tmp_path, explained)
    assert read_explained(tmp_path) == (other, replace(CASE, unexplained=0.25))


def test_a_run_without_explanations_has_none(tmp_path):
    """Most have none."""
    assert read_explained(tmp_path) == ()


def test_numbers_and_settings_that_qbench_never_writes_are_refused(tmp_path):
    """A gain of 1e308 cannot be shown, and a foreign run must not tell its reader what to preload."""
    for wrong in (
        replace(CASE, seconds=1e308),
        replace(CASE, causes=(replace(CAUSE, gain=Interval(value=1e308, low=None, high=None)),)),
        replace(CASE, environment=("export LD_PRELOAD=/tmp/evil.so",)),
        replace(CASE, environment=("unset ONEDNN_MAX_CPU_ISA; rm -r /",)),
    ):
        (tmp_path / FILE).write_text(json.dumps(asdict(wrong)), encoding="utf-8")
        with pytest.raises(Damaged):
            read_explained(tmp_path)


@pytest.mark.parametrize("text", ["[1]", '{"case": 1}', "{", '{"case": "x", "seconds": 1e999}', chr(0xD800)])
def test_a_file_that_is_none_of_qbenchs_is_refused(tmp_path, text):
    """By name, with what to do."""
    (tmp_path / FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(Damaged, match="explained.jsonl: cannot be read as explanations; delete it"):
        read_explained(tmp_path)
