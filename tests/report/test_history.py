"""Rules of qbench/report/history.py: which runs of a suite are followed, and what is said to have changed."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_history import CASE, OTHER, commit, write_history
from made_records import FP32, accuracy, failed, info, int8, latency, speedup
from made_runs import run_folder

from qbench.errors import UsageError
from qbench.record.schema import Memory, Record
from qbench.record.stored_run import MetricInfo, QuickInfo, SuiteInfo
from qbench.report.history import PastRun, _make_series, quantities, read_history
from qbench.stats.change_points import LEAST_RUNS


def test_a_change_is_shown_with_its_commit(tmp_path: Path) -> None:
    """20 % slower from one run on: the speed-up and the time of that case, at that run, and nothing else."""
    history = read_history(write_history(tmp_path, runs=16, changed=9))
    (panel,) = history.panels
    told = {(change.series.record.case.id, change.series.quantity.key): change for change in panel.changes}
    assert set(told) == {(CASE, "speedup"), (CASE, "p50")}
    speedup = told[CASE, "speedup"]
    assert speedup.position == 9
    assert speedup.ratio == pytest.approx(0.8, rel=0.03)
    assert not speedup.for_better
    assert not told[CASE, "p50"].for_better
    assert panel.runs[speedup.position].commit == f"{commit(9).short} quant: step 9"


def test_nothing_is_claimed_of_few_runs(tmp_path: Path) -> None:
    """However large the change is."""
    (panel,) = read_history(write_history(tmp_path, runs=LEAST_RUNS - 1, changed=4)).panels
    assert panel.changes == ()
    assert len(panel.runs) == LEAST_RUNS - 1


def test_machines_have_panels_of_their_own(tmp_path: Path) -> None:
    """Runs of another machine are in no line of the first, and each panel says what tells it from the other."""

    def edit(number: int, changes: dict[str, Any]) -> dict[str, Any]:
        return changes | ({"environment": info().environment | {"isa": ["avx2", "vnni"]}} if number % 2 else {})

    history = read_history(write_history(tmp_path, runs=6, changed=None, edit=edit))
    assert [len(panel.runs) for panel in history.panels] == [3, 3]
    assert [panel.machine for panel in history.panels] == ["CPU A, isa avx2", "CPU A, isa avx2, vnni"]


def test_runs_that_are_no_equals_are_set_aside(tmp_path: Path) -> None:
    """A quick look, a run that did not end, one without an ok case and one whose records are damaged: no line goes
    through them, and each says why."""

    def edit(number: int, changes: dict[str, Any]) -> dict[str, Any]:
        special: dict[int, dict[str, Any]] = {2: {"quick": QuickInfo(examples=5, of=50)}, 3: {"finished": None}}
        return changes | special.get(number, {})

    write_history(tmp_path, runs=6, changed=None, edit=edit)
    run_folder(tmp_path / "failed", [failed(), failed(FP32)], info(started="2026-02-01T00:00:00Z"))
    damaged = run_folder(tmp_path / "damaged", [], info(started="2026-02-02T00:00:00Z"))
    (damaged / "records.jsonl").write_text("{}\n", encoding="utf-8")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{", encoding="utf-8")
    (run_folder(tmp_path / "bare", [failed()]) / "run.json").unlink()
    history = read_history(tmp_path)
    (panel,) = history.panels
    assert len(panel.runs) == 4
    assert [run.state for run in panel.aside] == ["quick look", "unfinished", "no case ok"]
    assert all(run.note and str(tmp_path) not in run.note for run in (*panel.aside, *history.lost))
    assert {run.name for run in history.lost} == {"bare", "broken", "damaged"}
    assert history.runs == 10


def test_changes_of_the_environment_are_marked(tmp_path: Path) -> None:
    """Versions, the machine's settings and the suite's text, before the run that has them first; a commit is none."""

    def edit(number: int, changes: dict[str, Any]) -> dict[str, Any]:
        changes["versions"] = {"torch": "2.13.0" if number < 2 else "2.13.1"}
        changes["suite"] = SuiteInfo(name="demo", text="a: 1\n" if number < 4 else "a: 2\n")
        return changes

    (panel,) = read_history(write_history(tmp_path, runs=6, changed=None, edit=edit)).panels
    assert [(mark.position, mark.number, mark.texts) for mark in panel.marks] == [
        (2, 1, ("torch: 2.13.0 → 2.13.1",)),
        (4, 2, ("the suite's text: 2 lines",)),
    ]


def test_a_case_that_comes_later_is_a_ratio_to_its_own_first_level(tmp_path: Path) -> None:
    """Runs without it are gaps, not zeros."""
    write_history(tmp_path, runs=3, changed=None, cases=(CASE,))
    both = write_history(tmp_path / "later", runs=3, changed=None, cases=(CASE, OTHER))
    for number, run in enumerate(sorted(both.iterdir())):
        run.rename(tmp_path / f"2027{number}")
    both.rmdir()
    (panel,) = read_history(tmp_path).panels
    later = next(line for line in panel.series if line.record.case.id == OTHER and line.quantity.key == "speedup")
    assert sum(ratio is None for ratio in later.ratios) == 3
    assert all(ratio == pytest.approx(1.0, abs=0.1) for ratio in later.ratios if ratio is not None)


def test_what_has_no_runs_is_refused(tmp_path: Path) -> None:
    """Naming what is expected."""
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="reports/<suite>"):
            read_history(folder)


def test_what_every_quantity_gains_by() -> None:
    """More speed, less of all else; an error is better smaller, and no score has a unit of its own but its own."""
    error = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
    signs = {
        None: {"speedup": 1, "p50": -1, "accuracy": 1, "size": -1, "memory": -1},
        error: {"speedup": 1, "p50": -1, "accuracy": -1, "size": -1, "memory": -1},
    }
    for metric, expected in signs.items():
        assert {quantity.key: quantity.better for quantity in quantities(metric)} == expected
    told = {metric: quantities(metric)[2].write(0.5) for metric in (None, MetricInfo(name="top1"), error)}
    assert list(told.values()) == ["50.00 %", "50.00 %", "0.5 px"]


def test_a_run_without_a_time_is_told_by_its_name() -> None:
    """Of another its day."""
    for described, day in ((None, "here"), (info(started=None), "here"), (info(), "2026-01-01")):
        assert PastRun(name="here", state="whole", info=described, records={}).day == day


def past(number: int, *records: Record) -> PastRun:
    """A whole run of these records."""
    return PastRun(name=str(number), state="whole", info=info(), records={each.case.id: each for each in records})


def test_a_line_takes_two_values_and_nothing_has_no_logarithm() -> None:
    """A case that was measured once has none; a score of 0 is a gap."""
    score = accuracy()
    runs = [
        past(0, int8(CASE), int8(OTHER)),
        past(1, int8(CASE, accuracy=replace(score, value=0.0))),
        past(2, int8(CASE)),
    ]
    lines = {(line.record.case.id, line.quantity.key): line for line in _make_series(runs, quantities(None))}
    assert {case for case, _ in lines} == {CASE}
    assert lines[CASE, "accuracy"].values == (pytest.approx(score.value), None, pytest.approx(score.value))


def test_the_first_level_is_that_before_the_first_change(tmp_path: Path) -> None:
    """Ratios are to it, and the latest change stands first."""
    (panel,) = read_history(write_history(tmp_path, runs=16, changed=9)).panels
    line = next(line for line in panel.series if line.changes)
    before = [value for value in line.values[: line.changes[0]] if value is not None]
    assert line.first == pytest.approx(statistics.median(before))
    changes = [change.position for change in panel.changes]
    assert changes == sorted(changes, reverse=True)


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("size", {"size_bytes": 270_000}),
        ("memory", {"memory": Memory(loaded_rss_bytes=1, peak_rss_bytes=2 * 10**8)}),
        ("accuracy", {"accuracy": accuracy(harmful=40)}),
        ("speedup", {"speedup": speedup(2.4)}),
        ("p50", {"latency": latency(0.0011)}),
    ],
)
def test_a_new_level_of_any_quantity_is_a_change(key: str, changes: dict[str, Any]) -> None:
    """A few per cent are, where nothing moved before; what moves less than a measurement can tell is none."""
    plain: dict[str, Any] = {"memory": Memory(loaded_rss_bytes=1, peak_rss_bytes=10**8)}
    runs = [past(number, int8(**(plain | (changes if number >= 8 else {})))) for number in range(16)]
    told = {line.quantity.key: line.changes for line in _make_series(runs, quantities(None))}
    assert told == {**dict.fromkeys(("speedup", "p50", "accuracy", "size", "memory"), ()), key: (8,)}


def test_a_difference_below_the_noise_of_a_quantity_is_no_new_level() -> None:
    """However steady it was before."""
    steady = {"size_bytes": 260_000, "speedup": speedup(2.5), "latency": latency(0.001)}
    little = {"size_bytes": 260_030, "speedup": speedup(2.501), "latency": latency(0.001001)}
    runs = [past(number, int8(**(little if number >= 8 else steady))) for number in range(16)]
    assert {line.changes for line in _make_series(runs, quantities(None))} == {()}


def test_reasons_and_cases_are_named_three_at_most(tmp_path: Path) -> None:
    """Each reason once; of cases whose files are gone how many more there are."""
    reasons = ["a", "a", "b", "c", "d"]
    records = [failed(f"net/static/b{number}/t1/b1", reason=reason) for number, reason in enumerate(reasons)]
    run_folder(tmp_path / "failed", records, info(started="2026-02-01T00:00:00Z"))
    lost = [int8(f"net/static/b{number}/t1/b1", samples=f"gone{number}.npz") for number in range(4)]
    run_folder(tmp_path / "lost", lost, info(started="2026-02-02T00:00:00Z"))
    (panel,) = read_history(tmp_path).panels
    assert [run.note for run in panel.aside] == ["failed: a; failed: b; failed: c"]
    assert [run.note for run in panel.runs] == [
        "samples or predictions are gone or cut, the records are whole: net/static/b0/t1/b1, net/static/b1/t1/b1, "
        "net/static/b2/t1/b1 and 1 more"
    ]
