"""Rules of qbench/upgrade/case_change.py: what of a case is another on the new side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_records import CASE, failed, fp32, int8
from made_runs import predictions, run_folder, write_with_predictions

from qbench.gating.sequential_test import LEVEL, ProcessPair, Rerun, analyze
from qbench.record.schema import Flips, Memory, Record
from qbench.record.stored_run import StoredRun, read_run
from qbench.upgrade.case_change import compare_files, compare_layers, compare_start, count_flips, describe_change


def pairs(ratios: list[float], start: float | None = 0.1) -> tuple[ProcessPair, ...]:
    """Process pairs with these log ratios, and controls that spread a little."""
    return tuple(
        ProcessPair(ratio=ratio, control=0.001 * (-1) ** place, drift=0.0, start=start and start + 0.01 * place)
        for place, ratio in enumerate(ratios)
    )


def stored(folder: Path, record: Record, classes: list[int]) -> StoredRun:
    """A run with one case that answers these classes of four examples whose labels are 0 to 3."""
    run_folder(folder, [])
    kept = write_with_predictions(folder, record, predictions(classes, [0, 1, 2, 3]))
    return replace(read_run(folder), records=(fp32(), kept))


def test_a_case_of_both_sides(tmp_path: Path) -> None:
    """Its time, start, answers, flips, layers, bytes and memory."""
    before = int8(memory=Memory(loaded_rss_bytes=1, peak_rss_bytes=10))
    after = int8(size_bytes=270_000, memory=Memory(loaded_rss_bytes=1, peak_rss_bytes=20))
    old, new = stored(tmp_path / "old", before, [0, 1, 2, 9]), stored(tmp_path / "new", after, [0, 1, 9, 3])
    three = pairs([0.04, 0.05, 0.045])
    rerun = Rerun(pairs=three, analysis=analyze(three, 0.05))
    change = describe_change("kept", "a name", (old, old.records[1]), (new, new.records[1]), rerun)
    assert change.time == analyze(three, 0.05).slowdown
    assert change.start is not None
    assert change.start.value == pytest.approx(np.exp(0.11))
    assert change.flips == Flips(harmful=1, beneficial=1)
    assert change.outputs is not None
    assert change.outputs.differing == 2
    assert (change.bytes_before, change.bytes_after) == (260_000, 270_000)
    assert (change.peak_before, change.peak_after) == (10, 20)
    assert change.same_file
    assert change.level == LEVEL
    assert change.reason is None


@pytest.mark.parametrize(("after", "reason"), [(failed(reason="opset 21"), "opset 21"), (None, "it is not in the run")])
def test_a_case_without_a_new_side_says_why(tmp_path: Path, after: Record | None, reason: str) -> None:
    """And nothing else."""
    old = stored(tmp_path / "old", int8(), [0, 1, 2, 3])
    change = describe_change("anew", "a name", (old, old.records[1]), (old, after), None)
    assert (change.reason, change.time, change.outputs, change.case) == (reason, None, None, CASE)
    assert not change.same_file


def test_of_cases_without_a_file_nothing_is_told_of_it(tmp_path: Path) -> None:
    """Nor are two that both have none the same file; what was not run again has no time."""
    bare = replace(int8(), artifact=None)
    old = stored(tmp_path / "old", bare, [0, 1, 2, 3])
    change = describe_change("kept", "a name", (old, old.records[1]), (old, old.records[1]), None)
    assert (change.same_file, change.bytes_before, change.bytes_after) == (False, None, None)
    assert (change.peak_before, change.peak_after, change.time, change.start) == (None, None, None, None)
    assert change.reason is None


def test_layers_by_name() -> None:
    """In float now, and in int8 now; nothing where one side does not tell."""
    before = int8()
    assert before.artifact is not None
    assert before.artifact.coverage is not None
    coverage = replace(before.artifact.coverage, float_layers=("conv1",))
    after = replace(before, artifact=replace(before.artifact, coverage=coverage))
    assert compare_layers(before, after) == (("conv1",), ("fc",))
    for unknown in (fp32(), replace(before, artifact=None)):
        assert compare_layers(before, unknown) == compare_layers(unknown, before) == ((), ())


def test_no_flips_where_no_example_is_right_or_wrong(tmp_path: Path) -> None:
    """As where predictions are not stored."""
    old = stored(tmp_path / "old", int8(), [0, 1, 2, 3])
    assert count_flips(old, old.records[1], old, int8()) is None


@pytest.mark.parametrize(
    ("old", "new", "flips"),
    [
        ([1, 0, 1, 1], [0, 1, 0, 1], Flips(harmful=2, beneficial=1)),
        ([1, 0], [1, 0, 1], None),
        ([1, 0], [1, 0.5], None),
        ([0.5, 0], [1, 0], None),
        (None, [1, 0], None),
        ([1, 0], None, None),
    ],
)
def test_flips_are_of_the_same_examples(old: list[float] | None, new: list[float] | None, flips: Flips | None) -> None:
    """Each right or wrong on either side."""
    runs = [
        SimpleNamespace(values=lambda *_, side=side: None if side is None else np.array(side), records=())
        for side in (old, new)
    ]
    assert count_flips(runs[0], int8(), runs[1], int8()) == flips  # type: ignore[arg-type]


def test_a_start_is_told_at_a_look() -> None:
    """Before the first one, or where a process did not tell, it is not known."""
    assert compare_start(pairs([0.0, 0.0])) is None
    assert compare_start(pairs([0.0, 0.01, 0.0], start=None)) is None
    assert compare_start(pairs([0.0, 0.01, 0.0])) is not None


def test_the_file_by_itself() -> None:
    """What is common to both arms cancels: 3 % of the runtime and 2 % of the file."""
    kept, anew = pairs([0.03, 0.035, 0.028]), pairs([0.05, 0.056, 0.047])
    change = compare_files(anew, kept)
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    assert change.low < np.exp(0.02) < change.high
    assert change.value == pytest.approx(np.exp(0.02), rel=1e-3)
    assert compare_files(anew, kept[:2]) == compare_files(anew[:2], kept)
    assert compare_files(anew[:2], kept) is not None
    assert compare_files(anew[:1], kept[:1]) is None
    assert compare_files(kept, kept) is None
