"""qbench.running.expected_time: what earlier runs of a suite tell of the next one."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_records import failed, int8

from qbench.record.jsonl import to_line
from qbench.record.schema import ArtifactFacts
from qbench.record.stored_run import PlanInfo, QuickInfo, RunInfo, SuiteInfo
from qbench.running.expected_time import expect_seconds
from qbench.suite import Suite, parse

TEXT = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
ELAPSED = {"prepare": 5.0, "build": 40.0, "evaluate": 10.0, "measure": 80.0}


def keep(
    reports: Path,
    name: str,
    *,
    text: str = TEXT,
    overrides: tuple[str, ...] = (),
    finished: str | None = "2026-01-01T00:00:00+00:00",
    quick: bool = False,
    elapsed: dict[str, float] = ELAPSED,
    started: str | None = None,
) -> None:
    """A run of four cases in a folder of that name."""
    info = RunInfo(
        suite=SuiteInfo(name="s", text=text, overrides=overrides),
        started=started,
        finished=finished,
        plan=PlanInfo(cases=("a", "b", "c", "d")),
        elapsed_seconds=elapsed,
        quick=QuickInfo() if quick else None,
    )
    (reports / name).mkdir()
    (reports / name / "run.json").write_text(json.dumps(asdict(info)))


def keyed(key: str) -> ArtifactFacts:
    """An artifact in the cache's folder of that key."""
    facts = int8().artifact
    assert facts is not None
    return replace(facts, key=key)


def expect(reports: Path, suite: Suite, *, cases: int) -> dict[str, float]:
    """With an empty cache."""
    return expect_seconds(reports, suite, cases=cases, cache=reports / "cache")


def test_without_an_earlier_run_nothing_is_known(tmp_path: Path) -> None:
    """No folder, or none of this suite's text, none that finished, none of the same kind."""
    assert expect(tmp_path / "none", parse(TEXT), cases=4) == {}
    keep(tmp_path, "1", text=TEXT + "measure: {}\n")
    keep(tmp_path, "2", finished=None)
    keep(tmp_path, "3", quick=True)
    (tmp_path / "4").mkdir()
    (tmp_path / "4/run.json").write_text("{")
    assert expect(tmp_path, parse(TEXT), cases=4) == {}


def test_the_newest_run_of_the_same_suite_tells(tmp_path: Path) -> None:
    """One with the same overrides before any other; stages by case are scaled to the cases that are open."""
    keep(tmp_path, "1", elapsed={**ELAPSED, "measure": 70.0})
    keep(tmp_path, "2", overrides=("measure.seed=3",), elapsed={**ELAPSED, "measure": 400.0})
    assert expect(tmp_path, parse(TEXT), cases=4)["measure"] == 70.0
    assert expect(tmp_path, parse(TEXT, overrides=["measure.seed=3"]), cases=4)["measure"] == 400.0
    half = expect(tmp_path, parse(TEXT), cases=2)
    assert (half["prepare"], half["measure"]) == (5.0, 35.0)


def test_a_quick_look_is_told_by_quick_looks(tmp_path: Path) -> None:
    """A run proper takes several times as long."""
    look = parse(TEXT, quick=True)
    keep(tmp_path, "1")
    keep(tmp_path, "2", quick=True, overrides=look.overrides, elapsed={"measure": 8.0})
    assert expect(tmp_path, look, cases=4)["measure"] == 8.0
    assert expect(tmp_path, parse(TEXT), cases=4)["measure"] == 80.0


def test_what_is_cached_takes_no_longer_than_in_the_fastest(tmp_path: Path) -> None:
    """The first run built everything; none after it does."""
    keep(tmp_path, "1", elapsed={**ELAPSED, "build": 2.0})
    keep(tmp_path, "2", elapsed={**ELAPSED, "build": 300.0})
    assert expect(tmp_path, parse(TEXT), cases=4)["build"] == 2.0


def test_what_the_only_run_made_is_not_made_again(tmp_path: Path) -> None:
    """Quickstart warm was told "about 4 min": its first run had trained and built everything. An artifact that is gone
    is built again; one that the run found there has cost it nothing."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    keep(tmp_path, "1", started=began.isoformat())
    keys = [digit * 64 for digit in "ab"]
    lines = [to_line(replace(int8(f"net/static/onednn/t1/b{i}"), artifact=keyed(key))) for i, key in enumerate(keys, 1)]
    others = (failed("net/static/x86/t1/b1"), int8("net/qat/x86/t1/b1"))
    lines += [to_line(record) for record in others]  # they name no folder of the cache
    (tmp_path / "1/records.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for key, written, build in zip(keys, (5.0, 9.0), (20.4, 0.8), strict=True):
        folder = tmp_path / "cache/artifacts" / key
        folder.mkdir(parents=True)
        os.utime(folder, (began.timestamp() + written,) * 2)
        assert expect(tmp_path, parse(TEXT), cases=4)["build"] == pytest.approx(build)
    assert expect(tmp_path, parse(TEXT), cases=4) == pytest.approx(
        {"prepare": 2.5, "build": 0.8, "evaluate": 2.5, "measure": 80.0}
    )
    os.utime(folder, (began.timestamp(),) * 2)
    assert expect(tmp_path, parse(TEXT), cases=4)["build"] == pytest.approx(0.8)
    os.utime(folder, (began.timestamp() - 60,) * 2)
    assert expect(tmp_path, parse(TEXT), cases=4)["build"] == pytest.approx(20.4)


def test_the_newest_five_runs_are_looked_at(tmp_path: Path) -> None:
    """The newest tells what is not cached; what a sixth took, which may be of another year, counts no more."""
    for number, measured in enumerate((10.0, 20.0, 30.0, 40.0, 50.0, 60.0)):
        keep(tmp_path, f"{number}", elapsed={"prepare": 5.0 + number, "build": 1.0 + number, "measure": measured})
    assert expect(tmp_path, parse(TEXT), cases=4) == {
        "prepare": 10.0,
        "build": 2.0,
        "evaluate": 0.0,
        "measure": 60.0,
    }


def test_what_lies_between_the_runs_is_passed_over(tmp_path: Path) -> None:
    """The link to the newest, which would count it twice, and one without cases, which nothing can be scaled by."""
    keep(tmp_path, "1", elapsed={"build": 7.0, "measure": 10.0})
    (tmp_path / "latest").symlink_to("1")
    keep(tmp_path, "2", finished=None, elapsed={"build": 1.0, "measure": 99.0})
    assert expect(tmp_path, parse(TEXT), cases=4) == {"build": 7.0, "evaluate": 0.0, "measure": 10.0}


def test_a_run_without_artifacts_of_the_cache_made_none(tmp_path: Path) -> None:
    """All that it took is taken again."""
    keep(tmp_path, "1", started="2026-01-01T00:00:00+00:00")
    (tmp_path / "1/records.jsonl").write_text(f"{to_line(int8('net/qat/x86/t1/b1'))}\n")
    assert expect(tmp_path, parse(TEXT), cases=4) == ELAPSED


def test_what_is_nobodys_run_hides_none_behind_it(tmp_path: Path) -> None:
    """Somebody has put it there, under a later name."""
    keep(tmp_path, "1")
    (tmp_path / "2").mkdir()
    (tmp_path / "2/run.json").write_text("{")
    assert expect(tmp_path, parse(TEXT), cases=4) == ELAPSED
