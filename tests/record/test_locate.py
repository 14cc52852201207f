"""qbench.record.locate: which run a name means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qbench.errors import UsageError
from qbench.record.locate import committed_baseline, find_run, is_quick, passed_over, point_latest_at, without_ok


@pytest.fixture
def newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two runs of the suite demo; the newer one."""
    monkeypatch.chdir(tmp_path)
    for name in ("20250101T000000Z-0000", "20260101T000000Z-ab12"):
        folder = tmp_path / "reports" / "demo" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    (folder.parent / "latest").symlink_to(folder.name)
    return folder


@pytest.mark.parametrize(
    "name", ["demo", "reports/demo", "reports/demo/latest", "reports/demo/20260101T000000Z-ab12", "./reports/demo/"]
)
def test_a_run_is_its_folder_or_the_latest_of_its_suite(newest: Path, name: str) -> None:
    """All ways to name a run lead to one folder, with links resolved, so that it stays the same one later."""
    assert find_run(name) == newest


def test_an_older_run_is_found_by_its_folder(newest: Path) -> None:
    """Latest is only what a suite's name means."""
    assert find_run("reports/demo/20250101T000000Z-0000").name == "20250101T000000Z-0000"


def test_a_folder_of_that_name_does_not_hide_a_suite(newest: Path) -> None:
    """A folder ./demo that is no run is passed over."""
    Path("demo").mkdir()
    assert find_run("demo") == newest


def test_latest_can_be_a_text_file(newest: Path) -> None:
    """Where there are no symbolic links a run's name stands in latest.txt."""
    (newest.parent / "latest").unlink()
    (newest.parent / "latest.txt").write_text(f"{newest.name}\n")
    assert find_run("demo") == newest


def test_a_run_that_is_not_there_lists_those_that_are(newest: Path) -> None:
    """The message says which suites have runs, each once."""
    (newest.parent / "latest.txt").write_text(newest.name)
    with pytest.raises(UsageError) as caught:
        find_run("nope")
    assert str(caught.value) == "nope: no run is there; suites with runs: demo"


def test_a_run_without_its_description_is_told_as_such(newest: Path) -> None:
    """It has records, so it is a run: what is missing, where, and what to do."""
    (newest / "records.jsonl").write_text("")
    (newest / "run.json").unlink()
    with pytest.raises(UsageError, match=r"ab12/run\.json: missing, though records are there: .*take it from a copy"):
        find_run(str(newest))


def test_a_suite_means_its_last_run_with_a_case_that_is_ok(newest: Path) -> None:
    """A run that was killed at once, or in which all failed, is passed over and named, unless it is alone."""
    older = newest.with_name("20250101T000000Z-0000")
    (newest / "records.jsonl").write_text(
        '{"status": "failed"}\nrubbish\n[]\n{"status": "skipped"}\n{"status": "failed"}\n'
    )
    message: list[str] = []
    assert find_run("demo", tell=message.append) == newest
    (older / "records.jsonl").write_text('{"status": "ok"}\n')
    assert find_run("demo", tell=message.append) == older
    assert message == [
        f"demo: its latest run, {newest.name}, has no case that is ok (2 failed, 1 skipped), so this is about "
        f"{older.name}; name reports/demo/{newest.name} to see that one"
    ]
    assert find_run("demo", to_resume=True) == newest
    assert find_run("reports/demo/latest") == newest


def test_a_run_proper_is_preferred_to_a_later_quick_look(newest: Path) -> None:
    """Where a full run is asked for, as the gate and the baseline do; unless every run is a quick look."""
    older = newest.with_name("20250101T000000Z-0000")
    (newest / "run.json").write_text('{"quick": {"examples": 500, "of": 1000}}')
    for run in (newest, older):
        (run / "records.jsonl").write_text('{"status": "ok"}\n')
    message: list[str] = []
    assert find_run("demo", tell=message.append) == newest
    assert find_run("demo", full=True, tell=message.append) == older
    assert message == [
        f"demo: its latest run, {newest.name}, is a quick look, so this is about {older.name}; name "
        f"reports/demo/{newest.name} to take that one"
    ]
    (older / "run.json").write_text('{"quick": {"examples": 500, "of": 1000}}')
    assert find_run("demo", full=True) == newest


def test_a_suite_whose_latest_leads_nowhere_has_its_other_runs(newest: Path) -> None:
    """A run that was removed by hand, or killed before it had anything to show, hides none of the others."""
    (newest / "run.json").unlink()
    assert find_run("demo").name == "20250101T000000Z-0000"


def test_pipes_in_a_folder_of_runs_are_not_waited_for(newest: Path) -> None:
    """A pipe named run.json is no run, and one named records.jsonl holds no case that is ok."""
    piped = newest.parent / "20270101T000000Z-ab12"
    piped.mkdir()
    os.mkfifo(piped / "run.json")
    os.mkfifo(newest / "records.jsonl")
    assert find_run("demo") == newest
    with pytest.raises(UsageError, match=r"suites with runs: demo$"):
        find_run("another")


@pytest.mark.parametrize(
    ("records", "name", "expected"),
    [
        ('{"status": "failed"}\n', "demo", True),
        ('{"status": "failed"}\n', "reports/demo/latest", True),
        ('{"status": "failed"}\n', "reports/demo/20250101T000000Z-0000", False),
        ('{"status": "failed"}\n{"status": "ok"}\n', "demo", False),
        ("", "nope", False),
    ],
)
def test_a_later_run_without_a_case_that_is_ok_is_passed_over(
    newest: Path, records: str, name: str, expected: bool
) -> None:
    """It is told of a suite's name and of its latest, not where a run itself was named."""
    (newest / "records.jsonl").write_text(records)
    older = newest.with_name("20250101T000000Z-0000")
    assert passed_over(name, older) == (newest if expected else None)
    assert passed_over(name, newest) is None


def make_run(folder: Path, second: int, *, quick: bool = False) -> Path:
    """A run of that second."""
    run = folder / f"20260101T00000{second}Z-ab12"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"quick": {}}' if quick else '{"quick": null}')
    return run


@pytest.mark.parametrize(
    ("second", "quick", "before_quick", "moves"),
    [
        (6, False, False, True),
        (4, False, False, False),
        (6, True, False, False),
        (6, True, True, True),
        (6, False, True, True),
        (4, True, True, False),
    ],
)
def test_latest_is_the_later_run_and_no_quick_look_in_place_of_one_proper(
    tmp_path: Path, second: int, quick: bool, before_quick: bool, moves: bool
) -> None:
    """Whichever ends last."""
    before, run = make_run(tmp_path, 5, quick=before_quick), make_run(tmp_path, second, quick=quick)
    point_latest_at(before, quick=before_quick)
    assert (tmp_path / "latest").readlink() == Path(before.name)
    point_latest_at(run, quick=quick)
    assert (tmp_path / "latest").readlink() == Path(run.name if moves else before.name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([before.name, run.name, "latest"])


def test_what_somebody_put_in_the_place_of_latest_stays(tmp_path: Path) -> None:
    """A folder, or a link that leads elsewhere: a text says then which run it is, and goes once a link may stand."""
    run, text = make_run(tmp_path, 5), tmp_path / "latest.txt"
    (tmp_path / "latest").symlink_to("mine")
    point_latest_at(run, quick=False)
    assert ((tmp_path / "latest").readlink(), text.read_text()) == (Path("mine"), f"{run.name}\n")
    later = make_run(tmp_path, 6)
    point_latest_at(later, quick=False)
    assert text.read_text() == f"{later.name}\n"
    (tmp_path / "latest").unlink()
    point_latest_at(later, quick=False)
    assert ((tmp_path / "latest").readlink(), text.exists()) == (Path(later.name), False)
    text.write_text(f"{run.name}\n")
    point_latest_at(later, quick=False)
    assert not text.exists()
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    text.write_text("my own notes")
    point_latest_at(later, quick=False)
    assert (text.read_text(), list((tmp_path / "latest").iterdir())) == ("my own notes", [])


def test_a_run_that_cannot_be_read_is_no_quick_look(tmp_path: Path) -> None:
    """Nor is one whose description is none."""
    runs = {text: make_run(tmp_path / str(i), i) for i, text in enumerate(("{", "[1]", "{}", '{"quick": {}}'))}
    for text, run in runs.items():
        (run / "run.json").write_text(text)
    assert [is_quick(run) for run in (*runs.values(), tmp_path)] == [False, False, False, True, False]


def test_no_run_at_all_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first run the message names the command."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="make one with `qbench run SUITE`"):
        find_run("demo")


def test_the_committed_baseline_is_there_or_none(tmp_path: Path) -> None:
    """A suite has one committed baseline, under its name; none is no error, since the gate says what that means."""
    assert committed_baseline("demo", tmp_path) is None
    (tmp_path / "demo.jsonl").write_text("")
    assert committed_baseline("demo", tmp_path) == tmp_path / "demo.jsonl"


def test_a_suite_means_its_newest_run_wherever_latest_points(newest: Path, tmp_path: Path) -> None:
    """A link to an older one of its runs changes nothing, as a quick look leaves it; one to a run that lies elsewhere
    is what its owner wants."""
    link = newest.parent / "latest"
    link.unlink()
    link.symlink_to("20250101T000000Z-0000")
    assert find_run("demo") == newest
    elsewhere = make_run(tmp_path / "elsewhere", 1)
    link.unlink()
    link.symlink_to(elsewhere)
    assert find_run("demo") == elsewhere


def test_a_name_in_latest_that_leads_elsewhere_is_not_followed(newest: Path) -> None:
    """It is somebody's own file of that name."""
    (newest.parent / "latest.txt").write_text("../../elsewhere")
    make_run(newest.parent.parent.parent / "elsewhere", 1)
    assert find_run("demo") == newest


def test_a_run_whose_path_has_a_line_break_is_refused_or_passed_over(newest: Path) -> None:
    """It would begin a line of its own in every message that names it."""
    broken = newest.parent / "30000101T000000Z\n-ab12"
    broken.mkdir()
    (broken / "run.json").write_text("{}")
    assert find_run("demo") == newest
    with pytest.raises(UsageError, match="the path of this run has a line break; give its folder another name"):
        find_run(str(broken))


def test_of_records_without_one_that_is_ok_it_is_said_what_they_are(tmp_path: Path) -> None:
    """By status; a run that has none has no record."""
    assert without_ok(tmp_path) == "no record"
    (tmp_path / "records.jsonl").write_text('{"status": "skipped"}\n{"status": "failed"}\n{"status": "skipped"}\n')
    assert without_ok(tmp_path) == "1 failed, 2 skipped"
